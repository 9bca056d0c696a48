"""Real processes with data directories keep their records, however they end."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

import chord as library
from chord.errors import ChordError, NotFound
from chord.store.sqlite_file import FILE_NAME
from tests.support.processes import HANG_S, Peer, Peers, chord_json, eventually, ideal

pytestmark = pytest.mark.slow


def write(node: str, numbers: range) -> dict[str, bytes]:
    """Store values, and return the acknowledged ones."""
    with library.connect(node) as client:
        for number in numbers:
            client.put(f"key-{number}", b"%d" % number)
    return {f"key-{number}": b"%d" % number for number in numbers}


def lost(node: str, expected: dict[str, bytes]) -> list[str]:
    """Return the keys with another value than before."""
    with library.connect(node, timeout_s=HANG_S) as client:
        return [key for key, value in expected.items() if client.get(key).value != value]


def incarnation(directory: Path) -> str:
    return str(json.loads((directory / "node.json").read_text())["incarnation"])


def restart(peers: Peers, peer: Peer, directory: Path, *arguments: str) -> Peer:
    return peers.start("--data", str(directory), *arguments, listen=peer.address).ready()


def test_node_killed_during_writes_keeps_every_record(tmp_path: Path) -> None:
    with Peers() as peers:
        peer = peers.start("--data", str(tmp_path / "d")).ready()
        expected: dict[str, bytes] = {}
        for life in range(3):
            with library.connect(peer.address) as client:
                for number in range(100 * life, 100 * life + 60):
                    client.put(f"key-{number}", b"%d" % number)
                    expected[f"key-{number}"] = b"%d" % number
            peer.kill()
            peer.ended()
            peer = restart(peers, peer, tmp_path / "d")
            assert lost(peer.address, expected) == []
        named = incarnation(tmp_path / "d")
        peer.kill(signal.SIGTERM)
        assert peer.ended() == 0
        peer = restart(peers, peer, tmp_path / "d")
        assert lost(peer.address, expected) == []
        assert incarnation(tmp_path / "d") == named


def test_ring_killed_at_once_keeps_every_record(tmp_path: Path) -> None:
    with Peers() as peers:
        ring = peers.ring_on_disks(4, tmp_path)
        entry = ring[0].address
        expected = write(entry, range(200))
        for peer in peers.killed_at_once(ring, tmp_path):
            peer.ready()
        ideal(entry)
        assert lost(entry, expected) == []


def test_node_that_left_starts_empty(tmp_path: Path) -> None:
    with Peers() as peers:
        ring = peers.ring(2)
        peer = peers.start("--join", ring[0].address, "--data", str(tmp_path / "d")).ready()
        ideal(ring[0].address)
        expected = write(ring[0].address, range(60))
        named = incarnation(tmp_path / "d")
        chord_json("leave", peer.address, node=ring[0].address)
        assert peer.ended() == 0
        assert lost(ring[0].address, expected) == []
        again = restart(peers, peer, tmp_path / "d", "--join", ring[0].address)
        ideal(ring[0].address)
        assert lost(again.address, expected) == []
        assert incarnation(tmp_path / "d") == named


def test_records_need_an_identity_and_an_identity_no_records(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    with Peers() as peers:
        peer = peers.start("--data", str(directory)).ready()
        write(peer.address, range(5))
        before = chord_json("ring", node=peer.address)["vnodes"]
        peer.kill(signal.SIGTERM)
        peer.ended()
        (directory / "node.json").rename(tmp_path / "node.json")
        refused = peers.start("--data", str(directory))
        assert refused.ended() == 2
        assert f"{directory} has records but no node.json to name their node" in refused.errors()
        (tmp_path / "node.json").rename(directory / "node.json")
        named = incarnation(directory)
        (directory / FILE_NAME).unlink()
        again = restart(peers, peer, directory)
        assert [v["id"] for v in chord_json("ring", node=again.address)["vnodes"]] == [v["id"] for v in before]
        eventually(lambda: incarnation(directory) != named)
        again.kill(signal.SIGTERM)
        again.ended()
        assert "starts with an empty store: its previous records are gone" in again.errors()


def reaped(node: str) -> int:
    """Return the number of reaped keys in a ring."""
    return sum(one["counters"].get("keys_reaped", 0) for one in chord_json("status", node=node)["nodes"])


def check(node: str, expected: dict[str, bytes], deleted: list[str]) -> None:
    """Check that written keys are present and deleted keys are absent."""
    assert lost(node, expected) == []
    with library.connect(node, timeout_s=HANG_S) as client:
        for key in deleted:
            with pytest.raises(NotFound):
                client.get(key)


def test_node_away_while_tombstones_are_reaped_revives_nothing(tmp_path: Path) -> None:
    """The node misses writes and deletes, and returns after the tombstones are reaped. Then all restart."""
    config = tmp_path / "chord.toml"
    config.write_text("[timing]\ngrace_s = 2\nanti_entropy_s = 1\n")
    with Peers() as peers:
        ring = [peers.start("--config", str(config), "--data", str(tmp_path / "0")).ready()]
        for number in (1, 2):
            arguments = ("--config", str(config), "--join", ring[0].address, "--data", str(tmp_path / str(number)))
            ring.append(peers.start(*arguments).ready())
        ideal(ring[0].address)
        expected = write(ring[0].address, range(60))
        away, entry = ring[2], ring[0].address
        names = [incarnation(tmp_path / str(number)) for number in range(3)]
        away.kill()
        away.ended()
        deleted = list(expected)[:20]
        with library.connect(entry, timeout_s=HANG_S) as client:
            for key in deleted:
                client.delete(key)
                del expected[key]
            for key in list(expected)[:20]:
                client.put(key, b"newer")
                expected[key] = b"newer"
        eventually(lambda: reaped(entry) > 0)
        back = restart(peers, away, tmp_path / "2", "--config", str(config))
        ideal(entry)
        check(back.address, expected, deleted)
        check(entry, expected, deleted)
        running = [*ring[:2], back]
        for peer in running:
            peer.kill()
            peer.ended()
        assert [incarnation(tmp_path / str(number)) for number in range(3)] == names
        again = [
            peers.start("--config", str(config), "--data", str(tmp_path / str(number)), listen=peer.address)
            for number, peer in enumerate(running)
        ]
        for peer in again:
            peer.ready()
        ideal(entry)
        check(entry, expected, deleted)
        assert [incarnation(tmp_path / str(number)) for number in range(3)] == names
        assert list(tmp_path.glob("*/*.aside")) == []


def test_node_with_a_failing_disk_stops_with_a_clear_error(tmp_path: Path) -> None:
    """A limit on the size of files makes writes fail on every machine."""
    with Peers() as peers:
        peer = peers.start("--data", str(tmp_path / "d")).ready()
        expected = write(peer.address, range(5))
        peer.limit_files(200_000)
        with library.connect(peer.address, timeout_s=5) as client, pytest.raises(ChordError):
            client.put("large", bytes(900_000))
        assert peer.ended() == 1
        assert "the disk of" in peer.errors()
        again = restart(peers, peer, tmp_path / "d")
        assert lost(again.address, expected) == []
