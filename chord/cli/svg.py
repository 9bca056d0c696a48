"""Drawings of the ring as SVG: owners, arcs, the states of nodes, and the path of a lookup.

The colours and the marks are those of the dashboard. A drawing is light or dark, as its reader prefers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from chord.cli.inputs import file_failure
from chord.cli.output import DECIMAL_BITS_MAX, counted, percent, printable
from chord.cli.svg_labels import CENTRE, CHARACTER, HEIGHT, LINE, WIDTH, SvgBox, SvgLabel, around, at, free_place
from chord.ids import Circle
from chord.views.common import name_of, names_of
from chord.views.ring import owned_share
from chord.wire.messages import Contact, Status, Trace

RADIUS: Final = 270.0
BAND: Final = 16.0
LABELS_MAX = 84  # as many as fit beside the ring, one below another
STEP = 1 / 8  # of the circle, the longest part of an arc that is drawn with one straight gradient
BEND, BEND_MIN = 0.52, 46.0
HUES = 12
HUES_LIGHT = "c46668 109d7b a66db3 8b8c27 5a86ce bf6e3e 009ba3 bb6690 5d9850 8678c9 ac7d1b 1292c0"
HUES_DARK = "d68585 55b395 ba8ac5 a2a457 7a9fdd d18c65 40b1b7 ce84a7 7dae72 9d94d9 bf9752 54aad1"
COLOURS = ("bg", "ink", "mute", "line", "path", "key", "gold", "own", "warn", "bad")  # of LIGHT and DARK
LIGHT = "ffffff 14171c 59616e 858e9c 2455d6 8a5c00 e3a008 12753a c47300 c4221f"
DARK = "0c0f14 e9ecf1 9aa4b2 667285 7aa2ff f2c14e f2c14e 4cc38a f0a64a ff6b66"

_RULES = (
    "text { font: 12.5px Inter, system-ui, sans-serif; font-variant-numeric: tabular-nums; fill: var(--mute) }",
    ".title { font-size: 15px; font-weight: 600; fill: var(--ink) }",
    ".name { font-weight: 600; fill: var(--ink) }",
    ".keyname { font-weight: 600; fill: var(--key) }",
    ".bg { fill: var(--bg) }",
    ".leader { stroke: var(--line); stroke-opacity: .4; fill: none }",
    ".vnode, .replica, .owner, .hopnode, .dead, .suspect, .joining, .paused { stroke: var(--bg); stroke-width: 2 }",
    ".hopnode { fill: var(--path) }",
    ".owner { fill: var(--own) }",
    ".dead { fill: var(--bg); stroke: var(--bad) }",
    ".cross { stroke: var(--bad); stroke-width: 2; fill: none }",
    ".half { fill: var(--warn) }",
    ".suspect { fill: var(--bg); stroke: var(--warn) }",
    ".joining { fill: var(--bg); stroke: var(--ink); stroke-dasharray: 3 2 }",
    ".paused { fill: var(--bg); stroke: var(--line) }",
    ".bars { stroke: var(--ink); stroke-width: 2 }",
    ".copy { fill: none; stroke: var(--own); stroke-width: 2 }",
    ".arc { fill: none; stroke-width: 16 }",
    ".standin { fill: none; stroke: var(--warn); stroke-width: 3 }",
    ".hatched { fill: none; stroke: url(#hatch); stroke-width: 16 }",
    ".hatch { stroke: var(--warn); stroke-width: 2 }",
    ".hop { fill: none; stroke: var(--path); stroke-width: 2 }",
    ".lost { stroke: var(--bad); stroke-dasharray: 4 4 }",
    ".last { stroke: var(--own) }",
    ".togo { fill: none; stroke: var(--path); stroke-width: 3; stroke-opacity: .5 }",
    ".tip-path { fill: var(--path) }",
    ".tip-own { fill: var(--own) }",
    ".tip-bad { fill: var(--bad) }",
    ".pill { fill: var(--bg); stroke: var(--line); stroke-opacity: .5 }",
    ".number { font-weight: 600; fill: var(--path) }",
    ".key { fill: var(--gold); stroke: var(--key) }",
    ".tick { stroke: var(--line) }",
)


class SvgNode(NamedTuple):
    """A vnode in a drawing.

    Attributes:
        point: its point on the circle.
        name: the name of its node.
        more: a lighter text behind the name, such as its share of the circle.
        kind: its style class: vnode, hopnode, owner, dead, suspect, joining or paused.
        hue: the number of its node's colour.
        is_copy: whether it is in the replica set of the key.
    """

    point: int
    name: str
    more: str
    kind: str
    hue: int
    is_copy: bool = False


class _SvgText(NamedTuple):
    """The text beside the ring of a vnode or a key, in two weights."""

    point: int
    name: str
    more: str
    style: str


def draw_ring(circle: Circle, nodes: Sequence[Status], unreachable: Iterable[Contact]) -> str:
    """Return a drawing of the ring as SVG text: every vnode with its arc, clockwise from point 0 at the top.

    Args:
        circle: the circle of the ring.
        nodes: the status of each node that answered.
        unreachable: the vnodes of nodes that did not answer.
    """
    found = _nodes(circle, nodes, unreachable)
    count = len(nodes)
    title = f"{counted(count, 'node')}, {counted(len(found), 'vnode')} on a circle of 2^{circle.bits} points"
    return _document(circle, title, found, _arcs(circle, nodes), [], [], ring_radius=RADIUS + 40)


def draw_lookup(circle: Circle, trace: Trace, nodes: Sequence[Status], what: str) -> str:
    """Return a drawing of a lookup as SVG text: the ring, and the path over all hops to the owner.

    It also shows how far each hop still was from the key.

    Args:
        circle: the circle of the ring.
        trace: the lookup.
        nodes: the status of each node that answered. Hops and the owner are drawn even if their nodes are not here.
        what: the key or the point in words, for its label.
    """
    names = names_of(nodes)
    found = {node.point: node._replace(more=_id_text(circle, node.point)) for node in _nodes(circle, nodes, [])}
    copies = {contact.id for contact in trace.replicas}
    for hop in trace.hops:
        more = "no answer" if hop.is_dead else f"{percent(hop.remaining)} to go"
        _mark(circle, found, hop.contact, names, more, "dead" if hop.is_dead else "hopnode")
    _mark(circle, found, trace.owner, names, "owns it", "owner")
    drawn = [node._replace(is_copy=node.point in copies) for node in found.values()]
    live = [hop for hop in trace.hops if not hop.is_dead]
    apart = min(6.0, 30.0 / max(1, len(live)))
    to_go = [
        _curve(circle, hop.contact.id, trace.key, RADIUS + 16 + number * apart, "togo")
        for number, hop in enumerate(live)
        if hop.remaining > 0
    ]
    chords, pills = _path(circle, trace)
    hops = f"{trace.path_length} hop{'' if trace.path_length == 1 else 's'}"
    title = f"lookup {what}: {hops} to its predecessor" + (f", {trace.timeouts} timeouts" if trace.timeouts else "")
    x, y = at(circle.fraction(trace.key), RADIUS)
    title_of_key = f"<title>{escape(printable(what))}</title>"
    key = f'<path class="key" d="M{x:.1f} {y - 8:.1f}l8 8l-8 8l-8 -8z">{title_of_key}</path>'
    return _document(
        circle, title, drawn, [*_arcs(circle, nodes), *to_go, *chords], [key], pills,
        ring_radius=RADIUS + 62, key=_SvgText(trace.key, what, "", "keyname"),
    )  # fmt: skip


def save(text: str, path: Path) -> None:
    """Write the text of a drawing to a file.

    Raises:
        Failure: exit 2: the file cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise file_failure(str(path), error, "write", "Name another file") from None


