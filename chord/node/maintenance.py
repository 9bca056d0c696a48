"""The steps a node repeats to keep the ring, its copies and its own memory of them: which, and how often."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from chord.config import NodeConfig
from chord.errors import WritesRefused
from chord.events import StepFailed
from chord.ids import Point
from chord.node.periodic import Periodic, Timetable
from chord.node.services import Parts
from chord.replication.handoff import Misplaced
from chord.replication.scrub import Scrub
from chord.ring.context import Host
from chord.store.storage import Batch
from chord.wire.messages import Contact

STANDSTILL_S: Final = 0.5
"""If no step begins for this much longer than the longest interval between two rounds, the process stood still."""

NO_KEY: Final = b""
"""A key that no record has: a key is not empty."""


class Maintenance:
    """The periodic steps of one node.

    Args:
        parts: of every vnode.
        save: writes down what a restart must know.
        look: finds out whether that could not be written for too long.
        say_back: tells the neighbours that this node is there again.

    Attributes:
        run: the coroutine function that does them; see `Timetable.run`.
    """

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        parts: Mapping[Point, Parts],
        misplaced: Misplaced,
        save: Callable[[], Awaitable[object]],
        look: Callable[[], None],
        say_back: Callable[[], Awaitable[None]],
    ) -> None:
        self._host = host
        self._has_replicas = config.ring.replicas > 1
        self._parts = parts
        self._misplaced = misplaced
        self._save = save
        self._look = look
        self._say_back = say_back
        self._timetable = Timetable(
            host.rng,
            self._on_step_failed,
            host.timers,
            lambda: host.is_stalled,
            standstill_s=1.5 * host.timing.stabilize_s + STANDSTILL_S,
            woke=self.woke,
        )
        host.note_running = self._timetable.note_running
        self._stabilizing: list[Periodic] = []
        self._woken_at: dict[Point, float] = {}  # of vnodes that stood still, and are not confirmed yet
        self.run = self._timetable.run

    def keep(self, parts: Parts, others: tuple[str, ...]) -> None:
        """Begin the steps of a vnode that has become a member; `others` are asked for news of other rings."""
        # Each step by itself: a silent predecessor, a slow lookup must not keep the list from being repaired.
        timing, stabilizer, vnode = self._host.timing, parts.stabilizer, parts.vnode.id
        stabilize = partial(self._round, parts)
        look_for_others = partial(parts.self_lookup.look_for_others, others)
        self._stabilizing += (
            self._repeat(vnode, "stabilize", stabilize, timing.stabilize_s),
            self._repeat(vnode, "refresh_predecessor", parts.bounds.refresh_predecessor, timing.stabilize_s),
        )
        self._repeat(vnode, "self_lookup", look_for_others, timing.stabilize_s)
        self._repeat(vnode, "fix_finger", stabilizer.fix_finger, timing.finger_s)
        self._repeat(vnode, "repair", partial(self._repair, parts), timing.stabilize_s)
        self._repeat(vnode, "reap", parts.reaper.reap, timing.anti_entropy_s)

    def keep_at_home(self, contact: Contact) -> None:
        """Begin the steps that the node's first vnode does for all: to bring records home, to save, to scrub."""
        self._repeat(contact.id, "save_identity", self._save, self._host.timing.stabilize_s)
        step = partial(self.bring_home, contact)
        bring_home = self._repeat(contact.id, "bring_home", step, 4 * self._host.timing.stabilize_s)
        self._host.bring_home_soon = bring_home.kick
        if not self._host.storage.is_instant:
            scrub = Scrub(self._host)
            self._repeat(contact.id, "scrub", scrub.step, scrub.period_s)

    def keep_watch(self, contact: Contact, look: Callable[[], Awaitable[object]]) -> None:
        """Begin to check at regular intervals whether the files of the node are in their place."""
        self._repeat(contact.id, "look_for_files", look, 2 * self._host.timing.stabilize_s)

    async def bring_home(self, contact: Contact) -> None:
        """Bring misplaced records home, unless an arc is being given away just now; and try a store that refused."""
        if self._host.storage.refusal:
            await self._try_store()
        self._host.health.reasons()  # the observer is told what changed, though nobody asks
        is_giving = any(p.mover.outbound for p in self._parts.values())
        if not is_giving:
            await self._misplaced.bring_home(contact)

    async def _try_store(self) -> None:
        """Write something that changes nothing: a store that refused a change may take them again."""
        with suppress(WritesRefused):
            self._host.storage.next_key_epoch()  # this alone is worth a transaction
            await self._host.storage.commit(Batch(removals=(NO_KEY,)))

    def woke(self) -> None:
        """Distrust what others may have changed while this node stood still, and let them compare at once."""
        for parts in self._parts.values():
            self._woken_at[parts.vnode.id] = trio.current_time()
            parts.repair.stood_still()
        self._host.start_task(self._say_back)

    def stabilize_soon(self) -> None:
        """Do not wait for the next round."""
        for periodic in self._stabilizing:
            periodic.kick()

    def _repeat(self, vnode: Point, name: str, step: Callable[[], Awaitable[object]], period_s: float) -> Periodic:
        deadline_s = max(10 * period_s, 8 * self._host.timing.timeout_cap_s)
        return self._timetable.add(vnode, name, step, period_s=period_s, deadline_s=deadline_s)

    def _on_step_failed(self, vnode: Point, name: str, word: str) -> None:
        self._host.tell([StepFailed(vnode, name, word)])

    async def _repair(self, parts: Parts) -> None:
        """Repair, unless this node stood still and its predecessor has not named it since.

        A process that was stopped for long wakes up with the arc it had, and others may stand in it by now. Who is no
        owner must not bring others level in that arc: together they would deny what the owner holds. With one copy of
        each record, it waits until it has left to a new predecessor what is the predecessor's.
        """
        vnode, ring = parts.vnode.id, parts.vnode.ring
        if parts.bounds.confirmed_at < self._woken_at.get(vnode, -math.inf):
            return
        is_bounded = ring.predecessor is not None and ring.predecessor.id == parts.vnode.ownership.start
        if not (self._has_replicas or is_bounded):
            return
        has_stood_still = self._woken_at.pop(vnode, None) is not None
        if self._has_replicas:
            await parts.repair.repair()
            return
        if has_stood_still:  # the vnodes that stand behind this one by now
            parts.repair.stood_still()
        await parts.repair.fetch_marked()

    async def _round(self, parts: Parts) -> None:
        """One stabilize round. What is kept of it is saved by a step of its own, which a disk may hold up for ever."""
        await parts.stabilizer.stabilize()
        for contact in (*parts.vnode.ring.successors, *parts.vnode.ring.predecessors):
            self._host.peers.passive.moved(contact)
        self._look()
