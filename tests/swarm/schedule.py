"""A random schedule of joins, leaves and crashes on a ring in memory, with the invariants checked after every step.

Crashes stay within the failure assumption of the proof: no member loses its last live successor
entry, and enough principals remain. What a seed drew is a function of the seed alone.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import trio

from chord import events, invariants, testing
from chord.events import Event
from chord.invariants import Violation
from chord.node import Node
from chord.testing.rings import MemoryRing

R = 4
NODES_MIN = R + 4
NODES_MAX = 40
QUIET = (events.FingerChanged, events.PeerChanged, events.NodeStateChanged, events.ConnectionOpened)
QUIET += (events.ConnectionClosed, events.TransferStarted, events.RecordsReceived, events.RecordsDropped)


class Violated(Exception):
    """An invariant broke; the message says which, when and after what."""


@dataclass
class Report:
    """What a schedule did.

    Attributes:
        steps: protocol steps and transitions.
        membership: joins, leaves and crashes.
        counts: how often each transition, abort and take-over was taken.
        settled_s: virtual seconds from the last event until the ring was Ideal.
    """

    steps: int = 0
    membership: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    settled_s: float = 0.0


class Schedule:
    """One seed's run."""

    def __init__(self, seed: int, *, nodes: int = 32, membership: int = 30, steps: int = 2000) -> None:
        self._seed = seed
        self._nodes = nodes
        self._membership = membership
        self._steps = steps
        self._rng = random.Random(f"schedule/{seed}")
        self._ring: MemoryRing | None = None
        self.report = Report()

    def run(self) -> Report:
        """Run the schedule on virtual time.

        Raises:
            Violated: an invariant broke.
            NotConverged: the ring did not become Ideal afterwards.
        """
        testing.run(self._main, seed=self._seed)
        return self.report

    async def _main(self) -> None:
        report = self.report
        async with testing.ring(
            self._nodes, seed=self._seed, successors=R, observe=self._observe, is_converged=False
        ) as ring:
            self._ring = ring
            await trio.sleep(self._rng.uniform(0.5, 2))
            while report.membership < self._membership or report.steps < self._steps:
                await trio.sleep(self._rng.choice([0.0, 0.0, 0.01, 0.05, 0.2, 0.5]))
                await self._do_something(ring)
            report.settled_s = await ring.converged()
            self._ring = None  # what follows is the end of the world, not a step

    async def _do_something(self, ring: MemoryRing) -> None:
        ready = [node for node in ring.nodes if node.state == "ready"]
        what = self._rng.choice(["join", "leave", "crash"])
        if what == "join" and len(ring) < NODES_MAX:
            for _ in range(self._rng.choice([1, 1, 2])):
                await ring.start()
                self.report.membership += 1
        elif what == "leave" and len(ready) > NODES_MIN:
            for node in self._rng.sample(ready, self._rng.choice([1, 1, 2])):
                if self._may_go(ring, node):
                    node._end("leave")
                    self.report.membership += 1
        elif what == "crash" and len(ready) > NODES_MIN:
            node = self._rng.choice(ready)
            if self._may_go(ring, node):
                await ring.kill(node, is_silent=self._rng.random() < 0.3)
                self.report.membership += 1

    def _may_go(self, ring: MemoryRing, node: Node) -> bool:
        """The failure assumption: every list keeps a live entry, and more than r + 1 principals remain.

        Those that are leaving count as gone already: to the proof a leave is a failure. And who is joining keeps one of
        the members it was told of: nobody can join by the dead.
        """
        going = {node.address, *(n.address for n in ring.nodes if n.host.is_leaving)}
        rest = {p: m for p, m in ring.snapshot().items() if m.address not in going}
        has_best = all(invariants.best(rest, point) is not None for point in rest)
        living = {n.address for n in ring.nodes if n.state == "ready"} - going
        if any(n.state == "joining" and not living.intersection(n.config.join) for n in ring.nodes):
            return False
        return has_best and len(invariants.principals(rest)) > R + 1

    def _observe(self, event: Event) -> None:
        name = type(event).__name__
        for detail in ("how", "outcome", "step"):
            if detail in event.__struct_fields__:
                name += f" {getattr(event, detail)}"
        self.report.counts[name] += 1
        if isinstance(event, QUIET) or self._ring is None:
            return
        self.report.steps += 1
        broken: list[Violation] = self._ring.violations()
        if broken:
            lines = "; ".join(f"{v.invariant}: {v.text}" for v in broken[:4])
            raise Violated(f"seed {self._seed} at {trio.current_time():.4f} s after {event}: {lines}")


def expected(error: BaseException) -> BaseException:
    """Return the innermost single exception of a group."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


