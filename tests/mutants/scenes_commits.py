"""Lives of the simulator in which transactions are cut, refused late, and taken back."""

from __future__ import annotations

from .play import live


def power_is_cut(seed: int) -> None:
    """A life in which nodes are killed, and every other time lose what was not synced."""
    live(seed, "restart", "return", "blackout", membership=60)


def disks_are_full(seed: int) -> None:
    """A life in which disks take no writes for a while: they refuse what was visible."""
    live(seed, "full", "restart", "return", replicas=3)
