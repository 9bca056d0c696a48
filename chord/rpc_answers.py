"""The answering half of a connection: what a peer asks, and what it is told.

A handler that need not wait is run in the reader itself, and its answer joins those to everything else that came
with the same read. One that must wait gets a task, which counts against the limits until it is done.
"""

from __future__ import annotations

import traceback
from collections.abc import Coroutine
from typing import Any

import trio

from chord.calls import Caller
from chord.errors import Busy, ChordError, DeadlineExceeded, Overloaded, RemoteFailure, retold
from chord.events import HandlerFailed
from chord.messages import Reply
from chord.rpc_outbox import Outbox
from chord.rpc_shared import Shared
from chord.rpc_transit import Transit
from chord.wire import Call, Codec


class Answers:
    """Answers the calls of one peer."""

    __slots__ = ("_caller", "_codec", "_outbox", "_shared", "_transit", "_works")

    def __init__(self, codec: Codec, outbox: Outbox, shared: Shared, caller: Caller, transit: Transit) -> None:
        self._works: dict[trio.CancelScope, None] = {}
        self._codec = codec
        self._outbox = outbox
        self._shared = shared
        self._caller = caller
        self._transit = transit

    @property
    def in_work(self) -> int:
        """Calls whose handler is waiting for something."""
        return len(self._works)

    def abandon(self) -> None:
        """The connection is over: nobody waits for the answers any more."""
        for scope in self._works:
            scope.cancel()

    def on_call(self, body: bytes) -> None:
        """Answer a call at once, or give it a task that will.

        Raises:
            MalformedMessage: not even its envelope can be read.
        """
        call, shared = self._codec.decode_call(body), self._shared
        shared.stats.calls_received += 1
        late_s = 0.0 if call.sent_ms is None else self._transit.late_s(call.sent_ms, trio.current_time())
        try:
            if isinstance(call.request, ChordError):
                raise call.request
            if self._outbox.buffered > self._outbox.bytes_max:
                raise Overloaded(f"{self._outbox.buffered} bytes of answers wait for you to read them")
            answer = shared.handler(call.vnode, call.request, self._caller)
            if isinstance(answer, Reply):
                self._outbox.post(self._codec.encode_reply(call.call_id, answer))
                return
            budget_s = call.budget_ms / 1000 - late_s
            self._admit(answer, len(body), budget_s)
        except Exception as error:
            self._post_error(call, self._answer_to(call, error))
            return
        scope = trio.CancelScope(relative_deadline=budget_s)
        self._works[scope] = None
        shared.calls_in_work += 1
        shared.bytes_in_work += len(body)
        shared.start_task(self._work, call, answer, scope, len(body), name="answer")

    async def _work(
        self, call: Call, answer: Coroutine[Any, Any, Reply], scope: trio.CancelScope, body_bytes: int
    ) -> None:
        """See an answer through that has to wait. The caller's budget ends it, or the connection's end."""
        shared = self._shared
        try:
            with scope:
                reply = await answer
                await self._outbox.wait_for_room()
                self._outbox.post(self._codec.encode_reply(call.call_id, reply))
            if scope.cancelled_caught:
                self._post_error(call, DeadlineExceeded("the caller's budget was used up"))
        except Exception as error:
            self._post_error(call, self._answer_to(call, error))
        finally:
            del self._works[scope]
            shared.calls_in_work -= 1
            shared.bytes_in_work -= body_bytes
            if self._works:
                self._outbox.flush_soon()  # others are nearly done as well: their answers leave together
            else:
                self._outbox.flush_and_tell()
            shared.settled.unpark_all()

    def _admit(self, answer: Coroutine[Any, Any, Reply], body_bytes: int, budget_s: float) -> None:
        """Refuse to begin with an answer beyond the limits, or when its caller has given up. What needs no waiting is
        answered all the same.
        """
        shared, limits = self._shared, self._shared.limits
        if len(self._works) >= limits.calls_per_connection_max:
            excess = f"{len(self._works)} calls of this connection are in work"
        elif shared.calls_in_work >= limits.calls_max:
            excess = f"{shared.calls_in_work} calls are in work"
        elif shared.bytes_in_work + body_bytes > limits.inflight_bytes_max:
            excess = f"{shared.bytes_in_work} bytes of calls are in work"
        elif budget_s <= 0:
            answer.close()
            raise Busy("the call was on its way for longer than its budget")
        else:
            return
        answer.close()
        raise Overloaded(excess)

    def _post_error(self, call: Call, error: ChordError) -> None:
        self._outbox.post_small(self._codec.encode_error(call.call_id, error))

    def _answer_to(self, call: Call, error: Exception) -> ChordError:
        """Return what to tell the caller of a call that failed."""
        if isinstance(error, ChordError):
            return retold(error)
        where = type(call.request).__name__
        self._shared.observe(HandlerFailed(where, "".join(traceback.format_exception(error))))
        return RemoteFailure(f"{where} failed: {type(error).__name__}")
