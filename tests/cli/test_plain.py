"""ASCII and Latin-1 terminals: every command prints; tables stay aligned; a pipe gets whole ids and no ellipsis."""

from __future__ import annotations

import io
import json
import sys

import msgspec
import pytest

from chord import cli
from chord.cli import plain
from chord.cli.output import Out, json_text, short_id
from chord.cli.target import is_meant
from chord.ids import Circle, Point
from chord.wire.messages import Status
from tests.support.cli import CannedRing, Run

COMMANDS = (
    ("status",), ("members",), ("ring",), ("fingers",), ("lookup", "--key-id", "190", "--trace"), ("check",),
    ("lookup", "--key-id", "190", "--all-from"), ("scan",), ("transfers",), ("plan", "leave", "n1"), ("get", "nothing"),
    ("load", "/nowhere"),
)  # fmt: skip


def streams(monkeypatch: pytest.MonkeyPatch, encoding: str) -> tuple[io.BytesIO, io.BytesIO]:
    out, err = io.BytesIO(), io.BytesIO()
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist sets it
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding=encoding))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(err, encoding=encoding, errors="backslashreplace"))
    return out, err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("shape", ["table", "tsv"])
@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_commands_print_on_terminals_without_unicode(
    canned: CannedRing, monkeypatch: pytest.MonkeyPatch, encoding: str, shape: str, args: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CHORD_NODE", canned.entry)
    monkeypatch.setenv("CHORD_OUTPUT", shape)
    out, err = streams(monkeypatch, encoding)
    assert cli.run(args) in (0, 2, 3, 8)
    sys.stdout.flush()
    sys.stderr.flush()
    assert b"bug" not in err.getvalue()
    assert b"\\u" not in out.getvalue() + err.getvalue()


def test_trace_in_ascii_stays_aligned(canned: CannedRing, monkeypatch: pytest.MonkeyPatch) -> None:
    canned.trace_is_dead = True
    monkeypatch.setenv("CHORD_NODE", canned.entry)
    monkeypatch.setenv("CHORD_OUTPUT", "table")
    out, _ = streams(monkeypatch, "ascii")
    assert cli.run(("lookup", "--key-id", "190", "--trace")) == 0
    sys.stdout.flush()
    lines = out.getvalue().decode("ascii").splitlines()
    rows = [line for line in lines if " 127.0.0.1:" in line and not line.startswith(("lookup", "replicas"))]
    assert [row.split()[0] for row in rows] == ["0", "x", "1", "*"]
    assert len({row.index("127.0.0.1:") for row in rows}) == 1, "columns stay aligned"


def test_json_in_ascii_loses_nothing(canned: CannedRing, monkeypatch: pytest.MonkeyPatch) -> None:
    canned.values["é".encode()] = ("…".encode(),)
    monkeypatch.setenv("CHORD_NODE", canned.entry)
    out, _ = streams(monkeypatch, "ascii")
    assert cli.run(("get", "é", "--json")) == 0
    sys.stdout.flush()
    assert json.loads(out.getvalue())["values"][0]["text"] == "…"
    assert json_text("é", sys.stdout) == '"\\u00e9"'


@pytest.mark.parametrize(
    "args", [("status",), ("members",), ("ring",), ("fingers", "n1"), ("lookup", "--key-id", "190", "--trace")],
    ids=" ".join,
)  # fmt: skip
def test_pipe_gets_no_ellipsis(run: Run, canned: CannedRing, args: tuple[str, ...]) -> None:
    def widen(point: int, node: Status) -> Status:
        return msgspec.structs.replace(node, bits=160)

    canned.change = widen
    ended = run(*args)
    assert (ended.code, "…" in ended.out) == (0, False)


def test_ids_are_whole_in_a_pipe_and_short_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    circle, point = Circle(160), Point(0x8F3A << 144 | 0xC21D)
    assert Out().id(circle, point) == circle.hex(point)
    monkeypatch.setenv("CHORD_OUTPUT", "table")
    assert Out().id(circle, point) == short_id(circle, point) == "8f3a…c21d"
    for word in ("8f3a…c21d", "8f3a...c21d", "8f3a~c21d"):
        assert is_meant(word, 160, point), "every form of a shortened id is accepted"


def test_character_that_an_encoding_lacks_is_replaced() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert plain.cell("8f3a…", out) == "8f3a~"
    assert plain.cell("é", out) == "é", "a key is not changed here; the stream escapes it"
    latin = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    assert plain.cell("½ ●", latin) == "½ *"
    assert "½ … → é日".encode("ascii", plain.ERRORS) == b"1/2 ... -> \\xe9\\u65e5"
    assert plain.can_write("é", latin)
    assert not plain.can_write("é", out)
    with pytest.raises(UnicodeDecodeError):
        b"\xff".decode("ascii", plain.ERRORS)
