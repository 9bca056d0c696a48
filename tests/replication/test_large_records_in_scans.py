"""Records beyond one reply: scans and backups name the key and report that they are incomplete."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chord import testing
from chord.client.operations import CUT_KEYS_MAX
from chord.client.results import Found
from chord.config import Limits
from chord.errors import OwnerDown, RecordDamaged, RecordTooLarge, VersionConflict
from chord.ids import Point
from chord.node import Node
from chord.replication import scan
from chord.replication.records import cut_as, is_cut
from chord.store import versions
from chord.wire.messages import (
    SIBLINGS_MAX,
    ActorClock,
    Contact,
    Get,
    GetReply,
    Record,
    Scan,
    ScanOf,
    ScanReply,
    Version,
)
from tests.support.cli import CannedRing, Run
from tests.support.fake_node import Heard
from tests.support.quorum import KEY
from tests.support.rings import virtual

BYTES_MAX = 3000
LIMITS = Limits(record_bytes_max=BYTES_MAX)
VALUE = b"x" * 1000


def written(count: int, value: bytes = VALUE, per_actor: int = 1) -> tuple[ActorClock, ...]:
    """Return the clock of a record that `count` coordinators wrote at the same time."""
    return tuple(
        ActorClock(
            versions.actor(b"actor%03d" % number, 1),
            per_actor,
            tuple(Version(value, b"%08d%08d" % (number, place), 5) for place in range(per_actor)),
        )
        for number in range(count)
    )


async def merged(node: Node, record: Record) -> None:
    """Store a record coordinator by coordinator, as the nodes of several sides do."""
    for part in versions.split(record, 1):
        await node.import_(part, w=node._local_status().replicas)


async def collected(source: AsyncIterator[Any]) -> tuple[list[bytes], RecordTooLarge | None]:
    """Return the keys that a scan shows, and its last word."""
    keys: list[bytes] = []
    try:
        async for item in source:
            keys.append(item.key)
    except RecordTooLarge as error:
        return keys, error
    return keys, None


Reading = Callable[[Node], AsyncIterator[Any]]
READINGS: list[Reading] = [
    lambda node: node.scan(),
    lambda node: node.export(),
    lambda node: node.export(of=node.address),
]


@virtual
async def test_scan_of_a_record_beyond_one_reply_ends_with_its_key() -> None:
    async with testing.open_ring(3, seed=1, limits=LIMITS) as ring:
        large, other = Record(b"large", written(4)), Record(b"other", written(3))
        for record in (large, other):
            await merged(ring[0], record)
        owner = next(node for node in ring.nodes if node._host.owner_of(node._host.circle.hash(b"large")))
        for reading in READINGS:
            keys, error = await collected(reading(owner))
            assert b"large" in keys, "what fits is shown"
            assert error is not None
            assert (error.records, error.keys, error.also) == (1, (b"large",), ())
            assert "the result is incomplete: 1 key has more values than one reply can hold: 'large'" in error.message
        found = await owner.get(b"large")
        assert (len(found.values), found.left) == (3, 1)
        await owner.put(b"large", "settled", context=found.context)
        while (found := await owner.get(b"large")).siblings:
            await owner.put(b"large", "settled", context=found.context)
        for reading in READINGS:
            assert (await collected(reading(owner)))[1] is None, "the next step of the message helps"


def test_planted_scan_without_cut_keys_loses_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: the page leaves its cut keys out. The other tests of this file fail with it."""
    monkeypatch.setattr(scan, "is_cut", lambda whole, shown, what: False)

    async def main() -> None:
        async with testing.open_ring(3, seed=1, limits=LIMITS) as ring:
            await merged(ring[0], Record(KEY, written(4)))
            assert [len(versions.siblings(record)) async for record in ring[0].export()] == [3]
            assert await collected(ring[0].export()) == ([KEY], None)

    testing.run(main, seed=1)


@virtual
async def test_scan_of_large_quarantine_ends_with_its_key() -> None:
    async with testing.open_ring(3, seed=1, limits=LIMITS) as ring:
        await ring[0].import_(Record(KEY, (), b"", written(2)), w=3)
        assert (await collected(ring[0].scan_quarantine()))[1] is None
        await ring[0].import_(Record(KEY, (), b"", written(4)[2:]), w=3)
        for source in (ring[0].scan_quarantine(), ring[0].export()):
            assert (await collected(source))[1] is not None
        assert (await collected(ring[0].scan()))[1] is None, "it shows no quarantine"


