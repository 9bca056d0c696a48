"""The server of the dashboard: its socket, its tasks, its end."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.types import ASGIApp

from chord.client.async_client import open_client
from chord.config import split_address
from chord.errors import ChordError
from chord.node.world import wall_now_ms
from chord.web.aggregator import Aggregator
from chord.web.app import Dashboard, make_app
from chord.web.hub import EventHub
from chord.web.source import LiveRing, StateOrigin
from chord.web.watch import watch

USER_TIMEOUT_S: Final = 10
"""The time after which the kernel gives up a connection whose reader takes nothing, in seconds."""

GRACE_S: Final = 0.5
"""The time that open streams have when the server stops, in seconds."""

BACKLOG: Final = 100
RETRY_S: Final = 1.0


def listening_socket(address: str) -> socket.socket:
    """Return a listening socket. Its connections end if their reader takes nothing for `USER_TIMEOUT_S`.

    Hypercorn shields its writes from cancellation, so only the kernel can end a write to a stalled reader.

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
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * USER_TIMEOUT_S)
        listener.bind(target)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def has_user_timeout() -> bool:
    """Return whether this system can end a connection whose reader takes nothing."""
    return hasattr(socket, "TCP_USER_TIMEOUT")


async def serve_app(
    app: ASGIApp, listener: socket.socket, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve an application on a socket until cancelled.

    Concurrency: checkpoints.
    """
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.graceful_timeout = GRACE_S
    config.errorlog = logging.getLogger("chord.web")  # no line per start and request
    config.accesslog = None
    config.include_server_header = False

    await serve(cast(Any, app), config, shutdown_trigger=trio.sleep_forever, task_status=cast(Any, task_status))


async def serve_live(
    listener: socket.socket, host: str, nodes: Sequence[str], on_ready: Callable[[], None]
) -> None:
    """Run the dashboard of a living ring until cancelled.

    Args:
        listener: the socket of the server.
        host: the host that it listens on.
        nodes: the addresses of entry nodes. None of them needs to answer yet.
        on_ready: called when the server takes requests.

    Concurrency: checkpoints.
    """
    origin = LiveRing(Aggregator(nodes, trio.current_time()), trio.current_time, wall_now_ms())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch_ring, origin, nodes)
        await _serve_origin(origin, listener, host, on_ready)


async def _serve_origin(
    origin: StateOrigin, listener: socket.socket, host: str, on_ready: Callable[[], None]
) -> None:
    hub = EventHub(origin)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hub.run)
        await nursery.start(serve_app, make_app(Dashboard(origin, hub), host), listener)
        on_ready()


async def _watch_ring(origin: LiveRing, nodes: Sequence[str]) -> None:
    """Open a client as soon as a node answers, and poll the ring with it."""
    while True:
        try:
            async with open_client(*nodes) as client:
                origin.client = client
                await watch(origin.aggregator, client)
        except ChordError:
            await trio.sleep(RETRY_S)
