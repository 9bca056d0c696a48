"""The HTTP interface, called directly as an application, on states that never ran."""

from __future__ import annotations

import gzip
import json
import re
import threading
from typing import Any
from urllib.parse import quote

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from chord.ids import Circle, Contact, Point
from chord.observe.chordlog import BYTES_MAX, Chordlog, unpack
from chord.observe.model import RingChange, RingModel
from chord.views.dashboard import requests_by_part, resampled
from chord.web.hub import EventHub
from chord.web.openapi import ENDPOINTS
from chord.web.queries import BINS_MAX
from chord.web.sampling import NODES_MAX, RingMeter
from chord.web.source import LiveRing, PlayedRing
from chord.wire.messages import SAMPLE_BINS, PeerInfo, SampleReply, Status
from tests.support.schemas import check_shape
from tests.support.statuses import statuses
from tests.support.web import NOW_MS, Answer, Ring, WebClient, app_of, events_of, scope_of


async def get(path: str, nodes: list[Status] | None = None, age_s: float = 0.0) -> Answer:
    return await WebClient(app_of(Ring(statuses() if nodes is None else nodes, age_s).origin)).get(path)


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
    assert (ring["at_ms"], ring["age_ms"], ring["source"]) == (NOW_MS + 250, 250, "live")
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


async def test_check_waits_for_a_joiner_that_lives() -> None:
    nodes = statuses()
    (vnode,) = nodes[2].vnodes
    for state, waits in (("ready", True), ("dead", False)):
        nodes[2] = replace(nodes[2], state=state, vnodes=(replace(vnode, state="joining"),))
        verdict = await checked("/api/v1/check", "api-check", nodes)
        assert ("n2 is joining" in [one["text"] for one in verdict["waiting"]]) == waits


async def test_missing_node_leaves_the_verdict_open() -> None:
    ring = Ring(statuses())
    ring.origin.aggregator.model.lose("127.0.0.1:9002", "unreachable")
    verdict = (await WebClient(app_of(ring.origin)).get("/api/v1/check")).json
    check_shape("api-check", verdict)
    assert verdict["missing"] == verdict["unreachable"] == ["127.0.0.1:9002"]
    assert {one["holds"] for one in verdict["invariants"]} == {None}
    assert (verdict["settled"], verdict["data_is_safe"]) == (None, None)


async def test_age_grows_while_a_node_does_not_answer() -> None:
    ring = Ring(statuses(), age_s=12.0)
    for node in statuses():
        ring.origin.aggregator.model.lose(node.address, "unreachable")
    answer = (await WebClient(app_of(ring.origin)).get("/api/v1/ring")).json
    assert answer["age_ms"] == 12_000
    assert {node["age_ms"] for node in answer["nodes"]} == {12_000}


async def test_doubters_of_a_node_are_named() -> None:
    nodes = statuses()
    peer = PeerInfo("127.0.0.1:9002", "suspect", None, 400, "no answer", 2)
    nodes[0] = replace(nodes[0], peers=(peer,), wall_ms=5_000)
    ring = await checked("/api/v1/ring", "api-ring", nodes)
    (doubted,) = [node for node in ring["nodes"] if node["doubters"]]
    assert doubted["node"] == "n2"
    assert doubted["doubters"] == [
        {"by": "127.0.0.1:9000", "state": "suspect", "since_ms": 4_600, "reason": "no answer"}
    ]


async def test_bins_count_the_vnodes_of_a_large_ring() -> None:
    ids = tuple(range(100, 60_000, 200))
    nodes = statuses(ids, bits=16, addresses={p: f"n{p}:1" for p in ids})
    ring = Ring(nodes[:1])
    for node in nodes:
        ring.origin.aggregator.model.describe(node)
    web = WebClient(app_of(ring.origin))
    answer = (await web.get("/api/v1/ring?bins=64&from=1000&to=1500")).json
    check_shape("api-ring", answer)
    assert sum(part["vnodes"] for part in answer["bins"]) == len(ids)
    assert [part["nodes"] for part in answer["bins"]] == [part["vnodes"] for part in answer["bins"]]
    assert {part["requests"] for part in answer["bins"]} == {None}, "no node was asked to count"
    assert [vnode["id"] for vnode in answer["vnodes"]] == ["1100", "1300", "1500"]
    assert (await web.get("/api/v1/ring?bins=64")).json["vnodes"] == []
    assert (await web.get("/api/v1/ring?from=1")).status == 400


