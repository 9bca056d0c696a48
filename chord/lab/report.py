"""One page on everything the lab has measured: the findings, the pictures, how to measure it again.

The tables are in the pages of the experiments, to which it links; the fourth text's table is here too, with what
differs from the source texts and why.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import chord
from chord.lab.harness.files import write_whole
from chord.lab.harness.report import Report, markdown

PAGE = "report.md"
SHOWN = ("fourth_text", "draws")
"""Tables that are printed in full: those the texts have."""

TEXTS = (
    "*The first text*: "
    "«Шардирование», a lecture (in Russian): the remainder and its factors, tries, sections, rings with vnodes.",
    "*The second text*: «Распределенные системы», lecture notes (in Russian), which go over the same ground.",
    "*The third text*: an article on consistent hashing (in Russian): rings, jump, multi-probe, Maglev, and six "
    "things to ask of a scheme.",
    "*The fourth text*: «Алгоритмы шардинга (разделения) данных», 2024 (in Russian): seven schemes from 20 shards to "
    "21, and how long they take.",
    "*The fifth text*: "
    "“分片 (Sharding)”, a chapter (in Chinese): tables of first letters, directories, hops on a ring.",
)
"""What started the lab: what they say is measured again."""

DIFFERENCES = (
    ("The column *overlap* of the fourth text is the share of keys that stay.",
     "By the remainder 4.77 % stay, so that 95.23 % move; by jump it is the other way round. Its formula for what the "
     "remainder moves, `shards_before / shards_after`, is right for one shard more and for a doubling; from m to n in "
     "general 1 - m / lcm(m, n) moves."),
    ("The rings of the fourth text are one draw each.",
     "What a ring keeps, and how evenly, hangs on the names of its nodes; the table of draws has the distribution, and "
     "the printed figures lie in it."),
    ("Its listing of jump starts at `b = 1`.",
     "The published one starts at -1. The loop is entered with `j = 0` and sets `b` before it is read, so that no key "
     "goes elsewhere; only for no buckets at all the answers would differ."),
    ("The third text's standard deviation of jump, below 0.0000001 %, is one of bucket shares.",
     "Shares of all keys there could be; keys that are drawn spread by chance, as with every scheme. Both are in the "
     "page on jump."),
    ("Its 0.5 % for some twenty probes is a slip for 5 %.",
     "And that is the fullest node over the mean, 1.05 with 21 probes, not the standard deviation, which is 15.6 %."),
    ("Multi-probe hashing needs O(1) memory and is of 2005, jump of 2007, says the third text.",
     "Multi-probe keeps a ring, O(n), and was published in 2015; jump in 2014."),
    ("Times are of another machine.", "Only their order can be compared."),
    ("The fifth text's twenty hops are the most, log2 of a million.", "The mean is half of it, and a little less."),
)  # fmt: skip


def write_page(reports: Sequence[Report], seed: int, command: str, out_dir: Path, name: str = PAGE) -> Path:
    """Write the page.

    Args:
        command: what was typed, without the program's name.
        name: of the file; that of the page on everything is not for a part of it.
    """
    page = out_dir / name
    write_whole(page, "\n".join(_lines(reports, seed, command)))
    return page


def _lines(reports: Sequence[Report], seed: int, command: str) -> list[str]:
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
    lines += ["## Where the source texts say otherwise", ""]
    lines += [f"- *{what}* {why}" for what, why in DIFFERENCES]
    return [*lines, ""]


def _versions() -> str:
    parts = [f"chord {chord.__version__}", f"Python {platform.python_version()}"]
    return ", ".join(parts + [f"{name} {version(name)}" for name in ("numpy", "matplotlib", "xxhash")])
