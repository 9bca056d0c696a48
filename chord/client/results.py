"""What goes into a ring and what comes out: keys and values with their bounds, and the results of operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from chord.errors import InvalidRequest, VersionConflict
from chord.store import quarantine, versions
from chord.wire.messages import (
    CONTEXT_BYTES_MAX,
    KEY_BYTES_MAX,
    REPLICAS_MAX,
    TTL_MS_MAX,
    VALUE_BYTES_MAX,
    Contact,
    Record,
    ReplicaLine,
)

T = TypeVar("T")

TTL_S_MAX = TTL_MS_MAX / 1000


class Found(msgspec.Struct, frozen=True):
    """What is stored under a key.

    Attributes:
        key: the key that was read.
        values: every live value for which one reply has room; more than one if writes were concurrent.
        context: give it back to `put` or `delete` to replace exactly what was seen here.
        owner: the vnode that coordinated the read.
        r: so many replicas had answered by then.
        r_needed: so many had to.
        replicas: what each replica had to do with it; empty where many keys were read at a time.
        written_ms: when each value was written, by the wall clock of its coordinator, in ms since 1970.
        quarantined: how many more values of the key are in quarantine; see `get_quarantine`.
        left: how many more live values there are, which had no room. Settle those shown, and the next read shows more.
    """

    key: bytes
    values: tuple[bytes, ...]
    context: bytes
    owner: Contact
    r: int = 1
    r_needed: int = 1
    replicas: tuple[ReplicaLine, ...] = ()
    written_ms: tuple[int, ...] = ()
    quarantined: int = 0
    left: int = 0

    @property
    def value(self) -> bytes:
        """The one value.

        Raises:
            VersionConflict: there are several; look at `values` and settle them with a put under `context`.
        """
        if self.siblings:
            raise VersionConflict(f"{self.counted}; settle them with a put under their context")
        return self.values[0]

    @property
    def counted(self) -> str:
        """How many concurrent values there are, in words, and how many of them are shown."""
        shown = f", of which one reply has room for {len(self.values)}" if self.left else ""
        return f"{len(self.values) + self.left} concurrent values{shown}"

    @property
    def siblings(self) -> tuple[bytes, ...]:
        """The concurrent values that are shown, or nothing if there is only one value."""
        return self.values if len(self.values) > 1 or self.left else ()


Resolver: TypeAlias = Callable[[Found], bytes]
"""Makes one value of concurrent ones: called where there are several, with all of them and the context that covers
them. What it returns need not be one of them: a union of carts, say."""


def last_writer_wins(found: Found) -> bytes:
    """Return the value written last, by the wall clocks of the nodes that coordinated the writes.

    A resolver for `get(key, resolve=chord.last_writer_wins)`. It is lossy: of two concurrent writes one is dropped
    without a word, and which one depends on clocks that differ. A delete concurrent with a write loses. Use it where
    the older value is worth nothing once there is a newer one.

    Raises:
        InvalidRequest: the node that answered is older than this client, and does not tell when values were written.
    """
    if len(found.written_ms) != len(found.values):
        raise InvalidRequest("the node does not tell when values were written: it is older than this client")
    # Of values written in the same millisecond the largest: every reader must choose alike.
    return max(zip(found.written_ms, found.values, strict=True))[1]


def resolved(found: Found, resolve: Resolver) -> Found:
    """Return what was found with concurrent values made one. The context still covers all of them."""
    if len(found.values) < 2:
        return found
    return msgspec.structs.replace(found, values=(to_value(resolve(found)),), written_ms=())


class Stored(msgspec.Struct, frozen=True):
    """A write that was acknowledged.

    Attributes:
        key: the key that was written.
        context: covers what the write has replaced, and the write itself: give it to the next `put` of the same writer.
            It never covers a value that stands beside this one; then even this one may stay, until somebody has read
            both and settles them.
        owner: the vnode that coordinated the write.
        w: it was durable on so many nodes by then.
        w_needed: it had to be on so many.
        is_sloppy: some of those keep it for a replica that does not answer.
        replicas: what each replica had to do with it.
        beside: how many concurrent values stand beside it. Read them, and put what becomes of them all under the
            context of that read.
        quorum: the ring's own write quorum: a majority of the N replicas that it is to keep.
        is_under_replicated: nobody asked for fewer, but the ring has fewer nodes than its write quorum: the write is on
            all of them, and a single lost disk may lose it.
        dead: of a record that was merged: how many of its values were deleted or replaced since, and stay so.
        brought_back: of a record that was merged: how many of such values were written as new values.
        quarantined: how many values of the key are in quarantine; see `get_quarantine`.
    """

    key: bytes
    context: bytes
    owner: Contact
    w: int = 1
    w_needed: int = 1
    is_sloppy: bool = False
    replicas: tuple[ReplicaLine, ...] = ()
    beside: int = 0
    quorum: int = 0
    is_under_replicated: bool = False
    dead: int = 0
    brought_back: int = 0
    quarantined: int = 0


class QuarantinedValue(msgspec.Struct, frozen=True):
    """A value that no node vouches for, so that readers do not see it.

    Attributes:
        value: what was written; None: a delete.
        written_ms: when, by the wall clock of its coordinator, in ms since 1970.
        expires_ms: when its time to live ends, likewise; 0: never.
        store: the incarnation of the store that took the write first. A node tells its own in `describe`.
        key_epoch, number: which write of that store it was; together with `store` they name no other write of the key.
    """

    value: bytes | None
    written_ms: int
    expires_ms: int
    store: bytes
    key_epoch: int
    number: int


class Quarantined(msgspec.Struct, frozen=True):
    """What is in quarantine of a key.

    Attributes:
        key: the key.
        values: the values in quarantine, those of one store in the order of their writes; nothing, if there are none.
        context: names these values. Give it to `drop_quarantine` or `merge_quarantine` to decide about no others.
        left: how many more there are, which had no room in the answer. Decide about these first.
    """

    key: bytes
    values: tuple[QuarantinedValue, ...]
    context: bytes
    left: int = 0


class Decided(msgspec.Struct, frozen=True):
    """What became of the quarantine of a key.

    Attributes:
        key: the key.
        values: how many values were dropped or merged.
        left: how many values of the key are in quarantine still: the context does not name them, or a merge had no
            room for them.
        w: the decision was durable on so many nodes by then.
        w_needed: it had to be on so many.
    """

    key: bytes
    values: int
    left: int = 0
    w: int = 0
    w_needed: int = 0


class Pair(NamedTuple):
    """A key and its live values, as a scan finds them: more than one where writes were concurrent."""

    key: bytes
    values: tuple[bytes, ...]


class Page(NamedTuple):
    """A page of a scan: records in ring order, and the wall clock of who answered, which judges what has expired."""

    records: tuple[Record, ...]
    now_ms: int

    def quarantined(self) -> Iterator[Quarantined]:
        """Yield the keys of the page that have values in quarantine, and these values."""
        for record in self.records:
            if record.quarantine:
                yield to_quarantined(record)

    def pairs(self) -> Iterator[Pair]:
        """Yield the keys of the page that have a value, and their values."""
        for record in self.records:
            if found := live_values(record, self.now_ms):
                yield Pair(record.key, found)


def to_quarantined(record: Record, left: int = 0) -> Quarantined:
    """Return the quarantine of a record as users see it."""
    found = tuple(
        QuarantinedValue(
            version.value,
            version.written_ms,
            version.expires_ms,
            actor[: versions.INCARNATION_BYTES],
            int.from_bytes(actor[versions.INCARNATION_BYTES :], "big"),
            number,
        )
        for actor, number, version in quarantine.hidden(record)
    )
    return Quarantined(record.key, found, versions.encode_context(quarantine.context_of(record)), left)


def to_key(key: str | bytes) -> bytes:
    """Return a key as bytes.

    Raises:
        InvalidRequest: it is empty, longer than 1024 bytes, or neither text nor bytes.
    """
    raw = to_bytes(key, "key")
    if not 1 <= len(raw) <= KEY_BYTES_MAX:
        what = "the key is empty" if not raw else f"the key has {len(raw)} bytes"
        raise InvalidRequest(f"{what}; a key has 1 to {KEY_BYTES_MAX} bytes")
    return raw


def to_bytes(item: object, what: str) -> bytes:
    """Return text or bytes as bytes; `what` names it in the error.

    Raises:
        InvalidRequest: it is neither, or text that UTF-8 cannot write.
    """
    if isinstance(item, str):
        try:
            return item.encode()
        except UnicodeEncodeError as error:
            code = ord(item[error.start])
            why = f"U+{code:04X} is half a character; expected Unicode text, or bytes"
            raise InvalidRequest(f"the {what} is no text: {why}") from None
    if isinstance(item, (bytes, bytearray, memoryview)):
        return bytes(item)
    raise InvalidRequest(f"a {what} is text or bytes, not {type(item).__name__}")  # bytes(5) would be five zeros


def to_value(value: str | bytes) -> bytes:
    """Return a value as bytes.

    Raises:
        InvalidRequest: it is longer than 1 MiB, or neither text nor bytes.
    """
    raw = to_bytes(value, "value")
    if len(raw) > VALUE_BYTES_MAX:
        raise InvalidRequest(f"the value has {len(raw)} bytes; at most {VALUE_BYTES_MAX} (1 MiB) can be stored")
    return raw


def to_quorum(number: int | None, name: str) -> int:
    """Return R or W as it travels: 0 where the ring's own majority will do.

    Raises:
        InvalidRequest: it is not between 1 and 16.
    """
    if number is None:
        return 0
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= REPLICAS_MAX:
        raise InvalidRequest(f"{name} is a number of replicas, 1 to {REPLICAS_MAX}, not {number!r}")
    return number


def to_ttl_ms(ttl_s: float | None) -> int:
    """Return a time to live in ms; 0 where there is none.

    Raises:
        InvalidRequest: it is not a positive number of seconds.
    """
    if ttl_s is None:
        return 0
    if not 0 < ttl_s <= TTL_S_MAX:  # not a number, too
        raise InvalidRequest(f"a time to live is more than 0 and at most {TTL_S_MAX:.0f} seconds, not {ttl_s!r}")
    return math.ceil(ttl_s * 1000)


def live_values(record: Record, now_ms: int) -> tuple[bytes, ...]:
    """Return the values of a record that are neither deleted nor expired by that wall clock."""
    return tuple(
        v.value
        for v in versions.siblings(record)
        if v.value is not None and (v.expires_ms == 0 or v.expires_ms > now_ms)
    )


def to_context(context: bytes | None) -> bytes | None:
    """Return a context as it came from `Found.context` or `Stored.context`.

    Raises:
        InvalidRequest: it is no bytes, or longer than any context.
    """
    if context is not None and not isinstance(context, (bytes, bytearray, memoryview)):
        raise InvalidRequest(
            f"a context is bytes, from Found.context or Stored.context, not {type(context).__name__} {context!r:.40}"
        )
    if context is not None and len(context) > CONTEXT_BYTES_MAX:
        raise InvalidRequest(f"the context has {len(context)} bytes; none has more than {CONTEXT_BYTES_MAX}")
    return None if context is None else bytes(context)


def to_pair(pair: object) -> tuple[str | bytes, str | bytes]:
    """Return a key and its value, as `put_many` takes them.

    Raises:
        InvalidRequest: it is no pair. A text of two letters is none.
    """
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidRequest(f"put_many takes pairs (key, value), not {pair!r:.60}; of a dict: put_many(d.items())")
    return pair[0], pair[1]


def to_keys(keys: Iterable[str | bytes]) -> list[str | bytes]:
    """Return several keys, each once.

    Raises:
        InvalidRequest: the keys are one key or not iterable, or one of them is neither text nor bytes.
    """
    if isinstance(keys, (str, bytes, bytearray, memoryview)):
        raise InvalidRequest(f"get_many takes several keys, not the one key {keys!r:.60}; put it in a list")
    several = require_several(keys, "keys")
    try:
        return list(dict.fromkeys(several))
    except TypeError as error:
        raise InvalidRequest(f"a key is text or bytes: {error}") from error


def require_several(items: Iterable[T], what: str) -> Iterable[T]:
    """Return the items if they are iterable; `what` names them in the error.

    Raises:
        InvalidRequest: the items are not iterable, or are text or bytes.
    """
    if isinstance(items, (str, bytes, bytearray, memoryview)) or not isinstance(items, Iterable):
        raise InvalidRequest(f"several {what} are expected, not {items!r:.60}; put them in a list")
    return items


def to_record(item: Record) -> Record:
    """Return an item if it is a record.

    Raises:
        InvalidRequest: the item is no record.
    """
    if not isinstance(item, Record):
        raise InvalidRequest(f"a record is expected, as `records` gives them, not {item!r:.60}")
    return item
