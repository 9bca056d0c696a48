"""The layout of a space-time diagram: lanes, rows, arrows, bands and labels, for text and for SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from chord.gallery.process import Name
from chord.gallery.recording import Recording, RunEvent, words_of

ROW_HEIGHT, LANE_WIDTH_MIN, CHARACTER_WIDTH = 26, 150, 7.3
TOP, LEFT, LABEL_HEIGHT, GAP = 64, 70, 16, 10


class DiagramRow(NamedTuple):
    """One step of a run, as a row of a diagram.

    Attributes:
        number: the number of its first event in the recording.
        lane: the lane of its process: an index, from 0.
        what: the kind of step, such as "receive" or "crash".
        text: its label: the message, the ask or the timer.
        peer: the lane of the sender of the message; None: the step has no message.
        notes: each event that a process noted by `Did` in this step, in words, and the messages that it overtook.
    """

    number: int
    lane: int
    what: str
    text: str
    peer: int | None
    notes: tuple[str, ...]

    @property
    def is_from_right(self) -> bool:
        """Whether its message arrives from the right, so that its label stands on the left of the lane."""
        return self.peer is not None and self.peer > self.lane


class Arrow(NamedTuple):
    """A message, from the row and lane of its send to those of its arrival or loss. Both are indices, from 0."""

    from_row: int
    from_lane: int
    to_row: int
    to_lane: int
    is_lost: bool


class Band(NamedTuple):
    """The rows in which a field of a process is true, such as `is_inside`: from `from_row` on, before `to_row`."""

    lane: int
    field: str
    from_row: int
    to_row: int


class Box(NamedTuple):
    """A label of a drawing: its left upper corner and its size, in pixels, and its text."""

    x: float
    y: float
    width: float
    height: float
    text: str


class Diagram(NamedTuple):
    """A space-time diagram.

    Attributes:
        names: the names of the lanes.
        rows: the steps, from top to bottom.
        arrows: the messages that arrived or were lost.
        bands: the bands on the lanes.
        pending: the messages in transit at the end, in words.
        open: the same messages as arrows. Each ends below the last row, because it has not arrived.
        hidden: how many further steps the run has.
    """

    names: tuple[Name, ...]
    rows: tuple[DiagramRow, ...]
    arrows: tuple[Arrow, ...]
    bands: tuple[Band, ...]
    pending: tuple[str, ...]
    open: tuple[Arrow, ...]
    hidden: int

    @property
    def lane_width(self) -> float:
        """The distance of two lanes in pixels: the longest label fits between them."""
        longest = max((len(row.text) for row in self.rows), default=0)
        return max(LANE_WIDTH_MIN, longest * CHARACTER_WIDTH + 4 * GAP)

    @property
    def left(self) -> float:
        """The x coordinate of the first lane in pixels: labels on its left have room beside the numbers of the rows."""
        longest = max((len(row.text) for row in self.rows if not row.lane and row.is_from_right), default=0)
        return max(LEFT, longest * CHARACTER_WIDTH + 6 * GAP)

    def x_of(self, lane: int) -> float:
        """Return the x coordinate of a lane in pixels. `lane` is its index, from 0."""
        return self.left + lane * self.lane_width

    def y_of(self, row: int) -> float:
        """Return the y coordinate of a row in pixels. `row` is its index, from 0."""
        return TOP + row * ROW_HEIGHT

    def boxes(self) -> list[Box]:
        """Return all labels of rows and notes. No two of them overlap, and no message crosses its own label."""
        found: list[Box] = []
        for place, row in enumerate(self.rows):
            y = self.y_of(place) - LABEL_HEIGHT + 2
            width = len(row.text) * CHARACTER_WIDTH
            x = self.x_of(row.lane)
            if row.text:
                found.append(Box(x - GAP - width if row.is_from_right else x + GAP, y, width, LABEL_HEIGHT, row.text))
            if row.notes:
                note = "; ".join(row.notes)
                at = self.x_of(len(self.names) - 1) + self.lane_width
                found.append(Box(at, y, len(note) * CHARACTER_WIDTH, LABEL_HEIGHT, note))
        return found


def diagram_of(run: Recording, bands: Sequence[str] = (), rows_max: int | None = None) -> Diagram:
    """Return the layout of a recording.

    Args:
        run: the recording.
        bands: the names of the fields that are drawn as bands while they are true.
        rows_max: the most rows; None: all steps.
    """
    lanes = {name: lane for lane, name in enumerate(run.names)}
    steps = _steps_of(run)
    shown = steps[:rows_max]
    row_of = {event.n: place for place, step in enumerate(shown) for event in step}
    rows: list[DiagramRow] = []
    arrows: list[Arrow] = []
    arrived: set[int] = set()
    for place, step in enumerate(shown):
        first = step[0]
        peer = lanes[first.with_] if first.of is not None else None
        if first.of is not None and peer is not None and first.what != "doubled":
            arrived.add(first.of)
            arrows.append(Arrow(row_of[first.of], peer, place, lanes[first.process], first.what == "lost"))
        text = words_of(first.message) if first.of is not None else _label_of(first)
        rows.append(DiagramRow(first.n, lanes[first.process], first.what, text, peer, _notes_of(run, step, arrived)))
    waiting = [event for event in run.of("send") if event.n in row_of and event.n not in arrived]
    return Diagram(
        run.names,
        tuple(rows),
        tuple(arrows),
        _bands_of(shown, bands, lanes),
        pending=tuple(f"{event.process}→{event.with_} {words_of(event.message)}" for event in waiting),
        open=tuple(
            Arrow(row_of[event.n], lanes[event.process], len(shown), lanes[event.with_], False) for event in waiting
        ),
        hidden=len(steps) - len(shown),
    )


def _steps_of(run: Recording) -> list[list[RunEvent]]:
    """Return the events by step. A step begins with an event that is no effect. A start without effects is omitted."""
    steps: list[list[RunEvent]] = []
    for event in run.events:
        if event.what in ("send", "did"):
            steps[-1].append(event)
        else:
            steps.append([event])
    return [step for step in steps if step[0].what != "start" or len(step) > 1]


def _label_of(event: RunEvent) -> str:
    if event.what == "move":
        return ", ".join(f"{field} {value}" for field, value in (event.state or {}).items())
    return event.with_ if event.what in ("ask", "timer") else event.what


def _notes_of(run: Recording, step: list[RunEvent], arrived: set[int]) -> tuple[str, ...]:
    """Return the notes of a step: each `Did`, and the messages that this one has overtaken."""
    first = step[0]
    notes = [f"{e.process}: {e.with_} {words_of(e.message)}".rstrip() for e in step if e.what == "did"]
    if first.what == "receive" and first.of is not None:
        earlier = [e for e in run.of("send", first.process) if e.process == first.with_ and e.n < first.of]
        overtaken = [words_of(e.message) for e in earlier if e.n not in arrived]
        if overtaken:
            notes.append(f"overtakes {', '.join(overtaken)}")
    return tuple(notes)


def _bands_of(steps: Sequence[list[RunEvent]], fields: Sequence[str], lanes: dict[Name, int]) -> tuple[Band, ...]:
    bands: list[Band] = []
    began: dict[tuple[int, str], int] = {}
    for place, step in enumerate(steps):
        state = step[-1].state or {}
        for field in fields:
            key = (lanes[step[-1].process], field)
            if state.get(field):
                began.setdefault(key, place)
            elif key in began:
                bands.append(Band(*key, began.pop(key), place))
    return (*bands, *(Band(*key, place, len(steps)) for key, place in began.items()))
