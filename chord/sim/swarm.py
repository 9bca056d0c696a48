"""Many seeds on all cores: progress, what was drawn, what was taken, and the names of which none may be zero."""

from __future__ import annotations

import gc
import os
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import as_completed
from types import TracebackType

import msgspec
import trio

from chord.events import Event
from chord.sim.cluster import Cluster
from chord.sim.life import Failure, Kind, Life, Report
from chord.sim.plan import FAULTS, Plan
from chord.sim.pool import processes
from chord.sim.situations import LONG, SITUATION, demanded

STILL_S_MAX = 60.0
"""Virtual time that has not moved for so many real seconds never will."""
RETRY_S = 0.01

# Every transition of the protocol, every abort, every take-over: a swarm that never took one has not tested it.
NEVER_ZERO = (
    # checks
    "checked invariants",
    "checked lists only",
    "checked owners",
    "checked principals",
    # pointers
    "RingCreated",
    "RingJoined",
    "RingResumed",
    "SuccessorAdopted",
    "ListCopied",
    "HeadForgotten",
    "PredecessorAdopted",
    "VnodeIsolated",
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
    "ArcLost renounced",
    "TransferStarted join",
    "TransferStarted leave",
    "TransferEnded moved",
    "TransferEnded aborted",
    "RecordsReceived",
    "RecordsDropped",
    # peers
    "PeerChanged suspect",
    "PeerChanged dead",
    "PeerChanged left",
    "PeerChanged alive",
    # what was done to them
    "action join",
    "action join adjacent",
    "action leave",
    "action leave in vain",
    "action crash",
    "action crash silently",
    "action crash in a row",
    "action restart",
    "action restart wiped",
    "action kill receiver",
    "action kill giver",
    "action stall receiver",
    "action hiccup",
    "action freeze",
    "action one way",
    "action partition",
    "action blackout",
    "action false alarm",
    # what clients saw
    "client put ok",
    "client put unknown",
    "client get ok",
    "client get not found",
    "client get owner_down",
    # what became of the copies
    "client acknowledged and lost",
    "client acknowledged sloppily",
    "keys_brought_home",
    "copies_pushed",
    "copies_pulled",
    "repair_keys_pulled",
    "repair_keys_pushed",
    "read_repairs",
    "action damage",
    "action disk full",
    "action disk failed",
    "action forget",
    "keys_reaped",
    # in which situations the ring was
    *demanded(),
)
SHARES_MIN = {"blind": 0.3, "delete": 0.1, "through a fallback": 0.05, "elsewhere than before": 0.2}
"""The least shares of these kinds among the acknowledged writes of mixed lives, of keys that one client writes."""

SEEDS_FOR_ALL = 200
"""In so many seeds every one of them is to be expected."""


class Broken(msgspec.Struct):
    """A seed that failed: how, in words, and what it had drawn."""

    plan: Plan
    kind: Kind
    text: str


class Outcome(msgspec.Struct):
    """What a swarm did.

    Attributes:
        reports: of the seeds that went well, without their counts: there may be many thousands.
        broken: the others.
        drawn: in how many plans each fault was on, and how many were over messages and over frames.
        counts: how often everything was taken, in all seeds that went well.
    """

    reports: list[Report] = msgspec.field(default_factory=list)
    broken: list[Broken] = msgspec.field(default_factory=list)
    drawn: Counter[str] = msgspec.field(default_factory=Counter)
    counts: Counter[str] = msgspec.field(default_factory=Counter)

    @property
    def seeds(self) -> int:
        """How many were run."""
        return len(self.reports) + len(self.broken)

    def zeros(self, names: Iterable[str] = NEVER_ZERO) -> list[str]:
        """Return what was never taken, or too seldom."""
        rare = [f"{name} ({share:.1%})" for name, share in self.shares().items() if share < SHARES_MIN[name]]
        return [name for name in names if not self.counts[name]] + rare

    def shares(self) -> dict[str, float]:
        """Return which part of the acknowledged writes were of each kind that there must be enough of."""
        written = self.counts["client put ok"] - self.counts["client acknowledged beside the shares"]
        return {name: self.counts[f"client acknowledged {name}"] / written for name in SHARES_MIN} if written else {}

    @property
    def long_absences(self) -> float:
        """Return the share of the lives with an absence longer than every period, of those that went well."""
        return self.counts[SITUATION + LONG] / len(self.reports) if self.reports else 0.0

    def add(self, plan: Plan, result: Report | Broken) -> None:
        """Count one seed."""
        self.drawn.update({fault: int(fault in plan.faults) for fault in FAULTS})
        self.drawn[f"over {plan.fidelity}"] += 1
        if isinstance(result, Report):
            self.counts.update(result.counts)
            self.reports.append(msgspec.structs.replace(result, counts=Counter()))
        else:
            self.broken.append(result)