@pytest.mark.parametrize(("bins", "status"), [
    ("1", 200), (str(BINS_MAX), 200), (str(BINS_MAX + 1), 400), ("0", 400), ("-1", 400), ("abc", 400), ("", 400),
    ("1.5", 400), ("٣", 400), ("9" * 40, 400),
])  # fmt: skip
async def test_bins_beyond_their_limits_are_refused(bins: str, status: int) -> None:
    answer = await get(f"/api/v1/ring?bins={quote(bins)}")
    assert answer.status == status
    check_shape("error" if status == 400 else "api-ring", answer.json)
    if status == 200:
        assert len(answer.json["bins"]) == int(bins)
        assert sum(part["vnodes"] for part in answer.json["bins"]) == 7
    else:
        error = answer.json["error"]
        assert error["message"] == f"invalid bins {bins[:40]!r}"
        assert error["hint"] == f"Give a whole number from 1 to {BINS_MAX}, or leave it out"


async def test_bins_count_a_node_with_many_vnodes_once() -> None:
    ids = (10, 42, 80)
    nodes = statuses(ids, bits=8, addresses=dict.fromkeys(ids, "n:1"))
    whole = replace(nodes[0], vnodes=tuple(vnode for node in nodes for vnode in node.vnodes))
    for bins, expected in ((1, [(3, 1)]), (4, [(2, 1), (1, 1), (0, 0), (0, 0)])):
        parts = (await checked(f"/api/v1/ring?bins={bins}", "api-ring", [whole]))["bins"]
        assert [(part["vnodes"], part["nodes"]) for part in parts] == expected


@pytest.mark.parametrize(("verdict", "dead", "worst"), [
    (None, 0, "unreachable"), ("suspect", 0, "unreachable"), ("dead", 1, "dead"), ("left", 1, "dead"),
    ("paused", 0, "other"),
])  # fmt: skip
async def test_bins_show_the_worst_state_and_the_dead(verdict: Any, dead: int, worst: str) -> None:
    nodes = statuses()
    if verdict is not None:
        nodes[0] = replace(nodes[0], peers=(PeerInfo("127.0.0.1:9002", verdict, None, 400, "no answer", 2),))
    ring = Ring(nodes)
    ring.origin.aggregator.model.lose("127.0.0.1:9002", "unreachable")  # the vnode 80
    answer = (await WebClient(app_of(ring.origin)).get("/api/v1/ring?bins=4")).json
    check_shape("api-ring", answer)
    assert [(part["vnodes"], part["dead"], part["worst"]) for part in answer["bins"]] == [
        (2, 0, "ready"), (2, dead, worst), (1, 0, "ready"), (2, 0, "ready")
    ]  # fmt: skip


async def test_requests_are_null_until_nodes_have_counted() -> None:
    answer = await checked("/api/v1/requests?bins=4", "api-requests")
    assert (answer["requests"], answer["counted_by"], answer["nodes"]) == ([None] * 4, 0, 7)
    assert len((await checked("/api/v1/requests", "api-requests"))["requests"]) == 256
    assert (await get(f"/api/v1/requests?bins={BINS_MAX}")).status == 200
    assert (await get(f"/api/v1/requests?bins={BINS_MAX + 1}")).status == 400


def model_of_arcs(*arcs: tuple[int, int]) -> RingModel:
    """Return a model in which each arc belongs to a node of its own, n0:1 and so on."""
    model = RingModel()
    for number, (start, end) in enumerate(arcs):
        model.nodes[f"n{number}:1"] = {"vnodes": [str(end)]}
        model.vnodes[str(end)] = {"arcs": [{"start": str(start), "end": str(end), "state": "owned"}]}
    return model


