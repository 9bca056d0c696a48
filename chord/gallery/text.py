"""A space-time diagram as text."""

from __future__ import annotations

from chord.gallery.layout import Diagram, DiagramRow

INDENT, LANE_MIN = 7, 14
_MARKS = {
    "ask": "●",
    "timer": "◷",
    "move": "●",
    "lost": "✗",
    "crash": "✗",
    "doubled": "●",
    "restart": "●",
    "start": "●",
}
_PLAIN = str.maketrans("│┃●◷↺✗─├┤┼▶◀→−", "|#*@ox-+++><>-")


def draw_text(diagram: Diagram) -> str:
    """Return a diagram as lines of text. Time runs downwards, and ┃ marks a band."""
    width = max(LANE_MIN, *(len(row.text) + 8 for row in diagram.rows), 0)
    total = INDENT + width * len(diagram.names)
    lines = [" " * INDENT + "".join(f"{name:<{width}}" for name in diagram.names).rstrip()]
    for place, row in enumerate(diagram.rows):
        line = _row(diagram, place, row, width)
        notes = "; ".join(row.notes)
        lines.append(f"{''.join(line):<{total}}  {notes}".rstrip())
    if diagram.pending:
        lines.append(f"       in transit: {', '.join(diagram.pending)}")
    if diagram.hidden:
        lines.append(f"       and {diagram.hidden} more steps")
    return "\n".join(lines)


def plain(text: str) -> str:
    """Return a drawing of `draw_text` with lines and arrows in ASCII. Its labels stay as they are."""
    return text.translate(_PLAIN)


def _row(diagram: Diagram, place: int, row: DiagramRow, width: int) -> list[str]:
    line = list(f"{place + 1:>4}".ljust(INDENT + width * len(diagram.names)))
    inside = {band.lane for band in diagram.bands if band.from_row <= place < band.to_row}
    for lane in range(len(diagram.names)):
        line[INDENT + lane * width] = "┃" if lane in inside else "│"
    at = INDENT + row.lane * width
    if row.peer is None or row.what == "doubled":
        label = f"{_MARKS[row.what]} {'a second ' if row.what == 'doubled' else ''}{row.text}"
        line[at : at + len(label)] = label
        return line
    if row.peer == row.lane:  # a message of a process to itself
        label = f"{'✗' if row.what == 'lost' else '↺'} {row.text}"
        line[at : at + len(label)] = label
        return line
    start = INDENT + row.peer * width
    low, high = min(at, start), max(at, start)
    for x in range(low + 1, high):
        line[x] = "┼" if (x - INDENT) % width == 0 else "─"
    end = "✗" if row.what == "lost" else "▶" if at > start else "◀"
    line[at], line[start] = end, "├" if at > start else "┤"
    # The label stands between the receiver and the next lane, so that it covers no lane.
    near = (at - width, at) if at > start else (at, at + width)
    label = f" {row.text} "
    begin = (near[0] + near[1] + 1 - len(label)) // 2
    line[begin : begin + len(label)] = label
    return line
