"""The format of a backup: lines of JSON that describe themselves, and a checksum.

The first line is the header: it names the format and the ring. Each line after it is a record with its clock;
tombstones are included. The last line is the trailer: it has the number of records and the BLAKE2b of every byte before
it. A file without a trailer is cut short.
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
LINE_BYTES_MAX = 4 << 20  # more than the largest record has in base64
_VERSION = ["value, null: deleted", "op_id", "written_ms", "expires_ms, 0: never", "is_retry"]
SHAPE = ["key", [["actor", "count", [_VERSION]]], "replaced", [["actor in quarantine", "count", [_VERSION]]]]


class Source(Protocol):
    """A binary file that can be read from its first byte more than once."""

    def readline(self, size: int, /) -> bytes:
        """Return the next line with its line end; b"" at the end of the file.

        Of a line longer than `size` bytes, only the first `size` bytes are returned.
        """

    def seek(self, offset: int, /) -> int:
        """Go to an offset in bytes from the beginning, and return the offset."""


class Damaged(Exception):
    """The file is not a complete backup. The message says why, in words."""


class Header(msgspec.Struct, frozen=True):
    """The first line of a backup.

    Attributes:
        ring: the id of the ring in hexadecimal; None if the entry node had none.
        cluster: the name of the cluster.
        bits: the width of the circle, `--bits`.
        replicas: the N of the ring.
        written: when the backup began, in ISO 8601 and UTC.
        node: the backup has only the records in the arcs of the node at this address; None: those of the whole ring.
        consistent: whether the backup has the records of a consistent cut of all nodes.
        format, version: the name and the version of the file format.
        encoding: how bytes are written, as a note for people.
        record: the shape of the lines with records, as a note for people.
    """

    ring: str | None
    cluster: str
    bits: int
    replicas: int
    written: str
    node: str | None = None
    consistent: bool = False
    format: str = FORMAT
    version: int = VERSION
    encoding: str = "bytes are base64"
    record: list[object] = msgspec.field(default_factory=lambda: list(SHAPE))


class Trailer(msgspec.Struct, frozen=True):
    """The last line of a backup.

    Attributes:
        end: always true; it marks the last line.
        records: the number of records in the file.
        complete: False if some records could not be read, or only in part.
        blake2b: the BLAKE2b digest of all bytes before this line, in hexadecimal.
    """

    end: Literal[True]
    records: int
    complete: bool
    blake2b: str


_record = msgspec.json.Decoder(Record)


class Writer:
    """Writes a backup to a file. The constructor writes the header.

    Args:
        file: the file, open for writing bytes.
        header: the header.

    Attributes:
        count, bytes: the numbers of records and of bytes that were written.
        damaged, cut: the numbers of records that could not be read, or only in part. The caller sets them.
    """

    def __init__(self, file: BinaryIO, header: Header) -> None:
        self._file = file
        self._sum = hashlib.blake2b(digest_size=SUM_BYTES)
        self.count = self.bytes = 0
        self.damaged = self.cut = 0
        self._line(msgspec.json.encode(header))

    def add(self, record: Record) -> None:
        """Write one record as a line."""
        self._line(msgspec.json.encode(record))
        self.count += 1

    def finish(self, *, is_complete: bool) -> None:
        """Write the trailer. A file without it is not a complete backup.

        `is_complete` is False if some records could not be read, or only in part.
        """
        self._line(msgspec.json.encode(Trailer(True, self.count, is_complete, self._sum.hexdigest())))

    def _line(self, text: bytes) -> None:
        line = text + b"\n"
        self._sum.update(line)
        self._file.write(line)
        self.bytes += len(line)


class Backup(msgspec.Struct, frozen=True):
    """The header and the trailer of a complete backup.

    Attributes:
        header: the first line.
        trailer: the last line.
    """

    header: Header
    trailer: Trailer


def verify(file: Source, on_progress: Callable[[int], None] = lambda done: None) -> Backup:
    """Read a whole backup, check its checksum and every record, and return its header and trailer.

    A backup that lacks records passes if its trailer says so (`Trailer.complete`).

    Args:
        file: the backup, at its first byte.
        on_progress: called after each record with the number of records read so far.

    Raises:
        Damaged: the file is not a backup, is cut short, or has changed since it was written.
    """
    total = hashlib.blake2b(digest_size=SUM_BYTES)
    header: Header | None = None
    trailer: Trailer | None = None
    count = 0
    for line in _lines(file):
        if header is None:
            header = _header(line)
        elif trailer is not None:
            raise Damaged("there is data after its last line")
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
    """Yield the records of a backup that `verify` accepted. The file must be at its first byte again."""
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
        raise Damaged(f"it has format version {header.version}; expected version {VERSION}")
    return header


def _trailer(line: bytes) -> Trailer:
    try:
        trailer = msgspec.json.decode(line, type=Trailer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        trailer = None
    if trailer is None or msgspec.json.encode(trailer) + b"\n" != line:
        raise Damaged("its last line is cut short or changed")
    return trailer


def _check_record(line: bytes, number: int) -> None:
    try:
        wrong = versions.check(_record.decode(line))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        wrong = [str(error)]
    if wrong:
        raise Damaged(f"record {number} is invalid: {wrong[0]}")


def _lines(file: Source) -> Iterator[bytes]:
    while line := file.readline(LINE_BYTES_MAX):
        yield line
