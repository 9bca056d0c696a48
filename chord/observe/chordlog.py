"""The `.chordlog` format: a recording of a ring as JSON lines, compressed or not.

See docs/reference/chordlog.md. Live, simulated and hand-made recordings share this format. The reader accepts files
from strangers: it checks every line, and refuses a file of more than 64 MiB.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from typing import Annotated, Any, BinaryIO, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from chord.ids import BITS_MAX, BITS_MIN
from chord.observe.model import Fields, RingChange, RingModel
from chord.wire.conversion import convert

VERSION: Final = 1
BYTES_MAX: Final = 64 << 20
"""The largest number of bytes that a reader takes, uncompressed."""

KEYFRAME_S: Final = 10.0
KEYFRAME_CHANGES: Final = 1000
"""A keyframe follows after this many seconds or changed nodes and vnodes, if anything changed."""

MEMBERS_MAX: Final = 64
"""The largest number of gzip members of a file. Each of them costs a copy of the rest of the file."""

TIME_DECIMALS: Final = 6
GZIP: Final = 31
"""The `wbits` of zlib for the gzip format. The header then has neither a time nor a name."""

GZIP_MAGIC: Final = b"\x1f\x8b"

Letter: TypeAlias = Literal["k", "d", "e", "f", "o", "c", "m"]
"""The kinds of lines: keyframe, delta, event, fault, operation, check, metrics."""

LETTERS: Final[tuple[Letter, ...]] = ("k", "d", "e", "f", "o", "c", "m")
_COUNT: TypeAlias = Annotated[int, Meta(ge=1, le=256)]


class BadChordlog(ValueError):
    """A file is no recording that this version can read.

    Attributes:
        line: the number of the wrong line, from 1; 0 if the file as a whole is wrong.
        why: the reason, in words.
        is_too_long: whether the reason is that the file has more than `BYTES_MAX` bytes, uncompressed.
    """

    def __init__(self, line: int, why: str, *, is_too_long: bool = False) -> None:
        super().__init__(f"line {line}: {why}" if line else why)
        self.line = line
        self.why = why
        self.is_too_long = is_too_long


class LogHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a recording.

    Attributes:
        chordlog: the version of the format.
        source: the origin of the states: a living ring, a simulation, or a file made by hand ("model").
        seed: the seed of a simulation; None for other sources.
        command: the command that wrote the recording.
        bits: the width of the circle, `--bits`.
        successors: r, the number of other nodes that a successor list names.
        replicas: N, the number of copies of each record.
        quorum: W, the number of copies that a write waits for.
        began_ms: the wall clock at the beginning, in ms since 1970.
        clock: whether the times of the lines are from a wall clock or from the virtual clock of a simulation.
    """

    chordlog: int = VERSION
    source: Literal["live", "simulation", "model"]
    seed: int | None = None
    command: str
    bits: Annotated[int, Meta(ge=BITS_MIN, le=BITS_MAX)]
    successors: _COUNT = msgspec.field(name="r")
    replicas: _COUNT = msgspec.field(name="N")
    quorum: _COUNT = msgspec.field(name="W")
    began_ms: Annotated[int, Meta(ge=0)]
    clock: Literal["wall", "virtual"]


class LogLine(NamedTuple):
    """A line of a recording after the first one.

    Attributes:
        at_s: the time in seconds since the recording began.
        letter: the kind of the line: "k" keyframe, "d" delta, "e" event, "f" fault, "o" operation, "c" check, "m"
            metrics.
        content: a `RingChange` for "k" and "d", otherwise a JSON object.
    """

    at_s: float
    letter: Letter
    content: RingChange | Fields


class _RawLine(msgspec.Struct):
    """The fields of a line. Fields of other names are ignored, and so are lines with only those."""

    t: float
    k: RingChange | UnsetType = UNSET
    d: RingChange | UnsetType = UNSET
    e: Fields | UnsetType = UNSET
    f: Fields | UnsetType = UNSET
    o: Fields | UnsetType = UNSET
    c: Fields | UnsetType = UNSET
    m: Fields | UnsetType = UNSET
    end: str | UnsetType = UNSET


_DECODER = msgspec.json.Decoder(_RawLine)


# -- writing --------------------------------------------------------------------------------------


