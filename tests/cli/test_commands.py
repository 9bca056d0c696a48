"""Every command against a canned ring: its output as text, in a pipe and as JSON, and its exit code."""

from __future__ import annotations

import base64
import io
import json
import os
import socket
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from chord import cli
from chord.errors import Busy, ChordError, InvalidRequest, LookupFailed, OwnerDown, RemoteFailure
from chord.ids import Circle, Point
from chord.wire.messages import Contact, Get, GetStatus, Leave, Lookup, OwnedArc, PeerInfo, Put, ReadCopy, Status
from tests.support.cli import CannedRing, Run
from tests.support.clocks import PATIENCE_S, Skipping
from tests.support.fake_node import SILENCE, Answer, Heard
from tests.support.ports import Ports
from tests.support.real_rings import HANG_S
from tests.support.schemas import check_shape
from tests.support.statuses import WORKED_IDS

# -- records ------------------------------------------------------------------------------------------


def test_put_prints_nothing_and_get_exactly_the_value(run: Run, canned: CannedRing) -> None:
    assert (run("put", "user:42", "Ada").code, canned.values) == (0, {b"user:42": (b"Ada",)})
    assert run("get", "user:42").out == "Ada", "in a pipe without a line end"


def test_put_as_json_has_its_schema(run: Run) -> None:
    shape = run("put", "k", "v", "--json").json("put")
    assert shape["owner"]["node"] == "n2"
    assert base64.b64decode(shape["context"]) == b"context"


def test_put_reports_siblings_of_its_value(run: Run, canned: CannedRing) -> None:
    assert run("put", "k", "v").err == ""
    canned.beside = 2
    ended = run("put", "k", "w", "--no-context")
    assert (ended.code, ended.out) == (0, "")
    assert "beside it: 2; see them all: chord get KEY --all" in ended.err
    assert run("put", "k", "w", "--json").json("put")["beside"] == 2


CLOCKS = "Clocks differ by 61 s: puts with a time to live fail for keys of n1, n2"


