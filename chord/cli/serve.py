"""One node in this process, from its configuration to its exit code.

This module imports Trio.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec

import trio

from chord.cli.failures import INTERNAL, INTERRUPTED, OK, TERMINATED, USAGE, explain
from chord.cli.output import Failure, counted, duration
from chord.client.async_client import open_client
from chord.config import NodeConfig, split_address
from chord.errors import ChordError, OtherRing, WritesRefused, unwrapped
from chord.events import (
    ConnectionRefused,
    Emitted,
    HandlerFailed,
    HealthChanged,
    PeerChanged,
    RecordsDamaged,
    StoreBegun,
    ValuesQuarantined,
)
from chord.node import Node
from chord.node.world import Connect, World, connect_by_tcp

STOP_S = 3.0
WEB_PACKAGES = ("starlette", "hypercorn", "prometheus_client")
WHY_EMPTY = {
    "lost": "its previous records are gone; other replicas will bring back their copies",
    "lost for good": "its previous records are gone, and no other node has copies; see: chord restore --help",
}
HOW = {
    "created": "created a ring of its own",
    "joined": "joined the ring",
    "resumed": "resumed its place",
}
PATIENCE_S = 2.0  # after this time, a node that is not in the ring reports why
AGAIN_S = 10.0  # the time between further reports
REACH_S = 1.0
LOOK_S = 0.5


def serve(
    config: NodeConfig,
    on_ready: Callable[[Node, str], None],
    *,
    life_fd: int | None = None,
    connect: Connect = connect_by_tcp,
) -> int:
    """Run a node until it has stopped or left, and return the exit code.

    Args:
        config: the configuration of the node.
        on_ready: called once, when every vnode is a member and the node serves all requests. It gets the node and a
            text such as "joined the ring".
        life_fd: a file descriptor, the read end of a pipe. The node stops when the other end is closed, and does not
            handle SIGINT. None: there is no pipe.
        connect: makes the calls of the node to other nodes.

    Returns:
        130 or 143 if SIGINT or SIGTERM ended the node before it was ready, otherwise 0.

    Raises:
        Failure: the node could not start as configured.
    """
    _raise_file_limit()
    http = None if config.http is None else _open_http(config.http)
    try:
        with unwrapped(), _private_files():
            return trio.run(_live, config, on_ready, life_fd, http, connect)
    except ChordError as error:
        failure = explain(error, config.listen)
        if isinstance(error, OtherRing) and config.data_dir is not None:
            failure.hint += f"; or give it another --data: {config.data_dir} belongs to the previous ring"
        exit_code = USAGE
        if isinstance(error, WritesRefused):
            exit_code, failure.hint = INTERNAL, "Repair its disk or its data directory, then start it again"
        raise Failure(failure.message, failure.hint, exit_code, failure.code) from None
    except OSError as error:
        why = str(error.strerror or error).lower()
        if error.filename is not None:
            hint = "Name a directory this user can write: --data DIR"
            raise Failure(f"cannot use {error.filename} ({why})", hint, USAGE, "data") from None
        why = why.removeprefix(f"cannot listen on {config.listen}: ")
        hint = _hint_to_listen(config, error)
        raise Failure(f"cannot listen on {config.listen} ({why})", hint, USAGE, "listen") from None


def _open_http(address: str) -> socket.socket:
    """Return the listening socket for health and metrics.

    Raises:
        Failure: exit 2: the extra is not installed, or the address cannot be used.
    """
    missing = [name for name in WEB_PACKAGES if find_spec(name) is None]
    if missing:
        what = f"--http needs {' and '.join(missing)}, not installed here"
        raise Failure(what, "Install the extra web: pip install 'chord[web]'", USAGE, "not_installed")
    from chord.web.listening import listening_socket

    try:
        return listening_socket(address)
    except OSError as error:
        why = str(error.strerror or error).lower()
        hint = "Choose another address of this machine: --http HOST:PORT"
        raise Failure(f"cannot serve health and metrics on {address} ({why})", hint, USAGE, "listen") from None


def _hint_to_listen(config: NodeConfig, error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "No host has this name. Listen on an address of this machine: --listen HOST:PORT"
    if error.errno == errno.EADDRNOTAVAIL:
        return "It is not an address of this machine. Listen on one of its own, and --advertise one for other nodes"
    if error.errno == errno.EACCES:
        return "Ports below 1024 are reserved. Choose a higher one: --listen HOST:PORT"
    return f"Is another node there? See: chord status --node {config.listen}; or choose another --listen"


def _raise_file_limit() -> None:
    """Raise the limit on open files to the maximum that the user may have.

    The limit that a shell sets is low.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems name a limit that they do not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def _private_files() -> Iterator[None]:
    """Create files in the block with permissions for this user alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


async def _live(
    config: NodeConfig,
    on_ready: Callable[[Node, str], None],
    life_fd: int | None,
    http: socket.socket | None = None,
    connect: Connect = connect_by_tcp,
) -> int:
    exit_code = OK
    reasons: dict[str, str] = {}

    def observe(emitted: Emitted) -> None:
        event = emitted.event
        if isinstance(event, HandlerFailed):
            _say(f"ERROR in {event.where}:\n{event.traceback}")
        elif isinstance(event, StoreBegun):
            name = node.name or config.listen  # the store is opened before the address is known
            _say(f"{name} starts with an empty store: {WHY_EMPTY[event.why]}")
        elif isinstance(event, HealthChanged):
            name = node.name or config.listen
            _say(f"{name} is degraded: {event.why}" if event.why else f"{name} has recovered ({event.subject})")
        elif isinstance(event, RecordsDamaged):
            text = f"{counted(event.records, 'record')} damaged on its disk; copies of other nodes replace them"
            _say(f"{node.name or config.listen} found {text}")
        elif isinstance(event, ValuesQuarantined):
            text = f"{counted(event.values, 'value')} that no other node vouches for: hidden, until you decide"
            _say(f"{node.name or config.listen} brought back {text} (chord quarantine list)")
        elif isinstance(event, PeerChanged) and event.address in config.join:
            reasons[event.address] = event.reason.removeprefix(f"{event.address}: ")
        elif isinstance(event, ConnectionRefused) and event.address in config.join:
            reasons[event.address] = f"what listens there does not answer as a node of this ring ({event.reason})"

    node = Node(config, World.real(config, observe)._replace(connect=connect))
    async with trio.open_nursery() as nursery:
        if http is not None:
            from chord.web.health import serve_health

            if config.http is not None and split_address(config.http)[1] == 0:
                _say(f"health and metrics are on port {http.getsockname()[1]}")
            nursery.start_soon(serve_health, node, http)
        await nursery.start(node.run)
        # Ctrl-C at a terminal reaches the parent and its children at once. The parent then decides.
        numbers = (signal.SIGTERM,) if life_fd is not None else (signal.SIGTERM, signal.SIGINT)
        signals: list[int] = []
        nursery.start_soon(_obey_signals, node, nursery, numbers, signals)
        if life_fd is not None:
            nursery.start_soon(_stop_with_parent, node, life_fd, nursery.cancel_scope)
        await _until_ready(node, reasons)
        while not node.closed.is_set() and node.troubles:  # each reason was reported when it appeared
            with trio.move_on_after(LOOK_S):
                await node.closed.wait()
        if not node.closed.is_set() and node.state == "ready":
            if config.join and node.origin == "created":
                _say(f"{node.name} was given no address to join except its own")
            on_ready(node, HOW[node.origin])
            if config.advertise is not None and (error := await _unreachable(config.advertise)):
                _say(f"{node.name} cannot be reached at the address it advertises ({error})")
        elif signals:
            exit_code = INTERRUPTED if signals[0] == signal.SIGINT else TERMINATED
        await node.closed.wait()
        nursery.cancel_scope.cancel()
    return exit_code


async def _until_ready(node: Node, reasons: Mapping[str, str]) -> None:
    """Wait until a node is in the ring, and report from time to time why it is not.

    `reasons` has, for the address of each node to join, the last reason why that node was of no use.
    """
    began, patience_s = trio.current_time(), PATIENCE_S
    while True:
        with trio.move_on_after(patience_s):
            await _ready_or_refused(node)
            return
        why = await _why_not_ready(node.config, node.address, reasons)
        seconds = duration(trio.current_time() - began)
        _say(f"{node.name} is not in the ring yet after {seconds} and goes on trying {why}")
        patience_s = AGAIN_S


async def _why_not_ready(config: NodeConfig, own: str, reasons: Mapping[str, str]) -> str:
    """Return the reasons in brackets, and a question that leads to the remedy if the node joins.

    `own` is the address of the node.
    """
    if config.advertise is not None and (error := await _unreachable(config.advertise)):
        return f"(the advertised address {config.advertise} does not lead to this node: {error})"
    if not config.join:
        return "(resuming)"
    known = {address: reasons.get(address, "no answer yet") for address in config.join}
    for address in config.join:
        if address not in reasons and not await _unreachable(address, own):
            known[address] = "that is this node itself"
    return f"({'; '.join(f'{at}: {why}' for at, why in known.items())}). Does --join name a node of the ring?"


async def _unreachable(address: str, own: str = "") -> str:
    """Return why this node does not answer at an address, or "" if it does.

    The test connection is opened from this process. `own` is the address that the node advertises; default: `address`.
    """
    try:
        with trio.fail_after(REACH_S):
            async with open_client(address) as client:
                node = await client.status(address)
    except ChordError as error:
        return error.message.removeprefix(f"{address}: ")
    except trio.TooSlowError:
        return f"no answer in {REACH_S:g} s"
    return "" if node.pid == os.getpid() and node.address == (own or address) else f"{node.name} answers there"


async def _ready_or_refused(node: Node) -> None:
    try:
        await node.ready()
    except ChordError:
        await trio.sleep_forever()  # `node.run` raises the same error


async def _obey_signals(
    node: Node, nursery: trio.Nursery, numbers: tuple[signal.Signals, ...], received: list[int]
) -> None:
    """End the node in order at the first signal, and at once at the second.

    In order, a node with a data directory stops, and any other node leaves.

    Args:
        node: the node.
        nursery: the nursery of the node's tasks, which the second signal cancels.
        numbers: the signals to obey.
        received: each signal is appended to this list.
    """
    with trio.open_signal_receiver(*numbers) as signals:
        async for number in signals:
            received.append(number)
            if len(received) > 1:
                nursery.cancel_scope.cancel()
                return
            keeps = node.config.data_dir is not None
            how = "stops and keeps its place" if keeps else "hands over and leaves"
            if node.state != "ready":
                how = "stops, and was not in the ring yet"
            _say(f"{node.name} {how} (a second signal: at once)")
            nursery.start_soon(node.stop if keeps else node.leave)


async def _stop_with_parent(node: Node, life_fd: int, scope: trio.CancelScope) -> None:
    await trio.lowlevel.wait_readable(life_fd)
    with trio.move_on_after(STOP_S):  # without a leave, which would hand over to peers that stop too
        await node.stop()
    scope.cancel()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
