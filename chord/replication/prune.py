"""Garbage collection of actors: the coordinators that a record need not remember.

An actor is a store that coordinated writes of a record, and the record's clock has an entry for each. If all values of
an actor have been replaced, its entry is *empty*, and keeps old copies of the values from coming back. An entry in the
reap log does the same, and takes less room. So the owner removes entries that have been empty for the grace period
(`gc.py`), if they are many.

A store that forgets its own actor continues with a new actor. Otherwise its next dot would have a used number.

Source: Riak cuts version vectors by size and age, and accepts false siblings. The log of the cut entries is this
project's.
"""

from __future__ import annotations

from array import array

from chord.wire.messages import Record

PRUNE_FROM = 32
"""Number of empty entries in a record's clock from which on they are removed.

A clock with as many entries takes a kilobyte.
"""

WATCHED_MAX = 16_384
"""The largest number of records in which an owner watches empty entries."""
GONE_AFTER = 3
"""Number of grace periods after which a watched record counts as gone, so that another record can be watched."""


class Emptied:
    """Finds clock entries that have been empty for the grace period.

    An entry is empty if all values of its actor have been replaced. If all remaining values of a record were written
    before the grace period, the replaced values were also written before it. Records that are written more often are
    watched, up to `WATCHED_MAX` of them. Further records wait until there is room.

    Args:
        grace_s: the grace period, in seconds.
    """

    __slots__ = ("_grace_s", "_looked_at", "_seen")

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._seen: dict[bytes, tuple[float, array[int]]] = {}  # by key: since when, and a hash of each empty entry
        self._looked_at = 0.0  # the last search for records that are gone

    def ripe(self, record: Record, now: float, before_ms: int) -> tuple[bytes, ...]:
        """Return the actors that a record's clock may forget; watch the record if needed.

        Their entries have been empty for the grace period. With fewer than `PRUNE_FROM` empty entries, the result is
        empty, and the record is no longer watched.

        Args:
            record: the record.
            now: the current time on Trio's clock, in seconds.
            before_ms: the beginning of the grace period that ends now, on the wall clock, in ms since 1970.
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
