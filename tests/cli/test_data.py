"""On the command line: contexts, siblings, quorums, and what each replica did."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chord.cli.output import Failure, Out
from chord.cli.target import choose
from chord.cli.trace import print_replicas
from chord.client.results import Stored
from chord.errors import ChordError, OwnerDown, QuorumFailed, TooFewReplicas, WritesRefused
from chord.ids import Circle, Point
from chord.wire.messages import Contact, Get, OwnedArc, Put, ReplicaLine, Status, VnodeInfo
from tests.support.cli import CannedRing, Run
from tests.support.ports import Ports
from tests.support.statuses import contact, statuses


def the_put(canned: CannedRing) -> Any:
    """The one put the ring got."""
    (put,) = canned.nodes[10].requests(Put)
    return put


@pytest.fixture
def traced(canned: CannedRing) -> CannedRing:
    """A ring that reports three replicas in its traces: one ok, one stale, one unreachable."""
    canned.lines = (
        ReplicaLine(Contact(Point(80), canned.addresses[80]), "ok", True, None, b"\x01" * 16),
        ReplicaLine(Contact(Point(120), canned.addresses[120]), "stale", True, 0.42, b"\x02" * 16),
        ReplicaLine(Contact(Point(160), canned.addresses[160]), "timeout", False),
    )
    return canned


# -- contexts and siblings ----------------------------------------------------------------------------


def test_put_sends_the_context_or_none(run: Run, canned: CannedRing) -> None:
    run("put", "k", "v")
    assert the_put(canned).context is None, "without a context, the coordinator reads a quorum"
    canned.nodes[10].heard.clear()
    run("put", "k", "w", "--no-context")
    assert the_put(canned).context == b""
    assert canned.values[b"k"] == (b"v", b"w")
    assert run("put", "k", "v", "--no-context", "--context", "AA==").code == 2


def test_context_goes_through_a_file(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    canned.values[b"k"] = (b"a", b"b")
    context = tmp_path / "context"
    assert run("get", "k", "--all", "--context", str(context)).code == 0
    assert run("put", "k", "both", "--context", f"@{context}").code == 0
    assert the_put(canned).context == b"context"
    assert run("del", "k", "--context", context.read_text().strip()).code == 0
    missing = run("put", "k", "v", "--context", f"@{tmp_path / 'none'}")
    assert (missing.code, "cannot open" in missing.err) == (2, True)
    context.write_text("\n")
    heard = len(canned.nodes[10].requests(Put))
    for empty in ("", " ", f"@{context}", "@/dev/null"):
        for command in (("put", "k", "v"), ("del", "k")):
            ended = run(*command, "--context", empty)
            assert (ended.code, "the context is empty" in ended.err) == (2, True)
    assert len(canned.nodes[10].requests(Put)) == heard, "an empty context is refused: use --no-context"
    context.write_text("é")
    assert run("put", "k", "v", "--context", f"@{context}").code == 2


def test_read_of_an_absent_key_empties_the_context_file(run: Run, tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.write_text("b2xkZXI=")
    assert run("get", "nothing", "--context", str(context)).code == 3
    assert context.read_text() == ""


def test_siblings_are_exit_7_unless_all_are_wanted(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    canned.values[b"k"] = (b"one", b"two")
    ended = run("get", "k")
    assert (ended.code, ended.out) == (7, "one\ntwo\n")
    assert "chord put KEY VALUE --context @FILE" in ended.err
    welcome = run("get", "k", "--all")
    assert (welcome.code, welcome.out, welcome.err) == (0, "one\ntwo\n", "")
    assert run("get", "k", "--all", "--json").code == 0
    assert run("get", "k", "-o", str(tmp_path / "out")).code == 7
    assert not (tmp_path / "out").exists(), "a file cannot hold two values"
    assert run("get", "k", "--all", "-o", str(tmp_path / "out")).code == 2


def test_last_writer_option_returns_one_value(run: Run, canned: CannedRing) -> None:
    canned.values[b"k"] = (b"one", b"two")
    ended = run("get", "k", "--last-writer")
    assert (ended.code, ended.out) == (0, "two")
    assert len(run("get", "k", "--last-writer", "--json").json("get")["values"]) == 1


# -- quorums and traces -------------------------------------------------------------------------------


def test_quorum_strict_and_ttl_options_are_sent(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    run("put", "k", "v", "--w", "3", "--no-sloppy", "--ttl", "1.5")
    put = the_put(canned)
    assert (put.w, put.strict, put.ttl_ms) == (3, True, 1500)
    run("get", "k", "--r", "1")
    assert [get.r for get in canned.nodes[10].requests(Get)] == [1]  # type: ignore[attr-defined]
    canned.nodes[10].heard.clear()
    (tmp_path / "lines").write_text("word\n")
    run("load", str(tmp_path / "lines"), "--w", "1", "--ttl", "9")
    assert (the_put(canned).w, the_put(canned).ttl_ms) == (1, 9000)
    for wrong in (("--w", "0"), ("--w", "17"), ("--ttl", "0")):
        assert run("put", "k", "v", *wrong).code == 2


def test_put_as_json_shows_how_the_quorum_was_met(run: Run, traced: CannedRing) -> None:
    shape = run("put", "k", "v", "--json").json("put")
    assert (shape["w"], shape["w_needed"], shape["sloppy"], shape["trace"]) == (2, 2, True, None)
    trace = run("put", "k", "v", "--json", "--trace").json("put")["trace"]
    assert [(line["node"], line["outcome"], line["counted"]) for line in trace["replicas"]] == [
        ("n2", "ok", True), ("n3", "stale", True), ("n4", "timeout", False)
    ]
    assert (trace["replicas"][1]["version"], trace["replicas"][1]["rtt_ms"]) == ("02" * 16, 0.42)
    assert (trace["replicas"][2]["version"], trace["replicas"][2]["rtt_ms"]) == (None, None)
    assert trace["coordinator"]["node"] == "n2"


def test_put_with_trace_prints_every_replica(run: Run, traced: CannedRing) -> None:
    lines = run("put", "k", "v", "--trace").out.splitlines()
    assert lines[0].split("\t") == ["replica", "address", "id", "outcome", "counts", "version", "rtt"]
    assert [line.split("\t")[3:5] for line in lines[1:]] == [["ok", "W"], ["stale", "W"], ["timeout", ""]]
    assert run("del", "k", "--trace").out.splitlines()[0] == lines[0]


def test_get_with_local_says_that_the_value_may_be_old(run: Run, canned: CannedRing) -> None:
    canned.values[b"k"] = (b"v",)
    ended = run("get", "k", "--local")
    assert (ended.code, ended.out) == (0, "v")
    assert "read its own copy, so the value may be old" in ended.err
    assert run("get", "k", "--local", "--json").json("get")["local"]
    assert not run("get", "k", "--json").json("get")["local"]
    for option in (("--r", "1"), ("--trace",), ("--inspect",)):
        assert run("get", "k", "--local", *option).code == 2


def test_get_with_trace_leaves_stdout_to_the_value(run: Run, traced: CannedRing) -> None:
    traced.values[b"k"] = (b"v",)
    ended = run("get", "k", "--trace")
    assert ended.out == "v"
    assert "n3\t" in ended.err
    assert "R: 2 of 2   coordinated by n2" in ended.err
    assert len(run("get", "k", "--trace", "--json").json("get")["trace"]["replicas"]) == 3


def test_replica_trace_on_a_terminal_is_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHORD_OUTPUT", "table")
    monkeypatch.setenv("COLUMNS", "100")
    lines = (
        ReplicaLine(contact(80), "ok", True, None, bytes(range(16))),
        ReplicaLine(contact(120), "hinted for n4", True, 1.0, bytes(range(16))),
    )
    names = {node.address: node.name for node in statuses()}
    print_replicas(Out(), Circle(8), Stored(b"k", b"", contact(80), 2, 2, True, lines), names, 1.25)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "replica  address         id   outcome        counts  version       rtt",
        "n2       127.0.0.1:9002  80   ok             W       00010203        -",
        "n3       127.0.0.1:9003  120  hinted for n4  W       00010203  1.00 ms",
        "W: 2 of 2, some of them stand-ins for unreachable replicas (sloppy)   coordinated by n2   1.2 ms",
    ]


@pytest.mark.parametrize("error", [
    QuorumFailed("1 of 2 replicas"), TooFewReplicas("there are 2 nodes, not 3", after_ms=20), OwnerDown("n4 is down")
])
@pytest.mark.usefixtures("impatient")
def test_too_few_replicas_are_exit_6(run: Run, canned: CannedRing, error: ChordError) -> None:
    canned.override = lambda point, heard: error if isinstance(heard.request, Put) else None
    ended = run("put", "k", "v")
    assert (ended.code, error.message in ended.err) == (6, True)
    hint = "Bring it back" if isinstance(error, OwnerDown) else "See which nodes are down or refuse writes"
    assert hint in ended.err


# -- load and scan ------------------------------------------------------------------------------------


def test_load_from_a_pipe_stores_lines_before_a_bad_one(
    run: Run, canned: CannedRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe can be read once: lines before a bad one are stored, and the error says so."""
    lines = b"".join(b"key%d\tv\n" % i for i in range(1030)) + b"{bad\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    ended = run("load", "-")
    assert (ended.code, len(canned.values)) == (2, 1024), "two whole batches of 512"
    assert "stdin, line 1031" in ended.err
    assert "1024 keys were stored before that line" in ended.err


