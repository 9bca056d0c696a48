"""A ring of real processes with data directories, under load, while its peers are killed, stopped and robbed of their
disks: nothing that was acknowledged is lost.

    python tests/real/soak.py [--kills 300] [--writes 100000] [--peers 16] [--directory DIR]

Every scene begins with a ring at rest and ends with one: each key is read back and held against the ledger of its
writes, and each database file against the others: every record lies on exactly N nodes, and is the same on all.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cluster import Cluster, uneven
from load import Ledger, Load, audit, read_all
from processes import HEALED_S, Peers, eventually, stopped

from chord.data.sqlite_file import FILE_NAME
from chord.errors import ChordError

PERIOD_S = 2.0
DOWN_S = 1.5
LONG_DOWN_S = 8.0
LONG_SHARE = 0.1
SERVING_S = 5.0
CLIENTS = 8

SMALL_DISK_BYTES = 16 << 20

FAILING = (sys.executable, "-c", """
import errno, sys, time
from pathlib import Path
from chord.data import sqlite_file
from chord.cli import main

class File(sqlite_file.StoreFile):
    def __init__(self, circle, directory, before_commit):
        def fail():
            if (Path(directory) / "fail").exists():
                raise OSError(errno.EIO, "Input/output error")
            while (Path(directory) / "hang").exists():
                time.sleep(0.02)
        super().__init__(circle, directory, fail)

from chord.data import sqlite
sqlite.StoreFile = File
sys.exit(main())
""")  # fmt: skip

Tell = Callable[..., None]


def verify(cluster: Cluster, ledger: Ledger, tell: Tell, title: str) -> None:
    """Let the ring come to rest, and hold everything against the ledger and the copies against each other."""
    calm_s = cluster.calm()
    wrong = audit(ledger, cluster.addresses)
    copies = cluster.copies()
    odd = uneven(copies)
    tell(
        scene=title, acknowledged=ledger.acknowledged, lost_or_wrong=len(wrong), keys=len(ledger.writes),
        records=len(copies), uneven=len(odd), calm_s=round(calm_s, 1), **counted(ledger),
    )  # fmt: skip
    assert not wrong, f"{title}: {len(wrong)}: {wrong[:5]}"
    assert not odd, f"{title}: {len(odd)} of {len(copies)}: {odd[:5]}"


def counted(ledger: Ledger) -> dict[str, Any]:
    """The ledger's counts, and its slowest operation."""
    slowest_s = max((seconds for seconds, _ in ledger.slowest), default=0.0)
    return {**dict(sorted(ledger.counts.items())), "slowest_s": round(slowest_s, 1)}


def kill_one_after_the_other(cluster: Cluster, kills: int, rng: random.Random) -> None:
    """kill -9 of one peer every two seconds; it is started again a little later, now and then much later."""
    back: list[tuple[float, int]] = []
    begun = time.monotonic()
    for count in range(kills):
        down = [number for _, number in back]
        number = rng.choice([i for i in range(len(cluster.all)) if i not in down])
        cluster.kill(number)
        now = time.monotonic()
        pause_s = LONG_DOWN_S if rng.random() < LONG_SHARE else rng.uniform(0, DOWN_S)
        back.append((now + pause_s, number))
        until = begun + (count + 1) * PERIOD_S
        while time.monotonic() < until:
            for due in [one for one in back if one[0] <= time.monotonic()]:
                back.remove(due)
                cluster.restart(due[1])
            time.sleep(0.05)
    for _, number in back:
        cluster.restart(number)
    cluster.ready()


def scene_kills(cluster: Cluster, load: Load, kills: int, writes: int, rng: random.Random, tell: Tell) -> None:
    """One peer after the other is killed under load."""
    with load.running() as ledger:
        kill_one_after_the_other(cluster, kills, rng)
        while ledger.acknowledged < writes:
            time.sleep(0.1)
    verify(cluster, ledger, tell, f"{kills} kills")


def scene_all_at_once(cluster: Cluster, ledger: Ledger, tell: Tell) -> None:
    """All are killed at the same moment and started again: seconds later every key is served."""
    for peer in cluster.all:
        peer.kill()
    began = time.monotonic()
    for number, peer in enumerate(cluster.all):
        peer.ended()
        cluster.restart(number)
    cluster.ready()
    ready = time.monotonic()
    answers = read_all(cluster.addresses, ledger.writes, SERVING_S)
    read_s = time.monotonic() - ready
    errors = [answer for answer in answers.values() if isinstance(answer, ChordError)]
    tell(scene="all at once", started_s=round(ready - began, 1), read_s=round(read_s, 1), errors=len(errors))
    assert not errors, f"not served {SERVING_S:g} s after the last peer was ready: {errors[:3]}"
    verify(cluster, ledger, tell, "all at once")


def scene_stopped(cluster: Cluster, load: Load, seconds: float, rng: random.Random, tell: Tell) -> None:
    """One peer is stopped for a while under load: the others stand in for it, and it catches up."""
    with load.running() as ledger:
        time.sleep(1)
        with stopped(cluster.all[rng.randrange(len(cluster.all))]):
            time.sleep(seconds)
        time.sleep(1)
    verify(cluster, ledger, tell, f"stopped for {seconds:g} s")


