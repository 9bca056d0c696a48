"""`node`: one peer in the foreground."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chord.cli.failures import announcing
from chord.cli.output import Out
from chord.cli.settings import node_config
from chord.cli.target import check_address, json_option, parse_id, with_options
from chord.views.nodes import ready_json

if TYPE_CHECKING:
    from chord.node import Node


node_options = with_options(
    click.option("--listen", metavar="HOST:PORT", help="Address to listen on; port 0 takes a free port."),
    click.option("--join", multiple=True, metavar="HOST:PORT", help="Member of the ring to join; repeat it to name "
                 "alternatives. Without it, the node creates a ring or resumes its stored place."),
    click.option("--data", "data_dir", metavar="DIR", help="Folder for records, identity and known peers. "
                 "Without it, the node keeps them in memory."),
    click.option("--name", help="Name of the node, for people; default: its address."),
    click.option("--cluster", help="Name of the cluster; rings of different clusters never mix."),
    click.option("--vnodes", type=int, metavar="V", help="Number of vnodes of this node."),
    click.option("--advertise", metavar="HOST:PORT",
                 help="Address for other nodes; default: the address it listens on."),
    click.option("--bits", type=int, metavar="M", help="Width of an id, 3 to 160; the same for the whole ring."),
    click.option("--id", "id_", metavar="N|0xHEX", callback=parse_id,
                 help="Point of the node, for examples and tests."),
    click.option("--successors", type=int, metavar="R", help="Number of other nodes that a successor list names; "
                 "the same for the whole ring."),
    click.option("--replicas", type=int, metavar="N", help="Number of copies of each record; the same for the whole "
                 "ring."),
    click.option("--preset", type=click.Choice(["local", "lan", "wan"]), help="Periods and timeouts.  [default: lan]"),
    click.option("--members", type=click.Choice(["off", "on"]), help="Keep a list of all members of the ring, and "
                 "gossip about it.  [default: off]"),
    click.option("--http", metavar="HOST:PORT", help="Also serve /livez, /readyz and /metrics here, over HTTP; needs "
                 "chord[web]. They contain no keys and no addresses."),
    click.option("--config", "file", type=click.Path(dir_okay=False, path_type=Path), envvar="CHORD_CONFIG",
                 help="TOML configuration file; default: ./chord.toml, if it exists."),
)  # fmt: skip
"""The options that configure a node."""


@click.command("node")
@node_options
@json_option
def node_command(out: Out, join: tuple[str, ...], id_: int | None, file: Path | None, **flags: Any) -> int:
    """Run one peer in the foreground.

    The node prints one line when it is a member of the ring. SIGTERM or Ctrl-C makes it hand over its keys and leave.
    With --data it stops instead, and keeps its place.

    Environment variables and a configuration file can set options, too. The variable of --listen is CHORD_LISTEN, and
    so on; its line in the file is listen = …. An option overrides a variable, and a variable overrides the file. In the
    file --data is data_dir, and bits, successors, replicas and cluster belong under [ring]. The file cannot set
    --config, and only the command line can set --json.
    """
    config = node_config(checked_flags(join=join, id=id_, **flags), file)
    from chord.cli.serve import serve  # imports trio

    def on_ready(node: Node, how: str) -> None:
        circle = node.config.ring.circle
        ids = ", ".join(out.id(circle, contact.id) for contact in node.contacts)
        name = node.address if node.name == node.address else f"{node.name} {node.address}"
        with announcing():
            if out.as_json:
                out.json(ready_json(node.name, node.address, os.getpid(), node.origin))
            else:
                out.line(f"ready: {name}, {how}, id {ids}")
                out.flush()

    return serve(config, on_ready)


def checked_flags(**flags: Any) -> dict[str, Any]:
    """Check the addresses among the options of a node, and return all options unchanged.

    Raises:
        Failure: exit 2: an address is not valid.
    """
    for address in (flags["listen"], flags["http"]):
        if address is not None:
            check_address(address, may_choose_port=True)
    for address in (flags["advertise"], *flags["join"]):
        if address is not None:
            check_address(address)
    return flags
