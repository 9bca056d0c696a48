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
    ("Golubtsov's listing of jump starts at `b = 1`.",
     "The published one starts at -1. The loop starts with `j = 0` and sets `b` before it is read, so every key gets "
     "the same bucket. The results would differ only for zero buckets."),
    ("The article's standard deviation of jump, below 0.0000001 %, is that of bucket shares.",
     "These are shares of all possible keys. Keys that are drawn spread by chance, under every scheme. The page on "
     "jump has both."),
    ("The article's 0.5 % for about twenty probes is a slip for 5 %.",
     "The 5 % are the fullest node's excess over the mean, 1.05 with 21 probes. The standard deviation is 15.6 %."),
    ("The article says that multi-probe hashing needs O(1) memory and is of 2005, and that jump is of 2007.",
     "Multi-probe keeps a ring, O(n), and was published in 2015. Jump was published in 2014."),
    ("Golubtsov's times are those of another machine.", "Only their order can be compared."),
    ("The course notes' twenty hops are the maximum, log2 of a million.", "The mean is slightly less than half of it."),
)  # fmt: skip


def write_page(reports: Sequence[ExperimentReport], seed: int, command: str, out_dir: Path, name: str = PAGE) -> Path:
    """Write the page on a run of experiments, and return its path.

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