def scene_wiped(cluster: Cluster, load: Load, rng: random.Random, tell: Tell, *, whole: bool) -> None:
    """One peer loses its records, or its whole directory, while it is down."""
    number = rng.randrange(1, len(cluster.all))
    with load.running() as ledger:
        time.sleep(1)
        cluster.kill(number)
        directory = cluster.directories[number]
        for path in directory.iterdir():
            if whole or path.name.startswith(FILE_NAME):
                path.unlink()
        time.sleep(1)
        cluster.restart(number, "--join", cluster.addresses[0])
        cluster.ready()
        time.sleep(1)
    verify(cluster, ledger, tell, f"wiped {'directory' if whole else 'records'}")


def scene_full_disk(cluster: Cluster, load: Load, tell: Tell) -> None:
    """A peer whose disk is full refuses writes and answers reads; with room again, it catches up."""
    if not (small := cluster.join_on_a_small_disk(SMALL_DISK_BYTES)):
        tell(scene="full disk", skipped="this machine lets nobody mount")
        return
    cluster.calm()
    with load.running() as ledger:
        time.sleep(1)
        ballast = small / "ballast"
        fill(ballast)
        refused, before = ledger.counts["writes refused"], ledger.acknowledged
        eventually(lambda: ledger.counts["writes refused"] > refused + 5, HEALED_S)
        eventually(lambda: ledger.acknowledged > before + 200, HEALED_S)
        owned = [key for key in list(ledger.writes) if cluster.is_owner(-1, key)]
        answers = read_all(cluster.addresses, owned)
        errors = [answer for answer in answers.values() if isinstance(answer, ChordError)]
        assert owned
        assert not errors, f"a full disk is no reason not to read: {errors[:3]}"
        assert cluster.all[-1].process.poll() is None
        ballast.unlink()
        time.sleep(1)
    verify(cluster, ledger, tell, "full disk")


def fill(path: Path) -> None:
    """Write until there is no room left."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def scene_failing_disk(cluster: Cluster, load: Load, rng: random.Random, tell: Tell) -> None:
    """The sync of a peer's disk fails under load: it stops at once with exit code 1, and nothing is lost."""
    number = rng.randrange(1, len(cluster.all))
    cluster.kill(number)
    cluster.restart(number, program=FAILING)
    cluster.ready()
    cluster.calm()
    with load.running() as ledger:
        time.sleep(1)
        (cluster.directories[number] / "fail").touch()
        assert cluster.all[number].ended() == 1
        said = cluster.all[number].errors()
        assert "the disk of" in said, said
        time.sleep(1)
        (cluster.directories[number] / "fail").unlink()
        cluster.restart(number)
        cluster.ready()
        time.sleep(1)
    verify(cluster, ledger, tell, "failing disk")


def scene_hung_disk(cluster: Cluster, load: Load, rng: random.Random, tell: Tell) -> None:
    """A peer's disk answers nothing for a while under load: the others stand in for it, and it catches up."""
    number = rng.randrange(1, len(cluster.all))
    cluster.kill(number)
    cluster.restart(number, program=FAILING)
    cluster.ready()
    cluster.calm()
    with load.running() as ledger:
        time.sleep(1)
        keys = [key for key in list(ledger.writes) if cluster.is_owner(number, key)]
        (cluster.directories[number] / "hang").touch()
        others = [address for place, address in enumerate(cluster.addresses) if place != number]
        answers = read_all(others, keys, HEALED_S)
        errors = [answer for answer in answers.values() if isinstance(answer, ChordError)]
        assert not errors, f"the others have what a hung disk has: {errors[:3]}"
        before = ledger.acknowledged
        eventually(lambda: ledger.acknowledged > before + 200, HEALED_S)
        assert cluster.all[number].process.poll() is None
        (cluster.directories[number] / "hang").unlink()
        time.sleep(1)
    verify(cluster, ledger, tell, "hung disk")


def main() -> int:
    """Run every scene once, at length."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=300, help="kill -9, one every two seconds (default 300)")
    parser.add_argument("--writes", type=int, default=100_000, help="to acknowledge at least (default 100,000)")
    parser.add_argument("--peers", type=int, default=16, help="processes (default 16)")
    parser.add_argument("--keys", type=int, default=20_000, help="to write to (default 20,000)")
    parser.add_argument("--stopped", type=float, default=60.0, help="seconds of SIGSTOP (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="of who is killed when (default 1)")
    parser.add_argument("--directory", help="where the peers' directories are made (default: a temporary one here)")
    args = parser.parse_args()

    def tell(**facts: Any) -> None:
        print(json.dumps(facts), flush=True)

    rng = random.Random(args.seed)
    where = Path(args.directory or ".")
    where.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="chord-soak-", dir=where) as base, Peers() as peers:
        cluster = Cluster(peers, Path(base), args.peers)
        load = Load(cluster.addresses, clients=CLIENTS, keys=args.keys, seed=args.seed)
        scene_kills(cluster, load, args.kills, args.writes, rng, tell)
        scene_all_at_once(cluster, load.ledger, tell)
        scene_stopped(cluster, load, args.stopped, rng, tell)
        scene_wiped(cluster, load, rng, tell, whole=False)
        scene_wiped(cluster, load, rng, tell, whole=True)
        scene_failing_disk(cluster, load, rng, tell)
        scene_hung_disk(cluster, load, rng, tell)
        scene_full_disk(cluster, load, tell)
    return 0


if __name__ == "__main__":
    sys.exit(main())
