"""`status`, `members`, `ring` and `fingers`: the ring as its nodes report it."""

from __future__ import annotations

from pathlib import Path
from statistics import median_low

import click

from chord.cli.failures import OK
from chord.cli.output import Out, bar, counted, percent
from chord.cli.svg import draw_ring, save
from chord.cli.target import Chosen, Target, find_node, ring_options, statuses, who_left
from chord.config import SKEW_REFUSED_MS, SKEW_REPORTED_MS
from chord.errors import NO_REPLY
from chord.ids import Circle
from chord.views.common import name_of, names_of
from chord.views.nodes import status_json
from chord.views.ring import count_keys, fingers_json, is_small, members_json, owned_share, ring_json, state_of
from chord.wire.messages import Status

SUCCESSORS_SHOWN = 4

ENOUGH_S = 1.0
"""Time for an answer, in seconds. Within less, a node that is up may not answer."""


def failures_taken(nodes: int) -> str:
    """Return in words how many node failures a ring of up to r + 1 nodes tolerates."""
    return "it tolerates no failure" if nodes == 1 else "it tolerates one failure at a time"


@click.command("status")
@ring_options()
def status_command(target: Target) -> int:
    """Show every node: id, state, share of the circle, keys, load.

    keys: the records that a node keeps, including copies for other owners and recently deleted or expired records.
    hints: the records among these that it keeps for an unreachable replica. under-replicated: the keys of its own arcs
    with a replica that is unreachable or not in sync. siblings: the keys with concurrent values, each copy counted.
    damaged: the copies that are not as written and are not replaced yet. quarantined: the values of its own arcs that
    are hidden from readers until you decide about them (chord quarantine).

    A degraded node does not serve all requests. The reason is below the table.
    """
    out = target.out
    with target.connect() as client:
        crawl = client.members()
        nodes, circle = statuses(crawl), client.circle
    if out.as_json:
        out.json(status_json(circle, nodes, crawl.errors))
        return OK
    busiest = max(1, max(node.keys for node in nodes))
    troubles = {
        "hints": [node.hints for node in nodes],
        "under-replicated": [node.under_replicated for node in nodes],
        "siblings": [node.sibling_keys for node in nodes],
        "damaged": [node.damaged for node in nodes],
        "quarantined": [node.quarantined for node in nodes],
    }
    shown = {title: counts for title, counts in troubles.items() if any(counts) or not out.as_table}
    rows = [
        [node.name, node.address, _ids(out, circle, node), state_of(node), percent(_share(circle, node)),
         str(node.keys), bar(node.keys / busiest), *(str(counts[i]) for counts in shown.values())]
        for i, node in enumerate(nodes)
    ]
    out.table(
        ["node", "address", "id", "state", ">owns", ">keys", "load", *(f">{title}" for title in shown)], rows,
        plain=["load"],
    )
    if out.as_table:
        out.line()
        out.sentence(_headline(nodes))
        if any(node.membership != "off" for node in nodes):
            out.sentence(_membership(nodes))
    left = who_left(nodes)
    unreachable = sum(isinstance(error, NO_REPLY) for address, error in crawl.errors.items() if address not in left)
    for warning in _warnings(nodes, unreachable, target.timeout_s):
        out.note(warning)
    for address, error in crawl.errors.items():
        out.note(f"{address}: {'has left' if address in left else error.message.removeprefix(f'{address}: ')}")
    return OK