class ChordlogWriter:
    """Writes a recording. The methods must be called in the order of time.

    Args:
        write: called with each encoded line, newline included.
        header: the first line, which the constructor writes.
    """

    def __init__(self, write: Callable[[bytes], object], header: LogHeader) -> None:
        self._write = write
        self._offset = 0
        self._index: list[tuple[float, int]] = []
        self._latest_s = 0.0
        self._keyframe_s = 0.0
        self._changes = 0
        self._put(header)

    @property
    def is_keyframe_due(self) -> bool:
        """Whether a keyframe should follow now.

        It should after 10 s, after 1,000 changes of nodes and vnodes, and at the beginning.
        """
        return not self._index or self._changes >= KEYFRAME_CHANGES or self._latest_s - self._keyframe_s >= KEYFRAME_S

    def at(self, now_s: float) -> None:
        """Set the time of the lines that follow, in seconds since the recording began.

        A time before the present one is replaced by the present one.
        """
        self._latest_s = max(self._latest_s, round(now_s, TIME_DECIMALS))

    def keyframe(self, model: RingModel) -> None:
        """Write a keyframe with this state of the ring, unless nothing has changed since the last one."""
        self._keyframe_s = self._latest_s
        if self._changes or not self._index:
            self._index.append((self._latest_s, self._offset))
            self.line("k", model.keyframe())
            self._changes = 0

    def change(self, change: RingChange) -> None:
        """Write a change of the ring as a delta, unless it is empty."""
        if change.size:
            self._changes += change.size
            self.line("d", change)

    def line(self, letter: Letter, content: RingChange | Fields) -> None:
        """Write a line of any kind.

        Args:
            letter: the kind, as in `LogLine`.
            content: a `RingChange` for "k" and "d", otherwise a JSON object.
        """
        self._put({"t": self._latest_s, letter: content})

    def end(self, outcome: str) -> None:
        """Write the last line, with the times and offsets of all keyframes.

        Args:
            outcome: how the recording ended, in a word or a sentence, such as "stopped".
        """
        self._put({"t": self._latest_s, "end": outcome, "index": self._index})

    def _put(self, content: LogHeader | dict[str, Any]) -> None:
        line = msgspec.json.encode(content) + b"\n"
        self._offset += len(line)
        self._write(line)


@contextmanager
def packing(name: str, write: Callable[[bytes], object]) -> Iterator[Callable[[bytes], object]]:
    """Yield a function that writes lines by `write`, compressed with gzip if `name` ends in `.gz`.

    The end of the `with` block writes the rest of the compressed data.

    Args:
        name: the name of the file.
        write: called with the bytes for the file.
    """
    if not name.endswith(".gz"):
        yield write
        return
    packer = zlib.compressobj(wbits=GZIP)
    try:
        yield lambda line: write(packer.compress(line))
    finally:
        write(packer.flush())


# -- reading --------------------------------------------------------------------------------------


