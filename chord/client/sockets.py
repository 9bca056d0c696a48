"""Blocking sockets that speak the wire protocol.

A `Link` is one stream to one node. Only the blocking client uses links. Every wait has a deadline on the monotonic
clock. Connecting, handshake, sending and receiving are separate steps. So a caller with many nodes can begin with all
of them before it waits for any.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from time import monotonic
from typing import Literal

from chord.client.session import out_of_files
from chord.config import Limits, to_dial
from chord.errors import ChordError, DeadlineExceeded, MalformedMessage, PeerLost, PeerUnreachable
from chord.ids import Point
from chord.wire.cuts import CutNumber
from chord.wire.messages import Hello, Request, StreamName
from chord.wire.session import ClientStream, OnReply

READ_BYTES = 1 << 16


class Link:
    """A connection of the blocking client: one stream to one node, from connecting to closing.

    Args:
        address: HOST:PORT of the node.
        kind: the stream: "control" or "bulk".
        limits: the sizes of frames.
        cuts: the number of the newest cut that the client knows.

    Attributes:
        address: as above.
        is_open: whether the handshake is done, and the stream is not closed.
    """

    def __init__(self, address: str, kind: StreamName, limits: Limits, cuts: CutNumber) -> None:
        self.address = address
        self.is_open = False
        self._stream = ClientStream(address, kind, limits, cuts)
        self._socket: socket.socket | None = None
        self._targets: list[tuple[socket.AddressFamily, object]] = []

    # -- opening: connect, handshake ------------------------------------------------------------------

    def dial(self) -> None:
        """Begin to connect, and return before the connection is made.

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
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self.close()
                    raise out_of_files(self.address) from None
                # The machine lacks this address family.
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

    def send_hello(self, deadline: float) -> None:
        """Wait until the connection is made, and send the client's hello.

        Args:
            deadline: the time limit, in seconds on the monotonic clock.

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
        try:
            self._send(self._stream.hello_bytes, deadline)
        except (DeadlineExceeded, PeerLost) as error:
            self.close()
            raise PeerUnreachable(f"no answer from {self.address} ({error.message})") from None

    def receive_hello(self, deadline: float) -> Hello:
        """Wait for the node's hello, and return it. Calls are possible from then on.

        Args:
            deadline: the time limit, in seconds on the monotonic clock.

        Raises:
            ChordError: the node refused the client, or does not speak the protocol.
            PeerUnreachable: no hello came in time, or the stream broke; no request was sent.
        """
        try:
            while (hello := self._stream.hello) is None:
                self._receive(deadline)
        except (DeadlineExceeded, PeerLost) as error:
            self.close()
            if isinstance(error, DeadlineExceeded):
                raise self._stream.unreachable(is_late=True) from None
            raise self._stream.unreachable(error.message) from None
        except ChordError:
            self.close()
            raise
        self.is_open = True
        return hello

    # -- calls ----------------------------------------------------------------------------------------

    def send(self, request: Request, vnode: Point | None, deadline: float, callback: OnReply) -> int:
        """Send a request, and return the id of the call for `wait`.

        Args:
            request: the request.
            vnode: the point of the vnode to call; None: the node itself.
            deadline: the time limit for sending, in seconds on the monotonic clock.
            callback: called with the outcome, during `wait` or a later call on this link. It is not called if this
                method raises.

        Raises:
            UseBulk: the request is too large for a control stream; nothing was sent.
            PeerLost: the stream broke; the call may have arrived.
            DeadlineExceeded: the node does not take the bytes; the call may have arrived.
        """
        now = monotonic()
        call_id, frame = self._stream.call(vnode, request, deadline - now, now, callback)
        try:
            self._send(frame, deadline)
        except (DeadlineExceeded, PeerLost) as error:
            self._stream.give_up(call_id)
            self.close()  # part of a frame may be sent: the stream cannot be used any more
            if isinstance(error, DeadlineExceeded):
                raise
            raise PeerLost(f"the connection to {self.address} was lost ({error.message})") from None
        return call_id

    def wait(self, call_ids: set[int], deadline: float) -> None:
        """Wait until every one of these calls has ended.

        A call without a reply ends in `DeadlineExceeded` at the deadline, and in `PeerLost` if the stream breaks. Both
        are indefinite.

        Args:
            call_ids: the ids that `send` returned.
            deadline: the time limit, in seconds on the monotonic clock.
        """
        try:
            while self._stream.is_waiting(call_ids):
                self._receive(deadline)
        except DeadlineExceeded as error:
            for call_id in call_ids:
                self._stream.give_up(call_id, error)
        except (PeerLost, MalformedMessage) as error:  # calls on a broken stream may have taken effect
            self.close()
            self._stream.end(error.message)

    def is_usable(self) -> bool:
        """Return whether the stream takes a new call: open, and without a goodbye.

        This first reads the bytes that have arrived, and runs the callbacks of calls that they answer.
        """
        if not self.is_open:
            return False
        try:
            while self._wait("read", 0.0):
                self._read()
        except ChordError:
            self.close()
        return self.is_open and not self._stream.is_draining

    def close(self) -> None:
        """Close the stream. Repeated calls do nothing."""
        self.is_open = False
        self._close_socket()

    # -- bytes ------------------------------------------------------------------------------------------

    def _receive(self, deadline: float) -> None:
        """Wait for bytes, and give them to the stream.

        Raises:
            DeadlineExceeded: no bytes came in time.
            ChordError: the stream is of no further use.
        """
        if not self._wait("read", deadline):
            raise DeadlineExceeded(f"no answer from {self.address} in time")
        self._read()

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
        self._stream.receive(data, monotonic())

    def _send(self, data: bytes, deadline: float) -> None:
        rest = memoryview(data)
        while rest:
            if self._socket is None:
                raise DeadlineExceeded(f"{self.address} does not take more bytes")
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                if not self._wait("write", deadline):
                    raise DeadlineExceeded(f"{self.address} does not take more bytes") from None
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
