"""One seed's run: joins, leaves, crashes, restarts and stalls at random on a ring in memory, checked all the time.

Deaths stay within the failure assumption of the proof: no member loses its last live successor
entry, and enough principals remain. To the proof a leave is a failure. A joiner is not a member
yet: it may die or stall at any moment, and that is where hand-overs of arcs break off. What a seed
draws is a function of the seed alone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from chord import events, invariants, testing
from chord.events import Event
from chord.ids import Point
from chord.messages import Contact
from chord.node import Node

from .ledger import Ledger
from .watch import Violated, Watch

R = 4
NODES_MIN = 20
NODES_MAX = 40
PAUSES_S = (0.0, 0.0, 0.01, 0.05, 0.2, 0.5)
CLIENTS = 3
CLIENT_PAUSE_S = 0.15
STALL_MAX_S = 0.08  # less than any timeout: no answer is missed, but much comes late and out of order
VIRTUAL_S_MAX = 300.0
COUNTERS = ("keys_sent", "keys_received", "keys_dropped", "keys_brought_home", "abandon_unheard", "goodbyes_unheard")

Plot = Callable[[Contact, Contact], Awaitable[None]]
"""What to do to a transfer that has just started, given the giver and the receiver."""


@dataclass
class Report:
    """What a schedule did.

    Attributes:
        seed: which.
        steps: protocol steps.
        membership: joins, leaves, crashes and restarts.
        counts: how often each transition, abort, take-over, action and client operation was taken.
        settled_s: virtual seconds from the last event until the ring was Ideal.
    """

    seed: int
    steps: int = 0
    membership: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    settled_s: float = 0.0


class Schedule:
    """One seed's run.

    Args:
        is_polite: nobody dies. Then no arc may have two owners for a moment, and no key may be lost.
    """

    def __init__(
        self,
        seed: int,
        *,
        nodes: int = 32,
        membership: int = 30,
        steps: int = 2000,
        successors: int = R,
        is_polite: bool | None = None,
    ) -> None:
        self._seed = seed
        self._nodes = nodes
        self._nodes_min = min(NODES_MIN, max(nodes // 2, successors + 3))
        self._membership = membership
        self._steps = steps
        self._r = successors
        self._rng = random.Random(f"schedule/{seed}")
        self._is_polite = seed % 5 == 4 if is_polite is None else is_polite
        self._watch = Watch(f"seed {seed}", successors)
        self._watch.is_exclusive = self._is_polite
        self._watch.on_event = self._on_event
        self._plots: list[Plot] = []
        self._all: dict[str, list[Node]] = {}
        self.report = Report(seed)

    def run(self) -> Report:
        """Run the schedule on virtual time.

        Raises:
            Violated: an invariant broke, or a client was told something untrue.
            NotConverged: the ring did not become Ideal afterwards.
        """
        try:
            testing.run(self._main, seed=self._seed)
        except Exception:
            self._watch.raise_if_broken()
            raise
        self._watch.raise_if_broken()
        return self.report

    # -- the run --------------------------------------------------------------------------------

    async def _main(self) -> None:
        """The whole life of the ring."""
        report, watch = self.report, self._watch
        async with testing.ring(
            self._nodes, seed=self._seed, successors=self._r, observe=watch, is_converged=False
        ) as ring:
            self._ring = ring
            self._ledger = Ledger(ring, random.Random(f"ledger/{self._seed}"), watch.complain)
            for node in ring.nodes:
                self._all.setdefault(node.address, []).append(node)
            with watch.over(ring), trio.fail_after(VIRTUAL_S_MAX), trio.CancelScope() as scope:
                watch.on_broken = scope.cancel
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    clients: trio.CancelScope = await nursery.start(self._ledger.clients, CLIENTS, CLIENT_PAUSE_S)
                    await trio.sleep(self._rng.uniform(0.5, 2))
                    while report.membership < self._membership or watch.steps < self._steps:
                        await trio.sleep(self._rng.choice(PAUSES_S))
                        await self._do_something()
                    clients.cancel()
                    self._plots.clear()
                report.settled_s = await self._settle()
            self._sum_up()

    def _sum_up(self) -> None:
        report = self.report
        report.steps = self._watch.steps
        report.counts = self._watch.counts
        report.counts.update({f"client {word}": count for word, count in self._ledger.counts.items()})
        for node in (node for lives in self._all.values() for node in lives):
            report.counts.update({name: node.host.counters[name] for name in COUNTERS})

    async def _settle(self) -> float:
        """Wait until the ring is Ideal: from when all have come and gone who do, only for the better."""
        began = trio.current_time()
        while any(node.state != "ready" for node in self._ring.nodes) and trio.current_time() - began < 60:
            await trio.sleep(0.05)
        self._watch.calm_down()
        await self._ring.converged()
        took = trio.current_time() - began
        with trio.move_on_after(10):
            while self._misplaced():
                await trio.sleep(0.1)
        left_over = self._misplaced()
        if left_over:
            self._watch.complain(f"records of others stay on {', '.join(left_over)}")
        await self._ledger.settle()
        return took

    def _misplaced(self) -> list[str]:
        return [node.name for node in self._ring.nodes if node.misplaced.count()]

    # -- what happens ---------------------------------------------------------------------------

    async def _do_something(self) -> None:
        mild: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self._join, 6),
            (self._join_side_by_side, 2),
            (self._leave, 6),
            (self._hiccup, 2),
        ]
        rough = [
            (self._crash, 5),
            (self._crash_neighbours, 1),
            (self._restart, 1),
            (self._meddle, 5),
        ]
        actions = mild if self._is_polite else mild + rough
        (action,) = self._rng.choices([a for a, _ in actions], [weight for _, weight in actions])
        await action()

    def _count(self, what: str, membership: int = 1) -> None:
        self._watch.counts[f"action {what}"] += 1
        self.report.membership += membership

    async def _start(self, **changes: object) -> Node:
        node = await self._ring.start(**changes)  # type: ignore[arg-type]
        self._all.setdefault(node.address, []).append(node)
        return node

    async def _join(self) -> None:
        if len(self._ring) < NODES_MAX:
            await self._start()
            self._count("join")

    async def _join_side_by_side(self) -> None:
        """Two joiners in one arc, next to each other."""
        if len(self._ring) >= NODES_MAX - 1:
            return
        points = list(self._ring.vnodes())
        at = self._rng.randrange(len(points))
        gap = (points[at] - points[at - 1]) % (1 << 160)
        first = points[at - 1] + 1 + self._rng.randrange(max(1, gap - 3))
        for number in range(2):
            await self._start(id=Point((first + number) % (1 << 160)))
            self._count("join side by side")

    async def _leave(self) -> None:
        for node in self._neighbours(self._rng.choice([1, 1, 2])):
            if self._may_go(node):
                node._end("leave")
                self._count("leave")

    async def _crash(self) -> None:
        for node in self._neighbours(1):
            if self._may_go(node):
                is_silent = self._rng.random() < 0.3
                await self._kill(node, is_silent=is_silent)
                self._count(f"crash{' silently' * is_silent}")

    async def _crash_neighbours(self) -> None:
        """r - 1 members in a row at one moment."""
        for node in self._neighbours(self._r - 1):
            if self._may_go(node):
                await self._kill(node)
                self._count("crash in a row")

    async def _restart(self) -> None:
        """Down for a moment: sometimes nobody notices, sometimes all do."""
        for node in self._neighbours(1):
            if self._may_go(node):
                self._watch.excused.update(node.host.vnodes)
                await self._kill(node)
                self._count("restart", 2)
                self._nursery.start_soon(self._come_back, node, self._rng.choice([0.0, 0.1, 0.5, 2.0]))

    async def _come_back(self, node: Node, after_s: float) -> None:
        await trio.sleep(after_s)
        self._ledger.revive(node)
        await self._start(join=(), name=node.config.name)

    async def _hiccup(self) -> None:
        """Nothing passes a host, or one way between two, for less than any timeout; then all of it at once."""
        one, other = (node.name for node in self._rng.sample(self._ring.nodes, 2))
        self._count("hiccup", 0)
        self._nursery.start_soon(self._stall, one, other if self._rng.random() < 0.5 else None)

    async def _stall(self, one: str, other: str | None) -> None:
        network = self._ring.network
        pause = self._rng.uniform(0, STALL_MAX_S)
        if other is None:
            network.freeze(one)
            await trio.sleep(pause)
            network.unfreeze(one)
        else:
            network.block(one, other)
            await trio.sleep(pause)
            network.unblock(one, other)

    # -- meddling with transfers ----------------------------------------------------------------

    async def _meddle(self) -> None:
        """Start a join or a leave, and let one side of the next transfer die or stall."""
        if len(self._ring) >= NODES_MAX or len(self._plots) > 1:
            return
        self._plots.append(self._rng.choice([self._kill_receiver, self._kill_giver, self._stall_receiver]))
        await (self._join() if self._rng.random() < 0.7 else self._leave())

    def _on_event(self, event: Event) -> None:
        if isinstance(event, events.TransferStarted) and self._plots:
            giver = self._ring.vnodes().get(event.vnode)
            if giver is not None:
                self._nursery.start_soon(self._plots.pop(), giver.me, event.to)

    async def _kill_receiver(self, giver: Contact, receiver: Contact) -> None:
        await trio.sleep(self._rng.uniform(0, 0.006))
        await self._kill_at(receiver, "kill receiver")

    async def _kill_giver(self, giver: Contact, receiver: Contact) -> None:
        await trio.sleep(self._rng.uniform(0, 0.006))
        await self._kill_at(giver, "kill giver")

    async def _kill_at(self, contact: Contact, what: str) -> None:
        for node in self._ring.nodes:
            if node.address == contact.address and self._may_go(node):
                await self._kill(node)
                self._count(what)
                return

    async def _stall_receiver(self, giver: Contact, receiver: Contact) -> None:
        """A joiner that is no member yet falls silent, long enough to be given up or not; its giver may die."""
        await trio.sleep(self._rng.uniform(0, 0.006))
        for node in self._ring.nodes:
            if node.address == receiver.address and not any(v.ring.is_member for v in node.host.vnodes.values()):
                self._count("stall receiver", 0)
                self._ring.network.freeze(node.name)
                if self._rng.random() < 0.5:
                    await self._kill_giver(giver, receiver)
                await trio.sleep(self._rng.uniform(0.2, 4))
                self._ring.network.unfreeze(node.name)
                return

    # -- the failure assumption -------------------------------------------------------------------

    def _neighbours(self, count: int) -> list[Node]:
        """Return so many members in a row, drawn; none when that would leave too few."""
        ready = sorted((n for n in self._ring.nodes if n.state == "ready"), key=lambda n: next(iter(n.host.vnodes)))
        if len(ready) - count < self._nodes_min:
            return []
        at = self._rng.randrange(len(ready))
        return [ready[(at + i) % len(ready)] for i in range(count)]

    def _may_go(self, node: Node) -> bool:
        """The failure assumption: every list keeps a live entry, and more than r + 1 principals remain.

        Those that are leaving count as gone already: to the proof a leave is a failure. And who is joining keeps one of
        the members it was told of: nobody can join by the dead.
        """
        ring = self._ring
        going = {node.address, *(n.address for n in ring.nodes if n.host.is_leaving)}
        rest = {p: m for p, m in ring.snapshot().items() if m.address not in going}
        has_best = all(invariants.best(rest, point) is not None for point in rest)
        living = {n.address for n in ring.nodes if n.state == "ready"} - going
        joining = [n for n in ring.nodes if n.state == "joining" and n.address != node.address]
        if any(not living.intersection(n.config.join) for n in joining):
            return False
        return has_best and len(invariants.principals(rest)) > self._r + 1

    async def _kill(self, node: Node, *, is_silent: bool = False) -> None:
        self._ledger.bury(node)
        await self._ring.kill(node, is_silent=is_silent)
        self._watch.check()


__all__ = ["R", "Report", "Schedule", "Violated"]
