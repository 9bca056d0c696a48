"""The how-to on quarantine, with real processes: a node comes back with a value that no other node vouches for."""

from __future__ import annotations

from pathlib import Path

import pytest

import chord as library
from chord.errors import NotFound
from tests.real.test_records_that_last import reaped
from tests.support.processes import HANG_S, Peer, Peers, chord_json, eventually, ideal

pytestmark = pytest.mark.slow

CONFIG = """
[timing]
grace_s = 2
anti_entropy_s = 1

[limits]
reap_log_entries = 1
reap_log_entries_max = 1
"""
KEY, OTHER = "user:42", "user:1304"
"""Two keys of one slice: a log of one entry forgets the first delete when the second is reaped."""

OVERWRITES = 20
"""More overwrites than a record remembers, so that no operation id decides about the first value."""


def returned(peers: Peers, directory: Path) -> tuple[Peer, Peer]:
    """Let a node miss overwrites and a delete that the others reap and trim. Return an entry node and it."""
    config = directory / "chord.toml"
    config.write_text(CONFIG)
    ring = [peers.start("--config", str(config), "--data", str(directory / "0")).ready()]
    for number in (1, 2):
        arguments = ("--config", str(config), "--join", ring[0].address, "--data", str(directory / str(number)))
        ring.append(peers.start(*arguments).ready())
    entry, away = ring[0], ring[2]
    ideal(entry.address)
    with library.connect(entry.address, timeout_s=HANG_S) as client:
        for key in (KEY, OTHER):
            client.put(key, "Ada", w=3)
        away.kill()
        away.ended()
        for number in range(OVERWRITES):
            client.put(KEY, f"Ada {number}")
        for count, key in enumerate((KEY, OTHER), 1):
            client.delete(key)
            eventually(lambda count=count: reaped(entry.address) == count)  # type: ignore[misc]
    arguments = ("--config", str(config), "--data", str(directory / "2"))
    back = peers.start(*arguments, listen=away.address).ready()
    with library.connect(entry.address, timeout_s=HANG_S) as client:
        # On all members: the next test kills the returned node, which may own the key.
        eventually(lambda: [copy.quarantined for copy in client.inspect(KEY).copies] == [1, 1, 1])
    assert chord_json("status", node=entry.address)["quarantined"] == 1
    return entry, back


def test_quarantined_value_of_a_process_is_listed_and_merged(tmp_path: Path) -> None:
    with Peers() as peers:
        entry, back = returned(peers, tmp_path)
        (value,) = chord_json("quarantine", "list", node=back.address)["values"]
        assert value["value"]["text"] == "Ada"
        assert value["origin"]["node"] is not None
        with library.connect(entry.address, timeout_s=HANG_S) as client:
            with pytest.raises(NotFound) as caught:
                client.get(KEY)
            assert caught.value.quarantined == 1
            assert chord_json("quarantine", "merge", KEY, node=entry.address)["values"] == 1
            assert client.get(KEY).values == (b"Ada",)
            assert list(client.scan_quarantine()) == []
        back.kill()
        back.ended()
        assert "brought back 1 value that no other node vouches for" in back.errors()


def test_dropped_quarantine_stays_dropped_after_a_restart(tmp_path: Path) -> None:
    with Peers() as peers:
        entry, back = returned(peers, tmp_path)
        back.kill()
        back.ended()
        assert chord_json("quarantine", "drop", KEY, node=entry.address)["values"] == 1
        arguments = ("--config", str(tmp_path / "chord.toml"), "--data", str(tmp_path / "2"))
        again = peers.start(*arguments, listen=back.address).ready()
        ideal(entry.address)
        eventually(lambda: chord_json("status", node=again.address)["quarantined"] == 0)
        with library.connect(again.address, timeout_s=HANG_S) as client:
            assert list(client.scan_quarantine()) == []
            with pytest.raises(NotFound):
                client.get(KEY)
