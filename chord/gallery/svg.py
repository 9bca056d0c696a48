"""A space-time diagram as SVG."""

from __future__ import annotations

import textwrap
from xml.sax.saxutils import escape, quoteattr

from chord.gallery.layout import CHARACTER_WIDTH, GAP, LABEL_HEIGHT, LEFT, ROW_HEIGHT, TOP, Diagram

TITLE_CHARACTER_WIDTH, EXTRA_CHARACTERS_MAX = 8.6, 100
OPEN_PART = 0.7
"""The part of the way to its receiver that the line of a message in transit has."""
_STYLE = """
  text { font: 12px ui-monospace, monospace; fill: #24292f; paint-order: stroke; stroke: #fff; stroke-width: 4px }
  .title { font-weight: bold; font-size: 14px } .name { font-weight: bold }
  .lane { stroke: #d0d7de; stroke-width: 2 } .band { stroke: #1a7f37; stroke-width: 8; opacity: 0.35 }
  .message { stroke: #0969da; stroke-width: 1.5 } .lost { stroke: #cf222e; stroke-dasharray: 4 4 }
  .open { stroke-dasharray: 1 3 }
  .step { fill: #24292f } .fault { fill: #cf222e } .note { fill: #6e7781 }
"""


def draw_svg(diagram: Diagram, title: str) -> str:
    """Return a diagram as an SVG document, with the text `title` above it. Time runs downwards."""
    last = len(diagram.rows) - 1
    bottom = diagram.y_of(last) + ROW_HEIGHT
    extra = textwrap.wrap(f"in transit: {', '.join(diagram.pending)}", EXTRA_CHARACTERS_MAX) if diagram.pending else []
    extra += [f"and {diagram.hidden} more steps"] if diagram.hidden else []
    fields = sorted({band.field.removeprefix("is_").replace("_", " ") for band in diagram.bands})
    extra += [f"wide band: {', '.join(fields)}"] if fields else []
    boxes = diagram.boxes()
    widths = [diagram.x_of(len(diagram.names)), 2 * LEFT + len(title) * TITLE_CHARACTER_WIDTH]
    widths += [box.x + box.width for box in boxes] + [LEFT + len(text) * CHARACTER_WIDTH for text in extra]
    width = max(widths) + LEFT / 2
    height = bottom + (len(extra) + 1) * ROW_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f"aria-label={quoteattr(title)}>",
        f"<style>{_STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L10 5L0 10z" fill="#57606a"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        f'<text class="title" x="16" y="24">{escape(title)}</text>',
    ]
    for lane, name in enumerate(diagram.names):
        x = diagram.x_of(lane)
        parts.append(f'<text class="name" x="{x:.1f}" y="{TOP - 22}" text-anchor="middle">{escape(name)}</text>')
        parts.append(f'<line class="lane" x1="{x:.1f}" y1="{TOP - 14}" x2="{x:.1f}" y2="{bottom:.1f}"/>')
    for band in diagram.bands:
        x, tip = diagram.x_of(band.lane), f"<title>{escape(band.field)}</title>"
        y1, y2 = diagram.y_of(band.from_row), diagram.y_of(band.to_row)
        parts.append(f'<line class="band" x1="{x:.1f}" y1="{y1:.1f}" x2="{x:.1f}" y2="{y2:.1f}">{tip}</line>')
    for arrow in diagram.arrows:
        x1, y1 = diagram.x_of(arrow.from_lane), diagram.y_of(arrow.from_row)
        x2, y2 = diagram.x_of(arrow.to_lane), diagram.y_of(arrow.to_row)
        style = "message lost" if arrow.is_lost else "message"
        line = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        parts.append(f'<line class="{style}" marker-end="url(#tip)" {line}/>')
    for arrow in diagram.open:  # without a tip, and not up to the receiver: the message is in transit
        x1, y1 = diagram.x_of(arrow.from_lane), diagram.y_of(arrow.from_row)
        x2, y2 = x1 + (diagram.x_of(arrow.to_lane) - x1) * OPEN_PART, diagram.y_of(arrow.to_row) - ROW_HEIGHT / 4
        parts.append(f'<line class="message open" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')
    for place, row in enumerate(diagram.rows):
        x, y = diagram.x_of(row.lane), diagram.y_of(place)
        parts.append(f'<text class="note" x="{LEFT - 3 * GAP}" y="{y + 4:.1f}" text-anchor="end">{place + 1}</text>')
        if row.what in ("crash", "lost"):
            parts.append(f'<path d="M{x - 5:.1f} {y - 5:.1f}l10 10m0 -10l-10 10" stroke="#cf222e" stroke-width="2"/>')
        elif row.peer is None:
            parts.append(f'<circle class="step" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
    parts += [f'<text x="{b.x:.1f}" y="{b.y + LABEL_HEIGHT - 4:.1f}">{escape(b.text)}</text>' for b in boxes]
    for number, text in enumerate(extra):
        y = bottom + number * ROW_HEIGHT
        parts.append(f'<text class="note" x="{LEFT}" y="{y + ROW_HEIGHT:.1f}">{escape(text)}</text>')
    return "\n".join([*parts, "</svg>", ""])
