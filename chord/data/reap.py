"""Drop tombstones, on proof: when nobody is left who could bring back what they delete.

A tombstone that is dropped too early is a delete undone: whoever was away with the old value brings it home. So the
owner asks everyone who may hold the key. All replicas must hold exactly this tombstone, older than the grace period;
who may stand in for one must hold that or nothing; and none of them may know of a node that is silent and has neither
left nor been forgotten. Only then each drops it, if it is still that, and remembers for a while what it dropped
(`copies.Reaped`), so that the others' copies make no difference meanwhile. Values that lived for a time go likewise.

Source: the need for a grace period is folklore of Dynamo's heirs; proof in place of time is this project's.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import trio

from chord.data import versions
from chord.data.copies import Reaped
from chord.data.digest import digest_of
from chord.data.prune import Emptied
from chord.data.repair import Repair
from chord.data.storage import Batch
from chord.data.view import ReplicaSet
from chord.errors import Busy, ChordError
from chord.host import Host
from chord.ids import Arc
from chord.messages import PAGE_RECORDS_MAX, Contact, Head, PageStored, Prune, Reap, Record
from chord.vnode import RETRY_MS, Vnode

What: TypeAlias = Literal["hold", "hold_nothing_else", "drop"]

BACK_ROUNDS = 20  # of stabilize, in which a node that is back finds its place
LOOK_AT = 1024  # records a step
PRUNED_AT_ONCE = 16  # a list of actors takes kilobytes


class Reaper:
    """Finds the tombstones of one vnode's arc that may go, and coordinators that may be forgotten (`data/prune.py`)."""

    def __init__(self, vnode: Vnode, repair: Repair) -> None:
        self._vnode = vnode
        self._host = vnode.host
        self._repair = repair
        self._after: bytes | None = None
        self._emptied = Emptied(vnode.host.timing.grace_s)

    async def reap(self) -> None:
        """Look at the next records of the arc, and reap of them what may be reaped.

        Concurrency: checkpoints; cancellation leaves tombstones where they are, or here and there one dropped already.
        """
        for arc, who in self._repair.parts():
            if self._is_whole(arc, who):
                heads, actors = self._ripe(arc)
                for begin in range(0, len(heads), PAGE_RECORDS_MAX):
                    await self._reap(heads[begin : begin + PAGE_RECORDS_MAX], who)
                crowded = [Head(key, digest) for key, digest in actors]
                for begin in range(0, len(crowded), PRUNED_AT_ONCE):
                    await self._prune(crowded[begin : begin + PRUNED_AT_ONCE], actors, who)

    def _is_whole(self, arc: Arc, who: ReplicaSet) -> bool:
        """Whether everyone who may hold something of an arc answers, and the replicas are level."""
        if self._vnode.ring.is_isolated or self._vnode.view.downs() or knows_of_silent(self._host):
            return False
        is_level = all(self._repair.is_level(arc.end, place.contact.address) for place in who.members)
        return is_level and all(self._vnode.is_up(place) for place in who.everyone)

    def _ripe(self, arc: Arc) -> tuple[list[Head], dict[tuple[bytes, bytes], tuple[bytes, ...]]]:
        """Return the tombstones that may go, and of which records, by key and digest, which actors may be forgotten."""
        before = self._host.wall_now_ms() - int(1000 * self._host.timing.grace_s)
        after = self._after if self._after and self._host.circle.hash(self._after) in arc else None
        now = trio.current_time()
        ripe: list[Head] = []
        actors: dict[tuple[bytes, bytes], tuple[bytes, ...]] = {}
        for seen, record in enumerate(self._host.storage.scan(arc, after=after), 1):
            self._after = record.key
            if is_ripe(record, before):
                ripe.append(Head(record.key, digest_of(record)))
            elif old := self._emptied.ripe(record, now, before):
                actors[record.key, digest_of(record)] = old
            if seen == LOOK_AT:
                return ripe, actors
        self._after = None
        return ripe, actors

    async def _reap(self, heads: list[Head], who: ReplicaSet) -> None:
        """Ask everyone whether the tombstones may go; those of which all say so go everywhere."""
        try:
            heads = await self._agreed(heads, who)
            for contact in self._everyone(who) if heads else ():
                await self._ask(contact, Reap(tuple(heads), "drop"))
        except ChordError:  # another time; what has been dropped by some comes back to them, and goes again
            self._host.counters["reaps_broken_off"] += 1
        else:
            self._host.counters["keys_reaped"] += len(heads)

    async def _prune(
        self, heads: list[Head], actors: dict[tuple[bytes, bytes], tuple[bytes, ...]], who: ReplicaSet
    ) -> None:
        """Ask everyone whether they hold exactly these records; of those of which all say so all forget the actors."""
        try:
            heads = await self._agreed(heads, who)
            request = Prune(tuple(heads), tuple(actors[head.key, head.digest] for head in heads))
            for contact in self._everyone(who) if heads else ():
                await self._ask(contact, request)
        except ChordError:  # another time; who has not forgotten reminds the others
            self._host.counters["prunings_broken_off"] += 1

    def _everyone(self, who: ReplicaSet) -> list[Contact]:
        """Return all who may hold a key, this vnode last: as long as it has not dropped a thing, it asks again."""
        return [*(place.contact for place in who.everyone if place.contact != self._vnode.me), self._vnode.me]

    async def _agreed(self, heads: list[Head], who: ReplicaSet) -> list[Head]:
        """Return those of which everyone says that they are held so, or by a fallback that nothing else is.

        Raises:
            ChordError: somebody does not say.
        """
        members = [place.contact for place in who.members]
        for contact in self._everyone(who)[:-1]:
            if heads:
                what: What = "hold" if contact in members else "hold_nothing_else"
                answers = await self._ask(contact, Reap(tuple(heads), what))
                heads = [head for head, is_ok in zip(heads, answers, strict=True) if is_ok]
        return heads

    async def _ask(self, contact: Contact, request: Reap | Prune) -> tuple[bool, ...]:
        with trio.move_on_after(self._host.timing.timeout_cap_s):
            reply = await self._host.peers.call(contact, request, PageStored)
            return reply.stored
        raise Busy(f"{contact.address} does not answer", after_ms=RETRY_MS)


