"""One run of a seed: a ring goes through faults and must be whole at the end.

A run has two phases. *Safety*: faults at any moment, with checks after every step. *Liveness*: faults stop, and every
dead node with a disk left comes back. Within a bound the ring must be Ideal, every record must be with its owner, and
every acknowledged write must be readable. A run is a function of its seed alone.

Source of the phases: TigerBeetle's simulator; of the swarm and of failing on any ERROR event: FoundationDB's.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

import msgspec
import trio

from chord import testing
from chord.events import Emitted
from chord.ids import Arc, Point
from chord.node import Node
from chord.sim import situations
from chord.sim.backups import Backups
from chord.sim.cluster import Cluster, Reports, cluster
from chord.sim.copies import astray, unequal, unreadable
from chord.sim.fault_schedule import FaultSchedule
from chord.sim.hardships import Hardships
from chord.sim.messages import MessageNetwork
from chord.sim.nemesis import Nemesis
from chord.sim.observer import Violated, Watch
from chord.sim.plan import EPISODES, WITHOUT_DISK, Plan
from chord.sim.workload import Workload
from chord.testing.faults import ignore_fault
from chord.testing.network import MemoryNetwork, uniform
from chord.testing.rings import NotConverged
from chord.verify.history.recorder import Recorder

HEALED_WITHIN_S = 60.0
READY_WITHIN_S = 60.0
HOME_WITHIN_S = 30.0
SHARES = ("no context", "delete", "through a stand-in", "elsewhere than before")
"""Kinds of acknowledged writes that a swarm must have enough of."""
COUNTERS = (
    "keys_sent",
    "keys_received",
    "keys_brought_home",
    "copies_pulled",
    "copies_pushed",
    "repair_keys_pulled",
    "repair_keys_pushed",
    "read_repairs",
    "sloppy_puts",
    "keys_reaped",
    "abandon_unheard",
    "goodbyes_unheard",
)

FailureKind: TypeAlias = Literal["crash", "liveness", "correctness"]


class RunFailure(Exception):
    """A run that failed.

    Attributes:
        kind: "crash": a bug raised. "liveness": the ring did not become whole in time. "correctness": a check failed.
        text: the error, with the seed.
    """

    def __init__(self, kind: FailureKind, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind: FailureKind = kind
        self.text = text


class RunReport(msgspec.Struct):
    """The totals of a run.

    Attributes:
        seed: the seed.
        steps: number of events that were protocol steps.
        checks: number of snapshots of the ring that were checked.
        membership: number of joins, leaves, crashes and restarts.
        counts: number of each transition, abort, takeover, action and client operation.
        keys: number of keys with an acknowledged write that was not lost.
        lost: number of keys that lost an acknowledged write and have had none since.
        settled_s: virtual seconds from the start of the last dead node until the ring was Ideal.
        healed_rounds: largest number of stabilize periods that healing took after an episode.
        virtual_s: duration of the run in virtual seconds.
        deliveries: number of messages that arrived.
        digest: a digest of every event and delivery; equal for equal seeds.
        theme: the main kind of trouble in the run, such as "mixed" or "disks".
    """

    seed: int
    steps: int = 0
    checks: int = 0
    membership: int = 0
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    keys: int = 0
    lost: int = 0
    settled_s: float = 0.0
    healed_rounds: float = 0.0
    virtual_s: float = 0.0
    deliveries: int = 0
    digest: str = ""
    theme: str = "mixed"


class Run:
    """The run of one seed.

    Args:
        plan: the plan of the seed.
        on_event: callback for every event, with the cluster; for logs.
        write_history: callback for each line of the clients' history (see `chord.verify.history`).
        on_progress: called now and then with two numbers of the running seed: acknowledged writes, and membership
            changes, both so far.
        on_fault: callback for each fault and its end: its name, and the groups of hosts.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        on_event: Callable[[Cluster, Emitted], None] | None = None,
        write_history: Callable[[bytes], object] | None = None,
        on_progress: Callable[[int, int], object] = lambda writes, membership: None,
        on_fault: Callable[[str, tuple[tuple[str, ...], ...]], object] = ignore_fault,
    ) -> None:
        self._plan = plan
        self._on_fault = on_fault
        self._on_progress = on_progress
        self._on_event = on_event
        self._write_history = write_history
        self._digest = hashlib.blake2b(digest_size=16)
        kind = MessageNetwork if plan.fidelity == "messages" else MemoryNetwork
        self._network = kind(plan.seed, delay=plan.delay, quantum_s=plan.quantum_s, trace=True, on_fault=on_fault)
        self.report = RunReport(plan.seed, theme=plan.theme)
        self._nemesis: Nemesis | None = None
        self._scope = trio.CancelScope()
        self._watch = Watch(
            f"seed {plan.seed}",
            plan.successors,
            mourning_s=plan.mourning_s,
            is_atomic=plan.is_atomic,
            on_event=self._observe,
            on_broken=self._scope.cancel,
            on_late=self._note_late_answer,
        )

    def run(self) -> RunReport:
        """Run the seed on virtual time, and return its totals. Call it once.

        Raises:
            RunFailure: a bug raised, the ring was not whole in time, or a check failed.
        """
        try:
            testing.run(self._main, seed=self._plan.seed)
            self._watch.raise_if_broken()
        except Violated as violated:
            raise RunFailure("correctness", str(violated)) from None
        except (NotConverged, trio.TooSlowError, testing.Stuck) as error:
            self._raise_if_broken()
            raise RunFailure("liveness", f"seed {self._plan.seed}: {str(error) or 'it took too long'}") from None
        except Exception as error:
            self._raise_if_broken()
            raise RunFailure("crash", f"seed {self._plan.seed}: {type(error).__name__}: {error}") from error
        return self.report

    def _raise_if_broken(self) -> None:
        if self._watch.broken is not None:
            raise RunFailure("correctness", str(self._watch.broken)) from None

    # -- the run --------------------------------------------------------------------------------

    async def _main(self) -> None:
        plan, watch, report = self._plan, self._watch, self.report
        async with cluster(
            seed=plan.seed,
            ring=plan.constants,
            timing=plan.timing,
            network=self._network,
            observe=watch,
            sync_delay=_sync_delay,
            without_disk=WITHOUT_DISK if "memory" in plan.faults else 0.0,
            vnodes=plan.vnodes,
            limits=plan.limits,
            reports=Reports(
                stopped=lambda node: self._workload.accounting.autopsy(node),
                left=lambda node: self._workload.oracle.left(node),
                refused=self._refused,
                put=lambda host, record, is_own: self._workload.accounting.saw(host, record, is_own),
                dropped=lambda host, record: self._workload.accounting.dropped(host, record),
                lent=lambda record: self._workload.accounting.lent(record),
                fault=self._on_fault,
            ),
        ) as ring:
            self._cluster = ring
            recorder = Recorder(trio.current_time, self._write_history) if self._write_history else None
            rng = random.Random(f"ledger/{plan.seed}")
            self._workload = Workload(
                ring, rng, watch.complain, recorder,
                constants=plan.constants, reads=plan.reads, draws=plan.draws, shared=plan.shared, habits=plan.habits,
            )  # fmt: skip
            self._workload.accounting.is_trimming = plan.reap_log is not None
            with watch.over(ring), trio.fail_after(plan.virtual_s_max), self._scope:
                if plan.theme != "mixed":  # the proof does not cover small rings and several vnodes
                    watch.go_outside()
                await self._found()
                schedule = await self._be_safe()
                report.settled_s = await self._be_live(schedule)
                report.lost, report.keys = self._workload.lost, self._workload.keys
            if recorder is not None:
                recorder.finish()
            self._sum_up()

    async def _found(self) -> None:
        """Let one node found the ring and all others join at once, with the checks on."""
        founder = await self._cluster.start(join=())
        await founder.ready()
        for _ in range(self._plan.nodes - 1):
            await self._cluster.start(join=[founder])

    async def _be_safe(self) -> FaultSchedule:
        """Run faults and clients until enough has happened.

        Returns:
            The fault schedule, which knows the dead nodes.
        """
        plan, watch = self._plan, self._watch
        async with trio.open_nursery() as nursery:
            nemesis = Nemesis(plan, self._cluster, self._workload.oracle, watch, nursery, self._heal)
            self._nemesis = nemesis
            clients: trio.CancelScope = await nursery.start(self._workload.clients, plan.clients, plan.client_pause_s)
            backups: trio.CancelScope | None = None
            if plan.backups:
                assert isinstance(self._network, MessageNetwork), "a run with backups sends whole messages"
                rng = random.Random(f"backups/{plan.seed}")
                made = Backups(self._cluster, self._network, rng, watch.complain, watch.counts)
                backups = await nursery.start(made.run)
            await trio.sleep(random.Random(f"start/{plan.seed}").uniform(0, 2))
            hardships = Hardships(plan, self._cluster, self._workload, watch, nemesis.schedule, self._heal)
            if plan.theme != "mixed":
                hardships.begin()
            while not self._is_enough(nemesis, hardships):
                await (nemesis if plan.theme == "mixed" else hardships).do_something()
                self._on_progress(self._workload.writes, nemesis.membership)
            self.report.membership = nemesis.membership
            nemesis.stop()
            await nemesis.calm()
            clients.cancel()
            if backups is not None:
                backups.cancel()
        return nemesis.schedule

    def _is_enough(self, nemesis: Nemesis, hardships: Hardships) -> bool:
        plan = self._plan
        if plan.until_s is not None:
            return trio.current_time() >= plan.until_s
        if plan.theme != "mixed":
            return hardships.episodes >= EPISODES and self._workload.writes >= plan.writes
        enough_writes = self._workload.writes >= plan.writes
        return nemesis.membership >= plan.membership and self._watch.steps >= plan.steps and enough_writes

    def _observe(self, emitted: Emitted) -> None:
        self._digest.update(f"{trio.current_time():.9f} {emitted.event!r}\n".encode())
        if self._nemesis is not None:
            self._nemesis.on_event(emitted.event)
        if self._on_event is not None:
            self._on_event(self._cluster, emitted)

    def _note_late_answer(self) -> None:
        if self._nemesis is not None:
            self._nemesis.note_late_answer()

    def _refused(self, node: Node) -> None:
        if self._nemesis is not None:
            self._nemesis.schedule.refused(node)

    async def _heal(self) -> None:
        """Wait after an episode until the ring is Ideal and replicas know all writes.

        Each write must be on at least one living replica of its key (`astray`). First wait until the last call that was
        lost in the episode has timed out. That call may still make a node look dead.
        """
        began = trio.current_time()
        await trio.sleep(self._plan.timing.timeout_cap_s)
        await self._cluster.converged(within_s=HEALED_WITHIN_S)
        rounds = (trio.current_time() - began) / self._plan.timing.stabilize_s
        self.report.healed_rounds = max(self.report.healed_rounds, rounds)
        await self._none(lambda: astray(self._cluster), HOME_WITHIN_S)

    async def _be_live(self, schedule: FaultSchedule) -> float:
        """Stop the faults, start the dead nodes, and wait until the ring is whole.

        Returns:
            The virtual seconds from the last start until the ring was Ideal.
        """
        self._network.heal()
        if isinstance(self._network, MessageNetwork):
            await trio.sleep(self._network.lateness.stop())
        self._workload.hasty = 0.0
        self._network.set_delay(uniform(*self._plan.delay_s))
        if "loss" in self._plan.faults:
            self._on_fault("loss_ends", ())
        await schedule.return_all()
        began = trio.current_time()
        await trio.sleep(self._plan.timing.timeout_cap_s)  # the last lost call may still make a node look dead
        with trio.move_on_after(READY_WITHIN_S):
            while any(node.state != "ready" for node in self._cluster.nodes):
                await trio.sleep(0.05)
        self._watch.calm_down()
        await self._cluster.converged(within_s=HEALED_WITHIN_S)
        took = trio.current_time() - began
        timing = self._plan.timing  # wait for the dead, then a period to compare and one to drop
        await self._none(self._unequal, timing.down_out_s + 3 * timing.anti_entropy_s + HOME_WITHIN_S)
        await self._workload.settle()
        await self._workload.write_in_the_end(HEALED_WITHIN_S)
        self._watch.check_state()
        return took

    async def _none(self, what: Callable[[], Iterator[str]], within_s: float) -> None:
        """Wait until a check yields no error any more.

        Raises:
            NotConverged: an error is still there after `within_s` virtual seconds.
        """
        until = trio.current_time() + within_s
        while (wrong := next(what(), None)) is not None:
            if trio.current_time() > until:
                raise NotConverged(f"after {within_s:g} s: {wrong}")
            await trio.sleep(0.5)

    def _unequal(self) -> Iterator[str]:
        yield from unequal(self._cluster, self._plan.replicas)
        yield from unreadable(self._cluster, self._plan.constants.quorum)

    def _sum_up(self) -> None:
        report, watch = self.report, self._watch
        report.steps, report.checks = watch.steps, watch.checks
        report.counts = watch.counts
        report.counts.update({f"client {word}": count for word, count in self._workload.counts.items()})
        if self._plan.theme != "mixed":  # few keys change owners in small rings
            for share in SHARES:
                del report.counts[f"client acknowledged {share}"]
            report.counts["client acknowledged beside the shares"] = self._workload.writes
        totals = self._cluster.totals()
        report.counts.update({name: totals[name] for name in COUNTERS})
        requests = self._network.lateness.counts if isinstance(self._network, MessageNetwork) else Counter[str]()
        found = situations.of_run(self._plan, self._workload.counts, requests)
        found.update(situations.absences(self._workload.accounting.absences_s, self._plan, "dead"))
        found["reap log trimmed"] = sum(map(_trimmed, self._cluster.nodes))
        found["slice caught up"] = totals["slices_caught_up"]
        for how in situations.EARLY:
            found[f"early put {how}"] = totals[f"early_{how}"]
        found["value quarantined"] = report.counts["ValuesQuarantined"]
        report.counts.update({situations.SITUATION + name: count for name, count in found.items()})
        is_long = report.counts[f"{situations.SITUATION}absence longer than every period"] > 0
        report.counts[situations.SITUATION + situations.LONG] = int(is_long)
        report.virtual_s = trio.current_time()
        report.deliveries = self._network.deliveries
        self._digest.update(self._network.digest().encode())
        report.digest = self._digest.hexdigest()


def _trimmed(node: Node) -> int:
    """Return the number of slices with a reap log that has dropped entries."""
    log = node._host.reap_log
    return sum(bool(log.state(part).trimmed) for part in log.slices_in(Arc(Point(0), Point(0))))


def _sync_delay(rng: random.Random) -> float:
    """Draw the seconds of a sync: 1 to 5 ms, ten times as long in one sync of fifty."""
    return rng.uniform(0.001, 0.005) * (10 if rng.random() < 0.02 else 1)
