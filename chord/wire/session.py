"""The calling side of the RPC protocol without I/O: from handshake to goodbye.

Bytes go in and bytes come out. Times are arguments.

- `Handshake`: the peer's first frame, and the rules that both hellos must keep.
- `OpenCalls`: the calls of one stream, and the replies that belong to them.
- `ClientStream`: a client's stream to a node, from the hello to the goodbye.

`chord.net` drives the first two for nodes and the Trio client. The blocking client and the asyncio client drive
`ClientStream`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from typing import TypeAlias

import msgspec

from chord.config import PROTOCOL_VERSION, Limits
from chord.errors import ChordError, InvalidRequest, MalformedMessage, OtherRing, PeerLost, PeerUnreachable, UseBulk
from chord.ids import BITS_MIN, Circle, Point
from chord.wire.codec import (
    PREFIX_BYTES,
    REFUSED_CALL_ID,
    Codec,
    FrameKind,
    Frames,
    codec_for,
    cut_in,
    decode_hello,
    decode_refusal,
    encode_hello,
    is_goodbye,
    open_envelope,
)
from chord.wire.cuts import CutNumber
from chord.wire.messages import Hello, Reply, Request, StreamName

OnReply: TypeAlias = Callable[[Reply | ChordError], object]
"""Callback that gets the outcome of a call, exactly once. It must not raise."""


class Handshake:
    """The peer's first frame on a new stream, and the rules for both hellos.

    Args:
        limits: the largest sizes of frames.
        hello_bytes_max: largest body of the first frame in bytes; None: the largest body of a control stream.

    Attributes:
        frames: cuts the stream into frames, also after the handshake.
        early: the kind and the body of each frame that arrived together with the end of the hello.
    """

    __slots__ = ("_limits", "early", "frames")

    def __init__(self, limits: Limits, hello_bytes_max: int | None = None) -> None:
        self.frames = Frames(hello_bytes_max or limits.frame_control_bytes_max, limits.frame_items_max)
        self.early: list[tuple[FrameKind, bytes]] = []
        self._limits = limits

    def receive(self, data: bytes | bytearray) -> Hello | ChordError | None:
        """Take bytes from the stream.

        Returns:
            The peer's hello, or the error with which the peer refuses the connection; None until either is complete.

        Raises:
            MalformedMessage: the first frame is neither a hello nor a refusal.
        """
        frames = self.frames.feed(data)
        if not frames:
            return None
        (kind, body), *self.early = frames
        if kind is FrameKind.ERROR:
            return decode_refusal(body)
        if kind is not FrameKind.HELLO:
            raise MalformedMessage("the first frame is not a hello")
        return decode_hello(body)

    def agree(self, mine: Hello, peer: Hello) -> None:
        """Check that both hellos fit together, and set the frame limit of the stream.

        Raises:
            MalformedMessage: the peer answers for another kind of stream.
            OtherRing: the two sides have no common version of the protocol.
        """
        if peer.stream != mine.stream:
            raise MalformedMessage(f"asked for a {mine.stream} stream, was given {peer.stream}")
        if min(mine.version_max, peer.version_max) < max(mine.version_min, peer.version_min):
            raise OtherRing(
                f"no common version of the protocol: {mine.version_min} to {mine.version_max} here, "
                f"{peer.version_min} to {peer.version_max} there"
            )
        limits = self._limits
        self.frames.limit = limits.frame_bulk_bytes_max if peer.stream == "bulk" else limits.frame_control_bytes_max


class Waiting(msgspec.Struct, eq=False):
    """A call that has no reply yet.

    Attributes:
        callback: gets the reply or the error.
        asked: the type of the request.
        sent_at: when the request was sent, in seconds on the clock of the user of `OpenCalls`.
    """

    callback: OnReply
    asked: type[Request]
    sent_at: float


def _ignore(call_id: int) -> None:
    """Do nothing when a call ends."""


class OpenCalls:
    """The calls of one stream that have no reply yet.

    Args:
        codec: encodes the calls and decodes the replies.
        cuts: the number of the newest cut that this side knows. Replies may bring higher numbers.
        on_end: called with the id of each call that a frame or `take` ends, for example to clear the deadline of the
            call.
        carries_cuts: whether the calls carry the number of the newest cut, because the peer takes it.

    Attributes:
        waiting: the calls without a reply, by id.
    """

    __slots__ = ("_carries_cuts", "_codec", "_cuts", "_last_id", "_on_end", "waiting")

    def __init__(
        self, codec: Codec, cuts: CutNumber, on_end: Callable[[int], None] = _ignore, *, carries_cuts: bool
    ) -> None:
        self.waiting: dict[int, Waiting] = {}
        self._codec = codec
        self._cuts = cuts
        self._carries_cuts = carries_cuts
        self._on_end = on_end
        self._last_id = 0

    def encode(
        self, vnode: Point | None, request: Request, budget_s: float, sent_s: float
    ) -> tuple[int, bytes]:
        """Give a new call an id; return the id and the frame to send.

        The caller of this method adds the call to `waiting`.

        Args:
            vnode: the id of the vnode to call; None: the node.
            request: the request.
            budget_s: the time until the deadline of the call, in seconds.
            sent_s: the time since the stream was opened, in seconds.
        """
        self._last_id = call_id = self._last_id + 1
        # Not less than is left: the caller's own deadline must pass before the peer reports that it passed.
        budget_ms = math.ceil(budget_s * 1000)
        cut = self._cuts.number if self._carries_cuts else 0
        return call_id, self._codec.encode_call(call_id, vnode, budget_ms, request, int(1000 * sent_s), cut)

    def take(self, call_id: int) -> Waiting | None:
        """Remove a call from `waiting`, and return it; None if it has already ended. A later reply is ignored.

        The callback of the call does not run. `on_end` is called, also for a call that has already ended.
        """
        self._on_end(call_id)
        return self.waiting.pop(call_id, None)

    def on_reply(self, body: bytes) -> Waiting | None:
        """End the call that a reply frame answers: run its callback with the reply.

        If the reply is not of the expected type, the callback gets `MalformedMessage`. If the caller has given up the
        call, nothing happens.

        Args:
            body: the body of the frame.

        Returns:
            The call that has ended; None if the caller had given it up.

        Raises:
            MalformedMessage: the envelope cannot be read. The stream is of no further use.
        """
        envelope = open_envelope(body, 2)
        call_id, content, *_ = envelope
        self._cuts.see(cut_in(envelope, 2))  # before the callback
        waiting = self.waiting.pop(call_id, None)
        if waiting is None:
            return None  # too late: the caller gave up
        self._on_end(call_id)
        outcome: Reply | ChordError
        try:
            outcome = self._codec.finish(content, waiting.asked.reply)
        except MalformedMessage as error:
            outcome = error
        waiting.callback(outcome)
        return waiting

    def on_error(self, body: bytes) -> ChordError | Waiting | None:
        """End the call that an error frame answers: run its callback with the error.

        Args:
            body: the body of the frame.

        Returns:
            The error, if the peer refuses the whole connection with it. Otherwise the call that has ended; None if the
                caller had given it up.

        Raises:
            MalformedMessage: the frame cannot be read. The stream is of no further use.
        """
        call_id, error = self._codec.decode_error(body)
        self._cuts.see(cut_in(open_envelope(body, 2), 2))  # before the callback
        if call_id == REFUSED_CALL_ID:
            return error
        if waiting := self.take(call_id):
            waiting.callback(error)
        return waiting

    def end(self, error: Callable[[], ChordError]) -> None:
        """End every call in `waiting`: run its callback with an error.

        `on_end` is not called.

        Args:
            error: makes the error, once for each call.
        """
        waiting, self.waiting = self.waiting, {}
        for each in waiting.values():
            each.callback(error())


class ClientStream:
    """A client's stream to a node: from its hello to the node's goodbye.

    Args:
        address: the node's address, for error messages.
        name: the kind of stream, control or bulk.
        limits: the largest sizes of frames.
        cuts: the number of the newest cut that the client knows.

    Attributes:
        hello_bytes: the bytes to send first, with the client's hello.
        hello: the node's hello; None until it has arrived.
        is_draining: the node said goodbye. Open calls get their replies, and the stream takes no new calls.
    """

    def __init__(self, address: str, name: StreamName, limits: Limits, cuts: CutNumber) -> None:
        self.address = address
        self.hello: Hello | None = None
        self.is_draining = False
        self._mine = Hello(PROTOCOL_VERSION, PROTOCOL_VERSION, "client", name, cuts=True)
        self._cuts = cuts
        self.hello_bytes = encode_hello(self._mine)
        self._handshake = Handshake(limits)
        self._calls: OpenCalls | None = None
        self._opened_at = 0.0
        size = limits.bulk_from_bytes if name == "control" else limits.frame_bulk_bytes_max
        self._frame_bytes_max = PREFIX_BYTES + size

    def is_waiting(self, call_ids: Set[int] | None = None) -> bool:
        """Return whether any call still waits for its reply.

        Args:
            call_ids: the ids of the calls that count; None: all calls.
        """
        waiting = self._calls.waiting if self._calls else {}
        return bool(waiting) if call_ids is None else not call_ids.isdisjoint(waiting)

    def call(
        self, vnode: Point | None, request: Request, budget_s: float, now: float, callback: OnReply
    ) -> tuple[int, bytes]:
        """Begin a call, after the hello has arrived. The caller sends the returned bytes.

        Args:
            vnode: the id of the vnode to call; None: the node.
            request: the request.
            budget_s: the time until the deadline of the call, in seconds; at least 1 ms is sent. This object does not
                end the call at its deadline.
            now: the current time, in seconds on the clock that `receive` also gets.
            callback: gets the reply or the error.

        Returns:
            The id of the call, for `give_up`, and the bytes to send.

        Raises:
            UseBulk: the request is too large for a control stream; the caller must send nothing.
            InvalidRequest: the request is too large for any stream; the caller must send nothing.
        """
        assert self._calls is not None
        call_id, frame = self._calls.encode(vnode, request, max(0.001, budget_s), now - self._opened_at)
        if len(frame) > self._frame_bytes_max:
            if self._mine.stream == "control":
                raise UseBulk
            raise InvalidRequest(f"message of {len(frame)} bytes; the limit is {self._frame_bytes_max}")
        self._calls.waiting[call_id] = Waiting(callback, type(request), now)
        return call_id, frame

    def give_up(self, call_id: int, error: ChordError | None = None) -> None:
        """Stop waiting for a reply; a late reply is ignored.

        The node does not learn of this, so the call may still take effect.

        Args:
            call_id: the id of the call. Nothing happens if the call has ended.
            error: the outcome that the callback gets, an indefinite error; None: no callback is made.
        """
        waiting = self._calls.take(call_id) if self._calls else None
        if waiting is not None and error is not None:
            waiting.callback(error)

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes from the node, and run the callbacks of the calls that they answer.

        Args:
            data: the bytes.
            now: the current time, in seconds on the clock that `call` also gets.

        Raises:
            ChordError: the node refuses the client, or does not keep the protocol. The stream is of no further use.
        """
        frames = self._shake_hands(data, now) if self._calls is None else self._handshake.frames.feed(data)
        calls = self._calls
        for kind, body in frames:
            assert calls is not None
            if kind is FrameKind.REPLY:
                calls.on_reply(body)
            elif kind is FrameKind.ERROR:
                if isinstance(refusal := calls.on_error(body), ChordError):
                    raise PeerLost(f"refused by the peer: {refusal.message}")
            elif kind is FrameKind.HELLO:
                raise MalformedMessage("a second hello")
            elif kind is FrameKind.CAST and is_goodbye(body):
                self.is_draining = True

    def _shake_hands(self, data: bytes, now: float) -> list[tuple[FrameKind, bytes]]:
        """Return the frames behind the hello; none before the hello is complete."""
        peer: Hello | ChordError | None
        try:
            peer = self._handshake.receive(data)
            if peer is None:
                return []
            if isinstance(peer, Hello):
                self._handshake.agree(self._mine, peer)
            if isinstance(peer, Hello) and (peer.role != "node" or peer.bits < BITS_MIN):
                raise MalformedMessage(f"its hello is that of a {peer.role} with a circle of {peer.bits} bits")
        except MalformedMessage as error:
            raise MalformedMessage(f"the program at {self.address} is not a chord node ({error.message})") from None
        except OtherRing as error:
            raise OtherRing(f"{self.address}: {error.message}") from None
        if isinstance(peer, ChordError):
            raise peer
        self._calls = OpenCalls(codec_for(Circle(peer.bits)), self._cuts, carries_cuts=peer.cuts)
        self.hello, self._opened_at = peer, now
        return self._handshake.early

    def unreachable(self, why: str = "connected, but received no hello", *, is_late: bool = False) -> PeerUnreachable:
        """Return the error for a stream that ends before the node's hello.

        Args:
            why: the reason, as a part of the message.
            is_late: whether the caller's deadline has passed.
        """
        message = f"no answer from {self.address} ({why})"
        return PeerUnreachable(message, is_late=is_late, is_taken=True)

    def end(self, why: str) -> None:
        """End every open call with `PeerLost`, because the stream is lost.

        The calls may have taken effect.

        Args:
            why: the reason, as a part of the message.
        """
        if self._calls is not None:
            self._calls.end(lambda: PeerLost(f"the connection to {self.address} was lost ({why})"))