# -- the ring -------------------------------------------------------------------------------------


def _nodes(circle: Circle, nodes: Sequence[Status], unreachable: Iterable[Contact]) -> list[SvgNode]:
    """Return the vnodes of a ring with the states that any node reports of them."""
    said: dict[str, set[str]] = {}
    for node in nodes:
        for peer in node.peers:
            said.setdefault(peer.address, set()).add(peer.state)
    found = []
    for hue, node in enumerate(nodes):
        states = said.get(node.address, set())
        for vnode in node.vnodes:
            kind = "vnode" if vnode.state in ("member", "leaving") else "joining"
            kind = "paused" if "paused" in states else "suspect" if states & {"suspect", "dead"} else kind
            more = percent(owned_share(circle, vnode))
            if circle.bits <= DECIMAL_BITS_MAX:
                more = f"{_id_text(circle, vnode.contact.id)} · {more}"
            found.append(SvgNode(vnode.contact.id, node.name, more, kind, hue))
    paused = {address for address, states in said.items() if "paused" in states}
    names = names_of(nodes)
    for contact in unreachable:
        kind, more = ("paused", "paused") if contact.address in paused else ("dead", "no answer")
        found.append(SvgNode(contact.id, name_of(contact, names), more, kind, 0))
    return found


def _mark(
    circle: Circle, found: dict[int, SvgNode], contact: Contact, names: Mapping[str, str], more: str, kind: str
) -> None:
    before = found.get(contact.id) or SvgNode(contact.id, name_of(contact, names), "", kind, len(found))
    point = f"{_id_text(circle, contact.id)} · " if circle.bits <= DECIMAL_BITS_MAX else ""
    found[contact.id] = before._replace(more=point + more, kind=kind)


