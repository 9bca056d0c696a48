"""A sample of the requests of a node: per bin of the circle, and for the most frequent keys.

A node has a sampler only while a watcher asks for it.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from typing import Final

from chord.ids import Circle, Point
from chord.wire.messages import HOT_KEYS_MAX, SAMPLE_BINS, HotKey

KEYS_COUNTED: Final = 4 * HOT_KEYS_MAX
"""The number of keys that a sampler counts; more than it shows, so that the errors are smaller."""

LOOKUPS_PER_S: Final = 10
"""The largest number of lookups that a sampler reports per second."""


class HotKeys:
    """Approximate counts of the most frequent keys, in bounded memory.

    If a new key arrives and the memory is full, it replaces the least frequent key and takes over its count. This count
    is recorded as the `error` of the new key: its own count is too large by at most this.

    Args:
        keys_max: the number of keys to count. Every key with more than 1/`keys_max` of all requests is among them.

    Source: Space-Saving, Metwally, Agrawal and El Abbadi 2005, section 3.
    """

    def __init__(self, keys_max: int = KEYS_COUNTED) -> None:
        self._keys_max = keys_max
        self._counts: dict[bytes, int] = {}
        self._errors: dict[bytes, int] = {}
        self._heap: list[tuple[int, bytes]] = []  # a count of each key from some earlier time, so never too large

    def note(self, key: bytes) -> None:
        """Count one request for a key."""
        counts = self._counts
        if key in counts:
            counts[key] += 1
        elif len(counts) < self._keys_max:
            counts[key] = 1
            self._heap.append((1, key))
            if len(counts) == self._keys_max:
                heapify(self._heap)
        else:
            least = self._least()
            self._errors.pop(least, None)
            self._errors[key] = counts.pop(least)
            counts[key] = self._errors[key] + 1
            heapreplace(self._heap, (counts[key], key))

    def _least(self) -> bytes:
        """Return a key with the lowest count, at the top of the heap."""
        heap, counts = self._heap, self._counts
        while heap[0][0] != counts[heap[0][1]]:
            key = heap[0][1]
            heapreplace(heap, (counts[key], key))
        return heap[0][1]

    def top(self, keys_max: int) -> list[HotKey]:
        """Return up to `keys_max` keys with their counts and errors, the most frequent first."""
        ordered = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))[:keys_max]
        return [HotKey(key, count, self._errors.get(key, 0)) for key, count in ordered]


class Sampler:
    """Counts the requests that a node coordinates, by part of the circle and by key.

    Args:
        circle: the circle of the ring.
        now: the time, in seconds.

    Attributes:
        began: the time when counting began, in seconds on the clock of `now`.
        bins: the number of requests for keys in each of 256 equal parts of the circle.
        hot: approximate counts of the most frequent keys.
    """

    def __init__(self, circle: Circle, now: float) -> None:
        self._size = circle.size
        self._lookup_due = now
        self.began = now
        self.bins = [0] * SAMPLE_BINS
        self.hot = HotKeys()

    def takes_lookup(self, now: float) -> bool:
        """Return whether to report a lookup that ended at `now`, in seconds.

        At most `LOOKUPS_PER_S` lookups are reported per second.
        """
        if now < self._lookup_due:
            return False
        self._lookup_due = now + 1 / LOOKUPS_PER_S
        return True

    def note(self, key: bytes, point: Point) -> None:
        """Count one request for a key; `point` is its hash on the circle."""
        self.bins[point * SAMPLE_BINS // self._size] += 1
        self.hot.note(key)
