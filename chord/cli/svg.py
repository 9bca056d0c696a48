"""Drawings of the ring as SVG: the circle, its vnodes, and the path of a lookup."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from chord.cli.inputs import file_failure
from chord.ids import Circle
from chord.views.common import name_of
from chord.wire.messages import Contact, Trace

SIZE = 720
CENTRE = SIZE / 2
RADIUS = 240
LABELS_MAX = 128  # more labels would overlap

_STYLE = """
  text { font: 12px ui-monospace, monospace; fill: #24292f }
  .title { font-weight: bold; font-size: 14px }
  .circle { fill: none; stroke: #d0d7de; stroke-width: 2 }
  .vnode { fill: #0969da } .dead { fill: #cf222e } .owner { fill: #1a7f37 } .key { fill: #bf8700 }
  .hop { fill: none; stroke: #0969da; stroke-width: 2 } .lost { stroke: #cf222e; stroke-dasharray: 4 4 }
  .last { stroke: #1a7f37 } .faint { fill: #6e7781; font-size: 11px }
"""


class SvgDot(NamedTuple):
    """A vnode in a drawing."""

    point: int  # its point on the circle
    label: str  # its label
    kind: str = "vnode"  # its style class: vnode, dead or owner


def draw_ring(circle: Circle, contacts: Iterable[Contact], names: Mapping[str, str]) -> str:
    """Return a drawing of the ring: every vnode, clockwise from 0 at the top.

    Args:
        circle: the circle of the ring.
        contacts: the vnodes.
        names: the names of nodes by address. A node without a name is drawn with its address.
    """
    dots = [SvgDot(c.id, name_of(c, names)) for c in contacts]
    return _document(circle, f"{len(dots)} vnodes on a circle of 2^{circle.bits} points", dots, [], [])


def draw_lookup(circle: Circle, trace: Trace, contacts: Iterable[Contact], names: Mapping[str, str], what: str) -> str:
    """Return a drawing of a lookup: the ring, and the path over all hops to the owner.

    Args:
        circle: the circle of the ring.
        trace: the lookup.
        contacts: the vnodes of the ring. Hops and owner are drawn even if they are missing here.
        names: the names of nodes by address.
        what: the key or the point in words, for its label.
    """
    dead = {hop.contact.id for hop in trace.hops if hop.is_dead}
    dots = {c.id: SvgDot(c.id, name_of(c, names)) for c in contacts}
    for hop in trace.hops:
        kind = "dead" if hop.contact.id in dead else "vnode"
        dots[hop.contact.id] = SvgDot(hop.contact.id, name_of(hop.contact, names), kind)
    owner = trace.owner
    dots[owner.id] = SvgDot(owner.id, name_of(owner, names), "owner")
    arrows, last = [], None
    for hop in trace.hops:
        if last is not None:
            arrows.append(_arrow(circle, last, hop.contact.id, "hop lost" if hop.is_dead else "hop"))
        if not hop.is_dead:
            last = hop.contact.id
    if last is not None and last != owner.id:
        arrows.append(_arrow(circle, last, owner.id, "hop last"))
    (x, y), (lx, ly) = _place(circle, trace.key, RADIUS), _place(circle, trace.key, RADIUS - 14)
    anchor = "end" if lx > CENTRE else "start"
    key = [
        f'<path class="key" d="M{x:.1f} {y - 7:.1f}l7 7l-7 7l-7 -7z"><title>{escape(what)}</title></path>',
        f'<text x="{lx:.1f}" y="{ly + 4:.1f}" text-anchor="{anchor}">{escape(what)}</text>',
    ]
    hops = f"{trace.path_length} hop{'' if trace.path_length == 1 else 's'}"
    title = f"lookup {what}: {hops} to its predecessor" + (f", {trace.timeouts} timeouts" if trace.timeouts else "")
    return _document(circle, title, list(dots.values()), arrows, key)


def save(text: str, path: Path) -> None:
    """Write a drawing to a file.

    Raises:
        Failure: exit 2: the file cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise file_failure(str(path), error, "write", "Name another file") from None


def _place(circle: Circle, point: int, radius: float) -> tuple[float, float]:
    angle = 2 * math.pi * circle.fraction(point)
    return CENTRE + radius * math.sin(angle), CENTRE - radius * math.cos(angle)


def _arrow(circle: Circle, start: int, end: int, style: str) -> str:
    """Return an arrow bent towards the centre.

    Without the bend, a short hop would look like a part of the circle.

    Args:
        circle: the circle of the ring.
        start, end: the points of the circle that the arrow connects.
        style: the CSS classes of the arrow.
    """
    (x1, y1), (x2, y2) = _place(circle, start, RADIUS), _place(circle, end, RADIUS)
    bend = 0.35
    cx, cy = (x1 + x2) / 2 * (1 - bend) + CENTRE * bend, (y1 + y2) / 2 * (1 - bend) + CENTRE * bend
    path = f"M{x1:.1f} {y1:.1f}Q{cx:.1f} {cy:.1f} {x2:.1f} {y2:.1f}"
    return f'<path class={quoteattr(style)} marker-end="url(#tip)" d="{path}"/>'


def _document(circle: Circle, title: str, dots: Sequence[SvgDot], arrows: Sequence[str], extra: Sequence[str]) -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE}" role="img" '
        f"aria-label={quoteattr(title)}>",
        f"<style>{_STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="14" refY="5" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L10 5L0 10z" fill="#57606a"/></marker></defs>',
        f'<rect width="{SIZE}" height="{SIZE}" fill="#ffffff"/>',
        f'<text class="title" x="16" y="28">{escape(title)}</text>',
        f'<circle class="circle" cx="{CENTRE}" cy="{CENTRE}" r="{RADIUS}"/>',
        f'<text class="faint" x="{CENTRE}" y="{CENTRE - RADIUS + 20}" text-anchor="middle">0</text>',
        *arrows,
        *extra,
    ]
    for dot in sorted(dots):
        x, y = _place(circle, dot.point, RADIUS)
        tip = f"{dot.label} at {dot.point} (0x{circle.hex(dot.point)})"
        parts.append(
            f'<circle class={quoteattr(dot.kind)} cx="{x:.1f}" cy="{y:.1f}" r="6"><title>{escape(tip)}</title></circle>'
        )
        if len(dots) <= LABELS_MAX:
            lx, ly = _place(circle, dot.point, RADIUS + 18)
            anchor = "middle" if abs(lx - CENTRE) < 12 else ("start" if lx > CENTRE else "end")
            at = str(dot.point) if circle.bits <= 16 else f"{100 * circle.fraction(dot.point):.1f} %"
            parts.append(
                f'<text x="{lx:.1f}" y="{ly + 4:.1f}" text-anchor="{anchor}">{escape(dot.label)} '
                f'<tspan class="faint">{at}</tspan></text>'
            )
    return "\n".join([*parts, "</svg>", ""])
