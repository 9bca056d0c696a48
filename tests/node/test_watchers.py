"""Watchers: the events of a node, with numbers and times, and the limits on readers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio

import chord
from chord import testing
from chord.config import Limits
from chord.errors import ConfigError, Overloaded
from chord.events import Emitted, Event, HandlerFailed, NodeStateChanged, SplitFound, StepDone, TransferEnded
from chord.ids import Arc, Circle, Contact, Point
from chord.observe.event_log import EventLog, event_info
from chord.observe.metrics import Histogram
from chord.observe.sampler import HotKeys, Sampler
from chord.wire.messages import (
    LIST_ENTRIES_MAX,
    PURPOSES,
    REQUESTS,
    STATUS_PARTS,
    Density,
    Describe,
    GetEvents,
    GetEventsReply,
    GetMetrics,
    Request,
    Sample,
)
from tests.support.rings import virtual


def a_log(events_max: int = 4) -> tuple[EventLog, list[Emitted]]:
    seen: list[Emitted] = []
    log = EventLog(events_max, lambda: 2.5, lambda: 7000, seen.append)
    log.address = "n0:1"
    return log, seen


@asynccontextmanager
async def watched(n: int, **options: Any) -> AsyncIterator[tuple[testing.TestRing, chord.AsyncClient]]:
    """Run a ring with a client of its first node."""
    async with testing.open_ring(n, seed=1, **options) as ring:
        network = cast(testing.MemoryNetwork, ring.network)
        async with chord.open_client(ring[0].address, transport=network.transport("client")) as client:
            yield ring, client


# -- the log -------------------------------------------------------------------------------------


def test_event_has_time_number_and_node() -> None:
    log, seen = a_log()
    happened: list[Event] = [StepDone(Point(1), "stabilize"), NodeStateChanged("ready", "n0:1")]
    for event in (*happened, happened[0]):
        log.emit(event)
    assert [(e.seq, e.mono_ms, e.wall_ms, e.node) for e in seen] == [(i, 2500, 7000, "n0:1") for i in (0, 1, 1)]
    assert log.after(0, 9) == ([seen[1]], 0), "the log keeps no StepDone"


@pytest.mark.parametrize(
    ("after", "numbers", "dropped"),
    [
        (0, [3, 4, 5, 6], 2), (1, [3, 4, 5, 6], 1), (2, [3, 4, 5, 6], 0),
        (4, [5, 6], 0), (6, [], 0), (7, [3, 4, 5, 6], 2),
    ],
)
def test_log_reports_dropped_events(after: int, numbers: list[int], dropped: int) -> None:
    log, _ = a_log(4)
    for _ in range(6):
        log.emit(NodeStateChanged("ready", "n0:1"))
    found, lost = log.after(after, 9)
    assert ([e.seq for e in found], lost) == (numbers, dropped)
    assert [e.seq for e in log.after(after, 2)[0]] == numbers[:2]


def test_fields_of_an_event_are_plain_and_bounded() -> None:
    a, b = Contact(Point(1 << 150), "a:1"), Contact(Point(2), "b:1")
    log, seen = a_log()
    log.emit(SplitFound(Point(9), a, b, a))
    log.emit(TransferEnded(Point(9), Arc(Point(1), Point(2)), b, 5, "moved"))
    log.emit(HandlerFailed("Get", "\udcff" + "x" * 5000))
    split, ended, failed = map(event_info, seen)
    assert (split.vnode, split.kind) == (9, "SplitFound")
    assert dict(split.fields) == {
        "asked_id": str(1 << 150), "asked_address": "a:1", "predecessor_id": "2", "predecessor_address": "b:1",
        "successor_id": str(1 << 150), "successor_address": "a:1",
    }  # fmt: skip
    assert dict(ended.fields) == {
        "arc_start": "1", "arc_end": "2", "to_id": "2", "to_address": "b:1", "records": 5, "outcome": "moved"
    }  # fmt: skip
    assert failed.vnode is None
    assert dict(failed.fields) == {"where": "Get", "traceback": "?" + "x" * 1023}


# -- descriptions -------------------------------------------------------------------------------


@virtual
async def test_description_has_only_the_parts_asked_for() -> None:
    async with watched(3) as (ring, client):
        whole = (await client.watch(Describe())).status
        assert whole is not None
        found = {name for name in STATUS_PARTS if getattr(whole, name, ())}
        assert found == set(STATUS_PARTS) - {"fingers", "transfers"}
        assert whole.vnodes[0].fingers
        for part in STATUS_PARTS:
            reply = await client.watch(Describe((part,)))
            assert reply.status is not None
            assert reply.now_ms == reply.status.wall_ms
            filled = {name for name in STATUS_PARTS if getattr(reply.status, name, ())}
            assert filled <= {part}
            assert not any(vnode.fingers for vnode in reply.status.vnodes)
        both = (await client.watch(Describe(("vnodes", "fingers")), ring[1].address)).status
        assert both is not None
        assert both.vnodes[0].fingers


@virtual
async def test_unchanged_description_is_short_until_a_change() -> None:
    parts: tuple[chord.wire.messages.StatusPart, ...] = ("vnodes", "fingers", "peers", "sets", "transfers", "known")
    async with watched(3) as (ring, client):
        await trio.sleep(10)
        before = await client.watch(Describe(parts))
        await trio.sleep(5)
        after = await client.watch(Describe(parts, before.version))
        assert (after.version, after.status) == (before.version, None)
        assert after.now_ms > before.now_ms
        await ring.kill(ring[2])
        await trio.sleep(5)
        changed = await client.watch(Describe(parts, before.version))
        assert changed.version != before.version
        assert changed.status is not None
        (dead,) = (peer for peer in changed.status.peers if peer.state != "alive")
        assert dead.reason
        assert dead.misses


@virtual
async def test_lists_that_are_cut_are_named() -> None:
    async with testing.open_ring(1, seed=1) as ring:
        node = ring[0]
        assert (await node.status()).cut == ()
        for i in range(LIST_ENTRIES_MAX + 1):
            node._host.peers.failure_detector.heard_from(f"n{i}:1", trio.current_time())
        status = await node.status()
        assert (status.cut, len(status.peers)) == (("peers",), LIST_ENTRIES_MAX)
        assert (await node.watch(Describe(("known",)))).status.cut == ()  # type: ignore[union-attr]


@virtual
async def test_names_of_peers_outlive_them() -> None:
    async with testing.open_ring(3, seed=1) as ring:
        gone = ring[2]
        await ring.kill(gone)
        await trio.sleep(5)
        for node in ring.nodes:
            (peer,) = (p for p in (await node.status()).peers if p.address == gone.address)
            assert (peer.name, peer.state != "alive") == (gone.name, True)


# -- metrics ------------------------------------------------------------------------------------


def test_values_fall_into_buckets_by_their_bounds() -> None:
    histogram, other = Histogram((1.0, 2.0)), Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5):
        histogram.note(value)
    assert histogram.counts == [2, 1]
    other.note(7.0)
    histogram.add(other)
    info = histogram.info("rpc", "client")
    assert (info.counts, info.total) == ((2, 1, 1), 9.5)
    assert Histogram().info("commit").counts == (0,) * 17


@virtual
async def test_metrics_count_operations_hops_and_traffic() -> None:
    async with watched(4) as (ring, client):
        for i in range(6):
            await client.put(f"key {i}", b"v" * 1000)
            await client.lookup(f"key {i}")
        every = {node.address: await client.watch(GetMetrics(), node.address) for node in ring.nodes}
        for metrics in every.values():
            kinds = {(h.name, h.label): sum(h.counts) for h in metrics.histograms}
            traffic = {t.purpose: t for t in metrics.traffic}
            assert kinds["loop_lag", ""]
            assert kinds["rpc", "upkeep"]
            assert kinds["rpc", "upkeep"] <= traffic["upkeep"].calls_sent
            assert traffic["watch"].calls_received
            lengths = {len(h.counts) for h in metrics.histograms if h.name == "rpc"}
            assert lengths == {len(metrics.duration_bounds_s) + 1}
        totals = Counter({(h.name, h.label): sum(h.counts) for m in every.values() for h in m.histograms})
        client_bytes = sum(t.bytes_received for m in every.values() for t in m.traffic if t.purpose == "client")
        assert client_bytes > 6 * 1000
        entry = {(h.name, h.label): sum(h.counts) for h in every[ring[0].address].histograms}
        assert entry["operation", "Lookup"] == 6
        assert entry["lookup_hops", "classic"] >= 6
        assert totals["operation", "Put"]
        for node in ring.nodes:
            stats, meters = node._calls.stats, node._calls.meters
            assert sum(t.bytes_sent for t in meters.traffic()) <= stats.bytes_sent


@virtual
async def test_latency_of_a_put_is_in_its_bucket() -> None:
    network = testing.MemoryNetwork(1)
    async with testing.open_ring(3, seed=1, network=network) as ring:
        network.set_delay(lambda rng, source, target: 0.03)
        async with chord.open_client(ring[0].address, transport=network.transport("client")) as client:
            for i in range(4):
                await client.put(f"key {i}", b"v")
            metrics = [await client.watch(GetMetrics(), node.address) for node in ring.nodes]
        put = [h for m in metrics for h in m.histograms if (h.name, h.label) == ("operation", "Put")]
        assert sum(sum(h.counts) for h in put) >= 4
        assert sum(h.total for h in put) / sum(sum(h.counts) for h in put) >= 0.05


@pytest.mark.parametrize("request_type", REQUESTS)
def test_request_belongs_to_a_class(request_type: type[Request]) -> None:
    assert request_type.purpose in PURPOSES
    name = request_type.__name__
    assert (request_type.purpose == "watch") == (issubclass(request_type, chord.WatchRequest) or name == "GetStatus")


# -- samples ------------------------------------------------------------------------------------


def test_frequent_keys_are_counted_within_their_errors() -> None:
    rng, truth, hot = random.Random(1), Counter[bytes](), HotKeys(16)
    for _ in range(5000):
        key = b"%d" % int(rng.paretovariate(1.0))
        truth[key] += 1
        hot.note(key)
    found = hot.top(16)
    assert [one.count for one in found] == sorted((one.count for one in found), reverse=True)
    for one in found:
        assert one.count - one.error <= truth[one.key] <= one.count
    assert {key for key, count in truth.items() if count > 5000 / 16} <= {one.key for one in found}
    assert sum(one.count for one in found) == 5000
    assert [one.key for one in found[:3]] == [b"1", b"2", b"3"]


def test_bins_divide_the_circle_evenly() -> None:
    sampler = Sampler(Circle(10), 0.0)
    for point in (0, 3, 4, 1023):
        sampler.note(b"k", Point(point))
    assert (sampler.bins[0], sampler.bins[1], sampler.bins[255], sum(sampler.bins)) == (2, 1, 1, 4)
    toy = Sampler(Circle(3), 0.0)
    toy.note(b"k", Point(7))
    assert toy.bins[224] == 1


@virtual
async def test_sampling_ends_by_itself() -> None:
    async with watched(1) as (ring, client):
        node = ring[0]
        await client.get("early", None)
        first = await client.watch(Sample(5))
        assert (first.since_ms, sum(first.bins), first.hot) == (0, 0, ())
        for _ in range(3):
            await client.put("hot", b"v")
        await client.get("cold", None)
        second = await client.watch(Sample(5, restart=True))
        assert [(one.key, one.count, one.error) for one in second.hot] == [(b"hot", 3, 0), (b"cold", 1, 0)]
        point = node.config.ring.circle.hash(b"hot")
        assert (second.bins[point * 256 >> 160], sum(second.bins)) == (3, 4)
        assert sum((await client.watch(Sample(5))).bins) == 0
        assert node._host.sampler is not None
        await trio.sleep(5.5)
        assert node._host.sampler is None


@virtual
async def test_lookups_emit_events_only_while_sampled() -> None:
    async with watched(4) as (ring, client):
        log = ring[0]._host.events
        await client.lookup("a")
        assert "LookupDone" not in {type(e.event).__name__ for e in log.after(0, 999)[0]}
        await client.watch(Sample(5))
        after = log.latest
        traces = [await client.lookup(f"key {i}") for i in range(20)]
        events = [e for e in (await client.watch(GetEvents(after))).events if e.kind == "LookupDone"]
        assert 0 < len(events) < len(traces), "they are sampled"
        fields = dict(events[0].fields)
        assert (fields["key"], fields["owner_id"]) == (str(int(traces[0].key)), str(int(traces[0].owner.id)))
        assert (fields["hops"], fields["route"]) == (traces[0].path_length, "classic")


# -- densities ----------------------------------------------------------------------------------


@virtual
async def test_density_counts_the_records_in_parts_of_an_arc() -> None:
    async with watched(1) as (ring, client):
        circle = ring[0].config.ring.circle
        for i in range(40):
            await client.put(f"key {i}", b"v")
        points = [circle.hash(b"key %d" % i) for i in range(40)]
        whole = await client.watch(Density(Point(0), Point(0), 16))
        expected = Counter((point - 1) * 16 >> 160 for point in points)
        assert whole.counts == tuple(expected[i] for i in range(16))
        assert (await client.watch(Density(Point(9), Point(9), 1))).counts == (40,)
        part = Arc(Point(3 << 158), Point(1 << 158))  # half of the circle, around point 0
        half = await client.watch(Density(*part, 8))
        assert sum(half.counts) == sum(point in part for point in points)


@virtual
async def test_density_of_a_tiny_arc_has_empty_parts() -> None:
    async with watched(1, bits=8) as (ring, client):
        for i in range(30):
            await client.put(f"key {i}", b"v")
        start, end = Point(10), Point(13)
        reply = await client.watch(Density(start, end, 8))
        assert len(reply.counts) == 8
        assert sum(reply.counts) == ring[0]._host.storage.count(Arc(start, end))


# -- readers --------------------------------------------------------------------------------------


@virtual
async def test_reader_gets_each_event_of_a_node_once() -> None:
    seen: list[Emitted] = []
    async with watched(3, observe=seen.append) as (ring, client):
        got: list[chord.EventInfo] = []
        while (reply := await client.watch(GetEvents(len(got), 0, 5), ring[0].address)).events:
            got += reply.events
            assert reply.dropped == 0
        assert reply.began_ms <= reply.now_ms
        mine = [e for e in seen if e.node == ring[0].address and not isinstance(e.event, StepDone)]
        assert [e.seq for e in got] == list(range(1, len(got) + 1))
        assert [(e.seq, e.kind, e.node) for e in got][-len(mine) :] == [
            (e.seq, type(e.event).__name__, e.node) for e in mine
        ]


@virtual
async def test_poll_ends_with_the_next_event_or_in_time() -> None:
    async with watched(1) as (ring, client):
        node = ring[0]
        latest = node._host.events.latest
        began = trio.current_time()
        reply = await client.watch(GetEvents(latest, 3000))
        assert not reply.events
        assert trio.current_time() - began == pytest.approx(3, abs=0.1)
        replies: list[GetEventsReply] = []

        async def poll() -> None:
            replies.append(await client.watch(GetEvents(reply.latest, 4000)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            await trio.sleep(1)
            node._host.events.emit(NodeStateChanged("ready", node.address))
        assert [e.kind for e in replies[0].events] == ["NodeStateChanged"]
        assert not node._watchers.polls


@virtual
async def test_poll_of_a_lost_reader_leaves_no_task() -> None:
    async with testing.open_ring(1, seed=1) as ring:
        node = ring[0]
        transport = cast(testing.MemoryNetwork, ring.network).transport("client")
        async with chord.open_client(node.address, transport=transport) as client, trio.open_nursery() as nursery:
            nursery.start_soon(client.watch, GetEvents(node._host.events.latest + 1, 30_000))
            nursery.start_soon(client.watch, GetEvents(node._host.events.latest, 30_000))
            await trio.sleep(0.5)
            assert len(node._watchers.polls) == 1
            nursery.cancel_scope.cancel()
        await trio.sleep(0.5)
        assert not node._watchers.polls
        assert not node._host.events._waiting


@virtual
async def test_polls_beyond_the_limit_are_refused() -> None:
    async with watched(1, limits=Limits(polls_max=2)) as (ring, client):
        node = ring[0]
        after = node._host.events.latest
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(client.watch, GetEvents(after, 2000))
            await trio.sleep(0.5)
            with pytest.raises(Overloaded), trio.move_on_after(1):
                await client.watch(GetEvents(after, 2000))
            assert not (await client.watch(GetEvents(after, 0))).events, "a request that does not wait is answered"


@virtual
async def test_stopping_node_answers_the_polls_at_once() -> None:
    async with watched(1) as (ring, client):
        node = ring[0]

        async def poll() -> None:
            await client.watch(GetEvents(node._host.events.latest, 30_000))

        client.timeout_s = 60
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            await trio.sleep(0.5)
            began = trio.current_time()
            await node.stop()
        assert trio.current_time() - began < node.config.timing.drain_s


@virtual
async def test_watch_of_a_wrong_address_is_refused() -> None:
    async with watched(1) as (_, client):
        with pytest.raises(ConfigError):
            await client.watch(GetEvents(), "nonsense")