@virtual
async def test_scan_of_a_node_continues_behind_a_large_record() -> None:
    """The end of the first arc is not the end of the scan."""
    async with testing.open_ring(1, seed=1, limits=LIMITS, vnodes=4, replicas=1) as ring:
        node, circle = ring[0], ring[0]._host.circle
        keys = [b"key%d" % number for number in range(32)]
        assert len({node._host.owner_of(circle.hash(key)) for key in keys}) > 2
        for key in keys:
            await merged(node, Record(key, written(4)))
        found, error = await collected(node.export(of=node.address))
        assert sorted(found) == sorted(keys)
        assert error is not None
        assert (error.records, sorted(error.keys)) == (32, sorted(keys))
        assert error.message.count("'") == 10
        assert "and 27 more" in error.message


@pytest.mark.parametrize(
    ("clock", "hidden", "expected"),
    [
        (written(3), (), {"live": False, "whole": False}),
        (written(4), (), {"live": True, "whole": True}),
        (written(2, b"x" * 1500), (), {"live": False, "whole": False}),
        ((*written(1, b"x" * 1501), *written(2, b"x" * 1500)[1:]), (), {"live": True, "whole": True}),
        (written(1, b"x" * 9000), (), {"live": False, "whole": False}),
        (written(2, b"", SIBLINGS_MAX // 2), (), {"live": False, "whole": False}),
        (written(3, b"", SIBLINGS_MAX // 2), (), {"live": True, "whole": True}),
        (written(1), written(1), {"live": False, "whole": False, "quarantine": False}),
        (written(2), written(2), {"live": False, "whole": True, "quarantine": False}),
        ((), written(4), {"live": False, "whole": True, "quarantine": True}),
    ],
)
def test_is_cut_of_a_record_tells_if_the_page_lacks_versions(
    clock: tuple[ActorClock, ...], hidden: tuple[ActorClock, ...], expected: dict[ScanOf, bool]
) -> None:
    record = Record(KEY, clock, b"", hidden)
    found = {what: is_cut(record, cut_as(record, what, BYTES_MAX), what) for what in expected}
    assert found == expected


# -- the command line --------------------------------------------------------------------------------------------------


def page_lacks(canned: CannedRing, *cut: bytes, damaged: int = 0, unreachable: tuple[Contact, ...] = ()) -> None:
    """Let the owner at 255 cut some records."""

    def override(point: int, heard: Heard) -> Any:
        if not isinstance(heard.request, Scan):
            return None
        page = canned.scanned(heard)
        assert isinstance(page, ScanReply)
        if page.more_after is not None or heard.request.after != Point(255):
            return page
        points = tuple(Point(heard.request.after + 1 - 256 + number) for number in range(damaged))
        return msgspec.structs.replace(page, cut=cut, damaged=points, unreachable=unreachable)

    canned.override = override


def test_get_of_more_values_than_one_reply_holds_is_a_conflict(run: Run, canned: CannedRing) -> None:
    def override(point: int, heard: Heard) -> Any:
        one = GetReply((b"v",), b"context", Contact(Point(9), "n1:1"), left=4)
        return one if isinstance(heard.request, Get) else None

    canned.override = override
    ended = run("get", "key")
    assert ended.code == 7
    assert "'key' has 5 concurrent values, 1 of them shown. Settle them" in ended.err
    assert run("get", "key", "--json").json("get")["left"] == 4
    ended = run("get", "key", "--all")
    assert (ended.code, ended.out) == (0, "v\n")
    assert "5 concurrent values, 1 of them shown. Settle those shown, and the next get" in ended.err


def test_found_with_values_left_has_no_one_value() -> None:
    found = Found(b"key", (b"v",), b"", Contact(Point(9), "n1:1"), left=1)
    with pytest.raises(VersionConflict, match="2 concurrent values, 1 of them shown; resolve them"):
        _ = found.value


SETTLE = "Settle each key: chord get KEY --all --context FILE, chord put KEY VALUE --context @FILE. Or decide about its"


def test_backup_with_a_cut_record_is_not_complete(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    canned.scanned.keys = [b"key"]
    page_lacks(canned, b"key", b"\xff")
    file = tmp_path / "backup"
    ended = run("backup", str(file), "--json")
    shape = ended.json("backup")
    assert (ended.code, shape["complete"], shape["cut"], shape["damaged"]) == (6, False, 2, 0)
    failure = ended.failure("record_too_large")
    assert failure["keys"] == [{"key": "key"}, {"key_b64": "/w=="}]
    assert failure["hint"].startswith(SETTLE)
    assert '"complete":false' in file.read_text().splitlines()[-1]
    assert "it lacks them or some of their values" in run("restore", str(file), "--dry-run").err
    ended = run("backup", str(file))
    assert ended.code == 6
    assert "error: the result is incomplete: 2 keys have more values than one reply can hold" in ended.err
    assert r": 'key', '\\xff'" in ended.err
    page_lacks(canned)
    ended = run("backup", str(file), "--json")
    assert (ended.code, ended.json("backup")["complete"], ended.json("backup")["cut"]) == (0, True, 0)


@pytest.mark.parametrize("command", [["scan"], ["quarantine", "list"]])
def test_scan_with_a_cut_record_is_exit_6(run: Run, canned: CannedRing, command: list[str]) -> None:
    canned.scanned.keys = [b"key"]
    page_lacks(canned, b"key")
    ended = run(*command)
    assert (ended.code, ended.out) == (6, "key\tv:key\n" if command == ["scan"] else "")
    assert f"the result is incomplete: 1 key has more values than one reply can hold: 'key'. {SETTLE}" in ended.err
    assert run(*command, "--json").failure("record_too_large")["keys"] == [{"key": "key"}]


def test_backup_with_several_faults_reports_each(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    canned.scanned.keys = [b"key"]
    canned.change = lambda point, node: msgspec.structs.replace(node, replicas=3)
    unreachable = Contact(Point(42), canned.addresses[42])
    page_lacks(canned, b"key", damaged=2, unreachable=(unreachable,))
    ended = run("backup", str(tmp_path / "backup"), "--json")
    shape = ended.json("backup")
    assert (ended.code, shape["complete"], shape["cut"], shape["damaged"]) == (6, False, 1, 2)
    also = ended.failure("owner_down")["also"]
    assert [each["code"] for each in also] == ["record_damaged", "record_too_large"]
    assert also[1]["keys"] == [{"key": "key"}]
    ended = run("scan")
    assert [line.split(":")[0] for line in ended.err.splitlines()] == ["error"] * 3
    for text in ("which may hold more", "2 records are damaged", "1 key has more values"):
        assert text in ended.err


def test_scan_keeps_the_first_cut_keys_and_counts_all(run: Run, canned: CannedRing) -> None:
    canned.scanned.keys = [f"key{number}".encode() for number in range(CUT_KEYS_MAX + 44)]

    def override(point: int, heard: Heard) -> Any:
        if not isinstance(heard.request, Scan):
            return None
        page = canned.scanned(heard)
        assert isinstance(page, ScanReply)
        return msgspec.structs.replace(page, cut=tuple(record.key for record in page.records))

    canned.override = override
    failure = run("scan", "--json").failure("record_too_large")
    assert len(failure["keys"]) == CUT_KEYS_MAX
    assert f"{CUT_KEYS_MAX + 44} keys have more values" in failure["message"]


@virtual
async def test_scan_of_several_faults_raises_the_worst_with_the_others() -> None:
    async with testing.open_ring(3, seed=1, limits=LIMITS) as ring:
        core = ring[0]._core
        cursor = await ring[0]._drive(core.scan_start())
        assert cursor is not None
        unreachable = (Contact(Point(1), "n9:1"),)
        ended = cursor._replace(covered=cursor.span, unreachable=unreachable, damaged=2, cut=1, cut_keys=(b"k",))
        with pytest.raises(OwnerDown) as caught:
            await ring[0]._drive(core.scan_page(ended))
        damaged, large = caught.value.also
        assert isinstance(damaged, RecordDamaged)
        assert damaged.records == 2
        assert isinstance(large, RecordTooLarge)
        assert large.keys == (b"k",)
