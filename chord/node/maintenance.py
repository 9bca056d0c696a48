"""The periodic steps that keep the ring, the replicas and the persisted state."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Final

import trio

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
from chord.wire.messages import Contact

STANDSTILL_S: Final = 0.5
"""The slack, in seconds, before the process counts as suspended.

It counts as suspended if no step begins for this much longer than the longest interval between two rounds.
"""

MEETING_ROUNDS: Final = 4
"""For how many stabilize rounds a vnode meets the others after a suspension of more than `down_out_s`."""

CALLS_PER_IDLE: Final = 3
"""How many grown periods, at least, pass before an unused stream is closed."""

CHECKS_PER_COMPARISON: Final = 4
"""How often, at least, an owner looks in `anti_entropy_s` whether a comparison with a replica is due."""

LOOK_S_MAX: Final = 36.0
"""How long the period of `look_for_files` may grow, in seconds.

With jitter a node notices within a minute that its files are gone. `docs/explanation/guarantees.md` promises that.
"""


@cache
def _deadline_s(period_s: float, timeout_cap_s: float) -> float:
    """Return after how many seconds a run of a step is cancelled, as one object for all steps and nodes."""
    return max(10 * period_s, 8 * timeout_cap_s)


def _never_longer() -> float:
    return 0.0


class Upkeep:
    """The periodic steps of one vnode.

    Args:
        node: the maintenance of the whole node.
        parts: the vnode, with its services.
        others: addresses that the self-lookup asks about other rings.
    """

    __slots__ = (
        "_announced_ahead", "_announced_behind", "_asking", "_comparing", "_host", "_node", "_others", "_parts",
    )  # fmt: skip

    def __init__(self, node: Maintenance, host: NodeContext, parts: VnodeServices, others: tuple[str, ...]) -> None:
        self._node = node
        self._host = host
        self._parts = parts
        self._others = others
        self._announced_ahead: object = None  # what the predecessor knows of this vnode
        self._announced_behind: object = None  # likewise, for the successor
        timing, vnode, repeat = host.timing, parts.vnode.id, node.repeat
        # Separate steps: an unreachable predecessor or a slow lookup must not delay the repair of the list.
        self._asking = (
            repeat(vnode, "stabilize", self._round, timing.stabilize_s),
            repeat(vnode, "refresh_predecessor", self._refresh_predecessor, timing.stabilize_s),
        )
        repeat(vnode, "self_lookup", self._look_for_others, timing.stabilize_s, self._longest_alone_s)
        repeat(vnode, "fix_finger", parts.stabilizer.fix_finger, timing.finger_s)
        self._comparing = repeat(vnode, "repair", self._repair, timing.stabilize_s, self._longest_unchecked_s)
        repeat(vnode, "reap", parts.reaper.reap, timing.anti_entropy_s, _never_longer)

    def ask_now(self) -> None:
        """Ask the neighbours now instead of at the next period."""
        for periodic in self._asking:
            periodic.kick()

    def ask_soon(self) -> None:
        """Ask the neighbours soon, because something in the ring has changed."""
        for periodic in self._asking:
            periodic.hurry()

    def _longest_alone_s(self) -> float:
        """Return how long the period of the self-lookup may grow now.

        A node that knows an unreachable vnode looks for the other part of a split ring as often as ever.
        """
        return 0.0 if self._host.peers.passive else math.inf

    def _longest_unchecked_s(self) -> float:
        """Return how long the period between two checks for a comparison may grow."""
        return self._host.timing.anti_entropy_s / CHECKS_PER_COMPARISON

    async def _look_for_others(self) -> None:
        await self._parts.ring_merge.look_for_others(self._others)

    async def _repair(self) -> None:
        """Run anti-entropy at this vnode, unless its arc is in question after a suspension.

        After a long suspension a process has its old arc, and other vnodes may own parts of it by now. So the
        predecessor must first name this vnode as its successor again. A vnode that is not the owner must not put
        replicas in sync there: together they would deny keys that the owner holds. If N = 1, the vnode also waits
        until a new predecessor has its part of the arc.
        """
        parts, woken_at = self._parts, self._node.woken_at
        vnode, has_replicas = parts.vnode.id, self._host.constants.replicas > 1
        if parts.takeover.confirmed_at < woken_at.get(vnode, -math.inf):
            return
        if not (has_replicas or parts.takeover.is_bounded):
            return
        has_stood_still = woken_at.pop(vnode, None) is not None
        if has_replicas:
            await parts.repair.repair()
            return
        if has_stood_still:  # asks the vnodes that are behind this one now
            parts.repair.stood_still()
        await parts.repair.fetch_marked()

    async def _round(self) -> None:
        """Run one stabilize round of the vnode.

        A separate step persists its result, because a disk may block that step for ever.
        """
        parts, vnode = self._parts, self._parts.vnode
        await parts.stabilizer.stabilize()
        for contact in (*vnode.ring.successors, *vnode.ring.predecessors):
            self._host.peers.passive.moved(contact)
        self._node.saver.look()
        seen, _ = vnode.outlook()
        has_changed = self._must_announce(seen, self._announced_ahead)
        if has_changed and await self._announce(vnode.ring.predecessor):
            self._announced_ahead = seen
        if self._node.growth_max == 1:
            return
        is_moving = parts.transfers.inbound or parts.transfers.outbound
        if is_moving or not vnode.is_calm or not parts.repair.is_calm():
            self._node.timetable.fall_back()
            if not has_changed:
                self._comparing.hurry()

    async def _refresh_predecessor(self) -> None:
        """Ask the predecessor of the vnode."""
        await self._parts.takeover.refresh_predecessor()
        ring, (_, seen) = self._parts.vnode.ring, self._parts.vnode.outlook()
        has_changed = self._must_announce(seen, self._announced_behind)
        if has_changed and await self._announce(ring.successor if ring.is_member else None):
            self._announced_behind = seen

    def _must_announce(self, seen: object, announced: object) -> bool:
        """Return whether the vnode has changed since its last announcement to a neighbour."""
        return self._node.growth_max > 1 and seen != announced

    async def _announce(self, to: Contact | None) -> bool:
        """Announce a change of the vnode to a neighbour, and ask again soon; return whether the neighbour replied.

        Without the message, the neighbour would learn of the change only at the end of a grown period. If the message
        is lost, the next round repeats it.
        """
        vnode = self._parts.vnode.id
        self._host.news(vnode)
        return to is not None and (to.id == vnode or await self._parts.stabilizer.announce(to))


class Maintenance:
    """The periodic steps of one node.

    Args:
        host: the node context.
        parts: the services of every vnode.
        handoff: hands misplaced records off to their replicas.
        saver: persists the node's state.
        shutdown: tells the neighbours when this node is back after a suspension.

    Attributes:
        saver: persists the node's state.
        timetable: runs the steps.
        growth_max: how many times its length a period may grow to while there is no news.
        woken_at: for vnodes that stood still and are not confirmed yet: from when on a confirmation counts.
    """

    __slots__ = ("_handoff", "_host", "_parts", "_shutdown", "_vnodes", "growth_max", "saver", "timetable", "woken_at")

    def __init__(
        self,
        host: NodeContext,
        parts: Mapping[Point, VnodeServices],
        handoff: Handoff,
        saver: Saver,
        shutdown: Shutdown,
    ) -> None:
        self._host = host
        self._parts = parts
        self._handoff = handoff
        self.saver = saver
        self._shutdown = shutdown
        period_s = host.timing.stabilize_s
        # The streams to the neighbours must stay in use: the end of a stream is how a neighbour's death is noticed.
        kept_open = host.limits.idle_s / (CALLS_PER_IDLE * period_s)
        self.growth_max = max(1.0, min(host.timing.period_growth_max, kept_open))
        self.timetable = Timetable(
            host.rng,
            self._on_step_failed,
            host.timers,
            self._is_stalled,
            growth_max=self.growth_max,
            quiet_s=period_s,
            beat_s=1.5 * period_s if self.growth_max > 1 else math.inf,
            standstill_s=1.5 * period_s + STANDSTILL_S,
            woke=self.woke,
            on_lag=host.loop_lag.note,
        )
        self._vnodes: dict[Point, Upkeep] = {}  # the vnodes that are members
        self.woken_at: dict[Point, float] = {}
        host.on_news.append(self._on_news)

    def keep(self, parts: VnodeServices, others: tuple[str, ...]) -> None:
        """Begin the periodic steps of a vnode that has become a member.

        Args:
            parts: the vnode, with its services.
            others: addresses that the self-lookup asks about other rings.
        """
        self._vnodes[parts.vnode.id] = Upkeep(self, self._host, parts, others)

    def keep_at_home(self, contact: Contact) -> None:
        """Begin the periodic steps of the whole node: handoff, save, scrub.

        Args:
            contact: the node's first vnode, for events.
        """
        period_s = self._host.timing.stabilize_s
        self.repeat(contact.id, "save_identity", self.saver.save, period_s)
        bring_home = self.repeat(contact.id, "bring_home", self.bring_home, 4 * period_s, self._longest_at_home_s)
        self._host.on_arc_lost.append(bring_home.kick)
        if not self._host.storage.is_instant:
            scrub = Scrub(self._host)
            self.repeat(contact.id, "scrub", scrub.step, scrub.period_s, _never_longer)

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
            step = self.repeat(contact.id, "gossip", exchange, timing.gossip_s, gossip.longest_s, growth_max)
            gossip.on_hot.append(step.soon)
            self.repeat(contact.id, "compare_members", gossip.compare, timing.gossip_compare_s, _never_longer)

    def keep_watch(self, contact: Contact, look: Callable[[], Awaitable[object]]) -> None:
        """Begin to check regularly that the node's files are in place.

        Args:
            contact: the node's first vnode, for events.
            look: coroutine function that makes one check.
        """
        period_s = 2 * self._host.timing.stabilize_s
        self.repeat(contact.id, "look_for_files", look, period_s, lambda: LOOK_S_MAX)

    async def bring_home(self) -> None:
        """Hand misplaced records to their replicas, unless an arc is being given away.

        If the store refused a write, the step first tests whether the store takes writes again. Lookups start at the
        node's first vnode.
        """
        if self._host.storage.refusal:
            await self._host.storage.try_again()
        self._host.health.reasons()  # reports changes to the observer even if no status is requested
        every = list(self._parts.values())
        if not any(parts.transfers.outbound for parts in every):
            await self._handoff.bring_home(every[0].vnode.me)

    def woke(self, stood_still_s: float = 0.0) -> None:
        """Resume work after the process was suspended, for example by SIGSTOP.

        Other nodes may have written meanwhile. So no arc counts as in sync, and the neighbours compare at once. After
        more than `down_out_s`, other nodes may have taken the place of this one. Neighbours that were suspended as well
        do not know that either, so each vnode first takes some time to meet the others.

        Args:
            stood_still_s: how long the process was suspended, in seconds.
        """
        timing = self._host.timing
        wait_s = MEETING_ROUNDS * timing.stabilize_s if stood_still_s > timing.down_out_s else 0.0
        for parts in self._parts.values():
            self.woken_at[parts.vnode.id] = trio.current_time() + wait_s
            parts.repair.stood_still()
        self._host.news()
        self._host.tasks.start(self._shutdown.say_back, ())

    def stabilize_soon(self) -> None:
        """Run a stabilize round of every vnode now instead of at its next period.

        The vnodes also ask their predecessors now.
        """
        self.timetable.fall_back()
        for upkeep in self._vnodes.values():
            upkeep.ask_now()

    def _on_news(self, vnodes: tuple[Point, ...]) -> None:
        if self.growth_max == 1:
            return
        self.timetable.fall_back()
        for vnode in vnodes:
            if vnode in self._vnodes:
                self._vnodes[vnode].ask_soon()

    def _is_stalled(self) -> bool:
        return self._host.is_stalled

    def _longest_at_home_s(self) -> float:
        """Return how long the period of `bring_home` may grow now.

        It does not grow while this node has something to bring home, or while its store refuses writes.
        """
        is_idle = not (self._handoff.hints or self._handoff.count() or self._host.storage.refusal)
        return 8 * self._host.timing.stabilize_s if is_idle else 0.0

    def repeat(
        self,
        vnode: Point,
        name: str,
        step: Callable[[], Awaitable[object]],
        period_s: float,
        longest_s: Callable[[], float] = lambda: math.inf,
        growth_max: float | None = None,
    ) -> Periodic:
        """Run a step again and again, with the usual deadline; see `Timetable.add`."""
        deadline_s = _deadline_s(period_s, self._host.timing.timeout_cap_s)
        return self.timetable.add(
            vnode, name, step, period_s=period_s, deadline_s=deadline_s, longest_s=longest_s, growth_max=growth_max
        )

    def _on_step_failed(self, vnode: Point, name: str, word: str) -> None:
        self._host.tell([StepFailed(vnode, name, word)])
