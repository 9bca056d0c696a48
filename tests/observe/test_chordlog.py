"""The `.chordlog` format: writing, reading, seeking, refusals, and the size of a quiet hour."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from typing import Any

import pytest
from msgspec.structs import replace

from chord.observe import chordlog
from chord.observe.chordlog import (
    KEYFRAME_CHANGES,
    KEYFRAME_S,
    BadChordlog,
    Chordlog,
    ChordlogWriter,
    LogHeader,
    packing,
    read,
    unpack,
)
from chord.observe.model import RingChange, RingModel
from chord.wire.messages import Status
from tests.support.statuses import statuses

HEADER = LogHeader(
    source="model", command="none", bits=160, successors=8, replicas=3, quorum=2, began_ms=0, clock="virtual"
)
QUIET_HOUR_BYTES_MAX = 2_000_000


def sixteen() -> list[Status]:
    """Return an Ideal ring of 16 nodes with points of 160 bits."""
    ids = tuple((i << 156) + 12345 for i in range(16))
    return statuses(ids, bits=160, addresses={p: f"192.168.17.{i}:9000" for i, p in enumerate(ids)})


class Recorded:
    """A writer into memory, with the model that it records."""

    def __init__(self) -> None:
        self.text = bytearray()
        self.model = RingModel()
        self.writer = ChordlogWriter(self.text.extend, HEADER)
        self.writer.keyframe(self.model)

    def describe(self, now_s: float, *nodes: Status) -> None:
        self.writer.at(now_s)
        for node in nodes:
            self.writer.change(self.model.describe(node))
        if self.writer.is_keyframe_due:
            self.writer.keyframe(self.model)


def an_hour(nodes: list[Status], *, every_s: int) -> Recorded:
    """Return a recording of an hour in which the keys of one node change at intervals."""
    log = Recorded()
    log.describe(0, *nodes)
    for now_s in range(every_s, 3601, every_s):
        log.describe(now_s, replace(nodes[now_s % len(nodes)], keys=now_s))
    log.writer.end("passed")
    return log


def text_of(*lines: Any) -> bytes:
    """Return the lines of a hand-made recording after a good first line."""
    first = {"chordlog": 1, "source": "model", "command": "none", "bits": 8, "r": 2, "N": 3, "W": 2, "began_ms": 0}
    return b"".join(json.dumps(line).encode() + b"\n" for line in ({**first, "clock": "virtual"}, *lines))


KEYFRAME = {"t": 0, "k": {"nodes": {"a:1": {"keys": 1}}}}


def test_recording_gives_every_line_back() -> None:
    log = Recorded()
    log.describe(0, *sixteen()[:2])
    log.writer.at(1.5)
    for letter in "efocm":
        log.writer.line(letter, {"letter": letter})  # type: ignore[arg-type]
    log.writer.end("passed")
    found = Chordlog(bytes(log.text))
    assert (found.header, found.outcome, found.ends_s) == (HEADER, "passed", 1.5)
    letters = "".join(line.letter for line in found.lines())
    assert letters == "kddefocm"
    assert [line.content for line in found.lines(1.0)] == [{"letter": letter} for letter in "efocm"]
    first = next(found.lines()).content
    assert isinstance(first, RingChange)


def test_seek_gives_the_state_of_every_moment() -> None:
    log, nodes = Recorded(), sixteen()
    states: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for now_s in range(60):
        log.describe(now_s, replace(nodes[now_s % 16], keys=now_s))
        states.append((dict(log.model.nodes), dict(log.model.vnodes)))
    found = Chordlog(bytes(log.text))
    for now_s, state in enumerate(states):
        model = found.seek(now_s + 0.5)
        assert (model.nodes, model.vnodes) == state
    assert found.seek(-1).nodes == {}
    assert len(list(found.keyframes())) == 6


def test_index_has_the_offsets_of_the_keyframes() -> None:
    log = an_hour(sixteen(), every_s=100)
    last = json.loads(log.text.splitlines()[-1])
    assert last["end"] == "passed"
    assert [(t, offset) for t, offset in last["index"]] == list(Chordlog(bytes(log.text)).keyframes())
    assert all(log.text[offset:].startswith(b'{"t":') for _, offset in last["index"])


def test_keyframe_follows_enough_changes_and_none_if_nothing_changed() -> None:
    log, node = Recorded(), sixteen()[0]
    for number in range(2 * KEYFRAME_CHANGES):
        log.describe(0, replace(node, keys=number))
    assert len(list(Chordlog(bytes(log.text)).keyframes())) == 3
    size = len(log.text)
    for number in range(1, 9):
        log.describe(number * KEYFRAME_S, replace(node, keys=2 * KEYFRAME_CHANGES - 1))
    assert len(list(Chordlog(bytes(log.text)).keyframes())) == 4, "the changes since the last keyframe count"
    assert len(log.text) < size + 10_000


def test_times_never_go_back() -> None:
    log = Recorded()
    for now_s in (5.0, 3.0):
        log.writer.at(now_s)
        log.writer.line("e", {})
    assert [line.at_s for line in Chordlog(bytes(log.text)).lines()] == [0.0, 5.0, 5.0]


def test_gzip_goes_by_the_name_and_reads_back() -> None:
    text = bytes(an_hour(sixteen(), every_s=600).text)
    for name, is_packed in (("a.chordlog", False), ("a.chordlog.gz", True)):
        file = io.BytesIO()
        with packing(name, file.write) as write:
            for line in text.splitlines(keepends=True):
                write(line)
        assert file.getvalue().startswith(b"\x1f\x8b") == is_packed
        assert (len(file.getvalue()) < len(text) / 4) == is_packed
        file.seek(0)
        assert read(file).outcome == "passed"
        cut = unpack(file.getvalue()[:-100])
        assert text.startswith(cut)
        assert Chordlog(cut).outcome is None


def test_incomplete_last_line_is_discarded() -> None:
    text = bytes(an_hour(sixteen(), every_s=600).text)
    at = text.rindex(b"\n", 0, -1) + 1
    whole = len(list(Chordlog(text).lines()))
    for end in (at, at + 1, at + 9, len(text) - 2):
        found = Chordlog(text[:end])
        assert (found.outcome, len(list(found.lines()))) == (None, whole)
    assert Chordlog(text[:-1]).outcome == "passed", "the line is complete without its newline"


def test_unknown_letters_and_fields_are_skipped() -> None:
    found = Chordlog(text_of(KEYFRAME, {"t": 1, "z": 5}, {"t": 2, "e": {}, "note": "x"}))
    assert [line.letter for line in found.lines()] == ["k", "e"]
    assert found.ends_s == 2


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"", "no recording"),
        (b"hello\n", "no recording"),
        (b'["chordlog", 1]\n', "no recording"),
        (b'{"c":"ann","k":"x"}\n', "no recording"),
        (b"[" * 100_000, "no recording"),
        (b'{"chordlog":2}\n', "has version 2; this program reads version 1"),
        (b'{"chordlog":"1"}\n', "has version '1'; this program reads version 1"),
        (b'{"chordlog":1}\n', "missing required field"),
        (text_of().replace(b'"bits": 8', b'"bits": 500'), "bits"),
    ],
)
def test_other_first_line_is_refused(first: bytes, why: str) -> None:
    with pytest.raises(BadChordlog, match=why) as caught:
        Chordlog(first)
    assert caught.value.line == 1


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([KEYFRAME, {"t": 2, "e": {}}, {"t": 1, "e": {}}, KEYFRAME], "t is 1.0; a time of at least 2.0"),
        ([{"t": 0, "d": {}}, KEYFRAME], "a delta before the first keyframe"),
        ([{"k": {}}, KEYFRAME], "missing required field `t`"),
        ([{"t": 0, "k": {"nodes": {"a:1": 5}}}, KEYFRAME], "Expected `object`"),
        ([KEYFRAME, {"t": "x", "e": {}}, KEYFRAME], "Expected `float`"),
    ],
)
def test_line_that_does_not_fit_is_refused(lines: list[Any], why: str) -> None:
    with pytest.raises(BadChordlog, match=why):
        Chordlog(text_of(*lines))


def test_recording_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = text_of(KEYFRAME, *({"t": 1, "e": {"text": "x" * 100}} for _ in range(1000)))
    monkeypatch.setattr(chordlog, "BYTES_MAX", len(text))
    assert read(io.BytesIO(text)).ends_s == 1
    for content in (text + b"\n", zlib.compress(text + b"\n", wbits=chordlog.GZIP)):
        with pytest.raises(BadChordlog, match="too long"):
            read(io.BytesIO(content))


def test_damaged_compressed_file_is_refused() -> None:
    packed = bytearray(zlib.compress(text_of(KEYFRAME), wbits=chordlog.GZIP))
    packed[12] ^= 0xFF
    with pytest.raises(BadChordlog, match="damaged"):
        Chordlog(unpack(bytes(packed)))


# -- bars -----------------------------------------------------------------------------------------


def test_quiet_hour_of_sixteen_nodes_is_small() -> None:
    """Poll every 10 s. Each minute, one node suspects a peer for a moment, and its keys change."""
    log, nodes = Recorded(), sixteen()
    for now_s in range(0, 3600, 10):
        log.describe(now_s, *nodes)
        if now_s % 60 == 0:
            nodes[now_s % 16] = replace(nodes[now_s % 16], keys=now_s, clock_skew_ms=now_s % 40)
        log.writer.line("m", {node.address: {"gets": now_s, "puts": now_s, "rtt_ms": 0.251} for node in nodes})
    log.writer.end("stopped")
    assert len(log.text) <= QUIET_HOUR_BYTES_MAX


def test_seek_in_an_hour_reads_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    log = an_hour(sixteen(), every_s=1)
    found, decoded, decode = Chordlog(bytes(log.text)), [0, 0], chordlog._decode

    def counted(line: bytes) -> Any:
        decoded[0] += 1
        decoded[1] += len(line)
        return decode(line)

    monkeypatch.setattr(chordlog, "_decode", counted)
    for at_s in range(0, 3601, 90):
        decoded[:] = [0, 0]
        found.seek(at_s + 0.9)
        assert decoded[0] <= 2 + KEYFRAME_S * 2
        assert decoded[1] <= 60_000


def test_file_of_many_gzip_members_is_refused() -> None:
    line = gzip.compress(b"x")
    assert unpack(line * 64) == b"x" * 64
    with pytest.raises(BadChordlog, match="more than 64 members"):
        unpack(line * 65)
