"""A ring of real processes under load, with kills, stops, failing disks and wrong clocks.

    python -m tests.real.soak [--kills 300] [--writes 100000] [--peers 16] [--scenes NAME,...] [--directory DIR]

Every scene begins and ends with a ring at rest. Then the test compares each key with its writes: nothing
acknowledged is lost, and nothing deleted is back. It also compares the databases: every record is on exactly N nodes,
and all copies are the same. Tombstones are reaped meanwhile.

Each scene prints a line of JSON. `faketime` shifts clocks, and mounts in namespaces provide small disks. If a machine
lacks them, the line of the scene says that it was skipped.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path
from typing import Any

import chord
from chord.errors import ChordError
from chord.store.identity import FILE_NAME as IDENTITY_FILE
from chord.store.sqlite_file import FILE_NAME
from tests.real.cluster import Cluster, uneven
from tests.real.load import Load, Oracle, audit, delete_all, put_all, read_all
from tests.support.machines import RIGHT, SmallDisk, WrongClock, faketime
from tests.support.processes import HEALED_S, Peers, eventually, stopped

PERIOD_S = 2.0
DOWN_S = 1.5
LONG_DOWN_S = 8.0
LONG_SHARE = 0.1
CLIENTS = 8

GRACE_S, FULL_GRACE_S = 20.0, 6.0
TIMING = {"grace_s": GRACE_S, "anti_entropy_s": 10.0, "disk_stop_s": 20.0}

SMALL_DISK_BYTES = 16 << 20
LITTLE_ROOM_BYTES = 1 << 20  # less than the default of `free_bytes_min`
NEARLY_FULL_LOOKS = 30
DISK_IS_FULL = "its store takes no writes"
NO_MOUNT = "this machine does not let its users mount a file system in a namespace"
NO_FAKETIME = "faketime is not installed: apt install faketime"

STAGGER_S = 3.0
DELETED = 100
TWO_DAYS_SLOW, THREE_DAYS_LATER = "-2d", "+3d"
STEPS = ("-2d", "-1h", "+90s", "+1h", "+2d")
AFTER_THREE_DAYS = (*[THREE_DAYS_LATER] * 4, RIGHT, "+30d")
"""Offsets after the power cut: most clocks are right, one has stood still, and one is far ahead."""

FAILING = (sys.executable, "-c", """
import errno, sys, time
from pathlib import Path
from chord.store import sqlite_file
from chord.cli import main

class File(sqlite_file.StoreFile):
    def __init__(self, circle, directory, before_commit):
        def fail():
            if (Path(directory) / "fail").exists():
                raise OSError(errno.EIO, "Input/output error")
            while (Path(directory) / "hang").exists():
                time.sleep(0.02)
        super().__init__(circle, directory, fail)

from chord.store import sqlite
sqlite.StoreFile = File
sys.exit(main())
""")  # fmt: skip

NOT_ANSWERING = "has not answered for"
"""The words of a node about a hung disk, also when it stops for that reason."""
STOOD_IN = 5
PATIENT_S = 10_000.0
"""The seconds that a disk may hang before its peer stops, on any slow machine."""

Tell = Callable[..., None]


def verify(cluster: Cluster, oracle: Oracle, tell: Tell, title: str) -> None:
    """Wait for a ring at rest. Compare all keys with the writes, and all copies with each other."""
    calm_s = cluster.calm()
    wrong = audit(oracle, cluster.addresses)
    copies, odd = compared(cluster)
    tell(
        scene=title, acknowledged=oracle.acknowledged, lost_or_wrong=len(wrong), keys=len(oracle.writes),
        records=len(copies), uneven=len(odd), reaped=cluster.reaped(), calm_s=round(calm_s, 1), **counted(oracle),
    )  # fmt: skip
    assert not wrong, f"{title}: {len(wrong)}: {wrong[:5]}"
    assert not odd, f"{title}: {len(odd)} of {len(copies)}: {odd[:5]}"


def compared(cluster: Cluster) -> tuple[dict[bytes, list[bytes]], list[str]]:
    """Return all copies, and the uneven records. A ring at rest still reaps, on one replica after the other."""
    until = time.monotonic() + HEALED_S
    while (odd := uneven(copies := cluster.copies())) and time.monotonic() < until:
        time.sleep(0.5)
    return copies, odd


def counted(oracle: Oracle) -> dict[str, Any]:
    """The oracle's counts, and its slowest operation."""
    slowest_s = max((seconds for seconds, _ in oracle.slowest), default=0.0)
    return {**dict(sorted(oracle.counts.items())), "slowest_s": round(slowest_s, 1)}


