"""Health: a node reports full or read-only disks, damaged records and missing descriptors, and is not ready."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.lowlevel

import chord
from chord.cli import serve
from chord.config import PRESETS, NodeConfig
from chord.errors import ConfigError, PeerUnreachable, RecordDamaged, WritesRefused
from chord.events import Event, HealthChanged
from chord.ids import Arc, Circle, Point
from chord.node import Node
from chord.ring.health import Health
from chord.store.identity import Kept, MemoryIdentity
from chord.store.sqlite import SqliteStorage
from chord.store.sqlite_file import FILE_NAME, StoreFile
from chord.testing import open_ring, run
from chord.wire.messages import Contact, Get, Put, ReplicaState, Scan, ScanReply, Status, Written
from tests.support.cli import CannedRing, Run
from tests.support.fake_node import Heard
from tests.support.node_on_disk import node_on
from tests.support.ports import Ports
from tests.support.rings import lone_world, virtual

# -- Health -------------------------------------------------------------------------------------------------


def test_health_keeps_one_reason_by_subject_and_emits_changes() -> None:
    seen: list[Event] = []
    health = Health(seen.extend)
    shortage = ""
    health.watch("descriptors", lambda: shortage)
    health.clear("disk")
    assert (health.reasons(), seen) == ((), [])
    health.report("disk", "it is full")
    health.report("disk", "it is full")
    shortage = "none are left"
    assert health.reasons() == ("it is full", "none are left")
    health.report("disk", "it hangs")
    shortage = ""
    assert health.reasons() == ("it hangs",)
    health.clear("disk")
    assert health.reasons() == ()
    assert seen == [
        HealthChanged("disk", "it is full"), HealthChanged("descriptors", "none are left"),
        HealthChanged("disk", "it hangs"), HealthChanged("descriptors", ""), HealthChanged("disk", ""),
    ]  # fmt: skip


# -- disks ------------------------------------------------------------------------------------------------------


class Disk:
    """A disk that fails with `code` in a store's writing thread."""

    def __init__(self) -> None:
        self.code = 0

    def __call__(self) -> None:
        if self.code:
            raise OSError(self.code, "No space left on device")


async def test_node_is_degraded_while_its_disk_is_full(tmp_path: Path) -> None:
    disk, seen = Disk(), []  # type: ignore[var-annotated]
    async with node_on(tmp_path, disk, seen) as node:
        await node.put("a", "1")
        assert (node._local_status().state, node._local_status().troubles) == ("ready", ())
        disk.code = errno.ENOSPC
        with pytest.raises(WritesRefused, match=f"{node.address}: no writes are taken: No space left on device"):
            await node.put("b", "2")
        shown = node._local_status()
        assert shown.state == "degraded"
        assert shown.troubles == ("its store takes no writes: No space left on device",)
        assert (await node.get("a")).value == b"1", "reads still work"
        disk.code = 0
        while node._local_status().state == "degraded":  # the node retries without a write
            await trio.sleep(0.05)
    changes = [event.why for event in seen if isinstance(event, HealthChanged)]
    assert changes == ["its store takes no writes: No space left on device", ""]


class ReadOnly(MemoryIdentity):
    """An identity that cannot be written while `error` is set."""

    error: OSError | None = None

    async def save(self, kept: Kept) -> None:
        if self.error is not None:
            raise self.error
        await super().save(kept)


@virtual
async def test_node_that_cannot_write_its_identity_is_not_ready() -> None:
    identity = ReadOnly()
    timing = msgspec.structs.replace(PRESETS["local"], unsaved_s=1.0)
    config = NodeConfig(listen="n0:1", preset="local", timing=timing)
    node = Node(config, lone_world(config, identity))
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        await node.ready()
        identity.error = OSError(errno.EROFS, "Read-only file system")
        await trio.sleep(2)
        assert "node.json could not be written for" in node._local_status().troubles[0]
        assert "(read-only file system)" in node._local_status().troubles[0]
        assert node._local_status().state == "degraded"
        identity.error = None
        await trio.sleep(2)
        assert node._local_status().state == "ready"
        nursery.cancel_scope.cancel()


