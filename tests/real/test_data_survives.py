"""Real processes with data directories survive kills, disk faults and wrong clocks under load.

No acknowledged value is lost or denied, and no deleted value is back. `soak.py` has the scenes and plays them at
length; here they are short. Scenes with faults that the simulator draws in each run of CI are thorough tests. Planted
faults show that each check can fail.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import chord as library
from chord.errors import NotFound, OwnerDown, QuorumFailed
from chord.store.sqlite_file import FILE_NAME
from tests.real import soak
from tests.real.cluster import Cluster, uneven
from tests.real.load import Load, Oracle, may_be_gone
from tests.real.soak import (
    NO_FAKETIME,
    TIMING,
    scene_all_at_once,
    scene_all_disks_full,
    scene_disk_hung_for_good,
    scene_failing_disk,
    scene_forgotten,
    scene_full_disk,
    scene_hung_disk,
    scene_kills,
    scene_power_cut,
    scene_stopped,
    scene_wiped,
    scene_wrong_clocks,
    until_reaped,
)
from tests.support.machines import faketime
from tests.support.processes import HANG_S, Peers, eventually, stopped

KILLS = 8
KEYS = 1000
HASTY = {**TIMING, "grace_s": 4.0, "anti_entropy_s": 2.0, "disk_stop_s": 8.0}
NEVER_S = 10_000.0
UNSEEN_S = 10.0
"""The seconds that a test waits for an event that must not happen."""
WRONG_CLOCKS = pytest.mark.skipif(not faketime(), reason=NO_FAKETIME)
ACKNOWLEDGED_EARLY = (sys.executable, "-c", """
import sys, time
from chord.cli import main
from chord.store import sqlite

class Eager(sqlite.SqliteStorage):
    def stage(self, batch):
        before, after = self._rows_of(batch)
        for place, row in after.items():
            self._rows.change(place, before[place], row)
        for name, value in batch.notes.items():
            self._notes.change(name, value)
        return True

    async def commit(self, batch):
        self.stage(batch)

    def when_durable(self, callback):
        callback(None)

    def is_durable(self, key):
        return True

    def durable(self, key):
        return self.get(key)

sqlite.SqliteStorage = Eager
sys.exit(main())
""")  # fmt: skip
FORGETFUL = (sys.executable, "-c", """
import sys
from pathlib import Path
from chord.cli import main
from chord.store.reap_log import ReapLog

from_now_on = Path(sys.argv[sys.argv.index("--config") + 1]).with_name("forgetful")

def forget(name, answer):
    real = getattr(ReapLog, name)
    setattr(ReapLog, name, lambda self, *what: answer if from_now_on.exists() else real(self, *what))

