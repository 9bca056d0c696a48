"""The periodic steps that keep the ring, the replicas and the persisted state."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from chord.errors import WritesRefused
from chord.events import StepFailed
from chord.ids import Point
from chord.membership.gossip import MemberGossip
from chord.node.periodic import Periodic, Timetable
from chord.node.saving import Saver
from chord.node.services import VnodeServices
from chord.node.shutdown import Shutdown
from chord.replication.handoff import Handoff
from chord.replication.scrub import Scrub
from chord.ring.context import NodeContext
from chord.store.storage import Batch
from chord.wire.messages import Contact

STANDSTILL_S: Final = 0.5
"""The slack, in seconds, before the process counts as suspended.

It counts as suspended if no step begins for this much longer than the longest interval between two rounds.
"""

CALLS_PER_IDLE: Final = 3
"""How many grown periods, at least, pass before an unused stream is closed."""

CHECKS_PER_COMPARISON: Final = 4
"""How often, at least, an owner looks in `anti_entropy_s` whether a comparison with a replica is due."""

NO_KEY: Final = b""
"""A key that no record has, because keys are not empty."""


def _never_longer() -> float:
    return 0.0


class Maintenance:
    """The periodic steps of one node.

    Args:
        host: the node context.
        parts: the services of every vnode.
        handoff: hands misplaced records off to their replicas.
        saver: persists the node's state.
        shutdown: tells the neighbours when this node is back after a suspension.

    Attributes:
        run: coroutine function that runs the steps; see `Timetable.run`.
        note_running: notices whether the process was suspended; see `Timetable.note_running`.
        runs: the number of runs of each step; see `Timetable.runs`.
    """

    def __init__(
        self,
        host: NodeContext,
        parts: Mapping[Point, VnodeServices],
        handoff: Handoff,
        saver: Saver,
        shutdown: Shutdown,
    ) -> None:
        self._host = host
        self._has_replicas = host.constants.replicas > 1
        self._parts = parts
        self._handoff = handoff
        self._saver = saver
        self._shutdown = shutdown
        period_s = host.timing.stabilize_s
        # The streams to the neighbours must stay in use: the end of a stream is how a neighbour's death is noticed.
        kept_open = host.limits.idle_s / (CALLS_PER_IDLE * period_s)
        self._growth_max = max(1.0, min(host.timing.period_growth_max, kept_open))
        self._timetable = Timetable(
            host.rng,
            self._on_step_failed,
            host.timers,
            lambda: host.is_stalled,
            growth_max=self._growth_max,
            quiet_s=period_s,
            beat_s=1.5 * period_s if self._growth_max > 1 else math.inf,
            standstill_s=1.5 * period_s + STANDSTILL_S,
            woke=self.woke,
            on_lag=host.loop_lag.note,
        )
        self._asking: dict[Point, tuple[Periodic, ...]] = {}  # the steps that ask the neighbours of a vnode
        self._comparing: dict[Point, Periodic] = {}  # the step that compares the replicas of a vnode
        self._announced_ahead: dict[Point, object] = {}  # what the predecessor of each vnode knows of it
        self._announced_behind: dict[Point, object] = {}  # likewise, for the successor
        host.on_news.append(self._on_news)
        self._woken_at: dict[Point, float] = {}  # of vnodes that stood still and are not confirmed yet
        self.run = self._timetable.run
        self.note_running = self._timetable.note_running
        self.runs = self._timetable.runs

    def keep(self, parts: VnodeServices, others: tuple[str, ...]) -> None:
        """Begin the periodic steps of a vnode that has become a member.

        Args:
            parts: the vnode, with its services.
            others: addresses that the self-lookup asks about other rings.
        """
        # Separate steps: an unreachable predecessor or a slow lookup must not delay the repair of the list.
        timing, stabilizer, vnode = self._host.timing, parts.stabilizer, parts.vnode.id
        refresh = partial(self._refresh_predecessor, parts)
        look_for_others = partial(parts.ring_merge.look_for_others, others)
        passive = self._host.peers.passive
        self._asking[vnode] = (
            self._repeat(vnode, "stabilize", partial(self._round, parts), timing.stabilize_s),
            self._repeat(vnode, "refresh_predecessor", refresh, timing.stabilize_s),
        )
        # A node that knows an unreachable vnode looks for the other part of a split ring as often as ever.
        self._repeat(vnode, "self_lookup", look_for_others, timing.stabilize_s, lambda: 0.0 if passive else math.inf)
        self._repeat(vnode, "fix_finger", stabilizer.fix_finger, timing.finger_s)
        compare_s = timing.anti_entropy_s / CHECKS_PER_COMPARISON
        repair = self._repeat(vnode, "repair", partial(self._repair, parts), timing.stabilize_s, lambda: compare_s)
        self._comparing[vnode] = repair
        self._repeat(vnode, "reap", parts.reaper.reap, timing.anti_entropy_s, _never_longer)

    def keep_at_home(self, contact: Contact) -> None:
        """Begin the periodic steps of the whole node: handoff, save, scrub.

        Args:
            contact: the node's first vnode, at which the handoff starts lookups.
        """
        period_s = self._host.timing.stabilize_s
        self._repeat(contact.id, "save_identity", self._saver.save, period_s)
        step = partial(self.bring_home, contact)
        bring_home = self._repeat(contact.id, "bring_home", step, 4 * period_s, self._longest_at_home_s)
        self._host.on_arc_lost.append(bring_home.kick)
        if not self._host.storage.is_instant:
            scrub = Scrub(self._host)
            self._repeat(contact.id, "scrub", scrub.step, scrub.period_s, _never_longer)

    def keep_members(self, contact: Contact, gossip: MemberGossip) -> None:
        """Begin to keep the membership list up to date, if the node has one.

        Args:
            contact: the node's first vnode, for events.
            gossip: exchanges and compares the list.
        """
        if self._host.members is not None:
            gossip.join()
            timing = self._host.timing
            exchange, growth_max = gossip.exchange, timing.gossip_growth_max
            step = self._repeat(contact.id, "gossip", exchange, timing.gossip_s, gossip.longest_s, growth_max)
            gossip.on_hot.append(step.soon)
            self._repeat(contact.id, "compare_members", gossip.compare, timing.gossip_compare_s, _never_longer)

    def keep_watch(self, contact: Contact, look: Callable[[], Awaitable[object]]) -> None:
        """Begin to check regularly that the node's files are in place.

        Args:
            contact: the node's first vnode, for events.
            look: coroutine function that makes one check.
        """
        period_s = 2 * self._host.timing.stabilize_s
        self._repeat(contact.id, "look_for_files", look, period_s, lambda: 4 * period_s)

    async def bring_home(self, contact: Contact) -> None:
        """Hand misplaced records to their replicas, unless an arc is being given away.

        If the store refused a write, the step first tests whether the store takes writes again.

        Args:
            contact: the vnode at which lookups start.
        """
        if self._host.storage.refusal:
            await self._try_store()
        self._host.health.reasons()  # reports changes to the observer even if no status is requested
        is_giving = any(p.transfers.outbound for p in self._parts.values())
        if not is_giving:
            await self._handoff.bring_home(contact)

    async def _try_store(self) -> None:
        """Write a batch that changes nothing, to see whether the store takes writes again."""
        with suppress(WritesRefused):
            self._host.storage.next_key_epoch()  # this alone causes a transaction
            await self._host.storage.commit(Batch(removals=(NO_KEY,)))

    def woke(self) -> None:
        """Resume work after the process was suspended, for example by SIGSTOP.

        Other nodes may have written meanwhile. So no arc counts as in sync, and the neighbours compare at once.
        """
        for parts in self._parts.values():
            self._woken_at[parts.vnode.id] = trio.current_time()
            parts.repair.stood_still()
        self._host.news()
        self._host.tasks.start(self._shutdown.say_back, ())

    def stabilize_soon(self) -> None:
        """Run a stabilize round of every vnode now instead of at its next period.

        The vnodes also ask their predecessors now.
        """
        self._timetable.fall_back()
        for steps in self._asking.values():
            for periodic in steps:
                periodic.kick()

    def _on_news(self, vnodes: tuple[Point, ...]) -> None:
        if self._growth_max == 1:
            return
        self._timetable.fall_back()
        for vnode in vnodes:
            for periodic in self._asking.get(vnode, ()):
                periodic.hurry()

    def _longest_at_home_s(self) -> float:
        """Return how long the period of `bring_home` may grow now.

        It does not grow while this node has something to bring home, or while its store refuses writes.
        """
        is_idle = not (self._handoff.hints or self._handoff.count() or self._host.storage.refusal)
        return 8 * self._host.timing.stabilize_s if is_idle else 0.0

    def _repeat(
        self,
        vnode: Point,
        name: str,
        step: Callable[[], Awaitable[object]],
        period_s: float,
        longest_s: Callable[[], float] = lambda: math.inf,
        growth_max: float | None = None,
    ) -> Periodic:
        deadline_s = max(10 * period_s, 8 * self._host.timing.timeout_cap_s)
        return self._timetable.add(
            vnode, name, step, period_s=period_s, deadline_s=deadline_s, longest_s=longest_s, growth_max=growth_max
        )

    def _on_step_failed(self, vnode: Point, name: str, word: str) -> None:
        self._host.tell([StepFailed(vnode, name, word)])

    async def _repair(self, parts: VnodeServices) -> None:
        """Run anti-entropy at a vnode, unless its arc is in question after a suspension.

        After a long suspension a process has its old arc, and other vnodes may own parts of it by now. So the
        predecessor must first name this vnode as its successor again. A vnode that is not the owner must not put
        replicas in sync there: together they would deny keys that the owner holds. If N = 1, the vnode also waits
        until a new predecessor has its part of the arc.
        """
        vnode, ring = parts.vnode.id, parts.vnode.ring
        if parts.takeover.confirmed_at < self._woken_at.get(vnode, -math.inf):
            return
        is_bounded = ring.predecessor is not None and ring.predecessor.id == parts.vnode.ownership.start
        if not (self._has_replicas or is_bounded):
            return
        has_stood_still = self._woken_at.pop(vnode, None) is not None
        if self._has_replicas:
            await parts.repair.repair()
            return
        if has_stood_still:  # asks the vnodes that are behind this one now
            parts.repair.stood_still()
        await parts.repair.fetch_marked()

    async def _round(self, parts: VnodeServices) -> None:
        """Run one stabilize round of a vnode.

        A separate step persists its result, because a disk may block that step for ever.
        """
        await parts.stabilizer.stabilize()
        for contact in (*parts.vnode.ring.successors, *parts.vnode.ring.predecessors):
            self._host.peers.passive.moved(contact)
        self._saver.look()
        vnode, (seen, _) = parts.vnode, parts.vnode.outlook()
        has_changed = await self._announce(parts, vnode.ring.predecessor, seen, self._announced_ahead)
        if self._growth_max == 1:
            return
        is_moving = parts.transfers.inbound or parts.transfers.outbound
        if is_moving or not vnode.is_calm or not parts.repair.is_calm():
            self._timetable.fall_back()
            if not has_changed:
                self._comparing[vnode.id].hurry()

    async def _refresh_predecessor(self, parts: VnodeServices) -> None:
        """Ask the predecessor of a vnode."""
        await parts.takeover.refresh_predecessor()
        ring, (_, seen) = parts.vnode.ring, parts.vnode.outlook()
        await self._announce(parts, ring.successor if ring.is_member else None, seen, self._announced_behind)

    async def _announce(
        self, parts: VnodeServices, to: Contact | None, seen: object, announced: dict[Point, object]
    ) -> bool:
        """If a vnode has changed since its last announcement to a neighbour, announce the change, and ask again soon.

        Otherwise the neighbour would learn of the change only at the end of a grown period. If the message is lost, the
        next round repeats it.
        """
        vnode = parts.vnode.id
        if self._growth_max == 1 or announced.get(vnode) == seen:
            return False
        self._host.news(vnode)
        if to is not None and (to.id == vnode or await parts.stabilizer.announce(to)):
            announced[vnode] = seen
        return True
