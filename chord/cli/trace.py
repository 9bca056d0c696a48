"""Traces as tables: one line per hop of a lookup, or per replica of an operation.

A dead hop shows the reason.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping
from typing import NamedTuple

from chord.cli.output import Out, bar, counted, full_id, is_table, percent, short_id
from chord.client.results import Found, Stored
from chord.ids import Circle
from chord.views.common import name_of
from chord.views.trace import answers
from chord.wire.messages import Contact, HopTrace, ReplicaLine, Trace, Via

COLUMNS = (">hop", "node", "address", "id", ">at", "reached by", ">still to go", "outcome", ">rtt", ">t")
REPLICA_COLUMNS = ("replica", "address", "id", "outcome", "counts", "version", ">rtt")
VERSION_BYTES_SHOWN = 4

WAIT_SHOWN_MS = 100.0
"""Shortest wait, in ms, that the line of the owner in a trace mentions.

No node answers for the arc of a dead owner until another node has taken the arc over.
"""


class Size(NamedTuple):
    """The size of a ring, counted or estimated.

    Attributes:
        nodes: the number of nodes.
        is_exact: whether the nodes were counted. Otherwise `nodes` is an estimate.
        successors: the r of the ring.
    """

    nodes: int
    is_exact: bool
    successors: int


def print_trace(
    out: Out, circle: Circle, trace: Trace, names: Mapping[str, str], what: str, size: Size,
    silent: Collection[str] = (),
) -> None:
    """Print a lookup: heading, hops, owner, replicas and summary.

    Args:
        out: the output of the command.
        circle: the circle of the ring.
        trace: the lookup.
        names: the names of nodes, by address. Replicas at other nodes are marked as unreachable.
        what: the key or the point in words.
        size: the size of the ring.
        silent: the addresses in `names` of the nodes that did not answer.
    """
    if out.as_table:
        start = trace.start
        at = percent(circle.fraction(trace.key))
        name = name_of(start, names)
        out.sentence(
            f"lookup {what}   id {out.id(circle, trace.key)} ({at})   from {name}"
            f"{'' if name == start.address else ' ' + start.address}   "
            f"{'' if size.is_exact else 'about '}{counted(size.nodes, 'node')}, {trace.mode}"
        )
        out.line()
    columns = ["" if out.as_table and column == "outcome" else column for column in COLUMNS]
    out.table(columns, rows(circle, trace, names, with_bars=out.as_table), spare=["address"])
    say = out.sentence if out.as_table else out.note
    if out.as_table:
        out.line()
    replicas = " ".join(
        f"{name_of(c, names)} {'●' if answers(trace, c, names, silent) else '✗'}" for c in trace.replicas
    )
    say(f"replicas  {replicas}   (N={max(1, len(trace.replicas))})")
    say(summary(trace, size))


def rows(circle: Circle, trace: Trace, names: Mapping[str, str], *, with_bars: bool) -> list[list[str]]:
    """Return the rows of a lookup's table: every hop in the order tried, then the owner.

    Args:
        circle: the circle of the ring.
        trace: the lookup.
        names: the names of nodes by address. A node that it lacks appears with its address.
        with_bars: whether to shorten ids, and to show the distance left to the key as a bar in place of the outcome
            "ok".
    """
    lines = []
    live = -1
    previous: Contact | None = None
    for hop in trace.hops:
        live += not hop.is_dead
        lines.append(_hop_row(circle, hop, live, previous, names, with_bars))
        previous = previous if hop.is_dead else hop.contact
    outcome, t = "owner", f"{trace.duration_ms:.1f} ms"
    waited_ms = trace.duration_ms - trace.owner_rtt_ms - max((hop.at_ms for hop in trace.hops), default=0.0)
    if trace.mode != "recursive" and waited_ms > WAIT_SHOWN_MS:
        outcome = f"owner; for {waited_ms / 1000:.1f} s before, no node answered for the key"
    rtt = _ms(trace.owner_rtt_ms if trace.owner_rtt_ms > 0 else None)
    how = _reached(circle, trace.owner_via, previous, names)
    lines.append(["●", *_who(circle, trace.owner, names, is_short=with_bars), how, "", outcome, rtt, t])
    return lines


def one_line(trace: Trace, names: Mapping[str, str]) -> list[str]:
    """Return a lookup as one row of cells: start, hops, path, timeouts, duration.

    `names` has the names of nodes by address. A node that it lacks appears with its address.
    """
    path = " → ".join(name_of(h.contact, names) + ("✗" if h.is_dead else "") for h in trace.hops)
    owner = name_of(trace.owner, names)
    return [name_of(trace.start, names), str(trace.path_length), f"{path} ● {owner}", str(trace.timeouts),
            f"{trace.duration_ms:.1f} ms"]


def summary(trace: Trace, size: Size) -> str:
    """Return the last line of a trace: hops, the expected number of hops, duration, timeouts.

    The expected number is left out if no formula gives it. `size` is the size of the ring.
    """
    hops = f"{trace.path_length} hop{'' if trace.path_length == 1 else 's'} to the key's predecessor"
    n, r = size.nodes, size.successors
    expected = ""
    if trace.route == "classic" and trace.mode != "successor" and n > r + 1:
        # Stoica et al. 2003: half the log of the ring, less what the successor list saves at the end.
        mean = max(0.0, math.log2(n) / 2 - math.log2(r) / 2 + 1)
        expected = f"; expected here ½·log2 {n} − ½·log2 {r} + 1 = {mean:.1f}"
    timeouts = f"{trace.timeouts} timeout{'' if trace.timeouts == 1 else 's'}"
    return f"{hops} ({trace.route} route{expected})   {trace.duration_ms:.1f} ms   {timeouts}"


def print_replicas(
    out: Out, circle: Circle, result: Found | Stored, names: Mapping[str, str], duration_ms: float
) -> None:
    """Print one line for each replica of a read or a write, and a summary.

    For a read, all this goes to stderr, because stdout has the value.

    Args:
        out: the output of the command.
        circle: the circle of the ring.
        result: the result of the read or the write, with its replicas.
        names: the names of nodes by address. A node that it lacks appears with its address.
        duration_ms: how long the command waited for the operation, in ms.
    """
    is_read = isinstance(result, Found)
    letter = "R" if is_read else "W"
    is_short = is_table(sys.stderr) if is_read else out.as_table
    rows = [_replica_row(circle, line, letter, names, is_short=is_short) for line in result.replicas]
    out.table(REPLICA_COLUMNS, rows, spare=["address"], is_aside=is_read)
    text = f"{quorum_words(result)}   coordinated by {name_of(result.owner, names)}   {duration_ms:.1f} ms"
    if is_read or not out.as_table:
        out.note(text)
    else:
        out.sentence(text)


def quorum_words(result: Found | Stored) -> str:
    """Return how many replicas counted, and how many had to, as text such as "R: 2 of 2"."""
    if isinstance(result, Found):
        return f"R: {result.r} of {result.r_needed}"
    sloppy = ", some of them stand-ins for unreachable replicas (sloppy)" if result.is_sloppy else ""
    return f"W: {result.w} of {result.w_needed}{sloppy}"


def _replica_row(
    circle: Circle, line: ReplicaLine, letter: str, names: Mapping[str, str], *, is_short: bool
) -> list[str]:
    name, address, point, _ = _who(circle, line.contact, names, is_short=is_short)
    version = line.version[:VERSION_BYTES_SHOWN].hex() or "-"
    return [name, address, point, line.outcome, letter if line.is_counted else "", version, _ms(line.rtt_ms)]


def _hop_row(
    circle: Circle, hop: HopTrace, live: int, previous: Contact | None, names: Mapping[str, str], with_bars: bool
) -> list[str]:
    outcome = bar(hop.remaining) if with_bars and hop.outcome == "ok" else hop.outcome
    if with_bars and hop.is_dead:
        outcome = f"✗ {outcome}"
    return [
        "✗" if hop.is_dead else str(live),
        *_who(circle, hop.contact, names, is_short=with_bars),
        _reached(circle, hop.via, previous, names),
        "" if hop.is_dead else percent(hop.remaining),
        outcome, _ms(hop.rtt_ms), f"{hop.at_ms:.1f} ms",
    ]


def _who(circle: Circle, contact: Contact, names: Mapping[str, str], *, is_short: bool) -> list[str]:
    begin, cut, _ = short_id(circle, contact.id).partition("…")
    point = begin + cut if is_short else full_id(circle, contact.id)
    return [name_of(contact, names), contact.address, point, percent(circle.fraction(contact.id))]


def _reached(circle: Circle, via: Via, previous: Contact | None, names: Mapping[str, str]) -> str:
    if via.kind == "finger":
        below = circle.bits - via.index
        return f"finger {via.index} (+1/{1 << below})" if below <= 10 else f"finger {via.index} (+2^-{below})"
    if via.kind == "successor":
        of = f" of {name_of(previous, names)}" if previous is not None else ""
        return f"successor{'' if via.index == 0 else f' {via.index + 1}'}{of}"
    if via.kind == "predecessor":
        return "redirected"  # by a node that was taken for the owner; the trace does not name it
    return via.kind


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} ms"
