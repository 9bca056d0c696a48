"""Consistent exports of a ring in memory: contents, leases, missing members, restarts and reap logs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from types import SimpleNamespace
from typing import cast
from unittest import mock

import pytest
import trio

import chord
from chord import testing
from chord.client.cut_scan import CutScan, _NodeCut, _without_place
from chord.client.session import ClientSession, MakeCalls, Outcome, Timed
from chord.errors import CutMissing, DeadlineExceeded, InvalidRequest
from chord.ids import Circle, Point
from chord.node import Node
from chord.replication.anti_entropy import AntiEntropy
from chord.sim.cluster import cluster
from chord.store.reap_log import Grave
from chord.store.storage import Batch
from chord.wire.cuts import AHEAD_MS_MAX, CUT_MAX, began_ms_of, next_number
from chord.wire.messages import (
    ActorClock,
    Contact,
    GetCutNotes,
    GetCutNotesReply,
    Record,
    ScanCut,
    ScanCutReply,
    Status,
    Version,
)
from chord.wire.messages.cuts import LAST_NAME, NOTES_MAX, CutNote
from tests.support.rings import only, virtual


async def exported(node: Node) -> dict[bytes, Record]:
    return {record.key: record async for record in node.export(consistent=True)}


def values(record: Record) -> list[bytes | None]:
    return [version.value for entry in record.clock for version in entry.versions]


@virtual
async def test_consistent_export_has_every_record_once() -> None:
    async with testing.open_ring(4) as ring:
        for number in range(150):
            await ring[number % 4].put(f"k{number}", f"v{number}")
        await ring[0].delete("k7")
        found = await exported(ring[1])
        assert {key: values(record) for key, record in found.items()} == {
            b"k%d" % number: [None if number == 7 else b"v%d" % number] for number in range(150)
        }
        assert len({node._cut_number.number for node in ring.nodes}) == 1
        with pytest.raises(InvalidRequest, match="a cut is of all nodes"):
            async for _ in ring[0].export(of=ring[0].address, consistent=True):
                pass


@virtual
async def test_cut_keeps_its_records_until_its_lease_ends() -> None:
    async with testing.open_ring(3, limits=chord.Limits(cut_lease_s=3.0)) as ring:
        await ring[0].put("k", "old")
        await exported(ring[0])
        number, node = ring[0]._cut_number.number, ring[1]
        await ring[0].put("k", "new")
        for _ in range(3):
            await trio.sleep(2)  # each page renews the lease
            reply = await ring[0]._host.peers.call(node.address, ScanCut(number), ScanCutReply)
            assert [values(record) for record in reply.records] == [[b"old"]]
        await trio.sleep(3.1)
        for request in (ScanCut(number), GetCutNotes(number)):
            with pytest.raises(CutMissing, match=f"does not hold cut {number}: its lease of 3 s is over"):
                await ring[0]._host.peers.call(node.address, request, request.reply)
        with pytest.raises(CutMissing, match=f"its newest cut is {number}"):
            await ring[0]._host.peers.call(node.address, ScanCut(number - 1), ScanCutReply)


@virtual
async def test_member_that_is_down_is_named_after_all_records() -> None:
    async with testing.open_ring(5) as ring:
        await ring[0].put("k", "v")
        address = ring[4].address
        await ring.kill(ring[4], silently=True)
        export = ring[0].export(consistent=True)
        assert (await anext(export)).key == b"k"
        with pytest.raises(CutMissing, match="1 member has no cut") as caught:
            await anext(export)
        assert caught.value.addresses == (address,)


@virtual
async def test_missing_member_with_a_taken_address_is_named() -> None:
    """A vnode that answers is not missing, even if an owner does not know yet that it is back."""
    async with testing.open_ring(3) as ring:
        await ring[0].put("k", "v")
        for contact, is_named in ((Contact(Point(7), ring[2].address), True), (only(ring[2]).me, False)):
            with mock.patch.object(AntiEntropy, "_unproven", lambda self, arc, replicas, dead=contact: (dead,)):
                export = ring[0].export(consistent=True)
                assert (await anext(export)).key == b"k"
                if is_named:
                    with pytest.raises(CutMissing, match="another node has its address now") as caught:
                        await anext(export)
                    assert caught.value.addresses == (f"once {ring[2].address}",)
                else:
                    with pytest.raises(StopAsyncIteration):
                        await anext(export)


@virtual
async def test_member_that_restarts_is_named_until_it_is_back() -> None:
    """No status names the neighbours of a restarting node, so the search for members ends at this node."""
    async with testing.open_ring(4) as ring:
        nodes = list(ring.nodes)
        for node in nodes:
            await ring.kill(node)
        for node in nodes:
            await ring.start(join=(), name=node.name)
        async with client_of(ring) as client:
            address = ring[1].address
            assert ring[1].state == "resuming"
            with pytest.raises(CutMissing, match="it does not know its neighbours yet") as caught:
                async for _ in client.export(consistent=True):
                    pass
            assert caught.value.addresses == (address,)
            for node in ring.nodes:
                await node.ready()
            async for _ in client.export(consistent=True):
                pass


@pytest.mark.parametrize(
    ("states", "named"),
    [
        (("ready", "joining", "degraded", "leaving"), ""),
        (("ready", "starting", "resuming"), "12"),
        (("joining", "joining"), "01"),
        (("resuming", "joining"), "01"),
    ],
)
def test_joiner_is_named_only_if_no_member_is_found(states: tuple[str, ...], named: str) -> None:
    nodes = {str(number): SimpleNamespace(state=state) for number, state in enumerate(states)}
    assert "".join(_without_place(cast(Mapping[str, Status], nodes))) == named


@virtual
async def test_newer_export_ends_an_older_one() -> None:
    async with testing.open_ring(3) as ring:
        for number in range(300):
            await ring[0].put(f"k{number}", "v")
        export = ring[0].export(consistent=True)
        await anext(export)
        await exported(ring[1])
        with pytest.raises(CutMissing, match="3 members have no cut"):
            async for _ in export:
                pass


@virtual
async def test_slow_reader_renews_the_leases_of_all_nodes() -> None:
    """A node with records at the end of the circle is asked once, and then not until the others have no more."""
    limits = chord.Limits(page_bytes=500, cut_lease_s=3.0)
    async with testing.open_ring(3, replicas=1, limits=limits) as ring:
        await ring[0].put_many([(f"k{number}", "v") for number in range(80)])
        found = []
        async for record in ring[0].export(consistent=True):
            found.append(record.key)
            await trio.sleep(0.1)
        assert len(found) == 80


@virtual
async def test_slow_node_has_the_time_of_the_caller_for_a_page() -> None:
    async with testing.open_ring(3) as ring:
        await ring[0].put("k", "v")

        async def slowly(since: float) -> None:
            await trio.sleep(ring[1].timeout_s - 1)

        ring[1]._host.give_way = slowly  # type: ignore[method-assign]
        assert list(await exported(ring[0])) == [b"k"]
        ring[0].timeout_s = ring[1].timeout_s - 2
        with pytest.raises(CutMissing, match=f"1 member has no cut: {ring[1].address}"):
            await exported(ring[0])


def test_page_that_came_too_late_is_asked_for_again_in_parts() -> None:
    scan = CutScan(ClientSession(("n:1",), rng=random.Random(1)), CIRCLE, 7, ("n:1",), {})
    asked: list[object] = []
    outcomes: list[Outcome] = [GetCutNotesReply((), None), *[DeadlineExceeded("late")] * 2]
    outcomes += [ScanCutReply((), bytes([number])) for number in range(3)]
    for outcome in outcomes:
        page = Timed(scan.page(), 0.0, 9.0)
        effect = page.next(0.0)
        assert isinstance(effect, MakeCalls)
        asked.append(effect.calls[0].request)
        pause = page.next(9.0 if isinstance(outcome, DeadlineExceeded) else 1.0, (outcome,))
        assert pause is None, "a page that reached its deadline does not pause"
    limits = [request.limit for request in asked if isinstance(request, ScanCut)]
    assert limits == [128, 16, 2, 4, 8]


def cut_keys(node: Node) -> list[bytes] | None:
    """Return the keys in the cut of a node; None if it has none."""
    held = node._cuts._held
    return None if held is None else [record.key for record in held.scan(None)]


@virtual
async def test_node_cuts_before_it_handles_the_message() -> None:
    async with testing.open_ring(3) as ring:
        await ring[0].put("before", "v")
        ring[0]._cut_number.see(5)
        await ring[0].put("after", "v")
        assert [cut_keys(node) for node in ring.nodes] == [[b"before"]] * 3


@virtual
async def test_client_carries_the_number_from_node_to_node() -> None:
    async with testing.open_ring(3) as ring:
        await ring[0].put("before", "v")
        async with client_of(ring) as client:
            ring[1]._cut_number.see(5)
            await client.status()
            assert client._core.session.cuts.number == 5
            assert client._rpc._shared.cuts.number == 5  # type: ignore[attr-defined]
            await client.status(ring[2].address)
            assert cut_keys(ring[2]) == [b"before"]


def client_of(ring: testing.TestRing) -> AbstractAsyncContextManager[chord.AsyncClient]:
    return chord.open_client(ring[1].address, transport=ring.network.transport("c"))


def number_in_ms(ms: int) -> int:
    """Return a number of a cut that begins `ms` after the present time."""
    return next_number(0, int(1000 * trio.current_time()) + ms, random.Random(1))


async def reason(node: Node, number: int) -> str:
    """Return why a node does not hold the cut of a number."""
    with pytest.raises(CutMissing) as caught:
        await node._cuts.on_scan_cut(ScanCut(number))
    return caught.value.message


@virtual
async def test_number_too_far_ahead_ends_no_later_backup() -> None:
    async with testing.open_ring(3, limits=chord.Limits(cut_lease_s=2.0)) as ring:
        await ring[0].put("k", "v")
        async with client_of(ring) as client:
            client._core.session.cuts.number = CUT_MAX
            await client.status()
            await client.put("k", "w")
            with pytest.raises(CutMissing, match=r"3 members have no cut.*check the clocks of the members"):
                async for _ in client.export(consistent=True):
                    pass
        assert {node._cut_number.number for node in ring.nodes} == {0}
        with pytest.raises(CutMissing, match="a cut with a wrong time has reached it within the last 2 s"):
            await exported(ring[0])
        await trio.sleep(2)
        assert list(await exported(ring[0])) == [b"k"]


@virtual
async def test_node_with_a_clock_far_behind_begins_no_cut() -> None:
    async with testing.open_ring(3) as ring:
        for node in ring.nodes[1:]:
            node._host.wall_now_ms = lambda: 2 * AHEAD_MS_MAX
        with pytest.raises(CutMissing, match=f"{ring[0].address} cannot begin a cut: its clock is over a day behind"):
            await exported(ring[0])


@virtual
async def test_number_a_day_ahead_is_the_last_to_be_taken() -> None:
    async with testing.open_ring(1) as ring:
        cuts = ring[0]._cut_number
        cuts.see(number_in_ms(AHEAD_MS_MAX + 1))
        assert cuts.number == 0
        cuts.see(number_in_ms(AHEAD_MS_MAX))
        assert began_ms_of(cuts.number) == int(1000 * trio.current_time()) + AHEAD_MS_MAX


@virtual
async def test_number_from_a_wrong_clock_is_forgotten_with_its_cut() -> None:
    async with testing.open_ring(1, limits=chord.Limits(cut_lease_s=2.0)) as ring:
        node, year_ms = ring[0], 365 * AHEAD_MS_MAX
        node._host.wall_now_ms = lambda: int(1000 * trio.current_time()) + year_ms
        node._cut_number.see(number := number_in_ms(year_ms))
        assert cut_keys(node) == []
        node._host.wall_now_ms = lambda: int(1000 * trio.current_time())
        node._cut_number.see(number + 1)
        assert (node._cut_number.number, cut_keys(node)) == (0, None)
        assert node._cuts.resume(number) == 0, "a restart forgets it, too"
        await trio.sleep(2)
        await exported(node)


@virtual
async def test_cut_beyond_the_limit_per_minute_is_not_made() -> None:
    async with testing.open_ring(1, limits=chord.Limits(cuts_per_minute=2)) as ring:
        node = ring[0]
        for number in (1, 2):
            node._cut_number.see(number)
        await node.put("k", "v")
        node._cut_number.see(3)
        assert await reason(node, 3) == (
            f"{node.address} does not hold cut 3: it makes at most 2 cuts per minute (cuts_per_minute)"
        )
        assert node._cut_number.number == 3
        assert (await node._cuts.on_scan_cut(ScanCut(2))).records == (), "the running backup goes on"
        await trio.sleep(59.9)
        node._cut_number.see(4)
        assert "cuts per minute" in await reason(node, 4)
        await trio.sleep(0.1)
        node._cut_number.see(5)
        assert cut_keys(node) == [b"k"]


@virtual
async def test_cut_ends_at_its_greatest_age() -> None:
    async with testing.open_ring(1, limits=chord.Limits(cut_lease_s=2.0, cut_age_max_s=5.0)) as ring:
        ring[0]._cut_number.see(1)
        for pause_s in (1.5, 1.5, 1.5, 0.4):
            await trio.sleep(pause_s)
            await ring[0]._cuts.on_scan_cut(ScanCut(1))
        await trio.sleep(0.2)
        assert "its cut was 5 s old, the greatest age (cut_age_max_s)" in await reason(ring[0], 1)


@virtual
async def test_cut_ends_with_a_restart_and_the_error_says_so() -> None:
    async with cluster(seed=1, ring=chord.RingConstants(replicas=1), sync_delay=lambda rng: 0.001) as ring:
        node = await ring.start()
        await node.put("k", "v")
        node._cut_number.see(7)
        await node.put("k", "w")
        await ring.kill(node)
        back = await ring.restart(node)
        assert await reason(back, 7) == f"{back.address} does not hold cut 7: it has restarted since"


class Unwalkable(list[CutNote]):
    """A list that refuses to be walked over from its start."""

    def __iter__(self) -> Iterator[CutNote]:
        raise AssertionError("a page needs only its own notes")


@virtual
async def test_page_of_notes_costs_only_its_own_notes() -> None:
    async with testing.open_ring(1) as ring:
        cuts = ring[0]._cuts
        ring[0]._cut_number.see(1)
        cuts._notes = Unwalkable(CutNote(b"%05d" % number, b"v") for number in range(NOTES_MAX + 2))
        first = cuts.on_get_cut_notes(GetCutNotes(1))
        assert (len(first.notes), first.more_after) == (NOTES_MAX, b"%05d" % (NOTES_MAX - 1))
        second = cuts.on_get_cut_notes(GetCutNotes(1, first.more_after))
        assert ([note.name for note in second.notes], second.more_after) == ([b"04096", b"04097"], None)
        assert cuts.on_get_cut_notes(GetCutNotes(1, LAST_NAME)).notes == ()


# -- merging ------------------------------------------------------------------------------------------


CIRCLE = Circle(32)
ONE, TWO = b"1" * 16, b"2" * 16


def cut_of(*records: Record, reaped: tuple[tuple[bytes, bytes, int], ...] = ()) -> _NodeCut:
    """Return the cut of a node that has read everything, and that has reaped some writes: key, actor, count."""
    cut = _NodeCut("n:1", CIRCLE)
    for key, actor, count in reaped:
        dead = wrote(key, actor, None, count)
        cut.storage.apply(Batch([dead]))
        cut.storage.apply(cut.log.bury([Grave(dead, {actor: count})]))
    cut.ahead.extend(sorted(records, key=lambda record: (CIRCLE.hash(record.key), record.key)))
    cut.has_notes = cut.is_over = True
    return cut


def merged(*cuts: _NodeCut) -> dict[bytes, list[bytes | None]]:
    scan = CutScan(None, CIRCLE, 1, (), {})  # type: ignore[arg-type]
    scan._parts = list(cuts)
    return {record.key: values(record) for record in scan._merged_ahead()}


def wrote(key: bytes, actor: bytes, value: bytes | None, count: int = 1) -> Record:
    return Record(key, (ActorClock(actor, count, (Version(value, value or bytes(16), 1),)),))


def test_copies_are_merged_by_version() -> None:
    newer = Record(b"k", (ActorClock(ONE, 2, (Version(b"new", b"n" * 16, 1),)),))
    found = merged(cut_of(wrote(b"k", ONE, b"old"), wrote(b"a", ONE, b"x")), cut_of(newer, wrote(b"b", TWO, b"y")))
    assert found == {b"k": [b"new"], b"a": [b"x"], b"b": [b"y"]}


def test_stale_copy_of_a_reaped_record_is_left_out() -> None:
    """A copy on a former member. Its store has not seen the log entry of another store."""
    old = wrote(b"k", ONE, b"old")
    assert merged(cut_of(reaped=((b"k", ONE, 2),)), cut_of(old)) == {}
    assert merged(cut_of(old), cut_of(reaped=((b"other", ONE, 2),))) == {b"k": [b"old"]}
    again = wrote(b"k", TWO, b"new")
    assert merged(cut_of(again, reaped=((b"k", ONE, 2),)), cut_of(old)) == {b"k": [b"new"]}
