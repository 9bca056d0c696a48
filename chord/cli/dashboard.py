"""`dashboard`: a web page about a ring or a recording, served by a process of its own."""

from __future__ import annotations

import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chord.cli.failures import OK, USAGE, announcing
from chord.cli.output import DEFAULT_NODE, Failure, Out
from chord.cli.sim_output import writing
from chord.cli.target import check_address, json_option
from chord.config import split_address
from chord.errors import unwrapped
from chord.observe.chordlog import BadChordlog, Chordlog, packing, read
from chord.views.nodes import dashboard_json

if TYPE_CHECKING:
    from chord.web.server import DashboardOptions

LISTEN = "127.0.0.1:9080"
LOOPBACK = ("127.", "::1")

Serve = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a server until cancelled. It calls its argument when it takes requests."""


@click.command("dashboard")
@click.option("--node", "nodes", multiple=True, envvar="CHORD_NODE", metavar="HOST:PORT",
              help="Entry node of the ring; repeat it to name alternatives.  [default: CHORD_NODE, or "
              f"{DEFAULT_NODE}]")
@click.option("--listen", default=LISTEN, show_default=True, metavar="HOST:PORT", help="Address of the page; port 0 "
              "takes a free port.")
@click.option("--play", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Show a recording (.chordlog) instead of a ring.")
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Record the ring in this .chordlog file, compressed if its name ends in .gz.")
@click.option("--write", "may_write", is_flag=True, help="Let the page write and delete keys.")
@click.option("--keys", "with_keys", is_flag=True, help="Name frequent keys in the recording; without it, only their "
              "points.")
@click.option("--lab", "reports", default=Path("out/lab"), show_default=True, metavar="DIR",
              type=click.Path(file_okay=False, path_type=Path), help="Folder with the reports of chord lab.")
@json_option
def dashboard_command(
    out: Out, nodes: tuple[str, ...], listen: str, play: Path | None, record: Path | None, may_write: bool,
    with_keys: bool, reports: Path,
) -> int:
    """Serve a web page about a ring, until Ctrl-C.

    The page shows the ring, its nodes, its events and its metrics. One process asks the nodes, and all browsers ask
    this process. It may start before the ring.

    The page shows all keys and values without a password. So it listens on an address of this machine alone by default.
    """
    for node in nodes:
        check_address(node)
    check_address(listen, may_choose_port=True)
    if play is not None and (record is not None or may_write):
        raise click.UsageError("--play shows a recording, so it takes neither --record nor --write")
    if with_keys and record is None:
        raise click.UsageError("--keys is about a recording: add --record FILE")
    require_extra()
    from chord.web.server import DashboardOptions, serve_live, serve_played

    log = None if play is None else _recording(play)
    options = DashboardOptions(split_address(listen)[0], may_write, with_keys=with_keys, reports=reports)
    with ExitStack() as files:
        if record is not None:
            write = files.enter_context(packing(record.name, files.enter_context(writing(record))))
            options = options._replace(record=write)
        listener = files.enter_context(listen_on(listen))
        if not is_loopback(listener):
            out.note(f"every host that reaches {listen} can read all keys and values")
        if log is not None:
            run_server(out, listener, options, lambda ready: serve_played(listener, log, options, ready))
        else:
            entries = nodes or (DEFAULT_NODE,)
            run_server(out, listener, options, lambda ready: serve_live(listener, entries, options, ready))
    return OK


def require_extra() -> None:
    """Check that the packages of `chord[web]` are installed.

    Raises:
        Failure: exit 2: a package is missing.
    """
    try:
        import hypercorn
        import starlette
    except ImportError as error:
        hint = "Install the extra web: pip install 'chord[web]'"
        raise Failure(f"the package {error.name} is not installed", hint, USAGE, "not_installed") from None
    assert hypercorn
    assert starlette


def listen_on(address: str) -> socket.socket:
    """Return a listening socket for the page at HOST:PORT.

    Raises:
        Failure: exit 2: the address cannot be used.
    """
    from chord.web.listening import listening_socket

    try:
        return listening_socket(address)
    except OSError as error:
        why = str(error.strerror or error).lower()
        hint = "Choose another address of this machine: --listen HOST:PORT"
        raise Failure(f"cannot listen on {address} ({why})", hint, USAGE, "listen") from None


def is_loopback(listener: socket.socket) -> bool:
    """Return whether a socket listens on a loopback address, which other machines cannot reach."""
    return str(listener.getsockname()[0]).startswith(LOOPBACK)


def url_of(host: str, listener: socket.socket) -> str:
    """Return the URL of the page, with the given host and the port of the socket."""
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/"


def run_server(out: Out, listener: socket.socket, options: DashboardOptions, serve: Serve) -> None:
    """Serve the page until SIGINT or SIGTERM, and print its URL once requests are answered.

    Args:
        out: the output of the command.
        listener: the listening socket.
        options: the options of the dashboard.
        serve: an async function that serves the page. It gets a function to call once requests are answered.
    """
    import trio

    url = url_of(options.host, listener)

    def announce() -> None:
        with announcing():
            if out.as_json:
                out.json(dashboard_json(url))
            else:
                out.line(f"dashboard: {url}")
            out.flush()

    async def until_signal() -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve, announce)
                async for _ in signals:
                    nursery.cancel_scope.cancel()
                    return

    with unwrapped():
        trio.run(until_signal)


def _recording(path: Path) -> Chordlog:
    """Return a recording.

    Raises:
        Failure: exit 2: the file is no recording, or it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return read(file)
    except BadChordlog as error:
        hint = "Record one: chord dashboard --record FILE, or chord sim replay SEED --chordlog FILE"
        raise Failure(f"cannot play {path}: {error}", hint, USAGE, "bad_recording") from None
    except OSError as error:
        why = str(error.strerror).lower()
        raise Failure(f"cannot read {path} ({why})", "Name a file that you can read", USAGE, "file") from None
