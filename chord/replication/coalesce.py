"""Coalescing: the requests of one batch to a replica leave in one frame.

Each item of the batch is coordinated as if it were alone, but sends its requests through `Coalescer`. All requests of
one pass of the scheduler leave in the next pass. The reads for a peer form one `ReadCopies`, and the copies for it form
one `StoreCopies`. If a peer refuses a frame because of one item, `Coalescer` sends the items one by one. Then each item
has its own answer.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from itertools import chain
from typing import Any, Final, Generic, NamedTuple, TypeVar

import trio

from chord.errors import Behind, ChordError, MalformedMessage
from chord.replication.effects import ending
from chord.ring.context import NodeContext
from chord.wire.batch import REFUSED_WHOLE, cut
from chord.wire.messages import Contact, ReadCopies, ReadCopiesReply, ReadCopy, Reply, Request, StoreCopies, wire_bytes

Q = TypeVar("Q", ReadCopy, StoreCopies)
R = TypeVar("R", bound=Reply)

SENT_ALONE: Final = (*REFUSED_WHOLE, Behind)
"""Errors of a frame after which its items are sent one by one, because one of them may be the cause."""


class _Question(NamedTuple, Generic[Q]):
    """A request to a replica for one item of a batch.

    `callback` receives the reply or the error. `deadline` is the latest time for the reply, on Trio's clock.
    """

    request: Q
    callback: Callable[[Any], None]
    deadline: float


class Coalescer:
    """Combines the requests that the items of one batch send to the same replica.

    Concurrency: synchronous. A task sends the frames, and ends with the node, not with the caller.
    """

    def __init__(self, host: NodeContext) -> None:
        self._host = host
        self._reads: dict[Contact, list[_Question[ReadCopy]]] = {}
        self._copies: dict[tuple[Contact, bool], list[_Question[StoreCopies]]] = {}
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
        """Queue a request, to leave in one frame with the batch's other requests to the same replica.

        The queue leaves in the next pass of the scheduler. Requests other than `ReadCopy` and `StoreCopies` leave
        alone, at once.

        Args:
            to: the replica.
            request: the request.
            expect: the type of the reply.
            callback: called once with the reply or the error. If the node is ending, it gets `NotReady`.
            deadline: the latest time for the reply, on Trio's clock.
        """
        if self._host.is_ending:
            callback(ending())
            return
        if isinstance(request, ReadCopy):
            self._reads.setdefault(to, []).append(_Question(request, callback, deadline))
        elif isinstance(request, StoreCopies):
            self._copies.setdefault((to, request.as_hints), []).append(_Question(request, callback, deadline))
        else:
            self._host.peers.begin(to, request, expect, callback, deadline=deadline)
            return
        if not self._is_due:
            self._is_due = True
            self._host.tasks.start(self._leave)

    async def _leave(self) -> None:
        self._is_due = False
        reads, self._reads = self._reads, {}
        copies, self._copies = self._copies, {}
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
        except trio.Cancelled:
            waiting: list[_Question[Any]] = [*chain(*reads.values()), *chain(*copies.values())]
            for question in waiting:
                question.callback(ending())
            raise
        for contact, asks in reads.items():
            for some in cut(asks, lambda ask: 0):
                self._send(contact, some, ReadCopies(tuple(ask.request for ask in some)))
        made: dict[tuple[int, ...], StoreCopies] = {}  # one request for several replicas is encoded once
        for (contact, _), writes in copies.items():
            for part in cut(writes, _bytes_of):
                names = tuple(id(write.request) for write in part)
                if names not in made:
                    made[names] = _joined([write.request for write in part])
                self._send(contact, part, made[names])

    def _send(self, contact: Contact, questions: list[_Question[Q]], request: ReadCopies | StoreCopies) -> None:
        if len(questions) == 1:
            self._send_alone(contact, questions[0])
        else:
            on_reply = partial(self._on_reply, contact, questions)
            deadline = max(question.deadline for question in questions)
            self._host.peers.begin(contact, request, request.reply, on_reply, deadline=deadline)

    def _send_alone(self, contact: Contact, question: _Question[Q]) -> None:
        request = question.request
        self._host.peers.begin(contact, request, request.reply, question.callback, deadline=question.deadline)

    def _on_reply(self, contact: Contact, questions: list[_Question[Q]], answer: Reply | ChordError) -> None:
        """Give each item its part of the reply to a frame, or its own copy of the error.

        If one item may be the cause of an error, and time is left, the items are sent again one by one. An item without
        room for its copy in the reply is also sent again.
        """
        if isinstance(answer, ReadCopiesReply) and len(answer.copies) != len(questions):
            answer = MalformedMessage(f"{contact.address} sent too few or too many")
        is_apart = isinstance(answer, SENT_ALONE) and trio.current_time() < max(q.deadline for q in questions)
        replies = answer.copies if isinstance(answer, ReadCopiesReply) else (answer,) * len(questions)
        for question, reply in zip(questions, replies, strict=True):
            if is_apart or reply is None:  # a copy of None had no room in the reply
                self._send_alone(contact, question)
            else:
                question.callback(copy(reply) if isinstance(reply, ChordError) else reply)


def _joined(requests: list[StoreCopies]) -> StoreCopies:
    records = tuple(record for request in requests for record in request.records)
    seen = tuple(one for request in requests for one in request.seen or (b"",) * len(request.records))
    return StoreCopies(records, requests[0].as_hints, seen if any(seen) else ())


def _bytes_of(question: _Question[StoreCopies]) -> int:
    return sum(map(wire_bytes, question.request.records))
