"""Real processes with data directories that end while they start keep their places in the ring."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import time
from pathlib import Path

import pytest

import chord as library
from tests.support.processes import HANG_S, Peer, Peers, chord, chord_json, ideal

pytestmark = pytest.mark.slow

KEYS = [f"key-{number}" for number in range(20)]


def end_when_it_listens(peer: Peer, address: str, after_s: float) -> int:
    """Send SIGTERM a given time after the port has opened. Return the exit code."""
    host, _, port = address.rpartition(":")
    while peer.process.poll() is None:
        try:
            socket.create_connection((host, int(port))).close()
            break
        except ConnectionRefusedError:
            time.sleep(0.002)
    time.sleep(after_s)
    peer.kill(signal.SIGTERM)
    return peer.ended()


def test_peer_that_ends_while_it_starts_rejoins_next_time(tmp_path: Path) -> None:
    with Peers() as peers:
        ring = peers.ring_on_disks(3, tmp_path)
        with library.connect(ring[0].address, timeout_s=HANG_S) as client:
            for key in KEYS:
                client.put(key, b"v")
        address, data = ring[1].address, str(tmp_path / "1")
        ring[1].kill(signal.SIGTERM)
        ring[1].ended()
        kept = json.loads((tmp_path / "1" / "node.json").read_text())
        assert len(kept["known"]) == 2
        for after_s in (0.0, 0.01):
            end_when_it_listens(peers.start("--data", data, listen=address), address, after_s)
            assert set(json.loads((tmp_path / "1" / "node.json").read_text())["known"]) == set(kept["known"])
        refused = peers.start("--data", data, "--replicas", "2", listen=address)
        assert refused.ended() == 2
        assert "replicas" in refused.errors()
        back = peers.start("--data", data, listen=address).ready()
        with library.connect(back.address, timeout_s=HANG_S) as client:
            assert [client.get(key).value for key in KEYS] == [b"v"] * len(KEYS)
        ideal(address)
        assert len(chord_json("status", node=back.address)["nodes"]) == 3
        assert json.loads((tmp_path / "1" / "node.json").read_text())["ring"] == kept["ring"]


def test_peer_with_a_removed_directory_reports_it_and_stops(tmp_path: Path) -> None:
    """The peer stops at the next change of its persisted state, here a join."""
    with Peers() as peers:
        peer = peers.start("--data", str(tmp_path / "gone"), "--name", "gone").ready()
        shutil.rmtree(tmp_path / "gone")
        peers.start("--join", peer.address)  # the join fails
        assert peer.ended() == 1
        said = peer.errors()
        assert "the data directory of gone is gone; the node stopped" in said
        assert "ERROR in" not in said


def test_peer_reports_a_new_ring_of_its_own(tmp_path: Path) -> None:
    """A peer that left and starts without --join creates a ring. The output must not look like a return."""
    with Peers() as peers:
        first = peers.start("--name", "first").ready()
        data = ("--data", str(tmp_path), "--name", "it")
        peer = None
        for arguments, origin in ((("--join", first.address), "joined"), ((), "resumed")):
            peer = peers.start(*data, *arguments, listen=peer.address if peer else None).ready()
            assert peer.origin == origin
            peer.kill(signal.SIGTERM)
            peer.ended()
        assert peer is not None
        peer = peers.start(*data, listen=peer.address).ready()
        chord("leave", peer.address, node=first.address)
        peer.ended()
        peer = peers.start(*data, listen=peer.address).ready()
        assert peer.origin == "created"
        peer.kill(signal.SIGTERM)
        peer.ended()