def _id_text(circle: Circle, point: int) -> str:
    return str(int(point)) if circle.bits <= DECIMAL_BITS_MAX else ""


def _arcs(circle: Circle, nodes: Sequence[Status]) -> list[str]:
    """Return the arcs as comets: their tint grows from 18 % to 92 % towards the owner."""
    drawn = []
    for hue, node in enumerate(nodes):
        for vnode in node.vnodes:
            for arc in vnode.arcs:
                if arc.state == "owned":
                    drawn += _comet(circle, arc.start, arc.end, hue % HUES)
                    if node.under_replicated:
                        drawn.append(_curve(circle, arc.start, arc.end, RADIUS, "hatched"))
                elif arc.state == "taken_over":
                    drawn.append(_curve(circle, arc.start, arc.end, RADIUS - BAND / 2 - 3, "standin"))
    return drawn


def _comet(circle: Circle, start: int, end: int, hue: int) -> list[str]:
    length = circle.fraction(circle.length(start, end))
    begin, parts = circle.fraction(start), max(1, math.ceil(length / STEP))
    drawn = []
    for part in range(parts):
        tints = [0.18 + 0.74 * (part + ends) / parts for ends in (0, 1)]
        low, high = (begin + length * (part + ends) / parts for ends in (0, 1))
        (x1, y1), (x2, y2) = at(low, RADIUS), at(high, RADIUS)
        name = f"g{start}-{part}"
        stops = "".join(
            f'<stop class="h{hue}" offset="{offset}" stop-opacity="{tint:.3f}"/>' for offset, tint in enumerate(tints)
        )
        drawn.append(
            f'<linearGradient id="{name}" gradientUnits="userSpaceOnUse" x1="{x1:.1f}" y1="{y1:.1f}" '
            f'x2="{x2:.1f}" y2="{y2:.1f}">{stops}</linearGradient>'
            f'<path class="arc" stroke="url(#{name})" d="{_arc_path(low, high, RADIUS)}"/>'
        )
    return drawn


def _curve(circle: Circle, start: int, end: int, radius: float, style: str) -> str:
    begin = circle.fraction(start)
    end_at = begin + circle.fraction(circle.length(start, end))
    return f'<path class="{style}" d="{_arc_path(begin, end_at, radius)}"/>'


def _arc_path(begin: float, end: float, radius: float) -> str:
    """Return the path of an arc, clockwise; in halves, because SVG cannot draw a whole circle as one arc."""
    middle = (begin + end) / 2
    (x0, y0), (x1, y1), (x2, y2) = (at(place, radius) for place in (begin, middle, end))
    half = f"A{radius:.1f} {radius:.1f} 0 0 1"
    return f"M{x0:.1f} {y0:.1f}{half} {x1:.1f} {y1:.1f}{half} {x2:.1f} {y2:.1f}"


# -- the path of a lookup -------------------------------------------------------------------------


class _SvgPill(NamedTuple):
    """The label of a hop: its number, its text, and places for it along the chord."""

    number: str
    text: str
    places: list[tuple[float, float]]


