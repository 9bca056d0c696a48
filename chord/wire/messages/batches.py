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
    """The outcome of one read in a `GetMany`; one of both is None.

    Attributes:
        values: the values, as the reply to a single `Get` has them.
        error: the error with which the read failed.
    """

    values: GetReply | None
    error: ErrorReply | None = None


class GetManyReply(Reply, frozen=True, tag=151):
    """The outcomes of a `GetMany`.

    Attributes:
        answers: the outcome of each read, in the order of the request. None says how each replica answered.
    """

    answers: Annotated[tuple[Got, ...], Meta(max_length=BATCH_ITEMS_MAX)]


class GetMany(Request, frozen=True, tag=43):
    """Request to a vnode or a node to read several keys.

    A vnode reads the keys that it coordinates, and refuses the others. A node reads all keys, and forwards those of
    other owners. If the values do not fit into the reply, some reads end in the error `Overloaded`, to be retried at
    once.

    Attributes:
        gets: the reads, each as a single request would have it.
    """

    gets: Annotated[tuple[Get, ...], Meta(max_length=BATCH_ITEMS_MAX)]
    reply = GetManyReply
    patient = True
    for_clients = True
    bulk = True


class Wrote(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The outcome of one write in a `PutMany`; one of both is None.

    Attributes:
        written: the acknowledgement, as the reply to a single `Put` has it.
        error: the error with which the write failed.
    """

    written: Written | None
    error: ErrorReply | None = None


class PutManyReply(Reply, frozen=True, tag=152):
    """The outcomes of a `PutMany`.

    Attributes:
        answers: the outcome of each write, in the order of the request. None says how each replica answered.
    """

    answers: Annotated[tuple[Wrote, ...], Meta(max_length=BATCH_ITEMS_MAX)]


class PutMany(Request, frozen=True, tag=44):
    """Request to a vnode or a node to write several records at the same time.

    Two writes of one key have no order. A vnode refuses keys that it does not coordinate, and a node forwards those of
    other owners.

    Attributes:
        writes: the writes, each as a single request would have it.
    """

    writes: Annotated[tuple[Put | Merge, ...], Meta(max_length=BATCH_ITEMS_MAX)]
    reply = PutManyReply
    patient = True
    for_clients = True
    bulk = True


class ReadCopiesReply(Reply, frozen=True, tag=153):
    """A replica's copies of several records.

    Attributes:
        copies: the copies, in the order of the request; None for a copy that did not fit into the reply.
    """

    copies: Annotated[tuple[ReadCopyReply | None, ...], Meta(max_length=BATCH_ITEMS_MAX)]


class ReadCopies(Request, frozen=True, tag=45):
    """Request to a vnode for its copies of several records.

    Attributes:
        asks: the records, each as a single `ReadCopy` names it.
    """

    asks: Annotated[tuple[ReadCopy, ...], Meta(max_length=BATCH_ITEMS_MAX)]
    reply = ReadCopiesReply
    bulk = True
