"""Which coordinators a record no longer needs to remember.

A record remembers every store that ever coordinated a write of it: the entry of one whose values have all been replaced
keeps an old copy of them from coming back. An entry in the reap log does that as well, and takes less room. So the
owner reaps actors of which a record has held no value for the grace period (`reap.py`), once they are many.

A store that forgets its own actor mints under a new one from then on, for its next dot would be its first again.

Source: Riak cuts version vectors by size and age, and accepts siblings that were none; a log of what was cut is this
project's.
"""

from __future__ import annotations

from array import array

from chord.wire.messages import Record

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
        """Return the actors that a record may forget.

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
