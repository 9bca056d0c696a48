"""Transport: opens byte streams to addresses, and listeners for them.

`TcpTransport` is the production implementation. `chord.testing.network` has the in-memory twin. One conformance suite
runs on both.
"""

from __future__ import annotations

import errno
import ipaddress
import math
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol, TypeAlias, cast

import trio

from chord.config import Limits, split_address, to_dial
from chord.errors import ConfigError, PeerUnreachable
from chord.net.names import Names
from chord.wire.codec import encode_refusal

Stream: TypeAlias = trio.abc.HalfCloseableStream


class Listener(Protocol):
    """Accepts streams at one address."""

    @property
    def address(self) -> str:
        """The bound address, HOST:PORT, with the port that the system chose if port 0 was asked for."""

    async def accept(self) -> Stream:
        """Wait for the next stream that a caller opens to this address."""

    async def aclose(self) -> None:
        """Stop accepting; streams that were accepted stay open."""


class Transport(Protocol):
    """Opens byte streams between addresses."""

    async def open_stream(self, address: str) -> Stream:
        """Open a stream to an address, HOST:PORT.

        Raises:
            PeerUnreachable: no process listens there, or the network reports an error.
        """

    async def open_listener(self, address: str) -> Listener:
        """Listen at an address; port 0 takes a free port.

        Raises:
            OSError: the address is in use, or it is not an address of this machine.
        """

    def shortage(self) -> str:
        """Return which resource for streams ran out in the last ten seconds, as a sentence; "" for none."""


# -- TCP --------------------------------------------------------------------------------------

_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
FILES_MIN: Final = 64
"""Number of files that a node must be allowed to open: a few for its store, the others for connections."""
_ACCEPT_AGAIN_S: Final = 0.1
_REFUSAL_S: Final = 0.2
_SHORTAGE_S: Final = 10.0
"""Seconds without a refused descriptor after which a shortage counts as over."""
_READ_BYTES: Final = 4096

_NEXT_ADDRESS_S: Final = 0.25
"""Seconds to wait for one address of a host before the next one is tried as well (RFC 8305)."""


class TcpListener:
    """Accepts TCP connections at one address.

    Args:
        listener: the bound listener.
        exhausted: called with the error when the system refuses one more file descriptor. It returns the reason to
            report to a caller.
        spare: the file descriptor kept for refusing callers. It has priority over outgoing connections.
    """

    def __init__(self, listener: trio.SocketListener, exhausted: Callable[[OSError], str], spare: Spare) -> None:
        self._listener = listener
        self._address = _host_port(listener.socket.getsockname())
        self._exhausted = exhausted
        self._spare = spare
        spare.keep()

    @property
    def address(self) -> str:
        """The bound address, HOST:PORT."""
        return self._address

    async def accept(self) -> trio.SocketStream:
        """Wait for the next connection.

        If the process has run out of file descriptors or memory, the listener waits until some are free. Open
        connections go on. Meanwhile the listener uses its spare descriptor to accept each new caller and to refuse it
        with a reason.

        Raises:
            OSError: the listener failed for another reason.
        """
        while True:
            try:
                return await self._listener.accept()
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                if not await self._turn_away(self._exhausted(error)):
                    await trio.sleep(_ACCEPT_AGAIN_S)

    async def _turn_away(self, why: str) -> bool:
        """Refuse one caller with `PeerUnreachable`, because no descriptor is left for it.

        Returns:
            Whether a caller was refused.
        """
        stream: trio.SocketStream | None = None
        with self._spare.lent() as is_there:
            if not is_there:
                return False
            with suppress(OSError, trio.BrokenResourceError), trio.move_on_after(_REFUSAL_S):  # the caller may be gone
                stream = await self._listener.accept()
                async with stream:
                    await stream.send_all(encode_refusal(PeerUnreachable(f"{self._address}: {why}")))
                    await stream.send_eof()
                    while await stream.receive_some(_READ_BYTES):  # an unread hello could discard the refusal
                        pass
        return stream is not None

    async def aclose(self) -> None:
        """Stop accepting; streams that were accepted stay open."""
        self._spare.close()
        await self._listener.aclose()


