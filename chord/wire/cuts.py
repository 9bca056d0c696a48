"""The number of the newest cut that one side of the protocol knows.

A *cut* is a copy of the records of every node at a consistent moment (`chord/replication/cuts.py`). Each call and each
reply carries the number. If a message comes with a higher number, its receiver cuts before it handles the message. So
no cut contains the effect of a message that was sent after the sender's cut.

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

_RANDOM_BITS: Final = 16


def _ignore(number: int) -> None:
    """Make no cut, as a client, which holds no records."""


class CutNumber:
    """The number of the newest cut that a node or a client knows; 0: no cut was ever made.

    Args:
        on_higher: called with each higher number, before the message that brought it is handled. It must not raise.
        lock: held while the number changes. A client needs it if threads share the client.

    Attributes:
        number: the number, which the next message carries.
    """

    __slots__ = ("_lock", "_on_higher", "number")

    def __init__(
        self, on_higher: Callable[[int], object] = _ignore, lock: AbstractContextManager[object] | None = None
    ) -> None:
        self.number = 0
        self._on_higher = on_higher
        self._lock = lock or nullcontext()

    def see(self, number: int) -> None:
        """Take a number that a message brought, and cut if the number is higher."""
        if number > self.number:
            with self._lock:
                if number > self.number:
                    self.number = number
                    self._on_higher(number)


def next_number(number: int, rng: random.Random) -> int:
    """Return a number for a new cut.

    Its last bits are random, so that two commands that begin at once make two cuts.

    Args:
        number: the newest number that any node knows.
        rng: the source of the random bits.
    """
    return ((number >> _RANDOM_BITS) + 1 << _RANDOM_BITS) + rng.getrandbits(_RANDOM_BITS)
