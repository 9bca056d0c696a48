"""Rings of real processes: real input, joins, leaves, kills, and mistakes of a user."""

from __future__ import annotations

import hashlib
import random
import signal
import socket
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler

import pytest

import chord as library
from chord.errors import NotFound
from tests.support.ports import Ports
from tests.support.processes import HANG_S, Peers, chord, chord_json, eventually, ideal

pytestmark = pytest.mark.slow

WORKED_EXAMPLE = (10, 42, 80, 120, 160, 200, 230)


def sha1(text: str | bytes) -> int:
    """The first 160 bits of SHA-1, computed here and nowhere else."""
    return int.from_bytes(hashlib.sha1(text.encode() if isinstance(text, str) else text).digest(), "big")


def test_worked_example_runs_as_processes() -> None:
    with Peers() as peers:
        first = peers.start("--bits", "8", "--id", "10").ready()
        for point in WORKED_EXAMPLE[1:]:
            peers.start("--bits", "8", "--id", str(point), "--join", first.address).ready()
        ideal(first.address)

        def hops() -> list[str]:
            trace = chord_json("lookup", "--key-id", "190", "--from", "80", "--trace", node=first.address)
            return [hop["id"] for hop in trace["hops"]] + [trace["owner"]["id"]]

        def fingers() -> list[tuple[int, str, str]]:
            found = chord_json("fingers", "80", node=first.address)["fingers"]
            return [(finger["i"], finger["start"], finger["id"]) for finger in found]

        right = [(i, str(80 + 2**i), str(point)) for i, point in enumerate([120] * 6 + [160, 230])]
        eventually(lambda: hops() == ["80", "160", "200"])
        eventually(lambda: fingers() == right)  # an Ideal ring may still have old fingers


@pytest.mark.thorough
def test_sixteen_peers_own_ten_thousand_keys_as_computed(tmp_path: Path) -> None:
    with Peers() as peers:
        ring = peers.ring(16)
        members = chord_json("ring", node=ring[0].address)["vnodes"]
        assert {int(v["id"]) for v in members} == {sha1(peer.address) for peer in ring}, "ids are SHA-1 of host:port"
        source = tmp_path / "keys.jsonl"
        source.write_text("".join(f'{{"key": "key-{i}", "value": "{i}"}}\n' for i in range(10_000)))
        chord("load", str(source), "--timeout", "60", node=ring[0].address)
        points = sorted(sha1(peer.address) for peer in ring)
        expected = dict.fromkeys(points, 0)
        for number in range(10_000):
            place = bisect_left(points, sha1(f"key-{number}"))
            expected[points[place % 16]] += 1
        with library.connect(ring[3].address) as client:
            held = {}
            for peer in ring:
                node = client.status(peer.address)
                held[int(node.vnodes[0].contact.id)] = node.vnodes[0].keys  # the keys that it owns
            assert held == expected
            paths = []
            for number in range(400):
                trace = client.lookup(f"key-{number}", from_=ring[number % 16].address)
                assert int(trace.owner.id) == points[bisect_left(points, sha1(f"key-{number}")) % 16]
                paths.append(trace.path_length)
        assert sum(paths) / len(paths) <= 0.5 * 4 + 0.3