class Spare:
    """A file descriptor kept in reserve.

    When the system opens no more, a listener frees it, so that it can accept a caller and refuse it with a reason.
    """

    def __init__(self) -> None:
        self._fd: int | None = None
        self._is_kept = False
        self._is_lent = False

    def keep(self) -> None:
        """Open the descriptor, and keep it in reserve until `close`."""
        self._is_kept = True
        self.is_missing()

    def is_missing(self) -> bool:
        """Open the descriptor if it should be open and is not; return whether that failed."""
        if self._is_kept and self._fd is None and not self._is_lent:
            with suppress(OSError):
                self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        return self._is_kept and self._fd is None

    @contextmanager
    def lent(self) -> Iterator[bool]:
        """Free the descriptor while the `with` block runs; yield whether it was open."""
        self.is_missing()
        is_there = self._fd is not None
        self._release()
        self._is_lent = True
        try:
            yield is_there
        finally:
            self._is_lent = False
            self.is_missing()

    def close(self) -> None:
        """Close the descriptor, and keep none from now on."""
        self._is_kept = False
        self._release()

    def _release(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


class TcpTransport:
    """Streams over TCP.

    Args:
        lookups_max: the largest number of host names that are looked up at the same time.
        now: returns the time in seconds, by which `shortage` measures its ten seconds.

    Attributes:
        on_shortage: functions that are called when the system refuses one more file descriptor, to make room.
    """

    def __init__(
        self, lookups_max: int = Limits().lookups_max, now: Callable[[], float] = trio.current_time
    ) -> None:
        self._names = Names(lookups_max)
        self._now = now
        self._spare = Spare()
        self.on_shortage: list[Callable[[], object]] = []
        self._exhausted_at = -math.inf
        self._why = ""

    def shortage(self) -> str:
        """Return which resource for streams ran out in the last ten seconds, as a sentence; "" for none.

        The resource is file descriptors, or memory of the system.
        """
        return self._why if self._now() - self._exhausted_at < _SHORTAGE_S else ""

    def _exhausted(self, error: OSError) -> str:
        self._exhausted_at = self._now()
        for make_room in self.on_shortage:
            make_room()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        is_files = error.errno == errno.EMFILE
        self._why = f"the node has run out of file descriptors; its limit is {limit} (ulimit -n)"
        if not is_files:
            self._why = f"the system gives the node no more connections ({str(error.strerror).lower()})"
        return self._why

    async def open_stream(self, address: str) -> trio.SocketStream:
        """Connect to an address, HOST:PORT.

        Raises:
            PeerUnreachable: no process listens there, the address or the host does not exist, or the network reports an
                error. Or no descriptor is left, or too many host names are being looked up.
        """
        host, port = to_dial(address)
        if self._spare.is_missing():  # it goes first: without it, callers would wait without an answer
            raise PeerUnreachable(f"{address}: {self._exhausted(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))}")
        try:
            if _is_ip(host):  # needs no lookup
                return await trio.open_tcp_stream(host, port)
            return await _open_first(await self._names.look_up(host), port)
        except (OSError, UnicodeError) as error:
            reasons = [one for one in _reasons(error) if isinstance(one, OSError)]
            if (own := next((one for one in reasons if one.errno in _OUT_OF_RESOURCES), None)) is not None:
                raise PeerUnreachable(f"{address}: {self._exhausted(own)}") from None
            raise _unreachable(address, error) from None

    async def open_listener(self, address: str) -> TcpListener:
        """Listen at HOST:PORT. If a name has several addresses, use one, IPv4 first.

        Raises:
            OSError: the address is in use, or it is not an address of this machine; the message names it.
            ConfigError: the process may open fewer than `FILES_MIN` files.
        """
        host, port = split_address(address)
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if 0 <= files < FILES_MIN:
            raise ConfigError(f"this process may open {files} files, and a node needs {FILES_MIN}: ulimit -n 1024")
        try:
            listeners = await trio.open_tcp_listeners(port, host=host)
        except OSError as error:
            raise type(error)(error.errno, f"cannot listen on {address}: {error.strerror or error}") from None
        listeners.sort(key=lambda one: one.socket.family != socket.AF_INET)
        for spare in listeners[1:]:
            await spare.aclose()
        return TcpListener(listeners[0], self._exhausted, self._spare)


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


async def _open_first(hosts: list[str], port: int) -> trio.SocketStream:
    """Connect to the first address of a host that answers.

    Each attempt starts when the one before has failed, or `_NEXT_ADDRESS_S` after its start.

    Raises:
        OSError: no address answers.
    """
    opened: list[trio.SocketStream] = []
    errors: list[OSError] = []

    async def attempt(host: str, has_failed: trio.Event) -> None:
        try:
            opened.append(await trio.open_tcp_stream(host, port))
            nursery.cancel_scope.cancel()
        except OSError as error:
            errors.append(error)
            has_failed.set()

    async with trio.open_nursery() as nursery:
        for host in hosts:
            has_failed = trio.Event()
            nursery.start_soon(attempt, host, has_failed)
            with trio.move_on_after(_NEXT_ADDRESS_S):
                await has_failed.wait()
    for spare in opened[1:]:
        await trio.aclose_forcefully(spare)
    if not opened:
        raise next((error for error in errors if _is_refusal(error)), errors[0])
    return opened[0]


def remote_host(stream: Stream) -> str | None:
    """Return the IP address at the other end of a stream, or None for loopback.

    Connections from loopback are not counted by host. A stream that is not TCP may name its host in an attribute
    `remote_host`. The result is also None if it does not, or if a TCP stream is already closed.
    """
    if not isinstance(stream, trio.SocketStream):
        return getattr(stream, "remote_host", None)
    try:
        host = str(stream.socket.getpeername()[0])
    except OSError:  # already closed; the first read reports it
        return None
    return None if ipaddress.ip_address(host.partition("%")[0]).is_loopback else host


# -- shortcuts --------------------------------------------------------------------------------


class Pipe(Protocol):
    """The stream operations of a connection, with a non-blocking write."""

    async def receive_some(self, max_bytes: int) -> bytes | bytearray:
        """Wait for bytes, and return at most `max_bytes` of them; empty if the peer has closed the stream.

        Raises:
            trio.BrokenResourceError: the connection is broken.
        """

    def send_nowait(self, data: bytes) -> int:
        """Write without waiting, and return how many bytes were taken.

        No bytes are taken if the stream has no non-blocking write, or if the connection is broken. A broken connection
        makes the next `send_all` raise the error.
        """

    async def send_all(self, data: bytes) -> None:
        """Write bytes, and wait until the operating system has taken all of them.

        Raises:
            trio.BrokenResourceError: the connection is broken.
        """


def pipe_of(stream: Stream) -> Pipe:
    """Return the fastest pipe for a stream. Do not use it once the stream is closed."""
    if isinstance(stream, trio.SocketStream):
        return TcpPipe(stream)
    return cast(Pipe, stream) if hasattr(stream, "send_nowait") else PlainPipe(stream)


class TcpPipe:
    """A pipe that bypasses Trio and uses the socket directly.

    This halves the delay between two nodes that take turns. Do not use the pipe once the stream is closed: the
    descriptor may belong to another stream by then.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._fd = stream.socket.fileno()
        self.send_all = stream.send_all

    async def receive_some(self, max_bytes: int) -> bytes:
        """Wait until the socket is readable, and return at most `max_bytes`; empty if the peer has closed the stream.

        Trio would try to read before it waits. That costs time, and data is rarely already there.

        Raises:
            trio.BrokenResourceError: the connection is broken.
        """
        while True:
            await trio.lowlevel.wait_readable(self._fd)
            try:
                return os.read(self._fd, max_bytes)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error

    def send_nowait(self, data: bytes) -> int:
        """Write as many bytes as the operating system takes now, and return their number; 0 on an error."""
        try:
            return os.write(self._fd, data)
        except OSError:
            return 0


class PlainPipe:
    """A pipe for a stream that has no non-blocking write.

    Its `send_nowait` takes no bytes. So the send buffer sends every frame with `send_all`, in a task.
    """

    def __init__(self, stream: Stream) -> None:
        self.receive_some = stream.receive_some
        self.send_all = stream.send_all

    def send_nowait(self, data: bytes) -> int:
        """Take no bytes and return 0, so that the caller uses `send_all`."""
        return 0


def _host_port(name: tuple[object, ...]) -> str:
    host, port = str(name[0]), name[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _unreachable(address: str, error: OSError | UnicodeError) -> PeerUnreachable:
    """Return the error that says why a connection failed."""
    if _is_refusal(error):
        return PeerUnreachable(f"{address}: connection refused", is_refused=True)
    first = _reasons(error)[0]
    return PeerUnreachable(f"{address}: {getattr(first, 'strerror', None) or first}")


def _is_refusal(error: Exception) -> bool:
    return any(isinstance(one, ConnectionRefusedError) for one in _reasons(error))


def _reasons(error: Exception) -> list[Exception]:
    """Return the causes of the error that Trio raises.

    Trio puts the causes in a group, one for each address that it tried.
    """
    if isinstance(error.__cause__, ExceptionGroup):
        return [one for one in error.__cause__.exceptions if isinstance(one, OSError)] or [error]
    return [error]
