"""`sim figure`: a lookup on a small ring of the real node, drawn."""

from __future__ import annotations

from pathlib import Path

import click

from chord.cli.failures import OK, USAGE
from chord.cli.output import Failure, Out
from chord.cli.svg import draw_lookup, save
from chord.cli.target import json_option, parse_id
from chord.cli.trace import Size, print_trace
from chord.ids import BITS_MIN, Circle
from chord.views.common import names_of
from chord.views.trace import lookup_json

PAPER_IDS = "1,8,14,21,32,38,42,48,51,56"  # ToN 2003, Fig. 4
IDS_MAX = 40


@click.command("figure", short_help="Draw a lookup on the ring of the Chord paper.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--bits", type=click.IntRange(BITS_MIN, 16), default=6, show_default=True, metavar="M",
              help="Width of an id.")
@click.option("--ids", default=PAPER_IDS, show_default=True, metavar="N,N,…", help="Points of the nodes.")
@click.option("--key-id", default="54", show_default=True, metavar="N|0xHEX", callback=parse_id,
              help="Point to look up.")
@click.option("--from", "start", default="8", show_default=True, metavar="N|0xHEX", callback=parse_id,
              help="Point of the node that makes the lookup.")
@json_option
def figure_command(out: Out, file: Path, bits: int, ids: str, key_id: int, start: int) -> int:
    """Draw a lookup on a ring of the real node to FILE, as SVG; print its trace.

    The nodes run in memory, on virtual time. The defaults give the figure of the Chord paper (ToN 2003, Fig. 4). It
    shows the lookup of key 54 from node 8, on a ring of ten nodes with m = 6.
    """
    points = _points(ids, 1 << bits)
    if start not in points:
        raise Failure(f"no node has the id {start}", f"Start at one of them: {ids}", USAGE, "usage")
    if not 0 <= key_id < 1 << bits:
        raise Failure(f"{key_id} is not on a circle of {bits} bits", "Name another --key-id", USAGE, "usage")
    from chord.sim.figure import SUCCESSORS, look_up

    trace, nodes = look_up(bits, points, key_id, start)
    circle, names = Circle(bits), names_of(nodes)
    save(draw_lookup(circle, trace, nodes, f"key {key_id}"), file)
    if out.as_json:
        out.json(lookup_json(circle, trace, names, None))
    else:
        print_trace(out, circle, trace, names, f"key {key_id}", Size(len(nodes), True, SUCCESSORS))
    out.note(f"drawn: {file}")
    return OK


def _points(text: str, size: int) -> list[int]:
    words = text.replace(",", " ").split()
    points = [int(word) for word in words if word.isdecimal() and len(word) <= 5]
    if not 2 <= len(points) <= IDS_MAX or len({*points}) != len(words) or max(points) >= size:
        what = f"expected 2 to {IDS_MAX} different points below {size}, not {text!r}"
        raise Failure(what, f"For example: --ids {PAPER_IDS}", USAGE, "usage")
    return sorted(points)