def _path(circle: Circle, trace: Trace) -> tuple[list[str], list[_SvgPill]]:
    """Return the chords of all hops to the owner, and their labels."""
    chords, pills, last, number = [], [], None, 0
    steps = [(hop.contact.id, hop.via, "hop lost" if hop.is_dead else "hop") for hop in trace.hops]
    for point, via, style in [*steps, (trace.owner.id, trace.owner_via, "hop last")]:
        if last is not None and point != last:
            number += style != "hop lost"
            text = f"{via.kind} {via.index}" if via.kind == "finger" else via.kind
            chord, places = _chord(circle, last, point, style)
            chords.append(chord)
            pills.append(_SvgPill("✗" if style == "hop lost" else str(number), text, places))
        if style != "hop lost":
            last = point
    return chords, pills


def _chord(circle: Circle, start: int, end: int, style: str) -> tuple[str, list[tuple[float, float]]]:
    """Return an arrow that bends inwards, and places along it for its label, the best first."""
    inner = RADIUS - BAND / 2 - 4
    (x1, y1), (x2, y2) = at(circle.fraction(start), inner), at(circle.fraction(end), inner)
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    length, depth = math.hypot(x2 - x1, y2 - y1), math.hypot(CENTRE[0] - x, CENTRE[1] - y)
    bend = max(BEND_MIN, min(BEND * length, 0.7 * depth))
    inwards, unit = ((CENTRE[0] - x, CENTRE[1] - y), depth) if depth > 1 else ((y1 - y2, x2 - x1), length)
    cx, cy = x + bend * inwards[0] / unit, y + bend * inwards[1] / unit
    tip = "bad" if "lost" in style else "own" if "last" in style else "path"
    places = []
    for share in (0.5, 0.4, 0.6, 0.3, 0.7, 0.45, 0.55, 0.35, 0.65):
        a, b, c = (1 - share) ** 2, 2 * share * (1 - share), share**2
        places.append((a * x1 + b * cx + c * x2, a * y1 + b * cy + c * y2))
    path = f"M{x1:.1f} {y1:.1f}Q{cx:.1f} {cy:.1f} {x2:.1f} {y2:.1f}"
    return f'<path class="{style}" marker-end="url(#tip-{tip})" d="{path}"/>', places


# -- the document ---------------------------------------------------------------------------------


def _document(
    circle: Circle, title: str, nodes: Sequence[SvgNode], below: Sequence[str], above: Sequence[str],
    pills: Sequence[_SvgPill], *, ring_radius: float, key: _SvgText | None = None,
) -> str:
    """Return a drawing.

    Args:
        circle: the circle of the ring.
        title: the line above the drawing.
        nodes: the vnodes.
        below: elements below the vnodes.
        above: elements above the vnodes.
        pills: the labels of hops.
        ring_radius: the distance of labels from the centre.
        key: the label of a key.
    """
    nodes = sorted(nodes)
    texts = [_SvgText(n.point, n.name, n.more, "name") for n in nodes] if len(nodes) <= LABELS_MAX else []
    texts += [key] if key is not None else []
    places = around([circle.fraction(text.point) for text in texts], ring_radius)
    labels = [_label(text, place) for text, place in zip(texts, places, strict=True)]
    leaders = [_leader(circle, text, place) for text, place in zip(texts, places, strict=True)]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f"aria-label={quoteattr(printable(title))}>",
        f"<style>{_style()}</style>",
        _defs(),
        f'<rect class="bg" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="title" x="24" y="32">{escape(printable(title))}</text>',
        *leaders, *below, *_ticks(circle),
        *(_disc(circle, node) for node in nodes),
        *above, *_pills(pills), *labels, "</svg>", "",
    ])  # fmt: skip


def _style() -> str:
    def colours(values: str, hues: str) -> str:
        named = [f"--{name}:#{value}" for name, value in zip(COLOURS, values.split(), strict=True)]
        return ";".join([*named, *(f"--h{number}:#{value}" for number, value in enumerate(hues.split()))])

    names = [f"h{number}" for number in range(HUES)]
    classes = "".join(f"  .{name} {{ stop-color: var(--{name}); fill: var(--{name}) }}\n" for name in names)
    rules = "".join(f"  {rule}\n" for rule in _RULES)
    return (
        f"\n  svg {{ {colours(LIGHT, HUES_LIGHT)} }}\n"
        f"  @media (prefers-color-scheme: dark) {{ svg {{ {colours(DARK, HUES_DARK)} }} }}\n{classes}{rules}"
    )