def kill_one_after_the_other(cluster: Cluster, kills: int, rng: random.Random) -> None:
    """kill -9 of one peer every two seconds. The peer restarts soon, or sometimes much later."""
    back: list[tuple[float, int]] = []
    begun = time.monotonic()
    for killed in range(kills):
        down = [number for _, number in back]
        number = rng.choice([i for i in range(len(cluster.all)) if i not in down])
        cluster.kill(number)
        now = time.monotonic()
        pause_s = LONG_DOWN_S if rng.random() < LONG_SHARE else rng.uniform(0, DOWN_S)
        back.append((now + pause_s, number))
        until = begun + (killed + 1) * PERIOD_S
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
    with load.running() as oracle:
        kill_one_after_the_other(cluster, kills, rng)
        while oracle.acknowledged < writes:
            time.sleep(0.1)
    verify(cluster, oracle, tell, f"{kills} kills")


def scene_all_at_once(cluster: Cluster, oracle: Oracle, tell: Tell) -> None:
    """All are killed at the same moment and started again: every key is served."""
    cluster.kill_all()
    began = time.monotonic()
    for number in range(len(cluster.all)):
        cluster.restart(number)
    cluster.ready()
    ready = time.monotonic()
    require_readable(cluster.addresses, oracle.writes, "the last peer is ready")
    read_s = time.monotonic() - ready
    tell(scene="all at once, started", started_s=round(ready - began, 1), read_s=round(read_s, 1))
    verify(cluster, oracle, tell, "all at once")


def scene_stopped(cluster: Cluster, load: Load, seconds: float, rng: random.Random, tell: Tell) -> None:
    """One peer is stopped for a while under load: the others stand in for it, and it catches up."""
    with load.running() as oracle:
        time.sleep(1)
        with stopped(cluster.all[rng.randrange(len(cluster.all))]):
            time.sleep(seconds)
        time.sleep(1)
    verify(cluster, oracle, tell, f"stopped for {seconds:g} s")


def scene_wiped(cluster: Cluster, load: Load, rng: random.Random, tell: Tell, *, whole: bool) -> None:
    """One peer loses its records, or its whole directory, while it is down."""
    number = rng.randrange(1, len(cluster.all))
    with load.running() as oracle:
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
    verify(cluster, oracle, tell, f"wiped {'directory' if whole else 'records'}")


def require_readable(nodes: list[str], keys: Iterable[str], why: str) -> None:
    """Read keys until each has an answer."""
    answers = read_all(nodes, keys, HEALED_S).values()
    errors = [answer for answer in answers if isinstance(answer, ChordError)]
    assert not errors, f"{why}, and yet: {errors[:3]}"


def all_but(cluster: Cluster, number: int) -> list[str]:
    """Return the addresses of all peers but one."""
    return [address for place, address in enumerate(cluster.addresses) if place != number]


def until_all_are_acknowledged(write: Callable[[list[str]], list[str]], keys: list[str]) -> None:
    """Repeat writes until each key is acknowledged."""
    left = keys

    def are_all_done() -> bool:
        nonlocal left
        left = write(left)
        return not left

    eventually(are_all_done)


# -- disks -------------------------------------------------------------------------------------------


def restart_on_a_faulty_disk(cluster: Cluster, rng: random.Random, *arguments: str) -> int:
    """Restart a peer on a disk that fails or hangs on demand. Return the peer."""
    number = rng.randrange(1, len(cluster.all))
    cluster.kill(number)
    cluster.restart(number, *arguments, program=FAILING)
    cluster.ready()
    cluster.calm()
    return number


def scene_failing_disk(cluster: Cluster, load: Load, rng: random.Random, tell: Tell) -> None:
    """The sync of a peer's disk fails under load: it stops at once with exit code 1, and nothing is lost."""
    number = restart_on_a_faulty_disk(cluster, rng)
    fail = cluster.directories[number] / "fail"
    with load.running() as oracle:
        time.sleep(1)
        fail.touch()
        assert cluster.all[number].ended() == 1
        said = cluster.all[number].errors()
        assert "the disk of" in said, said
        time.sleep(1)
        fail.unlink()
        cluster.restart(number)
        cluster.ready()
        time.sleep(1)
    verify(cluster, oracle, tell, "failing disk")


