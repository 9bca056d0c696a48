"""Lookups and keys over HTTP, on a ring in memory."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest
import trio

import chord
from chord import testing
from chord.web.actions import NAME_MAX, SIDE_MAX
from chord.web.aggregator import Aggregator
from chord.web.hub import EventHub
from chord.web.sampling import RingMeter
from chord.web.source import LiveRing
from chord.web.watch import watch
from tests.support.rings import virtual
from tests.support.schemas import check_shape
from tests.support.statuses import statuses
from tests.support.web import Answer, Ring, WebClient, app_of

ADA = urlsafe_b64encode(b"user:42").decode().rstrip("=")


@asynccontextmanager
async def watched(count: int = 4, **options: Any) -> AsyncIterator[tuple[WebClient, chord.AsyncClient]]:
    """Give the dashboard of a ring in memory, and a client of the ring."""
    async with testing.open_ring(count, seed=1) as ring:
        network = cast(testing.MemoryNetwork, ring.network)
        async with (
            chord.open_client(ring[0].address, transport=network.transport("client")) as client,
            trio.open_nursery() as nursery,
        ):
            origin = LiveRing(Aggregator([ring[0].address], trio.current_time()), trio.current_time, 1_800_000_000_000)
            origin.client = client
            hub = EventHub(origin)
            meter = RingMeter(origin, hub)
            nursery.start_soon(watch, origin.aggregator, client)
            nursery.start_soon(meter.run)
            await trio.sleep(3)
            yield WebClient(app_of(origin, hub, meter=meter, **options)), client
            nursery.cancel_scope.cancel()


def checked(answer: Answer, shape: str, status: int = 200) -> Any:
    assert answer.status == status, answer.body
    check_shape(shape, answer.json)
    return answer.json


@virtual
async def test_lookup_finds_the_owner_by_every_route() -> None:
    async with watched() as (web, client):
        order = json.dumps({"key": "user:42", "from": "n2"}).encode()
        found = checked(await web.request("POST", "/api/v1/lookup", order), "api-lookup")
        trace = await client.lookup("user:42")
        assert found["owner"]["id"] == str(int(trace.owner.id))
        assert (found["from"]["node"], found["key"]) == ("n2", "user:42")
        routes = checked(await web.request("POST", "/api/v1/lookup/compare", order), "api-lookups")["lookups"]
        assert [(one["mode"], one["route"]) for one in routes] == [
            ("iterative", "classic"), ("iterative", "fast"), ("successor", "classic")
        ]  # fmt: skip
        assert {one["owner"]["id"] for one in routes} == {found["owner"]["id"]}
        by_id = await web.request("POST", "/api/v1/lookup", json.dumps({"id": found["id"]}).encode())
        assert checked(by_id, "api-lookup")["owner"] == found["owner"]


@virtual
async def test_lookup_refuses_a_wrong_body() -> None:
    async with watched(1) as (web, _):
        for body in (b"{}", b"[", b'{"key":"a","id":"1"}', b'{"kee":"a"}', b'{"id":"-1"}', b'{"key":"a","from":"n9"}'):
            checked(await web.request("POST", "/api/v1/lookup", body), "error", 404 if b"n9" in body else 400)


@virtual
async def test_put_replaces_what_its_context_covers() -> None:
    async with watched(may_write=True) as (web, client):
        path = f"/api/v1/keys/{ADA}"
        checked(await web.get(path), "error", 404)
        checked(await web.request("PUT", path, b'{"value":"Ada"}'), "api-stored")
        read = checked(await web.get(path), "api-key")
        assert [value["text"] for value in read["values"]] == ["Ada"]
        await client.put("user:42", b"Grace")
        order = json.dumps({"value": "old", "context": read["context"]}).encode()
        conflict = checked(await web.request("PUT", path, order), "api-conflict", 409)
        assert [one["value"]["text"] for one in conflict["siblings"]] == ["Grace"]
        order = json.dumps({"value": "Hopper", "context": conflict["context"]}).encode()
        checked(await web.request("PUT", path, order), "api-stored")
        assert (await client.get("user:42")).text == "Hopper"
        context = b64encode((await client.get("user:42")).context).decode().replace("+", "%2B")
        checked(await web.request("DELETE", f"{path}?context={context}"), "api-stored")
        checked(await web.get(path), "error", 404)


@virtual
async def test_put_without_context_resolves_no_siblings() -> None:
    async with watched(may_write=True) as (web, client):
        for value in (b"a", b"b"):
            await client.put("user:42", value, no_context=True)
        conflict = checked(await web.request("PUT", f"/api/v1/keys/{ADA}", b'{"value":"c"}'), "api-conflict", 409)
        assert sorted(one["value"]["text"] for one in conflict["siblings"]) == ["a", "b"]
        assert len((await client.get("user:42")).values) == 2
        order = json.dumps({"value": "ab", "context": conflict["context"]}).encode()
        checked(await web.request("PUT", f"/api/v1/keys/{ADA}", order), "api-stored")
        assert (await client.get("user:42")).text == "ab"


@virtual
async def test_inspection_has_the_copy_of_each_member() -> None:
    async with watched() as (web, client):
        await client.put("user:42", b"Ada")
        found = checked(await web.get(f"/api/v1/keys/{ADA}?inspect"), "api-key")
        assert len(found["copies"]) == 3
        assert {value["text"] for copy in found["copies"] for value in copy["values"]} == {"Ada"}


@virtual
async def test_key_is_read_only_without_the_option() -> None:
    async with watched(1) as (web, client):
        for method in ("PUT", "DELETE"):
            answer = await web.request(method, f"/api/v1/keys/{ADA}", b'{"value":"Ada"}')
            assert checked(answer, "error", 403)["error"]["code"] == "read_only"
        checked(await web.get("/api/v1/keys/A!A"), "error", 400)
        answer = await web.request("POST", "/api/v1/chaos", b'{"do":"kill","node":"n0"}')
        assert checked(answer, "error", 403)["error"]["code"] == "no_demo"
        assert await client.get("user:42", None) is None


ADDRESSES = sorted(status.address for status in statuses())


async def obeyed(orders: list[tuple[str, list[str]]], do: str, nodes: list[str], ring: list[str]) -> list[list[str]]:
    """Note an order, and answer as the parent of a demonstration does."""
    assert ring == ADDRESSES
    orders.append((do, nodes))
    return [nodes, ["rest"]] if do == "partition" else [nodes or ["n3"]] if do != "heal" else []


@pytest.mark.parametrize(("order", "asked", "fault"), [
    ({"do": "kill", "node": "n1"}, ("kill", ["n1"]), {"do": "kill", "groups": [["n1"]]}),
    ({"do": "freeze", "node": "n1"}, ("freeze", ["n1"]), {"do": "stop", "groups": [["n1"]]}),
    ({"do": "thaw", "node": "n1"}, ("thaw", ["n1"]), {"do": "wake", "groups": [["n1"]]}),
    ({"do": "start", "node": "n1"}, ("start", ["n1"]), None),
    ({"do": "start", "node": "n" * NAME_MAX}, ("start", ["n" * NAME_MAX]), None),
    ({"do": "join"}, ("join", []), None),
    ({"do": "partition", "nodes": ["n1", "n2"]}, ("partition", ["n1", "n2"]),
     {"do": "partition", "groups": [["n1", "n2"], ["rest"]]}),
    ({"do": "partition", "nodes": ["n"] * SIDE_MAX}, ("partition", ["n"] * SIDE_MAX),
     {"do": "partition", "groups": [["n"] * SIDE_MAX, ["rest"]]}),
    ({"do": "heal"}, ("heal", []), {"do": "heal", "groups": []}),
])  # fmt: skip
async def test_fault_of_a_demonstration_enters_the_history(order: Any, asked: Any, fault: Any) -> None:
    ring, orders = Ring(statuses()), list[tuple[str, list[str]]]()
    web = WebClient(app_of(ring.origin, chaos=partial(obeyed, orders)))
    check_shape("api-order-chaos", order)
    answer = checked(await web.request("POST", "/api/v1/chaos", json.dumps(order).encode()), "api-chaos")
    assert orders == [asked]
    assert answer["do"] == order["do"]
    assert answer["node"] == ("n3" if order["do"] == "join" else order.get("node", ""))
    history = (await web.get("/api/v1/history")).json
    check_shape("api-history", history)
    assert [line["f"] for line in history["lines"] if "f" in line] == ([] if fault is None else [fault])


@pytest.mark.parametrize("order", [
    {"do": "partition"}, {"do": "partition", "node": "n1"}, {"do": "partition", "nodes": []},
    {"do": "kill", "node": "n" * (NAME_MAX + 1)}, {"do": "partition", "nodes": ["n" * (NAME_MAX + 1)]},
    {"do": "partition", "nodes": ["n"] * (SIDE_MAX + 1)}, {"do": "partition", "nodes": [7]},
    {"do": "heal", "node": "n1"}, {"do": "heal", "nodes": ["n1"]}, {"do": "kill"},
    {"do": "kill", "node": "n1", "nodes": ["n2"]},
    {"do": "join", "node": "n1"}, {"do": "split"}, {"do": "kill", "node": "n1", "more": 1},
])  # fmt: skip
async def test_wrong_order_of_a_demonstration_is_refused(order: Any) -> None:
    ring, orders = Ring(statuses()), list[tuple[str, list[str]]]()
    web = WebClient(app_of(ring.origin, chaos=partial(obeyed, orders)))
    error = checked(await web.request("POST", "/api/v1/chaos", json.dumps(order).encode()), "error", 400)["error"]
    assert error["code"] == "invalid"
    assert error["message"]
    assert error["hint"]
    assert orders == []


@virtual
async def test_heat_counts_keys_and_requests() -> None:
    async with watched() as (web, client):
        for number in range(60):
            await client.put(f"key {number}", b"value")
        checked(await web.get("/api/v1/heat"), "api-heat")  # sampling begins
        await trio.sleep(4)
        for _ in range(40):
            await client.put("hot", b"value")
        await trio.sleep(4)
        heat = checked(await web.get("/api/v1/heat?bins=64&window=30"), "api-heat")
        assert sum(heat["keys"]) == 61
        assert sum(heat["requests"]) >= 40
        assert heat["hot"][0]["key"] == "hot"
        assert heat["hot"][0]["share"] > 0.9
        trace = await client.lookup("hot")
        assert heat["hot"][0]["owner"]["id"] == str(int(trace.owner.id))
        assert heat["requests"][trace.key * 64 >> client.circle.bits] >= 40
        parts = checked(await web.get("/api/v1/ring?bins=64"), "api-ring")["bins"]
        assert parts[trace.key * 64 >> client.circle.bits]["requests"] >= 40
        counted = checked(await web.get("/api/v1/requests?bins=64"), "api-requests")
        assert counted["requests"] == [part["requests"] for part in parts]
        assert (counted["counted_by"], counted["nodes"]) == (4, 4)
        checked(await web.get("/api/v1/heat?bins=5"), "error", 400)
        metrics = checked(await web.get("/api/v1/metrics.json"), "api-metrics")
        series = {(one["name"], one["label"]): one["values"] for one in metrics["series"]}
        assert max(value or 0 for value in series["operations", ""]) >= 40
        assert len(metrics["times_ms"]) == len(series["rpc_calls", "client"])


@virtual
async def test_node_reports_its_round_trips_when_asked() -> None:
    async with watched() as (web, client):
        for _ in range(5):
            await client.lookup("user:42")
        asked = checked(await web.get("/api/v1/nodes/n1?peers"), "api-node")
        assert {peer["node"] for peer in asked["peers"]} == {"n0", "n2", "n3"}
        assert all(peer["rtt_ms"] > 0 for peer in asked["peers"])
        assert {vnode["node"] for part in asked["sets"] for vnode in part["members"]} <= {"n0", "n1", "n2", "n3"}
        assert all(len(part["members"]) == 3 for part in asked["sets"])
        assert sum(asked["counters"].values()) > 0
        assert asked["timing"]["stabilize_s"] > 0
        polled = checked(await web.get("/api/v1/nodes/n1"), "api-node")
        assert [polled[name] for name in ("peers", "sets", "counters", "timing")] == [None] * 4


@virtual
async def test_metrics_have_the_path_lengths_of_lookups() -> None:
    async with watched() as (web, client):
        await trio.sleep(3)
        for number in range(30):
            await client.lookup(f"key {number}")
        await trio.sleep(3)
        metrics = checked(await web.get("/api/v1/metrics.json"), "api-metrics")
        assert sum(metrics["hops"]) >= 30
        assert metrics["hops"][-1] > 0
