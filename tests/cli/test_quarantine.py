"""`chord quarantine`: lists, drops and merges, and the notes of other commands on hidden values."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest

from chord.errors import ChordError, DeadlineExceeded, QuorumFailed
from chord.ids import Point
from chord.store import versions
from chord.wire.messages import ActorClock, Contact, DecideQuarantine, Record, Scan, ScanReply, Version
from tests.support.cli import CannedRing, Run
from tests.support.fake_node import Heard

AT_MS = 1_800_000_000_000
STRANGER = b"stranger"


def store_of(point: int) -> bytes:
    """Return the incarnation of a canned node's store."""
    return hashlib.blake2b(str(point).encode(), digest_size=8).digest()


def hidden(key: bytes, *values: bytes | None, store: bytes = STRANGER, expires_ms: int = 0) -> Record:
    """Return a record with values in quarantine, each of its own actor."""
    clock = tuple(
        ActorClock(
            versions.actor(store, epoch), 1, (Version(value, b"%016d" % epoch, AT_MS + 1000 * epoch, expires_ms),)
        )
        for epoch, value in enumerate(values)
    )
    return Record(key, (), b"", clock)


def hide(canned: CannedRing, *records: Record) -> None:
    canned.hidden.update({record.key: record for record in records})


# -- list ------------------------------------------------------------------------------------------------------


def test_list_without_anything_in_quarantine_prints_nothing(run: Run) -> None:
    ended = run("quarantine", "list")
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_list_shows_each_key_with_its_count_and_origin(run: Run, canned: CannedRing) -> None:
    hide(canned, hidden(b"user:42", b"Ada", b"Bob"), hidden(b"user:43", b"Eve", store=store_of(80)))
    ended = run("quarantine", "list")
    assert ended.code == 0
    head, *rows = [line.split("\t") for line in ended.out.splitlines()]
    assert head == ["key", "values", "bytes", "written", "origin"]
    assert sorted(rows) == [
        ["user:42", "2", "6", "2027-01-15 08:00:01Z", STRANGER.hex()],
        ["user:43", "1", "3", "2027-01-15 08:00:00Z", "n2"],
    ]


def test_list_of_a_key_shows_its_values(run: Run, canned: CannedRing) -> None:
    hide(canned, hidden(b"user:42", b"Ada", None, b"\xff\t"))
    ended = run("quarantine", "list", "user:42")
    assert [line.split("\t")[:2] for line in ended.out.splitlines()] == [
        ["value", "bytes"], ["Ada", "3"], ["(deleted)", "0"], ["\\xff ", "2"]
    ]


def test_list_of_a_key_marks_expired_values(run: Run, canned: CannedRing) -> None:
    hide(canned, hidden(b"k", b"v", expires_ms=1))
    assert run("quarantine", "list", "k").out.splitlines()[1].startswith("v (expired)\t")


