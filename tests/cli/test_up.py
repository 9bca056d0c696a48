"""`chord up` and `chord node` as processes: how they start and end, and their messages."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from chord.cli import up
from chord.cli.output import Failure, Out
from chord.client.blocking import connect
from chord.config import RingConstants
from chord.ids import Point
from chord.store.identity import Kept, KeptVnode, encode_kept
from tests.support.clocks import PATIENCE_S, Skipping
from tests.support.fake_node import FakeNode
from tests.support.ports import Ports
from tests.support.real_rings import (
    CHORD,
    HANG_S,
    HEALED_S,
    Running,
    chord_command,
    environment,
    interruptible,
    is_alive,
    ring_of,
    running,
)
from tests.support.schemas import check_shape
from tests.support.statuses import statuses

pytestmark = pytest.mark.slow


def eventually(condition: Callable[[], bool], within_s: float = HEALED_S) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def ring() -> Running:
    """A ring of four that tests do not change."""
    with ring_of(4) as found:
        yield found


def test_ready_line_has_its_schema(ring: Running) -> None:
    check_shape("up", ring.ready)
    assert [node["name"] for node in ring.nodes] == ["n0", "n1", "n2", "n3"]
    assert all(is_alive(node["pid"]) for node in ring.nodes)


def test_ring_is_ideal_after_the_ready_line(ring: Running) -> None:
    ended = ring("check", "--wait", str(HEALED_S), "--json")  # a busy machine makes peers look silent
    assert ended.code == 0, ended.out
    check_shape("check", ended.json)


def test_vnode_ids_are_hashes_of_addresses(ring: Running) -> None:
    vnodes = ring("ring", "--json").json["vnodes"]
    check_shape("ring", ring("ring", "--json").json)
    for vnode in vnodes:
        assert vnode["id_hex"] == hashlib.sha1(vnode["address"].encode()).hexdigest()
    assert [int(v["id"]) for v in vnodes] == sorted(int(v["id"]) for v in vnodes)


@pytest.mark.parametrize(
    ("args", "shape"),
    [
        (("put", "k", "v"), "put"),
        (("get", "k"), "get"),
        (("get", "missing"), "get"),
        (("lookup", "k"), "lookup"),
        (("lookup", "k", "--mode", "recursive", "--from", "n2"), "lookup"),
        (("lookup", "k", "--mode", "successor", "--from", "n3"), "lookup"),
        (("lookup", "k", "--all-from"), "lookups"),
        (("status",), "status"),
        (("members",), "members"),
        (("fingers", "n1"), "fingers"),
        (("del", "k"), "put"),
    ],
)
def test_json_of_a_real_ring_has_its_schema(ring: Running, args: tuple[str, ...], shape: str) -> None:
    check_shape(shape, ring(*args, "--json").json)


def test_one_shot_command_loads_neither_trio_nor_rich(ring: Running) -> None:
    code = (
        "import sys; from chord.cli import run; code = run(['get', 'missing']); "
        "sys.exit(code != 3 or 'trio' in sys.modules or 'rich' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], env=environment(ring.entry), check=True, capture_output=True)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_process_of_a_node_has_its_name(ring: Running) -> None:
    names = [Path(f"/proc/{node['pid']}/comm").read_text().strip() for node in ring.nodes]
    assert names == [f"chord {node['name']}" for node in ring.nodes]


def test_every_node_serves_as_entry_node(ring: Running) -> None:
    assert ring("put", "from", "anywhere").code == 0
    for node in ring.nodes:
        assert chord_command("get", "from", entry=node["address"]).out == "anywhere"


def test_second_entry_node_is_used_if_the_first_hangs(ring: Running, clock: Skipping) -> None:
    assert ring("put", "from", "anywhere").code == 0
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def take_and_say_nothing() -> None:
            with silent.accept()[0]:
                clock.skip()
                is_over.wait()

        is_over = threading.Event()
        thread = threading.Thread(target=take_and_say_nothing)
        thread.start()
        nobody = f"127.0.0.1:{silent.getsockname()[1]}"
        try:
            with connect(nobody, ring.entry, timeout_s=2 * PATIENCE_S) as client:
                assert (client.entry, client.get("from").value) == (ring.entry, b"anywhere")
        finally:
            is_over.set()
            thread.join()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_ended_parent_leaves_no_child(how: signal.Signals) -> None:
    with ring_of(3) as family:
        code = family.stop(how)
        assert code == {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 0}[how]
        eventually(lambda: not any(is_alive(node["pid"]) for node in family.nodes))


def test_ctrl_c_to_the_whole_group_ends_in_order(ports: Ports) -> None:
    """At a terminal, Ctrl-C is sent to parent and children at once."""
    port = ports.row(3)
    with subprocess.Popen(
        [*CHORD, "up", "-n", "3", "--base-port", str(port)], env=environment(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(f"ready: 3 peers on 127.0.0.1:{port}-{port + 2}, ring proven in ")
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=HANG_S)
        said = "interrupted; the peers are stopped; their records were in memory and are gone\n"
        assert (process.returncode, errors) == (130, said)


def test_dead_child_is_reported_and_not_restarted() -> None:
    with ring_of(3) as family:
        assert family("leave", "n2").code == 0
        os.kill(family.nodes[1]["pid"], signal.SIGKILL)
        eventually(lambda: not is_alive(family.nodes[1]["pid"]) and not is_alive(family.nodes[2]["pid"]))
        assert family.process.stderr is not None
        awaited = {
            f"n1 {family.nodes[1]['address']} died (signal 9); it is not restarted",
            f"n2 {family.nodes[2]['address']} has left",
        }
        while awaited:  # until both lines are there
            line = family.process.stderr.readline()
            assert line, awaited
            awaited = {words for words in awaited if words not in line}
        family.stop()


def test_parent_ends_after_its_last_child() -> None:
    with ring_of(2) as family:
        for node in family.nodes:
            os.kill(node["pid"], signal.SIGKILL)
        assert family.process.wait(HANG_S) == 0


def test_check_watches_until_ctrl_c() -> None:
    with ring_of(3) as family, interruptible(), subprocess.Popen(
        [*CHORD, "check", "--watch"], env=environment(family.entry), stdout=subprocess.PIPE, text=True
    ) as watcher:
        assert watcher.stdout is not None
        while not (line := watcher.stdout.readline()).startswith("OK  8 invariants hold on 3 nodes; the ring is Ideal"):
            assert line.startswith("unavailable  "), "the replicas of a new ring may still be compared"
        family.level()
        os.kill(family.nodes[2]["pid"], signal.SIGKILL)
        while not (line := watcher.stdout.readline()).startswith("OK  8 invariants hold on 2 nodes"):
            is_unreachable = line.startswith(f"unreachable  n2 {family.nodes[2]['address']} does not answer")
            assert is_unreachable or line.startswith(("waiting  ", "unavailable  "))
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(HANG_S) == 130


@pytest.mark.slow
def test_up_join_enlarges_a_ring() -> None:
    with ring_of(2) as first, ring_of(2, "--join", first.entry) as second:
        assert [node["name"] for node in second.nodes] == ["n2", "n3"], "no name is given twice"
        assert len(first("ring", "--json").json["vnodes"]) == 4


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)])
def test_peers_of_up_join_leave_without_losing_records(how: signal.Signals, tmp_path: Path) -> None:
    """Newcomers that only stopped would take records along: some are only in the memory of three of them."""
    (tmp_path / "keys").write_text("".join(f"key-{number}\tvalue\n" for number in range(300)))
    with ring_of(3) as first:
        with ring_of(4, "--join", first.entry) as second:
            assert first("load", str(tmp_path / "keys")).code == 0
            assert second.stop(how) == (130 if how == signal.SIGINT else 0)
            assert second.process.stderr is not None
            assert second.process.stderr.read().count(" has left") == 4
        assert len(first("scan").out.splitlines()) == 300
        members = first("members", "--json").json["members"]
        assert sorted(member["state"] for member in members if member["state"] != "left") == ["ready"] * 3


def test_ring_with_data_restarts_with_its_ids(tmp_path: Path, ports: Ports) -> None:
    arguments = ("up", "-n", "3", "--base-port", str(ports.row(3)), "--data", str(tmp_path))
    with running(*arguments) as before:
        ring_id = before("status", "--json").json["ring"]
        vnodes = [v["id"] for v in before("ring", "--json").json["vnodes"]]
        before.stop()
    with running(*arguments) as after:
        assert after("status", "--json").json["ring"] == ring_id
        assert [v["id"] for v in after("ring", "--json").json["vnodes"]] == vnodes


@pytest.mark.slow
def test_worked_example_runs_as_processes(ports: Ports) -> None:
    with running(
        "up", "--bits", "8", "--ids", "10,42,80,120,160,200,230", "--base-port", str(ports.row(7))
    ) as family:

        def fingers() -> list[int]:
            return [int(finger["id"]) for finger in family("fingers", "80", "--json").json["fingers"]]

        eventually(lambda: fingers() == [120] * 6 + [160, 230])
        trace = family("lookup", "--key-id", "190", "--from", "80", "--json").json
        assert [hop["id"] for hop in trace["hops"]] == ["80", "160"]
        assert trace["owner"]["id"] == "200"


@pytest.mark.slow
def test_sixteen_peers_are_ready_and_checked_in_time() -> None:
    with ring_of(16) as family:
        assert 0 < family.ready["seconds"] < up.PATIENCE_S
        assert family("check", "--wait", str(HEALED_S)).code == 0


# -- which ports ------------------------------------------------------------------------------------------


def test_busy_default_ports_are_skipped_with_a_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        monkeypatch.setattr(up, "BASE_PORT", port)
        monkeypatch.setattr(up, "_is_ring", lambda port: False)
        first = up._choose_ports(Out(), 3, None, is_joining=False)
        assert first > port
        said = capsys.readouterr().err
        assert said == f"port {port} is in use; using {first} and up: export CHORD_NODE=127.0.0.1:{first}\n"
        with pytest.raises(Failure, match=f"port {port} is in use"):
            up._choose_ports(Out(), 3, port, is_joining=False)


def test_up_refuses_the_ports_of_a_running_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(FakeNode(lambda heard: statuses()[0])) as node:
        port = int(node.address.rpartition(":")[2])
        monkeypatch.setattr(up, "BASE_PORT", port)
        with pytest.raises(Failure, match=f"a ring is running at {node.address} already") as caught:
            up._choose_ports(Out(), 2, None, is_joining=False)
        assert f"chord up --join {node.address}" in caught.value.hint
        assert up._choose_ports(Out(), 2, None, is_joining=True) > port


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("-n", "3", "--ids", "1,2", "--bits", "8"), "2 ids for 3 peers"),
        (("--ids", "1,x", "--bits", "8"), "'x' is neither a decimal number nor 0xHEX"),
        (("-n", "0"), "'-n'"),
        (("--ids", "300", "--bits", "8"), "not on a circle of 8 bits"),
        (("--ids", "7,7", "--bits", "8"), "7 appears twice"),
        (("--join", "nonsense"), "expected HOST:PORT"),
        (("--join", "DEAD"), "connection refused"),
        (("-n", "2", "--vnodes", "2", "--ids", "1,2"), "one vnode"),
    ],
)
def test_up_that_cannot_start_names_the_reason(args: tuple[str, ...], words: str, ports: Ports) -> None:
    words_given = [ports.address() if word == "DEAD" else word for word in args]
    ended = chord_command("up", "--base-port", str(ports.row(3)), *words_given)
    assert ended.code in (2, 4)
    assert words in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ({"bits": 8}, "belongs to a ring of 8 bits, not 160; start the node with that value"),
        ({"replicas": 5}, "belongs to a ring with replicas = 5, not 3; start the node with that value"),
        ({"version": 7}, "has format 7; expected 1"),
    ],
)
def test_up_with_constants_unlike_its_data_names_the_directory(
    kept: dict[str, Any], words: str, tmp_path: Path, ports: Ports
) -> None:
    port = ports.row(3)
    vnode = KeptVnode(Point(7), None, 1, None, (), (), (), (), ())
    constants = RingConstants()
    before = Kept(
        1, 160, "00" * 16, f"127.0.0.1:{port}", (vnode,), (), False, "0a" * 8, (),
        constants.successors, constants.replicas, constants.cluster, (), (),
    )  # fmt: skip
    (tmp_path / "n0").mkdir()
    content = encode_kept(msgspec.structs.replace(before, **kept))
    (tmp_path / "n0" / "node.json").write_bytes(content)
    ended = chord_command("up", "-n", "3", "--base-port", str(port), "--data", str(tmp_path))
    assert ended.code == 2
    assert f"{tmp_path}/n0" in ended.err
    assert words in ended.err
    assert ended.err.count("error:") == 1
    assert [path.name for path in tmp_path.rglob("*")] == ["n0", "node.json"]
    assert (tmp_path / "n0" / "node.json").read_bytes() == content


def test_ids_of_up_may_be_hexadecimal() -> None:
    (ids,) = (option for option in up.up_command.params if option.name == "ids")
    with click.Context(up.up_command) as context:
        assert up._parse_ids(context, ids, "1,0x10") == [1, 16]


def test_up_ignores_a_chord_toml_in_its_directory(tmp_path: Path, ports: Ports) -> None:
    """The file configures one node: eight nodes cannot listen at one address."""
    (tmp_path / "chord.toml").write_text('listen = "127.0.0.1:1"\njoin = ["127.0.0.1:2"]\n')
    port = ports.row(1)
    with subprocess.Popen(
        [*CHORD, "up", "-n", "1", "--base-port", str(port)], env=environment(), cwd=tmp_path, stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready: 1 peer on ")
        process.terminate()


# -- one node -----------------------------------------------------------------------------------------------


def test_ready_line_of_a_node_has_its_schema() -> None:
    with running("node", "--preset", "local", "--name", "ada") as node:
        check_shape("node", node.ready)
        assert (node.ready["name"], node.ready["pid"]) == ("ada", node.process.pid)
        assert node("check").code == 0
        assert node.stop() == 0


def test_node_reads_its_variables_and_its_file(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text('preset = "local"\n[ring]\nbits = 16\ncluster = "toy"\n')
    environ = {**environment(), "CHORD_NAME": "grace", "CHORD_CONFIG": str(tmp_path / "node.toml")}
    command = [*CHORD, "node", "--id", "0x1234"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
    assert line.startswith("ready: grace 127.0.0.1:")
    assert line.endswith(f", created a ring of its own, id {0x1234}\n")


@pytest.mark.slow
def test_node_names_its_way_of_joining_and_its_files_are_private(tmp_path: Path, ports: Ports) -> None:
    def first_line(*args: str) -> str:
        command = [*CHORD, "node", "--preset", "local", "--name", "grace", *args]
        with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            process.terminate()
        return line

    with running("node", "--preset", "local", "--name", "ada") as ada:
        own = ("--data", str(tmp_path / "grace"), "--listen", ports.address())
        for how in ("joined the ring", "resumed its place"):
            assert f", {how}, id " in first_line("--join", ada.entry, *own)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "grace").iterdir()}
    assert {"node.json", "records.sqlite"} <= set(modes)
    assert set(modes.values()) == {0o600}
    assert (tmp_path / "grace").stat().st_mode & 0o777 == 0o700


def test_node_with_an_unusable_data_directory_is_exit_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = chord_command("node", "--data", str(tmp_path / "file" / "d"))
    assert ended.code == 2
    assert "error: cannot use" in ended.err
    assert "Traceback" not in ended.err


def test_unknown_configuration_keys_are_refused(tmp_path: Path) -> None:
    (tmp_path / "chord.toml").write_text("stablize = 1\n")
    ended = chord_command("node", cwd=tmp_path)
    assert ended.code == 2
    assert "stablize" in ended.err
