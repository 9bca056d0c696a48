"""Keys and values with their bounds, and the results of operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from chord.errors import ChordError, InvalidRequest, VersionConflict
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

K = TypeVar("K")
T = TypeVar("T")

TTL_S_MAX = TTL_MS_MAX / 1000
SHOWN_BYTES_MAX: Final = 40  # of a key or a value in a `repr`


class Missing(Enum):
    """The type of `MISSING`, the default of `get` if the caller gave none."""

    MISSING = "no default"

    def __repr__(self) -> str:
        return self.name


MISSING: Final = Missing.MISSING
"""The default of `get` if the caller gave none. Any other object, None too, is a default."""


class Found(msgspec.Struct, frozen=True):
    """The values stored under a key.

    Attributes:
        key: the key that was read.
        values: the live values that fit into one reply; more than one if writes were concurrent.
        context: bytes to pass to `put` or `delete`, to replace exactly these values.
        owner: the vnode that coordinated the read.
        r: number of replicas that had answered by the end of the read.
        r_needed: number of replicas that had to answer.
        replicas: the outcome at each replica, if `get` was called with `replicas=True`. Otherwise empty, or those
            replicas that the client itself asked.
        written_ms: when each value was written, by the wall clock of its coordinator, in ms since 1970; in the order of
            `values`.
        quarantined: number of further values of the key that are in quarantine; see `get_quarantine`.
        left: number of further live values that did not fit into the reply. Resolve the values shown, and the next read
            shows more.
        is_local: whether the entry node read only its own copy, so that the values may be old (`get(local=True)`). Then
            `owner` is the vnode with this copy.
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
    is_local: bool = False

    def __repr__(self) -> str:
        values = self.counted if self.siblings else shown(self.values[0]) if self.values else "no value"
        return f"<Found {shown(self.key)}: {values}, r={self.r}/{self.r_needed}>"

    @property
    def value(self) -> bytes:
        """The only value.

        Raises:
            VersionConflict: there are several values. Look at `values`, and resolve them with a put under `context`.
        """
        if self.siblings:
            raise VersionConflict(f"{self.counted}; resolve them with a put under their context")
        return self.values[0]

    @property
    def text(self) -> str:
        """The only value, decoded as UTF-8.

        Raises:
            VersionConflict: there are several values, as for `value`.
            UnicodeDecodeError: the value is not UTF-8.
        """
        return self.value.decode()

    @property
    def counted(self) -> str:
        """A text that states the number of concurrent values and, if some are not shown, how many are."""
        shown = f", {len(self.values)} of them shown" if self.left else ""
        return f"{len(self.values) + self.left} concurrent values{shown}"

    @property
    def siblings(self) -> tuple[bytes, ...]:
        """The concurrent values that fit into the reply; empty if the key has only one value."""
        return self.values if len(self.values) > 1 or self.left else ()


Resolver: TypeAlias = Callable[[Found], bytes]
"""Function that turns concurrent values into one. It is called only if a key has several values. It gets all of
them, and the context that covers them. It may return a value that is none of them, for example the union of shopping
carts."""


def last_writer_wins(found: Found) -> bytes:
    """Return the value written last, by the wall clocks of the coordinators.

    Use it as a resolver: `get(key, resolve=chord.last_writer_wins)`. It is lossy. Of two concurrent writes it silently
    drops one, and the clocks of different machines decide which. A delete that is concurrent with a write is undone.
    Use it only if an older value is worthless once there is a newer one.

    Raises:
        InvalidRequest: the result does not say when each value was written, because another resolver made it.
    """
    if len(found.written_ms) != len(found.values):
        raise InvalidRequest("the result does not report when its values were written; read without another resolver")
    # In the same millisecond the largest value wins: every reader must choose the same value.
    return max(zip(found.written_ms, found.values, strict=True))[1]