def test_list_on_a_terminal_cuts_long_values(run: Run, canned: CannedRing, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(canned, hidden(b"k", b"x" * 41))
    assert "x" * 41 in run("quarantine", "list", "k").out
    monkeypatch.setenv("CHORD_OUTPUT", "table")
    out = run("quarantine", "list", "k").out
    assert "x" * 39 + "…" in out
    assert "x" * 40 not in out


def test_list_as_json_is_one_line_for_each_key(run: Run, canned: CannedRing) -> None:
    hide(canned, hidden(b"user:42", b"Ada", None), hidden(b"\xff", b"v", store=store_of(80), expires_ms=AT_MS))
    lines = [json.loads(line) for line in run("quarantine", "list", "--json").out.splitlines()]
    by_key = {line.get("key", line.get("key_b64")): line for line in lines}
    assert [value["value"] for value in by_key["user:42"]["values"]] == [
        {"b64": base64.b64encode(b"Ada").decode(), "text": "Ada"}, None
    ]
    assert by_key["user:42"]["values"][1]["origin"] == {
        "store": STRANGER.hex(), "node": None, "key_epoch": 1, "number": 1
    }
    (one,) = by_key["/w=="]["values"]
    assert (one["origin"]["node"], one["written_ms"], one["expires_ms"]) == ("n2", AT_MS, AT_MS)
    del canned.hidden[b"\xff"]
    assert run("quarantine", "list", "--json").json("quarantine") == by_key["user:42"]
    assert run("quarantine", "list", "user:42", "--json").json("quarantine") == by_key["user:42"]


def test_list_of_a_key_without_quarantine_is_exit_3(run: Run) -> None:
    ended = run("quarantine", "list", "nobody")
    assert ended.code == 3
    assert ended.err == "error: no value of 'nobody' is in quarantine. List all: chord quarantine list\n"
    run("quarantine", "list", "nobody", "--json").failure("not_found")


def test_list_with_unreachable_replicas_is_exit_6(run: Run, canned: CannedRing) -> None:
    hide(canned, hidden(b"user:42", b"Ada"))

    def override(point: int, heard: Heard) -> ScanReply | None:
        if not isinstance(heard.request, Scan):
            return None
        unreachable = (Contact(Point(42), "127.0.0.1:1"),)
        found = tuple(canned.hidden.values()) if heard.request.after == 255 else ()
        return ScanReply(found, Point(255), None, unreachable=unreachable)

    canned.override = override
    ended = run("quarantine", "list")
    assert (ended.code, "127.0.0.1:1" in ended.err) == (6, True)
    assert "user:42" in ended.out, "readable values are shown"


# -- drop and merge --------------------------------------------------------------------------------------------


def test_drop_counts_values_and_nodes(run: Run, canned: CannedRing) -> None:
    hide(canned, hidden(b"user:42", b"Ada", b"Bob"))
    assert run("quarantine", "drop", "user:42").out == "dropped 2 values of 'user:42', on 2 nodes\n"
    assert canned.values == {}
    ended = run("quarantine", "drop", "user:42")
    assert (ended.code, "no value of 'user:42' is in quarantine" in ended.err) == (3, True)


def test_merge_brings_values_back(run: Run, canned: CannedRing) -> None:
    hide(canned, hidden(b"user:42", b"Ada", b"Bob"))
    shape = run("quarantine", "merge", "user:42", "--json", "--w", "2").json("quarantine-decision")
    assert shape == {"key": "user:42", "action": "merge", "values": 2, "left": 0, "w": 2, "w_needed": 2}
    assert sorted(canned.values[b"user:42"]) == [b"Ada", b"Bob"]
    (asked,) = {request.w for node in canned.nodes.values() for request in node.requests(DecideQuarantine)}  # type: ignore[attr-defined]
    assert asked == 2


def test_merge_without_room_for_all_is_exit_7_with_a_next_step(run: Run, canned: CannedRing) -> None:
    hide(canned, hidden(b"user:42", b"Ada", b"Bob", b"Eve"))
    canned.room = 2
    ended = run("quarantine", "merge", "user:42")
    assert ended.code == 7
    assert ended.out == "merged 2 values of 'user:42', on 2 nodes\n"
    assert "1 value stays in quarantine: 'user:42' has no room for more" in ended.err
    assert "chord get KEY --all --context FILE" in ended.err


@pytest.mark.parametrize("command", ["drop", "merge"])
def test_decision_under_a_context_names_only_what_was_listed(
    run: Run, canned: CannedRing, tmp_path: Path, command: str
) -> None:
    hide(canned, hidden(b"k", b"Ada"))
    context = run("quarantine", "list", "k", "--json").json("quarantine")["context"]
    hide(canned, hidden(b"k", b"Ada", b"later"))
    (tmp_path / "context").write_text(context)
    ended = run("quarantine", command, "k", "--context", f"@{tmp_path / 'context'}")
    assert ended.code == 0
    assert ended.out.startswith(f"{command}p"[: len(command)])
    assert "1 value of 'k'" in ended.out
    assert "1 other value of the key in quarantine" in ended.err


@pytest.mark.parametrize(
    ("context", "words"),
    [("", "empty"), ("!!", "invalid context"), ("AAAA", "invalid context"), ("@/nonexistent", "cannot")],
)
def test_invalid_context_is_exit_2(run: Run, context: str, words: str) -> None:
    ended = run("quarantine", "drop", "k", "--context", context)
    assert "no-context" not in ended.err, "--no-context is an option of another command"
    assert (ended.code, words in ended.err) == (2, True), ended.err


@pytest.mark.parametrize(
    "args", [["list", ""], ["drop", ""], ["merge", "x" * 1025], ["drop"], ["merge", "k", "--w", "0"], ["keep", "k"]]
)
def test_arguments_out_of_bounds_are_exit_2(run: Run, args: list[str]) -> None:
    assert run("quarantine", *args).code == 2


@pytest.mark.parametrize(
    ("error", "code"), [(QuorumFailed("stored on 1 of 2 nodes"), 6), (DeadlineExceeded("late"), 5)]
)
def test_decision_that_fails_has_the_exit_code_of_a_put(
    run: Run, canned: CannedRing, error: ChordError, code: int, impatient: None
) -> None:
    hide(canned, hidden(b"k", b"v"))
    canned.override = lambda point, heard: error if isinstance(heard.request, DecideQuarantine) else None
    ended = run("quarantine", "drop", "k")
    assert (ended.code, error.message in ended.err) == (code, True)


# -- notes of other commands -----------------------------------------------------------------------------------


def test_get_and_put_report_hidden_values(run: Run, canned: CannedRing) -> None:
    hide(canned, hidden(b"k", b"Ada", b"Bob"))
    ended = run("get", "k")
    assert (ended.code, "2 values of the key are in quarantine, and hidden" in ended.err) == (3, True)
    shape = run("get", "k", "--json").json("get")
    assert (shape["found"], shape["quarantined"]) == (False, 2)
    canned.values[b"k"] = (b"live",)
    ended = run("get", "k")
    assert (ended.code, ended.out) == (0, "live")
    assert "2 values of the key are in quarantine" in ended.err
    del canned.hidden[b"k"]
    assert run("get", "k").err == ""


def test_group_without_a_command_is_exit_2(run: Run) -> None:
    ended = run("quarantine")
    assert (ended.code, ended.err) == (2, "error: Missing command. See: chord quarantine --help\n")


def test_help_lists_the_three_commands(run: Run) -> None:
    out = run("quarantine", "--help").out
    assert all(f"  {name} " in out for name in ("list", "drop", "merge"))
    assert "..." not in out.partition("Commands:")[2]
    assert "quarantine" in run("--help").out
