"""A scheme of one's own, next to those of the lab: the 16,384 slots of Redis Cluster. Needs `pip install 'chord[lab]'`.

    python examples/custom_scheme.py
"""

from __future__ import annotations

from binascii import crc_hqx

import numpy as np

from chord.lab.hashing import Hasher, Hashes, number_keys
from chord.lab.placement import Numbers, Placement, compact
from chord.lab.schemes import SCHEMES

SLOTS = 16_384


def slot(key: bytes) -> int:
    """A function of a module, not a lambda, so that a placement can travel to another process."""
    return crc_hqx(key, 0) % SLOTS


CRC16 = Hasher("crc16", slot)


class RedisSlots(Placement):
    """A table of slots: in equal ranges at first; a newcomer takes its part evenly from all."""
    scheme, title, source = "redis-slots", "Redis Cluster slots", "Redis Cluster specification"
    lookup_cost, memory_cost, has_names, has_distinct_replicas = "O(1)", "O(slots)", False, False

    def _build(self) -> None:
        self.hasher = CRC16  # as Redis does; a scheme that takes any hash leaves this out
        self._owners = np.arange(SLOTS) * len(self._nodes) // SLOTS

    @property
    def state_bytes(self) -> int:
        return 2 * SLOTS

    def locate(self, point: int) -> int:
        return int(self._owners[point % SLOTS])

    def place_many(self, hashes: Hashes) -> Numbers:
        return self._owners[(hashes % np.uint64(SLOTS)).astype(np.intp)]

    def _add(self, node: str, weight: float) -> None:
        count = len(self._nodes)
        for giver in range(count):
            self._owners[np.flatnonzero(self._owners == giver)[:: count + 1]] = count

    def _remove(self, number: int) -> None:
        gone = self._owners == number
        self._owners[gone] = np.resize(np.delete(np.arange(len(self._nodes)), number), np.count_nonzero(gone))
        compact(self._owners, number)


if __name__ == "__main__":  # from 20 nodes to 21
    SCHEMES["redis-slots"] = RedisSlots
    print("foo is in slot", CRC16.one(b"foo"))
    for name in ("redis-slots", "ring-100", "jump", "mod"):
        placement = SCHEMES[name]([f"n{number}" for number in range(20)])
        hashes = placement.hash_keys(number_keys(200_000))
        before = placement.place_many(hashes)
        placement.add("n20")
        after = placement.place_many(hashes)
        peak, stay = np.bincount(after).max() * 21 / len(after), (before == after).mean()
        stray = np.count_nonzero((after != before) & (after != 20))
        print(f"{name:12} fullest {peak:.2f} × mean, {stay:.1%} of the keys stay, {stray:,} move between old nodes")
