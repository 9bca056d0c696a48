"""The form of a backup: lines of JSON that describe themselves, and a checksum at the end.

The first line says what it is and of which ring; each line between is a record with its clock, tombstones included;
the last line counts them and holds the BLAKE2b of every byte before it. Without that line, the file is cut short.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Literal, Protocol

import msgspec

from chord.store import versions
from chord.wire.messages import Record

FORMAT = "chord-backup"
VERSION = 1
SUM_BYTES = 32
LINE_BYTES_MAX = 4 << 20  # the largest record, in base64, and then some
_VERSION = ["value, null: deleted", "op_id", "written_ms", "expires_ms, 0: never", "is_retry"]
SHAPE = ["key", [["actor", "count", [_VERSION]]], "superseded", [["actor in quarantine", "count", [_VERSION]]]]


class Source(Protocol):
    """A backup that can be read from its first byte, again and again."""

    def readline(self, size: int, /) -> bytes:
        """Return the next line, or its first `size` bytes."""

    def seek(self, offset: int, /) -> int:
        """Go on from a position."""


class Damaged(Exception):
    """This is not a whole backup; the message says why."""


class Header(msgspec.Struct, frozen=True):
    """What a backup says of itself first. `node`: only what the node at this address answered for."""

    ring: str | None
    cluster: str
    bits: int
    replicas: int
    written: str
    node: str | None = None
    format: str = FORMAT
    version: int = VERSION
    encoding: str = "bytes are base64"
    record: list[object] = msgspec.field(default_factory=lambda: list(SHAPE))


class Trailer(msgspec.Struct, frozen=True):
    """What a backup says last. `complete`: false if some keys could not be read whole."""

    end: Literal[True]
    records: int
    complete: bool
    blake2b: str


_record = msgspec.json.Decoder(Record)


class Writer:
    """Writes a backup line by line.

    Attributes:
        count: the records so far.
        damaged: the records that could not be read.
        cut: the records of which only a part was read.
        bytes: written so far.
    """

    def __init__(self, file: BinaryIO, header: Header) -> None:
        self._file = file
        self._sum = hashlib.blake2b(digest_size=SUM_BYTES)
        self.count = self.damaged = self.cut = self.bytes = 0
        self._line(msgspec.json.encode(header))

    def add(self, record: Record) -> None:
        """Write a record."""
        self._line(msgspec.json.encode(record))
        self.count += 1

    def finish(self, *, is_complete: bool) -> None:
        """Write the last line; without it the file is worth nothing."""
        self._line(msgspec.json.encode(Trailer(True, self.count, is_complete, self._sum.hexdigest())))

    def _line(self, text: bytes) -> None:
        line = text + b"\n"
        self._sum.update(line)
        self._file.write(line)
        self.bytes += len(line)


class Backup(msgspec.Struct, frozen=True):
    """A backup that was found whole."""

    header: Header
    trailer: Trailer


def verify(file: Source, on_progress: Callable[[int], None] = lambda done: None) -> Backup:
    """Read a backup from its first byte to its last.

    Raises:
        Damaged: it is not one, or not whole, or some byte of it is not as it was written.
    """
    total = hashlib.blake2b(digest_size=SUM_BYTES)
    header: Header | None = None
    trailer: Trailer | None = None
    count = 0
    for line in _lines(file):
        if header is None:
            header = _header(line)
        elif trailer is not None:
            raise Damaged("something stands behind its last line")
        elif line.startswith(b"{"):
            trailer = _trailer(line)
            if trailer.blake2b != total.hexdigest() or trailer.records != count:
                raise Damaged("its checksum does not match: some of it was changed or lost")
        else:
            count += 1
            _check_record(line, count)
            on_progress(count)
        total.update(line)
    if header is None or trailer is None:
        raise Damaged(f"it is cut short after {count} records" if header else "it is empty")
    return Backup(header, trailer)


def records(file: Source) -> Iterator[Record]:
    """Yield the records of a backup that was verified."""
    lines = _lines(file)
    next(lines, None)
    for line in lines:
        if line.startswith(b"{"):
            return
        yield _record.decode(line)


def _header(line: bytes) -> Header:
    try:
        header = msgspec.json.decode(line, type=Header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Damaged("it does not begin like a backup") from None
    if header.format != FORMAT:
        raise Damaged("it does not begin like a backup")
    if header.version != VERSION:
        raise Damaged(f"it has version {header.version} of the form, and this program reads version {VERSION}")
    return header


def _trailer(line: bytes) -> Trailer:
    try:
        trailer = msgspec.json.decode(line, type=Trailer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        trailer = None
    if trailer is None or msgspec.json.encode(trailer) + b"\n" != line:
        raise Damaged("it is cut short in its last line, or that was changed")
    return trailer


def _check_record(line: bytes, number: int) -> None:
    try:
        wrong = versions.check(_record.decode(line))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        wrong = [str(error)]
    if wrong:
        raise Damaged(f"record {number} is none: {wrong[0]}")


def _lines(file: Source) -> Iterator[bytes]:
    while line := file.readline(LINE_BYTES_MAX):
        yield line
