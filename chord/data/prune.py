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

from chord.data import versions
from chord.data.digest import digest_of
from chord.data.records import Records
from chord.data.storage import Batch
from chord.host import Host
from chord.messages import PageStored, Prune, Record

PRUNE_FROM = 32
"""So many empty entries are worth the trouble: a clock of as many takes a kilobyte."""

WATCHED_MAX = 4096


class Emptied:
    """Which entries of which records have been empty for how long, as far as one owner has seen.

    Too many records, and the oldest are forgotten: their time begins anew.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._seen: dict[bytes, tuple[float, dict[bytes, int]]] = {}  # by key: since when, and of each actor its count

    def ripe(self, record: Record, now: float) -> tuple[bytes, ...]:
        """Return the actors that a record may forget, if nobody has what they wrote."""
        empty = {entry.actor: entry.count for entry in record.clock if not entry.versions}
        if len(empty) < PRUNE_FROM:
            self._seen.pop(record.key, None)
            return ()
        since, before = self._seen.get(record.key, (now, empty))
        if now - since < self._grace_s:
            self._seen[record.key] = since, before
            while len(self._seen) > WATCHED_MAX:
                del self._seen[next(iter(self._seen))]
            return ()
        self._seen[record.key] = now, empty
        return tuple(actor for actor, count in empty.items() if before.get(actor) == count)


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
