"""Blocking sockets that speak the wire protocol.

A `Link` is one stream to one node.

Only the blocking client uses them. Every wait has a deadline on the monotonic clock. Connecting, handshake, sending and
receiving are separate steps. So a caller with many nodes can begin with all of them before it waits for any.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from time import monotonic
from typing import Literal

from chord.config import PROTOCOL_VERSION, Limits, to_dial
from chord.errors import ChordError, DeadlineExceeded, MalformedMessage, OtherRing, PeerLost, PeerUnreachable
from chord.ids import Circle, Point
from chord.wire.codec import Codec, Frames, Kind, codec_for, decode_hello, decode_refusal, encode_hello, is_goodbye
from chord.wire.messages import Hello, Reply, Request, StreamName

READ_BYTES = 1 << 16



class Link:
    """One stream to a node, from connecting to closing.

    Attributes:
        codec: the wire codec; None before the handshake.
        hello: the node's hello; None before the handshake.
        is_open: whether the stream takes new calls.
    """

    def __init__(self, address: str, kind: StreamName, limits: Limits) -> None:
        self.address = address
        self.kind: StreamName = kind
        self.hello: Hello | None = None
        self.codec: Codec | None = None
        self.is_open = False
        frame_bytes_max = limits.frame_bulk_bytes_max if kind == "bulk" else limits.frame_control_bytes_max
        self._frames = Frames(frame_bytes_max, limits.frame_items_max)
        self._arrived: list[tuple[Kind, bytes]] = []
        self._socket: socket.socket | None = None
        self._targets: list[tuple[socket.AddressFamily, object]] = []
        self._expected: dict[int, type[Reply]] = {}
        self._last_call_id = 0
        self._opened_at = 0.0  # end of the handshake, on the monotonic clock

    # -- opening: connect, handshake ------------------------------------------------------------------

    def dial(self) -> None:
        """Begin to connect, without waiting for the connection.

        If the host is a name, the call waits for the resolver.

        Raises:
            PeerUnreachable: the host is unknown or invalid, or the connection was refused at once.
        """
        host, port = to_dial(self.address)
        try:
            name = host.encode() if host.isascii() else host  # a str would import the IDNA codec
            found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise PeerUnreachable(f"{self.address}: the host is unknown ({error.strerror})", is_unknown=True) from None
        self._targets = [(family, target) for family, _, _, _, target in found]
        self._dial_next("no address")

    def _dial_next(self, reason: str) -> None:
        while self._targets:
            family, target = self._targets.pop(0)
            self._close_socket()
            try:
                self._socket = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:  # no file descriptor is left, or the machine lacks this address family
                reason = str(error.strerror).lower()
                continue
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = self._socket.connect_ex(target)  # type: ignore[arg-type]
            if code in (0, errno.EINPROGRESS):
                return
            reason = _words(code)
        self.close()
        raise PeerUnreachable(f"no answer from {self.address} ({reason})")

    def greet(self, deadline: float) -> None:
        """Wait for the connection, and send the hello.

        Raises:
            PeerUnreachable: the connection was refused, or not made in time.
        """
        while True:
            assert self._socket is not None
            if not self._wait("write", deadline):
                self.close()
                raise PeerUnreachable(f"no answer from {self.address} (no connection in time)", is_late=True)
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code == 0:
                break
            self._dial_next(_words(code))
        greeting = Hello(PROTOCOL_VERSION, PROTOCOL_VERSION, "client", self.kind)
        try:
            self._send(encode_hello(greeting), deadline)
        except (DeadlineExceeded, PeerLost) as error:
            self.close()
            raise PeerUnreachable(f"no answer from {self.address} ({error.message})") from None

    def hear_greeting(self, deadline: float) -> Hello:
        """Wait for the node's hello. After it, calls can be made.

        Raises:
            ChordError: the node refused the client, or does not speak the protocol.
            PeerUnreachable: no hello came in time, or the stream broke; no request was sent.
        """
        try:
            kind, body = self._next_frame(deadline)
            refusal = decode_refusal(body) if kind is Kind.ERROR else None
            if kind not in (Kind.HELLO, Kind.ERROR):
                raise MalformedMessage("its first frame is not a hello")
            hello = decode_hello(body) if refusal is None else None
        except (DeadlineExceeded, PeerLost) as error:
            self.close()
            is_late = isinstance(error, DeadlineExceeded)
            why = "connected, but received no hello" if is_late else error.message
            raise PeerUnreachable(f"no answer from {self.address} ({why})", is_late=is_late, is_taken=True) from None
        except MalformedMessage as error:
            self.close()
            raise MalformedMessage(f"the program at {self.address} is not a chord node ({error.message})") from None
        if hello is None:
            self.close()
            assert refusal is not None
            raise refusal
        if not hello.version_min <= PROTOCOL_VERSION <= hello.version_max:
            self.close()
            raise OtherRing(
                f"{self.address} speaks versions {hello.version_min} to {hello.version_max}, not {PROTOCOL_VERSION}"
            )
        if hello.stream != self.kind or hello.role != "node":
            self.close()
            raise MalformedMessage(f"{self.address} answered a {self.kind} stream as a {hello.role}'s {hello.stream}")
        self.hello, self.codec, self.is_open = hello, codec_for(Circle(hello.bits)), True
        self._opened_at = monotonic()
        return hello

    # -- calls ----------------------------------------------------------------------------------------

    def send(self, request: Request, vnode: Point | None, deadline: float) -> int:
        """Send a call. Returns its id, for `receive`.

        Raises:
            PeerLost: the stream broke; the call may have arrived.
            DeadlineExceeded: the node does not take the bytes; the call may have arrived.
        """
        assert self.codec is not None
        self._last_call_id += 1
        budget_ms = max(1, int((deadline - monotonic()) * 1000))
        sent_ms = int((monotonic() - self._opened_at) * 1000)
        frame = self.codec.encode_call(self._last_call_id, vnode, budget_ms, request, sent_ms)
        self._expected[self._last_call_id] = request.reply
        try:
            self._send(frame, deadline)
        except DeadlineExceeded:
            self.close()  # part of a frame may be sent: the stream cannot be used any more
            raise
        except PeerLost as error:
            self.close()
            raise PeerLost(f"the connection to {self.address} was lost ({error.message})") from None
        return self._last_call_id

    def receive(self, waiting: set[int], deadline: float) -> dict[int, Reply | ChordError]:
        """Wait for the outcome of every waiting call.

        A call without a reply ends in an error at the deadline, or if the stream breaks.
        """
        outcomes: dict[int, Reply | ChordError] = {}
        try:
            while waiting - outcomes.keys():
                call_id, outcome = self._next_outcome(deadline)
                if call_id in waiting:  # otherwise a late reply to an abandoned call
                    outcomes[call_id] = outcome
        except DeadlineExceeded as error:
            outcomes.update(dict.fromkeys(waiting - outcomes.keys(), error))
        except (PeerLost, MalformedMessage) as error:  # calls on a broken stream may have taken effect
            self.close()
            lost = PeerLost(f"the connection to {self.address} was lost ({error.message})")
            outcomes.update(dict.fromkeys(waiting - outcomes.keys(), lost))
        for call_id in waiting:
            self._expected.pop(call_id, None)
        return outcomes

    def _next_outcome(self, deadline: float) -> tuple[int, Reply | ChordError]:
        assert self.codec is not None
        while True:
            kind, body = self._next_frame(deadline)
            if kind is Kind.REPLY:
                call_id, content = self.codec.open_reply(body)
                expected = self._expected.get(call_id)
                if expected is None:
                    continue
                try:
                    return call_id, self.codec.finish(content, expected)
                except MalformedMessage as error:
                    return call_id, error
            if kind is Kind.ERROR:
                return self.codec.decode_error(body)
            if kind is Kind.CAST and is_goodbye(body):
                self.is_open = False

    def is_usable(self) -> bool:
        """Return whether the stream takes a new call: open, and no goodbye has come since."""
        if not self.is_open:
            return False
        try:
            while self._wait("read", 0.0):
                self._read()
            for kind, body in self._arrived:
                if kind is Kind.CAST and is_goodbye(body):
                    self.is_open = False
        except ChordError:
            self.close()
        return self.is_open

    def close(self) -> None:
        """Close the stream. Repeated calls do nothing."""
        self.is_open = False
        self._close_socket()

    # -- bytes ------------------------------------------------------------------------------------------

    def _next_frame(self, deadline: float) -> tuple[Kind, bytes]:
        while not self._arrived:
            if not self._wait("read", deadline):
                raise DeadlineExceeded(f"no answer from {self.address} in time")
            self._read()
        return self._arrived.pop(0)

    def _read(self) -> None:
        if self._socket is None:
            raise PeerLost("it is closed")
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise PeerLost(str(error.strerror).lower()) from None
        if not data:
            raise PeerLost("it was closed")
        self._arrived += self._frames.feed(data)

    def _send(self, data: bytes, deadline: float) -> None:
        rest = memoryview(data)
        while rest:
            if self._socket is None or not self._wait("write", deadline):
                raise DeadlineExceeded(f"{self.address} does not take more bytes")
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise PeerLost(str(error.strerror).lower()) from None

    def _wait(self, event: Literal["read", "write"], deadline: float) -> bool:
        if self._socket is None:
            return False
        poll = select.poll()  # select() fails beyond 1024 open files
        poll.register(self._socket, select.POLLIN if event == "read" else select.POLLOUT)
        return bool(poll.poll(max(0.0, deadline - monotonic()) * 1000))

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _words(code: int) -> str:
    return os.strerror(code).lower()
