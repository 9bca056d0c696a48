"""What replicas cost: in round trips, in syncs, in bytes while nothing happens, and while a node joins.

    python benchmarks/replicas.py [--only trips,puts,idle,join] [--keys 100000] [--seconds 4] [--sync-ms MS] [--json]

Real processes on loopback; the databases lie in the current directory, which must be on a real disk. With --sync-ms
every sync takes so much longer: what shares one sync (group commit) shows only where a sync costs something.

Bars: get R=2 at most 2.5 round trips and put W=2 at most 3 (memory, one at a time, through the key's owner); 32 clients
put at least 4 times as fast as one, and 20 records at least share a sync on the busiest node (SQLite); an idle equal
pair exchanges less than 10 KiB per anti-entropy period; while a fourth node joins a ring of three, the 99th
percentile of gets and puts stays below twice its idle value, or 5 ms above it, and afterwards each key has N copies.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "real"))

from foreground import Foreground
from processes import PROGRAM, Peer, Peers, ideal

import chord as library
from chord.asking import Call
from chord.ids import Circle
from chord.messages import Description, Ping

CIRCLE = Circle(160)
VALUE = b"v" * 100
CLIENTS, EACH = 32, 8
REPLICAS = 3
TRIPS_GET_MAX, TRIPS_PUT_MAX = 2.5, 3.0
TIMES_ONE_MIN, RECORDS_PER_SYNC_MIN = 4.0, 20.0
IDLE_BYTES_MAX = 10 * 1024
P99_TIMES_MAX, P99_MORE_MS_MAX = 2.0, 5.0

SLOW_DISK = """
import sys, time
from chord.cli import main
from chord.data import sqlite, sqlite_file

class File(sqlite_file.StoreFile):
    def __init__(self, circle, directory, before_commit):
        super().__init__(circle, directory, lambda: time.sleep({seconds}))

sqlite.StoreFile = File
sys.exit(main())
"""

Row = dict[str, Any]
Rows = list[Row]


def bar(text: str, value: float, *, at_most: float | None = None, at_least: float | None = None) -> Row:
    """One bar and whether it is met."""
    is_met = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
    bound = {"at_most": at_most} if at_most is not None else {"at_least": at_least}
    return {"bar": text, "value": round(value, 2), **bound, "verdict": "PASS" if is_met else "FAIL"}


def percentile(latencies: list[float], share: float) -> float:
    """In milliseconds."""
    return round(1000 * sorted(latencies)[int(len(latencies) * share)], 3)


def describe(addresses: list[str]) -> list[Description]:
    """What every node says of itself."""
    with library.connect(*addresses, timeout_s=20) as ring:
        return [node for node in ring.members(also=addresses).values() if isinstance(node, Description)]


def settled(addresses: list[str], within_s: float) -> None:
    """Wait until nothing is under way."""
    deadline = time.monotonic() + within_s
    while any(n.hints or n.misplaced or n.under_replicated or n.transfers for n in describe(addresses)):
        if time.monotonic() > deadline:
            raise SystemExit("the ring does not come to rest")
        time.sleep(0.2)


@contextmanager
def ring_of(count: int, base: Path | None, *arguments: str, program: tuple[str, ...] = PROGRAM) -> Iterator[list[Peer]]:
    """So many peers that make one ring, with directories or in memory."""
    with Peers() as peers:

        def start(number: int, *more: str) -> Peer:
            data = () if base is None else ("--data", str(base / str(number)))
            return peers.start(*data, *arguments, *more, program=program)

        first = start(0).ready()
        ring = [first, *(start(number, "--join", first.address) for number in range(1, count))]
        for peer in ring[1:]:
            peer.ready()
        ideal(first.address)
        settled([peer.address for peer in ring], 20)
        yield ring


def owner_of(key: str, addresses: list[str]) -> str:
    """The node that coordinates a key."""
    point = CIRCLE.hash(key.encode())
    return min(addresses, key=lambda address: CIRCLE.distance(point, CIRCLE.hash(address.encode())))


# -- round trips ------------------------------------------------------------------------------------


async def timed(seconds: float, call: Callable[[int], Awaitable[object]]) -> list[float]:
    """Call one after the other for so long; return how long each took."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds
    while (before := time.perf_counter()) < end:
        await call(len(latencies))
        latencies.append(time.perf_counter() - before)
    return latencies


