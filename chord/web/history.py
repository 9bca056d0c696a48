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
    """A numbered line of a history: a keyframe, a delta or an event.

    Attributes:
        seq: its number, from 1.
        line: the line. Its time is in seconds on the clock of the aggregator.
    """

    seq: int
    line: LogLine


class RingHistory:
    """The keyframes, deltas and events of the last 15 minutes. The first line is always a keyframe.

    Args:
        model: the state of the ring. The caller applies each change to it before it adds the change here.
        now_s: the time, in seconds on the clock of the aggregator.

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
        """The time of the oldest line, a keyframe, in seconds on the clock of the aggregator."""
        return self._lines[0].line.at_s

    def change(self, now_s: float, change: RingChange) -> None:
        """Add a change as a delta, unless it is empty. The caller has already applied it to the state."""
        if change.size:
            self._changes += change.size
            self.add(now_s, "d", change)

    def add(self, now_s: float, letter: Letter, content: RingChange | Fields) -> None:
        """Add a line, and drop lines older than 15 minutes. A keyframe follows if one is due.

        Args:
            now_s: the time of the line, in seconds.
            letter: the kind of the line, such as "d" for a delta and "e" for an event.
            content: a `RingChange` for a delta, otherwise a JSON object.
        """
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
        """Return the lines with a number above `seq`, without keyframes.

        None means that lines after `seq` have been dropped already, or that `seq` is beyond the latest line.
        """
        if not self._lines[0].seq - 1 <= seq <= self.latest:
            return None
        first = seq + 1 - self._lines[0].seq
        return [self._lines[i] for i in range(first, len(self._lines)) if self._lines[i].line.letter != "k"]

    def between(self, from_s: float, to_s: float) -> list[NumberedLine]:
        """Return the last keyframe at or before `from_s`, and the deltas and events after it up to `to_s`.

        Both times are in seconds. If `from_s` is before the history, the result begins with the oldest keyframe.
        """
        until = [keyframe for keyframe in self._keyframes if keyframe.line.at_s <= from_s]
        first = until[-1] if until else self._keyframes[0]
        rest = (self._lines[i] for i in range(first.seq + 1 - self._lines[0].seq, len(self._lines)))
        return [first, *(one for one in rest if one.line.letter != "k" and one.line.at_s <= to_s)]

    def _keyframe(self, now_s: float) -> None:
        self._changes = 0
        self._append(now_s, "k", self._model.keyframe())
        self._keyframes.append(self._lines[-1])
