"""The aggregator and a ring in memory: states as the nodes report them, and deaths in time."""

from __future__ import annotations

from typing import cast

import trio

import chord
from chord import testing
from chord.errors import OtherRing
from chord.events import Emitted, PeerChanged
from chord.observe.model import PARTS, RingModel
from chord.web.aggregator import Aggregator
from chord.web.watch import watch
from tests.support.rings import virtual

VISIBLE_WITHIN_S = 1.0


@virtual
async def test_watcher_sees_the_ring_and_a_death_in_time() -> None:
    verdicts: list[float] = []

    def note(emitted: Emitted) -> None:
        if isinstance(emitted.event, PeerChanged) and emitted.event.state == "dead":
            verdicts.append(trio.current_time())

    async with testing.open_ring(4, seed=1, observe=note) as ring:
        network = cast(testing.MemoryNetwork, ring.network)
        async with (
            chord.open_client(ring[0].address, transport=network.transport("client")) as client,
            trio.open_nursery() as nursery,
        ):
            aggregator = Aggregator([ring[0].address], trio.current_time())
            nursery.start_soon(watch, aggregator, client)
            await trio.sleep(5)
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
            nursery.cancel_scope.cancel()


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
