"""What happens to a ring: joins, leaves, and the faults its plan has drawn.

Deaths stay within the failure assumption of the proof: no member loses its last live successor
entry, and enough principals remain. To the proof a leave is a failure. A joiner is not a member
yet: it may die or stall at any moment, and that is where hand-overs of arcs break off.

What is beyond the assumption comes as an *episode*: a partition, a long stop, a blackout. It begins,
others come and go meanwhile, it ends, and then nothing happens until the ring has healed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

import trio

from chord import events, invariants
from chord.data.storage import Batch
from chord.errors import ChordError
from chord.events import Event
from chord.ids import Arc, Point
from chord.messages import Contact
from chord.node import Node
from chord.sim.cluster import Cluster
from chord.sim.disk import Disk
from chord.sim.durable import damage
from chord.sim.ledger import Ledger
from chord.sim.plan import Plan
from chord.sim.watch import Watch

STALL_MAX_S = 0.08  # less than any timeout: no answer is missed, but much comes late and out of order
SKEW_MAX_S = 3600.0
EPISODE_S = (0.3, 6.0)
VERDICT_S = 5.0
SILENCE_S = 0.5
"""A node that is back for so long is not taken for its dead former self, which refuses connections, or is silent."""
WIPED = 0.3
DAMAGED = 0.5
"""So many of the restarts find an empty disk, or a damaged record, where those faults are on."""
FULL_S = (0.5, 5.0)
FULL_BYTES = 2000

Plot: TypeAlias = Callable[[Contact, Contact], Awaitable[None]]
"""What to do to a transfer that has just started, given the giver and the receiver."""

Action: TypeAlias = Callable[[], Awaitable[None]]


class Nemesis:
    """Lets things happen to one cluster, drawn from its dice.

    Args:
        healed: waits until the ring is Ideal again after an episode.

    Attributes:
        membership: joins, leaves, crashes and restarts so far.
    """

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        ledger: Ledger,
        watch: Watch,
        nursery: trio.Nursery,
        healed: Callable[[], Awaitable[None]],
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._ledger = ledger
        self._watch = watch
        self._nursery = nursery
        self._healed = healed
        self._rng = random.Random(f"nemesis/{plan.seed}")
        self._plots: list[Plot] = []
        self._is_episode = False
        self._is_alarmed = False  # somebody took a living node for dead, or a dead one for living
        self._born_s: dict[str, float] = {}
        self._returning: dict[str, tuple[str, ...]] = {}  # who is down and comes back, and whom it will ask
        self._last_words: list[tuple[float, tuple[int, ...]]] = []  # when somebody died, and what its list was
        self.membership = 0
        watch.on_late = lambda: self._alarm("late answer")
        drawn = set(plan.faults)
        self._mild = self._of(drawn, [(6, "", self._join), (6, "", self._leave), (2, "adjacent", self._join_adjacent)])
        self._rough = self._of(
            drawn,
            [
                (4, "crash", self._crash),
                (2, "silent", self._crash_silently),
                (1, "row", self._crash_row),
                (3, "restart", self._restart),
                (4, "meddle", self._meddle),
                (2, "hiccup", self._hiccup),
                (1, "full", self._fill_disk),
                (1, "eio", self._fail_disk),
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
    def _of(drawn: set[str], actions: list[tuple[int, str, Action]]) -> list[tuple[Action, int]]:
        return [(action, weight) for weight, fault, action in actions if not fault or fault in drawn]

    # -- for the life ---------------------------------------------------------------------------

    async def do_something(self) -> None:
        """Let one thing happen; an episode lasts until the ring has healed."""
        await trio.sleep(self._rng.uniform(0, 2 * self._plan.pause_s))
        await self.calm()
        if self._episodes and self._rng.random() < 0.06:
            await self._one_of(self._episodes)
        else:
            await self._one_of(self._mild + self._rough)

    def on_event(self, event: Event) -> None:
        """Carry out what is planned for the next transfer; a leave in vain is a death."""
        if isinstance(event, events.PeerChanged) and event.state == "dead":
            self._check_verdict(event)
        if isinstance(event, events.NodeStateChanged) and event.state == "stopped":
            for node in self._cluster.nodes:
                if node.address == event.address:
                    self._ledger.bury(node)
                    self._ledger.autopsy(node)
                    self._watch.somebody_died()
                    self._count("leave in vain", 0)
        if isinstance(event, events.TransferStarted) and self._plots:
            giver = self._cluster.vnodes().get(event.vnode)
            if giver is not None:
                self._nursery.start_soon(self._plots.pop(), giver.me, event.to)

    def stop(self) -> None:
        """Forget what is planned."""
        self._plots.clear()

    async def calm(self) -> None:
        """If something happened beyond the failure assumption, wait until the ring has healed."""
        if self._is_alarmed:
            await self._heal()

    def _check_verdict(self, verdict: events.PeerChanged) -> None:
        """Messages that are late or lost can make a node look dead: then the failure assumption does not hold."""
        for node in self._cluster.nodes:
            age_s = trio.current_time() - self._born_s.get(verdict.address, -math.inf)  # founders were never dead
            is_old = age_s > (SILENCE_S if "no answer" in verdict.reason else VERDICT_S)
            if node.address == verdict.address and is_old and not node.host.is_leaving:
                self._alarm("false alarm")
                if self._plan.is_clear:
                    self._watch.complain(f"{verdict.address} is alive and was taken for dead: {verdict.reason}")

    def _alarm(self, what: str) -> None:
        """Something happened that the failure assumption excludes: from now until the ring has healed."""
        if not self._is_episode:
            self._count(what, 0)
            self._is_alarmed = self._ledger.is_lenient = True
            self._watch.go_outside()

    async def _one_of(self, actions: list[tuple[Action, int]]) -> None:
        (action,) = self._rng.choices([a for a, _ in actions], [weight for _, weight in actions])
        await action()

    def _count(self, what: str, membership: int = 1) -> None:
        self._watch.counts[f"action {what}"] += 1
        self.membership += membership

    # -- coming and going -----------------------------------------------------------------------

    async def _start(self, **changes: object) -> Node:
        node = await self._cluster.start(**changes)  # type: ignore[arg-type]
        self._born_s[node.address] = trio.current_time()
        if "skew" in self._plan.faults:
            self._cluster.skew(node.config.name or "", self._rng.uniform(-SKEW_MAX_S, SKEW_MAX_S))
        return node

    async def _join(self) -> None:
        if len(self._cluster) < self._plan.nodes_max:
            await self._start()
            self._count("join")

    async def _join_adjacent(self) -> None:
        """Two joiners in one arc, next to each other."""
        if len(self._cluster) >= self._plan.nodes_max - 1:
            return
        points = list(self._cluster.vnodes())
        at = self._rng.randrange(len(points))
        gap = (points[at] - points[at - 1]) % (1 << 160)
        if gap < 4:  # between two such: there is no room, and an id has one node
            return
        first = points[at - 1] + 1 + self._rng.randrange(gap - 3)
        for number in range(2):
            await self._start(id=Point((first + number) % (1 << 160)))
            self._count("join adjacent")

    async def _leave(self) -> None:
        for node in self._neighbours(self._rng.choice([1, 1, 2])):
            if self._may_go(node):
                node.begin_leave()
                self._count("leave")

    async def _crash(self) -> None:
        for node in self._neighbours(1):
            if self._may_go(node):
                await self._kill(node)
                self._count("crash")

    async def _crash_silently(self) -> None:
        for node in self._neighbours(1):
            if self._may_go(node):
                await self._kill(node, is_silent=True)
                self._count("crash silently")

    async def _crash_row(self) -> None:
        """r - 1 members in a row at one moment."""
        for node in self._neighbours(self._plan.successors - 1):
            if self._may_go(node):
                await self._kill(node)
                self._count("crash in a row")

    async def _restart(self) -> None:
        """Down for a moment: sometimes nobody notices, sometimes all do."""
        for node in self._neighbours(1):
            if self._may_go(node):
                await self._kill(node)
                host = node.config.name or ""
                kept = self._cluster.kept(host)
                self._returning[host] = () if kept is None else kept.known
                self._nursery.start_soon(self._come_back, node, self._rng.choice([0.0, 0.1, 0.5, 2.0]))

    async def _come_back(self, node: Node, after_s: float) -> None:
        """Start a node that was killed again: on its disk, without its records, or as a new node."""
        host = node.config.name or ""
        is_wiped = "wipe" in self._plan.faults and self._rng.random() < WIPED
        await trio.sleep(after_s)
        while is_wiped and not any(other.state == "ready" for other in self._cluster.nodes):
            await trio.sleep(0.1)  # it knows nobody any more: without a member to join by it would be a ring of its own
        if is_wiped:
            del self._returning[host]
            self._ledger.wipe(host)
            self._ledger.revive()
            self._cluster.wipe(host)
            self._count("restart wiped", 2)
            await self._start(name=host, id=self._a_point())
            return
        if "damage" in self._plan.faults and self._rng.random() < DAMAGED:
            self._damage(host)
        self._count("restart", 2)
        self._watch.excused.update(node.host.vnodes)
        self._ledger.bring_back(await self._start(join=(), name=host))
        self._ledger.revive()

    def _damage(self, host: str) -> None:
        """A record on a dead machine's disk is no longer what was written."""
        keys = self._ledger.truth.records_of(host)
        if keys:
            key = self._rng.choice(keys)
            disk = self._cluster.disk(host)
            room, disk.capacity_bytes = disk.capacity_bytes, math.inf  # what decays needs none
            damage(disk, key)
            disk.capacity_bytes = room
            self._ledger.damage(host, key)
            self._count("damage", 0)

    def _a_point(self) -> Point:
        return Point(self._rng.getrandbits(160))

    async def _kill(self, node: Node, *, is_silent: bool = False) -> None:
        """Kill a node, every other time by pulling the plug."""
        self._ledger.bury(node)
        self._watch.somebody_died()
        self._last_words += [(trio.current_time(), entries) for entries in self._lists_of(node)]
        await self._cluster.kill(node, is_silent=is_silent, is_power_lost=self._rng.random() < 0.5)
        self._ledger.autopsy(node)
        self._watch.check()

    # -- disks ----------------------------------------------------------------------------------

    async def _fill_disk(self) -> None:
        """There is room for a few records more, and then for none, for a while."""
        for node in self._neighbours(1):
            if self._cluster.has_disk(node.name):
                self._count("disk full", 0)
                self._nursery.start_soon(self._full, self._cluster.disk(node.name))

    async def _full(self, disk: Disk) -> None:
        disk.capacity_bytes = disk.used_bytes + self._rng.randrange(FULL_BYTES)
        await trio.sleep(self._rng.uniform(*FULL_S))
        disk.capacity_bytes = math.inf

    async def _fail_disk(self) -> None:
        """The next sync fails; the node stops, and is started again."""
        for node in self._neighbours(1):
            storage = node.host.storage
            record = next(storage.scan(Arc(Point(0), Point(0))), None)
            if record is None or not self._cluster.has_disk(node.name) or not self._may_go(node):
                continue
            self._cluster.disk(node.name).fail_next_sync()
            with suppress(ChordError):
                await storage.commit(Batch([record]))
            if storage.failed.is_set() and node in self._cluster.nodes:
                self._count("disk failed")
                kept = self._cluster.kept(node.name)
                await self._kill(node)
                self._returning[node.name] = () if kept is None else kept.known
                self._nursery.start_soon(self._come_back, node, self._rng.choice([0.0, 0.5, 2.0]))

    # -- stalls ---------------------------------------------------------------------------------

    async def _hiccup(self) -> None:
        """Nothing passes a host, or one way between two, for less than any timeout; then all of it at once."""
        one, other = (node.name for node in self._rng.sample(self._cluster.nodes, 2))
        self._count("hiccup", 0)
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
            if node.address == contact.address and self._may_go(node):
                await self._kill(node)
                self._count(what)
                return

    async def _stall_receiver(self, giver: Contact, receiver: Contact) -> None:
        """A joiner that is no member yet falls silent, long enough to be given up or not; its giver may die."""
        await trio.sleep(self._rng.uniform(0, 12 * self._plan.delay_s[0]))
        for node in self._cluster.nodes:
            if node.address == receiver.address and not any(v.ring.is_member for v in node.host.vnodes.values()):
                self._count("stall receiver", 0)
                self._watch.somebody_died()
                self._cluster.network.freeze(node.name)
                if self._rng.random() < 0.5:
                    await self._kill_giver(giver, receiver)
                await trio.sleep(self._rng.uniform(0.2, 4))
                self._cluster.network.unfreeze(node.name)
                self._watch.somebody_died()
                return

    # -- episodes: beyond the failure assumption --------------------------------------------------

    async def _episode(self, what: str, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """Let something begin, others come and go meanwhile, and end; then wait until the ring has healed."""
        self._count(what, 0)
        self._is_episode = self._ledger.is_lenient = True
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
        self._ledger.revive()
        self._is_episode = self._is_alarmed = self._ledger.is_lenient = False

    async def _partition(self) -> None:
        """Two parts, drawn or along the circle, that cannot reach each other; streams break or hang."""
        names = [node.name for node in self._in_order()]
        if self._rng.random() < 0.5:
            self._rng.shuffle(names)
        part = names[: self._rng.randint(1, len(names) - 1)]
        is_cut = self._rng.random() < 0.5
        network = self._cluster.network
        await self._episode("partition", lambda: network.partition(part, is_cut=is_cut), network.heal)

    async def _freeze(self) -> None:
        name, network = self._rng.choice(self._cluster.nodes).name, self._cluster.network
        await self._episode("freeze", lambda: network.freeze(name), lambda: network.unfreeze(name))

    async def _one_way(self) -> None:
        one, other = (node.name for node in self._rng.sample(self._cluster.nodes, 2))
        network = self._cluster.network
        await self._episode("one way", lambda: network.block(one, other), lambda: network.unblock(one, other))

    async def _blackout(self) -> None:
        """Every node is killed at one moment; the members that were not leaving are started again within a second.

        Not while the ring is still being founded: who has not joined has nothing to start from again.
        """
        nodes = [node for node in self._in_order() if node.state == "ready"]
        if len(nodes) < self._plan.nodes_min:
            return
        self._count("blackout", 0)
        self._is_episode = self._ledger.is_lenient = True
        self._watch.go_outside()
        others = [node for node in self._cluster.nodes if node not in nodes]
        for node in (*others, *nodes):
            await self._kill(node)
        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(self._back_from_blackout, node, self._rng.uniform(0, 1))
        await self._heal()

    async def _back_from_blackout(self, node: Node, after_s: float) -> None:
        await trio.sleep(after_s)
        self._ledger.bring_back(await self._start(join=(), name=node.config.name))
        self._ledger.revive()

    # -- the failure assumption -------------------------------------------------------------------

    def _in_order(self) -> list[Node]:
        return sorted(self._cluster.nodes, key=lambda node: next(iter(node.host.vnodes)))

    def _neighbours(self, count: int) -> list[Node]:
        """Return so many members in a row, drawn; none when that would leave too few."""
        ready = [node for node in self._in_order() if node.state == "ready"]
        if len(ready) - count < self._plan.nodes_min:
            return []
        at = self._rng.randrange(len(ready))
        return [ready[(at + i) % len(ready)] for i in range(count)]

    def _may_go(self, node: Node) -> bool:
        """The failure assumption: every list keeps a live entry, and more than r + 1 principals remain.

        So does every list that is being copied: to the proof an answer takes no time, so that what somebody said before
        it died is its asker's list from then on, also while it is under way. Those that are leaving count as gone
        already: to the proof a leave is a failure. And who is joining, or coming back, keeps one of the members it
        knows: nobody can join by the dead.
        """
        cluster = self._cluster
        going = {node.address, *(n.address for n in cluster.nodes if n.host.is_leaving)}
        rest = {p: m for p, m in cluster.snapshot().items() if m.address not in going}
        has_best = all(invariants.best(rest, point) is not None for point in rest)
        those = [n for n in cluster.nodes if n.address in going]
        copied = [*self._under_way(), *(entries for n in those for entries in self._lists_of(n))]
        if any(rest.keys().isdisjoint(entries[: self._plan.successors - 1]) for entries in copied):
            return False
        if self._run_of_going(going) >= self._plan.successors:
            return False  # no list has such a gap yet, but each of them copies the next
        living = {n.address for n in cluster.nodes if n.state == "ready"} - going
        for back in [n.name for n in cluster.nodes if n.state == "ready"]:
            self._returning.pop(back, None)
        knows = [n.config.join for n in cluster.nodes if n.state == "joining" and n.address != node.address]
        knows += [known for host, known in self._returning.items() if host != node.name]
        if any(not living.intersection(known) for known in knows):
            return False
        return has_best and len(invariants.principals(rest)) > self._plan.successors + 1

    @staticmethod
    def _lists_of(node: Node) -> list[tuple[int, ...]]:
        rings = [v.ring for v in node.host.vnodes.values() if v.ring.is_member]
        return [tuple(contact.id for contact in ring.successors) for ring in rings]

    def _under_way(self) -> list[tuple[int, ...]]:
        """Return the lists of those who died so lately that an answer of theirs may still arrive."""
        since = trio.current_time() - self._plan.timing.timeout_cap_s
        self._last_words = [words for words in self._last_words if words[0] >= since]
        return [entries for _, entries in self._last_words]

    def _run_of_going(self, going: set[str]) -> int:
        """Return how many members in a row go, at most: so many entries of an exact list are lost at once."""
        is_going = [member.address in going for member in self._cluster.snapshot().values()]
        longest = run = 0
        for one in is_going * 2:
            run = run + 1 if one else 0
            longest = max(longest, run)
        return longest