def test_clients_lose_nothing_while_four_join_and_three_leave() -> None:
    with Peers() as peers:
        ring = peers.ring(8)
        stop = threading.Event()
        trouble: list[str] = []
        done = [0]
        stored: dict[str, bytes] = {}

        def client(number: int) -> None:
            rng = random.Random(number)
            mine: dict[str, bytes] = {}
            with library.connect(ring[0].address, ring[1].address, timeout_s=HANG_S) as store:
                while not stop.is_set():
                    key = f"c{number}-{rng.randrange(50)}"
                    if key not in mine or rng.random() < 0.4:
                        value = rng.randbytes(20)
                        store.put(key, value)
                        mine[key] = value
                    else:
                        try:
                            if store.get(key).value != mine[key]:
                                trouble.append(f"{key}: another value")
                        except NotFound:
                            trouble.append(f"{key}: not found")
                    done[0] += 1
            stored.update(mine)

        threads = [threading.Thread(target=client, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(1)
        joiners = [peers.start("--join", ring[0].address) for _ in range(4)]
        for peer in joiners:
            peer.ready()
        leavers = ring[5:8]
        for peer in leavers:
            peer.kill(signal.SIGTERM)
        for peer in leavers:
            assert peer.ended() == 0
        while done[0] <= 100 and not trouble:
            time.sleep(0.05)
        stop.set()
        for thread in threads:
            thread.join()
        assert trouble == []
        ideal(ring[0].address)
        with library.connect(ring[0].address) as store:
            for key, value in stored.items():
                assert store.get(key).value == value
            nodes = [store.status(peer.address) for peer in [*ring[:5], *joiners]]
        assert sum(vnode.keys for node in nodes for vnode in node.vnodes) == len(stored)
        assert all(node.misplaced == 0 for node in nodes)


def test_ring_of_sixteen_survives_a_kill() -> None:
    with Peers() as peers:
        ring = peers.ring(16)
        points = {sha1(peer.address): peer for peer in ring}
        order = sorted(points)

        def owner_of(key: str) -> int:
            return order[bisect_left(order, sha1(key)) % 16]

        victim = ring[7]
        keys = [f"key-{i}" for i in range(400)]
        with library.connect(ring[0].address, timeout_s=HANG_S) as store:
            for key in keys:
                store.put(key, key)
            victim.kill()
            for key in keys:
                if owner_of(key) != sha1(victim.address):
                    assert store.get(key).value == key.encode()
            ideal(ring[0].address)
            for key in keys:  # two other nodes have the keys of a dead one
                assert store.get(key).value == key.encode()


def test_stopped_peer_keeps_its_id_and_its_place(tmp_path: Path) -> None:
    """SIGTERM stops a peer with a data directory. The others route around it until it restarts in its place."""
    with Peers() as peers:
        ring = peers.ring(3)
        kept = peers.start("--join", ring[0].address, "--data", str(tmp_path / "d")).ready()
        ideal(ring[0].address)
        kept.kill(signal.SIGTERM)
        assert kept.ended() == 0
        again = peers.start("--data", str(tmp_path / "d"), listen=kept.address).ready()
        assert again.address == kept.address
        ideal(ring[0].address)
        second = peers.start("--data", str(tmp_path / "d"))
        assert second.ended() == 2
        assert "another node is running on" in second.errors()


def test_killed_peers_restart_one_alone_and_all_at_once(tmp_path: Path) -> None:
    with Peers() as peers:
        ring = peers.ring_on_disks(5, tmp_path)
        ring[2].kill()
        ring[2].ended()
        ring[2] = peers.start("--data", str(tmp_path / "2"), listen=ring[2].address).ready()
        ideal(ring[0].address)
        again = peers.killed_at_once(ring, tmp_path)
        for peer in again:
            peer.ready()
        chord("put", "a", "1", node=again[0].address)
        ideal(again[0].address)
        assert len(chord_json("ring", node=again[0].address)["vnodes"]) == 5


def test_frozen_peer_returns_to_its_ring() -> None:
    with Peers() as peers:
        ring = peers.ring(6)
        ring[3].kill(signal.SIGSTOP)
        time.sleep(4)
        ideal(ring[0].address)
        ring[3].kill(signal.SIGCONT)
        eventually(lambda: len(chord_json("ring", node=ring[0].address)["vnodes"]) == 6)
        ideal(ring[0].address)


def test_peer_that_may_not_start_is_exit_2_with_the_reason() -> None:
    with Peers() as peers:
        first = peers.start("--bits", "16", "--id", "100", "--cluster", "one").ready()
        cases = {
            ("--listen", first.address): "cannot listen on",
            ("--join", first.address, "--bits", "16", "--cluster", "two"): "cluster",
            ("--join", first.address, "--bits", "32", "--cluster", "one"): "bits",
            ("--join", first.address, "--bits", "16", "--cluster", "one", "--successors", "3"): "successors",
            ("--join", first.address, "--bits", "16", "--cluster", "one", "--id", "100"): "already stands at id 100",
            ("--id", "70000", "--bits", "16"): "not on a circle of 16 bits",
            ("--join", "nonsense"): "HOST:PORT",
        }
        started = {case: peers.start(*case) for case in cases}
        for case, sentence in cases.items():
            assert started[case].ended() == 2, case
            assert sentence in started[case].errors(), case
        chord("check", node=first.address)


def test_peer_waits_for_an_unreachable_contact() -> None:
    with Ports() as ports, Peers() as peers:
        waiting = peers.start("--join", ports.address())
        assert waiting.process.stderr is not None
        while "goes on trying" not in (line := waiting.process.stderr.readline()):
            assert line, "the peer has ended"
        assert waiting.process.poll() is None
        waiting.kill(signal.SIGTERM)
        assert waiting.ended() == 128 + signal.SIGTERM, "the peer was not in the ring"


def test_peer_names_a_contact_that_is_another_program() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, Peers() as peers:

        def answer() -> None:
            while True:
                try:
                    connection = other.accept()[0]
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        waiting = peers.start("--join", f"127.0.0.1:{other.getsockname()[1]}")
        assert waiting.process.stderr is not None
        while "goes on trying" not in (line := waiting.process.stderr.readline()):
            assert line, "the peer has ended"
        waiting.kill(signal.SIGTERM)
        waiting.ended()
        other.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert "what listens there does not answer as a node of this ring (unknown kind of frame: 72)" in line


@pytest.mark.parametrize("is_http", [True, False], ids=["HTTP server", "silent listener"])
def test_peer_names_a_contact_that_says_nothing(is_http: bool) -> None:
    """An HTTP server waits for a blank line, which our hello does not have."""
    with contact_without_hello(is_http) as contact, Peers() as peers:
        waiting = peers.start("--join", contact)
        assert waiting.process.stderr is not None
        while "no answer yet" in (line := waiting.process.stderr.readline()):
            pass
        waiting.kill(signal.SIGTERM)
        assert waiting.ended() == 128 + signal.SIGTERM, "the peer was not in the ring"
        assert f"({contact}: connected, but received no hello within 5 s). Does --join name a node of the ring?" in line
        assert chord("up", "-n", "2", "--join", contact, expect=4) == (
            f"error: no answer from {contact} (connected, but received no hello). Another program may have that port, "
            "or the node hangs. Check what listens there, or name another: --join\n"
        )


def test_nodes_of_one_name_are_told_apart_by_address() -> None:
    with Peers() as peers:
        first = peers.start("--name", "twin").ready()
        second = peers.start("--name", "twin", "--join", first.address).ready()
        ideal(first.address)
        for command in ("leave", "kill"):
            said = chord(command, "twin", node=first.address, expect=2)
            at = ", ".join(sorted((first.address, second.address)))
            assert said == f"error: 2 nodes of the ring are called 'twin'. Name one by its address: {at}\n"
        second.kill(signal.SIGSTOP)
        try:
            said = chord("kill", "twin", "--signal", "9", node=first.address, expect=2)
            assert "2 nodes of the ring are called 'twin'" in said, "the other twin must not get the signal"
        finally:
            second.kill(signal.SIGCONT)
        chord("leave", second.address, node=first.address)
        assert second.ended() == 0


class PatientHandler(StreamRequestHandler):
    """Answers a request after its blank line. A hello has random bytes, and so perhaps the end of a line."""

    def handle(self) -> None:
        received = b""
        while b"\r\n\r\n" not in received:
            if not (more := self.request.recv(4096)):
                return
            received += more
        self.wfile.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@contextmanager
def contact_without_hello(is_http: bool) -> Iterator[str]:
    """Run a program that accepts connections and sends no hello; yield its address."""
    if not is_http:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            yield f"127.0.0.1:{silent.getsockname()[1]}"
            return
    with ThreadingHTTPServer(("127.0.0.1", 0), PatientHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_hostile_bytes_do_not_harm_a_node() -> None:
    rng = random.Random(1)
    with Peers() as peers:
        peer = peers.start().ready()
        host, port = peer.address.split(":")
        chord("put", "k", "v", node=peer.address)
        for number in range(60):
            with socket.create_connection((host, int(port)), timeout=HANG_S) as stream:
                shape = number % 4
                if shape == 0:
                    stream.sendall(rng.randbytes(rng.randrange(1, 400)))
                elif shape == 1:
                    stream.sendall(b"\x01\xff\xff\xff" + bytes(1000))
                elif shape == 2:
                    stream.sendall(b"\x01\x00\x10\x00" + b"\x81" * 4096)
                else:
                    stream.sendall(b"\x01\x00")
        assert chord("get", "k", node=peer.address).strip() == "v"
        big = "x" * (2 << 20)
        assert "at most 1.0 MiB" in chord("put", "big", "-", node=peer.address, expect=2, stdin=big)
        chord("put", "", "v", node=peer.address, expect=2)
        chord("put", "k" * 1025, "v", node=peer.address, expect=2)
        assert chord("get", "k", node=peer.address).strip() == "v"
        peer.kill(signal.SIGTERM)
        assert peer.ended() == 0
        assert "Traceback" not in peer.errors()
