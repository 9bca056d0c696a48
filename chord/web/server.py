"""The server of the dashboard: its socket, its tasks, its end."""

from __future__ import annotations

import logging
import os
import socket
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, cast

import msgspec
import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.types import ASGIApp

from chord.client.async_client import open_client
from chord.config import split_address
from chord.errors import ChordError
from chord.node.world import wall_now_ms
from chord.observe.chordlog import Chordlog
from chord.web.actions import ActionEndpoints, Chaos, ChaosAction
from chord.web.aggregator import Aggregator
from chord.web.app import make_app
from chord.web.failures import HttpFailure
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

READERS_MAX: Final = 32
"""The largest number of readers of the event stream on a system that cannot give up stalled ones."""

BACKLOG: Final = 100
RETRY_S: Final = 1.0


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
    """Return whether this system can end a connection whose reader takes nothing."""
    return hasattr(socket, "TCP_USER_TIMEOUT")


def readers_max() -> int | None:
    """Return the largest number of readers of the event stream; None: no limit."""
    return None if has_user_timeout() else READERS_MAX


async def serve_app(
    app: ASGIApp, listener: socket.socket, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve an application on a socket until cancelled.

    Concurrency: checkpoints.
    """
    config = Config()
    config.graceful_timeout = GRACE_S
    config.errorlog = logging.getLogger("chord.web")  # no line per start and request
    config.accesslog = None
    config.include_server_header = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_abort_at_end, listener.getsockname())
        config.bind = [f"fd://{listener.detach()}"]
        await serve(cast(Any, app), config, shutdown_trigger=trio.sleep_forever, task_status=cast(Any, task_status))


async def _abort_at_end(address: object) -> None:
    """Wait for the cancellation, and then end all connections to an address.

    A write to a stalled reader would keep the server alive until the kernel gives it up.
    """
    try:
        await trio.sleep_forever()
    finally:
        for name in os.listdir("/dev/fd"):
            with suppress(OSError):  # one is that of the list itself
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    with socket.socket(fileno=os.dup(int(name))) as connection:
                        if connection.getsockname() == address:
                            connection.shutdown(socket.SHUT_RDWR)


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


class Control:
    """The parent process of a demonstration, which controls the processes of the nodes; see `Chaos`.

    Args:
        control: the connection with the parent. Orders and answers are lines of JSON.
    """

    def __init__(self, control: socket.socket) -> None:
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(control))
        self._lock = trio.Lock()

    async def __call__(self, do: ChaosAction, node: str) -> str:
        """Do something to a node, by name, and return the node's name."""
        async with self._lock:
            with trio.CancelScope(shield=True):  # a reply without its order would answer the next one
                await self._stream.send_all(msgspec.json.encode({"do": do, "node": node}) + b"\n")
                answer = b""
                while not answer.endswith(b"\n"):
                    part = await self._stream.receive_some()
                    if not part:
                        raise HttpFailure(503, "no_control", "the parent process has ended", "Start it: chord up --web")
                    answer += part
        found = msgspec.json.decode(answer, type=dict[str, str])
        if "error" in found:
            raise HttpFailure(409, "no_effect", found["error"], "See the states of the nodes: /api/v1/ring")
        return found["node"]


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
    hub = EventHub(
        origin, readers_max=readers_max(), may_write=options.may_write, is_demo=options.chaos is not None
    )
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
    hub = EventHub(origin, readers_max=readers_max())
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
