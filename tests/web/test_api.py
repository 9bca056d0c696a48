"""The HTTP interface, called directly as an application, on states that never ran."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from chord.ids import Contact, Point
from chord.web.aggregator import Aggregator
from chord.web.app import Dashboard, make_app
from chord.web.hub import EventHub
from chord.web.source import LiveRing
from chord.wire.messages import DescribeReply, Status
from tests.support.schemas import check_shape
from tests.support.statuses import statuses
from tests.support.web import Answer, WebClient

NOW_MS = 1_800_000_000_000


def a_ring(nodes: list[Status], age_s: float = 0.0) -> LiveRing:
    """Return a ring whose nodes answered some time ago."""
    aggregator = Aggregator([nodes[0].address], 100.0)
    known = {status.address: status for status in nodes}
    for _ in range(3):
        for poll in aggregator.due(100.0):
            if poll.kind == "describe":
                aggregator.on_reply(poll, DescribeReply(b"1", NOW_MS, known[poll.address]), 100.0)
    return LiveRing(aggregator, lambda: 100.0 + age_s, NOW_MS)


async def get(path: str, nodes: list[Status] | None = None, age_s: float = 0.0) -> Answer:
    origin = a_ring(statuses() if nodes is None else nodes, age_s)
    return await WebClient(make_app(Dashboard(origin, EventHub(origin)), "127.0.0.1")).get(path)


async def checked(path: str, shape: str, nodes: list[Status] | None = None, age_s: float = 0.0) -> Any:
    answer = await get(path, nodes, age_s)
    assert answer.status == 200
    check_shape(shape, answer.json)
    return answer.json


async def test_ring_has_vnodes_in_order_and_their_nodes() -> None:
    ring = await checked("/api/v1/ring", "api-ring", age_s=0.25)
    assert [vnode["id"] for vnode in ring["vnodes"]] == ["10", "42", "80", "120", "160", "200", "230"]
    assert [vnode["id_hex"] for vnode in ring["vnodes"]][:2] == ["0a", "2a"]
    assert sum(vnode["owned"] for vnode in ring["vnodes"]) == pytest.approx(1.0)
    assert (ring["bits"], ring["r"], ring["N"], ring["W"]) == (8, 8, 1, 1)
    assert (ring["at_ms"], ring["age_ms"], ring["source"]) == (NOW_MS, 250, "live")
    assert {node["age_ms"] for node in ring["nodes"]} == {250}


async def test_node_is_found_by_name_and_by_address() -> None:
    by_name = await checked("/api/v1/nodes/n2", "api-node")
    assert by_name["address"] == "127.0.0.1:9002"
    assert by_name["vnodes"][0]["fingers"][0]["id"] == "120"
    assert await checked("/api/v1/nodes/127.0.0.1:9002", "api-node") == by_name
    missing = await get("/api/v1/nodes/n9")
    assert (missing.status, missing.json["error"]["code"]) == (404, "no_such_node")
    check_shape("error", missing.json)


async def test_check_of_an_ideal_ring_settles() -> None:
    verdict = await checked("/api/v1/check", "api-check")
    assert verdict["settled"] is True
    assert verdict["data_is_safe"] is True
    assert [one["holds"] for one in verdict["invariants"]] == [True] * 8


async def test_check_names_a_broken_list() -> None:
    nodes = statuses(successors=2)
    twice = (Contact(Point(120), "127.0.0.1:9003"), Contact(Point(120), "127.0.0.1:9003"))
    (vnode,) = nodes[2].vnodes
    nodes[2] = replace(nodes[2], vnodes=(replace(vnode, successors=twice),))
    verdict = await checked("/api/v1/check", "api-check", nodes)
    broken = {one["name"]: one["violations"] for one in verdict["invariants"] if not one["holds"]}
    assert "127.0.0.1:9002" in broken["NoDuplicates"][0]["nodes"]
    assert [one["name"] for one in verdict["waiting"]] == ["ExactSuccessors"]
    assert verdict["settled"] is False