class Chordlog:
    """A recording in memory, to play from any time.

    The constructor checks every line. It discards an incomplete last line, which a killed writer leaves.

    Args:
        text: the uncompressed lines; see `unpack`.

    Attributes:
        text: the uncompressed lines.
        header: the first line.
        ends_s: the time of the last line, in seconds since the recording began.
        outcome: the outcome that the last line gives, such as "passed"; None if the writer did not finish.

    Raises:
        BadChordlog: the text is no recording, or has another version.
    """

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._times_s = array("d")
        self._offsets = array("q")
        self._letters = bytearray()
        self._keyframes: list[int] = []  # numbers of lines
        self.ends_s = 0.0
        self.outcome: str | None = None
        begin = text.find(b"\n") + 1 or len(text)
        self.header = _header(text[:begin])
        number = 1
        while begin < len(text):
            number += 1
            end = text.find(b"\n", begin) + 1
            try:
                self._take(_decode(text[begin : end or len(text)]), begin)
            except (ValueError, RecursionError) as error:
                if end:
                    raise BadChordlog(number, str(error)) from None
                break  # the last line is incomplete
            begin = end or len(text)

    def _take(self, line: _RawLine, offset: int) -> None:
        """Note a line.

        Raises:
            ValueError: the line does not fit the lines before it.
        """
        if not isfinite(line.t) or line.t < self.ends_s:
            raise ValueError(f't is {line.t}; a time of at least {self.ends_s}, that of the line before, was expected')
        letter = _letter(line)
        if letter == "d" and not self._keyframes:
            raise ValueError("a delta before the first keyframe")
        self.ends_s = line.t
        if line.end is not UNSET:
            self.outcome = line.end
        if letter is None:
            return
        if letter == "k":
            self._keyframes.append(len(self._times_s))
        self._times_s.append(line.t)
        self._offsets.append(offset)
        self._letters.append(ord(letter))

    def keyframes(self) -> Iterator[tuple[float, int]]:
        """Yield the time of each keyframe in seconds, and the byte offset of its line in `text`."""
        for number in self._keyframes:
            yield self._times_s[number], self._offsets[number]

    def seek(self, at_s: float) -> RingModel:
        """Return the state of the ring at a time, in seconds since the recording began.

        Before the first keyframe the state is empty.
        """
        model = RingModel()
        last = bisect_right(self._times_s, at_s)
        at = bisect_right(self._keyframes, last - 1) - 1
        if at >= 0:
            for number in range(self._keyframes[at], last):
                if self._letters[number] in b"kd":
                    content = self._line(number).content
                    assert isinstance(content, RingChange)
                    model.apply(content)
        return model

    def lines(self, after_s: float = -1.0) -> Iterator[LogLine]:
        """Yield the lines after a time, in seconds since the recording began; default: all.

        The first and the last line, and lines of unknown kinds, are left out.
        """
        for number in range(bisect_right(self._times_s, after_s), len(self._times_s)):
            yield self._line(number)

    def _line(self, number: int) -> LogLine:
        offset = self._offsets[number]
        line = _decode(self.text[offset : self.text.find(b"\n", offset) + 1 or len(self.text)])
        letter = _letter(line)
        assert letter is not None
        return LogLine(line.t, letter, getattr(line, letter))


def read(source: BinaryIO) -> Chordlog:
    """Return the recording in an open file, compressed or not.

    Raises:
        BadChordlog: the file is no recording, has another version, or is too long.
    """
    return Chordlog(unpack(source.read(BYTES_MAX + 1)))


def unpack(content: bytes) -> bytes:
    """Return the uncompressed lines of a recording. The first bytes show whether it is compressed.

    A compressed file that ends early gives the lines before its end.

    Args:
        content: the bytes of the file.

    Raises:
        BadChordlog: the file is damaged, has more than `BYTES_MAX` bytes, uncompressed, or more than `MEMBERS_MAX` gzip
            members.
    """
    text = content
    if content.startswith(GZIP_MAGIC):
        parts: list[bytes] = []
        room = BYTES_MAX + 1
        while content and room:
            if len(parts) == MEMBERS_MAX:
                raise BadChordlog(0, f"the compressed file has more than {MEMBERS_MAX} members; compress it again")
            packed = zlib.decompressobj(wbits=GZIP)
            try:
                parts.append(packed.decompress(content, room))
            except zlib.error as error:
                raise BadChordlog(0, f"the compressed file is damaged: {error}") from None
            room -= len(parts[-1])
            content = packed.unused_data
        text = b"".join(parts)
    if len(text) > BYTES_MAX:
        why = f"the recording is too long; at most {BYTES_MAX >> 20} MiB are read, uncompressed"
        raise BadChordlog(0, why, is_too_long=True)
    return text


def _header(line: bytes) -> LogHeader:
    """Return the first line.

    Raises:
        BadChordlog: it is no first line of a recording of this version.
    """
    try:
        found = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        found = None
    version = found.get("chordlog") if isinstance(found, dict) else None
    if version is None:
        raise BadChordlog(1, f'no recording; the first line must begin with {{"chordlog":{VERSION}')
    if version != VERSION:
        raise BadChordlog(1, f"the recording has version {repr(version)[:20]}; this program reads version {VERSION}")
    try:
        return convert(found, LogHeader)
    except ValueError as error:
        raise BadChordlog(1, str(error)) from None


def _decode(line: bytes) -> _RawLine:
    return _DECODER.decode(line)


def _letter(line: _RawLine) -> Letter | None:
    return next((letter for letter in LETTERS if getattr(line, letter) is not UNSET), None)
