"""Many seeds on all cores: progress, totals, and the counts that must not be zero."""

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

from chord.events import Emitted
from chord.sim.cluster import Cluster
from chord.sim.plan import FAULTS, Plan
from chord.sim.pool import processes
from chord.sim.run import FailureKind, Run, RunFailure, RunReport
from chord.sim.situations import LONG, SITUATION, demanded
from chord.testing.faults import ignore_fault

STILL_S_MAX = 60.0
"""Real seconds without progress of virtual time after which a run is given up."""
RETRY_S = 0.01

# Every transition, abort and takeover of the protocol. A swarm with a zero count has not tested that path.
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
    # faults and membership changes
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
    # outcomes of client operations
    "client put ok",
    "client put unknown",
    "client get ok",
    "client get not found",
    "client get owner_down",
    # losses and movements of copies
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
    # situations of the ring
    *demanded(),
)
SHARES_MIN = {"no context": 0.3, "delete": 0.1, "through a stand-in": 0.05, "elsewhere than before": 0.2}
"""Least fractions of these kinds among the acknowledged writes of mixed runs.

Only keys with a single writer count.
"""

SEEDS_FOR_ALL = 200
"""Number of seeds from which on no count of `NEVER_ZERO` should be zero."""


class Broken(msgspec.Struct):
    """A seed that failed.

    Attributes:
        plan: the plan of the seed.
        kind: "crash": a bug raised. "liveness": the ring did not become whole in time. "correctness": a check failed.
        text: the error, with the traceback of its cause if there was one.
    """

    plan: Plan
    kind: FailureKind
    text: str


class SwarmOutcome(msgspec.Struct):
    """The results of a swarm.

    Attributes:
        reports: the reports of the seeds that passed, without their counts, because a swarm may have many thousands.
        broken: the seeds that failed.
        drawn: by fault, the number of plans that had it on; also the numbers of plans over messages and over frames.
        counts: totals of all counts of the seeds that passed.
    """

    reports: list[RunReport] = msgspec.field(default_factory=list)
    broken: list[Broken] = msgspec.field(default_factory=list)
    drawn: Counter[str] = msgspec.field(default_factory=Counter)
    counts: Counter[str] = msgspec.field(default_factory=Counter)

    @property
    def seeds(self) -> int:
        """Number of seeds run."""
        return len(self.reports) + len(self.broken)

    def zeros(self, names: Iterable[str] = NEVER_ZERO) -> list[str]:
        """Return the names of zero counts, out of `names`, and the kinds of writes that are too rare.

        `SHARES_MIN` has the least share of each kind. The result is for people: a kind comes with its share, as in
        "delete (9.1%)".
        """
        rare = [f"{name} ({share:.1%})" for name, share in self.shares().items() if share < SHARES_MIN[name]]
        return [name for name in names if not self.counts[name]] + rare

    def shares(self) -> dict[str, float]:
        """Return the share of each kind of write of `SHARES_MIN`, such as "delete", among the acknowledged writes.

        Only writes of *mixed* runs to keys with a single writer count. Without such writes the result is empty.
        """
        written = self.counts["client put ok"] - self.counts["client acknowledged beside the shares"]
        return {name: self.counts[f"client acknowledged {name}"] / written for name in SHARES_MIN} if written else {}

    @property
    def long_absences(self) -> float:
        """Share of the passed runs in which a node was absent for longer than every period of the ring."""
        return self.counts[SITUATION + LONG] / len(self.reports) if self.reports else 0.0

    def add(self, plan: Plan, result: RunReport | Broken) -> None:
        """Add the result of one seed. The counts of a failed seed are unknown, and are not added."""
        self.drawn.update({fault: int(fault in plan.faults) for fault in FAULTS})
        self.drawn[f"over {plan.fidelity}"] += 1
        if isinstance(result, RunReport):
            self.counts.update(result.counts)
            self.reports.append(msgspec.structs.replace(result, counts=Counter()))
        else:
            self.broken.append(result)


