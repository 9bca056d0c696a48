"""Coalescing: the requests of one batch to a replica leave in one frame.

Each item of the batch is coordinated as if it were alone, but sends its requests through `Coalescer`. All requests of
one pass of the scheduler leave in the next pass. The reads for a peer form one `ReadCopies`, and the copies for it form
one `StoreCopies`. If a peer refuses a frame because of one item, or does not know batches, `Coalescer` sends the items
one by one. Then each item has its own answer.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

import trio

from chord.errors import Behind, ChordError, InvalidRequest, MalformedMessage, UnknownRequest
from chord.replication.effects import ending
from chord.ring.context import NodeContext
from chord.wire.batch import cut
from chord.wire.messages import (
    Contact,
    CopiesRead,
    Copy,
    Done,
    ReadCopies,
    ReadCopy,
    Record,
    Reply,
    Request,
    StoreCopies,
    wire_bytes,
)

R = TypeVar("R", bound=Reply)

TAKEN_APART: Final = (UnknownRequest, MalformedMessage, InvalidRequest, Behind)


class _Question(NamedTuple):
    """A request of one item, with its callback and its deadline."""

    request: ReadCopy | StoreCopies
    callback: Callable[[Any], None]
    deadline: float


class Coalescer:
    """Sends the requests of one batch's items.

    Concurrency: synchronous. A task sends the frames, and ends with the node, not with the caller.
    """

    def __init__(self, host: NodeContext) -> None:
        self._host = host
        self._reads: dict[Contact, list[_Question]] = {}
        self._copies: dict[tuple[Contact, bool], list[_Question]] = {}
        self._is_due = False

    def begin(
        self,
        to: Contact,
        request: Request,
        expect: type[R],
        callback: Callable[[R | ChordError], None],
        *,
        deadline: float,
    ) -> None:
        """Send a request together with the other requests of this pass; see `Peers.begin`.

        While the node is ending, the callback gets `NotReady`.
        """
        if self._host.is_ending:
            callback(ending())
            return
        if isinstance(request, ReadCopy):
            self._reads.setdefault(to, []).append(_Question(request, callback, deadline))
        elif isinstance(request, StoreCopies):
            self._copies.setdefault((to, request.is_hint), []).append(_Question(request, callback, deadline))
        else:
            self._host.peers.begin(to, request, expect, callback, deadline=deadline)
            return
        if not self._is_due:
            self._is_due = True
            self._host.start_task(self._leave)

    async def _leave(self) -> None:
        self._is_due = False
        reads, self._reads = self._reads, {}
        copies, self._copies = self._copies, {}
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
        except trio.Cancelled:
            for question in chain(*reads.values(), *copies.values()):
                question.callback(ending())
            raise
        for contact, questions in reads.items():
            for some in cut(questions, _bytes_of):
                self._read(contact, some)
        made: dict[tuple[object, ...], StoreCopies] = {}  # one request for several replicas is encoded once
        for (contact, is_hint), questions in copies.items():
            for some in cut(questions, _bytes_of):
                records = tuple(record for question in some for record in _records(question))
                seen = tuple(one for question in some for one in _seen(question))
                names = (is_hint, *map(id, records), *seen)
                of_each = seen if any(seen) else ()
                self._store(contact, some, made.setdefault(names, StoreCopies(records, is_hint, of_each)))

    def _read(self, contact: Contact, questions: list[_Question]) -> None:
        if len(questions) == 1:
            self._one(contact, questions[0], Copy)
            return
        asks = tuple(question.request for question in questions if isinstance(question.request, ReadCopy))

        def on_reply(answer: CopiesRead | ChordError) -> None:
            if isinstance(answer, ChordError):
                self._failed(contact, questions, Copy, answer)
            elif len(answer.copies) != len(questions):
                self._failed(contact, questions, Copy, MalformedMessage(f"{contact.address} sent too few or too many"))
            else:
                for question, copy in zip(questions, answer.copies, strict=True):
                    if copy is None:  # it had no room in the reply
                        self._one(contact, question, Copy)
                    else:
                        question.callback(copy)

        deadline = max(question.deadline for question in questions)
        self._host.peers.begin(contact, ReadCopies(asks), CopiesRead, on_reply, deadline=deadline)

    def _store(self, contact: Contact, questions: list[_Question], request: StoreCopies) -> None:
        if len(questions) == 1:
            self._one(contact, questions[0], Done)
            return

        def on_reply(answer: Done | ChordError) -> None:
            if isinstance(answer, ChordError):
                self._failed(contact, questions, Done, answer)
            else:
                for question in questions:
                    question.callback(answer)

        deadline = max(question.deadline for question in questions)
        self._host.peers.begin(contact, request, Done, on_reply, deadline=deadline)

    def _failed(
        self, contact: Contact, questions: list[_Question], expect: type[Reply], error: ChordError
    ) -> None:
        """Pass the error of a frame on to its items.

        If one item or the batch as such may be the cause, and time is left, send the items one by one instead.
        """
        is_over = all(trio.current_time() >= question.deadline for question in questions)
        for question in questions:
            if isinstance(error, TAKEN_APART) and not is_over:
                self._one(contact, question, expect)
            else:
                question.callback(type(error)(error.message, peer=error.peer, after_ms=error.after_ms))

    def _one(self, contact: Contact, question: _Question, expect: type[Reply]) -> None:
        self._host.peers.begin(contact, question.request, expect, question.callback, deadline=question.deadline)


def _records(question: _Question) -> tuple[Record, ...]:
    return question.request.records if isinstance(question.request, StoreCopies) else ()


def _seen(question: _Question) -> tuple[bytes, ...]:
    request = question.request
    return (request.seen or (b"",) * len(request.records)) if isinstance(request, StoreCopies) else ()


def _bytes_of(question: _Question) -> int:
    return sum(map(wire_bytes, _records(question)))
