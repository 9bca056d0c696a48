"""Many reads or writes in one frame: each item means what it means alone, and has its answer in its place.

A node that does not know these requests answers `UnknownRequest`; whoever asked then sends the items one by one.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from chord.wire.messages.base import BATCH_ITEMS_MAX, ErrorReply, Reply, Request
from chord.wire.messages.records import Get, Merge, Put, Values, Written
from chord.wire.messages.replicas import Copy, ReadCopy


class Got(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What came of one read: the values, or the error."""

    values: Values | None
    error: ErrorReply | None = None


class GotMany(Reply, frozen=True, tag=151):
    """The answers to a `GetMany`, in its order. Of each replica they do not tell: who wants that asks for one key."""

    answers: Annotated[tuple[Got, ...], Meta(max_length=BATCH_ITEMS_MAX)]


class GetMany(Request, frozen=True, tag=43):
    """Read several keys. To a vnode: those that are yours to coordinate; *node*: see to all of them.

    Answers that have no room are `Overloaded`, to be asked for again after 0 ms; the first always has.
    """

    gets: Annotated[tuple[Get, ...], Meta(max_length=BATCH_ITEMS_MAX)]
    reply = GotMany
    patient = True
    for_clients = True
    bulk = True


class Wrote(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What came of one write: how it was stored, or the error."""

    written: Written | None
    error: ErrorReply | None = None


class WroteMany(Reply, frozen=True, tag=152):
    """The answers to a `PutMany`, in its order. Of each replica they do not tell."""

    answers: Annotated[tuple[Wrote, ...], Meta(max_length=BATCH_ITEMS_MAX)]


class PutMany(Request, frozen=True, tag=44):
    """Write several records, at the same time: two of one key have no order. Addressed like a `GetMany`."""

    writes: Annotated[tuple[Put | Merge, ...], Meta(max_length=BATCH_ITEMS_MAX)]
    reply = WroteMany
    patient = True
    for_clients = True
    bulk = True


class CopiesRead(Reply, frozen=True, tag=153):
    """The answers to a `ReadCopies`, in its order; None where there was no room."""

    copies: Annotated[tuple[Copy | None, ...], Meta(max_length=BATCH_ITEMS_MAX)]


class ReadCopies(Request, frozen=True, tag=45):
    """What do you hold of these keys?"""

    asks: Annotated[tuple[ReadCopy, ...], Meta(max_length=BATCH_ITEMS_MAX)]
    reply = CopiesRead
    bulk = True
