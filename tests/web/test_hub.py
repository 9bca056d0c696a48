"""The event stream: what readers get, and what becomes of a reader that does not keep up."""

from __future__ import annotations

from typing import Any

import msgspec
import trio
import trio.testing

from chord.observe.model import RingChange, RingModel
from chord.web.hub import QUEUE_MAX, EventHub, merged
from chord.web.source import LiveRing
from tests.support.statuses import statuses
from tests.support.web import NOW_MS, Ring, app_of, events_of, messages_in

LATE = "127.0.0.1:9002"


def played(messages: list[tuple[str, str | None, Any]]) -> RingModel:
    """Return the state after some messages."""
    model = RingModel()
    for name, _, content in messages:
        if name == "state":
            model = RingModel()
        if name in ("state", "delta"):
            kept = {part: content[part] for part in ("nodes", "vnodes", "gone") if part in content}
            model.apply(msgspec.convert(kept, RingChange))
    return model


def taken(hub: EventHub, reader: Any) -> list[tuple[str, str | None, Any]]:
    found = []
    while reader.messages.statistics().current_buffer_used:
        found += messages_in(reader.messages.receive_nowait())
    return found


def changed(origin: LiveRing, at_s: float, **nodes: dict[str, Any]) -> None:
    """Change fields of nodes, by their names."""
    change = RingChange({f"127.0.0.1:{9000 + int(name[1:])}": fields for name, fields in nodes.items()})
    origin.aggregator.model.apply(change)
    origin.aggregator.history.change(at_s, change)


async def test_stream_begins_with_hello_state_and_check() -> None:
    ring = Ring(statuses())
    found = await events_of(app_of(ring.origin), 3)
    assert [name for name, _, _ in found] == ["hello", "state", "check"]
    hello, state = found[0][2], found[1][2]
    assert (hello["ring"], hello["source"]) == ({"bits": 8, "r": 8, "N": 1, "W": 1}, "live")
    assert (hello["write"], hello["demo"]) == (False, False)
    assert played(found).nodes == ring.origin.aggregator.model.nodes
    assert found[1][1] == str(state["seq"]) == str(ring.origin.aggregator.history.latest)


async def test_fault_is_sent_once_and_again_to_a_returning_reader() -> None:
    ring = Ring(statuses())
    hub = EventHub(ring.origin)
    reader, before = hub.join(), ring.origin.aggregator.history.latest
    taken(hub, reader)
    ring.origin.aggregator.history.add(100.5, "f", {"do": "partition", "groups": [["n0"], ["n1", "n2"]]})
    hub.publish()
    hub.publish()
    fault = {"at_ms": NOW_MS + 500, "do": "partition", "groups": [["n0"], ["n1", "n2"]]}
    assert [content for name, _, content in taken(hub, reader) if name != "check"] == [fault]
    again = [content for name, _, content in taken(hub, hub.join(before)) if name == "fault"]
    assert again == [fault]


async def test_deltas_of_a_quarter_second_are_merged() -> None:
    ring = Ring(statuses())
    hub = EventHub(ring.origin)
    reader = hub.join()
    changed(ring.origin, 100.1, n1={"keys": 5}, n2={"hints": 2})
    changed(ring.origin, 100.2, n1={"keys": 6})
    hub.publish()
    found = taken(hub, reader)
    deltas = [content for name, _, content in found if name == "delta"]
    assert len(deltas) == 1
    assert deltas[0]["nodes"] == {"127.0.0.1:9001": {"keys": 6}, "127.0.0.1:9002": {"hints": 2}}
    assert played(found).nodes == ring.origin.aggregator.model.nodes


async def test_played_stream_equals_the_state() -> None:
    ring = Ring(statuses())
    hub = EventHub(ring.origin)
    reader = hub.join()
    found = taken(hub, reader)
    for step in range(40):
        changed(ring.origin, 100 + step / 10, **{f"n{step % 2}": {"keys": step, "hints": step % 3}})
        model = ring.origin.aggregator.model
        if step % 4 == 0:
            change = model.describe(statuses()[2]) if step % 8 else model.remove(LATE)
            ring.origin.aggregator.history.change(100 + step / 10, change)
        if step % 3 == 0:
            hub.publish()
            found += taken(hub, reader)
    hub.publish()
    found += taken(hub, reader)
    assert played(found).nodes == ring.origin.aggregator.model.nodes
    assert played(found).vnodes == ring.origin.aggregator.model.vnodes


async def test_reader_resumes_after_its_last_message() -> None:
    ring = Ring(statuses())
    app = app_of(ring.origin)
    (_, (_, last, _), *_) = first = await events_of(app, 3)
    changed(ring.origin, 101.0, n1={"keys": 5})
    resumed = await events_of(app, 2, last_event_id=str(last))
    assert [name for name, _, _ in resumed] == ["hello", "delta"]
    assert played([*first, *resumed]).nodes == ring.origin.aggregator.model.nodes
    lost = await events_of(app, 4, last_event_id="999999")
    assert [name for name, _, _ in lost] == ["hello", "reset", "state", "check"]


async def test_events_have_text_and_references() -> None:
    ring = Ring(statuses())
    hub = EventHub(ring.origin)
    reader = hub.join()
    taken(hub, reader)
    fields = {"address": LATE, "state": "dead", "reason": "refused"}
    event = {"seq": 3, "node": "127.0.0.1:9000", "kind": "PeerChanged", "fields": fields, "age_ms": 50}
    ring.origin.aggregator.history.add(100.5, "e", event)
    hub.publish()
    ((name, number, content), *_) = taken(hub, reader)
    assert (name, number) == ("event", str(ring.origin.aggregator.history.latest))
    assert content["text"] == "n0 takes n2 for dead"
    assert content["refs"] == {"nodes": ["127.0.0.1:9000", LATE], "vnodes": []}
    assert content["at_ms"] == ring.origin.to_ms(100.5) - 50


async def test_reader_with_a_full_queue_is_disconnected() -> None:
    ring = Ring(statuses())
    hub = EventHub(ring.origin)
    stalled, reading = hub.join(), hub.join()
    for step in range(QUEUE_MAX):
        changed(ring.origin, 101.0 + step, n1={"keys": 1000 + step})
        hub.publish()
        taken(hub, reading)
    assert stalled.scope.cancel_called
    assert not reading.scope.cancel_called
    assert (hub.readers, hub.dropped) == ({reading}, 1)


async def test_stalled_stream_ends_without_a_task() -> None:
    ring = Ring(statuses())
    hub = EventHub(ring.origin)
    app = app_of(ring.origin, hub)
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(events_of, app, 1_000_000, True)
        await trio.testing.wait_all_tasks_blocked()
        assert len(hub.readers) == 10
        for step in range(QUEUE_MAX + 1):
            changed(ring.origin, 101.0 + step, n1={"keys": 1000 + step})
            hub.publish()
    assert (hub.readers, hub.dropped) == (set(), 10)


def test_merged_changes_have_the_effect_of_all() -> None:
    first = RingChange({"a": {"x": 1, "y": 1}}, {"1": {"p": 1}})
    second = RingChange({"a": {"x": 2}}, {}, ("1", "b"))
    third = RingChange({"b": {"x": 3}}, {})
    one, each = RingModel(), RingModel()
    for model in (one, each):
        model.apply(RingChange({"b": {"old": 1}}, {"1": {"q": 1}}))
    one.apply(merged([first, second, third]))
    for change in (first, second, third):
        each.apply(change)
    assert (one.nodes, one.vnodes) == (each.nodes, each.vnodes)
