"""Real processes with data directories: what they were told lasts, whatever ends them."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from processes import HANG_S, Peer, Peers, chord_json, eventually, ideal

import chord as library
from chord.data.sqlite_file import ASIDE, FILE_NAME
from chord.errors import ChordError

pytestmark = pytest.mark.slow

DAY_MS = 86_400_000


def write(node: str, numbers: range) -> dict[str, bytes]:
    """Store what is acknowledged, and return it."""
    with library.connect(node) as ring:
        for number in numbers:
            ring.put(f"key-{number}", b"%d" % number)
    return {f"key-{number}": b"%d" % number for number in numbers}


def lost(node: str, expected: dict[str, bytes]) -> list[str]:
    """The keys that are not what they were."""
    with library.connect(node, timeout_s=HANG_S) as ring:
        return [key for key, value in expected.items() if ring.get(key).value != value]


def edit_identity(directory: Path, **fields: Any) -> None:
    path = directory / "node.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def incarnation(directory: Path) -> str:
    return str(json.loads((directory / "node.json").read_text())["incarnation"])


def restart(peers: Peers, peer: Peer, directory: Path, *arguments: str) -> Peer:
    return peers.start("--data", str(directory), *arguments, listen=peer.address).ready()


def test_a_node_killed_in_the_middle_of_writes_has_them_all(tmp_path: Path) -> None:
    with Peers() as peers:
        peer = peers.start("--data", str(tmp_path / "d")).ready()
        expected: dict[str, bytes] = {}
        for life in range(3):
            with library.connect(peer.address) as ring:
                for number in range(100 * life, 100 * life + 60):
                    ring.put(f"key-{number}", b"%d" % number)
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


def test_a_ring_killed_at_once_and_restarted_has_them_all(tmp_path: Path) -> None:
    with Peers() as peers:
        ring = peers.ring_on_disks(4, tmp_path)
        entry = ring[0].address
        expected = write(entry, range(200))
        for peer in peers.killed_at_once(ring, tmp_path):
            peer.ready()
        ideal(entry)
        assert lost(entry, expected) == []


def test_a_node_that_left_starts_empty_and_under_a_new_name(tmp_path: Path) -> None:
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
        assert incarnation(tmp_path / "d") != named
        assert not (tmp_path / "d" / (FILE_NAME + ASIDE)).exists(), "it left with nothing, so there is nothing to keep"


def test_records_without_an_identity_are_refused_and_an_identity_without_records_is_kept(tmp_path: Path) -> None:
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
        assert f"{directory} has records but no node.json that says whose they are" in refused.errors()
        (tmp_path / "node.json").rename(directory / "node.json")
        named = incarnation(directory)
        (directory / FILE_NAME).unlink()
        again = restart(peers, peer, directory)
        assert [v["id"] for v in chord_json("ring", node=again.address)["vnodes"]] == [v["id"] for v in before]
        eventually(lambda: incarnation(directory) != named)
        again.kill(signal.SIGTERM)
        again.ended()
        assert "begins with an empty store: the records of last time are gone" in again.errors()


def test_away_for_too_long_counts_where_the_ring_has_gone_on_and_not_where_all_were_away(tmp_path: Path) -> None:
    long_ago = int(time.time() * 1000) - 2 * DAY_MS
    with Peers() as peers:
        first = peers.start("--data", str(tmp_path / "0")).ready()
        second = peers.start("--join", first.address, "--data", str(tmp_path / "1")).ready()
        ideal(first.address)
        expected = write(first.address, range(60))
        for peer in (first, second):
            peer.kill()
            peer.ended()
        for number in range(2):
            edit_identity(tmp_path / str(number), alive_ms=long_ago)
        names = [incarnation(tmp_path / str(number)) for number in range(2)]
        both = [peers.start("--data", str(tmp_path / str(n)), listen=p.address) for n, p in enumerate((first, second))]
        for peer in both:
            peer.ready()
        ideal(first.address)
        assert lost(first.address, expected) == []
        assert [incarnation(tmp_path / str(number)) for number in range(2)] == names
        both[1].kill()
        both[1].ended()
        edit_identity(tmp_path / "1", alive_ms=long_ago)
        time.sleep(3)
        ids = json.loads((tmp_path / "1" / "node.json").read_text())["vnodes"][0]["id"]
        late = restart(peers, second, tmp_path / "1")
        ideal(first.address)
        assert (tmp_path / "1" / (FILE_NAME + ASIDE)).exists()
        eventually(lambda: incarnation(tmp_path / "1") != names[1])
        assert json.loads((tmp_path / "1" / "node.json").read_text())["vnodes"][0]["id"] == ids
        late.kill(signal.SIGTERM)
        late.ended()
        assert "it was away for too long; the records of last time are set aside" in late.errors()


def test_a_node_whose_disk_fails_stops_with_a_clear_sentence(tmp_path: Path) -> None:
    """A limit on the size of files is the failure that everybody can have."""
    with Peers() as peers:
        peer = peers.start("--data", str(tmp_path / "d")).ready()
        expected = write(peer.address, range(5))
        peer.limit_files(200_000)
        with library.connect(peer.address, timeout_s=5) as ring, pytest.raises(ChordError):
            ring.put("large", bytes(900_000))
        assert peer.ended() == 1
        assert "the disk of" in peer.errors()
        again = restart(peers, peer, tmp_path / "d")
        assert lost(again.address, expected) == []
