"""The socket and the server of an HTTP application."""

from __future__ import annotations

import logging
import os
import socket
import stat
from contextlib import suppress
from typing import Any, Final, cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.types import ASGIApp

from chord.config import split_address

USER_TIMEOUT_S: Final = 10
"""The time after which the kernel gives up a connection to a stalled reader, in seconds."""

GRACE_S: Final = 0.5
"""The time that open requests have when the server stops, in seconds."""

KEEP_ALIVE_S: Final = 75
"""The time until an idle connection is closed, in seconds: longer than the usual interval of scrapes."""

BACKLOG: Final = 100


def listening_socket(address: str, user_timeout_s: float = USER_TIMEOUT_S) -> socket.socket:
    """Return a listening socket. Its connections end if their reader takes nothing for some time.

    Hypercorn shields its writes from cancellation, so only the kernel can end a write to a stalled reader.

    Args:
        address: HOST:PORT; port 0 takes a free port.
        user_timeout_s: this time, in seconds. It has no effect if the system does not offer it.

    Raises:
        OSError: the address cannot be used.
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
    """Return whether this system can give up connections to stalled readers."""
    return hasattr(socket, "TCP_USER_TIMEOUT")


async def serve_app(
    app: ASGIApp, listener: socket.socket, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve an application on a socket until cancelled.

    Some bytes of a client (a broken upgrade to HTTP/2) end Hypercorn's server, not only its connection. Then all
    connections end, and a new server takes the socket.

    Concurrency: checkpoints.
    """
    config = Config()
    config.graceful_timeout = GRACE_S
    config.errorlog = logger = logging.getLogger("chord.web")  # no line per start and request
    config.accesslog = None
    config.keep_alive_timeout = KEEP_ALIVE_S
    config.include_server_header = False
    with listener:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_abort_at_end, listener.getsockname()[1])
            status: Any = task_status
            while True:
                config.bind = [f"fd://{os.dup(listener.fileno())}"]
                try:
                    await serve(cast(Any, app), config, shutdown_trigger=trio.sleep_forever, task_status=status)
                except* Exception as errors:
                    logger.warning("a client ended the server of HTTP; it starts again", exc_info=errors)
                status = trio.TASK_STATUS_IGNORED


async def _abort_at_end(port: int) -> None:
    """Wait for the cancellation, and then end all connections to a port of this machine.

    A write to a stalled reader would keep the server alive until the kernel gives it up.
    """
    try:
        await trio.sleep_forever()
    finally:
        for name in os.listdir("/dev/fd"):
            with suppress(OSError):  # one is that of the list itself
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    with socket.socket(fileno=os.dup(int(name))) as connection:
                        if connection.getsockname()[1:2] == (port,):
                            connection.shutdown(socket.SHUT_RDWR)
