"""The 16,384 slots of Redis Cluster as a custom scheme; needs the extra `lab`."""

from __future__ import annotations

from binascii import crc_hqx

import numpy as np

from chord.lab.hashing import Hasher, Hashes, number_keys
from chord.lab.placement import Numbers, Placement, compact
from chord.lab.schemes import SCHEMES

SLOTS = 16_384

def slot(key: bytes) -> int:  # not a lambda: placements are sent to other processes
    return crc_hqx(key, 0) % SLOTS


class RedisSlots(Placement):
    """A table of slots, at first in equal ranges. A new node takes slots from all."""
    scheme, title, source = "redis-slots", "Redis Cluster slots", "Redis Cluster specification"
    lookup_cost, memory_cost, has_names, has_distinct_replicas = "O(1)", "O(slots)", False, False

    def _build(self) -> None:
        self.hasher = Hasher("crc16", slot)  # as in Redis; a scheme that accepts any hash omits this
        self._owners = np.arange(SLOTS) * len(self._nodes) // SLOTS

    @property
    def state_bytes(self) -> int:
        return 2 * SLOTS

    def locate(self, point: int) -> int:
        return int(self._owners[point % SLOTS])

    def place_many(self, hashes: Hashes) -> Numbers:
        return self._owners[(hashes % np.uint64(SLOTS)).astype(np.intp)]

    def _add(self, node: str, weight: float) -> None:
        for giver in range(count := len(self._nodes)):
            self._owners[np.flatnonzero(self._owners == giver)[:: count + 1]] = count

    def _remove(self, number: int) -> None:
        gone = self._owners == number
        self._owners[gone] = np.resize(np.delete(np.arange(len(self._nodes)), number), np.count_nonzero(gone))
        compact(self._owners, number)


if __name__ == "__main__":  # from 20 nodes to 21
    SCHEMES["redis-slots"] = RedisSlots
    print("foo is in slot", slot(b"foo"))
    for name in ("redis-slots", "ring-100", "jump", "mod"):
        placement = SCHEMES[name]([f"n{number}" for number in range(20)])
        hashes = placement.hash_keys(number_keys(200_000))
        before = placement.place_many(hashes)
        placement.add("n20")
        after = placement.place_many(hashes)
        peak, stray = np.bincount(after).max() * 21 / len(after), np.count_nonzero((after != before) & (after != 20))
        stay = f"{(before == after).mean():.1%} of the keys stay"
        print(f"{name:12} fullest {peak:.2f} × mean, {stay}, {stray:,} move between old nodes")