@pytest.mark.parametrize(("arc", "seen"), [
    ((0, 63), [0]), ((0, 64), [0, 1]), ((63, 64), [1]), ((63, 127), [1]), ((200, 10), [3, 0]), ((255, 63), [0]),
    ((10, 9), [0, 1, 2, 3]), ((10, 10), [0, 1, 2, 3]), ((10, 5), [0, 1, 2, 3]), ((100, 60), [1, 2, 3, 0]),
])  # fmt: skip
def test_requests_are_null_where_no_asked_node_owns(arc: tuple[int, int], seen: list[int]) -> None:
    model = model_of_arcs(arc)
    found = requests_by_part(Circle(8), model, [8.0, 0.0], ["n0:1"], 4)
    full = [4.0, 4.0, 0.0, 0.0]
    assert found == [full[i] if i in seen else None for i in range(4)]
    assert requests_by_part(Circle(8), model, [8.0, 0.0], [], 4) == [None] * 4


async def test_requests_of_a_large_ring_leave_gaps() -> None:
    ids = tuple(range(100, 60_000, 200))
    nodes = statuses(ids, bits=16, addresses={p: f"n{p}:1" for p in ids})
    ring = Ring(nodes[:1])
    for node in nodes:
        ring.origin.aggregator.model.describe(node)
    meter = RingMeter(ring.origin, EventHub(ring.origin))
    for number, address in enumerate(meter.nodes()):
        meter.requests.add(ring.now_s, address, SampleReply(0, 1, (0,) * SAMPLE_BINS, ()))
        assert number < NODES_MAX
    web = WebClient(app_of(ring.origin, meter=meter))
    answer = (await web.get("/api/v1/requests?bins=360")).json
    check_shape("api-requests", answer)
    assert (answer["counted_by"], answer["nodes"]) == (NODES_MAX, len(ids))
    asked = [number for number, count in enumerate(answer["requests"]) if count is not None]
    assert NODES_MAX <= len(asked) <= 2 * NODES_MAX, "an arc of 1/300 is in one part or two"
    parts = (await web.get("/api/v1/ring?bins=360")).json["bins"]
    assert [part["requests"] for part in parts] == answer["requests"]
    owners = {status.vnodes[0].contact.id * 360 >> 16 for status in nodes if status.address in meter.nodes()}
    assert owners <= {*asked}


def test_resampled_counts_keep_their_sum_and_place() -> None:
    assert resampled([4.0, 0.0], 4) == [2.0, 2.0, 0.0, 0.0]
    assert resampled([1.0, 3.0, 5.0, 7.0], 2) == [4.0, 12.0]
    assert resampled([3.0, 6.0], 3) == pytest.approx([2.0, 3.0, 4.0])
    many = resampled([1.0] * 256, 360)
    assert many == pytest.approx([256 / 360] * 360)


# -- history and recordings -----------------------------------------------------------------------


async def test_history_is_a_keyframe_and_the_lines_after_it() -> None:
    ring = Ring(statuses())
    model, history = ring.origin.aggregator.model, ring.origin.aggregator.history
    ring.now_s = 105.0
    history.change(104.0, model.lose("127.0.0.1:9002", "dead"))
    history.add(104.5, "e", {"seq": 1, "node": "127.0.0.1:9000", "kind": "StepDone", "fields": {}})
    found = (await WebClient(app_of(ring.origin)).get("/api/v1/history")).json
    check_shape("api-history", found)
    assert [next(iter(set(line) - {"at_ms"})) for line in found["lines"]][-2:] == ["d", "e"]
    assert found["lines"][0]["k"] == {}
    assert found["lines"][-2]["at_ms"] == NOW_MS + 4000
    at = (await WebClient(app_of(ring.origin)).get(f"/api/v1/nodes/n2?at={NOW_MS + 3000}")).json
    assert at["state"] == "ready"
    for late_ms in (NOW_MS - 1, NOW_MS + 9000):
        answer = await WebClient(app_of(ring.origin)).get(f"/api/v1/check?at={late_ms}")
        assert (answer.status, answer.json["error"]["code"]) == (404, "no_such_time")


