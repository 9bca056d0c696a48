"""Errors name the failure, the expected value and a next step that fits."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio

import chord
from chord import config
from chord.cli import serve, up
from chord.cli.failures import explain
from chord.cli.output import Failure, counted
from chord.cli.settings import node_config
from chord.client.blocking import HELLO_S
from chord.client.sockets import Link
from chord.config import Limits, NodeConfig
from chord.errors import ConfigError, PeerUnreachable, WritesRefused
from chord.ids import Point
from chord.node import Node
from chord.store.identity import Kept, KeptVnode, decode_kept, encode_kept
from chord.testing import MemoryNetwork
from chord.testing import run as virtually
from chord.wire.codec import encode_refusal
from chord.wire.cuts import CutNumber
from chord.wire.messages import Get, Status
from tests.support.cli import CannedRing, Run
from tests.support.fake_node import FakeNode, Heard
from tests.support.ports import UNUSED
from tests.support.real_rings import HANG_S
from tests.support.statuses import statuses


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("gett",), "No such command 'gett'. Did you mean get? See: chord --help"),
        (("xyzzy",), "No such command 'xyzzy'. See: chord --help"),
        (("lab", "compar"), "No such command 'compar'. Did you mean compare? See: chord lab --help"),
        (
            ("put", "temp", "-5"),
            "No such option '-5'. To pass a value that begins with -, write -- before it: chord put -- KEY VALUE. "
            "See: chord put --help",
        ),
        (
            ("--node", "127.0.0.1:9000", "get", "k"),
            "No such option '--node'. Write the option after the command: chord get KEY --node. See: chord get --help",
        ),
        (("lab", "--json", "compare"), "Write the option after the command: chord lab compare --json. See: chord lab"),
        (("--nodes", "get", "k"), "No such option '--nodes'. See: chord --help"),
        (("put", "k", "v", "--ttl", "5m"), "Invalid value for '--ttl': '5m' is not a valid number of seconds."),
        (("put", "", "v"), "the key is empty; a key has 1 to 1024 bytes. See: chord put --help"),
        (("put", "k" * 1025, "v"), "the key has 1025 bytes; a key has 1 to 1024 bytes. See: chord put --help"),
        (("up", "--replicas", "5", "--successors", "1"), "See: chord up --help"),
        (
            ("get", "k", "--node", "http://127.0.0.1:9200/x"),
            "invalid address 'http://127.0.0.1:9200/x': expected HOST:PORT. Leave http:// out: 127.0.0.1:9200",
        ),
        (
            ("get", "k", "--node", "http://127.0.0.1"),
            "Leave http:// out, and write host and port, like 127.0.0.1:9000",
        ),
        (("get", "k", "--node"), "Option '--node' requires an argument. See: chord get --help"),
        (("lab", "compare", "--keys"), "Option '--keys' requires an argument. See: chord lab compare --help"),
        (
            ("get", "k", "--node", "127.0.0.1:9000,127.0.0.1:9001"),
            "expected HOST:PORT with a valid host name. Repeat the option for each address; CHORD_NODE has spaces",
        ),
        (
            ("node", "--join", "user@host:9000"),
            "invalid address 'user@host:9000': expected HOST:PORT with a valid host name",
        ),
    ],
)
def test_misuse_is_exit_2_with_a_next_step(run: Run, args: tuple[str, ...], said: str) -> None:
    ended = run(*args)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert said in ended.err


def test_misspelt_option_is_not_taken_for_a_value(run: Run) -> None:
    ended = run("put", "k", "v", "--no-contex")
    assert "--no-contex" in ended.err
    assert "write -- before it" not in ended.err


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "a-b.example", "bücher.example", "my_host"])
def test_valid_host_is_accepted(host: str) -> None:
    assert config.split_address(f"{host}:9000")[1] == 9000


def test_unknown_host_gets_no_hint_to_start_a_node(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object, **__: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    ended = run("get", "k", "--node", "no.such.host.invalid:9000")
    assert (ended.code, "Check the name" in ended.err, "Start one" in ended.err) == (4, True, False)


def test_deadline_shorter_than_the_handshake_is_exit_5(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        ended = run("get", "k", "--node", address, "--timeout", "0.001")
        assert (ended.code, f"no answer from {address} within 0.001 s" in ended.err) == (5, True)
        assert run("get", "k", "--node", address, "--timeout", str(HELLO_S)).code == 4
    ended = run("get", "k", "--node", UNUSED, "--timeout", "0.001")
    assert (ended.code, "connection refused" in ended.err) == (4, True), "a refused connection is not a timeout"


def test_full_disk_gets_a_hint_for_room_and_not_for_a_restart() -> None:
    failure = explain(WritesRefused("n1 127.0.0.1:9001 takes no writes: the disk is full"), "127.0.0.1:9000")
    assert (failure.exit_code, "Make room" in failure.hint, "start it again" in failure.hint) == (6, True, False)


def test_up_join_names_an_unreachable_node() -> None:
    address = UNUSED
    with pytest.raises(Failure) as caught:
        up._existing(address)
    assert (caught.value.exit_code, caught.value.hint.endswith(f"--listen {address}")) == (4, True)


@pytest.mark.parametrize("name", ["bits", "successors", "replicas"])
def test_up_join_with_another_constant_names_both_values(run: Run, canned: CannedRing, name: str) -> None:
    has = getattr(statuses()[0], name)
    ended = run("up", "--join", canned.entry, f"--{name}", str(has + 2))
    said = f"{canned.entry} has {name} {has}, --{name} asks for {has + 2}. All nodes of a ring have the same {name}"
    assert (ended.code, said in ended.err) == (2, True), ended.err


def test_up_join_adopts_the_constants_of_the_ring() -> None:
    ring = statuses()[0]
    flags = {"bits": ring.bits, "successors": None, "replicas": None}
    taken = {"bits": ring.bits, "successors": ring.successors, "replicas": ring.replicas, "cluster": ring.cluster}
    assert up._constants_of(ring, "127.0.0.1:9000", flags) == taken


# -- addresses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (OSError(errno.EADDRINUSE, "x"), "Is another node there? See: chord status --node 127.0.0.1:1"),
        (OSError(errno.EADDRNOTAVAIL, "x"), "It is not an address of this machine."),
        (OSError(errno.EACCES, "x"), "Ports below 1024 are reserved."),
        (socket.gaierror(socket.EAI_NONAME, "x"), "No host has this name."),
    ],
)
def test_listen_error_has_a_hint_for_its_cause(error: OSError, hint: str) -> None:
    assert serve._hint_to_listen(NodeConfig(listen="127.0.0.1:1"), error).startswith(hint)


def test_up_on_a_reserved_port_prints_the_error_of_node(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    ended = run("up", "-n", "2", "--base-port", "80")
    said = "cannot listen on 127.0.0.1:80 (permission denied). Ports below 1024 are reserved. Choose a higher"
    assert (ended.code, said in ended.err) == (2, True), ended.err


async def test_listen_error_names_the_address_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(OSError, match=f"cannot listen on {address}: ") as caught:
            async with chord.open_node(listen=address):
                pass
    assert caught.value.errno == errno.EADDRINUSE


async def test_wrong_advertised_address_is_named_as_the_cause() -> None:
    wrong, contact = UNUSED, "127.0.0.1:1"
    joining = NodeConfig(listen="127.0.0.1:0", advertise=wrong, join=(contact,))
    why = await serve._why_not_ready(joining, "127.0.0.1:9", {})
    assert why == f"(the advertised address {wrong} does not lead to this node: connection refused)"
    plain = NodeConfig(listen="127.0.0.1:0", join=(contact, "127.0.0.1:2"))
    why = await serve._why_not_ready(plain, "127.0.0.1:9", {contact: "connection refused"})
    assert why == "(127.0.0.1:1: connection refused; 127.0.0.1:2: no answer yet). Does --join name a node of the ring?"
    assert await serve._why_not_ready(NodeConfig(listen="127.0.0.1:0"), "127.0.0.1:9", {}) == "(resuming)"


async def test_joining_node_repeats_why_it_is_not_ready(
    autojump_clock: trio.testing.MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    class Joining:
        config, name, address = NodeConfig(join=("127.0.0.1:1",)), "n7", "127.0.0.1:7"

        async def ready(self) -> None:
            await trio.sleep_until(began + 23)

    began = trio.current_time()
    await serve._until_ready(Joining(), {"127.0.0.1:1": "connection refused"})  # type: ignore[arg-type]
    assert capsys.readouterr().err.splitlines() == [
        f"n7 is not in the ring yet after {seconds} s and goes on trying (127.0.0.1:1: connection refused). "
        "Does --join name a node of the ring?"
        for seconds in (2, 12, 22)
    ]


# -- configuration ----------------------------------------------------------------------------------------------


def test_mistake_in_a_file_names_the_file_and_the_nearest_key(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"

    def said(text: str, **flags: Any) -> str:
        file.write_text(text)
        with pytest.raises(Failure) as caught:
            node_config(flags, file, {})
        return caught.value.message

    assert said('listn = "x"') == f"{file}: unknown key listn; did you mean listen?"
    near = "unknown key stabilise_s in [timing]; did you mean stabilize_s?"
    assert said("[timing]\nstabilise_s = 1.0") == f"{file}: {near}"
    assert "unknown key zzz; expected one of listen, advertise" in said("zzz = 1")
    assert said('vnodes = "two"') == f"{file}: vnodes: expected a whole number, got a string"
    assert said('[ring]\nbits = "x"') == f"{file}: bits in [ring]: expected a whole number, got a string"
    assert said('name = "ada"', vnodes=0).startswith("vnodes must be"), "a flag is not the file's mistake"


def test_negative_epoch_in_node_json_is_damage() -> None:
    vnode = KeptVnode(Point(1), None, -3, None, (), (), (), (), ())
    kept = Kept(1, 8, None, "a:1", (vnode,), (), False, "0a" * 8, (), 8, 3, "chord", (), ())
    with pytest.raises(ConfigError, match=r"node\.json is damaged .*>= 0.*epoch"):
        decode_kept(encode_kept(kept), "node.json")


# -- load, and counts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["k1,v1", "k1;v1"])
def test_load_refuses_csv(run: Run, canned: CannedRing, tmp_path: Path, line: str) -> None:
    file = tmp_path / "keys.csv"
    file.write_text(f"{line}\n")
    ended = run("load", str(file))
    assert (ended.code, canned.values) == (2, {})
    assert "line 1: it looks like CSV, which `load` does not read" in ended.err
    assert run("load", str(file), "--words").code == 0
    assert canned.values == {line.encode(): (line.encode(),)}
    file.write_text("a,b\tc,d\n")
    assert run("load", str(file)).code == 0
    assert canned.values[b"a,b"] == (b"c,d",), "with a tab a comma is a comma"


def test_load_of_a_line_with_a_space_and_no_tab_is_refused(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("k1 v1\n")
    ended = run("load", str(file))
    assert (ended.code, canned.values) == (2, {})
    assert "line 1: it has a space but no tab" in ended.err
    assert run("load", str(file), "--words").code == 0
    assert canned.values == {b"k1 v1": (b"k1 v1",)}
    file.write_text("a b\tc d\n")
    assert run("load", str(file)).code == 0
    assert canned.values[b"a b"] == (b"c d",)


def test_port_of_another_program_gets_no_hint_to_start_a_node(run: Run) -> None:
    def hang_up(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                server.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0)) as closing:
        thread = threading.Thread(target=hang_up, args=(closing,), daemon=True)
        thread.start()
        ended = run("get", "k", "--node", f"127.0.0.1:{closing.getsockname()[1]}")
        closing.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert ended.code == 4
    assert "Another program may have that port, or the node hangs." in ended.err
    assert "Start one" not in ended.err


def test_program_without_a_handshake_counts_as_another_program() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        link = Link(address, "control", Limits(), CutNumber())
        link.dial()
        link.send_hello(time.monotonic() + HANG_S)
        with pytest.raises(PeerUnreachable, match="connected, but received no hello") as caught:
            link.receive_hello(time.monotonic())
    hint = explain(caught.value, address).hint
    assert hint.startswith("Another program may have that port")
    assert hint.endswith("or name another: --node")
    assert explain(caught.value, address, option="--join").hint.endswith("or name another: --join")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("get", "k", "--node", "127.0.0.1:0"), "no node listens on port 0. Name the port"),
        (("node", "--join", "127.0.0.1:0"), "no node listens on port 0. Name the port"),
        (("up", "-n", "2", "--bits", "8", "--ids", "1,1"), "1 appears twice; each peer needs a point of its own"),
    ],
)
def test_invalid_port_or_id_is_named(run: Run, args: tuple[str, ...], said: str) -> None:
    ended = run(*args)
    assert (ended.code, said in ended.err) == (2, True), ended.err


@pytest.mark.parametrize("args", [("status",), ("leave", "@")])
def test_node_without_descriptors_names_the_cause_itself(run: Run, args: tuple[str, ...]) -> None:
    """The node runs, so no hint may advise to start or to forget it."""
    with socket.create_server(("127.0.0.1", 0)) as scarce:
        address = f"127.0.0.1:{scarce.getsockname()[1]}"

        def turn_away() -> None:
            connection = scarce.accept()[0]
            with connection:
                connection.sendall(encode_refusal(PeerUnreachable(f"{address}: no descriptor is left")))
                connection.shutdown(socket.SHUT_WR)
                connection.recv(4096)

        thread = threading.Thread(target=turn_away)
        thread.start()
        ended = run(*(address if arg == "@" else arg for arg in args), "--node", address)
        thread.join()
    assert (ended.code, "no descriptor is left. Give that node the missing" in ended.err) == (4, True), ended.err


@pytest.mark.parametrize("command", ["check", "status", "members"])
def test_client_without_descriptors_blames_its_own_limit(
    run: Run, canned: CannedRing, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The nodes are well, so no hint may advise to forget them."""
    made, real = count(), socket.socket

    def second_fails(*args: Any, **kwargs: Any) -> socket.socket:
        if next(made):
            raise OSError(errno.EMFILE, "Too many open files")
        return real(*args, **kwargs)

    scarce = SimpleNamespace(**{**vars(socket), "socket": second_fails})
    monkeypatch.setattr("chord.client.sockets.socket", scarce)
    ended = run(command)
    assert (ended.code, ended.out) == (4, "")
    assert "this process has run out of file descriptors; its limit is" in ended.err
    assert "ulimit -n 1024" in ended.err
    assert "forget" not in ended.err


