"""`chord check-history`: its output as text and as JSON, and its exit codes."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chord import cli
from chord.verify.history.format import LINE_BYTES_MAX, Operation, encode
from tests.support.histories import history, op
from tests.support.real_rings import HANG_S
from tests.support.schemas import check_shape

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "history-format.md"
GOOD = [op("put", 0, 1, "a"), op("get", 2, 3, "a")]
STALE = [op("put", 0, 1, "a"), op("put", 2, 3, "b"), op("get", 4, 5, "a")]
UNCLEAR = [*(op("put", i, i + 0.5, i % 5) for i in range(20)), op("get", 20, 21, 4)]


def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list[Operation], *args: str) -> tuple[int, str, str]:
    file = tmp_path / "history.jsonl"
    file.write_bytes(b"".join(encode(o) + b"\n" for o in history(*rows)))
    code = cli.run(["check-history", str(file), *args])
    return code, *capsys.readouterr()


def test_linearizable_history_is_exit_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, capsys, GOOD) == (
        0,
        "checker\tkeys\toperations\tok\tviolation\tpartial\tundecided\n"
        "graph\t1\t2\t1\t0\t0\t0\n"
        "search\t1\t2\t1\t0\t0\t0\n"
        "OK  linearizable, each key on its own\n",
        "",
    )


def test_example_of_the_reference_page_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, shown = re.findall(r"^```text\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "h").write_text(lines)
    monkeypatch.setenv("CHORD_OUTPUT", "table")
    assert cli.run(["check-history", str(tmp_path / "h")]) == 8
    out, err = capsys.readouterr()
    assert [line.rstrip() for line in out.splitlines()] == shown.splitlines()
    assert "--model acknowledged" in err


def test_weaker_model_accepts_a_stale_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(tmp_path, capsys, STALE, "--model", "acknowledged")
    assert code == 0
    assert out.splitlines()[1:] == ["acknowledged\t1\t3\t1\t0\t0\t0", "OK  acknowledged, each key on its own"]
    code, out, err = run(tmp_path, capsys, [op("put", 0, 1, "a"), op("get", 2, 3)], "--model", "acknowledged")
    assert (code, err) == (8, "")
    assert "an acknowledged write was denied" in out


@pytest.mark.parametrize(
    ("rows", "args", "code", "verdict"),
    [
        (GOOD, (), 0, "ok"),
        (STALE, (), 8, "violation"),
        ([*STALE, op("get", 6, 7, ("a", "b")), op("cas", 8, None, ("a", 7), "unknown")], (), 8, "violation"),
        ([op("get", 0, 1, "a")], ("--model", "acknowledged"), 8, "violation"),
        (UNCLEAR, ("--max-steps", "3"), 5, "undecided"),
    ],
)
def test_report_as_json_has_its_schema(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    rows: list[Operation],
    args: tuple[str, ...],
    code: int,
    verdict: str,
) -> None:
    ended, out, _ = run(tmp_path, capsys, rows, "--json", *args)
    report: Any = json.loads(out)
    check_shape("check-history", report)
    assert (ended, report["verdict"]) == (code, verdict)
    assert bool(report["violations"]) is (verdict == "violation")
    assert report["undecided"] == (["k"] if verdict == "undecided" else [])


def test_undecided_key_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(tmp_path, capsys, UNCLEAR, "--max-steps", "3")
    assert code == 5
    assert out.splitlines()[-1] == 'undecided  key "k": the search gave up; give it more --max-steps'


def test_check_history_does_not_load_trio() -> None:
    """The command talks to no ring, and should start at once."""
    program = "import sys, chord.cli.history; sys.exit('trio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=HANG_S, check=False).returncode == 0


def test_history_is_read_from_stdin(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given = io.BytesIO(encode(GOOD[0]) + b"\n\n" + encode(GOOD[1]))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
    assert cli.run(["check-history", "-"]) == 0


def test_violations_are_cut_short_in_text_and_whole_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [op("get", 0, 1, "x", key=key) for key in range(15)]
    _, out, err = run(tmp_path, capsys, rows)
    assert out.count("violation  ") == 20
    assert "and 10 more violations" in err
    _, out, _ = run(tmp_path, capsys, rows, "--json")
    assert len(json.loads(out)["violations"]) == 30


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (b'{"c":1,"k":"k","f":"del","st":"ok","t0":0,"t1":1}\n{"c":1,"k":"k"', "bad_line", "line 2: "),
        (b" " * (LINE_BYTES_MAX + 1), "bad_line", "line 1: longer than"),
        (b"\n\n", "empty", "no operation"),
        (None, "file", "no such file"),
    ],
)
def test_invalid_history_is_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: bytes | None, code: str, message: str
) -> None:
    file = tmp_path / "h"
    if text is not None:
        file.write_bytes(text)
    assert cli.run(["check-history", str(file), "--json"]) == 2
    out, err = capsys.readouterr()
    error = json.loads(err)
    check_shape("error", error)
    assert out == ""
    assert error["error"]["code"] == code
    assert message in error["error"]["message"]
