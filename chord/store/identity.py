"""The identity that a node keeps across restarts: ids, ring id, pointers, peers.

It is one small file, which is replaced as a whole. The new file is written beside the old one, synced and renamed. A
file that cannot be read is refused, and never overwritten. `MemoryIdentity` serves nodes without a data directory.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec
import trio

from chord.errors import ConfigError
from chord.ids import BITS_MAX, BITS_MIN, Point
from chord.store.fsync import make_directory, sync, sync_directory
from chord.wire.conversion import first_use
from chord.wire.messages import Address, Contact, Count, Identity

FILE_NAME = "node.json"
LOCK_NAME = "lock"
FILE_BYTES_MAX = 64 << 20  # room for 64 vnodes that each remember 4,096 unreachable vnodes
IDENTITY_VERSION = 1


class KeptVnode(msgspec.Struct, frozen=True):
    """The persisted state of one vnode: its id, its arc and its last pointers.

    In the file, ids are decimal strings, so that any JSON reader keeps all digits.

    Attributes:
        id: the id of the vnode.
        owned_from: the start of its arc; None if it owned no arc.
        epoch: the epoch of its arc.
        predecessor, successors: its last pointers; None if it had no predecessor.
        marks: the start and the end of each marked part of its arc, and the id and the address of the part's dead
            owner.
        before: the vnodes at `owned_from` and before it, the nearest first.
        unreachable: unreachable vnodes behind this vnode for which it waits.
        in_sync: the id of the owner, the start and the end of each arc in which it was in sync.
    """

    id: Point
    owned_from: Point | None
    epoch: Count
    predecessor: Contact | None
    successors: tuple[Contact, ...]
    marks: tuple[tuple[Point, Point, Point, Address], ...]
    before: tuple[Contact, ...]
    unreachable: tuple[Contact, ...]
    in_sync: tuple[tuple[Point, Point, Point], ...]


class Kept(msgspec.Struct, frozen=True):
    """The persisted state of a node.

    Attributes:
        version: the format of the file.
        ring: the ring id, in hexadecimal; None if the node has none.
        address: the advertised address of the node.
        vnodes: the state of each of its vnodes.
        known: the addresses of known peers.
        has_left: whether the node handed over its arcs, so that it starts empty next time.
        incarnation: the incarnation of the store with this node's records, in hexadecimal.
        passive: the vnodes of the passive list, which neither answer nor have left.
        bits, successors, replicas, cluster: the constants of the ring; see `RingConstants`.
        left: the ids of vnodes that left the ring for good, the latest last.
        left_ms: for each of them, by when it had left, on the wall clock, in ms since 1970.
        owned_ms: the down vnodes for which the node waits, each with the time when it last owned an arc.
        forgotten: the address of each node that an operator gave up, and the ids of living vnodes there at that time.
    """

    version: int
    bits: int
    ring: str | None
    address: Address
    vnodes: tuple[KeptVnode, ...]
    known: tuple[Address, ...]
    has_left: bool
    incarnation: str
    passive: tuple[Contact, ...]
    successors: int
    replicas: int
    cluster: str
    left: tuple[Point, ...]
    forgotten: tuple[tuple[Address, tuple[Point, ...]], ...]
    left_ms: tuple[Count, ...] = ()
    owned_ms: tuple[tuple[Point, Count], ...] = ()

    @property
    def ring_id(self) -> Identity | None:
        """The ring id as bytes; None if the node has none."""
        return None if self.ring is None else bytes.fromhex(self.ring)


class _Format(msgspec.Struct):
    version: int


def encode_kept(kept: Kept) -> bytes:
    """Encode a node's persisted state as the JSON content of its file."""
    return msgspec.json.format(msgspec.json.encode(kept, enc_hook=str))


def decode_kept(content: bytes, name: str) -> Kept:
    """Decode a node's persisted state from the content of its file.

    `name` is the file's name, for errors.

    Raises:
        ConfigError: the content is damaged, or of another format.
    """
    try:
        with first_use:
            version = msgspec.json.decode(content, type=_Format).version  # first: another format has other fields
            if version != IDENTITY_VERSION:
                raise ConfigError(
                    f"{name} has format {version}; expected {IDENTITY_VERSION}; "
                    "use the version that wrote it, or move the whole directory away"
                )
            kept = msgspec.json.decode(content, type=Kept, dec_hook=_point)
        _require_sense(kept)
    except (msgspec.ValidationError, msgspec.DecodeError, ValueError) as error:
        raise ConfigError(
            f"{name} is damaged ({error}); put a copy of it back, or move the whole directory away"
        ) from error
    return kept


def read_kept(path: Path) -> Kept | None:
    """Return the persisted state in a file; None without a file.

    Raises:
        ConfigError: the file cannot be read, is too large, is damaged, or is of another format.
    """
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(
            f"{path} has more than {FILE_BYTES_MAX >> 20} MiB, and no node writes that much; put a copy of it back, or "
            "move the whole directory away"
        )
    return decode_kept(content, str(path))


