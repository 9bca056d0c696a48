"""The nemesis of a *mixed* run: joins, leaves, and the faults that the plan drew.

Deaths stay within the failure assumption of the proof (`fault_schedule.py`). A joiner is not a member yet, so it may
die or stall at any moment. Handovers of arcs break off at such moments.

Faults beyond the assumption come as an *episode*: a partition, a long stop or a blackout. During an episode other nodes
join and leave. After its end nothing happens until the ring has healed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import trio

from chord import events
from chord.errors import ChordError
from chord.events import Event
from chord.ids import Arc, Point
from chord.sim.cluster import Cluster
from chord.sim.disk import Disk
from chord.sim.fault_schedule import FaultSchedule
from chord.sim.observer import Watch
from chord.sim.oracle import Oracle
from chord.sim.plan import GRACE_S, Plan
from chord.store.storage import Batch
from chord.wire.messages import Contact

STALL_MAX_S = 0.08  # below any timeout: no answer is missed, but many arrive late and out of order
EPISODE_S = (0.3, 6.0)
VERDICT_S = 5.0
SILENCE_S = 0.5
"""Seconds after a return in which peers may take a node for its dead former self.

`VERDICT_S` applies if the former self refused connections, and `SILENCE_S` if it did not answer.
"""
FULL_S = (0.5, 5.0)
FULL_BYTES = 2000

Plot: TypeAlias = Callable[[Contact, Contact], Awaitable[None]]
"""Action on a transfer that has just started, given the giver and the receiver."""

CALM = (events.StepDone, events.StepAborted, events.FingerChanged, events.RecordsReceived, events.RecordsDropped)
"""Events that change no replica set."""

Action: TypeAlias = Callable[[], Awaitable[None]]


class Nemesis:
    """Draws and carries out joins, leaves and faults on one cluster.

    Args:
        plan: the plan of the run.
        cluster: the machines and nodes of the run.
        oracle: the oracle, with the inventory and the loss accounting.
        watch: the observer.
        nursery: for tasks that last longer than one action.
        healed: waits until the ring is Ideal again after an episode.
    """

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        oracle: Oracle,
        watch: Watch,
        nursery: trio.Nursery,
        healed: Callable[[], Awaitable[None]],
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._oracle = oracle
        self._watch = watch
        self._nursery = nursery
        self._healed = healed
        self._rng = random.Random(f"nemesis/{plan.seed}")
        self._plots: list[Plot] = []
        self._is_over = False
        self._is_episode = False
        # A node took a living peer for dead, or a dead peer for living.
        self._is_alarmed = False
        self.schedule = FaultSchedule(plan, cluster, oracle, watch, self._rng, nursery)
        drawn = set(plan.faults)
        self._mild = self._of(drawn, [(6, "", self._join), (6, "", self._leave), (2, "adjacent", self._join_adjacent)])
        self._rough = self._of(
            drawn,
            [
                (4, "crash", partial(self._crash, "crash")),
                (2, "silent", partial(self._crash, "crash silently", silently=True)),
                (1, "row", partial(self._crash, "crash in a row", plan.successors - 1)),
                (3, "restart", self._restart),
                (4, "meddle", self._meddle),
                (2, "hiccup", self._hiccup),
                (1, "full", self._fill_disk),
                (1, "eio", self._fail_disk),
                (0.05 if plan.writes else 0.25, "forget", self._rest),  # fifty times as long as others; clients go on
            ],
        )
        self._episodes = self._of(
            drawn,
            [
                (2, "partition", self._partition),
                (1, "freeze", self._freeze),
                (1, "oneway", self._one_way),
                (1, "blackout", self._blackout),
            ],
        )

    @staticmethod
    def _of(drawn: set[str], actions: list[tuple[float, str, Action]]) -> list[tuple[Action, float]]:
        return [(action, weight) for weight, fault, action in actions if not fault or fault in drawn]

    @property
    def membership(self) -> int:
        """Number of joins, leaves, crashes and restarts so far."""
        return self.schedule.membership

    # -- for `Run` -----------------------------------------------------------------------------

    async def do_something(self) -> None:
        """Let one random event happen.

        If it is an episode, such as a split, return only when the ring has healed. Other events return at once.
        """
        await trio.sleep(self._rng.uniform(0, 2 * self._plan.pause_s))
        await self.calm()
        if self._episodes and self._rng.random() < 0.06:
            await self._one_of(self._episodes)
        else:
            await self._one_of(self._mild + self._rough)

    def on_event(self, event: Event) -> None:
        """Note deaths and false alarms, and let a planned fault hit a new transfer.

        A false alarm takes a living node for dead. A leaving node that stopped without a handover counts as dead.
        """
        if not isinstance(event, CALM):
            self._oracle.disturb()
        if isinstance(event, events.PeerChanged) and event.state == "dead":
            self._check_verdict(event)
        if isinstance(event, events.NodeStateChanged) and event.state == "stopped":
            for node in self._cluster.nodes:
                if node.address == event.address and node.name not in self._cluster.clones:
                    self._oracle.accounting.bury(node)  # the autopsy follows when its store has stopped
                    self._watch.note_death()
                    self.schedule.count("leave in vain", 0)
                    if self.schedule.is_returning(node) and not self._is_over:
                        self.schedule.return_soon(node)
        if isinstance(event, events.TransferStarted) and self._plots:
            giver = self._cluster._vnodes().get(event.vnode)
            if giver is not None:
                self._nursery.start_soon(self._plots.pop(), giver.me, event.to)

    def note_late_answer(self) -> None:
        """Note that a vnode was adopted after its death, because its answer was late.

        Until the ring has healed, the failure assumption counts as broken.
        """
        self._alarm("late answer")

    def stop(self) -> None:
        """Drop the planned faults; a leaving node that stops from now on stays dead."""
        self._plots.clear()
        self._is_over = True

    async def calm(self) -> None:
        """Wait until the ring has healed, if an event broke the failure assumption. Otherwise return at once."""
        if self._is_alarmed:
            await self._heal()

    def _check_verdict(self, verdict: events.PeerChanged) -> None:
        """Raise an alarm if a peer took a living node for dead.

        Late or lost messages can make a node look dead. The failure assumption does not hold then.
        """
        for node in self._cluster.nodes:
            born_s = self.schedule.born_s.get(verdict.address, -math.inf)  # founders were never dead
            age_s = trio.current_time() - born_s
            is_old = age_s > (SILENCE_S if "no answer" in verdict.reason else VERDICT_S)
            if node.address == verdict.address and is_old and not node._host.is_leaving:
                self._alarm("false alarm")
                if self._plan.is_clear:
                    self._watch.complain(f"{verdict.address} is alive and was taken for dead: {verdict.reason}")

    def _alarm(self, what: str) -> None:
        """Record that the failure assumption is broken until the ring has healed."""
        if not self._is_episode:
            self.schedule.count(what, 0)
            self._is_alarmed = self._oracle.is_lenient = True
            self._watch.go_outside()

    async def _one_of(self, actions: list[tuple[Action, float]]) -> None:
        (action,) = self._rng.choices([a for a, _ in actions], [weight for _, weight in actions])
        await action()

    # -- joins, leaves and crashes --------------------------------------------------------------

    async def _join(self) -> None:
        if len(self._cluster) < self._plan.nodes_max:
            await self.schedule.join()

    async def _join_adjacent(self) -> None:
        """Let two nodes join one arc, next to each other."""
        if len(self._cluster) >= self._plan.nodes_max - 1:
            return
        points = list(self._cluster._vnodes())
        at = self._rng.randrange(len(points))
        gap = (points[at] - points[at - 1]) % (1 << 160)
        if gap < 4:  # no room between two adjacent joiners
            return
        first = points[at - 1] + 1 + self._rng.randrange(gap - 3)
        for number in range(2):
            await self.schedule.start(id=Point((first + number) % (1 << 160)))
            self.schedule.count("join adjacent")

    async def _leave(self) -> None:
        for node in self.schedule.neighbours(self._rng.choice([1, 1, 2])):
            if self.schedule.may_go(node):
                node._begin_leave()
                self.schedule.count("leave")

    async def _crash(self, what: str, members: int = 1, *, silently: bool = False) -> None:
        """Kill adjacent members at one moment, except those that `may_go` protects.

        Args:
            what: the name of the action, for the counts.
            members: number of nodes to draw.
            silently: as for `FaultSchedule.kill`.
        """
        for node in self.schedule.neighbours(members):
            if self.schedule.may_go(node):
                await self.schedule.end(node, what, silently=silently)

    async def _restart(self) -> None:
        for node in self.schedule.neighbours(1):
            if self.schedule.may_go(node):
                await self.schedule.restart(node)

    async def _rest(self) -> None:
        """Let no node join or leave for a while, so that owners can reap tombstones."""
        self.schedule.count("rest", 0)
        await trio.sleep(self._rng.uniform(GRACE_S, 3 * GRACE_S))

    # -- disks ----------------------------------------------------------------------------------

    async def _fill_disk(self) -> None:
        """Leave room for a few more records on a disk, and then for none, for a while."""
        for node in self.schedule.neighbours(1):
            if self._cluster.has_disk(node.name):
                self.schedule.count("disk full", 0)
                self._nursery.start_soon(self._full, self._cluster.disk(node.name))

    async def _full(self, disk: Disk) -> None:
        disk.fill(self._rng.randrange(FULL_BYTES))
        await trio.sleep(self._rng.uniform(*FULL_S))
        disk.free()

    async def _fail_disk(self) -> None:
        """Let the next sync of a disk fail, so that its node stops; start the node again."""
        for node in self.schedule.neighbours(1):
            storage = node._host.storage
            record = next(storage.scan(Arc(Point(0), Point(0))), None)
            if record is None or not self._cluster.has_disk(node.name) or not self.schedule.may_go(node):
                continue
            self._cluster.disk(node.name).fail_next_sync()
            with suppress(ChordError):
                await storage.commit(Batch([record]))
            self._cluster.disk(node.name).mend()  # a store that refused the record has not synced
            if storage.failed is not None and storage.failed.is_set() and node in self._cluster.nodes:
                self.schedule.count("disk failed")
                await self.schedule.restart(node)

    # -- stalls ---------------------------------------------------------------------------------

    async def _hiccup(self) -> None:
        """Block a host, or one direction between two hosts, for less than any timeout.

        Then all waiting messages arrive at once.
        """
        one, other = (node.name for node in self._rng.sample(self._cluster.nodes, 2))
        self.schedule.count("hiccup", 0)
        self._nursery.start_soon(self._stall, one, other if self._rng.random() < 0.5 else None)

    async def _stall(self, one: str, other: str | None) -> None:
        network = self._cluster.network
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
        if len(self._cluster) >= self._plan.nodes_max or len(self._plots) > 1:
            return
        self._plots.append(self._rng.choice([self._kill_receiver, self._kill_giver, self._stall_receiver]))
        await (self._join() if self._rng.random() < 0.7 else self._leave())

    async def _kill_receiver(self, giver: Contact, receiver: Contact) -> None:
        await self._kill_at(receiver, "kill receiver")

    async def _kill_giver(self, giver: Contact, receiver: Contact) -> None:
        await self._kill_at(giver, "kill giver")

    async def _kill_at(self, contact: Contact, what: str) -> None:
        await trio.sleep(self._rng.uniform(0, 12 * self._plan.delay_s[0]))
        for node in self._cluster.nodes:
            if node.address == contact.address and self.schedule.may_go(node):
                await self.schedule.end(node, what)
                return

    async def _stall_receiver(self, giver: Contact, receiver: Contact) -> None:
        """Freeze a joiner that is not a member yet, and sometimes kill its giver.

        A node that returns may resume as a ring of its own meanwhile, because it hears of no other.
        """
        await trio.sleep(self._rng.uniform(0, 12 * self._plan.delay_s[0]))
        for node in self._cluster.nodes:
            if node.address == receiver.address and not any(v.ring.is_member for v in node._host.vnodes.values()):
                self.schedule.count("stall receiver", 0)
                if node.state == "resuming":
                    self._alarm("stall returning node")
                self._watch.note_death()
                self._cluster.network.freeze(node.name)
                if self._rng.random() < 0.5:
                    await self._kill_giver(giver, receiver)
                await trio.sleep(self._rng.uniform(0.2, 4))
                self._cluster.network.unfreeze(node.name)
                self._watch.note_death()
                return

    # -- episodes: beyond the failure assumption --------------------------------------------------

    async def _episode(self, what: str, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """Begin a fault, let nodes join and leave, end it, and wait for the ring to heal."""
        self.schedule.count(what, 0)
        self._is_episode = self._oracle.is_lenient = True
        self._watch.go_outside()
        begin()
        until = trio.current_time() + self._rng.uniform(*EPISODE_S)
        while trio.current_time() < until:
            await trio.sleep(self._rng.uniform(0, 1))
            if self._rng.random() < 0.3:
                await self._one_of(self._mild)
        end()
        await self._heal()

    async def _heal(self) -> None:
        await self._healed()
        self._watch.come_back()
        self._oracle.merged()
        self._is_episode = self._is_alarmed = self._oracle.is_lenient = False

    async def _partition(self) -> None:
        """Split the network in two parts, at random or along the circle.

        Streams between the parts break or hang.
        """
        names = [node.name for node in self.schedule.in_order()]
        if self._rng.random() < 0.5:
            self._rng.shuffle(names)
        part = names[: self._rng.randint(1, len(names) - 1)]
        is_cut = self._rng.random() < 0.5
        network = self._cluster.network

        def begin() -> None:
            network.partition(part, reset=is_cut)
            self._oracle.split()

        await self._episode("partition", begin, network.heal)

    async def _freeze(self) -> None:
        name, network = self._rng.choice(self._cluster.nodes).name, self._cluster.network
        await self._episode("freeze", lambda: network.freeze(name), lambda: network.unfreeze(name))

    async def _one_way(self) -> None:
        one, other = (node.name for node in self._rng.sample(self._cluster.nodes, 2))
        network = self._cluster.network
        await self._episode("one way", lambda: network.block(one, other), lambda: network.unblock(one, other))

    async def _blackout(self) -> None:
        """Kill every node at one moment, and start again those that were `ready`.

        They start within a second. If the fault *return* is on, nodes that were leaving, joining or returning start
        again too. No blackout happens while the ring is being founded, because a node that has not joined has no state
        to start from.
        """
        nodes = [node for node in self.schedule.in_order() if node.state == "ready"]
        if len(nodes) < self._plan.nodes_min:
            return
        self.schedule.count("blackout", 0)
        self._is_episode = self._oracle.is_lenient = True
        self._watch.go_outside()
        others = [node for node in self._cluster.nodes if node not in nodes]
        for node in (*others, *nodes):
            await self.schedule.kill(node)
        nodes += [node for node in others if self.schedule.is_returning(node)]
        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(self.schedule.come_back_soon, node, self._rng.uniform(0, 1))
        await self._heal()
