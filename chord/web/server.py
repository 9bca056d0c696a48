"""The server of the dashboard: its socket, its tasks, its end."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.types import ASGIApp

from chord.client.async_client import open_client
from chord.config import split_address
from chord.errors import ChordError
from chord.node.world import wall_now_ms
from chord.observe.chordlog import Chordlog
from chord.web.actions import ActionEndpoints, Chaos
from chord.web.aggregator import Aggregator
from chord.web.app import make_app
from chord.web.hub import EventHub
from chord.web.queries import QueryEndpoints
from chord.web.recorder import RingRecorder
from chord.web.sampling import RingMeter
from chord.web.source import LiveRing, PlayedRing
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


class DashboardOptions(NamedTuple):
    """The options of a dashboard.

    Attributes:
        host: the host that it listens on.
        may_write: whether its page may write keys.
        record: writes a line to the recording; None: no recording.
        with_keys: whether the recording names keys.
        command: the command, for the recording.
        chaos: the control of the processes of a demonstration; None otherwise.
    """

    host: str
    may_write: bool = False
    record: Callable[[bytes], object] | None = None
    with_keys: bool = False
    command: str = "chord dashboard"
    chaos: Chaos | None = None


async def serve_live(
    listener: socket.socket, nodes: Sequence[str], options: DashboardOptions, on_ready: Callable[[], None]
) -> None:
    """Run the dashboard of a living ring until cancelled.

    Args:
        listener: the socket of the server.
        nodes: the addresses of entry nodes. None of them needs to answer yet.
        options: the options.
        on_ready: called when the server takes requests.

    Raises:
        OSError: the recording cannot be written.

    Concurrency: checkpoints.
    """
    origin = LiveRing(Aggregator(nodes, trio.current_time()), trio.current_time, wall_now_ms())
    hub = EventHub(origin, may_write=options.may_write, is_demo=options.chaos is not None)
    meter = RingMeter(origin, hub)
    actions = ActionEndpoints(origin, may_write=options.may_write, chaos=options.chaos)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch_ring, origin, nodes)
        nursery.start_soon(hub.run)
        nursery.start_soon(meter.run)
        if options.record is not None:
            recorder = RingRecorder(origin, meter, options.record, options.command, with_keys=options.with_keys)
            nursery.start_soon(recorder.run)
        app = make_app(QueryEndpoints(origin, meter), actions, hub, options.host)
        await nursery.start(serve_app, app, listener)
        on_ready()


async def serve_played(
    listener: socket.socket, log: Chordlog, options: DashboardOptions, on_ready: Callable[[], None]
) -> None:
    """Run the dashboard of a recording until cancelled; see `serve_live`.

    Concurrency: checkpoints.
    """
    origin = PlayedRing(log)
    hub = EventHub(origin)
    actions = ActionEndpoints(origin, may_write=False, chaos=None)
    app = make_app(QueryEndpoints(origin, None), actions, hub, options.host)
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_app, app, listener)
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
