"""States of a ring from statuses and events, and the changes between them."""

from __future__ import annotations

import random
from typing import Any

from msgspec.structs import replace

from chord.events import (
    Emitted,
    Event,
    HandlerFailed,
    NodeStateChanged,
    PeerChanged,
    PredecessorAdopted,
    RecordUnmerged,
)
from chord.ids import Point
from chord.observe.event_log import event_info
from chord.observe.model import RingChange, RingModel, event_fields
from chord.wire.messages import EventInfo, PeerInfo, Status
from tests.support.statuses import contact, statuses

IDS = (10, 42, 80, 120)
A = "127.0.0.1:9000"


def a_model() -> RingModel:
    model = RingModel()
    for status in statuses(IDS):
        model.describe(status)
    return model


def info(event: Event, node: str = A) -> EventInfo:
    return event_info(Emitted(1, 5, 7, node, event))


def with_peer(status: Status, state: Any) -> Status:
    peer = PeerInfo("127.0.0.1:9002", state, 1.5, 20, "" if state == "alive" else "no answer", 3)
    return replace(status, peers=(peer,))


def test_model_has_every_node_and_vnode() -> None:
    model = a_model()
    assert sorted(model.nodes) == [f"127.0.0.1:900{i}" for i in range(4)]
    assert sorted(map(int, model.vnodes)) == list(IDS)
    vnode = model.vnodes["42"]
    assert (vnode["predecessor"], vnode["successors"], vnode["node"]) == ("10", ["80", "120", "10"], "127.0.0.1:9001")
    assert vnode["arcs"] == [{"start": "10", "end": "42", "epoch": 1, "state": "owned", "peer": "10"}]


def test_same_status_again_is_no_change() -> None:
    model = a_model()
    for status in statuses(IDS):
        later = replace(status, uptime_ms=99_999, wall_ms=5, clock_skew_ms=status.clock_skew_ms + 9)
        assert model.describe(later).size == 0


def test_change_has_only_the_fields_that_differ() -> None:
    model, first = a_model(), statuses(IDS)[0]
    change = model.describe(with_peer(replace(first, keys=77), "suspect"))
    suspects = {"127.0.0.1:9002": {"state": "suspect", "reason": "no answer", "since_ms": 0}}
    assert change == RingChange({A: {"keys": 77, "suspects": suspects}})
    assert model.describe(with_peer(replace(first, keys=77), "alive")) == RingChange({A: {"suspects": {}}})


def test_vnode_that_a_node_no_longer_has_is_gone() -> None:
    model, first = a_model(), statuses(IDS)[0]
    change = model.describe(replace(first, vnodes=()))
    assert (change.gone, list(model.vnodes)) == (("10",), ["42", "80", "120"])


def test_vnode_that_moved_to_another_node_stays() -> None:
    model, (first, second, *_) = a_model(), statuses(IDS)
    moved = replace(first.vnodes[0], contact=replace(first.vnodes[0].contact, address=second.address))
    model.describe(replace(second, vnodes=(*second.vnodes, moved)))
    assert model.describe(replace(first, vnodes=())).gone == ()
    assert model.vnodes["10"]["node"] == second.address
    model.remove(A)
    assert (A in model.nodes, "10" in model.vnodes) == (False, True)


def test_lost_node_keeps_its_vnodes_until_it_is_removed() -> None:
    model = a_model()
    assert model.lose(A, "unreachable") == RingChange({A: {"state": "unreachable"}})
    assert model.lose(A, "unreachable").size == 0
    assert "10" in model.vnodes
    assert set(model.remove(A).gone) == {A, "10"}
    assert "10" not in model.vnodes
    assert model.remove(A).size == model.lose(A, "dead").size == 0


def test_event_changes_what_it_says_exactly() -> None:
    model = a_model()
    model.on_event(info(PeerChanged("127.0.0.1:9002", "dead", "refused")))
    assert model.nodes[A]["suspects"] == {
        "127.0.0.1:9002": {"state": "dead", "reason": "refused", "since_ms": 7}
    }
    model.on_event(info(PeerChanged("127.0.0.1:9002", "alive", "")))
    assert model.nodes[A]["suspects"] == {}
    model.on_event(info(NodeStateChanged("leaving", A)))
    assert model.nodes[A]["state"] == "leaving"
    ports = {10: 9000, 80: 9002}
    model.on_event(info(PredecessorAdopted(Point(10), contact(80, ports), None)))
    assert model.vnodes["10"]["predecessor"] == "80"
    assert model.on_event(info(PeerChanged("x:1", "dead", ""), "stranger:1")).size == 0


def test_recorded_event_names_no_key_and_no_value() -> None:
    assert event_fields(info(RecordUnmerged("key secret"))) == {
        "seq": 1, "node": A, "kind": "RecordUnmerged", "fields": {}
    }  # fmt: skip
    assert event_fields(info(HandlerFailed("Put", "secret")))["fields"] == {"where": "Put"}


def test_changes_played_from_a_keyframe_give_the_state() -> None:
    rng, model, played = random.Random(3), RingModel(), RingModel()
    for _ in range(300):
        status, draw = rng.choice(statuses(IDS)), rng.random()
        if draw < 0.2:
            change = model.remove(status.address)
        elif draw < 0.5:
            change = model.lose(status.address, "dead")
        else:
            vnodes = rng.choice([(), status.vnodes])
            change = model.describe(replace(status, keys=rng.randrange(3), vnodes=vnodes))
        played.apply(change)
        assert (played.nodes, played.vnodes) == (model.nodes, model.vnodes)
        if rng.random() < 0.1:
            keyframe = model.keyframe()
            played = RingModel()
            played.apply(keyframe)