class Spinning(Exception):
    """Virtual time stands still: a task loops without waiting."""


class _Lookout:
    """A context manager that raises `Spinning` if virtual time stands still.

    Use it only in the main thread of a process. It looks every `STILL_S_MAX` real seconds.

    Attributes:
        has_raised: whether it raised, even if the run handled the exception.
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
        elif trio.lowlevel.currently_ki_protected():  # in Trio's own code, which must not be interrupted
            signal.setitimer(signal.ITIMER_REAL, RETRY_S, STILL_S_MAX)
        else:
            self.has_raised = True
            raise Spinning(f"virtual time stands still at {now:.4f} s")


def run_one(
    plan: Plan,
    *,
    on_event: Callable[[Cluster, Emitted], None] | None = None,
    write_history: Callable[[bytes], object] | None = None,
    on_progress: Callable[[int, int], object] = lambda writes, membership: None,
    on_fault: Callable[[str, tuple[tuple[str, ...], ...]], object] = ignore_fault,
) -> RunReport | Broken:
    """Run one seed, and return its report or its failure.

    Call it only in the main thread of a process.

    Args:
        plan: the plan of the seed.
        on_event: callback for every event, with the cluster.
        write_history: callback for each line of the clients' history (see `chord.verify.history`).
        on_progress: called now and then with two numbers of the running seed: acknowledged writes, and membership
            changes, both so far.
        on_fault: callback for each fault and its end: its name, and the groups of hosts.
    """
    with _Lookout() as lookout:
        try:
            return Run(
                plan, on_event=on_event, write_history=write_history, on_progress=on_progress, on_fault=on_fault
            ).run()
        except RunFailure as failure:
            kind: FailureKind = "liveness" if failure.kind == "crash" and lookout.has_raised else failure.kind
            return Broken(plan, kind, failure.text + _cause(failure))
        finally:
            gc.collect()  # otherwise the next run would freeze the garbage of this one


def _cause(failure: RunFailure) -> str:
    if failure.__cause__ is None:
        return ""
    return "\n" + "".join(traceback.format_exception(failure.__cause__, limit=-6)).rstrip()


def run_many(
    plans: Iterable[Plan],
    on_result: Callable[[Plan, RunReport | Broken], None] = lambda plan, result: None,
    *,
    jobs: int | None = None,
    on_progress: Callable[[int, int], object] = lambda writes, membership: None,
    outcome: SwarmOutcome | None = None,
) -> SwarmOutcome:
    """Run seeds on all cores.

    Args:
        plans: one plan for each seed.
        on_result: callback for every finished seed, in the order in which they finish.
        jobs: largest number of processes; default: one per core. With 1, or with a single plan, the seeds run in this
            process.
        on_progress: called now and then with two numbers of the running seed: acknowledged writes, and membership
            changes, both so far.
            Only for seeds that run in this process.
        outcome: receives the results. If an exception such as `KeyboardInterrupt` ends the call, it has those of the
            finished seeds. Default: a new one.

    Returns:
        The results: sorted by seed if several processes ran them, otherwise in the order of `plans`.
    """
    outcome = SwarmOutcome() if outcome is None else outcome

    def done(plan: Plan, result: RunReport | Broken) -> None:
        outcome.add(plan, result)
        on_result(plan, result)

    todo = list(plans)
    jobs = min(jobs or os.cpu_count() or 1, len(todo))
    if jobs <= 1:
        for plan in todo:
            done(plan, run_one(plan, on_progress=on_progress))
        return outcome
    try:
        with processes(jobs) as pool:
            futures = {pool.submit(run_one, plan): plan for plan in todo}
            for future in as_completed(futures):
                done(futures.pop(future), future.result())
    finally:
        outcome.reports.sort(key=lambda report: report.seed)
        outcome.broken.sort(key=lambda broken: broken.plan.seed)
    return outcome