def resolved(found: Found, resolve: Resolver | None) -> Found:
    """Return a result with its concurrent values resolved into one.

    The context of the result covers all of them.

    Args:
        found: the result of a read.
        resolve: returns one value for several concurrent ones; None: return the result as it is.
    """
    if resolve is None or len(found.values) < 2:
        return found
    return msgspec.structs.replace(found, values=(to_value(resolve(found)),), written_ms=())


class Stored(msgspec.Struct, frozen=True):
    """The result of an acknowledged write.

    Attributes:
        key: the key that was written.
        context: bytes to pass to the same writer's next `put`: they cover this write and the values that it replaced.
            They never cover a value that stands beside this one. If there is such a value, they may not cover this
            write either, until a client has read both values and resolved them.
        owner: the vnode that coordinated the write.
        w: number of nodes on which the write was durable when it was acknowledged.
        w_needed: number of nodes on which it had to be durable.
        is_sloppy: whether the write does not rely on replicas alone. Stand-ins keep it for replicas that do not answer,
            or the read before it lacked a quorum of replicas in sync.
        replicas: the outcome at each replica, if `put` or `delete` was called with `replicas=True`; otherwise empty.
        beside: number of concurrent values beside this one. Read them all, and put the result under the context of that
            read.
        quorum: the number of nodes that is a majority of N.
        is_under_replicated: whether no `w` was given, and the ring has fewer nodes than `quorum`. The write is on all
            of them, but losing a single disk may lose it.
        dead: for a merged record, the number of values that were deleted or replaced since the backup, and stay so.
        brought_back: for a merged record, the number of such values that were written as new values.
        quarantined: number of values of the key that are in quarantine; see `get_quarantine`.
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

    def __repr__(self) -> str:
        notes = [f"w={self.w}/{self.w_needed}"]
        notes += ["sloppy"] if self.is_sloppy else []
        notes += ["under-replicated"] if self.is_under_replicated else []
        counts = (("beside", self.beside), ("dead", self.dead), ("brought_back", self.brought_back))
        notes += [f"{name}={number}" for name, number in counts if number]
        return f"<Stored {shown(self.key)}: {', '.join(notes)}>"


class BatchResult(Mapping[K, T | ChordError]):
    """The outcomes of an operation on many keys, or on many nodes.

    As a mapping it has the result or the error of each key, in the order of the operation. The key of a node is its
    address.

    Args:
        outcomes: the result or the error of each key, or of each address of a node.

    Attributes:
        ok: the results, by key as the caller passed it.
        errors: the errors of all other keys. It is empty if the operation succeeded for all keys.
    """

    def __init__(self, outcomes: Mapping[K, T | ChordError]) -> None:
        self._outcomes = outcomes
        self.ok: dict[K, T] = {k: one for k, one in outcomes.items() if not isinstance(one, ChordError)}
        self.errors: dict[K, ChordError] = {k: one for k, one in outcomes.items() if isinstance(one, ChordError)}

    def __getitem__(self, key: K) -> T | ChordError:
        return self._outcomes[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._outcomes)

    def __len__(self) -> int:
        return len(self._outcomes)

    def __repr__(self) -> str:
        return f"<BatchResult: {len(self.ok)} ok, {len(self.errors)} failed>"


class QuarantinedValue(msgspec.Struct, frozen=True):
    """A value in quarantine: readers do not see it, because it may have been deleted.

    No node can say whether it was.

    Attributes:
        value: the value that was written; None for a delete.
        written_ms: time of the write by the wall clock of its coordinator, in ms since 1970.
        expires_ms: end of its lifetime by the same clock, in ms since 1970; 0 if it never expires.
        store: the incarnation of the store that took the write first. A `Status` has the incarnation of its node.
        key_epoch, number: the key epoch of that store, and the number of the write. With `store` they are the dot of
            the write.
    """

    value: bytes | None
    written_ms: int
    expires_ms: int
    store: bytes
    key_epoch: int
    number: int


class Quarantined(msgspec.Struct, frozen=True):
    """The quarantined values of a key.

    Attributes:
        key: the key.
        values: the values in quarantine that fit into one answer, ordered by their stores and writes. There may be
            none.
        context: bytes that name these values. Pass them to `drop_quarantine` or `merge_quarantine` to decide only about
            them.
        left: number of further values that did not fit into the answer. Decide about `values` first.
    """

    key: bytes
    values: tuple[QuarantinedValue, ...]
    context: bytes
    left: int = 0


class Decided(msgspec.Struct, frozen=True):
    """The result of a decision about the quarantine of a key.

    Attributes:
        key: the key.
        values: number of values that were dropped or merged.
        left: number of values of the key that are still in quarantine. The context did not name them, or a merge had no
            room for them.
        w: number of nodes on which the decision was durable when it was acknowledged.
        w_needed: number of nodes on which it had to be durable.
    """

    key: bytes
    values: int
    left: int = 0
    w: int = 0
    w_needed: int = 0


class Pair(NamedTuple):
    """A key with its live values.

    Attributes:
        key: the key.
        values: the values; several if writes were concurrent.
    """

    key: bytes
    values: tuple[bytes, ...]


class Page(NamedTuple):
    """A page of a scan: some records, and the time at which they were read.

    Attributes:
        records: the records, in ring order.
        now_ms: the wall clock of the node that answered, in ms since 1970. It decides which values have expired.
    """

    records: tuple[Record, ...]
    now_ms: int

    def quarantined(self) -> Iterator[Quarantined]:
        """Yield each key of the page that has values in quarantine, with these values."""
        for record in self.records:
            if record.quarantine:
                yield to_quarantined(record)

    def pairs(self) -> Iterator[Pair]:
        """Yield each key of the page that has a live value, with its values."""
        for record in self.records:
            if found := live_values(record, self.now_ms):
                yield Pair(record.key, found)


def shown(raw: bytes) -> str:
    """Return bytes as a Python literal for messages. A long literal is cut, and the number of all bytes is added."""
    if len(raw) <= SHOWN_BYTES_MAX:
        return repr(raw)
    return f"{raw[:SHOWN_BYTES_MAX]!r}... ({len(raw)} bytes)"


def to_quarantined(record: Record, left: int = 0) -> Quarantined:
    """Return the values that a record has in quarantine, in the form that users get.

    `left` is the number of further values that did not fit into the answer.
    """
    from chord.store import quarantine, versions  # the result of no plain read or write needs them

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
    """Return a key as bytes; text is encoded as UTF-8.

    Raises:
        InvalidRequest: the key is empty, longer than 1024 bytes, or neither text nor bytes.
    """
    raw = to_bytes(key, "key")
    if not 1 <= len(raw) <= KEY_BYTES_MAX:
        what = "the key is empty" if not raw else f"the key has {len(raw)} bytes"
        raise InvalidRequest(f"{what}; a key has 1 to {KEY_BYTES_MAX} bytes")
    return raw


def to_bytes(item: object, what: str) -> bytes:
    """Return text or bytes as bytes; text is encoded as UTF-8.

    Args:
        item: the text or the bytes.
        what: the name of the item in error messages.

    Raises:
        InvalidRequest: the item is neither text nor bytes, or is text that UTF-8 cannot encode.
    """
    if isinstance(item, str):
        try:
            return item.encode()
        except UnicodeEncodeError as error:
            code = ord(item[error.start])
            why = f"U+{code:04X} is a surrogate; expected Unicode text or bytes"
            raise InvalidRequest(f"cannot encode the {what}: {why}") from None
    if isinstance(item, (bytes, bytearray, memoryview)):
        return bytes(item)
    raise InvalidRequest(f"a {what} is text or bytes, not {type(item).__name__}")  # bytes(5) would be five zeros


def to_value(value: str | bytes) -> bytes:
    """Return a value as bytes; text is encoded as UTF-8.

    Raises:
        InvalidRequest: the value is longer than 1 MiB, or neither text nor bytes.
    """
    raw = to_bytes(value, "value")
    if len(raw) > VALUE_BYTES_MAX:
        raise InvalidRequest(f"the value has {len(raw)} bytes; at most {VALUE_BYTES_MAX} (1 MiB) can be stored")
    return raw


def to_quorum(number: int | None, name: str) -> int:
    """Return the R or W to send in a request: the number itself, or 0 for None, which stands for a majority.

    `name` is the name of the argument in error messages.

    Raises:
        InvalidRequest: the number is not between 1 and 16.
    """
    if number is None:
        return 0
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= REPLICAS_MAX:
        raise InvalidRequest(f"{name} is a number of replicas, 1 to {REPLICAS_MAX}, not {number!r}")
    return number


def to_ttl_ms(ttl_s: float | None) -> int:
    """Convert a lifetime from seconds to ms, at least 1; None becomes 0: no limit.

    Raises:
        InvalidRequest: the lifetime is 0 s or less, or more than ten years.
    """
    if ttl_s is None:
        return 0
    if not 0 < ttl_s <= TTL_S_MAX:  # also refuses NaN
        raise InvalidRequest(f"a time to live is more than 0 and at most {TTL_S_MAX:.0f} seconds, not {ttl_s!r}")
    return math.ceil(ttl_s * 1000)


def live_values(record: Record, now_ms: int) -> tuple[bytes, ...]:
    """Return the values of a record that are neither deleted nor expired at `now_ms`.

    `now_ms` is the time by a wall clock, in ms since 1970.
    """
    from chord.store.versions import siblings

    return tuple(
        v.value
        for v in siblings(record)
        if v.value is not None and (v.expires_ms == 0 or v.expires_ms > now_ms)
    )


def to_context(context: bytes | None) -> bytes | None:
    """Return a context unchanged if it is bytes or None.

    Raises:
        InvalidRequest: the context is not bytes, or longer than 8192 bytes, the limit of every context.
    """
    if context is not None and not isinstance(context, (bytes, bytearray, memoryview)):
        raise InvalidRequest(
            f"a context is bytes, from Found.context or Stored.context, not {type(context).__name__} {context!r:.40}"
        )
    if context is not None and len(context) > CONTEXT_BYTES_MAX:
        raise InvalidRequest(f"the context has {len(context)} bytes; none has more than {CONTEXT_BYTES_MAX}")
    return None if context is None else bytes(context)


def to_pair(pair: object) -> tuple[str | bytes, str | bytes]:
    """Return an item of `put_many` as a key and its value.

    Raises:
        InvalidRequest: the item is not a pair. A text of two letters is no pair.
    """
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidRequest(f"put_many takes pairs (key, value), not {pair!r:.60}; of a dict: put_many(d.items())")
    return pair[0], pair[1]


def to_keys(keys: Iterable[str | bytes], method: str) -> list[str | bytes]:
    """Return keys as a list, each once, in their order.

    Args:
        keys: the keys.
        method: the name of the calling method, for error messages.

    Raises:
        InvalidRequest: the argument is a single key or not iterable, or an item is neither text nor bytes.
    """
    if isinstance(keys, (str, bytes, bytearray, memoryview)):
        raise InvalidRequest(f"{method} takes several keys, not the one key {keys!r:.60}; put it in a list")
    several = require_several(keys, "keys")
    try:
        return list(dict.fromkeys(several))
    except TypeError as error:
        raise InvalidRequest(f"a key is text or bytes: {error}") from error


def require_several(items: Iterable[T], what: str) -> Iterable[T]:
    """Return the items unchanged if they are iterable, and not text or bytes.

    Args:
        items: the items.
        what: the name of the items in error messages.

    Raises:
        InvalidRequest: the items are not iterable, or are text or bytes.
    """
    if isinstance(items, (str, bytes, bytearray, memoryview)) or not isinstance(items, Iterable):
        raise InvalidRequest(f"expected several {what}, not {items!r:.60}; put them in a list")
    return items


def to_record(item: Record) -> Record:
    """Return an item unchanged if it is a record.

    Raises:
        InvalidRequest: the item is not a record.
    """
    if not isinstance(item, Record):
        raise InvalidRequest(f"expected a record, as `export` yields them, not {item!r:.60}")
    return item
