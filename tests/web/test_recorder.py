"""The recording of a ring in memory: it plays as the ring was, and names no key or value."""

from __future__ import annotations

from typing import Any, cast

import trio

import chord
from chord import testing
from chord.ids import Circle
from chord.observe.chordlog import Chordlog
from chord.observe.model import RingModel
from chord.web.aggregator import Aggregator
from chord.web.hub import EventHub
from chord.web.recorder import RingRecorder
from chord.web.sampling import RingMeter
from chord.web.source import LiveRing, PlayedRing
from chord.web.watch import watch
from tests.support.rings import virtual
from tests.support.web import NOW_MS

SECONDS = 14


async def recordings() -> tuple[bytes, bytes, dict[float, RingModel]]:
    """Record a ring in which a node dies, without keys and with them; return states of the ring by their time, too."""
    parts: dict[bool, list[bytes]] = {False: [], True: []}
    states: dict[float, RingModel] = {}
    async with testing.open_ring(3, seed=1) as ring:
        network = cast(testing.MemoryNetwork, ring.network)
        async with (
            chord.open_client(ring[0].address, transport=network.transport("client")) as client,
            trio.open_nursery() as nursery,
        ):
            origin = LiveRing(Aggregator([ring[0].address], trio.current_time()), trio.current_time, NOW_MS)
            origin.client = client
            hub = EventHub(origin)
            reader = hub.join()
            meter = RingMeter(origin, hub)
            nursery.start_soon(watch, origin.aggregator, client)
            nursery.start_soon(meter.run)
            await trio.sleep(2)
            began_s = trio.current_time()
            for with_keys in (False, True):
                recorder = RingRecorder(origin, meter, parts[with_keys].append, "a test", with_keys=with_keys)
                recorder.take()
                nursery.start_soon(recorder.run)
            for second in range(SECONDS):
                if second == 5:
                    await ring.kill(ring[2])
                await client.put("secret key", b"secret value")
                await trio.sleep(1)
                while reader.messages.statistics().current_buffer_used:
                    reader.messages.receive_nowait()
                model = RingModel()
                model.apply(origin.aggregator.model.keyframe())
                states[trio.current_time() - began_s] = model
            nursery.cancel_scope.cancel()
    return b"".join(parts[False]), b"".join(parts[True]), states


def hot_keys(log: Chordlog) -> list[dict[str, Any]]:
    lines = [line.content for line in log.lines() if line.letter == "m"]
    return [hot for content in lines for hot in cast(dict[str, Any], content).get("hot", ())]


@virtual
async def test_recording_plays_as_the_ring_was_without_keys() -> None:
    content, with_keys, states = await recordings()
    log = Chordlog(content)
    assert log.outcome == "stopped"
    assert len(states) == SECONDS
    for at_s, model in states.items():
        played = log.seek(at_s)
        assert (played.nodes, played.vnodes) == (model.nodes, model.vnodes)
    assert len(list(log.keyframes())) == 2
    assert {line.letter for line in log.lines()} == set("kdecm")
    assert PlayedRing(log).at().moment.source == "recording"
    point = str(int(Circle(160).hash(b"secret key")))
    for text, key in ((content, None), (with_keys, "secret key")):
        hot = hot_keys(Chordlog(text))
        assert hot
        assert {(one.get("key"), one["p"]) for one in hot} == {(key, point)}
        assert b"secret value" not in text
        assert (b"secret key" in text) == (key is not None)
