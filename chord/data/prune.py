"""Forget coordinators that a record no longer needs, on the proof that tombstones go on.

A record remembers every store that ever coordinated a write of it: the entry of one whose values have all been replaced
keeps an old copy of them from coming back. It may go when nobody has such a copy any more. The owner finds that out as
it does before a tombstone goes (`data/reap.py`): everyone who may hold the key holds exactly this record, or nothing,
and nobody knows of a node that is silent. And the entry must have been empty for the grace period, of which the owner
keeps its own account: a copy made before is at home by then, or its store is set aside.

Each replica forgets by itself. One that did not hear of it brings the entries back when it compares: no harm is done.
A store that forgets its own entry mints under a new actor from then on, for its next dot would be its first again.

Source: Riak cuts version vectors by size and age, and accepts siblings that were none; proof in place of that is this
project's.
"""

from __future__ import annotations

from array import array

from chord.data import versions
from chord.data.digest import digest_of
from chord.data.records import Records
from chord.data.storage import Batch
from chord.host import Host
from chord.messages import PageStored, Prune, Record

PRUNE_FROM = 32
"""So many empty entries are worth the trouble: a clock of as many takes a kilobyte."""

WATCHED_MAX = 16_384
GONE_AFTER = 3
"""What has been ripe for so many grace periods, and not been forgotten, is no record of this owner any more."""


class Emptied:
    """Which entries of which records have been empty for how long, as far as one owner can tell.

    Where all that is left was written before the grace period, so was all that it has replaced. Records that are
    written more often than that are watched, as many as there is room for; the others have their turn after these.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._seen: dict[bytes, tuple[float, array[int]]] = {}  # by key: since when, and a hash of each empty entry
        self._looked_at = 0.0  # for those that are gone

    def ripe(self, record: Record, now: float, before_ms: int) -> tuple[bytes, ...]:
        """Return the actors that a record may forget, if nobody has what they wrote.

        Args:
            now: on Trio's clock.
            before_ms: when the grace period began, on the wall clock.
        """
        empty = [entry for entry in record.clock if not entry.versions]
        if len(empty) < PRUNE_FROM:
            self._seen.pop(record.key, None)
            return ()
        if all(version.written_ms < before_ms for entry in record.clock for version in entry.versions):
            return tuple(entry.actor for entry in empty)
        hashes = array("q", [hash((entry.actor, entry.count)) for entry in empty])
        since, before = self._seen.get(record.key, (now, hashes))
        if since == now and self._has_room(now):
            self._seen[record.key] = since, before
        if now - since < self._grace_s:
            return ()
        known = set(before)
        old = tuple(entry.actor for entry, one in zip(empty, hashes, strict=True) if one in known)
        if not old:
            self._seen[record.key] = now, hashes
        return old

    def _has_room(self, now: float) -> bool:
        if len(self._seen) >= WATCHED_MAX and now - self._looked_at > self._grace_s:
            self._looked_at, oldest = now, now - GONE_AFTER * self._grace_s
            self._seen = {key: seen for key, seen in self._seen.items() if seen[0] > oldest}
        return len(self._seen) < WATCHED_MAX


async def on_prune(host: Host, records: Records, request: Prune) -> PageStored:
    """Let records that are still exactly these forget actors of which they hold no value."""
    puts: dict[bytes, Record] = {}
    minted: dict[bytes, bytes] = {}
    for head, actors in zip(request.heads, request.actors, strict=False):
        record = host.storage.get(head.key)
        if record is None or digest_of(record) != head.digest:
            continue
        pruned = versions.forget(record, actors)
        if pruned == record:
            continue
        puts[head.key] = pruned
        if host.storage.minted(head.key) in actors:
            minted[head.key] = records.new_actor()
        records.note_write(head.key)
    await host.storage.commit(Batch(puts.values(), minted=minted))
    host.counters["keys_pruned"] += len(puts)
    return PageStored(tuple(head.key in puts for head in request.heads))