async def trips_of(addresses: list[str], seconds: float) -> Rows:
    """Compare the operations with the shortest call there is, turn by turn."""
    entry = addresses[0]
    keys = [key for key in (f"key-{i}" for i in range(4000)) if owner_of(key, addresses) == entry][:100]
    found: dict[str, list[float]] = {}
    async with library.open_client(entry) as ring:
        for key in keys:
            await ring.put(key, VALUE)

        def key_of(i: int) -> str:
            return keys[i % len(keys)]

        contexts = {key: (await ring.get(key)).context for key in keys}

        async def put_with_context(i: int) -> None:
            contexts[key_of(i)] = (await ring.put(key_of(i), VALUE, context=contexts[key_of(i)])).context

        operations: dict[str, Callable[[int], Awaitable[object]]] = {
            "ping": lambda i: ring._call(Call(entry, Ping()), trio.current_time() + 5),
            "get R=1": lambda i: ring.get(key_of(i), r=1),
            "get R=2": lambda i: ring.get(key_of(i), r=2),
            "put W=1 with context": lambda i: ring.put(key_of(i), VALUE, context=contexts[key_of(i)], w=1),
            "put W=2 with context": put_with_context,
            "put W=2": lambda i: ring.put(key_of(i), VALUE, w=2),
        }
        rounds = 5
        for _ in range(rounds):
            for name, call in operations.items():
                found.setdefault(name, []).extend(await timed(seconds / rounds / 2, call))
    one = percentile(found["ping"], 0.5)
    return [
        {"op": name, "storage": "memory", "nodes": len(addresses), "concurrency": 1, "ops": len(latencies),
         "p50_ms": percentile(latencies, 0.5), "p99_ms": percentile(latencies, 0.99),
         "round_trips": round(percentile(latencies, 0.5) / one, 2)}
        for name, latencies in found.items()
    ]  # fmt: skip


def trips(seconds: float) -> Rows:
    """Gets and puts in round trips, in memory, through the owner of the key."""
    with ring_of(3, None) as ring:
        rows = trio.run(trips_of, [peer.address for peer in ring], seconds)
    of = {row["op"]: row["round_trips"] for row in rows}
    return [
        *rows,
        bar("round trips of a get, R=2", of["get R=2"], at_most=TRIPS_GET_MAX),
        bar("round trips of a put with a context, W=2", of["put W=2 with context"], at_most=TRIPS_PUT_MAX),
    ]


# -- puts that share a sync -------------------------------------------------------------------------