def test_node_with_a_hung_disk_is_not_said_to_be_down(run: Run, canned: CannedRing) -> None:
    hung = PeerUnreachable("the disk of this node does not answer")
    canned.override = lambda point, heard: hung if isinstance(heard.request, Get) else None
    ended = run("get", "k", "--timeout", "0.2")
    assert (ended.code, "does not answer. Give that node the missing" in ended.err) == (4, True), ended.err


def test_counts_have_the_right_grammatical_number(
    run: Run, canned: CannedRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [counted(n, "key") for n in (0, 1, 2)] == ["0 keys", "1 key", "2 keys"]
    monkeypatch.setenv("CHORD_OUTPUT", "table")
    assert "0 keys" in run("scan").err
    canned.change = lambda point, node: msgspec.structs.replace(node, misplaced=int(point == 10))
    assert "1 record on the way to the right nodes" in run("status").out


def test_ring_of_one_node_is_said_to_tolerate_no_failure(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(heard: Heard) -> Status:
        return statuses((42,), addresses={42: lone.address})[0]

    monkeypatch.setenv("CHORD_OUTPUT", "table")
    with contextlib.closing(FakeNode(answer)) as lone:
        said = [run(command, "--node", lone.address).out for command in ("check", "status")]
    assert all("it tolerates no failure" in text for text in said), said


def test_siblings_with_a_file_leave_stdout_empty(run: Run, canned: CannedRing, tmp_path: Path) -> None:
    canned.values[b"k"] = (b"one", b"two")
    ended = run("get", "k", "-o", str(tmp_path / "value"))
    assert (ended.code, ended.out) == (7, "")


def test_node_without_a_name_is_printed_by_its_address_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def serve_(config: NodeConfig, on_ready: Callable[[Any, str], None]) -> int:
        on_ready(SimpleNamespace(config=config, name="a:1", address="a:1", contacts=()), "joined the ring")
        return 0

    monkeypatch.setattr(serve, "serve", serve_)
    assert run("node").out == "ready: a:1, joined the ring, id \n"


async def test_reachability_check_tells_a_node_from_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serve, "REACH_S", HANG_S)
    async with chord.open_node(preset="local") as node:
        assert await serve._unreachable(node.address) == ""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            with monkeypatch.context() as patched:
                patched.setattr(serve, "REACH_S", 0.02)
                assert await serve._unreachable(address) == "no answer in 0.02 s"
    with contextlib.closing(FakeNode(lambda heard: statuses()[0])) as other:
        assert await serve._unreachable(other.address) == "n0 answers there"


def test_node_with_its_own_address_as_contact_reports_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        connect = MemoryNetwork(1)._connector("n0")
        monkeypatch.setattr(serve, "Node", lambda config, world: Node(config, world._replace(connect=connect)))
        ready = trio.Event()
        config = NodeConfig(listen="n0:1", join=("n0:1",), preset="local")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve._live, config, lambda node, how: ready.set(), None)
            await ready.wait()
            nursery.cancel_scope.cancel()

    virtually(main, seed=1)
    assert capsys.readouterr().err == "n0:1 was given no address to join except its own\n"
