"""One file and one directory of a simulated disk: what readers see, what is durable, and the changes between the two.

Changes are numbered. To settle them is to let fate decide, for each in order, how much of it becomes durable: all
of it when a sync succeeds, anything when it fails or the power goes.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

SECTOR_BYTES = 512

Fate: TypeAlias = Callable[[int], int]
"""Tells how many of so many bytes of one write reach the platter, counted from its beginning."""


def whole(size: int) -> int:
    """The fate of what is synced."""
    return size


def lot(rng: random.Random) -> Fate:
    """Draw how much survives on the whole, and return who draws for each write: whole, torn or gone."""
    share = rng.choice((0.0, 0.5, 0.9, 1.0))

    def draw(size: int) -> int:
        if rng.random() < share:
            return size
        return rng.randrange(size) if rng.random() < 0.5 else 0

    return draw


class _Write(NamedTuple):
    """Bytes written at an offset; None means that the file was cut to nothing."""

    number: int
    offset: int
    data: bytes | None

    def reach(self, image: bytearray, fate: Fate) -> None:
        if self.data is None:
            if fate(1):
                image.clear()
        elif kept := fate(len(self.data)):
            image.extend(bytes(max(0, self.offset - len(image))))  # an earlier write is missing: zeros in its place
            image[self.offset : self.offset + kept] = self.data[:kept]


class File:
    """One file.

    Attributes:
        written: what readers see.
        durable: what is safe.
        is_suspect: a sync failed, so that readers may see what will never be safe.
    """

    def __init__(self) -> None:
        self.written = bytearray()
        self.durable = bytearray()
        self.is_suspect = False
        self._pending: deque[_Write] = deque()

    def replace(self, number: int, data: bytes) -> None:
        """Write the file anew."""
        self._pending.append(_Write(number, 0, None))
        self.written.clear()
        self.append(number, data)

    def append(self, number: int, data: bytes) -> None:
        """Write behind the end; sectors become durable one by one."""
        end, start = len(self.written), 0
        while start < len(data):
            size = SECTOR_BYTES - (end + start) % SECTOR_BYTES
            self._pending.append(_Write(number, end + start, data[start : start + size]))
            start += size
        self.written += data

    def settle(self, upto: int, fate: Fate) -> None:
        """Decide about the writes up to a number."""
        while self._pending and self._pending[0].number <= upto:
            self._pending.popleft().reach(self.durable, fate)

    def forget(self) -> None:
        """Read again from the platter, once all is settled."""
        self.written = bytearray(self.durable)
        self.is_suspect = False

    def check(self) -> list[str]:
        """Return what is wrong, in words; nothing, if all is well."""
        image = bytearray(self.durable)
        for write in self._pending:
            write.reach(image, whole)
        return [] if self.is_suspect or image == self.written else ["what is written is not what will be durable"]


class Directory:
    """Which name means which file. A change of names happens as a whole or not at all.

    Attributes:
        written, durable, is_suspect: as of a `File`.
    """

    def __init__(self) -> None:
        self.written: dict[str, File] = {}
        self.durable: dict[str, File] = {}
        self.is_suspect = False
        self._pending: deque[tuple[int, dict[str, File | None]]] = deque()

    def change(self, number: int, names: dict[str, File | None]) -> None:
        """Let names mean these files from now on, or (None) nothing."""
        self._pending.append((number, names))
        _rename(self.written, names)

    def settle(self, upto: int, fate: Fate) -> None:
        """Decide about the changes up to a number."""
        while self._pending and self._pending[0][0] <= upto:
            _, names = self._pending.popleft()
            if fate(1):
                _rename(self.durable, names)

    def forget(self) -> None:
        """Read again from the platter, once all is settled."""
        self.written = dict(self.durable)
        self.is_suspect = False

    def check(self) -> list[str]:
        """Return what is wrong, in words; nothing, if all is well."""
        image = dict(self.durable)
        for _, names in self._pending:
            _rename(image, names)
        return [] if self.is_suspect or image == self.written else ["the names are not those that will be durable"]


def _rename(image: dict[str, File], names: dict[str, File | None]) -> None:
    for name, file in names.items():
        if file is None:
            image.pop(name, None)
        else:
            image[name] = file