async def put_all_the_time(addresses: list[str], clients: int, each: int, seconds: float) -> list[float]:
    """Put new keys from so many clients with so many in flight each; return how long each put took."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def put(ring: library.Client, name: str) -> None:
        count = 0
        while (before := time.perf_counter()) < end:
            await ring.put(f"{name}-{count}", VALUE, w=2)
            latencies.append(time.perf_counter() - before)
            count += 1

    async def client(number: int) -> None:
        async with library.open_client(addresses[number % len(addresses)]) as ring, trio.open_nursery() as nursery:
            for turn in range(each):
                nursery.start_soon(put, ring, f"{clients}-{each}-{number}-{turn}")

    async with trio.open_nursery() as nursery:
        for number in range(clients):
            nursery.start_soon(client, number)
    return latencies


def puts(base: Path, seconds: float, sync_ms: float) -> Rows:
    """One client and many, on a ring of four with databases."""
    program = PROGRAM if not sync_ms else (sys.executable, "-c", SLOW_DISK.format(seconds=sync_ms / 1000))
    rows: Rows = []
    with ring_of(4, base, program=program) as ring:
        addresses = [peer.address for peer in ring]
        trio.run(put_all_the_time, addresses, 8, 2, 0.5)
        for clients, each in ((1, 1), (CLIENTS, 1), (CLIENTS, EACH)):
            before = {node.address: dict(node.counters) for node in describe(addresses)}
            latencies = trio.run(put_all_the_time, addresses, clients, each, seconds)
            per_sync = []
            for node in describe(addresses):
                now, then = dict(node.counters), before[node.address]
                wrote = now["store_rows_written"] - then["store_rows_written"]
                synced = now["store_transactions"] - then["store_transactions"]
                per_sync.append((wrote, round(wrote / max(1, synced), 1)))
            rows.append(
                {"op": "put W=2", "storage": "sqlite", "nodes": 4, "concurrency": clients * each, "sync_ms": sync_ms,
                 "ops_per_s": round(len(latencies) / seconds), "p50_ms": percentile(latencies, 0.5),
                 "p99_ms": percentile(latencies, 0.99), "records_per_sync": max(per_sync)[1]}
            )  # fmt: skip
    one, many, most = rows
    extra = f", a sync of {sync_ms:g} ms more" if sync_ms else ""
    return [  # a put is two syncs, one after the other: of 32 at a time, no node ever has 20 to write at once
        *rows,
        bar(f"puts of {CLIENTS} clients / of one{extra}", many["ops_per_s"] / one["ops_per_s"], at_least=TIMES_ONE_MIN),
        bar(f"records per sync on the busiest node, {CLIENTS} clients of {EACH} puts at a time{extra}",
            most["records_per_sync"], at_least=RECORDS_PER_SYNC_MIN),
    ]


# -- nothing to do ----------------------------------------------------------------------------------


def idle(base: Path, seconds: float) -> Rows:
    """Bytes of anti-entropy between equal nodes: of a ring that compares often, less one that never does."""
    sent: dict[float, float] = {}
    for period_s in (0.5, 1e6):
        config = base / f"{period_s}.toml"
        config.write_text(f"[timing]\nanti_entropy_s = {period_s}\n")
        with ring_of(3, None, "--config", str(config)) as ring:
            addresses = [peer.address for peer in ring]
            with library.connect(addresses[0], timeout_s=30) as client:
                client.put_many((f"key-{i}", VALUE) for i in range(5000))
            settled(addresses, 20)
            before = sum(dict(node.counters)["bytes_sent"] for node in describe(addresses))
            began = time.monotonic()
            time.sleep(seconds)
            after = sum(dict(node.counters)["bytes_sent"] for node in describe(addresses))
            sent[period_s] = (after - before) / (time.monotonic() - began)
    pairs = 3 * 2  # each of three arcs is compared with two others
    per_period = (sent[0.5] - sent[1e6]) * 0.5 / pairs
    return [
        {"op": "idle", "nodes": 3, "keys": 5000, "bytes_per_s_otherwise": round(sent[1e6])},
        bar("bytes per pair and anti-entropy period", per_period, at_most=IDLE_BYTES_MAX),
    ]


# -- a join under load ------------------------------------------------------------------------------


def join(base: Path, keys: int, seconds: float) -> Rows:
    """A fourth node joins a ring of three."""
    rows: Rows = []
    with ring_of(3, base) as ring, Peers() as late:
        addresses = [peer.address for peer in ring]
        began = time.perf_counter()
        with library.connect(addresses[0], timeout_s=60) as client:
            failed = client.put_many(((f"key-{i}", VALUE) for i in range(keys)), in_flight=128)
        assert not failed, failed[:3]
        rows.append({"op": "load", "keys": keys, "ops_per_s": round(keys / (time.perf_counter() - began))})
        settled(addresses, 60)
        with Foreground(addresses, keys) as foreground:
            time.sleep(1.5)
            idle_began = time.perf_counter()
            time.sleep(seconds)
            began = time.perf_counter()
            peer = late.start("--data", str(base / "late"), "--join", addresses[0])
            shown = watch(peer, addresses, began)
            ended = time.perf_counter()
        calm, moving = foreground.between(idle_began, began), foreground.between(began, ended)
        errors = foreground.errors
        everyone = [*addresses, peer.address]
        settled(everyone, 120)
        copies = sum(node.keys for node in describe(everyone))
    p99, p99_idle = percentile(moving, 0.99), percentile(calm, 0.99)
    rows += [
        {"op": "foreground", "while": "idle", "ops": len(calm), "p50_ms": percentile(calm, 0.5), "p99_ms": p99_idle},
        {"op": "foreground", "while": "join", "ops": len(moving), "p50_ms": percentile(moving, 0.5), "p99_ms": p99,
         "errors": len(errors), "slowest_ms": round(1000 * max(moving), 1)},
        {"op": "join", **shown},
        bar("p99 in ms while a node joins", p99, at_most=max(P99_TIMES_MAX * p99_idle, p99_idle + P99_MORE_MS_MAX)),
        bar("errors in the foreground", len(errors), at_most=0),
        bar("copies of all keys missing or too many", abs(copies - REPLICAS * keys), at_most=0),
        bar("looks at `transfers` that showed the share that was done", shown["looks_with_share"], at_least=1),
    ]  # fmt: skip
    return rows


def watch(peer: Peer, addresses: list[str], began: float) -> Row:
    """Wait until a joiner is a member and level, and look at the transfers all the while."""
    kinds: dict[str, int] = {}
    with_share = 0
    peer.ready()
    member_s = time.perf_counter() - began
    everyone = [*addresses, peer.address]
    while True:
        nodes = describe(everyone)
        for node in nodes:
            for info in node.transfers:
                kinds[info.kind] = kinds.get(info.kind, 0) + 1
                with_share += info.total is not None and 0 < info.done < info.total
        if len(nodes) == len(everyone) and not any(
            n.under_replicated or n.misplaced or n.transfers or n.hints for n in nodes
        ):
            break
        time.sleep(0.25)
    level_s = time.perf_counter() - began
    took = {"member_s": round(member_s, 1), "level_s": round(level_s, 1)}
    return {**took, "looks": kinds, "looks_with_share": with_share}


def report(rows: Rows, *, as_json: bool) -> None:
    """Print what was measured and whether the bars are met."""
    for row in rows:
        if as_json:
            print(json.dumps(row))
        elif "bar" in row:
            bound = f"at most {row['at_most']:g}" if "at_most" in row else f"at least {row['at_least']:g}"
            print(f"{row['verdict']}  {row['value']:10,.2f} ({bound})  {row['bar']}")
        else:
            print("   ".join(f"{name} {value}" for name, value in row.items()))
    sys.stdout.flush()


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="trips,puts,idle,join", help="which parts (default: all)")
    parser.add_argument("--keys", type=int, default=100_000, help="in the ring that is joined (default 100,000)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement (default 4)")
    parser.add_argument("--sync-ms", type=float, default=0.0, help="let a sync take longer (default 0)")
    parser.add_argument("--directory", help="on the disk to measure (default: a temporary one here)")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    args = parser.parse_args()
    rows: Rows = []
    with tempfile.TemporaryDirectory(prefix="chord-replicas-", dir=args.directory or ".") as directory:
        base = Path(directory)
        parts: dict[str, Callable[[], Rows]] = {
            "trips": lambda: trips(args.seconds),
            "puts": lambda: puts(base / "puts", args.seconds, args.sync_ms),
            "idle": lambda: idle(base, args.seconds),
            "join": lambda: join(base / "join", args.keys, args.seconds),
        }
        for name in args.only.split(","):
            found = parts[name]()
            report(found, as_json=args.json)
            rows += found
    return 1 if any(row.get("verdict") == "FAIL" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
