"""Which vnodes have left the ring for good, as far as one node knows.

A vnode that left may join again with the same id. So a goodbye counts only if this node knows of no later sight of the
vnode as an owner. Nodes hand both on, each with its age. Otherwise an old goodbye could reach a node that missed the
vnode's return. That node would no longer wait for the only copies of the vnode's records.
"""

from __future__ import annotations

from chord.ids import Point

GOODBYES_MAX = 1024
OWNERS_MAX = 1024
AGE_MS_MAX = 10**13  # three centuries: longer than any age, and small enough for the wire


class Goodbyes:
    """The latest goodbye of each vnode, and when it last owned an arc.

    All times are in seconds on the event loop's clock of this node. The oldest entries beyond `GOODBYES_MAX` and
    `OWNERS_MAX` are dropped.
    """

    __slots__ = ("_owned", "_said")

    def __init__(self) -> None:
        self._said: dict[Point, float] = {}  # the latest last
        self._owned: dict[Point, float] = {}  # the latest last

    def said(self, vnode: Point, at: float) -> None:
        """Note that a vnode had said goodbye by the time `at`."""
        _put_latest(self._said, vnode, at, GOODBYES_MAX)

    def owned(self, vnode: Point, at: float) -> None:
        """Note that a vnode owned an arc at the time `at`, or later.

        A leaver owns no arc when it says goodbye. So `at` must be when a request was sent that the vnode answered as an
        owner, not when the answer arrived.
        """
        _put_latest(self._owned, vnode, at, OWNERS_MAX)

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

    def latest(self) -> dict[Point, float]:
        """Return the vnodes that have left for good and by when, the latest news last."""
        return {vnode: said for vnode, said in self._said.items() if vnode in self}


def age_ms(now: float, at: float) -> int:
    """Return how long ago a time was, in ms, for the wire: between 0 and `AGE_MS_MAX`."""
    return int(min(1000 * max(0.0, now - at), AGE_MS_MAX))


def _put_latest(times: dict[Point, float], vnode: Point, at: float, count_max: int) -> None:
    times[vnode] = max(at, times.pop(vnode, at))
    while len(times) > count_max:
        del times[next(iter(times))]