def stood_in_for(cluster: Cluster, oracle: Oracle, number: int, run: str) -> None:
    """Write keys of one peer through the others until each is acknowledged, and read all that it owns."""
    names = (f"stand-in-{run}-{i}" for i in count())
    left = list(islice((name for name in names if cluster.is_owner(number, name)), STOOD_IN))
    others = all_but(cluster, number)

    until_all_are_acknowledged(lambda keys: put_all(oracle, others, keys), left)
    owned = [key for key in list(oracle.writes) if cluster.is_owner(number, key)]
    require_readable(others, owned, "others stand in")


def scene_hung_disk(
    cluster: Cluster, load: Load, rng: random.Random, tell: Tell, *, within_s: float = HEALED_S
) -> None:
    """A peer's disk hangs under load: the peer reports it and pauses until the disk answers."""
    number = restart_on_a_faulty_disk(cluster, rng, *cluster.config("patient.toml", disk_stop_s=PATIENT_S))
    hang = cluster.directories[number] / "hang"
    address = cluster.addresses[number]
    with load.running() as oracle:
        time.sleep(1)
        hang.touch()
        eventually(lambda: NOT_ANSWERING in cluster.troubles(address), within_s)
        hang.unlink()
        eventually(lambda: not cluster.troubles(address))
        assert cluster.all[number].process.poll() is None
        time.sleep(1)
    verify(cluster, oracle, tell, "hung disk")


def scene_disk_hung_for_good(cluster: Cluster, load: Load, rng: random.Random, tell: Tell) -> None:
    """A peer's disk hangs under load until the peer stops with exit code 1; the others stand in for it."""
    number = restart_on_a_faulty_disk(cluster, rng)
    hang = cluster.directories[number] / "hang"
    with load.running() as oracle:
        time.sleep(1)
        hang.touch()
        stood_in_for(cluster, oracle, number, "hung")
        assert cluster.all[number].ended() == 1
        said = cluster.all[number].errors()
        assert NOT_ANSWERING in said, said
        stood_in_for(cluster, oracle, number, "stopped")
        hang.unlink()
        cluster.restart(number)
        cluster.ready()
        time.sleep(1)
    verify(cluster, oracle, tell, "disk hung for good")


def scene_full_disk(cluster: Cluster, load: Load, tell: Tell) -> None:
    """A peer with a full disk refuses writes and answers reads. With room again, it catches up."""
    try:
        disk = SmallDisk(cluster.base / "small", SMALL_DISK_BYTES)
    except OSError:
        tell(scene="full disk", skipped=NO_MOUNT)
        return
    with disk:
        cluster.join_on(disk)
        cluster.calm()
        with load.running() as oracle:
            time.sleep(1)
            disk.fill()
            refused, before = oracle.counts["writes refused"], oracle.acknowledged
            eventually(lambda: oracle.counts["writes refused"] > refused + 5, HEALED_S)
            eventually(lambda: oracle.acknowledged > before + 200, HEALED_S)
            owned = [key for key in list(oracle.writes) if cluster.is_owner(-1, key)]
            assert owned
            require_readable(cluster.addresses, owned, "a full disk is no reason not to read")
            assert cluster.all[-1].process.poll() is None
            address = cluster.addresses[-1]
            eventually(lambda: DISK_IS_FULL in cluster.troubles(address))
            disk.leave(LITTLE_ROOM_BYTES)
            for _ in range(NEARLY_FULL_LOOKS):  # a node that recovers by a small write flaps
                time.sleep(0.1)
                assert DISK_IS_FULL in cluster.troubles(address)
            disk.empty()
            eventually(lambda: not cluster.troubles(address))
        verify(cluster, oracle, tell, "full disk")
        cluster.kill(-1)


