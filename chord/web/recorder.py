"""Recordings of a living ring: the last minutes as a download, and a file that grows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from chord.observe.chordlog import ChordlogWriter, LogHeader, packing
from chord.observe.model import Fields, RingChange, RingModel, RingShape
from chord.views.common import key_json
from chord.views.dashboard import check_line
from chord.web.sampling import RingMeter
from chord.web.series import NAMES
from chord.web.source import LiveRing, StateOrigin

WRITE_S: Final = 1.0
METRICS_EVERY_S: Final = 10.0
"""The time between two lines of metrics and of checks, in seconds."""

DOWNLOAD: Final = "ring.chordlog.gz"


def header_of(origin: StateOrigin, shape: RingShape, began_ms: int, command: str) -> LogHeader:
    """Return the first line of a recording.

    Args:
        origin: the ring that is recorded.
        shape: its constants.
        began_ms: the time at which the recording begins, in Unix ms.
        command: the command that writes it, as text.
    """
    played = {"recording": "live", "live": "live", "simulation": "simulation", "model": "model"}[origin.kind]
    return LogHeader(
        source=played,  # type: ignore[arg-type]
        command=command,
        bits=shape.bits,
        successors=shape.successors,
        replicas=shape.replicas,
        quorum=shape.quorum,
        began_ms=began_ms,
        clock="virtual" if origin.kind == "simulation" else "wall",
    )


def recorded(origin: StateOrigin, shape: RingShape, from_ms: float, to_ms: float) -> bytes:
    """Return a part of a ring's history as the bytes of a compressed .chordlog file.

    Args:
        origin: the ring.
        shape: its constants.
        from_ms, to_ms: the beginning and the end of the part, in Unix ms.
    """
    parts: list[bytes] = []
    with packing(DOWNLOAD, parts.append) as write:
        writer, model = None, RingModel()
        for at_ms, line in origin.lines(from_ms, to_ms):
            if writer is None:
                began_ms = at_ms
                writer = ChordlogWriter(write, header_of(origin, shape, began_ms, "chord dashboard"))
            writer.at((at_ms - began_ms) / 1000)
            if isinstance(line.content, RingChange):
                model.apply(line.content)
                if line.letter == "d":
                    writer.change(line.content)
                if writer.is_keyframe_due:
                    writer.keyframe(model)
            else:
                writer.line(line.letter, line.content)
        if writer is not None:
            writer.end("downloaded")
    return b"".join(parts)


class RingRecorder:
    """Writes a recording of a living ring, line by line.

    Args:
        origin: the ring.
        meter: the metrics and request counts of the ring.
        write: called with each encoded line, newline included.
        command: the command that records, as text for the first line.
        with_keys: whether the recording names frequent keys. Otherwise it has only their points.
    """

    def __init__(
        self, origin: LiveRing, meter: RingMeter, write: Callable[[bytes], object], command: str, *, with_keys: bool
    ) -> None:
        self._origin = origin
        self._meter = meter
        self._write = write
        self._command = command
        self._with_keys = with_keys
        self._model = RingModel()
        self._writer: ChordlogWriter | None = None
        self._seq = 0
        self._began_s = self._metrics_s = 0.0
        self._checked: Fields = {}

    async def run(self) -> None:
        """Call `take` every second until cancelled, and then write the last line.

        Raises:
            OSError: the file cannot be written.

        Concurrency: checkpoints.
        """
        try:
            while True:
                await trio.sleep(WRITE_S)
                self.take()
        finally:
            self.take()
            if self._writer is not None:
                self._writer.end("stopped")

    def take(self) -> None:
        """Write the lines that the history has gained since the last call; every 10 s also metrics and a check.

        The first call with a known ring writes the header and a keyframe.
        """
        shape, history = self._origin.shape, self._origin.aggregator.history
        if shape is None:
            return
        if self._writer is None:
            self._begin(shape)
            return
        for one in history.since(self._seq) or []:
            self._writer.at(one.line.at_s - self._began_s)
            if isinstance(one.line.content, RingChange):
                self._model.apply(one.line.content)
                self._writer.change(one.line.content)
                if self._writer.is_keyframe_due:
                    self._writer.keyframe(self._model)
            else:
                self._writer.line(one.line.letter, one.line.content)
        self._seq = history.latest
        self._writer.at(self._origin.now_s - self._began_s)
        if self._writer.is_keyframe_due:
            self._writer.keyframe(self._model)
        if self._origin.now_s - self._metrics_s >= METRICS_EVERY_S:
            self._metrics_s = self._origin.now_s
            self._numbers(self._writer, shape)

    def _begin(self, shape: RingShape) -> None:
        self._began_s, self._seq = self._origin.now_s, self._origin.aggregator.history.latest
        header = header_of(self._origin, shape, self._origin.to_ms(self._began_s), self._command)
        self._writer = ChordlogWriter(self._write, header)
        self._model.apply(self._origin.aggregator.model.keyframe())
        self._writer.keyframe(self._model)

    def _numbers(self, writer: ChordlogWriter, shape: RingShape) -> None:
        check = check_line(self._model, shape)
        if check != self._checked:
            self._checked = check
            writer.line("c", check)
        if self._meter.series.rows:
            row = self._meter.series.rows[-1]
            named = {
                f"{name.name}{{{name.label}}}" if name.label else name.name: value
                for name, value in zip(NAMES, row.values, strict=True)
                if value
            }
            hot = self._hot()
            if named or hot:
                writer.line("m", {"values": named, **hot})

    def _hot(self) -> Fields:
        """Return the most frequent keys; without `with_keys`, their points."""
        client = self._origin.client
        rows = self._meter.requests.counts(self._origin.now_s, METRICS_EVERY_S).hot
        if client is None or not rows:
            return {}
        return {
            "hot": [
                {**(key_json(row.key) if self._with_keys else {}), "p": str(int(client.circle.hash(row.key))),
                 "share": round(row.share, 4)}
                for row in rows[:8]
            ]
        }  # fmt: skip