def test_load_of_a_directory_says_nothing_of_a_line(run: Run, tmp_path: Path) -> None:
    ended = run("load", str(tmp_path))
    said = f"error: cannot open {tmp_path} (is a directory). Name a file that can be read or written\n"
    assert (ended.code, ended.err) == (2, said)


@pytest.mark.parametrize("line", ['{"key":' * 100_000, '{"key": "k", "value": "v", "value_b64": "AA=="}'])
def test_load_refuses_a_file_with_an_invalid_line(run: Run, canned: CannedRing, tmp_path: Path, line: str) -> None:
    (tmp_path / "lines").write_text(f"word\n{line}\n")
    ended = run("load", str(tmp_path / "lines"))
    assert (ended.code, canned.values) == (2, {})
    assert "lines, line 2: " in ended.err
    assert "Nothing of the file is stored" in ended.err


@pytest.mark.usefixtures("impatient")
def test_load_counts_writes_that_may_be_stored(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    failing = {b"2": WritesRefused("no room"), b"3": QuorumFailed("1 of 2"), b"4": WritesRefused("no room")}
    canned.override = lambda point, heard: failing.get(getattr(heard.request, "key", b""))
    (tmp_path / "lines").write_text("".join(f"{i}\n" for i in range(10)))
    ended = run("load", str(tmp_path / "lines"))
    assert "3 of 10 keys are not known to be stored (1 may be)" in ended.err
    assert "not known to be stored: '3': 1 of 2" in ended.err
    assert "not stored: '2': no room" in ended.err


@pytest.mark.usefixtures("impatient")
def test_load_gives_up_if_every_put_fails(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    canned.override = lambda point, heard: QuorumFailed("1 of 2") if isinstance(heard.request, Put) else None
    (tmp_path / "lines").write_text("".join(f"{i}\n" for i in range(1000)))
    ended = run("load", str(tmp_path / "lines"))
    assert ended.code == 6
    assert "512 of 512 keys are not known to be stored; the rest was not tried" in ended.err
    assert "not known to be stored: '0': 1 of 2" in ended.err
    assert run("load", str(tmp_path / "lines"), "--json").json("load")["complete"] is False


def test_scan_with_replicas_survives_a_dead_node(run: Run, canned: CannedRing, ports: Ports) -> None:
    def taken(point: int, node: Status) -> Status:
        arc = OwnedArc(Point(60), Point(70), 2, "taken_over", Contact(Point(70), ports.address()))
        vnode: VnodeInfo = msgspec.structs.replace(node.vnodes[0], arcs=(*node.vnodes[0].arcs, arc))
        return msgspec.structs.replace(node, vnodes=(vnode,), replicas=3)

    canned.change = taken
    assert run("scan").code == 0


# -- which node is meant ------------------------------------------------------------------------------


def test_name_of_several_nodes_is_ambiguous() -> None:
    nodes = [msgspec.structs.replace(node, name="b") for node in statuses()[:2]] + [*statuses()[2:]]
    with pytest.raises(Failure, match="2 nodes of the ring are called 'b'") as raised:
        choose("b", nodes)
    assert raised.value.hint == f"Name one by its address: {', '.join(sorted(node.address for node in nodes[:2]))}"
    assert choose(nodes[1].address, nodes).node is nodes[1]
    named = msgspec.structs.replace(nodes[2], name=nodes[2].address)
    assert choose(named.name, [*nodes[:2], named]).node is named, "a unique name is accepted"


def test_shortened_id_is_accepted_as_a_node() -> None:
    nodes = [
        msgspec.structs.replace(node, bits=160, vnodes=(msgspec.structs.replace(
            node.vnodes[0], contact=msgspec.structs.replace(node.vnodes[0].contact, id=Point(point << 80 | 0xC21D))
        ),))
        for node, point in zip(statuses(), (0xABC1 << 64, 0xABC2 << 64, 0x1234 << 64), strict=False)
    ]
    assert choose("1234…c21d", nodes).node.name == "n2"
    assert choose("1234...C21D", nodes).node.name == "n2"
    assert choose("0xabc1", nodes).node.name == "n0"
    assert choose("abc2…", nodes).vnode == nodes[1].vnodes[0]
    with pytest.raises(Failure, match="begins more than one id") as raised:
        choose("abc", nodes)
    assert "it fits n0, n1" in raised.value.hint
    for word in ("ab", "1234…0000", "", "…", "…c21d"):
        with pytest.raises(Failure, match="no node of the ring is called"):
            choose(word, nodes)
