"""The history of the aggregator: the lines of the last minutes, with keyframes among them."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from chord.observe.chordlog import Letter, LogLine
from chord.observe.model import Fields, RingChange, RingModel

KEPT_S: Final = 900.0
"""The time that the history reaches back, in seconds."""

KEYFRAME_S: Final = 60.0
"""The time between keyframes, in seconds. A keyframe of a large ring takes much memory."""

KEYFRAME_CHANGES: Final = 10_000


class NumberedLine(NamedTuple):
    """A line of a history.

    Attributes:
        seq: its number, from 1.
        line: the line, with the time on the clock of the aggregator.
    """

    seq: int
    line: LogLine


class RingHistory:
    """The lines of the last 15 minutes. It always begins with a keyframe.

    Args:
        model: the state, which the owner carries on before it adds each change.
        now_s: the time, in seconds.

    Attributes:
        latest: the number of the latest line.
    """

    def __init__(self, model: RingModel, now_s: float) -> None:
        self._model = model
        self._lines: deque[NumberedLine] = deque()
        self._keyframes: deque[NumberedLine] = deque()
        self._changes = 0
        self.latest = 0
        self._keyframe(now_s)

    @property
    def first_s(self) -> float:
        """The time of the oldest line, a keyframe."""
        return self._lines[0].line.at_s

    def change(self, now_s: float, change: RingChange) -> None:
        """Add a change that the state already has, unless the change is empty."""
        if change.size:
            self._changes += change.size
            self.add(now_s, "d", change)

    def add(self, now_s: float, letter: Letter, content: RingChange | Fields) -> None:
        """Add a line, and drop lines that are too old."""
        self._append(now_s, letter, content)
        if self._changes >= KEYFRAME_CHANGES or now_s - self._keyframes[-1].line.at_s >= KEYFRAME_S:
            self._keyframe(now_s)

    def _append(self, now_s: float, letter: Letter, content: RingChange | Fields) -> None:
        self.latest += 1
        self._lines.append(NumberedLine(self.latest, LogLine(now_s, letter, content)))
        while len(self._keyframes) > 1 and self._keyframes[1].line.at_s <= now_s - KEPT_S:
            self._keyframes.popleft()
            while self._lines[0].seq < self._keyframes[0].seq:
                self._lines.popleft()

    def since(self, seq: int) -> list[NumberedLine] | None:
        """Return the lines after a number, without keyframes; None if the history does not reach back so far."""
        if not self._lines[0].seq - 1 <= seq <= self.latest:
            return None
        first = seq + 1 - self._lines[0].seq
        return [self._lines[i] for i in range(first, len(self._lines)) if self._lines[i].line.letter != "k"]

    def between(self, from_s: float, to_s: float) -> list[NumberedLine]:
        """Return the last keyframe until `from_s`, and the lines after it until `to_s`.

        If `from_s` is before the history, the result begins with the oldest keyframe.
        """
        until = [keyframe for keyframe in self._keyframes if keyframe.line.at_s <= from_s]
        first = until[-1] if until else self._keyframes[0]
        rest = (self._lines[i] for i in range(first.seq + 1 - self._lines[0].seq, len(self._lines)))
        return [first, *(one for one in rest if one.line.letter != "k" and one.line.at_s <= to_s)]

    def _keyframe(self, now_s: float) -> None:
        self._changes = 0
        self._append(now_s, "k", self._model.keyframe())
        self._keyframes.append(self._lines[-1])