def scene_all_disks_full(peers: Peers, base: Path, tell: Tell, *, peers_count: int = 4, seed: int = 1) -> None:
    """All disks are full for longer than the grace period, then one peer after the other is restarted with room."""
    base.mkdir()
    with ExitStack() as stack:
        try:
            disks = [stack.enter_context(SmallDisk(base / f"disk-{i}", SMALL_DISK_BYTES)) for i in range(peers_count)]
        except OSError:
            tell(scene="all disks full", skipped=NO_MOUNT)
            return
        cluster = Cluster(peers, base, disks=disks, timing={**TIMING, "grace_s": FULL_GRACE_S, "unsaved_s": 1.0})
        load = Load(cluster.addresses, clients=2, keys=200, seed=seed)
        with load.running() as oracle:
            eventually(lambda: oracle.acknowledged > 300)
            for disk in disks:
                disk.fill()
            refused = oracle.counts["writes refused"]
            eventually(lambda: oracle.counts["writes refused"] > refused + 5)
            with stopped(cluster.all[-1]):  # its neighbours want to persist that it is unreachable
                eventually(lambda: IDENTITY_FILE in cluster.troubles())
            time.sleep(2 * FULL_GRACE_S)
        require_readable(cluster.addresses, oracle.writes, "full disks are no reason not to read")
        for number, disk in enumerate(disks):
            cluster.all[number].kill(signal.SIGTERM)
            assert cluster.all[number].ended() == 0
            disk.empty()
            cluster.restart(number)
            cluster.ready()
        verify(cluster, oracle, tell, "all disks full")
        cluster.kill_all()


# -- clocks ------------------------------------------------------------------------------------------


def restart_one_after_the_other(cluster: Cluster, offset: str) -> list[WrongClock]:
    """Restart each peer with a clock offset, after the previous peer is a member again."""
    clocks = []
    for number in range(len(cluster.all)):
        cluster.kill(number)
        clocks.append(cluster.clock(number, offset))
        cluster.restart(number)
        cluster.ready()
    return clocks


def scene_wrong_clocks(
    cluster: Cluster, load: Load, rng: random.Random, tell: Tell, *, step_s: float = GRACE_S
) -> None:
    """All clocks are two days slow, are set right in restarts, and step while the peers run; tombstones are reaped."""
    if not faketime():
        tell(scene="wrong clocks", skipped=NO_FAKETIME)
        return
    with load.running() as oracle:
        restart_one_after_the_other(cluster, TWO_DAYS_SLOW)
        time.sleep(1)
        clocks = restart_one_after_the_other(cluster, RIGHT)
    verify(cluster, oracle, tell, "clocks set right in restarts")
    with load.running():
        for _ in range(2):
            for clock in clocks:
                clock.set(rng.choice(STEPS))
            time.sleep(step_s)
        for clock in clocks:
            clock.set(RIGHT)
        time.sleep(1)
    verify(cluster, oracle, tell, "clocks that step")


def delete_behind(cluster: Cluster, oracle: Oracle, number: int, run: str) -> set[bytes]:
    """Kill a peer and delete keys that it holds, and that no client writes again; return these keys."""
    keys = [f"deleted-{run}-{i}" for i in range(DELETED)]
    until_all_are_acknowledged(lambda keys: put_all(oracle, cluster.addresses, keys), keys)
    cluster.calm()
    cluster.kill(number)
    held = {row.key.decode() for row in cluster.rows([number])}
    left = [key for key in keys if key in held]
    assert left
    others = all_but(cluster, number)

    until_all_are_acknowledged(lambda keys: delete_all(oracle, others, keys), left)
    return {key.encode() for key in keys if key in held}


def until_reaped(cluster: Cluster, keys: set[bytes], away: int) -> None:
    """Wait until only the absent peer has records of these keys."""
    living = [number for number in range(len(cluster.all)) if number != away]
    eventually(lambda: not any(row.key in keys for row in cluster.rows(living)))


def scene_forgotten(cluster: Cluster, load: Load, rng: random.Random, tell: Tell) -> None:
    """A peer is forgotten, and down until its keys are deleted and reaped. It returns with an old clock."""
    if not faketime():
        tell(scene="forgotten", skipped=NO_FAKETIME)
        return
    number = rng.randrange(1, len(cluster.all))
    deleted = delete_behind(cluster, load.oracle, number, "forgotten")
    with chord.connect(*all_but(cluster, number), timeout_s=HEALED_S) as client:
        client.remove_node(cluster.addresses[number])
    until_reaped(cluster, deleted, number)
    cluster.clock(number, "-1h")
    with load.running() as oracle:
        cluster.restart(number)
        cluster.ready()
        time.sleep(1)
    verify(cluster, oracle, tell, "forgotten, and back with an old clock")


