"""One connection after its handshake, with calls in both directions.

The design follows the costs on this stack, the largest first (docs/explanation/performance.md has the figures):

* Handlers run inline in the reader. A handler gets a task only if it waits for more than the answers of other nodes.
* All answers to one read leave in one write. All calls made in one pass of the scheduler leave together.
* The reader wakes callers directly. One task per `Rpc` sweeps the deadlines, in place of a cancel scope for each call.
* `SendBuffer` tries each write at once, before anything waits, if the stream supports that.

The reader never waits for the writer. Otherwise two peers that flood each other, and read only after writing, would
deadlock. If too many answers wait for a peer, its next requests are refused. If the peer still does not read, the
connection is cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

import outcome
import trio

from chord.errors import ChordError, DeadlineExceeded, MalformedMessage, Overloaded, PeerLost, PeerUnreachable
from chord.events import DRAINED, ConnectionClosed, ConnectionOpened
from chord.ids import Point
from chord.net.calls import Callback, Caller
from chord.net.context import RpcContext
from chord.net.handshake import RECEIVE_BYTES, Met, wait_for_end
from chord.net.inbound import InboundCalls
from chord.net.one_way_delay import OneWayDelay
from chord.net.send_buffer import SendBuffer
from chord.net.timers import Deadlines
from chord.net.transport import Stream, pipe_of
from chord.observe.metrics import CallOutcome
from chord.wire.codec import GOODBYE, Codec, FrameKind, encode_refusal, is_goodbye
from chord.wire.messages import Reply, Request, StreamName
from chord.wire.session import OpenCalls, Waiting

BUDGET_S_MAX: Final = 86_400.0
"""Budget of a call that has no deadline, in seconds: one day."""

FLUSH_FRAMES: Final = 16
"""Number of received frames after which the answers so far are sent, even if the read brought further frames.

