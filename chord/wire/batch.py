"""Batches: divide many items into frames, and join the outcomes.

A batch is a list of reads or a list of writes. The place of an item is its index in the batch. Clients divide a batch
by owner, the node that receives it divides it again, and owners combine the requests to replicas. All of them cut
frames with `cut`, and give each item its own outcome. An item that fails does not affect the other items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeGuard, TypeVar

import msgspec

from chord.errors import (
    ChordError,
    InvalidRequest,
    MalformedMessage,
    Overloaded,
    RemoteFailure,
    from_wire,
)
from chord.wire.messages import (
    BATCH_BYTES_MAX,
    BATCH_ITEMS_MAX,
    ErrorReply,
    Get,
    GetMany,
    GetManyReply,
    GetReply,
    Got,
    Merge,
    Put,
    PutMany,
    PutManyReply,
    Reply,
    Request,
    Written,
    Wrote,
    wire_bytes,
)

T = TypeVar("T")

Item: TypeAlias = Get | Put | Merge
BatchRequest: TypeAlias = GetMany | PutMany
BatchReplies: TypeAlias = GetManyReply | PutManyReply

AROUND_BYTES: Final = 128  # about the overhead of an item on the wire, besides key and value
MESSAGE_CHARS_MAX: Final = 256  # for the message of an error that is one of many

REFUSED_WHOLE: Final = (MalformedMessage, InvalidRequest)
"""Errors that refuse a whole frame, because of one item or the size of the frame."""

NO_ROOM: Final = Overloaded("no room in this answer", after_ms=0)


def has_no_room(outcome: Reply | ChordError) -> bool:
    """Return whether the outcome of an item says that it had no room in the reply, so it must be sent again at once."""
    return isinstance(outcome, Overloaded) and outcome.after_ms == 0


def key_of(item: Item) -> bytes:
    """Return the key that an item reads or writes."""
    return item.record.key if isinstance(item, Merge) else item.key


def items_of(batch: BatchRequest) -> Sequence[Item]:
    """Return the items of a batch."""
    return batch.gets if isinstance(batch, GetMany) else batch.writes


class Frame(NamedTuple):
    """The items of a batch that one request carries.

    Attributes:
        places: the index in the whole batch of each item in this frame.
        request: the request with these items, in the same order; a single item is a request itself.
    """

    places: list[int]
    request: BatchRequest | Item

    def outcomes(self, answer: Reply | ChordError) -> Iterator[tuple[int, Reply | ChordError]]:
        """Yield the index in the whole batch and the outcome of each item in this frame.

        Args:
            answer: the reply to `request`, or its error, which is then the outcome of each item.
        """
        return zip(self.places, unpack(self.request, answer), strict=True)

    def is_refused_whole(self, answer: Reply | ChordError) -> bool:
        """Return whether the answer refuses all items of this frame: they must be sent in smaller frames.

        An item that causes the refusal is alone in a frame in the end, and the other items get their answers. So the
        result is False for a frame with one item.
        """
        return len(self.places) > 1 and isinstance(answer, REFUSED_WHOLE)


def frames(items: Sequence[Item], places: Iterable[int], count_max: int = BATCH_ITEMS_MAX) -> Iterator[Frame]:
    """Yield frames that together carry items of a batch, each within the limits of a request.

    Args:
        items: all items of a batch. An item that is too large for a frame of a batch is alone in its frame.
        places: the indexes in `items` of the items to send.
        count_max: the largest number of items in a frame.
    """
    for some in cut(places, lambda place: _item_bytes(items[place]), count_max):
        yield Frame(some, _bundle([items[place] for place in some]))


def cut(
    things: Iterable[T],
    bytes_of: Callable[[T], int],
    count_max: int = BATCH_ITEMS_MAX,
    bytes_max: int = BATCH_BYTES_MAX,
    key_of: Callable[[T], bytes] | None = None,
) -> Iterator[list[T]]:
    """Cut things into lists that fit one frame each; yield each list when it is full.

    Args:
        things: the things.
        bytes_of: returns the size of a thing in bytes. A thing of more than `bytes_max` bytes is alone in its list.
        count_max: the largest number of things in a list.
        bytes_max: the largest size of a list in bytes.
        key_of: returns the key of a thing. No list has a key twice, because writes made at the same time have no order,
            and the later one must win. Default: keys do not matter.
    """
    some: list[T] = []
    keys: set[bytes] = set()
    size = 0
    for thing in things:
        size += bytes_of(thing)
        if some and (size > bytes_max or (key_of is not None and key_of(thing) in keys)):
            yield some
            some, keys, size = [], set(), bytes_of(thing)
        some.append(thing)
        if key_of is not None:
            keys.add(key_of(thing))
        if len(some) == count_max:
            yield some
            some, keys, size = [], set(), 0
    if some:
        yield some


class Room:
    """The space left for values in one frame.

    The first value always has room, even if it alone is larger than a frame of a batch may be.
    """

    def __init__(self) -> None:
        self._taken = 0

    def takes(self, size: int) -> bool:
        """Return whether a value of this size in bytes has room; if so, take the room."""
        if self._taken and self._taken + size > BATCH_BYTES_MAX:
            return False
        self._taken += size
        return True


def pack(batch: BatchRequest, outcomes: Sequence[Reply | ChordError]) -> BatchReplies:
    """Return the reply to a batch.

    Values take the room of one frame, in the order of the items. The outcome of a read becomes `NO_ROOM` if its values
    do not fit the rest of the frame. The lists of replicas in the outcomes are left out.

    Args:
        batch: the request.
        outcomes: the reply or the error of each item, in the order of the items.
    """
    room = Room()
    got: list[Got] = []
    wrote: list[Wrote] = []
    for outcome in outcomes:
        if isinstance(outcome, GetReply):
            if room.takes(AROUND_BYTES + len(outcome.context) + sum(map(len, outcome.values))):
                got.append(Got(msgspec.structs.replace(outcome, replicas=()) if outcome.replicas else outcome))
            else:
                got.append(Got(None, _error_reply(NO_ROOM)))
        elif isinstance(outcome, Written):
            wrote.append(Wrote(msgspec.structs.replace(outcome, replicas=()) if outcome.replicas else outcome))
        else:
            assert isinstance(outcome, ChordError)
            got.append(Got(None, _error_reply(outcome)))
            wrote.append(Wrote(None, _error_reply(outcome)))
    return GetManyReply(tuple(got)) if isinstance(batch, GetMany) else PutManyReply(tuple(wrote))


def unpack(request: Request, answer: Reply | ChordError) -> list[Reply | ChordError]:
    """Return the outcome of each item of a request, in the order of the items.

    Args:
        request: a batch, or a single item.
        answer: the reply to it, or its error, which is then the outcome of every item. If a reply does not fit the
            batch, every outcome is `MalformedMessage`.
    """
    if not isinstance(request, (GetMany, PutMany)):
        return [answer]
    count = len(items_of(request))
    if isinstance(answer, ChordError):
        return [answer] * count
    if not isinstance(answer, request.reply) or not isinstance(answer, (GetManyReply, PutManyReply)):
        return [MalformedMessage(f"a batch was answered with {type(answer).__name__}")] * count
    if len(answer.answers) != count:
        return [MalformedMessage(f"{len(answer.answers)} answers to {count} items")] * count
    return [_outcome(one) for one in answer.answers]


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


def _bundle(items: Sequence[Item]) -> BatchRequest | Item:
    if len(items) == 1:
        return items[0]
    if _are_reads(items):
        return GetMany(tuple(items))
    return PutMany(tuple(item for item in items if not isinstance(item, Get)))


def _item_bytes(item: Item) -> int:
    if isinstance(item, Merge):
        return AROUND_BYTES + wire_bytes(item.record)
    value = None if isinstance(item, Get) else item.value
    return AROUND_BYTES + len(item.key) + len(value or b"")


def _are_reads(items: Sequence[Item]) -> TypeGuard[Sequence[Get]]:
    return isinstance(items[0], Get)