def scene_power_cut(
    cluster: Cluster, load: Load, rng: random.Random, tell: Tell, *, stagger_s: float = STAGGER_S
) -> None:
    """The power of all is cut. Three days later they are back one after the other, some with a wrong clock.

    One of them was down already when keys were deleted that it holds. It is back when the others have reaped them.
    """
    if not faketime():
        tell(scene="power cut of three days", skipped=NO_FAKETIME)
        return
    last = rng.randrange(len(cluster.all))
    deleted = delete_behind(cluster, load.oracle, last, "power")
    with load.running():
        time.sleep(2)
        cluster.kill_all()
        order = [number for number in range(len(cluster.all)) if number != last]
        rng.shuffle(order)
        for place, number in enumerate(order):
            cluster.clock(number, AFTER_THREE_DAYS[place % len(AFTER_THREE_DAYS)])
            cluster.restart(number)
            time.sleep(stagger_s)
        cluster.ready()
    until_reaped(cluster, deleted, last)
    with load.running() as oracle:
        cluster.clock(last, rng.choice(AFTER_THREE_DAYS))
        cluster.restart(last)
        cluster.ready()
        time.sleep(1)
    verify(cluster, oracle, tell, "power cut of three days")


SCENES = (
    "kills", "all-at-once", "stopped", "wiped", "failing", "hung", "clocks", "forgotten", "power", "full", "all-full",
)  # fmt: skip


def play(args: argparse.Namespace, base: Path, peers: Peers, tell: Tell) -> None:
    """Play scenes, in the order in which they were named."""
    rng = random.Random(args.seed)
    cluster = Cluster(peers, base, args.peers, timing=TIMING)
    load = Load(cluster.addresses, clients=CLIENTS, keys=args.keys, seed=args.seed)
    with load.running() as oracle:
        eventually(lambda: oracle.acknowledged > 20 * args.peers)
    scenes: dict[str, list[Callable[[], None]]] = {
        "kills": [lambda: scene_kills(cluster, load, args.kills, args.writes, rng, tell)],
        "all-at-once": [lambda: scene_all_at_once(cluster, oracle, tell)],
        "stopped": [lambda: scene_stopped(cluster, load, args.stopped, rng, tell)],
        "wiped": [
            lambda: scene_wiped(cluster, load, rng, tell, whole=False),
            lambda: scene_wiped(cluster, load, rng, tell, whole=True),
        ],
        "failing": [lambda: scene_failing_disk(cluster, load, rng, tell)],
        "hung": [
            lambda: scene_hung_disk(cluster, load, rng, tell),
            lambda: scene_disk_hung_for_good(cluster, load, rng, tell),
        ],
        "clocks": [lambda: scene_wrong_clocks(cluster, load, rng, tell)],
        "forgotten": [lambda: scene_forgotten(cluster, load, rng, tell)],
        "power": [lambda: scene_power_cut(cluster, load, rng, tell)],
        "full": [lambda: scene_full_disk(cluster, load, tell)],
        "all-full": [lambda: scene_all_disks_full(peers, base / "full", tell)],
    }
    for name in args.scenes:
        for scene in scenes[name]:
            scene()


def main() -> int:
    """Run every scene once, at length."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=300, help="kill -9, one every two seconds (default 300)")
    parser.add_argument("--writes", type=int, default=100_000, help="to acknowledge at least (default 100,000)")
    parser.add_argument("--peers", type=int, default=16, help="processes (default 16)")
    parser.add_argument("--keys", type=int, default=20_000, help="to write to (default 20,000)")
    parser.add_argument("--stopped", type=float, default=60.0, help="seconds of SIGSTOP (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="of which peer is killed when (default 1)")
    parser.add_argument(
        "--scenes", type=lambda names: names.split(","), default=SCENES, help=f"some of {', '.join(SCENES)} (all)"
    )
    parser.add_argument("--directory", help="where the peers' directories are made (default: a temporary one here)")
    args = parser.parse_args()
    if unknown := [name for name in args.scenes if name not in SCENES]:
        parser.error(f"no such scene: {', '.join(unknown)}; expected some of {', '.join(SCENES)}")

    def tell(**facts: Any) -> None:
        print(json.dumps(facts), flush=True)

    where = Path(args.directory or ".")
    where.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="chord-soak-", dir=where) as base, Peers() as peers:
        play(args, Path(base).resolve(), peers, tell)
    return 0


if __name__ == "__main__":
    sys.exit(main())