@click.command("members")
@ring_options()
def members_command(target: Target) -> int:
    """Show the members of the ring, and the known nodes that are unreachable.

    The rtt, and the state of an unreachable node, are those that the entry node reports. dead: found dead some seconds
    ago. suspect: probed now and then. left: the node announced its leave. paused: it announced a stop, and it has the
    only copy of its records. unreachable: it does not answer this command, but the entry node does not suspect it.
    To give up an unreachable node: chord forget NAME, or its HOST:PORT.
    """
    out = target.out
    with target.connect() as client:
        crawl = client.members()
        circle, entry = client.circle, client.entry
    nodes = statuses(crawl)
    seen = next((n for n in nodes if n.address == entry), nodes[0])
    shown = members_json(circle, nodes, crawl.errors, seen)
    if out.as_json:
        out.json(shown)
        return OK
    rows = [
        [m["node"], m["address"], m["state"], "-" if m["rtt_ms"] is None else f"{m['rtt_ms']:.2f} ms",
         ",".join(out.id(circle, int(v["id"])) for v in m["vnodes"])]
        for m in shown["members"]
    ]
    out.table(["node", "address", "state", ">rtt", "ids"], rows)
    if out.as_table and any(node.membership != "off" for node in nodes):
        out.line()
        out.sentence(_membership(nodes))
    return OK


@click.command("ring")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw the ring as SVG.")
@ring_options()
def ring_command(target: Target, svg: Path | None) -> int:
    """Show every vnode in ring order, its neighbours and the arc it owns."""
    out = target.out
    with target.connect() as client:
        crawl, circle = client.members(), client.circle
    nodes = statuses(crawl)
    names = names_of(nodes)
    vnodes = sorted((v for node in nodes for v in node.vnodes), key=lambda v: v.contact.id)
    if svg is not None:
        known = dict.fromkeys(contact for node in nodes for contact in node.known)
        down = {at for at, error in crawl.errors.items() if isinstance(error, NO_REPLY)} - who_left(nodes)
        save(draw_ring(circle, nodes, [contact for contact in known if contact.address in down]), svg)
        out.note(f"drawn: {svg}")
    if out.as_json:
        out.json(ring_json(circle, nodes))
        return OK
    rows = []
    for v in vnodes:
        successors = [name_of(c, names) for c in v.successors]
        is_cut = out.as_table and len(successors) > SUCCESSORS_SHOWN
        shown = " ".join(successors[:SUCCESSORS_SHOWN]) + " …" if is_cut else " ".join(successors)
        before = "-" if v.predecessor is None else name_of(v.predecessor, names)
        share = owned_share(circle, v)
        rows.append([out.id(circle, v.contact.id), percent(circle.fraction(v.contact.id)),
                     name_of(v.contact, names), v.contact.address, before, shown,
                     percent(share), str(v.keys), bar(share)])
    columns = ["id", ">at", "node", "address", "predecessor", "successors", ">owns", ">keys", "arc"]
    out.table(columns, rows, plain=["arc"], spare=["address"])
    return OK


@click.command("fingers")
@click.argument("node", required=False)
@ring_options()
def fingers_command(target: Target, node: str | None) -> int:
    """Show the finger table of NODE: a name, HOST:PORT, 0xHEX or an id.

    The default is the entry node.
    """
    out = target.out
    with target.connect() as client:
        circle = client.circle
        chosen = Chosen(client.status(), None) if node is None else find_node(client, node)
        vnode = chosen.vnode or chosen.node.vnodes[0]
        asked = list(dict.fromkeys([chosen.node.address, *(run.contact.address for run in vnode.fingers)]))
        names = names_of(statuses(client.members(only=asked)))
    if out.as_json:
        out.json(fingers_json(circle, vnode, names))
        return OK
    rows = []
    for run in sorted(vnode.fingers, key=lambda run: run.first):
        entries = str(run.first) if run.first == run.last else f"{run.first}-{run.last}"
        first, last = (circle.point(vnode.contact.id + (1 << i)) for i in (run.first, run.last))
        to = "…" if out.as_table else "to"
        starts = out.id(circle, first) if first == last else f"{out.id(circle, first)} {to} {out.id(circle, last)}"
        at = out.id(circle, run.contact.id)
        rows.append([entries, starts, at, name_of(run.contact, names), run.contact.address])
    if out.as_table:
        out.sentence(
            f"fingers of {chosen.node.name} at {out.id(circle, vnode.contact.id)}: finger i is the first vnode "
            f"at or after id + 2^i"
        )
        out.line()
    out.table(["i", "start", "id", "node", "address"], rows)
    return OK


def _share(circle: Circle, node: Status) -> float:
    return sum(owned_share(circle, vnode) for vnode in node.vnodes)


