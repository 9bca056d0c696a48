"""The log of records on a simulated disk: what its entries are, and what a log says when it is read.

An entry is a length, a checksum and one batch, so that a batch is there as a whole or not at all; what follows the
first entry that is not whole was never acknowledged, because a sync covers all that was written before it.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from chord.data.storage import Batch
from chord.errors import ConfigError
from chord.ids import Circle
from chord.messages import Record
from chord.sim.disk import Disk
from chord.sim.watched import WatchedStorage

LOG_NAME = "records.log"
BESIDE_NAME = "records.new"
LOG_VERSION = 1

_LENGTH_BYTES = 4
_CHECKSUM_BYTES = 16
_HEAD_BYTES = _LENGTH_BYTES + _CHECKSUM_BYTES


class Header(msgspec.Struct, frozen=True, array_like=True):
    """The first entry of a log. `opening` counts from 1; so many of the next entries are the records at that time."""

    version: int
    bits: int
    incarnation: bytes
    opening: int
    records: int


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """The changes of one batch. Records that are `bad` were damaged on the disk, and count as missing."""

    puts: tuple[Record, ...]
    removals: tuple[bytes, ...] = ()
    minted: dict[bytes, bytes] = {}
    bad: tuple[bytes, ...] = ()


def checksum(data: bytes) -> bytes:
    """Return what an entry is checked by."""
    return blake2b(data, digest_size=_CHECKSUM_BYTES).digest()


def pack(item: Header | Entry) -> bytes:
    """Return an entry of the log."""
    body = msgspec.msgpack.encode(item)
    length = len(body).to_bytes(_LENGTH_BYTES, "big")
    return length + checksum(length + body) + body


def unpack(log: bytes) -> tuple[list[bytes], int]:
    """Return the bodies of a log's whole entries, up to the first that is not whole, and where that begins."""
    bodies: list[bytes] = []
    start = 0
    while len(log) - start >= _HEAD_BYTES:
        length = log[start : start + _LENGTH_BYTES]
        body_start = start + _HEAD_BYTES
        end = body_start + int.from_bytes(length, "big")
        body = log[body_start:end]
        if end > len(log) or checksum(length + body) != log[start + _LENGTH_BYTES : body_start]:
            break
        bodies.append(body)
        start = end
    return bodies, start


def load(circle: Circle, log: bytes) -> tuple[WatchedStorage, int, int]:
    """Return what a log says: the records and which were damaged, the number of its opening, and where it ends.

    Raises:
        ConfigError: it is damaged where no crash can have torn it, or belongs to another ring.
    """
    bodies, end = unpack(log)
    header = msgspec.msgpack.decode(bodies[0], type=Header) if bodies else None
    if header is not None and header.version != LOG_VERSION:
        raise ConfigError(f"{LOG_NAME} has format {header.version}, this version reads {LOG_VERSION}")
    if header is None or len(bodies) <= header.records:  # both were durable before the log had its name
        raise ConfigError(f"{LOG_NAME} is damaged; move it away to start with an empty store")
    if header.bits != circle.bits:
        raise ConfigError(f"{LOG_NAME} belongs to a ring of {header.bits} bits, not {circle.bits}")
    index = WatchedStorage(circle, header.incarnation)
    for body in bodies[1:]:
        entry = msgspec.msgpack.decode(body, type=Entry)
        index.apply(Batch(entry.puts, (*entry.removals, *entry.bad), entry.minted))
        index.damaged_keys.update(dict.fromkeys(entry.bad))
    return index, header.opening, end


def left_on(disk: Disk, circle: Circle) -> WatchedStorage | None:
    """Return the records on a disk that nobody uses, None where there never were any."""
    try:
        return load(circle, disk.mount().read(LOG_NAME))[0]
    except FileNotFoundError:
        return None


def damage(disk: Disk, key: bytes) -> None:
    """Damage the record of a key on a disk that nobody uses: who opens it finds it bad."""
    files = disk.mount()
    files.append(LOG_NAME, pack(Entry((), (), {}, (key,))))
    files.sync_now(LOG_NAME)