def _defs() -> str:
    tips = "".join(
        f'<marker id="tip-{name}" viewBox="0 0 10 10" refX="10" refY="5" markerWidth="6" markerHeight="6" '
        f'orient="auto"><path class="tip-{name}" d="M0 0L10 5L0 10z"/></marker>'
        for name in ("path", "own", "bad")
    )
    hatch = (
        '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<path class="hatch" d="M0 0V6"/></pattern>'
    )
    return f"<defs>{tips}{hatch}</defs>"


def _ticks(circle: Circle) -> list[str]:
    """Return marks inside the ring at each quarter of the circle, and its first point."""
    drawn = []
    for quarter in range(4):
        (x1, y1), (x2, y2) = at(quarter / 4, RADIUS - BAND), at(quarter / 4, RADIUS - BAND - 8)
        drawn.append(f'<path class="tick" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>')
    x, y = at(0, RADIUS - BAND - 18)
    return [*drawn, f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">0</text>']


def _disc(circle: Circle, node: SvgNode) -> str:
    x, y = at(circle.fraction(node.point), RADIUS)
    tip = escape(f"{printable(node.name)} at {node.point} (0x{circle.hex(node.point)})")
    style = f"vnode h{node.hue % HUES}" if node.kind == "vnode" else node.kind
    radius = 6 if node.kind == "vnode" else 8
    parts = [f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"><title>{tip}</title></circle>']
    if node.is_copy:
        parts.append(f'<circle class="copy" cx="{x:.1f}" cy="{y:.1f}" r="12"/>')
    if node.kind == "dead":
        parts.append(f'<path class="cross" d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"/>')
    elif node.kind == "suspect":
        parts.append(f'<path class="half" d="M{x:.1f} {y - 7:.1f}a7 7 0 0 1 0 14z"/>')
    elif node.kind == "paused":
        parts.append(f'<path class="bars" d="M{x - 2.5:.1f} {y - 4:.1f}v8m5 -8v8"/>')
    return "".join(parts)


def _label(text: _SvgText, place: SvgLabel) -> str:
    name, more = _fitting(printable(text.name), printable(text.more), place.room)
    anchor = "end" if place.is_left else "start"
    rest = f' <tspan class="more">{escape(more)}</tspan>' if more else ""
    inner = f'<tspan class="{text.style}">{escape(name)}</tspan>{rest}'
    return f'<text class="label" x="{place.x:.1f}" y="{place.y + 4.5:.1f}" text-anchor="{anchor}">{inner}</text>'


def _fitting(name: str, more: str, room: float) -> tuple[str, str]:
    """Return both parts of a label, shortened to the room that it has in pixels."""
    characters = int(room / CHARACTER) - (len(more) + 1 if more else 0)
    if len(name) <= characters:
        return name, more
    half = (characters - 1) // 2
    return f"{name[:characters - 1 - half]}…{name[len(name) - half:]}", more


def _leader(circle: Circle, text: _SvgText, place: SvgLabel) -> str:
    x, y = at(circle.fraction(text.point), RADIUS + BAND / 2)
    gap = 4 if place.is_left else -4
    return f'<path class="leader" d="M{x:.1f} {y:.1f}L{place.x + gap:.1f} {place.y:.1f}"/>'


def _pills(pills: Sequence[_SvgPill]) -> list[str]:
    """Return the labels of hops, each on its chord if it covers no other one there."""
    x, y = at(0, RADIUS - BAND - 18)
    taken = [SvgBox(x - 8, y - LINE / 2, x + 8, y + LINE / 2)]  # the label of point 0
    drawn = []
    for pill in pills:
        box = free_place(pill.places, CHARACTER * (len(pill.number) + 1 + len(pill.text)) + 16, taken)
        taken.append(box)
        width, height = box.right - box.left, box.bottom - box.top
        drawn.append(
            f'<rect class="pill" x="{box.left:.1f}" y="{box.top:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'rx="9"/>'
            f'<text x="{(box.left + box.right) / 2:.1f}" y="{(box.top + box.bottom) / 2 + 4.5:.1f}" '
            f'text-anchor="middle"><tspan class="number">{pill.number}</tspan> {escape(pill.text)}</text>'
        )
    return drawn