def test_status_warns_if_clocks_differ(run: Run, canned: CannedRing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHORD_OUTPUT", "table")
    for skew_ms, warning in ((5_000, ""), (6_000, "Clocks differ by 6 s"), (61_000, CLOCKS)):
        canned.change = lambda point, node, ms=skew_ms: (  # type: ignore[misc]
            msgspec.structs.replace(node, clock_skew_ms=ms) if point in (42, 80) else node
        )
        err = run("status").err
        assert warning in err
        assert ("Clocks" in err) == bool(warning)
        assert ("time to live" in err) == (skew_ms > 60_000)
    assert run("status", "--json").json("status")["nodes"][1]["clock_skew_s"] == 61
    assert f"clocks  {CLOCKS}" in run("check").out


@pytest.mark.parametrize(("ahead_ms", "said"), [(7_200_000, "7200 s ahead"), (-61_000, "61 s behind")])
def test_status_names_the_wrong_clock(run: Run, canned: CannedRing, ahead_ms: int, said: str) -> None:
    canned.change = lambda point, node: msgspec.structs.replace(
        node, clock_skew_ms=abs(ahead_ms), wall_ms=10**12 + (ahead_ms if point == 42 else point)
    )
    name = f"n{sorted(canned.nodes).index(42)}"
    err = run("status").err
    assert f"s (that of {name} is {said}): puts with a time to live fail" in err


def test_put_reads_stdin(run: Run, canned: CannedRing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\x00\xffbytes")))
    assert run("put", "k", "-").code == 0
    assert canned.values == {b"k": (b"\x00\xffbytes",)}


def test_put_sends_the_given_context(run: Run, canned: CannedRing) -> None:
    run("put", "k", "v", "--context", base64.b64encode(b"seen").decode())
    (put,) = canned.nodes[10].requests(Put)
    assert put.context == b"seen"  # type: ignore[attr-defined]
    bad = run("put", "k", "v", "--context", "?")
    assert bad.code == 2
    assert "error: invalid context: expected base64. Take it from" in bad.err


def test_get_as_json_has_its_schema(run: Run, canned: CannedRing) -> None:
    canned.values[b"k"] = (b"\xff", "é".encode())
    ended = run("get", "k", "--json")
    shape = ended.json("get")
    assert [v["text"] for v in shape["values"]] == [None, "é"]
    assert ended.code == 7, "concurrent values are a conflict for the reader to settle"
    ended.failure("siblings")


def test_inspect_shows_the_copy_of_each_replica(run: Run, canned: CannedRing) -> None:
    canned.values[b"k"] = (b"one", b"x" * 40)
    shape = run("get", "k", "--inspect", "--json").json("inspection")
    assert {copy["node"] for copy in shape["copies"]} == {copy["node"] for copy in shape["copies"] if copy["version"]}
    assert [v["text"] for v in shape["copies"][0]["values"]] == ["one", "x" * 40]
    shown = run("get", "k", "--inspect")
    assert shown.code == 0
    assert "'one' '" + "x" * 32 in shown.out
    assert "absent" in run("get", "other", "--inspect").out
    canned.override = lambda point, heard: "hang up" if isinstance(heard.request, ReadCopy) else None
    lost = run("get", "k", "--inspect", "--json").json("inspection")
    assert all(copy["reason"] and copy["version"] is None for copy in lost["copies"])
    assert run("get", "k", "--inspect", "--all").code == 2


def test_get_prints_all_concurrent_values(run: Run, canned: CannedRing) -> None:
    canned.values[b"k"] = (b"one", b"two")
    ended = run("get", "k")
    assert (ended.code, ended.out) == (7, "one\ntwo\n")
    assert "2 concurrent values" in ended.err


def test_get_of_an_absent_key_is_exit_3(run: Run) -> None:
    ended = run("get", "nothing")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err == "error: no value is stored under 'nothing'. List the stored keys: chord scan\n"
    ended = run("get", "nothing", "--json")
    assert ended.code == 3
    assert ended.json("get")["found"] is False
    ended.failure("not_found")


def test_get_writes_the_value_into_a_file(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    canned.values[b"k"] = (b"\x00\xff",)
    assert run("get", "k", "-o", str(tmp_path / "value")).out == ""
    assert (tmp_path / "value").read_bytes() == b"\x00\xff"
    assert run("get", "k", "-o", str(tmp_path / "no" / "such")).code == 2


def test_del_removes_the_key(run: Run, canned: CannedRing) -> None:
    canned.values[b"k"] = (b"v",)
    assert run("del", "k", "--json").json("put")["key"] == "k"
    assert canned.values == {}


def test_key_that_is_not_text_survives_the_round_trip(run: Run, canned: CannedRing) -> None:
    key = os.fsdecode(b"\xff\xfe")
    run("put", key, "v")
    assert canned.values == {b"\xff\xfe": (b"v",)}
    assert run("get", key, "--json").json("get")["key_b64"] == base64.b64encode(b"\xff\xfe").decode()


LINES = b"""{"key": "json", "value": "1"}
key\tvalue with spaces

word
{"key_b64": "/w==", "value_b64": "AAE="}
word
"""


def test_load_reads_words_tabs_and_json(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(LINES)
    ended = run("load", str(tmp_path / "lines"))
    assert ended.out.startswith("stored 5 of 5 in ")
    assert canned.values == {
        b"json": (b"1",), b"key": (b"value with spaces",), b"word": (b"word",), b"\xff": (b"\x00\x01",)
    }


def test_load_reads_stdin_and_reports_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINES)))
    assert run("load", "-", "--json").json("load")["stored"] == 5


def test_load_names_failed_keys_and_stores_the_rest(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    def down(point: int, heard: Heard) -> ChordError | None:
        is_b = isinstance(heard.request, Put) and heard.request.key == b"b"
        return OwnerDown("the only copy is gone") if is_b else None

    canned.override = down
    (tmp_path / "lines").write_text("a\nb\nc\n")
    ended = run("load", str(tmp_path / "lines"))
    assert (ended.code, set(canned.values)) == (6, {b"a", b"c"})
    assert "not stored: 'b': the only copy is gone" in ended.err
    assert "error: 1 of 3 keys was not stored" in ended.err
    shape = run("load", str(tmp_path / "lines"), "--json").json("load")
    assert shape["failures"] == [{"key": "b", "error": {"code": "owner_down", "message": "the only copy is gone"}}]


@pytest.mark.parametrize(
    "line", ['{"key": 1}', "{nonsense", '{"key": "", "value": "v"}', '{"key_b64": "?"}', "[1]\x00" * 600, "\tvalue"]
)
def test_load_refuses_a_bad_line_before_storing_anything(
    run: Run, canned: CannedRing, tmp_path: Path, line: str
) -> None:
    (tmp_path / "lines").write_text(f"fine\n{line}\n")
    ended = run("load", str(tmp_path / "lines"))
    assert (ended.code, canned.values) == (2, {})
    assert "line 2" in ended.err


def test_load_of_a_missing_file_is_exit_2(run: Run) -> None:
    ended = run("load", "/no/such/file")
    assert ended.code == 2
    assert "cannot open /no/such/file (no such file or directory)" in ended.err


def test_scan_output_is_input_for_load(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    keys = [b"plain", b"{brace", b"tab\tkey", b"\xff"]
    canned.scanned.keys = keys
    ended = run("scan")
    assert ended.code == 0
    (tmp_path / "dump").write_text(ended.out)
    assert run("load", str(tmp_path / "dump")).code == 0
    assert canned.values == {k: (b"v:" + k,) for k in keys}
    for line in run("scan", "--json").out.splitlines():
        check_shape("scan", json.loads(line))


def test_scan_says_when_a_dead_node_has_the_only_copy(run: Run, canned: CannedRing, ports: Ports) -> None:
    dead = Contact(Point(70), ports.address())

    def taken(point: int, node: Status) -> Status:
        arc = OwnedArc(Point(60), Point(70), 2, "taken_over", dead)
        vnode = msgspec.structs.replace(node.vnodes[0], arcs=(*node.vnodes[0].arcs, arc))
        return msgspec.structs.replace(node, vnodes=(vnode,)) if point == 80 else node

    canned.change = taken
    ended = run("scan")
    assert ended.code == 6
    assert f"the only copy of some keys is on {dead.address}" in ended.err


# -- lookup -------------------------------------------------------------------------------------------


def test_lookup_names_the_owner(run: Run) -> None:
    ended = run("lookup", "--key-id", "190")
    assert ended.out.splitlines()[0].split("\t") == ["owner", "address", "id", "hops", "t"]
    assert ended.out.splitlines()[1].split("\t")[0] == "n5"


def test_lookup_json_is_the_worked_example(run: Run, canned: CannedRing) -> None:
    shape = run("lookup", "--key-id", "190", "--from", "80", "--json").json("lookup")
    assert shape["key"] is None
    assert [hop["id"] for hop in shape["hops"]] == ["80", "160"]
    assert (shape["owner"]["id"], shape["owner"]["id_hex"], shape["owner"]["node"]) == ("200", "c8", "n5")
    assert (shape["path_length"], shape["timeouts"]) == (1, 0)
    (asked,) = [h for h in canned.nodes[80].heard if isinstance(h.request, Lookup)]
    assert asked.vnode == 80, "an id names the vnode that gets the request"


def test_lookup_sends_the_route(run: Run, canned: CannedRing) -> None:
    assert run("lookup", "--key-id", "190", "--route", "full", "--json").code == 0
    assert run("lookup", "--key-id", "190").code == 0
    assert [h.request.route for h in canned.nodes[10].heard if isinstance(h.request, Lookup)] == ["full", "classic"]


def test_status_and_members_name_the_membership_lists(
    run: Run, canned: CannedRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHORD_OUTPUT", "table")
    assert "Membership" not in run("status").out
    states = {10: ("on", 7), 42: ("on", 6), 80: ("over", 0)}
    canned.change = lambda point, node: msgspec.structs.replace(
        node, **dict(zip(("membership", "members"), states.get(point, ("off", 0)), strict=True))
    )
    line = "Membership lists: 2 nodes of 7, with 6 to 7 members alive. 1 node dropped the list"
    for command in ("status", "members"):
        assert line in " ".join(run(command).out.split())
    (first, *_) = run("status", "--json").json("status")["nodes"]
    assert (first["membership"], first["members"]) == ("on", 7)


def test_lookup_of_a_key_names_its_id(run: Run, canned: CannedRing) -> None:
    shape = run("lookup", "user:42", "--from", "n2", "--mode", "recursive", "--json").json("lookup")
    assert (shape["key"], shape["mode"]) == ("user:42", "recursive")
    assert int(shape["id"]) == Circle(8).hash(b"user:42")
    (asked,) = canned.nodes[80].requests(Lookup)
    assert asked.mode == "recursive"  # type: ignore[attr-defined]


def test_lookup_from_every_node_prints_a_line_for_each(run: Run) -> None:
    ended = run("lookup", "--key-id", "190", "--all-from")
    assert ended.out.splitlines()[0] == "from\thops\tpath\ttimeouts\tt"
    assert len(ended.out.splitlines()) == 8
    assert len(run("lookup", "k", "--all-from", "--json").json("lookups")["lookups"]) == 7


def test_lookup_from_every_node_survives_a_node_that_fails(run: Run, canned: CannedRing) -> None:
    def failing(point: int, heard: Heard) -> ChordError | None:
        return RemoteFailure("broken") if point == 42 and isinstance(heard.request, Lookup) else None

    canned.override = failing
    ended = run("lookup", "k", "--all-from")
    assert (ended.code, len(ended.out.splitlines()), ended.err) == (0, 7, "n1: broken\n")


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("k", "--key-id", "3"),
        ("--key-id", "x"),
        ("--key-id", "256"),
        ("k", "--all-from", "--from", "n1"),
        ("k", "--from", "nobody"),
        ("k", "--mode", "x"),
    ],
)
def test_invalid_lookup_is_a_usage_error(run: Run, args: tuple[str, ...]) -> None:
    ended = run("lookup", *args)
    assert ended.code == 2
    assert ended.err.startswith("error: ")


def test_unknown_node_gets_a_list_of_known_ones(run: Run) -> None:
    ended = run("fingers", "nobody")
    assert "no node of the ring is called 'nobody'. The nodes are: n0, n1, n2" in ended.err
    assert "Name an unreachable node by its HOST:PORT" in ended.err


def test_leave_of_an_unreachable_node_hints_at_forget(run: Run, canned: CannedRing) -> None:
    canned.nodes[160].die()
    ended = run("leave", canned.addresses[160])
    assert ended.code == 4
    assert f"chord forget {canned.addresses[160]}" in ended.err
    assert "Start one" not in ended.err


def test_hint_names_the_command_that_was_run(run: Run) -> None:
    ended = run("put", "k", "v", "--ttl", "1e12")
    assert ended.code == 2
    assert "at most 315360000 seconds, not 1000000000000.0. See: chord put --help" in ended.err


def test_lookup_names_a_dead_node_as_its_peers_remember_it(run: Run, canned: CannedRing) -> None:
    at = canned.addresses[200]
    canned.nodes[200].die()
    remembered = PeerInfo(at, "dead", None, 0, name="n5")
    canned.change = lambda point, node: msgspec.structs.replace(node, peers=(remembered,))
    shape = run("lookup", "--key-id", "190", "--trace", "--json").json("lookup")
    assert ([one["node"] for one in shape["replicas"]], shape["unreachable"]) == (["n5"], [at])
    assert "replicas  n5 ✗   (N=1)" in run("lookup", "--key-id", "190", "--trace").err
    every = run("lookup", "--key-id", "190", "--all-from", "--json").json("lookups")["lookups"]
    assert [(one["owner"]["node"], one["unreachable"]) for one in every] == [("n5", [at])] * 6


def test_lookup_as_svg_draws_the_ring(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    canned.trace_is_dead = True
    run("lookup", "--key-id", "190", "--svg", str(tmp_path / "path.svg"))
    drawing = ElementTree.parse(tmp_path / "path.svg")
    classes = [str(element.get("class")) for element in drawing.iter()]
    assert sum(kind.startswith("vnode ") for kind in classes) == 3
    assert classes.count("hopnode") == 2
    assert [classes.count(kind) for kind in ("dead", "owner", "hop lost", "hop last")] == [1, 1, 1, 1]
    assert run("ring", "--svg", str(tmp_path / "no" / "ring.svg")).code == 2


# -- the ring -----------------------------------------------------------------------------------------


def test_status_shows_the_ring_and_its_nodes(run: Run) -> None:
    shape = run("status", "--json").json("status")
    assert [node["node"] for node in shape["nodes"]] == [f"n{i}" for i in range(7)]
    assert sum(node["owned"] for node in shape["nodes"]) == pytest.approx(1)
    assert (shape["small"], shape["keys"], shape["nodes"][0]["counters"]["keys_sent"]) == (True, 21, 2)
    lines = run("status").out.splitlines()
    assert lines[0].split("\t") == [
        "node", "address", "id", "state", "owns", "keys", "hints", "under-replicated", "siblings", "damaged",
        "quarantined",
    ]
    assert len(lines) == 8


def test_status_names_unreachable_nodes(run: Run, canned: CannedRing) -> None:
    canned.nodes[160].die()
    ended = run("status")
    assert (ended.code, len(ended.out.splitlines())) == (0, 7)
    assert f"{canned.addresses[160]}: no answer" in ended.err
    assert run("status", "--json").json("status")["unreachable"][0]["error"]["code"] == "unreachable"
    gone = PeerInfo(canned.addresses[160], "left", None, 0)
    canned.change = lambda point, node: msgspec.structs.replace(node, peers=(gone,))
    assert f"{canned.addresses[160]}: has left\n" in run("status").err


def test_members_lists_every_node(run: Run, canned: CannedRing) -> None:
    canned.nodes[160].die()
    shape = run("members", "--json").json("members")
    states = {member["address"]: member["state"] for member in shape["members"]}
    assert states[canned.addresses[160]] == "unreachable"
    assert list(states.values()).count("ready") == 6
    assert len(run("members").out.splitlines()) == 8


def test_ring_lists_every_vnode(run: Run, tmp_path: Path) -> None:
    shape = run("ring", "--json").json("ring")
    assert [vnode["id"] for vnode in shape["vnodes"]] == [str(p) for p in WORKED_IDS]
    assert shape["vnodes"][0]["successors"] == [str(p) for p in WORKED_IDS[1:]]
    assert shape["vnodes"][0]["predecessor"] == "230"
    assert run("ring", "--svg", str(tmp_path / "ring.svg")).out.splitlines()[1].startswith("10\t3.9 %\tn0\t")
    assert (tmp_path / "ring.svg").read_text().count('class="vnode ') == 7


@pytest.mark.parametrize("node", ["80", "0x50", "n2"])
def test_fingers_of_the_worked_example(run: Run, node: str) -> None:
    shape = run("fingers", node, "--json").json("fingers")
    assert [int(f["start"]) for f in shape["fingers"]] == [81, 82, 84, 88, 96, 112, 144, 208]
    assert [int(f["id"]) for f in shape["fingers"]] == [120] * 6 + [160, 230]
    lines = run("fingers", node).out.splitlines()
    assert [line.split("\t")[:3] for line in lines[1:]] == [
        ["0-5", "81 to 112", "120"], ["6", "144", "160"], ["7", "208", "230"]
    ]


def test_fingers_of_an_address_asks_only_there(run: Run, canned: CannedRing) -> None:
    assert run("fingers", canned.addresses[230], "--json").json("fingers")["vnode"]["node"] == "n6"
    assert run("fingers", "--json").json("fingers")["vnode"]["node"] == "n0"


# -- check --------------------------------------------------------------------------------------------


def test_check_of_an_ideal_ring(run: Run) -> None:
    ended = run("check")
    assert ended.code == 0
    assert ended.out == (
        "OK  8 invariants hold on 7 nodes; the ring is Ideal, every point is owned once "
        "(small ring: it tolerates one failure at a time)\n"
    )
    assert run("check", "--json").json("check") == {
        "ideal": True, "small": True, "violations": [], "waiting": [], "unreachable": [], "under_replicated": 0,
        "ok": True, "damaged": [], "unavailable": {"share": 0.0, "nodes": []}, "troubles": [],
        "quarantined": 0, "clocks": [],
    }


def test_check_names_unreachable_nodes_and_missing_copies(run: Run, canned: CannedRing) -> None:
    """The reachable nodes may form an Ideal ring while records lack copies."""
    gone, points = canned.addresses[160], [point for point in canned.addresses if point != 160]
    parted: list[PeerInfo] = []

    def without(point: int, node: Status) -> Status:
        at = points.index(point)
        others = tuple(Contact(Point(p), canned.addresses[p]) for p in (*points[at + 1 :], *points[:at]))
        own = (OwnedArc(others[-1].id, Point(point), 1, "owned", others[-1]),)
        vnode = msgspec.structs.replace(node.vnodes[0], successors=others, predecessor=others[-1], arcs=own)
        known = (Contact(Point(160), gone),)
        return msgspec.structs.replace(node, vnodes=(vnode,), known=known, peers=tuple(parted), under_replicated=2)

    canned.nodes[160].die()
    canned.change = without
    ended = run("check")
    assert ended.code == 0
    assert ended.out.splitlines()[1:] == [
        f"unreachable  {gone} does not answer. If it will never be back: chord forget {gone}",
        "copies  records with a copy on an unreachable node or still to be made: 12",
    ]
    shape = run("check", "--json").json("check")
    assert (shape["ideal"], shape["unreachable"], shape["under_replicated"]) == (True, [gone], 12)
    parted.append(PeerInfo(gone, "left", None, 0))
    assert run("check", "--json").json("check")["unreachable"] == []


def test_check_separates_waiting_from_violation(run: Run, canned: CannedRing) -> None:
    def late(point: int, node: Status) -> Status:
        vnode = node.vnodes[0]
        if point == 80:
            vnode = msgspec.structs.replace(vnode, predecessor=Contact(Point(10), canned.addresses[10]))
        return msgspec.structs.replace(node, vnodes=(vnode,), misplaced=2 if point == 10 else 0)

    canned.change = late
    ended = run("check")
    assert ended.code == 8
    assert "waiting  ExactPredecessor  n2 (80) has n0 (10) as its predecessor, not n1 (42)\n" in ended.out
    assert "waiting  RecordsAtHome  n0 holds 2 records that belong elsewhere\n" in ended.out
    assert run("check", "--invariants").code == 0
    assert run("check", "--json").json("check")["waiting"][-1]["nodes"] == ["n2", "n1"]


def test_check_of_a_split_ring(run: Run, canned: CannedRing) -> None:
    def split(point: int, node: Status) -> Status:
        half = (10, 42, 80) if point in (10, 42, 80) else (120, 160, 200, 230)
        at = half.index(point)
        after = tuple(Contact(Point(p), canned.addresses[p]) for p in (*half[at + 1 :], *half[:at]))
        vnode = msgspec.structs.replace(node.vnodes[0], successors=after, predecessor=after[-1])
        return msgspec.structs.replace(node, vnodes=(vnode,))

    canned.change = split
    ended = run("check", "--invariants")
    assert ended.code == 8
    assert ended.out.startswith("violation  ")
    assert "violation  AtMostOneRing  n0 (10) and 2 others are a ring of their own, apart from n3 (120)'s" in ended.out


def test_check_reports_a_gap_in_ownership(run: Run, canned: CannedRing) -> None:
    def without(point: int, node: Status) -> Status:
        vnode = msgspec.structs.replace(node.vnodes[0], arcs=())
        return msgspec.structs.replace(node, vnodes=(vnode,)) if point == 80 else node

    canned.change = without
    assert "waiting  OwnedOnce  no vnode answers for 2b to 50" in run("check").out


def test_check_reads_changed_nodes_again(run: Run, canned: CannedRing) -> None:
    asked = {"n": 0}

    def settling(point: int, node: Status) -> Status:
        if point == 120:
            asked["n"] += 1
            if asked["n"] < 2:
                return msgspec.structs.replace(node, vnodes=(msgspec.structs.replace(node.vnodes[0], successors=()),))
        return node

    canned.change = settling
    assert run("check").code == 0
    assert asked["n"] == 3, "two passes, and one more read of changed nodes"


def test_check_waits_for_an_ideal_ring(run: Run, canned: CannedRing) -> None:
    asked = {"n": 0}

    def slow(point: int, node: Status) -> Status:
        asked["n"] += point == 10
        return msgspec.structs.replace(node, misplaced=int(asked["n"] < 5 and point == 10))

    canned.change = slow
    assert run("check").code == 8
    asked["n"] = 0
    assert run("check", "--wait", "10").code == 0


# -- control ------------------------------------------------------------------------------------------


def let_n2_leave(canned: CannedRing, *, says_goodbye: bool) -> None:
    """Let n2 hang up after it got the request to leave, with or without a goodbye to the other nodes."""

    def leaving(point: int, heard: Heard) -> Answer:
        is_told = canned.nodes[80].requests(Leave)
        return "hang up" if point == 80 and is_told and isinstance(heard.request, GetStatus) else None

    def having_heard(point: int, node: Status) -> Status:
        if not says_goodbye or not canned.nodes[80].requests(Leave):
            return node
        peers = (PeerInfo(canned.addresses[80], "left", None, 0),)
        return msgspec.structs.replace(node, peers=peers)

    canned.override, canned.change = leaving, having_heard


def test_leave_waits_until_the_node_is_gone(run: Run, canned: CannedRing) -> None:
    let_n2_leave(canned, says_goodbye=True)
    shape = run("leave", "n2", "--json").json("leave")
    assert (shape["node"], shape["address"]) == ("n2", canned.addresses[80])


def test_leave_fails_if_the_node_ends_without_goodbye(run: Run, canned: CannedRing) -> None:
    let_n2_leave(canned, says_goodbye=False)
    ended = run("leave", "n2")
    assert (ended.code, ended.out) == (5, "")
    assert "n2 has ended, but could not leave: no node took its keys" in ended.err


@pytest.mark.parametrize("is_alone", [True, False])
def test_leave_of_the_last_node_needs_force(run: Run, canned: CannedRing, is_alone: bool) -> None:
    """The last node takes its keys along. If its peers are only unreachable, it cannot leave."""
    for point in WORKED_IDS:
        if point != 80:
            canned.nodes[point].die()
    let_n2_leave(canned, says_goodbye=True)

    def alone(point: int, node: Status) -> Status:
        vnode = msgspec.structs.replace(node.vnodes[0], successors=(), predecessors=(), predecessor=None, fingers=())
        return msgspec.structs.replace(node, vnodes=(vnode,), known=(), peers=())

    canned.change = alone if is_alone else lambda point, node: node
    there = canned.addresses[80]
    ended = run("leave", there, "--node", there)
    assert (ended.code, canned.nodes[80].requests(Leave)) == (2, [])
    assert "n2 is the last node that answers. Its data (3 keys) would be lost" in ended.err
    ended = run("leave", there, "--node", there, "--force")
    assert len(canned.nodes[80].requests(Leave)) == 1
    assert (ended.code, "has left" in ended.out) == ((0, True) if is_alone else (5, False))


def test_leave_reports_its_timeout(run: Run, canned: CannedRing, clock: Skipping) -> None:
    def leaves(point: int, heard: Heard) -> None:
        if isinstance(heard.request, Leave):
            clock.skip(2 * HANG_S)

    canned.override = leaves
    ended = run("leave", "n2")
    assert ended.code == 5
    assert "n2 has not left yet. It goes on by itself" in ended.err


def test_kill_sends_the_signal(run: Run, canned: CannedRing) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)  # chord"]) as victim:
        canned.change = lambda point, node: msgspec.structs.replace(node, pid=victim.pid)
        assert f"kill -CONT {victim.pid}" in run("kill", "n3", "--signal", "STOP").err, "a dead node reports no pid"
        shape = run("kill", "n3", "--signal", "KILL", "--json").json("kill")
        assert (shape["pid"], shape["signal"]) == (victim.pid, 9)
        assert victim.wait(HANG_S) == -9
    gone = run("kill", "n3")
    assert gone.code == 2


@pytest.mark.parametrize("pid", [0, 1])
def test_kill_refuses_an_impossible_process_id(run: Run, canned: CannedRing, pid: int) -> None:
    canned.change = lambda point, node: msgspec.structs.replace(node, pid=pid)
    ended = run("kill", "n3")
    assert ended.code == 2
    assert "is not a chord node" in ended.err


def test_kill_does_not_touch_other_programs(run: Run, canned: CannedRing) -> None:
    with subprocess.Popen(["sleep", "60"]) as bystander:
        canned.change = lambda point, node: msgspec.structs.replace(node, pid=bystander.pid)
        assert run("kill", "n3", "--signal", "9").code == 2
        assert bystander.poll() is None
        bystander.kill()


def test_kill_refuses_unknown_signals(run: Run) -> None:
    assert run("kill", "n3", "--signal", "BANG").code == 2


def test_version_names_package_and_protocol(run: Run) -> None:
    assert run("version").out.startswith("chord 0.")
    assert run("version", "--json").json("version")["protocol"] == 1


# -- how everything fails -------------------------------------------------------------------------------


def test_unreachable_entry_node_is_exit_4(run: Run, monkeypatch: pytest.MonkeyPatch, ports: Ports) -> None:
    address = ports.address()
    ended = run("get", "k", "--node", address)
    assert ended.code == 4
    assert ended.err == (
        f"error: no answer from {address} (connection refused). Is a peer running there? "
        f"Start one: chord node --listen {address}\n"
    )
    monkeypatch.setenv("CHORD_NODE", f"{address} {ports.address()}")
    run("get", "k", "--json").failure("unreachable")


@pytest.mark.parametrize("says", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00" * 64, b""])
def test_port_of_another_program_is_exit_4(run: Run, says: bytes, clock: Skipping) -> None:
    """The program answers and is no node. That is an error of the user, not a bug of a node."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    kept.append(connection)
                    connection.sendall(says)
                    if not says:
                        clock.skip(2 * HANG_S)

        kept: list[socket.socket] = []
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        ended = run("get", "k", "--node", address)
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        for connection in kept:
            connection.close()
    assert ended.code == 4
    what = f"the program at {address} is not a chord node" if says else "connected, but received no hello"
    assert what in ended.err


@pytest.mark.parametrize(
    ("error", "code"),
    [(OwnerDown("gone"), 6), (Busy("busy"), 5), (LookupFailed("lost"), 5), (RemoteFailure("bug"), 1),
     (InvalidRequest("bad"), 2)],
)
@pytest.mark.usefixtures("impatient")
def test_error_has_its_exit_code(run: Run, canned: CannedRing, error: ChordError, code: int) -> None:
    canned.override = lambda point, heard: error if isinstance(heard.request, Get) else None
    assert run("get", "k").code == code


@pytest.mark.usefixtures("clock")
def test_timeout_is_exit_5(run: Run, canned: CannedRing) -> None:
    canned.override = lambda point, heard: "say nothing" if isinstance(heard.request, Get) else None
    ended = run("get", "k", "--timeout", str(PATIENCE_S), "--json")
    assert ended.code == 5
    ended.failure("timeout")
    assert SILENCE is None


@pytest.mark.parametrize(
    "args",
    [
        ("nonsense",),
        ("get",),
        ("put", "k"),
        ("get", "k", "--nonsense"),
        ("get", "k", "--node", "x"),
        ("put", "", "v"),
        ("put", "k" * 1025, "v"),
        ("get", "k", "--timeout", "0"),
        ("get", "k", "--timeout", "nan"),
        ("put", "k", "v", "--ttl", "inf"),
        ("sim", "run", "--seeds", "0", "--pause", "inf"),
        ("sim", "run", "--seeds", "0", "--reads", "nan"),
    ],
)
def test_usage_errors_exit_2_and_point_to_help(run: Run, args: tuple[str, ...]) -> None:
    ended = run(*args)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: ")


def test_usage_error_as_json_has_its_schema(run: Run) -> None:
    assert run("get", "--json").code == 2
    run("get", "--json").failure("usage")


def test_unexpected_exception_is_one_line_and_exit_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chord.cli.control.PROTOCOL_VERSION", property())
    monkeypatch.setattr("chord.cli.control.platform", None)
    ended = run("version")
    assert ended.code == 1
    assert "This is a bug" in ended.err
    assert "Traceback" not in ended.err


def test_interrupt_is_exit_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("chord.cli.control.platform.python_version", interrupted)
    assert run("version").code == 130


def test_every_command_has_help(run: Run) -> None:
    top = run("--help").out
    for name in cli.COMMANDS:
        assert f"\n  {name} " in top
        assert "--help" in run(name, "--help").out


def test_help_does_not_import_trio() -> None:
    commands = [["--help"], *([name, "--help"] for name in ("get", "lookup", "check", "node", "up"))]
    code = (
        f"import sys; from chord.cli import run\n"
        f"for args in {commands}: run(args); assert 'trio' not in sys.modules, args"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.count("Usage: ")) == (0, len(commands)), ended.stderr


def test_scan_into_a_closed_pipe_is_no_error(canned: CannedRing) -> None:
    canned.scanned.keys = [f"key{i}".encode() for i in range(500)]
    canned.scanned.page = 100
    command = f"{sys.executable} -m chord scan --node {canned.entry} | head -n 1"
    ended = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (ended.returncode, len(ended.stdout.splitlines()), ended.stderr) == (0, 1, "")
