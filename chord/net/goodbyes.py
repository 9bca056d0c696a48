"""Which vnodes have left the ring for good, as far as one node knows.

A vnode that left may join again with the same id. So a goodbye counts only if this node knows of no later sight of the
vnode as an owner. Nodes hand both on, each with its age. Otherwise an old goodbye could reach a node that missed the
vnode's return. That node would no longer wait for the only copies of the vnode's records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from chord.ids import Point

WallTimes: TypeAlias = tuple[tuple[Point, int], ...]
"""Vnodes, each with a time on the wall clock, in ms since 1970."""
AGE_MS_MAX = 10**13  # three centuries: longer than any age, and small enough for the wire


class Goodbyes:
    """The latest goodbye of each vnode, and when it last owned an arc.

    All times are in seconds on the event loop's clock of this node.

    Args:
        goodbyes_max: number of goodbyes to remember. Beyond it the entry with the oldest news is dropped.
        owners_max: number of owners to remember, in the same way.
    """

    __slots__ = ("_goodbyes_max", "_owned", "_owners_max", "_said", "_zero_ms")

    def __init__(self, goodbyes_max: int, owners_max: int) -> None:
        self._goodbyes_max = goodbyes_max
        self._owners_max = owners_max
        self._said: dict[Point, float] = {}  # the latest news last
        self._owned: dict[Point, float] = {}  # the latest news last
        self._zero_ms: int | None = None  # the wall clock at the time 0; taken once, so that kept times do not change

    def said(self, vnode: Point, at: float) -> None:
        """Note that a vnode had said goodbye by the time `at`."""
        _put_latest(self._said, vnode, at, self._goodbyes_max)

    def owned(self, vnode: Point, at: float) -> None:
        """Note that a vnode owned an arc, or was about to get one, at the time `at` or later.

        A leaver owns no arc when it says goodbye. So `at` must be when a request was sent that the vnode answered as an
        owner, not when the answer arrived.
        """
        _put_latest(self._owned, vnode, at, self._owners_max)

    def owned_at(self, vnode: Point) -> float | None:
        """Return when a vnode last owned an arc; None if this node does not know."""
        return self._owned.get(vnode)

    def said_at(self, vnode: Point) -> float | None:
        """Return by when a vnode had left for good; None if it has not, as far as this node knows."""
        said = self._said.get(vnode)
        return None if said is None or said < self._owned.get(vnode, said) else said

    def __contains__(self, vnode: Point) -> bool:
        """Whether a vnode has left for good and has not owned an arc since."""
        return self.said_at(vnode) is not None

    def __bool__(self) -> bool:
        """Whether any vnode has left for good."""
        return any(vnode in self for vnode in self._said)

    def latest(self) -> dict[Point, float]:
        """Return the vnodes that have left for good and by when, the latest news last."""
        return {vnode: said for vnode, said in self._said.items() if vnode in self}

    def to_keep(self, vnodes: Iterable[Point], wall_now_ms: int, now: float) -> tuple[WallTimes, WallTimes]:
        """Return the goodbyes, and the sights of `vnodes` as owners, for the next start.

        Their times are on the wall clock.
        """
        if self._zero_ms is None:
            self._zero_ms = wall_now_ms - int(1000 * now)
        zero, owned = self._zero_ms, self._owned
        seen = {vnode: owned[vnode] for vnode in vnodes if vnode in owned}
        said = tuple((vnode, zero + int(1000 * at)) for vnode, at in self.latest().items())
        return said, tuple((vnode, zero + int(1000 * at)) for vnode, at in seen.items())

    def recall(self, said: WallTimes, owned: WallTimes, wall_now_ms: int, now: float) -> None:
        """Restore what `to_keep` returned.

        A wall clock that went back meanwhile makes all of it younger, and keeps the order.
        """
        latest = max([wall_now_ms, *(at for _, at in (*said, *owned))])
        for vnode, at in said:
            self.said(vnode, now - (latest - at) / 1000)
        for vnode, at in owned:
            self.owned(vnode, now - (latest - at) / 1000)


def age_ms(now: float, at: float) -> int:
    """Return how long ago a time was, in ms, for the wire: between 0 and `AGE_MS_MAX`."""
    return int(min(1000 * max(0.0, now - at), AGE_MS_MAX))


def _put_latest(times: dict[Point, float], vnode: Point, at: float, count_max: int) -> None:
    times[vnode] = max(at, times.pop(vnode, at))
    while len(times) > count_max:
        del times[next(iter(times))]
