"""Messages with many reads or many writes in one frame.

Each item means the same as if sent alone. The answers have the order of the items.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from chord.wire.messages.base import BATCH_ITEMS_MAX, ErrorReply, Reply, Request
from chord.wire.messages.records import Get, GetReply, Merge, Put, Written
from chord.wire.messages.replicas import ReadCopy, ReadCopyReply


class Got(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The outcome of one read: the values, or the error."""

    values: GetReply | None
    error: ErrorReply | None = None


class GetManyReply(Reply, frozen=True, tag=151):
    """The answers to a `GetMany`, in its order.

    They do not say how each replica answered; a single `Get` returns that.
    """

    answers: Annotated[tuple[Got, ...], Meta(max_length=BATCH_ITEMS_MAX)]


class GetMany(Request, frozen=True, tag=43):
    """Request to a vnode or a node to read several keys.

    A vnode reads the keys that it coordinates, and refuses the others. A node reads all keys, and forwards those of
    other owners. If the values do not fit the reply, some items are answered with `Overloaded`, to be retried after 0
    ms. The first values always have room.
    """

    gets: Annotated[tuple[Get, ...], Meta(max_length=BATCH_ITEMS_MAX)]
    reply = GetManyReply
    patient = True
    for_clients = True
    bulk = True


class Wrote(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The outcome of one write: its acknowledgement, or the error."""

    written: Written | None
    error: ErrorReply | None = None


class PutManyReply(Reply, frozen=True, tag=152):
    """The answers to a `PutMany`, in its order.

    They do not say how each replica answered.
    """

    answers: Annotated[tuple[Wrote, ...], Meta(max_length=BATCH_ITEMS_MAX)]


class PutMany(Request, frozen=True, tag=44):
    """Request to a vnode or a node to write several records at the same time.

    Two writes of one key have no order. A vnode or a node handles the keys of other owners as for `GetMany`.
    """

    writes: Annotated[tuple[Put | Merge, ...], Meta(max_length=BATCH_ITEMS_MAX)]
    reply = PutManyReply
    patient = True
    for_clients = True
    bulk = True


class ReadCopiesReply(Reply, frozen=True, tag=153):
    """The answers to a `ReadCopies`, in its order; None if a copy had no room."""

    copies: Annotated[tuple[ReadCopyReply | None, ...], Meta(max_length=BATCH_ITEMS_MAX)]


class ReadCopies(Request, frozen=True, tag=45):
    """Request for a replica's copies of several records."""

    asks: Annotated[tuple[ReadCopy, ...], Meta(max_length=BATCH_ITEMS_MAX)]
    reply = ReadCopiesReply
    bulk = True
