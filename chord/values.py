"""What goes into a ring and what comes out: keys and values with their bounds, and the results of operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from chord.errors import InvalidRequest, VersionConflict
from chord.messages import KEY_BYTES_MAX, VALUE_BYTES_MAX, Contact, Record


class Found(msgspec.Struct, frozen=True):
    """What is stored under a key.

    Attributes:
        key: the key that was read.
        values: every live value; more than one where writes were concurrent.
        context: give it back to `put` or `delete` to replace exactly what was seen here.
        owner: the vnode that answered for the key.
    """

    key: bytes
    values: tuple[bytes, ...]
    context: bytes
    owner: Contact

    @property
    def value(self) -> bytes:
        """The one value.

        Raises:
            VersionConflict: there are several; look at `values` and settle them with a put under `context`.
        """
        if len(self.values) > 1:
            raise VersionConflict(f"{len(self.values)} concurrent values; settle them with a put under their context")
        return self.values[0]

    @property
    def siblings(self) -> tuple[bytes, ...]:
        """The concurrent values, or nothing where there is only one."""
        return self.values if len(self.values) > 1 else ()


class Stored(msgspec.Struct, frozen=True):
    """A write that was acknowledged.

    Attributes:
        key: the key that was written.
        context: covers the write; give it to the next `put` to replace exactly this.
        owner: the vnode that stored it.
    """

    key: bytes
    context: bytes
    owner: Contact


class Pair(NamedTuple):
    """A key and its live values, as a scan finds them."""

    key: bytes
    values: tuple[bytes, ...]


def to_key(key: str | bytes) -> bytes:
    """Return a key as bytes.

    Raises:
        InvalidRequest: it is empty, longer than 1024 bytes, or neither text nor bytes.
    """
    raw = _to_bytes(key, "key")
    if not 1 <= len(raw) <= KEY_BYTES_MAX:
        what = "the key is empty" if not raw else f"the key has {len(raw)} bytes"
        raise InvalidRequest(f"{what}; a key has 1 to {KEY_BYTES_MAX} bytes")
    return raw


def _to_bytes(item: object, what: str) -> bytes:
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, (bytes, bytearray, memoryview)):
        return bytes(item)
    raise InvalidRequest(f"a {what} is text or bytes, not {type(item).__name__}")  # bytes(5) would be five zeros


def to_value(value: str | bytes) -> bytes:
    """Return a value as bytes.

    Raises:
        InvalidRequest: it is longer than 1 MiB, or neither text nor bytes.
    """
    raw = _to_bytes(value, "value")
    if len(raw) > VALUE_BYTES_MAX:
        raise InvalidRequest(f"the value has {len(raw)} bytes; at most {VALUE_BYTES_MAX} (1 MiB) can be stored")
    return raw


def live_values(record: Record) -> tuple[bytes, ...]:
    """Return the values of a record that are not deleted."""
    return tuple(v.value for actor in record.clock for v in actor.versions if v.value is not None)


def batches(
    pairs: Iterable[tuple[str | bytes, str | bytes]], length: int, bytes_max: int
) -> Iterator[list[tuple[str | bytes, str | bytes]]]:
    """Cut pairs into lists of at most so many, and of at most so many bytes (but one pair at least)."""
    source = iter(pairs)
    rest: list[tuple[str | bytes, str | bytes]] = []
    while rest := rest + list(islice(source, length - len(rest))):
        size, count = 0, 0
        for key, value in rest:
            size += len(key) + len(value)
            if count and size > bytes_max:
                break
            count += 1
        yield rest[:count]
        rest = rest[count:]
