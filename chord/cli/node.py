"""node: one peer in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chord.cli.failures import announcing
from chord.cli.output import Out
from chord.cli.settings import node_config
from chord.cli.target import check_address, json_option, parse_id

if TYPE_CHECKING:
    from chord.node import Node


@click.command("node")
@click.option("--listen", metavar="HOST:PORT", help="Where to accept calls; port 0 takes a free one.")
@click.option("--join", multiple=True, metavar="HOST:PORT", help="A member of the ring; repeat it for stand-ins. "
              "Without one, a new ring is created (or the stored one resumed).")
@click.option("--data", "data_dir", metavar="DIR", help="Keep records, identity and known peers here across restarts.")
@click.option("--name", help="For people; default: the address.")
@click.option("--cluster", help="Rings of different clusters never mix.")
@click.option("--vnodes", type=int, metavar="V", help="Points this node holds on the circle.")
@click.option("--advertise", metavar="HOST:PORT", help="Where others reach it; default: the address it listens on.")
@click.option("--bits", type=int, metavar="M", help="Width of the circle, 3 to 160; the same for the whole ring.")
@click.option("--id", "id_", metavar="N|0xHEX", callback=parse_id, help="Its point on the circle, for toys and tests.")
@click.option("--successors", type=int, metavar="R", help="Length of the successor list; the same for the whole ring.")
@click.option("--replicas", type=int, metavar="N", help="Nodes that keep a copy of each record; the same for the whole "
              "ring.")
@click.option("--preset", type=click.Choice(["local", "lan", "wan"]), help="Periods and timeouts.  [default: lan]")
@click.option("--config", "file", type=click.Path(dir_okay=False, path_type=Path), envvar="CHORD_CONFIG",
              help="A TOML file; default: ./chord.toml, if there is one.")
@json_option
def node_command(out: Out, join: tuple[str, ...], id_: int | None, file: Path | None, **flags: Any) -> int:
    """Run one peer in the foreground.

    It prints one line when it is a member. SIGTERM or Ctrl-C: it leaves, handing over its keys; with --data it stops
    and keeps its place.

    An option may also be an environment variable (--listen is CHORD_LISTEN, and so on) or a line of the configuration
    file (listen = …). An option wins over a variable, a variable over the file. In the file --data is data_dir, and
    bits, successors, replicas and cluster stand under [ring]. --config is an option or CHORD_CONFIG; --json is only an
    option.
    """
    if flags["listen"] is not None:
        check_address(flags["listen"], may_choose_port=True)
    for address in (flags["advertise"], *join):
        if address is not None:
            check_address(address)
    config = node_config({**flags, "join": join, "id": id_}, file)
    from chord.cli.serve import describe_ready, serve  # imports trio

    def on_ready(node: Node, how: str) -> None:
        circle = node.config.ring.circle
        ids = ", ".join(out.id(circle, vnode) for vnode in node.host.vnodes)
        name = node.address if node.name == node.address else f"{node.name} {node.address}"
        with announcing():
            if out.as_json:
                out.json({"ready": True, **describe_ready(node)})
            else:
                out.line(f"ready: {name}, {how}, id {ids}")
                out.flush()

    return serve(config, on_ready)
