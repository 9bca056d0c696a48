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

NO_KEY: Final = b""
"""A key that no record has, because keys are not empty."""


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
        self._timetable = Timetable(
            host.rng,
            self._on_step_failed,
            host.timers,
            lambda: host.is_stalled,
            standstill_s=1.5 * host.timing.stabilize_s + STANDSTILL_S,
            woke=self.woke,
            on_lag=host.loop_lag.note,
        )
        self._stabilizing: list[Periodic] = []
        self._woken_at: dict[Point, float] = {}  # of vnodes that stood still and are not confirmed yet
        self.run = self._timetable.run
        self.note_running = self._timetable.note_running

    def keep(self, parts: VnodeServices, others: tuple[str, ...]) -> None:
        """Begin the periodic steps of a vnode that has become a member.

        Args:
            parts: the vnode, with its services.
            others: addresses that the self-lookup asks about other rings.
        """
        # Separate steps: an unreachable predecessor or a slow lookup must not delay the repair of the list.
        timing, stabilizer, vnode = self._host.timing, parts.stabilizer, parts.vnode.id
        stabilize = partial(self._round, parts)
        look_for_others = partial(parts.ring_merge.look_for_others, others)
        self._stabilizing += (
            self._repeat(vnode, "stabilize", stabilize, timing.stabilize_s),
            self._repeat(vnode, "refresh_predecessor", parts.takeover.refresh_predecessor, timing.stabilize_s),
        )
        self._repeat(vnode, "self_lookup", look_for_others, timing.stabilize_s)
        self._repeat(vnode, "fix_finger", stabilizer.fix_finger, timing.finger_s)
        self._repeat(vnode, "repair", partial(self._repair, parts), timing.stabilize_s)
        self._repeat(vnode, "reap", parts.reaper.reap, timing.anti_entropy_s)

    def keep_at_home(self, contact: Contact) -> None:
        """Begin the periodic steps of the whole node: handoff, save, scrub.

        Args:
            contact: the node's first vnode, at which the handoff starts lookups.
        """
        self._repeat(contact.id, "save_identity", self._saver.save, self._host.timing.stabilize_s)
        step = partial(self.bring_home, contact)
        bring_home = self._repeat(contact.id, "bring_home", step, 4 * self._host.timing.stabilize_s)
        self._host.on_arc_lost.append(bring_home.kick)
        if not self._host.storage.is_instant:
            scrub = Scrub(self._host)
            self._repeat(contact.id, "scrub", scrub.step, scrub.period_s)

    def keep_watch(self, contact: Contact, look: Callable[[], Awaitable[object]]) -> None:
        """Begin to check regularly that the node's files are in place.

        Args:
            contact: the node's first vnode, for events.
            look: coroutine function that makes one check.
        """
        self._repeat(contact.id, "look_for_files", look, 2 * self._host.timing.stabilize_s)

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
        self._host.tasks.start(self._shutdown.say_back, ())

    def stabilize_soon(self) -> None:
        """Run a stabilize round of every vnode now instead of at its next period.

        The vnodes also ask their predecessors now.
        """
        for periodic in self._stabilizing:
            periodic.kick()

    def _repeat(self, vnode: Point, name: str, step: Callable[[], Awaitable[object]], period_s: float) -> Periodic:
        deadline_s = max(10 * period_s, 8 * self._host.timing.timeout_cap_s)
        return self._timetable.add(vnode, name, step, period_s=period_s, deadline_s=deadline_s)

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
