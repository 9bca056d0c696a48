"""Many seeds on all cores: progress, the table of what was taken, and the names of which none may be zero."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

from .schedule import Report, Schedule

SEEDS = 200
STEPS_MIN = 2000
MEMBERSHIP_MIN = 30
REAL_S_MAX = 120

# Every transition of the protocol, every abort, every take-over: a swarm that never took one has not tested it.
NEVER_ZERO = (
    # pointers
    "RingCreated",
    "RingJoined",
    "RingResumed",
    "SuccessorAdopted",
    "ListCopied",
    "HeadForgotten",
    "PredecessorAdopted",
    "StepAborted stabilize",
    "StepAborted adopt",
    "StepAborted rectify",
    "StepDone stabilize",
    "StepDone rectify",
    "StepDone fix_finger",
    "StepDone self_lookup",
    "StepFailed notify",
    "StepFailed announce",
    "StepFailed self_lookup",
    "FingerChanged",
    "SplitFound",
    # arcs
    "ArcGained created",
    "ArcGained received",
    "ArcGained taken_over",
    "ArcGained resumed",
    "ArcGained reclaimed",
    "ArcLost moved",
    "ArcLost shrunk",
    "TransferStarted join",
    "TransferStarted leave",
    "TransferEnded moved",
    "TransferEnded aborted",
    "RecordsReceived True",
    "RecordsReceived False",
    "RecordsDropped",
    # peers
    "PeerChanged suspect",
    "PeerChanged dead",
    "PeerChanged left",
    "PeerChanged alive",
    # what was done to them
    "action join",
    "action join side by side",
    "action leave",
    "action crash",
    "action crash silently",
    "action crash in a row",
    "action restart",
    "action kill receiver",
    "action kill giver",
    "action stall receiver",
    "action hiccup",
    # what clients saw
    "client put ok",
    "client get ok",
    "client get owner_down",
)


@dataclass
class Outcome:
    """What a swarm did.

    Attributes:
        reports: of the seeds that went well.
        failures: of the others, by seed: what went wrong, in words.
    """

    reports: list[Report] = field(default_factory=list)
    failures: dict[int, str] = field(default_factory=dict)

    @property
    def counts(self) -> Counter[str]:
        """All seeds together."""
        total: Counter[str] = Counter()
        for report in self.reports:
            total.update(report.counts)
        return total

    def zeros(self, names: Iterable[str] = NEVER_ZERO) -> list[str]:
        """Return what was never taken."""
        counts = self.counts
        return [name for name in names if not counts[name]]

    def short(self) -> list[int]:
        """Return the seeds that did less than a seed must do."""
        return [r.seed for r in self.reports if r.steps < STEPS_MIN or r.membership < MEMBERSHIP_MIN]

    def table(self) -> str:
        """Return the counts as text, one line each, in alphabetical order."""
        counts = self.counts
        lines = [f"  {count:>9,}  {name}" for name, count in sorted(counts.items())]
        steps = sum(r.steps for r in self.reports)
        membership = sum(r.membership for r in self.reports)
        slowest = max((r.settled_s for r in self.reports), default=0.0)
        head = f"{len(self.reports)} seeds: {steps:,} protocol steps, {membership:,} members came or went,"
        return "\n".join([f"{head} Ideal at most {slowest:.1f} s after the last", *lines])


class Spinning(Exception):
    """A seed ran far too long in real time: a loop in which virtual time stands still."""


def run_one(seed: int) -> Report | str:
    """Run one seed: its report, or what went wrong. In the main thread of a process of its own."""

    def give_up(signum: int, frame: object) -> None:
        raise Spinning(f"no end after {REAL_S_MAX} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(REAL_S_MAX)
    try:
        return Schedule(seed).run()
    except Exception as error:
        return "".join(traceback.format_exception(error, limit=-4))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run_many(seeds: Iterable[int], say: Callable[[str], None] = lambda line: None) -> Outcome:
    """Run seeds on all cores."""
    outcome = Outcome()
    seeds = list(seeds)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for seed, result in zip(seeds, pool.map(run_one, seeds), strict=True):
            if isinstance(result, str):
                outcome.failures[seed] = result
                say(f"seed {seed}: {result}\n  again: python -m tests.swarm {seed}")
            else:
                outcome.reports.append(result)
                done = len(outcome.reports) + len(outcome.failures)
                if done % 10 == 0:
                    say(f"{done} of {len(seeds)} seeds, {len(outcome.failures)} failed")
    return outcome


def main(arguments: list[str]) -> int:
    """Run 200 seeds, or those named: `python -m tests.swarm`, `… 17`, `… 0-49`. Returns the exit code."""
    seeds: list[int] = []
    for argument in arguments or [f"0-{SEEDS - 1}"]:
        first, _, last = argument.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    outcome = run_many(seeds, lambda line: print(line, file=sys.stderr, flush=True))
    print(outcome.table())
    zeros = outcome.zeros() if len(seeds) >= SEEDS else []
    if zeros:
        print(f"never taken: {', '.join(zeros)}")
    return 1 if outcome.failures or zeros or outcome.short() else 0