class Spinning(Exception):
    """Virtual time stands still: a loop in which nobody ever waits."""


class _Lookout:
    """Raises `Spinning` where virtual time stands still. In the main thread of a process.

    Attributes:
        has_raised: it did; whatever the run made of it.
    """

    def __init__(self) -> None:
        self.has_raised = False
        self._last: float | None = None

    def __enter__(self) -> _Lookout:
        self._before = signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, STILL_S_MAX, STILL_S_MAX)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _look(self, number: int, frame: object) -> None:
        now = trio.current_time() if trio.lowlevel.in_trio_run() else -1.0
        if now != self._last:
            self._last = now
        elif trio.lowlevel.currently_ki_protected():  # in Trio's own code, where nothing may be raised
            signal.setitimer(signal.ITIMER_REAL, RETRY_S, STILL_S_MAX)
        else:
            self.has_raised = True
            raise Spinning(f"virtual time stands still at {now:.4f} s")


def run_one(
    plan: Plan,
    *,
    on_event: Callable[[Cluster, Event], None] | None = None,
    write_history: Callable[[bytes], object] | None = None,
    on_progress: Callable[[int, int], object] = lambda writes, membership: None,
) -> Report | Broken:
    """Run one seed: its report, or what went wrong. In the main thread of a process.

    Args:
        on_event, write_history, on_progress: see `Life`.
    """
    with _Lookout() as lookout:
        try:
            return Life(plan, on_event=on_event, write_history=write_history, on_progress=on_progress).run()
        except Failure as failure:
            kind: Kind = "liveness" if failure.kind == "crash" and lookout.has_raised else failure.kind
            return Broken(plan, kind, failure.text + _cause(failure))
        finally:
            gc.collect()  # or the next run would keep the rubbish of this one: it freezes what it finds


def _cause(failure: Failure) -> str:
    if failure.__cause__ is None:
        return ""
    return "\n" + "".join(traceback.format_exception(failure.__cause__, limit=-6)).rstrip()


def run_many(
    plans: Iterable[Plan],
    on_result: Callable[[Plan, Report | Broken], None] = lambda plan, result: None,
    *,
    jobs: int | None = None,
    on_progress: Callable[[int, int], object] = lambda writes, membership: None,
) -> Outcome:
    """Run seeds on all cores.

    Args:
        on_result: told of every seed when it is done, in no particular order.
        jobs: processes; default: one per core. 1 runs them here.
        on_progress: see `Life`; of lives that run here.
    """
    outcome = Outcome()

    def done(plan: Plan, result: Report | Broken) -> None:
        outcome.add(plan, result)
        on_result(plan, result)

    todo = list(plans)
    jobs = min(jobs or os.cpu_count() or 1, len(todo))
    if jobs <= 1:
        for plan in todo:
            done(plan, run_one(plan, on_progress=on_progress))
        return outcome
    with processes(jobs) as pool:
        futures = {pool.submit(run_one, plan): plan for plan in todo}
        for future in as_completed(futures):
            done(futures.pop(future), future.result())
    outcome.reports.sort(key=lambda report: report.seed)
    outcome.broken.sort(key=lambda broken: broken.plan.seed)
    return outcome
