"""The server of the dashboard: its socket, its tasks, its end."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import trio

from chord.node.world import wall_now_ms
from chord.observe.chordlog import Chordlog
from chord.web.actions import ActionEndpoints, Chaos, ChaosAction
from chord.web.aggregator import Aggregator
from chord.web.app import make_app
from chord.web.exposition import Family
from chord.web.failures import HttpFailure
from chord.web.hub import EventHub
from chord.web.library import LibraryEndpoints
from chord.web.listening import has_user_timeout, serve_app
from chord.web.queries import QueryEndpoints
from chord.web.recorder import RingRecorder
from chord.web.ring_metrics import ring_facts, ring_metrics
from chord.web.sampling import RingMeter
from chord.web.source import LiveRing, PlayedRing
from chord.web.watch import watch_ring

READERS_MAX: Final = 32
"""The largest number of readers of the event stream on a system that cannot give up stalled ones."""


REPORTS: Final = Path("out/lab")
"""The folder in which `chord lab` writes its reports by default."""


def readers_max() -> int | None:
    """Return the largest number of readers of the event stream; None: no limit.

    There is a limit only on a system that cannot close stalled connections.
    """
    return None if has_user_timeout() else READERS_MAX


class DashboardOptions(NamedTuple):
    """The options of a dashboard.

    Attributes:
        host: the host on which it listens.
        may_write: whether its page may put and delete keys.
        record: called with each encoded line of a recording; None: nothing is recorded.
        with_keys: whether the recording names frequent keys. Otherwise it has only their points.
        command: the command that records, as text for the first line of the recording.
        chaos: does an action to a process of a demonstration; None: no demonstration.
        reports: the folder with the reports of the lab.
    """

    host: str
    may_write: bool = False
    record: Callable[[bytes], object] | None = None
    with_keys: bool = False
    command: str = "chord dashboard"
    chaos: Chaos | None = None
    reports: Path = REPORTS


class _Answer(msgspec.Struct):
    """The answer of the parent to an order."""

    groups: list[list[str]] = []
    error: str = ""


class Control:
    """The connection to the parent process of a demonstration, which controls the processes of the nodes.

    Args:
        control: the socket to the parent. Orders and answers are lines of JSON.
    """

    def __init__(self, control: socket.socket) -> None:
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(control))
        self._lock = trio.Lock()

    async def __call__(self, do: ChaosAction, nodes: list[str], ring: list[str]) -> list[list[str]]:
        """Send the parent an order, and return the names of the nodes that it was about, in groups.

        Args:
            do: the action, such as "kill".
            nodes: the nodes, by name or address.
            ring: the addresses of all nodes that may be in the ring.

        Raises:
            HttpFailure: 409: the parent refused. 503: the parent has ended.

        Concurrency: checkpoints.
        """
        order = msgspec.json.encode({"do": do, "nodes": nodes, "ring": ring})
        async with self._lock:
            with trio.CancelScope(shield=True):  # a reply without its order would answer the next one
                await self._stream.send_all(order + b"\n")
                answer = b""
                while not answer.endswith(b"\n"):
                    part = await self._stream.receive_some()
                    if not part:
                        raise HttpFailure(503, "no_control", "the parent process has ended", "Start it: chord up --web")
                    answer += part
        found = msgspec.json.decode(answer, type=_Answer)
        if found.error:
            raise HttpFailure(409, "no_effect", found.error, "See the states of the nodes: /api/v1/ring")
        return found.groups


async def serve_live(
    listener: socket.socket, nodes: Sequence[str], options: DashboardOptions, on_ready: Callable[[], None]
) -> None:
    """Run the dashboard of a living ring until cancelled.

    Args:
        listener: the listening socket.
        nodes: the addresses of entry nodes. None of them needs to answer yet.
        options: the options.
        on_ready: called once the server takes requests.

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

    def metrics() -> Iterator[Family]:
        return ring_metrics(ring_facts(origin, len(hub.readers), hub.dropped))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch_ring, origin, nodes)
        nursery.start_soon(hub.run)
        nursery.start_soon(meter.run)
        if options.record is not None:
            recorder = RingRecorder(origin, meter, options.record, options.command, with_keys=options.with_keys)
            nursery.start_soon(recorder.run)
        library = LibraryEndpoints(options.reports)
        app = make_app(QueryEndpoints(origin, meter), actions, library, hub, options.host, metrics)
        await nursery.start(serve_app, app, listener)
        on_ready()


async def serve_played(
    listener: socket.socket, log: Chordlog, options: DashboardOptions, on_ready: Callable[[], None]
) -> None:
    """Run the dashboard of a recording until cancelled.

    Args:
        listener: the listening socket.
        log: the recording.
        options: the options. Only `host` and `reports` matter.
        on_ready: called once the server takes requests.

    Concurrency: checkpoints.
    """
    origin = PlayedRing(log)
    hub = EventHub(origin, readers_max=readers_max())
    actions = ActionEndpoints(origin, may_write=False, chaos=None)
    app = make_app(QueryEndpoints(origin, None), actions, LibraryEndpoints(options.reports), hub, options.host)
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_app, app, listener)
        on_ready()