async def test_read_only_store_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write every file, so the test makes SQLite open the file read-only."""
    async with node_on(tmp_path) as node:
        await node.put("a", "1")

    def connect(self: StoreFile) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)

    monkeypatch.setattr(StoreFile, "_connect", connect)
    with pytest.raises(ConfigError, match=r"records\.sqlite is read-only \(mode \d{4}\); a node must"):
        await SqliteStorage(Circle(32), str(tmp_path), b"incarnat").open()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
async def test_error_of_a_read_only_store_file_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """Root may write every file, so the test decides by the mode, as the system does for other users."""
    monkeypatch.setattr(os, "access", lambda path, _: bool(Path(path).stat().st_mode & 0o200))
    async with node_on(tmp_path) as node:
        await node.put("a", "1")
    file = tmp_path / f"{FILE_NAME}{suffix}"
    file.touch()
    file.chmod(0o400)
    there = set(os.listdir(tmp_path))
    words = rf"{file.name} is read-only \(mode 0400\); a node must write it: change its owner or mode"
    with pytest.raises(ConfigError, match=words):
        await SqliteStorage(Circle(160), str(tmp_path), b"incarnat").open()
    assert set(os.listdir(tmp_path)) == there
    file.chmod(0o600)
    async with node_on(tmp_path) as node:
        assert (await node.get("a")).value == b"1"


async def test_error_of_a_read_only_directory_names_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: bool(Path(path).stat().st_mode & 0o200))
    async with node_on(tmp_path) as node:
        await node.put("a", "1")
    os.chmod(tmp_path, 0o500)
    with pytest.raises(ConfigError, match=rf"{tmp_path.name} is read-only \(mode 0500\); a node must write it"):
        await SqliteStorage(Circle(160), str(tmp_path), b"incarnat").open()
    os.chmod(tmp_path, 0o700)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE])
async def test_error_of_a_store_on_a_full_disk_asks_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """SQLite says disk I/O error if the index of its log has no room."""

    def fail(*_: object) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = code
        raise error

    monkeypatch.setattr(StoreFile, "_tune", fail)
    with pytest.raises(ConfigError, match=r"records\.sqlite: the disk is full; make room there"):
        await SqliteStorage(Circle(32), str(tmp_path), b"incarnat").open()


async def test_damaged_schema_is_an_error_about_damage(tmp_path: Path) -> None:
    async with node_on(tmp_path) as node:
        await node.put("a", "1")
    with sqlite3.connect(tmp_path / FILE_NAME) as file:
        file.execute("ALTER TABLE records RENAME COLUMN value_bytes TO walue_bytes")
    file.close()
    with pytest.raises(ConfigError, match=r"it is damaged, or no store .* move it away"):
        await SqliteStorage(Circle(32), str(tmp_path), b"incarnat").open()


async def test_write_to_a_removed_directory_is_not_acknowledged(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    where = tmp_path / "data"

    async def live() -> None:
        async with chord.open_node(data_dir=str(where), preset="local") as node:
            for key in ("before", "after"):
                await node.put(key, "value")
                acknowledged.append(key)
                shutil.rmtree(where, ignore_errors=True)
            await trio.sleep_forever()

    with pytest.raises(WritesRefused, match=r"the disk of .* failed|the data directory .* is gone"):
        await live()
    assert acknowledged == ["before"]


@pytest.mark.parametrize("what", ["directory removed", "directory moved", "store removed", "store replaced"])
async def test_node_with_removed_files_stops_without_a_write(tmp_path: Path, what: str) -> None:
    where = tmp_path / "data"
    store = where / FILE_NAME

    async def live() -> None:
        async with chord.open_node(data_dir=str(where), preset="local"):
            if what == "directory removed":
                shutil.rmtree(where)
            elif what == "directory moved":
                os.rename(where, tmp_path / "elsewhere")
            elif what == "store removed":
                os.remove(store)
            else:
                shutil.copyfile(store, tmp_path / "copy")
                os.replace(tmp_path / "copy", store)
            await trio.sleep_forever()

    with pytest.raises(WritesRefused, match=r"was removed or replaced; it stopped|the data directory .* is gone"):
        await live()


def flip(path: Path, *keys: bytes) -> None:
    """Change a byte of the values of these keys on disk."""
    with sqlite3.connect(path / FILE_NAME) as file:
        for key in keys:
            (clock,) = file.execute("SELECT clock FROM records WHERE key = ?", (key,)).fetchone()
            at = clock.rindex(b"value")
            file.execute("UPDATE records SET clock = ? WHERE key = ?", (clock[:at] + b"w" + clock[at + 1 :], key))
    file.close()


async def test_scan_and_get_report_damaged_records(tmp_path: Path) -> None:
    async with node_on(tmp_path) as node:
        await node.put_many((f"key{number}", "value") for number in range(6))
    flip(tmp_path, b"key1", b"key3", b"key5")
    async with node_on(tmp_path) as node:
        found: list[bytes] = []

        async def scan() -> None:
            async for pair in node.scan():
                found.append(pair.key)

        async def records() -> None:
            async for record in node.export(of=node.address):
                found.append(record.key)

        for read in (scan, records):
            found.clear()
            with pytest.raises(RecordDamaged, match="the result is incomplete: 3 records are damaged") as caught:
                await read()
            assert (sorted(found), caught.value.records) == ([b"key0", b"key2", b"key4"], 3)
        with pytest.raises(RecordDamaged, match=r"a damaged record at 127.* may be of this key, and no other node has"):
            await node.get("key3")
        assert (await node.get("key2")).value == b"value"
        assert node._local_status().damaged == 3
        await node.put("key3", "again")
        assert (await node.get("key3")).value == b"again"
        assert node._local_status().damaged == 2
        points = {node._host.circle.hash(key) for key in (b"key1", b"key5")}
        assert set(node._host.storage.damaged(Arc(Point(0), Point(0)))) == points
        for point in points:
            assert node._host.storage.damaged(Arc(node._host.circle.point(point - 1), point)) == [point]


async def test_node_is_ready_only_once_it_serves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[str] = []
    ready = trio.Event()
    monkeypatch.setattr(serve, "_say", said.append)
    monkeypatch.setattr(serve, "LOOK_S", 0.01)
    nodes: list[Node] = []
    make = Node.__init__

    def remember(self: Node, *args: Any, **named: Any) -> None:
        make(self, *args, **named)
        nodes.append(self)

    monkeypatch.setattr(Node, "__init__", remember)
    async with trio.open_nursery() as nursery:
        config = NodeConfig(name="n1", preset="local")
        nursery.start_soon(serve._live, config, lambda node, how: ready.set(), None)
        while not nodes:
            await trio.lowlevel.checkpoint()
        nodes[0]._host.health.report("disk", "the disk does not answer")
        while nodes[0].state != "ready":
            await trio.sleep(0.01)
        await trio.sleep(0.05)
        assert not ready.is_set()
        assert said == ["n1 is degraded: the disk does not answer"]
        nodes[0]._host.health.clear("disk")
        await ready.wait()
        assert said[1:] == ["n1 has recovered (disk)"]
        nursery.cancel_scope.cancel()


# -- commands -----------------------------------------------------------------------------------------------


def changed(canned: CannedRing, **fields: Any) -> None:
    """Change the status of the node at 80."""
    canned.change = lambda point, node: msgspec.structs.replace(node, **fields) if point == 80 else node


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"state": "degraded", "troubles": ("it is full",)}, "degraded  n2 does not serve all requests: it is full"),
        ({"damaged": 3}, "damaged  n2: 3 records damaged; copies of other nodes replace them, or use chord"),
    ],
)
def test_check_is_not_ok_if_a_node_does_not_serve(
    run: Run, canned: CannedRing, fields: dict[str, Any], line: str
) -> None:
    changed(canned, **fields)
    ended = run("check")
    assert (ended.code, "OK" in ended.out) == (8, False)
    assert ended.out.startswith(line)
    shape = run("check", "--json").json("check")
    assert (shape["ok"], shape["ideal"]) == (False, True)
    assert run("check", "--invariants").code == 0


def test_check_says_how_to_give_up_damaged_records(run: Run, canned: CannedRing) -> None:
    changed(canned, damaged=3)
    way = "or use chord restore. If some remain: chord backup, start n2 without its records.sqlite, chord restore\n"
    assert way in run("check").out


def set_of(canned: CannedRing, unreachable: int, members: int) -> ReplicaState:
    contacts = tuple(Contact(Point(p), canned.addresses[p]) for p in (80, 120, 160)[:members])
    gone = contacts[members - unreachable :]
    return ReplicaState(Point(42), Point(80), contacts, gone, (), gone if unreachable >= min(2, members) else ())


@pytest.mark.parametrize(
    ("unreachable", "members", "code"), [(1, 3, 0), (2, 3, 8), (3, 3, 8), (1, 1, 8), (1, 2, 0), (2, 2, 8)]
)
def test_check_is_not_ok_if_a_get_may_fail(
    run: Run, canned: CannedRing, unreachable: int, members: int, code: int
) -> None:
    changed(canned, replicas=3, sets=(set_of(canned, unreachable, members),))
    ended = run("check")
    assert ended.code == code
    assert ("unavailable  a get may fail in 14.8 % of the circle: no answer from 127.0.0.1:" in ended.out) == bool(code)
    assert ("OK  " in ended.out) == (not code)
    gone = run("check", "--json").json("check")["unavailable"]
    assert (gone["share"] > 0, len(gone["nodes"])) == (bool(code), unreachable if code else 0)


def test_check_is_not_ok_if_too_few_replicas_are_in_sync(run: Run, canned: CannedRing) -> None:
    part = msgspec.structs.replace(set_of(canned, 0, 3), is_uncertain=True)
    changed(canned, replicas=3, sets=(part,))
    ended = run("check")
    assert ended.code == 8
    assert "unavailable  a get may fail in 14.8 % of the circle: its replicas are being compared" in ended.out
    assert run("check", "--json").json("check")["unavailable"]["share"] > 0


def test_status_shows_damage_and_the_reason_of_a_degraded_node(run: Run, canned: CannedRing) -> None:
    changed(canned, state="degraded", troubles=("its disk is full",), damaged=3, quarantined=2)
    ended = run("status")
    assert ended.code == 0
    row = next(line.split("\t") for line in ended.out.splitlines() if line.startswith("n2\t"))
    assert (row[3], row[-2:]) == ("degraded", ["3", "2"])
    assert "2 values in quarantine, hidden from readers: see chord quarantine list" in ended.err
    assert "n2 is degraded: its disk is full" in ended.err
    assert "3 copies of records damaged" in ended.err
    shape = run("status", "--json").json("status")
    assert (shape["damaged"], shape["nodes"][2]["troubles"]) == (3, ["its disk is full"])
    assert (shape["quarantined"], shape["nodes"][2]["quarantined"]) == (2, 2)


def test_check_with_values_in_quarantine_warns_and_is_ok(run: Run, canned: CannedRing) -> None:
    changed(canned, quarantined=1)
    ended = run("check")
    assert ended.code == 0
    assert "quarantine  1 value hidden from readers until you decide: chord quarantine list" in ended.out
    shape = run("check", "--json").json("check")
    assert (shape["ok"], shape["quarantined"]) == (True, 1)


def damaged_at(canned: CannedRing, count: int) -> None:
    """Let the owner at 80 miss some records."""

    def override(point: int, heard: Heard) -> Any:
        if not isinstance(heard.request, Scan):
            return None
        page = canned.scanned(heard)
        assert isinstance(page, ScanReply)
        is_there = page.until == 80 and page.more_after is None
        return msgspec.structs.replace(page, damaged=tuple(map(Point, range(50, 50 + count)))) if is_there else page

    canned.override = override


def test_backup_with_damaged_records_is_incomplete(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    canned.scanned.keys = [f"key{number}".encode() for number in range(9)]
    damaged_at(canned, 3)
    file = tmp_path / "backup"
    ended = run("backup", str(file), "--json")
    assert ended.code == 6
    shape = ended.json("backup")
    assert (shape["complete"], shape["damaged"], shape["records"]) == (False, 3, 9)
    assert "3 records are damaged" in ended.failure("record_damaged")["message"]
    assert '"complete":false' in file.read_text().splitlines()[-1]
    assert "is incomplete: some keys could not be read" in run("restore", str(file), "--dry-run").err
    damaged_at(canned, 0)
    ended = run("backup", str(file), "--json")
    assert (ended.code, ended.json("backup")["complete"], ended.json("backup")["damaged"]) == (0, True, 0)


def test_scan_with_damaged_records_exits_with_6(run: Run, canned: CannedRing) -> None:
    canned.scanned.keys = [b"key"]
    damaged_at(canned, 1)
    ended = run("scan")
    assert (ended.code, ended.out) == (6, "key\tv:key\n")
    assert "the result is incomplete: 1 record is damaged. Restore them from a backup" in ended.err


def test_get_of_a_damaged_record_exits_with_6(run: Run, canned: CannedRing) -> None:
    canned.override = lambda point, heard: RecordDamaged("damaged") if isinstance(heard.request, Get) else None
    assert run("get", "k").code == 6


# -- W on a small ring ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("w_needed", "asked", "is_short"), [(1, (), True), (1, ("--w", "1"), False), (2, (), False)])
def test_put_warns_if_the_ring_is_smaller_than_its_quorum(
    run: Run, canned: CannedRing, w_needed: int, asked: tuple[str, ...], is_short: bool
) -> None:
    owner = Contact(Point(80), canned.addresses[80])
    canned.override = lambda point, heard: (
        Written(b"context", owner, w_needed, w_needed, quorum=2) if isinstance(heard.request, Put) else None
    )
    ended = run("put", "k", "v", *asked)
    said = "stored on 1 node only: the ring has fewer nodes than its write quorum of 2\n"
    assert (ended.code, ended.err) == (0, said if is_short else "")
    shape = run("put", "k", "v", "--json", *asked).json("put")
    assert (shape["quorum"], shape["under_replicated"]) == (2, is_short)


def test_put_on_a_lone_node_is_under_replicated() -> None:
    async def alone() -> None:
        async with open_ring(1) as memory:
            stored = await memory[0].put("k", "v")
            assert (stored.w, stored.w_needed, stored.quorum, stored.is_under_replicated) == (1, 1, 2, True)
            asked = await memory[0].put("k", "v", w=1)
            assert not asked.is_under_replicated

    run(alone, seed=1)


def test_status_warns_if_the_ring_is_smaller_than_its_quorum(run: Run, canned: CannedRing) -> None:
    canned.change = lambda point, node: msgspec.structs.replace(node, replicas=16)
    said = "The ring has 7 nodes, fewer than its write quorum of 9: a write is on 7 nodes only"
    assert said in run("status").err
    canned.change = lambda point, node: msgspec.structs.replace(node, replicas=13)
    assert "fewer than" not in run("status").err


def test_status_with_too_few_reachable_nodes_warns_of_writes(
    run: Run, canned: CannedRing, ports: Ports
) -> None:
    gone = tuple(Contact(Point(200 + number), ports.address()) for number in range(3))
    canned.change = lambda point, node: msgspec.structs.replace(node, replicas=15, known=(*node.known, *gone))
    err = run("status").err
    assert "Only 7 of 10 nodes answer, and a write quorum is 8: writes fail until more answer" in err
    assert "fewer than" not in err


def test_status_of_a_healthy_node_has_default_fields() -> None:
    assert Status.__struct_defaults__[-7:] == (0, (), 0, 0, (), "off", 0)


def test_check_shows_the_reason_of_an_unreachable_node(run: Run, canned: CannedRing) -> None:
    address, why = canned.addresses[200], "the node has run out of file descriptors"
    canned.nodes[200]._refusal = PeerUnreachable(f"{address}: {why}")
    assert f"unreachable  {address} does not answer: {why}\n" in run("check").out
    assert f"{address}: {why}" in run("status").err
    canned.nodes[200].die()
    assert f"unreachable  {address} does not answer. If it will never be back: chord forget" in run("check").out
