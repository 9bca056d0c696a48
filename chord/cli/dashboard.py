"""`dashboard`: a web page about a ring, served by a process of its own."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial

import click

from chord.cli.failures import OK, USAGE, announcing
from chord.cli.output import DEFAULT_NODE, Failure, Out
from chord.cli.target import check_address, json_option
from chord.config import split_address
from chord.views.nodes import dashboard_json

LISTEN = "127.0.0.1:9080"
EXTRA = "The dashboard needs the extra web: pip install 'chord[web]'"


@click.command("dashboard")
@click.option("--node", "nodes", multiple=True, envvar="CHORD_NODE", metavar="HOST:PORT",
              help="Entry node of the ring; repeat it to name alternatives.  [default: CHORD_NODE, or "
              f"{DEFAULT_NODE}]")
@click.option("--listen", default=LISTEN, show_default=True, metavar="HOST:PORT", help="Address of the page; port 0 "
              "takes a free port.")
@json_option
def dashboard_command(out: Out, nodes: tuple[str, ...], listen: str) -> int:
    """Serve a web page about a ring, until Ctrl-C.

    The page shows the ring, its nodes and its events. One process asks the nodes, and all browsers ask this process.
    """
    for node in nodes:
        check_address(node)
    check_address(listen, may_choose_port=True)
    require_extra()
    import trio

    from chord.web.server import listening_socket, serve_live

    try:
        listener = listening_socket(listen)
    except OSError as error:
        why = str(error.strerror or error).lower()
        hint = "Choose another address of this machine: --listen HOST:PORT"
        raise Failure(f"cannot listen on {listen} ({why})", hint, USAGE, "listen") from None
    host, port = split_address(listen)[0], listener.getsockname()[1]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    def announce() -> None:
        with announcing():
            if out.as_json:
                out.json(dashboard_json(url))
            else:
                out.line(f"dashboard: {url}")
            out.flush()

    trio.run(_until_signal, partial(serve_live, listener, host, nodes or (DEFAULT_NODE,), announce))
    return OK


def require_extra() -> None:
    """Refuse to start if the packages of the extra are missing.

    Raises:
        Failure: exit 2: they are missing.
    """
    try:
        import hypercorn
        import starlette
    except ImportError as error:
        raise Failure(f"the package {error.name} is not installed", EXTRA, USAGE, "extra") from None
    assert hypercorn
    assert starlette


async def _until_signal(serve: Callable[[], object]) -> None:
    import trio

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)  # type: ignore[arg-type]
            async for _ in signals:
                nursery.cancel_scope.cancel()
                return