async def test_download_plays_as_it_was() -> None:
    ring = Ring(statuses())
    model, history = ring.origin.aggregator.model, ring.origin.aggregator.history
    ring.now_s = 150.0
    for second in (*range(101, 130), 145):
        change = RingChange({"127.0.0.1:9001": {"keys": second}})
        model.apply(change)
        history.change(float(second), change)
    web = WebClient(app_of(ring.origin))
    answer = await web.get("/api/v1/recording")
    log = Chordlog(unpack(answer.body))
    assert log.header.bits == 8
    assert log.seek(1000.0).nodes == model.nodes
    assert log.seek(20.0).nodes["127.0.0.1:9001"]["keys"] == 120
    uploaded = (await web.request("POST", "/api/v1/recording", answer.body)).json
    check_shape("api-recording", uploaded)
    assert (uploaded["source"], uploaded["from_ms"]) == ("recording", NOW_MS)
    path = f"/api/v1/ring?recording={uploaded['recording']}&at={NOW_MS + 20_000}"
    played = (await web.get(path)).json
    check_shape("api-ring", played)
    assert played["source"] == "recording"
    assert [node["keys"] for node in played["nodes"] if node["node"] == "n1"] == [120]
    lines = (await web.get(f"/api/v1/history?recording={uploaded['recording']}")).json
    check_shape("api-history", lines)
    assert len(lines["lines"]) == 31
    assert (await web.get("/api/v1/ring?recording=77")).status == 404


async def test_bad_recording_is_refused() -> None:
    web = WebClient(app_of(Ring(statuses()).origin))
    for body in (b"", b"{}\n", b'{"chordlog":2}\n', b"\x1f\x8bxx"):
        answer = await web.request("POST", "/api/v1/recording", body)
        check_shape("error", answer.json)
        assert (answer.status, answer.json["error"]["code"]) == (400, "bad_recording")
    bomb = gzip.compress(bytes(BYTES_MAX + 10), 1)
    assert (await web.request("POST", "/api/v1/recording", bomb)).status == 413


async def test_endless_upload_is_cut_off() -> None:
    parts = 0

    async def receive() -> Any:
        nonlocal parts
        parts += 1
        return {"type": "http.request", "body": bytes(1 << 20), "more_body": True}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await app_of(Ring(statuses()).origin)(scope_of("POST", "/api/v1/recording"), receive, send)
    assert sent[0]["status"] == 413
    assert parts == 65


async def test_recording_shows_no_living_ring() -> None:
    ring = Ring(statuses())
    log = Chordlog(unpack((await WebClient(app_of(ring.origin)).get("/api/v1/recording")).body))
    app = app_of(PlayedRing(log))
    web = WebClient(app)
    assert (await web.request("POST", "/api/v1/lookup", b'{"key":"a"}')).json["error"]["code"] == "not_live"
    assert (await web.get("/api/v1/heat")).status == 409
    assert (await web.get("/api/v1/requests")).json["error"]["code"] == "not_live"
    assert unpack((await web.get("/api/v1/recording")).body) == log.text, "a played recording keeps every line"
    part = Chordlog(unpack((await web.get(f"/api/v1/recording?from={NOW_MS}")).body))
    assert part.header.bits == log.header.bits
    check_shape("api-metrics", (await web.get("/api/v1/metrics.json")).json)
    check_shape("api-transfers", (await web.get("/api/v1/transfers")).json)
    found = await events_of(app, 3)
    assert [name for name, _, _ in found] == ["hello", "state", "check"]
    assert found[0][2]["source"] == "recording"


