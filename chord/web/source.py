"""The origin of the states that the dashboard shows: a living ring, or a recording."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from math import inf, isfinite
from typing import Final, NamedTuple

from chord.client.api import AsyncClientApi
from chord.observe.chordlog import Chordlog, LogLine
from chord.observe.model import RingModel, RingShape
from chord.views.dashboard import Moment, StateSource
from chord.web.aggregator import Aggregator

KIND_OF_RECORDING: Final[dict[str, StateSource]] = {"live": "recording", "simulation": "simulation", "model": "model"}


class SeenState(NamedTuple):
    """A state of a ring, with its time.

    Attributes:
        model: the state.
        moment: the time, age and origin of the state.
        seen_ms: by address, the time of each node's last status reply, in Unix ms. It is empty for an earlier state and
            a recording.
    """

    model: RingModel
    moment: Moment
    seen_ms: dict[str, int]


class StateOrigin(ABC):
    """The states that a dashboard shows: those of a living ring or of a recording.

    Attributes:
        kind: "live", "recording", "simulation" or "model". JSON responses have it in the field `source`.
    """

    kind: StateSource

    @property
    @abstractmethod
    def shape(self) -> RingShape | None:
        """The constants of the ring; None if they are not known yet."""

    @property
    @abstractmethod
    def span_ms(self) -> tuple[int, int]:
        """The first and the last time for which there is a state, in Unix ms."""

    @abstractmethod
    def at(self, at_ms: int | None = None) -> SeenState:
        """Return the state at a time in Unix ms; None: the latest state."""

    @abstractmethod
    def lines(self, from_ms: float, to_ms: float) -> Iterator[tuple[int, LogLine]]:
        """Yield the history between two times as pairs: the time in Unix ms, and the line.

        The first pair is a keyframe with the state at or before `from_ms`. The deltas and events after it follow, up to
        `to_ms`.
        """


class LiveRing(StateOrigin):
    """A living ring, as the aggregator sees it.

    Args:
        aggregator: polls the ring, and has its state and history.
        now_s: returns the time on the clock of the aggregator, in seconds.
        wall_ms: the wall clock now, in Unix ms.

    Attributes:
        aggregator: the aggregator.
        client: a client of the ring; None while no node has answered yet.
    """

    kind: StateSource = "live"

    def __init__(self, aggregator: Aggregator, now_s: Callable[[], float], wall_ms: int) -> None:
        self.aggregator = aggregator
        self.client: AsyncClientApi | None = None
        self._now_s = now_s
        self._wall_ms = wall_ms
        self._began_s = now_s()

    @property
    def shape(self) -> RingShape | None:
        """The constants of the ring; None until a node has answered."""
        return self.aggregator.shape

    @property
    def span_ms(self) -> tuple[int, int]:
        """The beginning of the history, at most some 16 minutes ago, and now; both in Unix ms."""
        return self.to_ms(self.aggregator.history.first_s), self.to_ms(self.now_s)

    @property
    def now_s(self) -> float:
        """The time on the clock of the aggregator, in seconds."""
        return self._now_s()

    def to_ms(self, at_s: float) -> int:
        """Convert a time on the clock of the aggregator, in seconds, to Unix ms."""
        return self._wall_ms + round(1000 * (at_s - self._began_s))

    def to_s(self, at_ms: float) -> float:
        """Convert a time in Unix ms to seconds on the clock of the aggregator."""
        return self._began_s + (at_ms - self._wall_ms) / 1000

    def at(self, at_ms: int | None = None) -> SeenState:
        """Return the state at a time of the history, in Unix ms; None: the present state."""
        if at_ms is not None:
            model = RingModel()
            for one in self.aggregator.history.between(self.to_s(at_ms), self.to_s(at_ms)):
                if one.line.letter in "kd":
                    model.apply(one.line.content)  # type: ignore[arg-type]
            return SeenState(model, Moment(at_ms, None, self.kind), {})
        model = self.aggregator.model
        seen = {address: self.aggregator.described_s(address) for address in model.nodes}
        seen_ms = {address: self.to_ms(at_s) for address, at_s in seen.items() if at_s is not None}
        return SeenState(model, Moment(self.to_ms(self.now_s), self.age_ms, self.kind), seen_ms)

    @property
    def age_ms(self) -> int | None:
        """The age of the oldest shown status among the nodes that answer, in ms; None if no node ever answered.

        If none answers now, it is the age of the latest status.
        """
        oldest_s = self.aggregator.oldest_s
        if not isfinite(oldest_s):
            seen = (self.aggregator.described_s(address) for address in self.aggregator.model.nodes)
            oldest_s = max((at_s for at_s in seen if at_s is not None), default=inf)
        return max(0, round(1000 * (self.now_s - oldest_s))) if isfinite(oldest_s) else None

    def lines(self, from_ms: float, to_ms: float) -> Iterator[tuple[int, LogLine]]:
        """Yield the history between two times as pairs: the time in Unix ms, and the line.

        The first pair is the last keyframe at or before `from_ms`.
        """
        for one in self.aggregator.history.between(self.to_s(from_ms), self.to_s(to_ms)):
            yield self.to_ms(one.line.at_s), one.line


class PlayedRing(StateOrigin):
    """The states of a recording.

    Args:
        log: the recording.

    Attributes:
        log: the recording.
    """

    def __init__(self, log: Chordlog) -> None:
        self.log = log
        self.kind = KIND_OF_RECORDING[log.header.source]
        self._began_ms = log.header.began_ms

    @property
    def shape(self) -> RingShape:
        """The constants of the ring, from the first line of the recording."""
        header = self.log.header
        return RingShape(header.bits, header.successors, header.replicas)

    @property
    def span_ms(self) -> tuple[int, int]:
        """The beginning and the end of the recording, in Unix ms."""
        return self._began_ms, self._began_ms + round(1000 * self.log.ends_s)

    def at(self, at_ms: int | None = None) -> SeenState:
        """Return the state at a time in Unix ms; None: the state at the end."""
        at_ms = self.span_ms[1] if at_ms is None else at_ms
        return SeenState(self.log.seek((at_ms - self._began_ms) / 1000), self.moment(at_ms), {})

    def moment(self, at_ms: int) -> Moment:
        """Return a time in Unix ms as a `Moment` of this recording, with the age 0."""
        return Moment(at_ms, 0, self.kind)

    def lines(self, from_ms: float, to_ms: float) -> Iterator[tuple[int, LogLine]]:
        """Yield the recording between two times as pairs: the time in Unix ms, and the line.

        The first pair is a keyframe with the state at `from_ms`, made for this call.
        """
        from_s = max(0.0, (from_ms - self._began_ms) / 1000)
        yield round(self._began_ms + 1000 * from_s), LogLine(from_s, "k", self.log.seek(from_s).keyframe())
        for line in self.log.lines(from_s):
            at_ms = self._began_ms + round(1000 * line.at_s)
            if at_ms > to_ms:
                return
            if line.letter != "k":
                yield at_ms, line


