"""The fault schedule: which nodes die and return, within the failure assumption.

The assumption is that of the proof in docs/explanation/correctness.md. No member loses its last live successor entry,
and enough principals remain (`may_go`). To the proof a leave is a failure. A joiner is not a member yet, so it may die
or stall at any moment.

The nemesis and the hardships choose what happens. The fault schedule decides which nodes may die, and brings them back.
"""

from __future__ import annotations

import random
from contextlib import suppress

import trio

from chord.errors import ChordError
from chord.ids import Point, vnode_id
from chord.node import Node
from chord.sim.cluster import Cluster
from chord.sim.observer import Watch
from chord.sim.oracle import Oracle
from chord.sim.plan import Plan
from chord.sim.situations import LEAVER_BACK, SITUATION
from chord.store.identity import Kept
from chord.verify import invariants

SKEW_MAX_S = 3600.0
WIPED = 0.3
DAMAGED = 0.5
"""Fractions of restarts with an emptied disk, and with a damaged record.

They apply if the faults *wipe* and *damage* are on.
"""
LEAVERS_RETURN = 0.5
"""Fraction of runs in which a node that left is the next to join.

It joins on the same machine, at its old address.
"""
FORGOTTEN_S = (0.5, 8.0)
DOWN_S = (0.0, 0.1, 0.5, 2.0)
"""Choices for how long a returning node is down, in seconds.

Sometimes no peer notices, sometimes all do.
"""


