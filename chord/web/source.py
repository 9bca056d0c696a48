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
    """A state, and when it was seen.

    Attributes:
        model: the state.
        moment: the moment of the state.
        seen_ms: the time of the last answer of each node, in Unix ms, by address.
    """

    model: RingModel
    moment: Moment
    seen_ms: dict[str, int]


class StateOrigin(ABC):
    """The states of one ring over a time.

    Attributes:
        kind: the origin, as answers name it.
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
        """Return the state at a time in Unix ms; default: the latest."""

    @abstractmethod
    def lines(self, from_ms: float, to_ms: float) -> Iterator[tuple[int, LogLine]]:
        """Yield a keyframe until `from_ms`, and the lines after it until `to_ms`, each with its time in Unix ms."""


class LiveRing(StateOrigin):
    """A living ring, as the aggregator sees it.

    Args:
        aggregator: what polls the ring.
        now_s: the clock of the aggregator, in seconds.
        wall_ms: the wall clock at the start, in Unix ms.

    Attributes:
        client: the client of the ring; None while no node has answered yet.
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
        """The last 15 minutes, or the time since the start."""
        return self.to_ms(self.aggregator.history.first_s), self.to_ms(self.now_s)

    @property
    def now_s(self) -> float:
        """The time on the clock of the aggregator, in seconds."""
        return self._now_s()

    def to_ms(self, at_s: float) -> int:
        """Return a time of the aggregator in Unix ms."""
        return self._wall_ms + round(1000 * (at_s - self._began_s))

    def to_s(self, at_ms: float) -> float:
        """Return a time in Unix ms on the clock of the aggregator."""
        return self._began_s + (at_ms - self._wall_ms) / 1000

    def at(self, at_ms: int | None = None) -> SeenState:
        """Return the state at a time of the last 15 minutes; default: now."""
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
        """The age of the oldest description among the nodes that answer; if none answers, that of the latest one."""
        oldest_s = self.aggregator.oldest_s
        if not isfinite(oldest_s):
            seen = (self.aggregator.described_s(address) for address in self.aggregator.model.nodes)
            oldest_s = max((at_s for at_s in seen if at_s is not None), default=inf)
        return max(0, round(1000 * (self.now_s - oldest_s))) if isfinite(oldest_s) else None

    def lines(self, from_ms: float, to_ms: float) -> Iterator[tuple[int, LogLine]]:
        """Yield lines of the last 15 minutes."""
        for one in self.aggregator.history.between(self.to_s(from_ms), self.to_s(to_ms)):
            yield self.to_ms(one.line.at_s), one.line


class PlayedRing(StateOrigin):
    """A recording.

    Args:
        log: the recording.
    """

    def __init__(self, log: Chordlog) -> None:
        self.log = log
        self.kind = KIND_OF_RECORDING[log.header.source]
        self._began_ms = log.header.began_ms

    @property
    def shape(self) -> RingShape:
        """The constants of the ring, from the first line."""
        header = self.log.header
        return RingShape(header.bits, header.successors, header.replicas)

    @property
    def span_ms(self) -> tuple[int, int]:
        """The times of the first and the last line."""
        return self._began_ms, self._began_ms + round(1000 * self.log.ends_s)

    def at(self, at_ms: int | None = None) -> SeenState:
        """Return the state at a time; default: at the end."""
        at_ms = self.span_ms[1] if at_ms is None else at_ms
        return SeenState(self.log.seek((at_ms - self._began_ms) / 1000), self.moment(at_ms), {})

    def moment(self, at_ms: int) -> Moment:
        """Return a moment of the recording, in Unix ms."""
        return Moment(at_ms, 0, self.kind)

    def lines(self, from_ms: float, to_ms: float) -> Iterator[tuple[int, LogLine]]:
        """Yield a keyframe made for `from_ms`, and the lines after it."""
        from_s = max(0.0, (from_ms - self._began_ms) / 1000)
        yield round(self._began_ms + 1000 * from_s), LogLine(from_s, "k", self.log.seek(from_s).keyframe())
        for line in self.log.lines(from_s):
            at_ms = self._began_ms + round(1000 * line.at_s)
            if at_ms > to_ms:
                return
            if line.letter != "k":
                yield at_ms, line