forget("require_same_entries", None)
forget("digest_in", b"")
sys.exit(main())
""")  # fmt: skip


def tell(**facts: Any) -> None:
    print(facts)


@pytest.mark.slow
def test_data_survives_kills_in_turn_all_at_once_and_a_stop(tmp_path: Path) -> None:
    rng = random.Random(1)
    with Peers() as peers:
        cluster = Cluster(peers, tmp_path, 8, timing=TIMING)
        load = Load(cluster.addresses, clients=6, keys=KEYS, seed=1)
        scene_kills(cluster, load, KILLS, 1000, rng, tell)
        scene_all_at_once(cluster, load.oracle, tell)
        scene_stopped(cluster, load, 8.0, rng, tell)


@pytest.mark.slow
def test_data_survives_wiped_failing_hung_and_full_disks(tmp_path: Path) -> None:
    rng = random.Random(2)
    with Peers() as peers:
        cluster = Cluster(peers, tmp_path, 6, timing=HASTY)
        load = Load(cluster.addresses, clients=6, keys=KEYS, seed=2)
        scene_wiped(cluster, load, rng, tell, whole=False)
        scene_wiped(cluster, load, rng, tell, whole=True)
        scene_failing_disk(cluster, load, rng, tell)
        scene_hung_disk(cluster, load, rng, tell)
        scene_disk_hung_for_good(cluster, load, rng, tell)
        scene_full_disk(cluster, load, tell)


@pytest.mark.slow
def test_planted_missing_watchdog_leaves_a_hung_disk(tmp_path: Path) -> None:
    with Peers() as peers:
        cluster = Cluster(peers, tmp_path, 4, timing={"disk_stall_s": NEVER_S, "disk_stop_s": NEVER_S})
        load = Load(cluster.addresses, clients=2, keys=50, seed=5)
        with pytest.raises(AssertionError, match="the condition did not hold in time"):
            scene_hung_disk(cluster, load, random.Random(5), tell, within_s=UNSEEN_S)


@pytest.mark.thorough
def test_data_survives_full_disks_beyond_the_grace_period(tmp_path: Path) -> None:
    with Peers() as peers:
        scene_all_disks_full(peers, tmp_path / "full", tell)


@pytest.mark.thorough
@WRONG_CLOCKS
def test_data_survives_wrong_clocks_and_their_correction(tmp_path: Path) -> None:
    with Peers() as peers:
        cluster = Cluster(peers, tmp_path, 5, timing=HASTY)
        load = Load(cluster.addresses, clients=4, keys=KEYS, seed=6)
        scene_wrong_clocks(cluster, load, random.Random(6), tell, step_s=8.0)


@pytest.mark.thorough
@WRONG_CLOCKS
def test_deletes_survive_absence_and_a_power_cut_of_three_days(tmp_path: Path) -> None:
    rng = random.Random(7)
    with Peers() as peers:
        cluster = Cluster(peers, tmp_path, 5, timing=HASTY)
        load = Load(cluster.addresses, clients=4, keys=KEYS, seed=7)
        scene_forgotten(cluster, load, rng, tell)
        scene_power_cut(cluster, load, rng, tell, stagger_s=2.0)


@pytest.mark.thorough
@WRONG_CLOCKS
def test_planted_unsynced_reap_logs_revive_deleted_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def then_forget(cluster: Cluster, keys: set[bytes], away: int) -> None:
        until_reaped(cluster, keys, away)
        (tmp_path / "forgetful").touch()

    monkeypatch.setattr(soak, "until_reaped", then_forget)
    with Peers() as peers:
        cluster = Cluster(peers, tmp_path, 5, program=FORGETFUL, timing=HASTY)
        load = Load(cluster.addresses, clients=2, keys=50, seed=8)
        with pytest.raises(AssertionError, match="was covered and is back"):
            scene_power_cut(cluster, load, random.Random(8), tell, stagger_s=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("is_owner", [True, False], ids=["of its own", "of another"])
def test_put_in_a_stopped_node_is_not_repeated_after_it_wakes(tmp_path: Path, is_owner: bool) -> None:
    """The client has retried at another node, which stored the value. Later the value was deleted."""
    with Peers() as peers:
        cluster = Cluster(peers, tmp_path, 5)
        keys = [key for key in (f"key-{i}" for i in range(200)) if cluster.is_owner(1, key) == is_owner][:3]
        for key in keys:
            stuck, other = cluster.addresses[1], cluster.addresses[3]
            with (
                library.connect(stuck, other, timeout_s=HANG_S) as client,
                library.connect(other, timeout_s=HANG_S) as reader,
            ):
                client.status()
                with stopped(cluster.all[1]):
                    client.put(key, b"deleted", no_context=True)
                    reader.delete(key, context=reader.get(key).context)
                time.sleep(1)
                cluster.calm()
                with pytest.raises(NotFound):
                    reader.get(key)


@pytest.mark.slow
def test_planted_memory_only_acknowledgements_are_caught(tmp_path: Path) -> None:
    """The planted peers acknowledge writes that are only in memory. The kill of all at once must show it."""
    with Peers() as peers:
        cluster = Cluster(peers, tmp_path, 4, program=ACKNOWLEDGED_EARLY)
        load = Load(cluster.addresses, clients=2, keys=50, seed=3)
        with load.running() as oracle:
            eventually(lambda: oracle.acknowledged > 50)
        with pytest.raises(AssertionError, match="acknowledged and is lost"):
            scene_all_at_once(cluster, oracle, tell)


@pytest.mark.slow
def test_planted_missing_or_older_copy_is_caught(tmp_path: Path) -> None:
    with Peers() as peers:
        cluster = Cluster(peers, tmp_path, 4)
        load = Load(cluster.addresses, clients=2, keys=50, seed=4)
        with load.running() as oracle:
            eventually(lambda: oracle.acknowledged > 50)
        cluster.calm()
        assert uneven(cluster.copies()) == []
        cluster.kill(0)
        with closing(sqlite3.connect(cluster.directories[0] / FILE_NAME)) as store:
            keys = [key for (key,) in store.execute("SELECT key FROM records")]
            store.execute("DELETE FROM records WHERE key = ?", (keys[0],))
            store.execute("UPDATE records SET digest = zeroblob(16) WHERE key = ?", (keys[1],))
            store.commit()
        assert sorted(line.partition(":")[0] for line in uneven(cluster.copies())) == sorted(map(repr, keys[:2]))


# -- the oracle itself -------------------------------------------------------------------------------


class KeyHistory:
    """Writes to one key, in order."""

    def __init__(self) -> None:
        self.oracle = Oracle()

    def put(self, value: bytes, covers: set[bytes] | None = None, *, error: Any = None, read: bool = False) -> None:
        """Record a put. With `read`, the coordinator decides which values it covers."""
        write = self.oracle.begin("k", "no context", value, None if read else frozenset(covers or ()))
        self.oracle.end(write, error)

    def delete(self, covers: set[bytes], *, error: Any = None) -> None:
        self.oracle.end(self.oracle.begin("k", "delete", None, frozenset(covers)), error)

    def wrong(self, *present: bytes) -> list[str]:
        return [line.rpartition(" is ")[2] for line in self.oracle.judge("k", frozenset(present))]


def test_judge_expects_acknowledged_values_unless_replaced() -> None:
    history = KeyHistory()
    history.put(b"1")
    assert history.wrong(b"1") == []
    assert history.wrong() == ["lost"]
    history.put(b"2", {b"1"})
    assert history.wrong(b"2") == []
    assert history.wrong(b"1", b"2") == ["back"]
    assert history.wrong() == ["lost", "lost"]
    history.put(b"3", read=True)
    assert history.wrong(b"3") == []
    assert history.wrong(b"2", b"3") == [], "a coordinator may have missed the value: then both are siblings"


def test_judge_expects_deleted_values_gone_and_siblings_present() -> None:
    history = KeyHistory()
    history.put(b"1")
    history.put(b"2")
    history.delete({b"1"})
    assert history.wrong(b"2") == []
    assert history.wrong(b"1", b"2") == ["back"]
    assert history.wrong() == ["lost"]


def test_judge_allows_a_retry_of_a_replaced_write() -> None:
    history = KeyHistory()
    tried = history.oracle.begin("k", "no context", b"1", frozenset())
    history.put(b"2", {b"1"})
    history.oracle.end(tried, None)
    assert history.wrong(b"2") == history.wrong(b"1", b"2") == []
    history.put(b"3", {b"1", b"2"})
    assert history.wrong(b"1", b"3") == ["back"]


def test_judge_allows_indefinite_writes_and_no_failed_ones() -> None:
    history = KeyHistory()
    history.put(b"1", error=OwnerDown("no"))
    assert history.wrong() == []
    assert history.wrong(b"1") == ["there, and its write was said to have failed"]
    history.put(b"2")
    history.put(b"3", {b"2"}, error=QuorumFailed("perhaps"))
    assert history.wrong(b"2") == history.wrong(b"3") == []
    assert history.wrong() == ["lost"], "both values may not be absent together"
    assert "never written" in next(iter(history.oracle.judge("k", frozenset([b"4", b"2"]))))


def test_judge_allows_absence_only_after_a_possible_delete() -> None:
    history = KeyHistory()
    oracle = history.oracle
    oracle.read("k", (), oracle.now())
    assert not oracle.false_denials
    before = oracle.now()
    history.put(b"1")
    oracle.read("k", (), before)
    assert not oracle.false_denials, "the write may have followed the read"
    oracle.read("k", (), oracle.now())
    assert oracle.false_denials == ["k"]
    history.delete({b"1"}, error=QuorumFailed("perhaps"))
    oracle.read("k", (), oracle.now())
    assert oracle.false_denials == ["k"]
    write = oracle.writes["k"][0]
    assert may_be_gone(write, oracle.writes["k"], ())
