"""The inbound half of a connection: the peer's requests, and our answers.

The reader itself runs each handler. If a handler returns a reply at once, the reply leaves with the other answers to
the same read. If the answer takes a while, it counts against the limits until it is complete. An answer in steps needs
no task, and a coroutine gets one.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Generator
from functools import partial
from typing import Final

import trio

from chord.errors import Busy, ChordError, DeadlineExceeded, Overloaded, RemoteFailure, retold
from chord.events import HandlerFailed
from chord.net.calls import Answer, Caller, Work, discard
from chord.net.context import RpcContext
from chord.net.one_way_delay import OneWayDelay
from chord.net.send_buffer import SendBuffer
from chord.net.steps import Driver, Steps
from chord.net.timers import Deadlines
from chord.observe.metrics import Meter
from chord.wire.codec import Call, Codec
from chord.wire.messages import Reply, Request

TOO_LATE: Final = "the caller's deadline passed before the answer was ready"


class _Pending:
    """A call that is not answered yet, with the driver or the task that works on it."""

    __slots__ = ("began", "body_bytes", "call", "deadline", "driver", "is_for_client", "scope")

    def __init__(self, call: Call, body_bytes: int, began: float, deadline: float, *, is_for_client: bool) -> None:
        self.call = call
        self.began = began
        self.is_for_client = is_for_client
        self.body_bytes = body_bytes
        self.deadline = deadline
        self.driver: Driver[Reply] | None = None
        self.scope: trio.CancelScope | None = None  # of its task


class InboundCalls:
    """Answers the calls of one peer on one connection.

    Args:
        codec: decodes the calls and encodes the answers.
        send_buffer: takes the frames of the answers.
        shared: the state that all connections of this node share.
        caller: the peer.
        one_way_delay: measures how late each call arrives.
        carries_cuts: whether answers carry the number of the newest cut, because the peer takes it.

    Attributes:
        served: the meters of the calls of a client that were answered at once. `note_served` adds their durations and
            empties the list.
    """

    __slots__ = (
        "_caller",
        "_carries_cuts",
        "_codec",
        "_deadlines",
        "_is_beginning",
        "_one_way_delay",
        "_pending",
        "_send_buffer",
        "_shared",
        "served",
    )

    def __init__(
        self,
        codec: Codec,
        send_buffer: SendBuffer,
        shared: RpcContext,
        caller: Caller,
        one_way_delay: OneWayDelay,
        *,
        carries_cuts: bool,
    ) -> None:
        self._pending: dict[_Pending, None] = {}
        self._deadlines: Deadlines[_Pending] | None = None  # of the calls without a task; made for the first of them
        self.served: list[Meter] = []
        self._is_beginning = False
        self._codec = codec
        self._send_buffer = send_buffer
        self._shared = shared
        self._caller = caller
        self._one_way_delay = one_way_delay
        self._carries_cuts = carries_cuts

    @property
    def _cut(self) -> int:
        """The number of the newest cut for an answer; 0 if the peer does not take it."""
        return self._shared.cuts.number if self._carries_cuts else 0

    @property
    def in_work(self) -> int:
        """The number of calls of the peer that are not answered yet."""
        return len(self._pending)

    def abandon(self) -> None:
        """Give up all pending answers, because the connection is over.

        The peer gets no answer, so its error is indefinite. Tasks are cancelled. Steps go on, because a write that is
        stored here must also be replicated.
        """
        for pending in list(self._pending):
            if pending.scope is not None:
                pending.scope.cancel()
            elif pending.driver is not None:
                pending.driver.give_up()
                self._forget(pending)

    def sweep(self, now: float) -> float:
        """Answer the overdue calls with an error, and return the deadline of the next call.

        The error is `DeadlineExceeded`, which is indefinite: the steps of these calls go on. Calls with a task are left
        out: each task has its own deadline.

        Args:
            now: the current time on Trio's clock.

        Returns:
            The next deadline on Trio's clock; infinity if no call has one.
        """
        if self._deadlines is None:
            return math.inf
        for pending in self._deadlines.expired(now):
            if pending.driver is not None:
                pending.driver.give_up()
                self._post_error(pending.call, DeadlineExceeded(TOO_LATE))
                self._finish(pending)
        return self._deadlines.next()

    def on_call(self, body: bytes, now: float) -> None:
        """Answer a call, at once or when its answer is complete.

        Args:
            body: the body of the call's frame.
            now: when the frame was read, on Trio's clock. All frames of one read have the same time.

        Raises:
            MalformedMessage: the envelope of the call cannot be decoded.
        """
        call, shared = self._codec.decode_call(body), self._shared
        shared.cuts.see(call.cut)  # before the handler
        shared.stats.calls_received += 1
        late_s = self._one_way_delay.late_s(call.sent_ms, now)
        try:
            if isinstance(call.request, ChordError):
                raise call.request
            if self._send_buffer.buffered > self._send_buffer.bytes_max:
                raise Overloaded(f"{self._send_buffer.buffered} bytes of answers wait for you to read them")
            meter = None
            if shared.meters is not None:
                meter = shared.meters[type(call.request)]
                meter.calls_received += 1
                meter.bytes_received += len(body)
            answer = shared.handler(call.vnode, call.request, self._caller)
            if isinstance(answer, Reply):
                frame = self._codec.encode_reply(call.call_id, answer, self._cut)
                self._send_buffer.post(frame)
                if meter is not None:
                    meter.bytes_sent += len(frame)
                    if not self._caller.address:
                        self.served.append(meter)
                return
            budget_s = call.budget_ms / 1000 - late_s
            is_for_client = not self._caller.address or call.request.for_clients
            self._admit(answer, len(body), budget_s, is_for_client=is_for_client)
        except Exception as error:
            self._post_error(call, self._answer_to(call, error))
            return
        pending = _Pending(call, len(body), now, now + budget_s, is_for_client=is_for_client)
        self._pending[pending] = None
        shared.count_work(1, len(body), is_for_client=is_for_client)
        self._wait_for(pending, answer)

    def note_served(self, began: float) -> None:
        """Note a duration in each meter of `served`, and empty that list.

        The reader calls this after it has handled all frames of one read. They share one duration: from `began` to now.

        Args:
            began: when the handling of the read began, on Trio's clock.
        """
        took_s = trio.current_time() - began
        for meter in self.served:
            meter.served.note(took_s)
        self.served.clear()

    def _wait_for(self, pending: _Pending, answer: Steps[Reply] | Work) -> None:
        if not isinstance(answer, Generator):
            pending.scope = trio.CancelScope(deadline=pending.deadline)
            self._shared.tasks.start(self._work, pending, answer, pending.scope, name="answer")
            return
        pending.driver = Driver(answer)
        if self._deadlines is None:
            self._deadlines = Deadlines()
        self._deadlines.set(pending, pending.deadline)
        if pending.deadline < self._shared.alarm.at:
            self._shared.alarm.by(pending.deadline)
        self._is_beginning = True
        pending.driver.begin(partial(self._on_result, pending), pending.deadline)
        self._is_beginning = False

    def _on_result(self, pending: _Pending, result: Reply | Exception) -> None:
        pending.driver = None
        if isinstance(result, Reply) and self._send_buffer.buffered > self._send_buffer.bytes_max:
            if self._deadlines is not None:
                self._deadlines.clear(pending)
            self._wait_for(pending, _ready(result))  # a task waits until the send buffer has room
        else:
            self._post(pending, result)
            self._finish(pending)

    async def _work(self, pending: _Pending, work: Work, scope: trio.CancelScope) -> None:
        """Wait for an answer that needs a task, and send it.

        The task ends when the caller's budget is used up or the connection ends.
        """
        call = pending.call
        try:
            with scope:
                reply = await work
                await self._send_buffer.wait_for_room()
                self._post(pending, reply)
            if scope.cancelled_caught:
                self._post_error(call, DeadlineExceeded(TOO_LATE))
        except Exception as error:
            self._post_error(call, self._answer_to(call, error))
        finally:
            self._finish(pending)

    def _finish(self, pending: _Pending) -> None:
        """Forget a call that is answered, and let the answer leave."""
        self._forget(pending)
        if self._is_beginning:
            return  # the reader flushes it with the other answers to the same read
        if self._pending:
            self._send_buffer.flush_soon()  # other calls may be complete soon: their answers leave together
        else:
            self._send_buffer.flush_and_tell()

    def _forget(self, pending: _Pending) -> None:
        del self._pending[pending]
        if self._deadlines is not None:
            self._deadlines.clear(pending)
        self._shared.count_work(-1, -pending.body_bytes, is_for_client=pending.is_for_client)
        self._shared.idle.unpark_all()

    def _admit(self, answer: Answer, body_bytes: int, budget_s: float, *, is_for_client: bool) -> None:
        """Refuse a call that must wait, if it exceeds a limit or its deadline has passed.

        A request that is answered at once does not get here, so no limit applies to it. The limits of bytes also count
        this call's `body_bytes`.

        Raises:
            Overloaded: definite; the call exceeds a limit.
            Busy: definite; its deadline passed on the way, so `budget_s` is not positive.
        """
        shared, limits = self._shared, self._shared.limits
        if len(self._pending) >= limits.calls_per_connection_max:
            excess = f"{len(self._pending)} calls of this connection are in work"
        elif shared.calls_in_work >= limits.calls_max:
            excess = f"{shared.calls_in_work} calls are in work"
        elif shared.bytes_in_work + body_bytes > limits.inflight_bytes_max:
            excess = f"{shared.bytes_in_work} bytes of calls are in work"
        elif is_for_client and shared.client_calls_in_work >= limits.clients_share * limits.calls_max:
            excess = f"{shared.client_calls_in_work} calls of clients are in work"
        elif is_for_client and (
            shared.client_bytes_in_work + body_bytes > limits.clients_share * limits.inflight_bytes_max
        ):
            excess = f"{shared.client_bytes_in_work} bytes of calls of clients are in work"
        elif budget_s <= 0:
            discard(answer)
            raise Busy("the call came too late: its deadline had passed on the way")
        else:
            return
        discard(answer)
        raise Overloaded(excess)

    def _post(self, pending: _Pending, result: Reply | Exception) -> None:
        call = pending.call
        if isinstance(result, Reply):
            try:
                frame = self._codec.encode_reply(call.call_id, result, self._cut)
                self._send_buffer.post(frame)
                if self._shared.meters is not None and isinstance(call.request, Request):
                    meter = self._shared.meters[type(call.request)]
                    meter.bytes_sent += len(frame)
                    if not self._caller.address:
                        meter.served.note(trio.current_time() - pending.began)
                return
            except Exception as error:  # the reply is too large
                result = error
        self._post_error(call, self._answer_to(call, result))

    def _post_error(self, call: Call, error: ChordError) -> None:
        if self._shared.meters is not None and not self._caller.address and isinstance(call.request, Request):
            self._shared.meters.failed[type(call.request), error.word] += 1
        self._send_buffer.post_small(self._codec.encode_error(call.call_id, error, self._cut))

    def _answer_to(self, call: Call, error: Exception) -> ChordError:
        """Return the error that the caller receives.

        An exception that is not a `ChordError` is a bug. It becomes an event and a `RemoteFailure`.
        """
        if isinstance(error, ChordError):
            return retold(error)
        self._shared.stats.handler_failures += 1
        where = type(call.request).__name__
        self._shared.observe(HandlerFailed(where, "".join(traceback.format_exception(error))))
        return RemoteFailure(f"{where} failed: {type(error).__name__}")


async def _ready(reply: Reply) -> Reply:
    return reply