async def test_recording_is_read_outside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Chordlog(unpack((await WebClient(app_of(Ring(statuses()).origin)).get("/api/v1/recording")).body))
    app = app_of(PlayedRing(log))
    seek, threads = Chordlog.seek, set[threading.Thread]()

    def noted(self: Chordlog, at_s: float) -> RingModel:
        threads.add(threading.current_thread())
        return seek(self, at_s)

    monkeypatch.setattr(Chordlog, "seek", noted)
    for path in ("ring", "ring?bins=8", "nodes/n2", "check", "history", "transfers", "metrics.json", "events"):
        if path == "events":
            await events_of(app, 3)
        else:
            assert (await WebClient(app).get(f"/api/v1/{path}")).status == 200
    assert (await WebClient(app).get("/api/v1/recording?from=0")).status == 200
    assert (await WebClient(app).request("POST", "/api/v1/recording", log.text)).status == 200
    assert threads
    assert threading.current_thread() not in threads


# -- the guard ------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1:9080", "localhost", "[::1]:9080", "192.168.3.4:80"])
async def test_request_by_address_is_answered(host: str) -> None:
    assert (await WebClient(app_of(Ring(statuses()).origin)).get("/api/v1/check", host=host)).status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:9080", "", "[::1"])
async def test_request_under_another_name_is_refused(host: str) -> None:
    answer = await WebClient(app_of(Ring(statuses()).origin)).get("/api/v1/check", host=host)
    assert (answer.status, answer.json["error"]["code"]) == (403, "bad_host")
    assert "content-security-policy" in answer.headers


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9081", "http://["])
async def test_other_origin_changes_nothing(origin: str) -> None:
    web = WebClient(app_of(Ring(statuses()).origin))
    answer = await web.request("POST", "/api/v1/lookup", b'{"key":"a"}', origin=origin)
    assert (answer.status, answer.json["error"]["code"]) == (403, "bad_origin")
    assert (await web.get("/api/v1/ring", origin=origin)).status == 403
    assert (await web.get("/api/v1/ring", origin="http://127.0.0.1:9080")).status == 200


async def test_change_needs_its_header() -> None:
    web = WebClient(app_of(Ring(statuses()).origin))
    for header in ("", "0"):
        answer = await web.request("POST", "/api/v1/recording", b"", x_chord=header)
        assert answer.json["error"]["code"] == "no_header"


# -- the page and the description -----------------------------------------------------------------


async def test_page_has_a_strict_policy() -> None:
    answer = await get("/")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/../app.py", "/%2e%2e/app.py", "/nothing.js", "/..", "//etc/passwd", "/\0"])
async def test_page_has_no_other_files(path: str) -> None:
    assert (await get(path)).status == 404


async def test_openapi_refers_to_existing_schemas_only() -> None:
    description = await checked("/api/v1/openapi.json", "api-openapi")
    schemas = description["components"]["schemas"]
    text = json.dumps(description)
    for name in re.findall(r'"#/components/schemas/([^"/]+)', text):
        assert name in schemas
    for name, schema in schemas.items():
        Draft202012Validator.check_schema(schema)
        assert name == "error" or f"schemas/{name}" in text
    assert {(path, method) for path, methods in description["paths"].items() for method in methods} == {
        (endpoint.path, endpoint.method.lower()) for endpoint in ENDPOINTS
    }


async def test_every_failure_has_the_shape_of_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring(statuses())
    web = WebClient(app_of(ring.origin))
    for method, path, status in (
        ("POST", "/api/v1/ring", 405), ("DELETE", "/", 405), ("GET", "/api/v1/nothing", 404), ("GET", "/api/v2", 404),
    ):  # fmt: skip
        answer = await web.request(method, path)
        assert answer.status == status
        check_shape("error", answer.json)
    monkeypatch.setattr(LiveRing, "at", None)
    with pytest.raises(TypeError):  # the server logs it
        await web.get("/api/v1/check")
    answer = web.last
    assert (answer.status, answer.json["error"]["code"]) == (500, "internal")
    check_shape("error", answer.json)
