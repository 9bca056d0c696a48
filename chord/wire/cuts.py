"""The number of the newest cut that one side of the protocol knows.

A *cut* is a copy of the records of every node at a consistent moment (`chord/replication/cuts.py`). Each call and each
reply carries the number. If a message comes with a higher number, its receiver cuts before it handles the message. So
no cut contains the effect of a message that was sent after the sender's cut.

The number of a cut is the wall clock at its beginning, in ms since 1970, with `_RANDOM_BITS` random bits behind it. The
clock is the median of the clocks of the members. A node takes no number that is over a day ahead of its own clock
(`AHEAD_MS_MAX`), so no message can use up the numbers. `Cuts` (`chord/replication/cuts.py`) states the whole rule.

A client takes every number. If it left one out, it could carry an effect to a node that has not cut yet.

Source: Lai and Yang 1987, which needs no order of messages. Chandy and Lamport 1985 send markers on ordered channels.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

CUT_MAX: Final = (1 << 53) - 1
"""The largest number of a cut."""

AHEAD_MS_MAX: Final = 24 * 3600 * 1000
"""Largest time in the number of a cut that a node takes, in ms after the present time of the node's clock."""

_RANDOM_BITS: Final = 11

_NO_LOCK: Final = nullcontext()


def _ignore(number: int) -> int:
    """Make no cut, as a client, which holds no records."""
    return number


class CutNumber:
    """The number of the newest cut that a node or a client knows; 0: no cut was ever made.

    Args:
        on_higher: called with each higher number, before the message that brought it is handled. It returns the new
            value of `number`: the higher number, or the old one to ignore it. It must not raise.
        lock: held while the number changes; None: no lock. A client needs one if threads share the client.

    Attributes:
        number: the number of the newest cut, which the next message carries.
    """

    __slots__ = ("_lock", "_on_higher", "number")

    def __init__(
        self, on_higher: Callable[[int], int] = _ignore, lock: AbstractContextManager[object] | None = None
    ) -> None:
        self.number = 0
        self._on_higher = on_higher
        self._lock = lock or _NO_LOCK

    def see(self, number: int) -> None:
        """Take the number of a cut that a message brought; if it is higher than `number`, call `on_higher`."""
        if number > self.number:
            with self._lock:
                if number > self.number:
                    self.number = self._on_higher(number)


def next_number(number: int, now_ms: int, rng: random.Random) -> int:
    """Return a number for a new cut.

    Its last bits are random, so that two commands that begin at once make two cuts.

    Args:
        number: the number of the newest cut that any node knows.
        now_ms: the present time of the wall clock, in ms since 1970.
        rng: the source of the random bits.
    """
    began_ms = min(max(began_ms_of(number) + 1, now_ms), began_ms_of(CUT_MAX))
    return (began_ms << _RANDOM_BITS) + rng.getrandbits(_RANDOM_BITS)


def began_ms_of(number: int) -> int:
    """Return the time in the number of a cut: when the cut began, in ms since 1970 on the wall clock."""
    return number >> _RANDOM_BITS