def _ids(out: Out, circle: Circle, node: Status) -> str:
    ids = [out.id(circle, v.contact.id) for v in node.vnodes]
    if not out.as_table:
        return ",".join(ids) or "-"
    return ids[0] + (f" +{len(ids) - 1}" if len(ids) > 1 else "") if ids else "-"


def _headline(nodes: list[Status]) -> str:
    first = nodes[0]
    keys = count_keys(nodes)
    misplaced = sum(node.misplaced for node in nodes)
    text = (f"{counted(len(nodes), 'node')}, {counted(keys, 'key')}, N={first.replicas}, "
            f"successor lists of {first.successors}, {first.bits} bits, cluster {first.cluster!r}")
    if is_small(nodes):
        text += f". Small ring: every member knows all others; {failures_taken(len(nodes))}"
    return text + (f". {counted(misplaced, 'record')} on the way to the right nodes" if misplaced else "")


def _membership(nodes: list[Status]) -> str:
    """Return in words how many nodes keep a membership list, and how many members the lists have."""
    known = [node.members for node in nodes if node.membership == "on"]
    over = sum(node.membership == "over" for node in nodes)
    few, many = min(known, default=0), max(known, default=0)
    text = f"Membership lists: {counted(len(known), 'node')} of {len(nodes)}"
    if known:
        text += f", with {counted(many, 'member') if few == many else f'{few} to {many} members'} alive"
    return text + (f". {counted(over, 'node')} dropped the list, because the ring is too large for it" if over else "")


def clock_warnings(nodes: list[Status]) -> list[str]:
    """Return warnings, in words, if the wall clocks of nodes differ by more than `SKEW_REPORTED_MS`; otherwise none.

    They name the clocks that are wrong, and the nodes that refuse puts with a time to live.
    """
    skew_ms = max(node.clock_skew_ms for node in nodes)
    if skew_ms <= SKEW_REPORTED_MS:
        return []
    others_ms = median_low(node.wall_ms for node in nodes)
    off = [
        f"that of {node.name} is {abs(ahead_ms) / 1000:.0f} s {'ahead' if ahead_ms > 0 else 'behind'}"
        for node in nodes
        if abs(ahead_ms := node.wall_ms - others_ms) > skew_ms / 2
    ]
    which = f" ({', '.join(off)})" if off else ""
    refusing = [node.name for node in nodes if node.clock_skew_ms > SKEW_REFUSED_MS]
    refused = f": puts with a time to live fail for keys of {', '.join(refusing)}" if refusing else ""
    return [f"Clocks differ by {skew_ms / 1000:.0f} s{which}{refused}"]


def _warnings(nodes: list[Status], unreachable: int, timeout_s: float) -> list[str]:
    """Return the warnings for an operator.

    `unreachable` counts the members that did not answer within `timeout_s` seconds.
    """
    found = [f"{node.name} is degraded: {why}" for node in nodes for why in node.troubles]
    if damaged := sum(node.damaged for node in nodes):
        found.append(f"{counted(damaged, 'copy', 'copies')} of records damaged, and not replaced: see chord check")
    if quarantined := sum(node.quarantined for node in nodes):
        found.append(f"{counted(quarantined, 'value')} in quarantine, hidden from readers: see chord quarantine list")
    found += clock_warnings(nodes)
    quorum = nodes[0].replicas // 2 + 1
    have = counted(len(nodes), "node")
    if len(nodes) < (needed := min(quorum, len(nodes) + unreachable)):
        everyone = counted(len(nodes) + unreachable, "node")
        answer = "answers" if len(nodes) == 1 else "answer"
        what = f"Only {len(nodes)} of {everyone} {answer}"
        if timeout_s < ENOUGH_S:
            found.append(f"{what} within {timeout_s:g} s. Give the others more time: --timeout")
        else:
            found.append(f"{what}, and a write quorum is {needed}: writes fail until more answer")
    elif len(nodes) < quorum:
        found.append(f"The ring has {have}, fewer than its write quorum of {quorum}: a write is on {have} only")
    return found