def is_ripe(record: Record, before_ms: int) -> bool:
    """Return whether nothing of a record lives, and the last of it ended before a time."""
    return all(
        (version.written_ms if version.value is None else version.expires_ms or before_ms) < before_ms
        for version in versions.siblings(record)
    )


def knows_of_silent(host: Host) -> bool:
    """Return whether a node is known here that is silent and has neither left nor been forgotten.

    Or that was until a moment ago: what it holds is not yet where its owner looks for it. To be heard of again is not
    enough: who is coming back answers long before it has a place, and holds what it held.
    """
    if trio.current_time() - host.peers.passive.back_at < BACK_ROUNDS * host.timing.stabilize_s:
        return True
    return any(host.peers.passive.contacts()) or any(vnode.ownership.taken for vnode in host.vnodes.values())


async def on_reap(host: Host, reaped: Reaped, request: Reap) -> PageStored:
    """Answer which of these tombstones are held exactly so (or nothing else is held); or drop those that are.

    Raises:
        Busy: definite; a node is silent that may hold what they delete.
    """
    if request.what != "drop" and knows_of_silent(host):
        raise Busy("a node is silent that may hold what was deleted", after_ms=RETRY_MS)
    if request.what == "drop":
        now = trio.current_time()
        keys = []
        for head in request.heads:
            record = host.storage.get(head.key)
            if record is not None and digest_of(record) == head.digest:
                keys.append(head.key)
            reaped.add(head.key, head.digest, now)
        await host.storage.commit(Batch(removals=keys))
        return PageStored((True,) * len(request.heads))
    held = []
    for head in request.heads:
        record = host.storage.get(head.key)
        if record is None:  # dropped here on proof a while ago, and left over where nobody knew of
            is_that = reaped.covers(head.key, head.digest, trio.current_time())
        else:
            is_that = digest_of(record) == head.digest
        held.append(is_that or (record is None and request.what == "hold_nothing_else"))
    return PageStored(tuple(held))
