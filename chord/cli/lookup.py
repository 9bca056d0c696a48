"""`lookup`: the owner of a key, and the path to it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from chord.cli.failures import OK
from chord.cli.output import counted
from chord.cli.svg import draw_lookup, save
from chord.cli.target import Target, find_node, parse_id, ring_options, statuses
from chord.cli.trace import Size, one_line, print_trace
from chord.client.blocking import Client
from chord.errors import ChordError, InvalidRequest
from chord.views.common import Json, name_of, names_known, names_of
from chord.views.trace import lookup_json, lookups_json
from chord.wire.messages import Contact, Mode, Route, Status, Trace

COUNTED_MAX = 128
OWNER_COLUMNS = ("owner", "address", "id", ">hops", ">t")
ALL_COLUMNS = ("from", ">hops", "path", ">timeouts", ">t")


@click.command("lookup")
@click.argument("key", required=False)
@click.option("--key-id", metavar="N|0xHEX", callback=parse_id, help="Look up a point of the circle instead of a key.")
@click.option("--trace", "with_trace", is_flag=True, help="Show every hop and the replicas, not only the owner.")
@click.option("--from", "start", metavar="NODE", help="Node that makes the lookup: a name, HOST:PORT, 0xHEX or an id. "
              "Default: the entry node.")
@click.option("--mode", type=click.Choice(["iterative", "recursive", "successor"]), default="iterative",
              show_default=True, help="iterative: the node that makes the lookup asks every hop itself. recursive: "
              "each hop passes the lookup on to the next. successor: iterative, along successors only.")
@click.option("--route", type=click.Choice(["classic", "fast", "full"]), default="classic", show_default=True,
              help="classic: by fingers and successor lists. fast: remembered owners first. full: the membership list "
              "first.")
@click.option("--all-from", is_flag=True, help="Perform the lookup from every node, one line each; "
              "not with --from or --svg.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Also draw the path on the ring, to "
              "this SVG file.")
@ring_options()
def lookup_command(
    target: Target, key: str | None, key_id: int | None, with_trace: bool, start: str | None, mode: Mode,
    route: Route, all_from: bool, svg: Path | None,
) -> int:
    """Find the node that owns KEY, or with --key-id the node that owns a point.

    Give either KEY or --key-id. The output is the owner, the number of hops and the time.
    """
    if (key is None) == (key_id is None):
        raise click.UsageError("give either KEY or --key-id")
    if all_from and (start is not None or svg is not None):
        raise click.UsageError("--all-from starts at every node and draws nothing; omit --from and --svg")
    raw = None if key is None else os.fsencode(key)
    what = key if key is not None else f"id {key_id}"
    with target.connect() as client:
        if all_from:
            return _from_everywhere(target, client, raw, key_id, mode, route)
        trace = client.lookup(raw, key_id=key_id, mode=mode, route=route, from_=_start(client, start))
        everybody = svg is not None or (with_trace and is_worth_counting(trace))
        nodes = statuses(client.members()) if everybody else _nodes_of(client, trace)
        size = Size(len(nodes) if everybody else trace.nodes_estimate, everybody, nodes[0].successors if nodes else 1)
        _print(target, client, trace, nodes, raw, what, size if with_trace else None)
        if svg is not None:
            save(draw_lookup(client.circle, trace, nodes, what), svg)
            target.out.note(f"drawn: {svg}")
    return OK


def is_worth_counting(trace: Trace) -> bool:
    """Return whether a lookup estimates at most `COUNTED_MAX` vnodes in the ring.

    In such a ring the command asks every node for its name, and so counts the nodes. In a larger one it asks only the
    nodes of the path.
    """
    return trace.nodes_estimate <= COUNTED_MAX


def _start(client: Client, word: str | None) -> Contact | str | None:
    if word is None:
        return None
    chosen = find_node(client, word)
    return chosen.vnode.contact if chosen.vnode is not None else chosen.node.address


def _nodes_of(client: Client, trace: Trace) -> list[Status]:
    """Return the statuses of the nodes on a lookup's path, which hold their names.

    Nodes that do not answer are left out; the output shows their addresses.
    """
    contacts = [trace.start, *(hop.contact for hop in trace.hops if not hop.is_dead), trace.owner, *trace.replicas]
    return statuses(client.members(only=list(dict.fromkeys(c.address for c in contacts))))


def _print(
    target: Target, client: Client, trace: Trace, nodes: list[Status], key: bytes | None, what: str, size: Size | None
) -> None:
    """Print a lookup: every hop if `size` is not None, otherwise only the owner.

    `nodes` has the nodes that answered, `key` is None if a point was looked up, and `what` is the key or the point in
    words.
    """
    out, circle, names = target.out, client.circle, names_known(nodes)
    silent = names.keys() - names_of(nodes).keys()
    if out.as_json:
        out.json(lookup_json(circle, trace, names, key, silent))
    elif size is not None:
        print_trace(out, circle, trace, names, what, size, silent)
    else:
        owner = trace.owner
        row = [name_of(owner, names), owner.address, out.id(circle, owner.id),
               str(trace.path_length), f"{trace.duration_ms:.1f} ms"]
        out.table(OWNER_COLUMNS, [row])


def _from_everywhere(
    target: Target, client: Client, key: bytes | None, key_id: int | None, mode: Mode, route: Route
) -> int:
    out = target.out
    nodes = statuses(client.members())
    names = names_known(nodes)
    silent = names.keys() - names_of(nodes).keys()
    found: list[Json] = []
    rows: list[list[str]] = []
    for node in nodes:
        try:
            trace = client.lookup(key, key_id=key_id, mode=mode, route=route, from_=node.address)
        except InvalidRequest:
            raise
        except ChordError as error:
            out.note(f"{node.name}: {error.message}")
            continue
        found.append(lookup_json(client.circle, trace, names, key, silent))
        rows.append(one_line(trace, names))
    if out.as_json:
        out.json(lookups_json(found))
    else:
        out.table(ALL_COLUMNS, rows)
        if out.as_table and found:
            mean = sum(item["path_length"] for item in found) / len(found)
            out.sentence(f"mean {mean:.2f} hops to the key's predecessor from {counted(len(found), 'node')}")
    return OK
