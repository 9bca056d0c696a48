"""Play many histories on both sides, on all cores."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

from .sides import on_sqlite, on_the_twin

CHUNK = 50


class Difference(NamedTuple):
    """The first line that differs between the two sides."""

    seed: int
    line: int
    sqlite: str
    twin: str

    def __str__(self) -> str:
        return f"history {self.seed}, line {self.line}:\n  SQLite  {self.sqlite}\n  twin    {self.twin}"


def difference(seed: int, twin: Callable[[int], list[str]] = on_the_twin) -> Difference | None:
    """Play one history on both sides. Return the first difference."""
    one, other = on_sqlite(seed), twin(seed)
    for line in range(max(len(one), len(other))):
        left, right = (reported[line] if line < len(reported) else "nothing" for reported in (one, other))
        if left != right:
            return Difference(seed, line, left, right)
    return None


def compare(seeds: Iterable[int]) -> list[Difference]:
    """Play histories; return every difference."""
    return [found for seed in seeds if (found := difference(seed)) is not None]


def main(arguments: list[str]) -> int:
    """Compare the requested number of histories. Return the exit code: 1 if any differs."""
    description = "Compare the simulated database with SQLite on random histories."
    parser = argparse.ArgumentParser(prog="python -m tests.twin", description=description)
    parser.add_argument("count", nargs="?", type=int, default=10_000, help="how many histories; default: %(default)s")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first; default: %(default)s")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes; default: one for each core")
    wishes = parser.parse_args(arguments)
    seeds = range(wishes.first, wishes.first + wishes.count)
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    began, played, found = time.monotonic(), 0, 0
    with ProcessPoolExecutor(wishes.jobs, mp_context=get_context("spawn")) as pool:
        for chunk, differences in zip(chunks, pool.map(compare, chunks), strict=True):
            played, found = played + len(chunk), found + len(differences)
            for one in differences:
                print(one)
            print(f"{played} of {len(seeds)} histories, {found} differ", file=sys.stderr, flush=True)
    print(f"{played} histories in {time.monotonic() - began:.0f} s: {found or 'none'} differ")
    return 1 if found else 0
