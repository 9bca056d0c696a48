"""Hunt every planted bug on all cores, and print a table of checkers and seeds."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context

from chord.sim.run import RunFailure

from . import (
    bugs_arcs,
    bugs_backups,
    bugs_commits,
    bugs_data,
    bugs_early,
    bugs_oracle,
    bugs_pointers,
    bugs_reads,
    bugs_restarts,
    bugs_web,
)
from .mutant import Mutant, Stale, checker_of

MUTANTS: tuple[Mutant, ...] = (
    *bugs_pointers.MUTANTS,
    *bugs_arcs.MUTANTS,
    *bugs_restarts.MUTANTS,
    *bugs_commits.MUTANTS,
    *bugs_data.MUTANTS,
    *bugs_reads.MUTANTS,
    *bugs_early.MUTANTS,
    *bugs_backups.MUTANTS,
    *bugs_oracle.MUTANTS,
    *bugs_web.MUTANTS,
)

CPU_S_MAX = 300


@dataclass(frozen=True)
class Catch:
    """The result of a hunt.

    Attributes:
        bug, harm: the name of the bug, and its consequence.
        checker: the checker that caught it, or None.
        needed: the number of seeds until the catch; all seeds if no checker caught it.
        allowed: the maximum number of seeds.
        seconds: the duration in real time.
        problem: the reason why the result is a failure, or "".
        complaint: the first line of the checker's complaint.
    """

    bug: str
    harm: str
    checker: str | None
    needed: int
    allowed: int
    seconds: float
    problem: str = ""
    complaint: str = ""

    @property
    def line(self) -> str:
        """The outcome in one line."""
        caught = f"{self.checker}, seed {self.needed} of {self.allowed}" if self.checker else "not caught"
        return f"{self.bug}: {caught}, {self.seconds:.1f} s{self.problem and f'; {self.problem}'}"


class Spinning(Exception):
    """A seed ran far too long in real time: a loop in which virtual time stands still."""


def complaint_of(scenario: Callable[[int], None], seed: int) -> str | None:
    """Run a scenario, and return its complaint, or None."""
    try:
        scenario(seed)
    except Spinning:
        raise
    except AssertionError as caught:  # Violated and NotConverged are assertions
        return str(caught)
    except RunFailure as caught:
        return caught.text
    except Exception as caught:
        return f"{type(caught).__name__}: {caught}"
    return None


def hunt(mutant: Mutant, first: int = 0) -> Catch:
    """Plant a bug, and run its scenario until a checker complains. Without the bug that seed must pass.

    Args:
        mutant: the bug.
        first: the seed to try before the others.
    """
    began = time.monotonic()
    needed, complaint, problem = 0, None, ""
    for seed in dict.fromkeys((first, *range(mutant.seeds))):
        needed = seed + 1
        with mutant.planted():
            complaint = complaint_of(mutant.scenario, seed)
        if complaint is not None:
            without = complaint_of(mutant.scenario, seed)
            problem = f"without the bug as well: {without}" if without is not None else ""
            break
    checker = None if complaint is None else checker_of(complaint)
    if checker is None:
        problem = f"nobody complained within {mutant.seeds} seeds"
    elif checker not in mutant.checkers:
        problem = f"{' or '.join(mutant.checkers)} should have: {complaint}"
    first = (complaint or "").partition("\n")[0]
    took = time.monotonic() - began
    return Catch(mutant.name, mutant.harm, checker, needed, mutant.seeds, took, problem, first)


def hunt_by_name(name: str) -> Catch:
    """Hunt one bug in a process of its own, and give up if virtual time stands still."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    try:
        with _patience():
            return hunt(mutant)
    except (Spinning, Stale) as error:
        return Catch(name, mutant.harm, None, 0, mutant.seeds, 0.0, str(error))


@contextmanager
def _patience() -> Iterator[None]:
    def give_up(signum: int, frame: object) -> None:
        raise Spinning(f"no end after {CPU_S_MAX} s of processor time")

    before = signal.signal(signal.SIGPROF, give_up)  # processor time: a busy machine needs more real time
    signal.setitimer(signal.ITIMER_PROF, CPU_S_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def hunt_all(mutants: Iterable[Mutant], say: Callable[[str], object] = lambda line: None) -> list[Catch]:
    """Hunt bugs on all cores; the answer is in their order."""
    names = [mutant.name for mutant in mutants]
    found: dict[str, Catch] = {}
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(hunt_by_name, name) for name in names]):
            catch = future.result()
            found[catch.bug] = catch
            say(f"{len(found):>3} of {len(names)}  {catch.line}")
    return [found[name] for name in names]


def rows(catches: Sequence[Catch]) -> list[tuple[str, ...]]:
    """Return the results as cells: bug, consequence, checker, seeds needed and allowed."""
    return [(c.bug, c.harm, c.checker or "nobody", f"{c.needed} of {c.allowed}") for c in catches]


def table(catches: Sequence[Catch]) -> str:
    """Return the outcomes as text, with the seconds they took."""
    lines: list[tuple[str, ...]] = [("bug", "what it breaks", "caught by", "seeds", "s")]
    lines += [(*row, f"{catch.seconds:.1f}") for row, catch in zip(rows(catches), catches, strict=True)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, tuple("-" * width for width in widths))
    padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def markdown(catches: Sequence[Catch]) -> str:
    """Return the outcomes as the documentation has them."""
    head = ["| bug | what it breaks | caught by | seeds |", "|---|---|---|---|"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows(catches))])


def main(arguments: list[str]) -> int:
    """Hunt the bugs with a given word in their names, or all. Return the exit code: 1 if any was not caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Plant every known bug, and catch it.")
    parser.add_argument("words", nargs="*", metavar="WORD", help="hunt only bugs whose name contains one of these")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    how.add_argument("--markdown", action="store_true", help="print the table of docs/explanation/correctness.md")
    wishes = parser.parse_args(arguments)
    chosen = [m for m in MUTANTS if not wishes.words or any(word in m.name for word in wishes.words)]
    if not chosen:
        parser.error("there is no such bug")
    catches = hunt_all(chosen, lambda line: print(line, file=sys.stderr, flush=True))
    if wishes.json:
        print(json.dumps([asdict(catch) for catch in catches], indent=2))
    else:
        print(markdown(catches) if wishes.markdown else table(catches))
    bad = [catch for catch in catches if catch.problem]
    for catch in bad:
        print(f"{catch.bug}: {catch.problem}", file=sys.stderr)
    print(f"{len(catches) - len(bad)} of {len(catches)} bugs were caught", file=sys.stderr)
    return 1 if bad else 0
