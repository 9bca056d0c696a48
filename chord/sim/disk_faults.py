"""What goes wrong with a machine's disk for a while, in the words of the nemesis."""

from __future__ import annotations

import copy
import math
import random

from chord.sim.disk import Disk, SyncDelay

SLOW = 40.0
"""A slow disk takes this many times as long as usual."""


def hang(disk: Disk) -> None:
    """Let no sync end until `recover`."""
    disk.freeze()


def slow(disk: Disk) -> None:
    """Let every sync take much longer until `recover`."""
    usual: SyncDelay = disk._sync_delay
    if not hasattr(usual, "usual"):
        disk._sync_delay = _Slow(usual)


def fill(disk: Disk, room_bytes: int) -> None:
    """Leave room for this many bytes until `recover`."""
    disk.capacity_bytes = disk.used_bytes + room_bytes


def recover(disk: Disk) -> None:
    """End all of this."""
    disk.capacity_bytes = math.inf
    disk.unfreeze()
    disk._sync_delay = getattr(disk._sync_delay, "usual", disk._sync_delay)


def clone(disk: Disk, rng: random.Random) -> Disk:
    """Return another disk with the same files; what was not durable is not on it."""
    made = Disk(rng, sync_delay=getattr(disk._sync_delay, "usual", disk._sync_delay))
    made.directory = copy.deepcopy(disk.directory)
    made.crash()
    return made


class _Slow:
    def __init__(self, usual: SyncDelay) -> None:
        self.usual = usual

    def __call__(self, rng: random.Random) -> float:
        return SLOW * self.usual(rng)