class FaultSchedule:
    """Starts and kills the nodes of one cluster, and reports that to its checkers.

    Args:
        plan: the plan of the run.
        cluster: the machines and nodes of the run.
        oracle: the oracle, with the inventory and the loss accounting.
        watch: the observer.
        rng: draws which nodes are hit, and when they return.
        nursery: for the tasks that start or forget dead nodes.

    Attributes:
        membership: number of joins, leaves, crashes and restarts so far.
        born_s: by address, the virtual second at which this class last started the node.
    """

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        oracle: Oracle,
        watch: Watch,
        rng: random.Random,
        nursery: trio.Nursery,
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._oracle = oracle
        self._watch = watch
        self._rng = rng
        self._nursery = nursery
        self._returning: dict[str, tuple[str, ...]] = {}  # by machine, for nodes that return: the members they will ask
        self._starting: set[str] = set()  # machines that a task will start again
        self._last_words: list[tuple[float, tuple[int, ...]]] = []  # times of death, and lists of the dead
        self.born_s: dict[str, float] = {}
        self.membership = 0
        self._do_leavers_return = random.Random(f"leavers/{plan.seed}").random() < LEAVERS_RETURN

    def count(self, what: str, membership: int = 1) -> None:
        """Count an action under a name, and add `membership`, the number of membership changes that it made."""
        self._watch.counts[f"action {what}"] += 1
        self.membership += membership

    # -- deaths and returns -----------------------------------------------------------------------

    async def start(self, **changes: object) -> Node:
        """Start a node, with a wrong wall clock if the fault *skew* is on.

        `changes` are the arguments of `Cluster.start`, such as `name` and `join`.
        """
        node = await self._cluster.start(**changes)  # type: ignore[arg-type]
        self.born_s[node.address] = trio.current_time()
        if "skew" in self._plan.faults:
            self._cluster.skew(node.config.name or "", self._rng.uniform(-SKEW_MAX_S, SKEW_MAX_S))
        return node

    async def join(self, **changes: object) -> None:
        """Let a node join, on a new machine or on that of a node that left.

        `changes` are the arguments of `Cluster.start`, such as `join`.
        """
        host = next(filter(self._may_join_again, self._oracle.departed), None)
        if host is not None:
            del self._oracle.departed[host]
            self._watch.counts[SITUATION + LEAVER_BACK] += 1
        await self.start(name=host, **changes)
        self.count("join")

    def _may_join_again(self, host: str) -> bool:
        """Return whether a node may join on the machine of a node that left.

        Nodes that left must return in this run (`LEAVERS_RETURN`). No other node, living or dead, may have the ids that
        follow from the machine's address.
        """
        kept = self._cluster.kept(host)
        if kept is None or not self._do_leavers_return:
            return False
        circle, dead = self._plan.constants.circle, map(self._cluster.kept, self._oracle.inventory.dead())
        taken = {vnode.id for other in dead if other is not None for vnode in other.vnodes}
        ids = [vnode_id(circle, kept.address, index) for index in range(self._plan.vnodes)]
        return taken.union(self._cluster._vnodes()).isdisjoint(ids)

    async def kill(self, node: Node, *, silently: bool = False, power_loss: bool | None = None) -> None:
        """Kill a node, and check that its disk still has all durable records.

        The call does not check the failure assumption; `may_go` does.

        Args:
            node: the node.
            silently: the machine vanishes: its peers get no reset and no answer. This cuts the power, too.
            power_loss: also cut the power of the machine; None: draw that with probability one half.
        """
        self._cluster.wake(node.name)
        self._oracle.accounting.bury(node)
        self._watch.note_death()
        self._last_words += [(trio.current_time(), entries) for entries in self._lists_of(node)]
        is_lost = self._rng.random() < 0.5 if power_loss is None else power_loss
        await self._cluster.kill(node, silently=silently, power_loss=is_lost)
        self._oracle.accounting.autopsy(node)
        self._watch.check()

    def refused(self, node: Node) -> None:
        """Record that a node is dead because the ring refused it or its disk failed.

        Clones, which run on a copy of another node's data directory, never counted as members, so they are ignored.
        """
        if node.name in self._cluster.clones:
            return
        if node.name not in self._oracle.inventory.dead():  # otherwise its `stopped` event has counted the death
            self.count("refused", 0)
            self._oracle.accounting.bury(node)
            self._watch.note_death()
        if node.name in self._cluster.disks:
            self._cluster.disks[node.name].kill()
        self._oracle.accounting.autopsy(node)

    async def end(self, node: Node, what: str, *, silently: bool = False) -> None:
        """Kill a node; later start it again, let an operator forget it, or leave it dead.

        It starts again if `is_returning`. Otherwise an operator forgets it if the fault *forget* is on.

        Args:
            node: the node.
            what: the name of the action, for the counts.
            silently: the machine vanishes: its peers get no reset and no answer. This cuts the power, too.
        """
        await self.kill(node, silently=silently)
        self.count(what)
        if self.is_returning(node):
            self.return_soon(node)
        elif "forget" in self._plan.faults:
            self._nursery.start_soon(self._forget, node)

    async def restart(self, node: Node) -> None:
        """Kill a node, and let a task start it again after a moment."""
        await self.kill(node)
        self.return_soon(node)

    def is_returning(self, node: Node) -> bool:
        """Return whether a node that `end` kills will be started again.

        The fault *return* must be on. A node that never belonged to a ring, or that left, stays dead.
        """
        return _is_member(self._cluster.kept(node.name)) and "return" in self._plan.faults

    def return_soon(self, node: Node) -> None:
        """Let a task start a dead node again after a moment.

        Until the node is back, `may_go` keeps at least one of the members alive that the node will ask to rejoin.
        """
        kept = self._cluster.kept(node.name)
        self._returning[node.name] = () if kept is None else kept.known
        self._starting.add(node.name)
        self._nursery.start_soon(self._come_back, node, self._rng.choice(DOWN_S))

    def is_coming_back(self, host: str) -> bool:
        """Return whether a task of `return_soon` will start a machine's node."""
        return host in self._starting

    async def _forget(self, node: Node) -> None:
        """Let an operator tell the ring, some seconds after a death, that a node is gone.

        The operator asks a random node in state `ready`, which informs all reachable nodes.
        """
        await trio.sleep(self._rng.uniform(*FORGOTTEN_S))
        while not (ready := [other for other in self._cluster.nodes if other.state == "ready"]):
            await trio.sleep(0.1)
        self._oracle.accounting.wipe(node.name)
        self._cluster.wipe(node.name)
        self.count("forget", 0)
        with suppress(ChordError):
            await self._rng.choice(ready).remove_node(node.address)

    async def _come_back(self, node: Node, after_s: float) -> None:
        try:
            await self._start_again(node, after_s)
        finally:
            self._starting.discard(node.name)

    async def _start_again(self, node: Node, after_s: float) -> None:
        """Start a killed node again: with its records, without them, or as a new node.

        A machine without a disk has lost the records, and a record on a disk may be damaged. If the disk was emptied,
        the machine starts a new node.
        """
        host = node.name
        is_wiped = "wipe" in self._plan.faults and self._rng.random() < WIPED
        await node.closed.wait()
        await trio.sleep(after_s)
        while is_wiped and not any(other.state == "ready" for other in self._cluster.nodes):
            await trio.sleep(0.1)  # without a member to join by, it would found a ring of its own
        if is_wiped:
            del self._returning[host]
            self._oracle.accounting.wipe(host)
            self._cluster.wipe(host)
            self.count("restart wiped", 2)
            await self.start(name=host, id=Point(self._rng.getrandbits(160)) if self._plan.vnodes == 1 else None)
            return
        if "damage" in self._plan.faults and self._rng.random() < DAMAGED:
            self._damage(host)
        self.count("restart", 2)
        self._watch.excused.update(node._host.vnodes)
        await self._bring_back(host)

    def _damage(self, host: str) -> None:
        keys = self._oracle.inventory.records_of(host)
        if keys:
            key = self._rng.choice(keys)
            self._cluster.disk(host).damage(key)
            self._oracle.accounting.damage(host, key)
            self.count("damage", 0)

    async def come_back_soon(self, node: Node, after_s: float) -> None:
        """Wait `after_s` virtual seconds, and start a dead node again, with its disk as it is."""
        await trio.sleep(after_s)
        await self._bring_back(node.config.name)

    async def return_all(self) -> None:
        """Start every dead node that can come back, however long it was dead.

        A node that left, or that no ring ever took in, cannot come back. Writes that only such nodes had are lost with
        their disks.
        """
        accounting, inventory = self._oracle.accounting, self._oracle.inventory
        for host in inventory.dead():
            kept = self._cluster.kept(host)
            if kept is None or not _is_member(kept):
                accounting.wipe(host, "acknowledged and away for ever")
                self._cluster.wipe(host)
            else:
                self._watch.excused.update(vnode.id for vnode in kept.vnodes)
                self._watch.counts["action return in the end"] += 1
                self.is_back(await self.start(name=host))

    async def _bring_back(self, host: str | None) -> None:
        self.is_back(await self.start(join=(), name=host))

    def is_back(self, node: Node) -> None:
        """Record that a dead node runs again, unless it failed to open its disk."""
        if not node.closed.is_set():
            self._oracle.accounting.bring_back(node)

    # -- the failure assumption -------------------------------------------------------------------

    def in_order(self) -> list[Node]:
        """Return the nodes in the order of the circle.

        Nodes that still open their store are left out.
        """
        nodes = [node for node in self._cluster.nodes if node._host.vnodes]
        return sorted(nodes, key=lambda node: next(iter(node._host.vnodes)))

    def neighbours(self, count: int) -> list[Node]:
        """Draw `count` nodes in state `ready` that are adjacent on the circle.

        They are in clockwise order. The result is empty if fewer other ready nodes would remain than the run needs
        (`Plan.nodes_min`).
        """
        ready = [node for node in self.in_order() if node.state == "ready"]
        if len(ready) - count < self._plan.nodes_min:
            return []
        at = self._rng.randrange(len(ready))
        return [ready[(at + i) % len(ready)] for i in range(count)]

    def may_go(self, node: Node) -> bool:
        """Return whether a node may leave or die within the failure assumption.

        Every successor list must keep a live entry, and more than r + 1 principals must remain.

        Lists in transit count too. To the proof an answer takes no time. The list that a node sent before it died is
        the receiver's list from then on, even while the message is in transit. Leaving nodes count as gone already,
        because to the proof a leave is a failure. Each node that joins or returns must keep an entry node.
        """
        cluster = self._cluster
        going = {node.address, *(n.address for n in cluster.nodes if n._host.is_leaving)}
        rest = {p: m for p, m in cluster.snapshot().items() if m.address not in going}
        has_best = all(invariants.best(rest, point) is not None for point in rest)
        those = [n for n in cluster.nodes if n.address in going]
        copied = [*self._under_way(), *(entries for n in those for entries in self._lists_of(n))]
        if any(rest.keys().isdisjoint(entries[: self._plan.successors - 1]) for entries in copied):
            return False
        if self._run_of_going(going) >= self._plan.successors:
            return False  # no list has such a gap yet, but each list copies the next one
        if not self.keeps_entry_nodes(node):
            return False
        return has_best and len(invariants.principals(rest)) > self._plan.successors + 1

    def keeps_entry_nodes(self, node: Node) -> bool:
        """Return whether each node that joins or returns still knows a ready node if this node goes.

        Such a node may know no other addresses than those that it was given. If all of them are gone before it has
        reached one, for example because it is cut off, it cannot join.
        """
        nodes = self._cluster.nodes
        for back in [n.name for n in nodes if n.state == "ready"]:
            self._returning.pop(back, None)
        living = {n.address for n in nodes if n.state == "ready" and n is not node and not n._host.is_leaving}
        knows = [n.config.join for n in nodes if n.state in ("starting", "joining") and n is not node]
        knows += [known for host, known in self._returning.items() if host != node.name]
        return all(living.intersection(known) for known in knows)

    @staticmethod
    def _lists_of(node: Node) -> list[tuple[int, ...]]:
        rings = [v.ring for v in node._host.vnodes.values() if v.ring.is_member]
        return [tuple(contact.id for contact in ring.successors) for ring in rings]

    def _under_way(self) -> list[tuple[int, ...]]:
        """Return successor lists of dead nodes that replies in transit may still carry."""
        since = trio.current_time() - self._plan.timing.timeout_cap_s
        self._last_words = [words for words in self._last_words if words[0] >= since]
        return [entries for _, entries in self._last_words]

    def _run_of_going(self, going: set[str]) -> int:
        """Return the size of the largest group of adjacent members that all go.

        `going` has the addresses of the nodes that leave or die. An exact successor list in front of the group loses
        that number of entries at once.
        """
        is_going = [member.address in going for member in self._cluster.snapshot().values()]
        longest = run = 0
        for one in is_going * 2:
            run = run + 1 if one else 0
            longest = max(longest, run)
        return longest


def _is_member(kept: Kept | None) -> bool:
    """Return whether a machine's node belonged to a ring and did not leave it."""
    return kept is not None and kept.ring is not None and not kept.has_left
