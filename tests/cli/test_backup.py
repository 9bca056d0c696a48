"""Backup and restore: a file is whole or refused; versions are merged; a restore can be repeated."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chord.cli.backup_file import Damaged, Header, Writer, records, verify
from chord.errors import ChordError, CutMissing, OwnerDown, QuorumFailed
from chord.ids import Arc, Point
from chord.store import versions
from chord.wire.messages import (
    ActorClock,
    Contact,
    GetCutNotes,
    GetCutNotesReply,
    Merge,
    Record,
    Scan,
    ScanCut,
    ScanCutReply,
    ScanReply,
    Version,
)
from tests.support.cli import CannedRing, Run
from tests.support.fake_node import Answer, Heard
from tests.support.ports import Ports

HEADER = Header("00" * 16, "chord", 8, 3, "2026-01-01T00:00:00+00:00")
RECORDS = [
    Record(b"\xff\x00", (ActorClock(b"A" * 16, 3, (Version(b"new\n", b"1" * 16, 7), Version(b"", b"2" * 16, 6, 9))),)),
    Record(b"gone", (ActorClock(b"B" * 16, 1, (Version(None, b"3" * 16, 1),)), ActorClock(b"C" * 16, 2, ()))),
]


def written(*found: Record, is_complete: bool = True) -> bytes:
    """A backup of these records."""
    file = io.BytesIO()
    writer = Writer(file, HEADER)
    for record in found:
        writer.add(record)
    writer.finish(is_complete=is_complete)
    return file.getvalue()


# -- the form of the file -----------------------------------------------------------------------------


def test_records_survive_with_their_clocks() -> None:
    assert all(not versions.check(record) for record in RECORDS)
    file = io.BytesIO(written(*RECORDS))
    backup = verify(file)
    assert (backup.header, backup.trailer.records, backup.trailer.complete) == (HEADER, 2, True)
    file.seek(0)
    assert list(records(file)) == RECORDS


def test_backup_is_lines_of_json_with_a_header() -> None:
    first, *between, last = [json.loads(line) for line in written(*RECORDS).splitlines()]
    assert (first["format"], first["version"], first["bits"], first["ring"]) == ("chord-backup", 1, 8, "00" * 16)
    assert first["record"][0] == "key"
    assert [len(line) for line in between] == [4, 4]
    assert (last["records"], len(last["blake2b"])) == (2, 64)


@given(st.integers(0, len(written(*RECORDS)) - 1), st.integers(1, 255))
def test_backup_with_a_changed_byte_is_refused(at: int, flip: int) -> None:
    content = bytearray(written(*RECORDS))
    content[at] ^= flip
    with pytest.raises(Damaged):
        verify(io.BytesIO(bytes(content)))


@given(st.integers(0, len(written(*RECORDS)) - 1))
def test_backup_cut_at_any_byte_is_refused(length: int) -> None:
    with pytest.raises(Damaged):
        verify(io.BytesIO(written(*RECORDS)[:length]))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"key\tvalue\n", "does not begin like a backup"),
        (b'{"format": "another"}\n', "does not begin like a backup"),
        (written().replace(b'"version":1', b'"version":2'), "expected version 1"),
        (written() + b"\n", "after its last line"),
        (written() * 2, "after its last line"),
        (written(*RECORDS).replace(b',3,[["', b',1,[["', 1), "record 1 is invalid: 2 values of 1 events"),
        (b"\n".join(written(*RECORDS).splitlines()[:-1]) + b"\n", "cut short after 2 records"),
        (b"\xff" * 1000, "does not begin like a backup"),
    ],
)
def test_file_of_another_format_is_refused_as_a_backup(content: bytes, words: str) -> None:
    with pytest.raises(Damaged, match=words):
        verify(io.BytesIO(content))


# -- the commands -------------------------------------------------------------------------------------


def test_backup_is_restored_record_for_record(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    canned.scanned.keys = [f"key{i}".encode() for i in range(300)]
    file = tmp_path / "backup"
    shape = run("backup", str(file), "--json").json("backup")
    assert (shape["records"], shape["bytes"], shape["complete"]) == (300, file.stat().st_size, True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, "the backup has every record of the ring"
    assert os.listdir(tmp_path) == ["backup"], "no temporary file is left"
    assert run("restore", str(file), "--dry-run").out.startswith(f"{file} is complete: 300 records of 20")
    assert canned.merged == []
    shape = run("restore", str(file), "--json").json("restore")
    assert (shape["merged"], shape["failed"]) == (300, 0)
    assert sorted(record.key for record in canned.merged) == sorted(canned.scanned.keys)
    assert all(record.clock[0].actor == b"A" * 16 for record in canned.merged), "the clock is unchanged"
    assert run("restore", str(file), "--w", "2").out.startswith("merged 300 of 300 records in ")
    assert {m.w for m in canned.nodes[10].requests(Merge)} == {0, 2}  # type: ignore[attr-defined]


def backup_of(tmp_path: Path, *found: Record) -> str:
    (tmp_path / "backup").write_bytes(written(*found))
    return str(tmp_path / "backup")


def test_restore_counts_keys_deleted_since_the_backup(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    file = backup_of(tmp_path, *RECORDS)
    canned.dead = {b"\xff\x00": 2}
    ended = run("restore", file)
    assert (ended.code, ended.out[:19]) == (0, "merged 2 of 2 recor")
    assert "2 values were deleted or replaced since the backup, and not restored" in ended.err
    assert "chord restore FILE --bring-back" in ended.err
    shape = run("restore", file, "--json").json("restore")
    assert (shape["dead"], shape["brought_back"], shape["quarantined"]) == (2, 0, 0)


def test_restore_with_bring_back_counts_the_revived_keys(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    file = backup_of(tmp_path, *RECORDS)
    canned.dead = {b"\xff\x00": 2}
    ended = run("restore", file, "--bring-back")
    assert (ended.code, "settle" in ended.err) == (0, False)
    assert ended.out.splitlines()[1] == "brought back 2 values that had been deleted or replaced"
    canned.dead, canned.stays = {b"\xff\x00": 2}, 1
    ended = run("restore", file, "--bring-back")
    assert "1 value had no room beside the values of their keys" in ended.err
    op_ids = [request.op_id for node in canned.nodes.values() for request in node.requests(Merge)]  # type: ignore[attr-defined]
    assert (len(set(op_ids)), all(op_ids)) == (4, True), "each merge has its own operation id"


def test_restore_counts_the_values_in_quarantine(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    file = backup_of(tmp_path, Record(b"k", (), b"", RECORDS[0].clock))
    ended = run("restore", file)
    assert "2 values of these keys in quarantine: see chord quarantine list" in ended.err
    assert canned.merged[0].quarantine == RECORDS[0].clock
    assert run("restore", file, "--json").json("restore")["quarantined"] == 2


def test_backup_and_restore_work_through_pipes(run: Run, canned: CannedRing, monkeypatch: pytest.MonkeyPatch) -> None:
    canned.scanned.keys = [b"a", b"b"]
    ended = run("backup", "-")
    assert (ended.code, len(ended.out.splitlines())) == (0, 4)
    reading, writing = os.pipe()
    os.write(writing, ended.out.encode())
    os.close(writing)
    stdin = os.dup(0)
    os.dup2(reading, 0)
    try:
        assert run("restore", "-").out.startswith("merged 2 of 2")
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)
        os.close(reading)


def test_backup_of_one_node_has_only_its_own_keys(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    canned.scanned.keys = [f"key{i}".encode() for i in range(60)]
    file = tmp_path / "backup"
    count = run("backup", str(file), "--node-only", "--node", canned.addresses[80], "--json").json("backup")["records"]
    circle = canned.scanned.circle
    assert count == sum(42 < circle.hash(key) <= 80 for key in canned.scanned.keys) > 0
    assert json.loads(file.read_bytes().splitlines()[0])["node"] == canned.addresses[80]


def cut_of(canned: CannedRing, without: tuple[int, ...] = ()) -> None:
    """Let every node but these hold a cut with the same two records."""
    found = tuple(sorted(RECORDS, key=lambda record: (canned.scanned.circle.hash(record.key), record.key)))

    def answer(point: int, heard: Heard) -> Answer | ChordError | None:
        if not isinstance(heard.request, (ScanCut, GetCutNotes)):
            return None
        if point in without:
            return CutMissing("it has restarted since")
        if isinstance(heard.request, GetCutNotes):
            return GetCutNotesReply((), None)
        page = found[1:] if heard.request.after_key else found[:1]
        return ScanCutReply(page, None if heard.request.after_key else found[0].key)

    canned.override = answer


def test_consistent_backup_has_the_cuts_of_all_members(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    cut_of(canned)
    file = tmp_path / "backup"
    shape = run("backup", str(file), "--consistent", "--json").json("backup")
    assert (shape["records"], shape["complete"], shape["consistent"], shape["without_cut"]) == (2, True, True, [])
    with file.open("rb") as source:
        assert verify(source).header.consistent
        source.seek(0)
        assert sorted(record.key for record in records(source)) == sorted(record.key for record in RECORDS)
    numbers = {request.number for node in canned.nodes.values() for request in node.requests(ScanCut)}  # type: ignore[attr-defined]
    assert len(numbers) == 1, "one cut"
    assert min(numbers) > 0
    assert not run("backup", str(file), "--json").json("backup")["consistent"]


def test_consistent_backup_names_the_members_without_a_cut(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    cut_of(canned, without=(42, 80))
    ended = run("backup", str(tmp_path / "backup"), "--consistent", "--json")
    lacking = sorted((canned.addresses[42], canned.addresses[80]))
    assert ended.code == 6
    assert json.loads(ended.out)["without_cut"] == lacking
    assert (json.loads(ended.out)["records"], json.loads(ended.out)["complete"]) == (2, False)
    message = ended.failure("cut_missing")["message"]
    assert all(f"{address} (it has restarted since)" in message for address in lacking)
    assert os.listdir(tmp_path) == ["backup"]


def test_consistent_backup_of_one_node_is_refused_at_once(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    ended = run("backup", str(tmp_path / "backup"), "--consistent", "--node-only")
    assert (ended.code, os.listdir(tmp_path)) == (2, [])
    assert "give either --node-only or --consistent, not both" in ended.err
    assert not any(node.heard for node in canned.nodes.values()), "no node was asked"


@pytest.mark.parametrize("content", [written(*RECORDS)[:-1], written(*RECORDS)[:-200], b"nonsense", b""])
def test_restore_of_a_damaged_file_changes_nothing(
    run: Run, canned: CannedRing, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "backup").write_bytes(content)
    ended = run("restore", str(tmp_path / "backup"))
    assert (ended.code, canned.merged) == (2, [])
    assert "is not a complete backup" in ended.err
    assert "Nothing was changed" in ended.err
    run("restore", str(tmp_path / "backup"), "--json").failure("damaged")


def test_backup_into_a_pipe_writes_into_the_pipe(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    canned.scanned.keys = [b"key"]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    ended = run("backup", str(pipe))
    assert ended.code == 0, ended.err
    with open(reader, "rb") as source:
        assert len(source.read().splitlines()) == 3, "the header, the record and the trailer"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_backup_into_a_link_replaces_its_target(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    canned.scanned.keys = [b"key"]
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    assert run("backup", str(link)).code == 0
    assert (link.is_symlink(), target.stat().st_size > 0) == (True, True)


@pytest.mark.usefixtures("impatient")
def test_interrupted_backup_leaves_the_previous_one(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    file = tmp_path / "backup"
    file.write_bytes(b"the old one")
    canned.scanned.keys = [f"key{i}".encode() for i in range(60)]
    asked = {"n": 0}

    def fails_halfway(point: int, heard: Heard) -> ChordError | None:
        asked["n"] += isinstance(heard.request, Scan)
        return QuorumFailed("1 of 2") if asked["n"] > 5 and isinstance(heard.request, Scan) else None

    canned.override = fails_halfway
    assert run("backup", str(file)).code == 6
    assert (os.listdir(tmp_path), file.read_bytes()) == (["backup"], b"the old one")
    assert run("backup", str(tmp_path / "no" / "such")).code == 2


def test_backup_names_the_keys_that_could_not_be_read(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    (tmp_path / "backup").write_bytes(written(*RECORDS, is_complete=False))
    ended = run("restore", str(tmp_path / "backup"))
    assert ended.code == 0
    assert "some keys could not be read, and it lacks them or some of their values" in ended.err
    assert "of another ring" in ended.err


@pytest.mark.usefixtures("impatient")
def test_restore_names_failed_keys_and_can_be_repeated(
    run: Run, canned: CannedRing, tmp_path: Path, ports: Ports
) -> None:
    def refuse(point: int, heard: Heard) -> ChordError | None:
        is_gone = isinstance(heard.request, Merge) and heard.request.record.key == b"gone"
        return QuorumFailed("1 of 2") if is_gone else None

    canned.override = refuse
    (tmp_path / "backup").write_bytes(written(*RECORDS))
    ended = run("restore", str(tmp_path / "backup"))
    assert (ended.code, [record.key for record in canned.merged]) == (6, [b"\xff\x00"])
    assert "not known to be merged: 'gone': 1 of 2" in ended.err
    assert "restore again; it does no harm" in ended.err
    assert sys.stdin is not None
    assert run("restore", str(tmp_path / "backup"), "--node", ports.address()).code == 4


def test_backup_and_scan_are_incomplete_with_nodes_unreachable(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    """All that can be read is read first."""
    canned.scanned.keys = [f"key{i}".encode() for i in range(60)]
    canned.change = lambda point, node: msgspec.structs.replace(node, replicas=3)
    unreachable = Contact(Point(42), canned.addresses[42])
    answer = canned._answer

    def scanned(point: int, heard: Heard) -> object:
        reply = answer(point, heard.request)
        return msgspec.structs.replace(reply, unreachable=(unreachable,)) if isinstance(reply, ScanReply) else None

    canned.override = scanned  # type: ignore[assignment]
    ended = run("scan")
    assert (ended.code, len(ended.out.splitlines())) == (6, 60)
    assert f"no answer from {unreachable.address}, which may hold more" in ended.err
    file = tmp_path / "backup"
    ended = run("backup", str(file), "--json")
    assert (ended.code, json.loads(ended.out.splitlines()[0])["complete"]) == (6, False)
    with file.open("rb") as source:
        assert verify(source).trailer.complete is False
    ended = run("restore", str(file), "--dry-run")
    assert (ended.code, ended.out.startswith(f"{file} is sound but incomplete: 60 records of ")) == (0, True)


def test_backup_of_one_copy_continues_behind_a_paused_owner(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    canned.scanned.keys = [f"key{i}".encode() for i in range(60)]
    canned.change = lambda point, node: msgspec.structs.replace(node, replicas=1)
    paused, arc = Contact(Point(42), canned.addresses[42]), Arc(Point(10), Point(42))
    left = sorted(key for key in canned.scanned.keys if canned.scanned.circle.hash(key) not in arc)

    def refused(point: int, heard: Heard) -> ChordError | None:
        is_there = isinstance(heard.request, Scan) and heard.request.after == arc.start
        return OwnerDown("the owner has paused", peer=paused) if is_there else None

    canned.override = refused
    file = tmp_path / "backup"
    ended = run("backup", str(file))
    assert (ended.code, f"no answer from {paused.address}, which may hold more" in ended.err) == (6, True)
    with file.open("rb") as source:
        assert verify(source).trailer.complete is False
        source.seek(0)
        assert sorted(record.key for record in records(source)) == left
    assert len(run("scan").out.splitlines()) == len(left) < 60


@pytest.mark.parametrize("file", ["", ".", "/", "..", "HERE"])
def test_backup_into_a_directory_is_refused(run: Run, tmp_path: Path, file: str) -> None:
    ended = run("backup", str(tmp_path) if file == "HERE" else file)
    assert ended.code == 2
    assert "(it names no file)" in ended.err


def test_backup_with_deeply_nested_json_is_refused(run: Run, tmp_path: Path) -> None:
    for text in ('{"format": "chord-backup", "x": ' + "[" * 100_000, "[" * 100_000):
        (tmp_path / "deep").write_text(text + "\n")
        ended = run("restore", str(tmp_path / "deep"))
        assert (ended.code, "is not a complete backup" in ended.err) == (2, True)


def test_backup_into_a_circle_of_links_is_refused(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    ended = run("backup", str(tmp_path / "a"))
    assert (ended.code, "too many levels of symbolic links" in ended.err.lower()) == (2, True), ended.err