Otherwise two nodes that wait for each other's whole batches would keep only one processor busy between them.
"""


class Registry(Protocol):
    """The connections that are used for new calls."""

    def forget(self, link: Connection) -> None:
        """Make no new calls on a connection, because it drains or has ended."""


class Connection:
    """A connection to one peer after its handshake, with calls in both directions.

    Args:
        stream: the stream of bytes.
        met: the hellos of both sides.
        codec: encodes and decodes the messages.
        shared: the state that all connections of this node share.
        is_dialled: see the attribute.
        registry: learns when the connection begins to drain, and when it ends.

    Attributes:
        address: the peer's advertised address; "" if the peer is a client.
        stream_name: "control" or "bulk".
        is_dialled: whether this node opened the connection.
        dialler: the address of the node that opened the connection; "" if a client opened it.
        opened_at: when the handshake ended, on Trio's clock.
        is_draining: this node makes no new calls here. The connection closes after the last answer.
        has_ended: the connection carries nothing any more.
        reason: why the connection ended; "" until then.
        frame_due: the time by which an unfinished frame must be complete, on Trio's clock; infinity if no frame is
            unfinished. A frame is unfinished if only a part of it has arrived.
        partial_bytes: the number of bytes received of the unfinished frame.
    """

    __slots__ = (
        "_alarm", "_answers", "_calls", "_deadlines", "_early", "_frames", "_meters", "_peer_is_draining", "_pipe",
        "_quiet_due", "_reading", "_registry", "_send_buffer", "_shared", "_stats", "_stream", "_was_used", "address",
        "dialler", "frame_due", "has_ended", "is_dialled", "is_draining", "opened_at", "partial_bytes", "reason",
        "stream_name",
    )  # fmt: skip

    def __init__(
        self,
        stream: Stream,
        met: Met,
        codec: Codec,
        shared: RpcContext,
        *,
        is_dialled: bool,
        registry: Registry,
    ) -> None:
        self.address = met.peer.address if met.peer.role == "node" else ""
        self.stream_name: StreamName = met.mine.stream
        self.is_dialled = is_dialled
        self.dialler = met.mine.address if is_dialled else met.peer.address
        self.opened_at = trio.current_time()
        self.is_draining = False
        self.has_ended = False
        self.reason = ""
        self._stream = stream
        self._shared = shared
        self._stats = shared.stats
        self._meters = shared.meters
        self._alarm = shared.alarm
        self._registry = registry
        self._frames = met.handshake.frames
        self.partial_bytes = 0
        self._early: Sequence[tuple[FrameKind, bytes]] = met.handshake.early
        self._reading = trio.CancelScope()
        self._deadlines: Deadlines[int] = Deadlines()
        self._calls = OpenCalls(codec, shared.cuts, self._deadlines.clear, carries_cuts=met.peer.cuts)
        self._peer_is_draining = False
        self._was_used = False
        self._quiet_due = self.opened_at + shared.limits.idle_s
        self.frame_due = math.inf
        self._pipe = pipe_of(stream)
        self._send_buffer = SendBuffer(self._pipe, met.mine.stream, shared, self)
        caller, one_way_delay = Caller(self.address), OneWayDelay(self.opened_at)
        self._answers = InboundCalls(
            codec, self._send_buffer, shared, caller, one_way_delay, carries_cuts=met.peer.cuts
        )

    # -- calls ----------------------------------------------------------------------------------

    async def call(self, vnode: Point | None, request: Request, deadline: float) -> Reply:
        """Send a request, and return its reply.

        Args:
            vnode: the id of the called vnode of the peer; None for the peer itself.
            request: the request.
            deadline: the latest time for the reply, on Trio's clock.

        Raises:
            UseBulk: the request or its reply does not fit the control stream; send it again on the bulk stream.
            ChordError: see `Calls.call`.
        """
        now = trio.current_time()
        left = deadline - now
        if request.patient or left == math.inf:  # not for others: this costs more than encoding them
            left = min(left, trio.current_effective_deadline() - now, BUDGET_S_MAX)
        if left <= 0:
            await trio.lowlevel.checkpoint()
            raise DeadlineExceeded("the deadline had passed before the call")
        if self._send_buffer.buffered > self._send_buffer.bytes_max:
            await self._wait_for_room(deadline)
        task = trio.lowlevel.current_task()

        def wake(answer: Reply | ChordError) -> None:
            trio.lowlevel.reschedule(task, outcome.Value(answer))

        call_id = self._send(vnode, request, wake, now, deadline, left)

        def abandon(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            self._calls.take(call_id)
            self._count_unanswered(type(request), "cancelled")
            return trio.lowlevel.Abort.SUCCEEDED

        answer: Reply | ChordError = await trio.lowlevel.wait_task_rescheduled(abandon)
        if isinstance(answer, Reply):
            return answer
        raise answer

    def begin(self, vnode: Point | None, request: Request, callback: Callback, deadline: float) -> bool:
        """Send a request, and call back with its reply or error; see `Calls.begin`.

        Args:
            vnode: the id of the called vnode of the peer; None for the peer itself.
            request: the request.
            callback: called once if the request was sent. It must not wait.
            deadline: the latest time for the reply, on Trio's clock.

        Returns:
            Whether the request was sent. It is not sent if the deadline has passed or the send buffer is full. Then the
                callback is not called.

        Raises:
            UseBulk: the request does not fit the control stream; nothing was sent.
        """
        now = trio.current_time()
        if deadline <= now or self._send_buffer.buffered > self._send_buffer.bytes_max:
            return False
        self._send(vnode, request, callback, now, deadline, min(deadline - now, BUDGET_S_MAX))
        return True

    def _send(
        self, vnode: Point | None, request: Request, callback: Callback, now: float, deadline: float, budget_s: float
    ) -> int:
        call_id, frame = self._calls.encode(vnode, request, budget_s, now - self.opened_at)
        self._send_buffer.post(frame)
        self._stats.calls_sent += 1
        if self._meters is not None:
            meter = self._meters[type(request)]
            meter.calls_sent += 1
            meter.bytes_sent += len(frame)
        waiting = self._calls.waiting
        if waiting:
            self._send_buffer.flush_soon()  # other calls are pending: all calls of this pass leave together
        else:
            self._send_buffer.flush()
        waiting[call_id] = Waiting(callback, type(request), now)
        if deadline < math.inf:
            self._deadlines.set(call_id, deadline)
            if deadline < self._alarm.at:
                self._alarm.by(deadline)
        return call_id

    async def _wait_for_room(self, deadline: float) -> None:
        """Wait until the peer has read enough of the send buffer.

        Raises:
            PeerUnreachable: the buffer is full at the deadline, or the connection drains or has ended; nothing was
                sent.
        """
        with trio.CancelScope(deadline=deadline):
            await self._send_buffer.wait_for_room()
        if self._send_buffer.buffered > self._send_buffer.bytes_max or self.is_draining or self.has_ended:
            raise PeerUnreachable(f"{self.address} does not read the bytes sent to it: {self.reason or 'no room'}")

    def _count_unanswered(self, asked: type[Request], how: CallOutcome) -> None:
        if self._meters is not None:
            self._meters.unanswered[asked, how] += 1

    @property
    def has_unsent(self) -> bool:
        """Whether the send buffer has bytes that the operating system has not taken yet."""
        return self._send_buffer.buffered > 0

    @property
    def quiet_rank(self) -> tuple[bool, float] | None:
        """A sort key by which the connection that has been idle for longest comes first.

        Its parts: whether the connection was used since the last check for idleness, and the time of the next check.
        The key is None while a call or an answer is pending or bytes wait to be sent. It is also None if the connection
        drains or has ended.
        """
        is_owed = self._calls.waiting or self._answers.in_work or self._send_buffer.buffered
        return None if is_owed or self.is_draining or self.has_ended else (self._was_used, self._quiet_due)

    # -- run and end ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry calls until the connection ends.

        If the peer breaks the protocol or the connection, the connection ends, and this method raises nothing.
        """
        shared = self._shared
        shared.running[self] = None
        shared.observe(ConnectionOpened(self.address, self.stream_name, self.is_dialled))
        self._alarm.by(self._quiet_due)
        try:
            with self._reading:
                try:
                    self._take(self._early)
                    self._early = ()
                    if self._frames.is_partial:
                        self._hold_partial(is_new=True)
                    while self._take_in(await self._pipe.receive_some(RECEIVE_BYTES)):
                        pass
                except trio.BrokenResourceError:
                    self.on_broken()
                except MalformedMessage as error:
                    await self._say_why(error)
                    self.cut(f"malformed: {error.message}")
        finally:
            self.cut("stopped")
            del shared.running[self]
            shared.idle.unpark_all()
            await trio.aclose_forcefully(self._stream)
            shared.observe(ConnectionClosed(self.address, self.reason))

    def drain(self) -> None:
        """Make no new calls here, and ask the peer to make none.

        The connection closes after the last answer.
        """
        if not self.is_draining and not self.has_ended:
            self.is_draining = True
            self._was_used, self._quiet_due = False, trio.current_time() + self._shared.limits.stuck_s
            self._alarm.by(self._quiet_due)
            self._registry.forget(self)
            self._send_buffer.post_small(GOODBYE)
            self._send_buffer.flush_soon()

    def cut(self, reason: str) -> None:
        """End the connection now; this node's pending calls fail with `PeerLost`.

        That error is indefinite. The pending calls of the peer get no answer. If the connection has ended, nothing
        happens.

        Args:
            reason: why the connection ends. Only the first reason counts.
        """
        if self.has_ended:
            return
        self.has_ended, self.reason = True, reason
        self._registry.forget(self)
        self._frames.drop()
        self._shared.hold(-self.partial_bytes)
        self.partial_bytes = 0
        for waiting in self._calls.waiting.values():
            self._count_unanswered(waiting.asked, "no_reply")
        self._calls.end(lambda: PeerLost(f"the connection to {self.address or 'the peer'} broke: {reason}"))
        self._send_buffer.close()
        self._answers.abandon()
        self._reading.cancel()

    def sweep(self, now: float) -> float:
        """End overdue calls and an overdue connection, and return when to sweep again.

        Overdue calls, of this node and of the peer, end in `DeadlineExceeded`, which is indefinite. The connection ends
        if a frame or a write takes too long. An idle connection begins to drain.

        Args:
            now: the current time on Trio's clock.

        Returns:
            The time of the next sweep on Trio's clock; infinity once the connection has ended.
        """
        limits = self._shared.limits
        for call_id in self._deadlines.expired(now):
            waiting = self._calls.waiting.pop(call_id, None)
            if waiting is None:
                continue  # the callback of the call before has ended the connection
            self._count_unanswered(waiting.asked, "no_reply")
            took = now - waiting.sent_at
            waiting.callback(DeadlineExceeded(f"no answer from {self.address} within {took:.3g} s"))
        if self.frame_due <= now:
            self.cut(f"a frame was not complete within {limits.frame_s:g} s")
        elif self._send_buffer.stuck_due <= now:
            self.cut(f"a write did not finish within {limits.stuck_s:g} s")
        elif self._quiet_due <= now:
            self._quiet_due = now + (limits.stuck_s if self.is_draining else limits.idle_s)
            if self._calls.waiting or self._answers.in_work or self._was_used:
                self._was_used = False
            elif self.is_draining:
                self.cut(DRAINED)
            else:
                self.drain()
        due = min(self._deadlines.next(), self._answers.sweep(now))
        return math.inf if self.has_ended else min(due, self._quiet_due, self.frame_due, self._send_buffer.stuck_due)

    def _close_if_drained(self) -> None:
        """End a draining connection if the peer drains too and nothing is pending."""
        if self._peer_is_draining and not (self._calls.waiting or self._answers.in_work or self._send_buffer.buffered):
            self.cut(DRAINED)

    def on_broken(self) -> None:
        """End this connection, because the stream broke."""
        self.cut("connection reset")

    def on_emptied(self) -> None:
        """Wake the tasks that wait for the end of all work, and end this connection if it has drained."""
        if self._shared.idle:
            self._shared.idle.unpark_all()
        if self.is_draining:
            self._close_if_drained()

    # -- reading --------------------------------------------------------------------------------

    def _take_in(self, data: bytes | bytearray) -> bool:
        """Handle the bytes of one read, and return whether to read on.

        Raises:
            MalformedMessage: the peer has violated the protocol.
        """
        if not data:
            whole = DRAINED if self.is_draining else "closed by the peer"
            self.cut("closed in the middle of a frame" if self._frames.is_partial else whole)
            return False
        self._was_used = True
        self._stats.bytes_received += len(data)
        frames = self._frames.feed(data)
        self._take(frames)
        if self._frames.is_partial or self.partial_bytes:
            self._hold_partial(is_new=bool(frames))
        if self.is_draining:
            self._close_if_drained()
        if self._send_buffer.buffered and self._send_buffer.is_overflowing:
            self.cut("the peer sends requests and does not read the answers")
        return True

    async def _say_why(self, error: MalformedMessage) -> None:
        self._send_buffer.post_small(encode_refusal(error))
        self._send_buffer.flush_soon()
        await self._send_buffer.wait_until_empty()
        with suppress(trio.BrokenResourceError):
            await wait_for_end(self._stream)

    def _hold_partial(self, *, is_new: bool) -> None:
        """Set or clear the deadline of an unfinished frame, and count its bytes.

        `is_new` says that the frame began with the latest read, so its deadline starts again.
        """
        if self.has_ended:
            return
        if not self._frames.is_partial:
            self.frame_due = math.inf
        elif is_new or self.frame_due == math.inf:
            self.frame_due = trio.current_time() + self._shared.limits.frame_s
            self._alarm.by(self.frame_due)
        change, self.partial_bytes = self._frames.partial_bytes - self.partial_bytes, self._frames.partial_bytes
        self._shared.hold(change)

    def cut_partial(self) -> None:
        """End the connection, because the unfinished frames of all connections take too many bytes.

        The peer gets the reason as an `Overloaded` error.
        """
        limit = self._shared.limits.partial_bytes_max
        error = Overloaded(f"more than {limit} bytes of unfinished frames are held here, and yours is the oldest")
        self._send_buffer.post_small(encode_refusal(error))
        self._send_buffer.flush()
        self.cut(error.message)

    def _take(self, frames: Sequence[tuple[FrameKind, bytes]]) -> None:
        """Handle all frames of one read, then write all answers at once."""
        now = trio.current_time()
        for number, (kind, body) in enumerate(frames, 1):
            if kind is FrameKind.CALL:
                self._answers.on_call(body, now)
            elif kind is FrameKind.REPLY:
                ended = self._calls.on_reply(body)
                if self._meters is not None and ended is not None:
                    meter = self._meters[ended.asked]
                    meter.bytes_received += len(body)
                    meter.latency.note(now - ended.sent_at)
            elif kind is FrameKind.ERROR:
                failed = self._calls.on_error(body)
                if isinstance(failed, ChordError):
                    self.cut(f"refused by the peer: {failed.message}")
                elif failed is not None:
                    self._count_unanswered(failed.asked, "error")
            elif kind is FrameKind.HELLO:
                raise MalformedMessage("a second hello")
            elif is_goodbye(body):
                self._peer_is_draining = True
                self.drain()
            if self.has_ended:
                return
            if not number % FLUSH_FRAMES:
                self._send_buffer.flush()
        if self._send_buffer.buffered:
            self._send_buffer.flush()
        if self._answers.served:
            self._answers.note_served(now)
