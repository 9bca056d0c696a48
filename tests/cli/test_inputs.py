"""Limits of stdin, files and lines. Each limit holds at its edge, and no input fills the memory."""

from __future__ import annotations

import io
import os
import sys
import threading
from pathlib import Path

import pytest

from chord.cli import backup, bulk, inputs, lab
from chord.cli.inputs import CONFIG_BYTES_MAX, CONTEXT_TEXT_BYTES_MAX, LINE_BYTES_MAX, lines_limited, read_limited
from chord.cli.output import Failure
from chord.wire.messages import KEY_BYTES_MAX, VALUE_BYTES_MAX, Put
from tests.support.cli import CannedRing, Run


class Endless(io.RawIOBase):
    """A source without end, like /dev/zero. It fails a test that reads more than a limit allows."""

    def __init__(self, allowed: int) -> None:
        self.left = allowed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self.left -= len(buffer)
        assert self.left >= 0, "the command reads on beyond its limit"
        buffer[:] = bytes(len(buffer))
        return len(buffer)


def endless_stdin(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    source = io.BufferedReader(Endless(2 * limit + (1 << 20)))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(source))


def test_endless_value_on_stdin_is_refused(run: Run, canned: CannedRing, monkeypatch: pytest.MonkeyPatch) -> None:
    endless_stdin(monkeypatch, VALUE_BYTES_MAX)
    ended = run("put", "big", "-")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "the value on stdin is too long; at most 1.0 MiB are read" in ended.err
    assert not canned.nodes[10].requests(Put)


@pytest.mark.parametrize("size", [VALUE_BYTES_MAX, VALUE_BYTES_MAX + 1])
def test_value_on_stdin_is_read_up_to_its_limit(
    run: Run, canned: CannedRing, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bytes(size))))
    assert run("put", "big", "-").code == (0 if size == VALUE_BYTES_MAX else 2)
    assert len(canned.values) == (size == VALUE_BYTES_MAX)


def test_endless_context_file_is_refused(run: Run, canned: CannedRing) -> None:
    ended = run("put", "k", "v", "--context", "@/dev/zero")
    assert (ended.code, "the context in /dev/zero is too long" in ended.err) == (2, True)
    assert CONTEXT_TEXT_BYTES_MAX * 3 // 4 > inputs.CONTEXT_BYTES_MAX, "the limit allows every context"


def test_endless_line_is_refused(run: Run, canned: CannedRing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "LINE_BYTES_MAX", 1000)
    endless_stdin(monkeypatch, 1000)
    ended = run("load", "-")
    assert (ended.code, "line 1 of stdin is too long" in ended.err) == (2, True)


def test_line_limit_of_load_allows_the_largest_record() -> None:
    line = b'{"key": "' + b"\\u0001" * KEY_BYTES_MAX + b'", "value": "' + b"\\u0001" * VALUE_BYTES_MAX + b'"}'
    assert len(line) <= LINE_BYTES_MAX


def test_input_of_exactly_the_limit_is_read() -> None:
    assert read_limited(io.BytesIO(b"12345"), 5, "it") == b"12345"
    with pytest.raises(Failure, match="it is too long"):
        read_limited(io.BytesIO(b"123456"), 5, "it")
    for end in (b"", b"\n", b"\r\n"):
        assert list(lines_limited(io.BytesIO(b"1\n12345" + end), 5, "f")) == [b"1\n", b"12345" + end]
        with pytest.raises(Failure, match="line 2 of f is too long"):
            list(lines_limited(io.BytesIO(b"1\n123456" + end), 5, "f"))


def test_endless_configuration_is_refused(run: Run) -> None:
    ended = run("node", "--config", "/dev/zero")
    assert (ended.code, "/dev/zero is too long" in ended.err) == (2, True)
    assert CONFIG_BYTES_MAX < 1 << 30


def test_lab_keys_have_limits(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    ended = run("lab", "compare", "--keys", "/dev/zero", "--out", str(tmp_path))
    assert (ended.code, "line 1 of /dev/zero is too long" in ended.err) == (2, True)
    keys = tmp_path / "keys"
    keys.write_bytes(b"a\nb\nc\n")
    for name, most in (("KEYS_MAX", 2), ("KEYS_BYTES_MAX", 5)):
        with monkeypatch.context() as patched:
            patched.setattr(lab, name, most)
            ended = run("lab", "compare", "--keys", str(keys), "--out", str(tmp_path))
        assert (ended.code, "has too many keys" in ended.err) == (2, True)


def test_restore_stops_reading_a_pipe_at_the_first_bad_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []

    class Aside(io.BytesIO):
        def write(self, data: bytes, /) -> int:  # type: ignore[override]
            copied.append(len(data))
            return super().write(data)

    monkeypatch.setattr(backup.tempfile, "TemporaryFile", Aside)  # type: ignore[attr-defined]
    reading, writing = os.pipe()

    def pour() -> None:
        with open(writing, "wb", buffering=0) as pipe:
            try:
                while True:
                    pipe.write(b"no backup\n" * 1000)
            except BrokenPipeError:
                pass

    thread = threading.Thread(target=pour)
    thread.start()
    before = os.dup(0)
    try:
        os.dup2(reading, 0)
        ended = run("restore", "-")
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(reading)
        thread.join()
    assert (ended.code, "is not a complete backup" in ended.err) == (2, True)
    assert sum(copied) == len(b"no backup\n")
