"""The socket and the server of an HTTP application."""

from __future__ import annotations

import logging
import socket
from contextlib import suppress
from typing import Any, Final, cast

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from starlette.types import ASGIApp

from chord.config import split_address

USER_TIMEOUT_S: Final = 10
"""The time after which the kernel gives up a connection to a stalled reader, in seconds."""

CONNECTIONS_MAX: Final = 512
"""The largest number of connections with a dashboard."""

KEEP_ALIVE_S: Final = 75
"""The time until an idle connection is closed, in seconds: longer than the usual interval of scrapes."""

BACKLOG: Final = 100


def listening_socket(address: str, user_timeout_s: float = USER_TIMEOUT_S) -> socket.socket:
    """Return a listening TCP socket. The kernel closes its connections if the peer stops reading.

    Hypercorn shields its writes from cancellation, so only the kernel can end a write to a stalled reader.

    Args:
        address: HOST:PORT; port 0 takes a free port.
        user_timeout_s: how long sent bytes may stay unacknowledged before a connection is closed, in seconds. A system
            without `TCP_USER_TIMEOUT` ignores it.

    Raises:
        OSError: the socket cannot be bound to the address.
    """
    host, port = split_address(address)
    family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if has_user_timeout():
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * user_timeout_s))
        listener.bind(target)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def has_user_timeout() -> bool:
    """Return whether this system has `TCP_USER_TIMEOUT`, with which the kernel closes stalled connections."""
    return hasattr(socket, "TCP_USER_TIMEOUT")


async def serve_app(
    app: ASGIApp,
    listener: socket.socket,
    connections_max: int = CONNECTIONS_MAX,
    *,
    task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an ASGI application on a socket until cancelled.

    Some bytes of a client (a broken upgrade to HTTP/2) raise errors inside Hypercorn. They end only that connection.

    Args:
        app: the application.
        listener: the listening socket.
        connections_max: the largest number of connections. Beyond it, a new connection closes the oldest one.
        task_status: reports to `Nursery.start` that the server accepts connections.

    Concurrency: checkpoints.
    """
    config = Config()
    config.errorlog = logger = logging.getLogger("chord.web")  # no line per start and request
    config.accesslog = None
    config.keep_alive_timeout = KEEP_ALIVE_S
    config.include_server_header = False
    wrapped, context = ASGIWrapper(cast(Any, app)), WorkerContext(None)
    streams: dict[trio.SocketStream, None] = {}

    async def serve_one(stream: trio.SocketStream) -> None:
        while len(streams) >= connections_max:
            _abort(streams, next(iter(streams)))
        streams[stream] = None
        try:
            await TCPServer(wrapped, config, context, ConnectionState({}), cast(Any, stream))
        except* Exception as errors:
            logger.warning("a client ended its connection with an error", exc_info=errors)
        finally:
            streams.pop(stream, None)

    async def abort_at_end() -> None:
        try:
            await trio.sleep_forever()
        finally:
            for stream in list(streams):  # a write to a stalled reader would keep the server alive
                _abort(streams, stream)

    with listener:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(abort_at_end)
            accepting = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
            await trio.serve_listeners(serve_one, [accepting], handler_nursery=nursery, task_status=task_status)


def _abort(streams: dict[trio.SocketStream, None], stream: trio.SocketStream) -> None:
    """End a connection, also if Hypercorn shields a write to it."""
    del streams[stream]
    with suppress(OSError):
        stream.socket.shutdown(socket.SHUT_RDWR)
