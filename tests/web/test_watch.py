"""The aggregator and a ring in memory: states as the nodes report them, and deaths in time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import cast

import pytest
import trio
from msgspec.structs import replace

import chord
from chord import testing
from chord.errors import OtherRing
from chord.events import Emitted, PeerChanged
from chord.observe.model import PARTS, RingModel
from chord.web import watch as module
from chord.web.aggregator import Aggregator
from chord.web.heat import KEPT_S, RequestSamples
from chord.web.phrases import phrase
from chord.web.source import LiveRing
from chord.web.validation import metrics_fault, sample_fault
from chord.web.watch import watch, watch_ring
from chord.wire.messages import (
    PURPOSES,
    SAMPLE_BINS,
    DescribeReply,
    EventInfo,
    GetEvents,
    GetEventsReply,
    GetMetricsReply,
    HistogramInfo,
    SampleReply,
    TrafficInfo,
)
from tests.support.rings import virtual
from tests.support.statuses import statuses

VISIBLE_WITHIN_S = 1.0


@asynccontextmanager
async def watched() -> AsyncIterator[tuple[testing.TestRing, Aggregator, list[float]]]:
    """Watch a ring of four. Yield it, its watcher, and the times at which a node took a peer for dead."""
    dead_at: list[float] = []

    def note(emitted: Emitted) -> None:
        if isinstance(emitted.event, PeerChanged) and emitted.event.state == "dead":
            dead_at.append(trio.current_time())

    async with testing.open_ring(4, seed=1, observe=note) as ring:
        network = cast(testing.MemoryNetwork, ring.network)
        async with (
            chord.open_client(ring[0].address, transport=network.transport("client")) as client,
            trio.open_nursery() as nursery,
        ):
            aggregator = Aggregator([ring[0].address], trio.current_time())
            nursery.start_soon(watch, aggregator, client)
            await trio.sleep(5)
            yield ring, aggregator, dead_at
            nursery.cancel_scope.cancel()


@virtual
async def test_watcher_sees_the_ring_and_a_death_in_time() -> None:
    async with watched() as (ring, aggregator, verdicts):
        exact = RingModel()
        for node in ring.nodes:
            exact.describe(node._local_status(PARTS))
        assert aggregator.model.nodes.keys() == exact.nodes.keys()
        pointers = {p: (v["predecessor"], v["successors"], v["arcs"]) for p, v in exact.vnodes.items()}
        assert pointers == {
            p: (v["predecessor"], v["successors"], v["arcs"]) for p, v in aggregator.model.vnodes.items()
        }
        dead = ring[2]
        await ring.kill(dead)
        while not any(dead.address in node["suspects"] for node in aggregator.model.nodes.values()):
            await trio.sleep(0.01)
        assert trio.current_time() - verdicts[0] <= VISIBLE_WITHIN_S
        with trio.fail_after(10):
            while aggregator.model.nodes[dead.address]["state"] != "unreachable":
                await trio.sleep(0.1)


@virtual
async def test_frozen_node_is_unreachable_soon_after_its_death() -> None:
    async with watched() as (ring, aggregator, dead_at):
        network = cast(testing.MemoryNetwork, ring.network)
        frozen = ring[2].address
        network.freeze(frozen.rpartition(":")[0])
        while frozen not in aggregator.given_up():
            assert aggregator.model.nodes[frozen]["state"] == "ready"
            await trio.sleep(0.01)
        while aggregator.model.nodes[frozen]["state"] != "unreachable":
            await trio.sleep(0.01)
        assert trio.current_time() - dead_at[0] <= VISIBLE_WITHIN_S
        network.unfreeze(frozen.rpartition(":")[0])
        with trio.fail_after(30):
            while aggregator.model.nodes[frozen]["state"] != "ready":
                await trio.sleep(0.1)


@pytest.mark.parametrize(("state", "counts"), [
    ("ready", True), ("leaving", True), ("unreachable", False), ("dead", False), ("left", False), ("stopped", False),
])  # fmt: skip
def test_verdict_of_a_node_counts_only_while_it_lives(state: str, counts: bool) -> None:
    aggregator = Aggregator(["a:1"], 0.0)
    suspects = {"b:1": {"state": "dead"}, "c:1": {"state": "suspect"}}
    aggregator.model.nodes["a:1"] = {"state": state, "suspects": suspects}
    assert aggregator.given_up() == ({"b:1"} if counts else set())


@virtual
async def test_search_for_given_up_nodes_is_rare() -> None:
    searches: list[float] = []

    class ClientOfASlowNode(ClientOfStatuses):
        async def watch(self, request: object, address: str) -> object:
            if address == SLOW and not isinstance(request, GetEvents):
                await trio.sleep_forever()
            await trio.sleep(0.001)
            return DescribeReply(b"1", 0, KNOWN[address]) if not isinstance(request, GetEvents) else NO_EVENTS

    def noted(self: Aggregator) -> set[str]:
        searches.append(trio.current_time())
        return set()

    aggregator = Aggregator([FIRST], trio.current_time())
    with pytest.MonkeyPatch.context() as patch, trio.move_on_after(20):
        patch.setattr(Aggregator, "given_up", noted)
        await watch(aggregator, cast(chord.AsyncClient, ClientOfASlowNode()))
    pauses = [later - earlier for earlier, later in pairwise(searches)]
    assert min(pauses) >= module.GIVE_UP_S - 1e-9
    assert max(pauses) <= module.GIVE_UP_S + 1e-9


class ClientOfAFormerRing:
    """A client of nodes that belong to another ring now."""

    async def watch(self, request: object, address: str) -> None:
        await trio.sleep(0.001)
        raise OtherRing("a:1 belongs to another ring")


@virtual
async def test_watcher_ends_when_another_ring_answers() -> None:
    aggregator = Aggregator(["a:1"], trio.current_time())
    with trio.fail_after(60):
        await watch(aggregator, cast(chord.AsyncClient, ClientOfAFormerRing()))
    assert aggregator.is_lost


class ClientOfStatuses:
    """A client of nodes with the same statuses for ever, and without events."""

    async def watch(self, request: object, address: str) -> object:
        if isinstance(request, GetEvents):
            await trio.sleep(4)
            return NO_EVENTS
        await trio.sleep(0.001)
        return DescribeReply(b"1", 0, KNOWN[address])


class SlowClientOfAFormerRing:
    """A client of nodes that belong to another ring now. One of them takes long to say so."""

    async def watch(self, request: object, address: str) -> None:
        await trio.sleep(60 if address == SLOW else 0.001)
        raise OtherRing(f"{address} belongs to another ring")


NO_EVENTS = GetEventsReply((), 0, 0, 1, 5, 5)
KNOWN = {status.address: status for status in statuses()}
FIRST, SLOW, *_ = KNOWN


@virtual
async def test_polls_under_way_begin_again_with_the_next_client() -> None:
    aggregator = Aggregator([FIRST], trio.current_time())
    first, second = (cast(chord.AsyncClient, client()) for client in (ClientOfStatuses, SlowClientOfAFormerRing))
    with trio.move_on_after(2):
        await watch(aggregator, first)
    aggregator.model.nodes.clear()
    with trio.move_on_after(30):
        await watch(aggregator, second)
    with trio.move_on_after(10):
        await watch(aggregator, first)
    assert aggregator.model.nodes.keys() == KNOWN.keys()
    assert trio.current_time() - aggregator.oldest_s < 2


@virtual
async def test_odd_replies_are_shown_errors_of_their_node() -> None:
    class ClientOfAnOddNode(ClientOfStatuses):
        async def watch(self, request: object, address: str) -> object:
            reply = await super().watch(request, address)
            if address == SLOW and isinstance(reply, DescribeReply):
                return replace(reply, status=replace(KNOWN[SLOW], bits=4))
            if address == FIRST and isinstance(reply, GetEventsReply):
                events = tuple(EventInfo(n + 1, 5, 5, address, None, kind, fields) for n, (kind, fields) in ODD)
                return replace(reply, events=events)
            return reply

    aggregator = Aggregator([FIRST], trio.current_time())
    with trio.move_on_after(10):
        await watch(aggregator, cast(chord.AsyncClient, ClientOfAnOddNode()))
    assert aggregator.model.nodes.keys() == KNOWN.keys() - {SLOW}
    shown = [one.line.content for one in aggregator.history.since(0) or [] if one.line.letter == "e"]
    texts = [phrase(aggregator.model, event) for event in shown if isinstance(event, dict)]
    assert sorted(texts) == [
        "127.0.0.1:9001 sent an invalid reply: bits is 4; 8 was expected, as other nodes report it",
        "n0 sent an invalid reply: NodeStateChanged has no state",
        "n0 sent an invalid reply: PeerChanged has no state",
        "n0 sent an invalid reply: PredecessorAdopted has the new_id '-3'; a point was expected",
        "n0 sent an invalid reply: PredecessorAdopted has the new_id 256, which is not on a circle of 8 bits",
    ]


ODD: tuple[tuple[int, tuple[str, tuple[tuple[str, str | int], ...]]], ...] = tuple(enumerate((
    ("PeerChanged", (("address", SLOW),)), ("NodeStateChanged", (("state", 5),)),
    ("PredecessorAdopted", (("new_id", "-3"),)), ("PredecessorAdopted", (("new_id", "256"),)),
)))  # fmt: skip


def test_invalid_numbers_are_refused() -> None:
    histogram = HistogramInfo("commit", "", (1, 2), 0.1)
    traffic = tuple(TrafficInfo(purpose, 0, 0, 0, 0) for purpose in PURPOSES)
    metrics = GetMetricsReply(0, 1, (), (), (), traffic, ())
    assert metrics_fault(metrics) == ""
    assert metrics_fault(replace(metrics, histograms=(histogram,))) == "commit has 2 buckets; 17 were expected"
    assert "every class" in metrics_fault(replace(metrics, traffic=traffic[1:]))
    assert sample_fault(SampleReply(0, 0, (0,) * SAMPLE_BINS, ())) == ""
    assert sample_fault(SampleReply(0, 0, (1, 2), ())) == f"the sample has 2 bins; {SAMPLE_BINS} were expected"


@virtual
async def test_watcher_opens_a_new_client_for_a_new_ring() -> None:
    clients: list[object] = [ClientOfAFormerRing(), ClientOfStatuses()]

    @asynccontextmanager
    async def opened(*nodes: str, transport: object) -> AsyncIterator[object]:
        yield clients.pop(0)

    origin = LiveRing(Aggregator([FIRST], trio.current_time()), trio.current_time, 0)
    with pytest.MonkeyPatch.context() as patch, trio.move_on_after(10):
        patch.setattr(module, "open_client", opened)
        await watch_ring(origin, [FIRST])
    assert origin.aggregator.model.nodes.keys() == KNOWN.keys()


def test_samples_of_a_vanished_node_are_dropped() -> None:
    samples, reply = RequestSamples(), SampleReply(0, 1, (0,) * SAMPLE_BINS, ())
    for second in range(300):
        samples.add(float(second), f"n{second}:1", reply)
    assert len(samples._samples) <= KEPT_S + 1
