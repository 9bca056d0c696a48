"""Scenarios in which a dashboard shows a wrong state, or an old state as a new one."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, cast

import msgspec
import trio
import trio.testing

import chord
from chord import testing
from chord.observe.model import RingChange, RingModel, RingShape
from chord.sim.observer import Violated
from chord.views.dashboard import Moment, ring_state_json
from chord.web.aggregator import Aggregator
from chord.web.hub import EventHub, EventReader
from chord.web.source import LiveRing
from chord.web.watch import watch
from tests.support.statuses import statuses
from tests.support.web import NOW_MS, messages_in

NODES = 5
WARM_S, AFTER_S = 3.0, 4.0
BITS, VNODES, PARTS_MAX = 16, 300, 1024


def dashboard_sees_a_death(seed: int) -> None:
    """A page follows a ring. A node dies, and the page must have the state of the aggregator, with its true age."""

    async def scene() -> None:
        rng = random.Random(seed)
        async with testing.open_ring(NODES, seed=seed) as ring:
            network = cast(testing.MemoryNetwork, ring.network)
            async with (
                chord.open_client(ring[0].address, transport=network.transport("client")) as client,
                trio.open_nursery() as nursery,
            ):
                origin = LiveRing(Aggregator([ring[0].address], trio.current_time()), trio.current_time, NOW_MS)
                hub, page = EventHub(origin), RingModel()
                nursery.start_soon(_follow, hub.join(), page)
                nursery.start_soon(watch, origin.aggregator, client)
                nursery.start_soon(hub.run)
                await trio.sleep(WARM_S)
                dead = rng.choice(ring.nodes[1:])
                died_s = trio.current_time()
                await ring.kill(dead)
                await trio.sleep(AFTER_S)
                hub.publish()
                await trio.testing.wait_all_tasks_blocked()
                now_s = trio.current_time()
                if (page.nodes, page.vnodes) != (origin.aggregator.model.nodes, origin.aggregator.model.vnodes):
                    raise Violated(f"seed {seed} at {now_s} s: PlayedState: the page has another state")
                if origin.at().seen_ms[dead.address] > origin.to_ms(died_s):
                    raise Violated(f"seed {seed} at {now_s} s: TrueAge: the dead {dead.address} seems to answer")
                nursery.cancel_scope.cancel()

    testing.run(scene, seed=seed)


def large_ring_is_counted(seed: int) -> None:
    """The server counts the vnodes of a large ring in parts of the circle. Each vnode must be in its part."""
    rng = random.Random(seed)
    ids = tuple(rng.sample(range(1 << BITS), VNODES))
    model = RingModel()
    for status in statuses(ids, bits=BITS, addresses={point: f"n{point}:1" for point in ids}):
        model.describe(status)
    count = rng.randint(2, PARTS_MAX)
    expected = Counter(point * count >> BITS for point in ids)
    parts = ring_state_json(model, RingShape(BITS, 8, 1), Moment(0, 0, "live"), {}, bins=count)["bins"]
    for number, part in enumerate(parts):
        if part["vnodes"] != expected[number]:
            raise Violated(f"seed {seed} at 0 s: WholeParts: part {number} lacks a vnode, or has one too many")


async def _follow(reader: EventReader, page: RingModel) -> None:
    async for text in reader.messages:
        for name, _, content in messages_in(text):
            if name in ("state", "delta"):
                page.apply(_change(content))


def _change(content: dict[str, Any]) -> RingChange:
    return msgspec.convert({k: v for k, v in content.items() if k in ("nodes", "vnodes", "gone")}, RingChange)
