"""Batch codec: combines many requests, or many replies, into one frame.

Each item keeps its place. An item that fails has its own error and does not affect the other items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias, TypeGuard, TypeVar

import msgspec

from chord.errors import (
    ChordError,
    InvalidRequest,
    MalformedMessage,
    Overloaded,
    RemoteFailure,
    UnknownRequest,
    from_wire,
)
from chord.wire.messages import (
    BATCH_BYTES_MAX,
    BATCH_ITEMS_MAX,
    ErrorReply,
    Get,
    GetMany,
    Got,
    GotMany,
    Merge,
    Put,
    PutMany,
    Reply,
    Request,
    Values,
    Written,
    Wrote,
    WroteMany,
    wire_bytes,
)

T = TypeVar("T")

Item: TypeAlias = Get | Put | Merge
BatchRequest: TypeAlias = GetMany | PutMany
BatchReplies: TypeAlias = GotMany | WroteMany

AROUND_BYTES: Final = 128  # about the overhead of an item on the wire, besides key and value
MESSAGE_CHARS_MAX: Final = 256  # for the message of an error that is one of many

REFUSED_WHOLE: Final = (UnknownRequest, MalformedMessage, InvalidRequest)
"""Errors that refuse a whole batch, because of its kind or of one bad item. Sent alone, each item has its answer."""


NO_ROOM: Final = Overloaded("no room in this answer", after_ms=0)


def has_no_room(outcome: Reply | ChordError) -> bool:
    """Whether an item should be sent again at once, in a smaller batch."""
    return isinstance(outcome, Overloaded) and outcome.after_ms == 0


def key_of(item: Item) -> bytes:
    """Return the key of an item."""
    return item.record.key if isinstance(item, Merge) else item.key


def items_of(batch: BatchRequest) -> Sequence[Item]:
    """Return the items of a batch."""
    return batch.gets if isinstance(batch, GetMany) else batch.writes


def expected(item: Item) -> type[Values] | type[Written]:
    """Return the type of an item's reply."""
    return Values if isinstance(item, Get) else Written


def bundle(items: Sequence[Item]) -> BatchRequest | Item:
    """Return one request for several reads or several writes; one item stays as it is."""
    if len(items) == 1:
        return items[0]
    if _are_reads(items):
        return GetMany(tuple(items))
    return PutMany(tuple(item for item in items if not isinstance(item, Get)))


def frames(items: Sequence[Item], places: Iterable[int], count_max: int = BATCH_ITEMS_MAX) -> Iterator[list[int]]:
    """Cut places into lists, so that the items of each list fit one frame.

    Each list has at least one item, at most `count_max` items, and about `BATCH_BYTES_MAX` bytes at most.
    """
    return cut(places, lambda place: _item_bytes(items[place]), min(count_max, BATCH_ITEMS_MAX))


def cut(things: Iterable[T], bytes_of: Callable[[T], int], count_max: int = BATCH_ITEMS_MAX) -> Iterator[list[T]]:
    """Cut things into lists that fit one frame each.

    Each list has at least one element, at most `count_max` elements, and `BATCH_BYTES_MAX` bytes at most. A larger
    element is alone in its list.
    """
    some: list[T] = []
    size = 0
    for thing in things:
        more = bytes_of(thing)
        if some and (len(some) >= count_max or size + more > BATCH_BYTES_MAX):
            yield some
            some, size = [], 0
        some.append(thing)
        size += more
    if some:
        yield some


def pack(batch: BatchRequest, outcomes: Sequence[Reply | ChordError]) -> BatchReplies:
    """Return the reply to a batch, with each outcome in the place of its item.

    If the values are too large for one frame, the first values are kept, and the other reads get `NO_ROOM`.
    """
    size = count = 0
    got: list[Got] = []
    wrote: list[Wrote] = []
    for outcome in outcomes:
        if isinstance(outcome, Values):
            more = AROUND_BYTES + len(outcome.context) + sum(map(len, outcome.values))
            if count and size + more > BATCH_BYTES_MAX:
                got.append(Got(None, _error_reply(NO_ROOM)))
                continue
            size, count = size + more, count + 1
            got.append(Got(msgspec.structs.replace(outcome, replicas=()) if outcome.replicas else outcome))
        elif isinstance(outcome, Written):
            wrote.append(Wrote(msgspec.structs.replace(outcome, replicas=()) if outcome.replicas else outcome))
        else:
            assert isinstance(outcome, ChordError)
            got.append(Got(None, _error_reply(outcome)))
            wrote.append(Wrote(None, _error_reply(outcome)))
    return GotMany(tuple(got)) if isinstance(batch, GetMany) else WroteMany(tuple(wrote))


def unpack(request: Request, answer: Reply | ChordError) -> list[Reply | ChordError]:
    """Return the outcome of each item of a request that `bundle` made."""
    if not isinstance(request, (GetMany, PutMany)):
        return [answer]
    count = len(items_of(request))
    if isinstance(answer, ChordError):
        return [answer] * count
    if not isinstance(answer, request.reply) or not isinstance(answer, (GotMany, WroteMany)):
        return [MalformedMessage(f"a batch was answered with {type(answer).__name__}")] * count
    if len(answer.answers) != count:
        return [MalformedMessage(f"{len(answer.answers)} answers to {count} items")] * count
    return [_outcome(one) for one in answer.answers]


def is_refused_whole(request: Request, answer: Reply | ChordError) -> bool:
    """Whether a batch was refused whole, so that its items must be sent one by one."""
    return isinstance(request, (GetMany, PutMany)) and isinstance(answer, REFUSED_WHOLE)


def _outcome(one: Got | Wrote) -> Reply | ChordError:
    reply = one.values if isinstance(one, Got) else one.written
    if reply is not None:
        return reply
    if one.error is None:
        return RemoteFailure("an item has neither an answer nor an error")
    return from_wire(one.error.code, one.error.message, one.error.peer, one.error.after_ms)


def _error_reply(error: ChordError) -> ErrorReply:
    message = error.message.encode(errors="replace").decode()[:MESSAGE_CHARS_MAX]
    return ErrorReply(error.code or RemoteFailure.code, message, error.peer, error.after_ms)


def _item_bytes(item: Item) -> int:
    if isinstance(item, Merge):
        return AROUND_BYTES + wire_bytes(item.record)
    value = None if isinstance(item, Get) else item.value
    return AROUND_BYTES + len(item.key) + len(value or b"")


def _are_reads(items: Sequence[Item]) -> TypeGuard[Sequence[Get]]:
    return isinstance(items[0], Get)
