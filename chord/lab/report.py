"""One page on a run of the lab: findings, plots, and the command to repeat it.

The page links to the pages of the experiments, which have the tables. It includes the tables that re-measure
Golubtsov's article, and a list of the points on which the source texts differ from the measurements.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import chord
from chord.lab.harness.files import write_whole
from chord.lab.harness.report import ExperimentReport, markdown

PAGE = "report.md"
SHOWN = ("golubtsov", "draws")
"""Tables printed in full, because a source text prints them."""

TEXTS = (
    "*Ilya Kokorin*, "
    "«Шардирование», lecture slides (in Russian): the remainder and its factors, tries, sections, rendezvous, rings, "
    "jump.",
    "*Exam notes* «Распределенные системы» (in Russian; no author named), 26 tickets. Only tickets 19 to 21 are on "
    "sharding.",
    "*An article on consistent hashing* (in Russian; no author or title given). It treats the remainder, rendezvous, "
    "rings, bounded loads, jump and multi-probe, and has six criteria for a scheme.",
    "*Anton Golubtsov*, «Алгоритмы шардинга (разделения) данных», 2024 (in Russian). It compares five schemes from 20 "
    "shards to 21, and the time that they take.",
    "*Course notes* "
    "“分片 (Sharding)” (in Chinese; no author named): tables of first letters, directories, Chord, Dynamo.",
)
"""The texts that the lab started from. The lab measures their claims again."""

DIFFERENCES = (
    ("Golubtsov's column *overlap* is the share of keys that stay.",
     "By the remainder 4.77 % stay and 95.23 % move. By jump 95.24 % stay. The formula for the share that the "
     "remainder moves, `shards_before / shards_after`, holds for one more shard and for doubling. In general, going "
     "from m to n moves 1 - m / lcm(m, n)."),
    ("Golubtsov's rings are one draw each.",
     "The names of a ring's nodes decide its kept share and its evenness. The table of draws has the distribution, and "
     "the printed figures lie inside it."),
    ("Golubtsov's times are in another order than ours.",
     "There, jump is faster than every ring. Here, one lookup by jump takes longer than on every ring, because "
     "jump's loop runs in the interpreter. A ring's binary search is one call of compiled code. The table *order* has "
     "both orders."),
    ("Golubtsov's listing of jump starts at `b = 1`.",
     "The published one starts at -1. The loop starts with `j = 0` and sets `b` before it is read, so every key gets "
     "the same bucket. The results would differ only for zero buckets."),
    ("Golubtsov's ring assigns a key to the first shard with `hash(shard) > hash(item)`.",
     "In the other texts, and here, a point at the hash itself counts, too: `>=`. The two differ only for a key "
     "with exactly the hash of a point."),
    ("Kokorin's slides say that a key jumps if `ch(key, n + 1) = n + 1`.",
     "Buckets are numbered from 0, so the new one is n: `ch(key, n + 1) = n`. The exam notes have this right."),
    ("Kokorin's slides and ticket 21 of the exam notes add up 1/i to n - 1 for the visits of jump.",
     "The loop visits bucket i - 1 with probability 1/i, for i from 1 to n. So the sum is H(n), and the measurements "
     "agree. The order of growth, log n, is the same."),
    ("Ticket 21's second listing of jump returns nothing.",
     "It lacks `return b` after the loop. Kokorin's slides have it."),
    ("Ticket 19 writes Θ(N) for the keys that the remainder moves, just after N was the number of nodes.",
     "The N of Θ(N) is the number of keys. From n nodes to n + 1, all keys but 1 in n + 1 move."),
    ("The article gives three positions to f(a).",
     "They are those of f(a), f(b) and f(c): 1, 5 and 7."),
    ("The article's standard deviation of jump, below 0.0000001 %, is that of bucket shares.",
     "These are shares of all possible keys. Keys that are drawn spread by chance, under every scheme. The page on "
     "jump has both."),
    ("The article's 0.5 % for about twenty probes is a slip for 5 %.",
     "The 5 % are the fullest node's excess over the mean, 1.05 with 21 probes. The standard deviation is 15.6 %."),
    ("The article says that multi-probe hashing needs O(1) memory and is of 2005, and that jump is of 2007.",
     "Multi-probe keeps a ring, O(n), and was published in 2015. Jump was published in 2014."),
    ("The course notes' twenty hops are the maximum, log2 of a million.", "The mean is slightly less than half of it."),
)  # fmt: skip
"""The statements of the texts that differ from the measurements, and the reasons.

`docs/explanation/sources.md` has the same rows.
"""


def write_page(reports: Sequence[ExperimentReport], seed: int, command: str, out_dir: Path, name: str = PAGE) -> Path:
    """Write a Markdown page on a run of experiments, and return its path.

    Args:
        reports: the outcomes of the experiments.
        seed: the seed of the run.
        command: the command line of the run, without the program's name.
        out_dir: the directory of the page.
        name: file name; the default is only for the page on all experiments.
    """
    page = out_dir / name
    write_whole(page, "\n".join(_lines(reports, seed, command)))
    return page


def _lines(reports: Sequence[ExperimentReport], seed: int, command: str) -> list[str]:
    rows = [row.passed for report in reports for table in report.tables for row in table.rows if row.passed is not None]
    lines = [
        "# Sharding schemes side by side",
        "",
        f"`chord {command}`, seed {seed}. {sum(rows)} of {len(rows)} bars are met. {_versions()}.",
        "",
    ]
    for report in reports:
        lines += [f"## {report.title}", ""]
        missed = [table.title for table in report.tables if table.passed is False]
        if missed:
            lines += [f"**A bar is missed: {', '.join(missed)}.**", ""]
        for picture in report.pictures:
            lines += [f"{picture.finding}.", "", f"![{picture.finding}]({picture.svg.name})", ""]
        for table in report.tables:
            if table.name in SHOWN:
                lines += [*markdown(table), "", *([f"Bar: {table.bar}.", ""] if table.bar else [])]
                lines += [line for note in table.notes for line in (note, "")]
        lines += [f"Tables: [{report.name}.md]({report.name}.md).", ""]
    lines += ["## The source texts", "", *(f"- {text}" for text in TEXTS), ""]
    lines += ["## Differences from the source texts", ""]
    lines += [f"- *{what}* {why}" for what, why in DIFFERENCES]
    return [*lines, ""]


def _versions() -> str:
    parts = [f"chord {chord.__version__}", f"Python {platform.python_version()}"]
    return ", ".join(parts + [f"{name} {version(name)}" for name in ("numpy", "matplotlib", "xxhash")])