def _require_sense(kept: Kept) -> None:
    """Refuse values that no node writes, such as an id outside the circle.

    Raises:
        ValueError: the text names the value and the expected values.
    """
    if not BITS_MIN <= kept.bits <= BITS_MAX:
        raise ValueError(f"bits is {kept.bits}, not {BITS_MIN} to {BITS_MAX}")
    for name, text, digits in (("ring", kept.ring, 32), ("incarnation", kept.incarnation, 16)):
        if text is not None and not (len(text) == digits and set(text) <= set("0123456789abcdef")):
            raise ValueError(f"{name} is {text!r}, not {digits} hexadecimal digits")
    ids = [vnode.id for vnode in kept.vnodes]
    if not ids:
        raise ValueError("it has no vnode")
    if len(set(ids)) < len(ids):
        raise ValueError("two of its vnodes have one id")
    for point in _points(kept):
        if point >= 1 << kept.bits:
            raise ValueError(f"id {point} is not on a circle of {kept.bits} bits")


def _points(value: object) -> Iterator[Point]:
    if isinstance(value, Point):
        yield value
    elif isinstance(value, (tuple, msgspec.Struct)):
        for part in value if isinstance(value, tuple) else msgspec.structs.astuple(value):
            yield from _points(part)


def _point(_: type[Point], digits: object) -> Point:
    """Decode an id from its decimal string, for the JSON decoder.

    The decoder calls this for ids only, because JSON has all other types in the file.
    """
    if not isinstance(digits, str) or not digits.isdecimal():
        raise ValueError(f"an id is a string of digits, not {digits!r}")
    return Point(digits)


class StateSaver(Protocol):
    """Persists the state of a node.

    Attributes:
        known: the addresses of other nodes in the last state that was written; a restarted node asks them.
    """

    known: tuple[Address, ...]

    async def save(self) -> bool:
        """Write the present state durably, and return whether it was written."""
        ...


class IdentityStore(Protocol):
    """The place where one node persists its ids, ring id, pointers and peers."""

    def load(self) -> Kept | None:
        """Return the persisted state; None if no state was saved yet.

        Raises:
            ConfigError: the persisted state is damaged, is of another format, or cannot be read.
        """

    async def save(self, kept: Kept) -> None:
        """Replace the persisted state, durably.

        Raises:
            OSError: the new state may not be durable.
        """

    def close(self) -> None:
        """Release the store, so that another node can use it."""


class MemoryIdentity:
    """The persisted state of a node, in memory.

    The state survives the node object, but not the process.
    """

    def __init__(self) -> None:
        self._kept: Kept | None = None

    def load(self) -> Kept | None:
        """Return the persisted state; None if no state was saved yet."""
        return self._kept

    async def save(self, kept: Kept) -> None:
        """Replace the persisted state. Does not checkpoint."""
        self._kept = kept

    def close(self) -> None:
        """Do nothing."""


class FileIdentity:
    """The persisted state of a node in a data directory, locked against other nodes.

    Args:
        directory: the data directory; created if missing.

    Raises:
        ConfigError: the directory cannot be used, or another node runs on it.
    """

    def __init__(self, directory: str) -> None:
        self._path = Path(directory) / FILE_NAME
        self._last: bytes | None = None
        self._saving = trio.Lock()
        self._threads = trio.CapacityLimiter(1)  # a limiter of its own, so that a write does not wait for name lookups
        self._guard = threading.Lock()  # guards the next two
        self._is_writing = False
        self._is_closed = False
        try:
            make_directory(self._path.parent, mode=0o700)
        except OSError as error:
            raise ConfigError(f"cannot use {directory} as a data directory: {error.strerror}") from error
        self._lock = os.open(self._path.with_name(LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel unlocks it however the process ends
        except OSError:
            os.close(self._lock)
            raise ConfigError(f"another node is running on {directory}") from None

    def close(self) -> None:
        """Release the data directory. A later `save` writes nothing, and a later `close` does nothing.

        If a write is under way, the directory stays locked until that write has ended.
        """
        with self._guard:
            if not (self._is_closed or self._is_writing):
                os.close(self._lock)
            self._is_closed = True

    def load(self) -> Kept | None:
        """Return the persisted state; None if the directory has no file `node.json`.

        Raises:
            ConfigError: the file is damaged, is too large, is of another format, or cannot be read.
        """
        return read_kept(self._path)

    async def save(self, kept: Kept) -> None:
        """Replace the file, unless the last `save` of this object wrote the same content.

        A thread writes a file beside it, syncs and renames the new file, and syncs the directory.

        Raises:
            OSError: the new file may not be durable; the old or the new file is there.

        Concurrency: checkpoints; after cancellation, either the old or the new file is there. A disk that hangs holds
        one thread. The next save waits, without a thread, until the system is done with that write.
        """
        content = encode_kept(kept)
        async with self._saving:  # one new file, one writer
            if content != self._last:
                self._last = None  # until the write ends, either file may be there
                await trio.to_thread.run_sync(self._write, content, abandon_on_cancel=True, limiter=self._threads)
                self._last = content

    def _write(self, content: bytes) -> None:
        with self._guard:
            if self._is_closed:
                return  # no caller waits, and another node may use the directory
            self._is_writing = True
        try:
            self._replace(content)
        finally:
            with self._guard:
                self._is_writing = False
                if self._is_closed:
                    os.close(self._lock)

    def _replace(self, content: bytes) -> None:
        beside = self._path.with_suffix(".new")
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            sync(file.fileno())
        os.replace(beside, self._path)
        sync_directory(self._path.parent)
