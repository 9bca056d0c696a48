"""Measure the cost of replicas: round trips, disk syncs, idle traffic, a join.

    python -m benchmarks.replicas [--only trips,puts,idle,join] [--keys 100000] [--seconds 4] [--sync-ms MS] [--json]

The nodes are real processes on loopback. The databases are in --directory, which must be on a real disk. With --sync-ms
every disk sync takes longer by that time. Group commit has an effect only if a disk sync takes time.

Bars (required figures):

- In memory, one operation at a time through the owner, a get with R=1 takes at most 1.5 round trips. A get with R=2
  takes at most 2.5, and a put with W=2 at most 3.
- With SQLite, 32 clients put at least 4 times as fast as one. On the busiest node, at least 20 records share a disk
  sync.
- Two equal idle nodes send less than 10 KiB per anti-entropy period.
- While a fourth node joins a ring of three, clients get and put. Their 99th percentile stays below twice its idle
  value, or 5 ms above it. The joiner receives at least 2,000 records per second. Afterwards each key has N copies.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Awaitable, Callable

import trio

import chord as library
from benchmarks.bars import Row, Rows, bar, percentile, positive, run_parts
from benchmarks.foreground import Foreground
from benchmarks.others.processes import cpu_s_of
from benchmarks.rings import VALUE, fill, owner_of, ring_of, scratch, settled, statuses
from benchmarks.storage import CIRCLE, commit_all_the_time
from chord.client.session import ClientCall
from chord.store.sqlite import SqliteStorage
from chord.wire.messages import Ping
from tests.support.processes import PROGRAM, Peer, Peers

CLIENTS, EACH = 32, 8
REPLICAS = 3
TRIPS_ONE_MAX, TRIPS_GET_MAX, TRIPS_PUT_MAX = 1.5, 2.5, 3.0
TIMES_ONE_MIN, RECORDS_PER_SYNC_MIN = 4.0, 20.0
IDLE_BYTES_MAX = 10 * 1024
IDLE_KEYS = 5_000
P99_TIMES_MAX, P99_MORE_MS_MAX = 2.0, 5.0
PROGRESS_MIN = 2_000.0

SLOW_DISK = """
import sys, time
from chord.cli import main
from chord.store import sqlite, sqlite_file

class File(sqlite_file.StoreFile):
    def __init__(self, circle, directory, before_commit):
        super().__init__(circle, directory, lambda: time.sleep({seconds}))

sqlite.StoreFile = File
sys.exit(main())
"""

# -- round trips ------------------------------------------------------------------------------------


async def timed(seconds: float, call: Callable[[int], Awaitable[object]]) -> list[float]:
    """Call a function again and again for a time; return the latencies in seconds.

    Args:
        seconds: the time.
        call: the function. Its argument is the number of earlier calls.
    """
    latencies: list[float] = []
    end = time.perf_counter() + seconds
    while (before := time.perf_counter()) < end:
        await call(len(latencies))
        latencies.append(time.perf_counter() - before)
    return latencies


async def trips_of(addresses: list[str], seconds: float) -> Rows:
    """Measure gets and puts in units of a `Ping`, the shortest call.

    All keys are owned by the first node, and the client asks this node. The operations take turns.
    """
    entry = addresses[0]
    keys = [key for key in (f"key-{i}" for i in range(4000)) if owner_of(key, addresses) == entry][:100]
    found: dict[str, list[float]] = {}
    async with library.open_client(entry) as client:
        for key in keys:
            await client.put(key, VALUE)

        def key_of(i: int) -> str:
            return keys[i % len(keys)]

        contexts = {key: (await client.get(key)).context for key in keys}

        async def put_with_context(i: int) -> None:
            contexts[key_of(i)] = (await client.put(key_of(i), VALUE, context=contexts[key_of(i)])).context

        operations: dict[str, Callable[[int], Awaitable[object]]] = {
            "ping": lambda i: client._call(ClientCall(entry, Ping()), trio.current_time() + 5),
            "get R=1": lambda i: client.get(key_of(i), r=1),
            "get R=2": lambda i: client.get(key_of(i), r=2),
            "put W=1 with context": lambda i: client.put(key_of(i), VALUE, context=contexts[key_of(i)], w=1),
            "put W=2 with context": put_with_context,
            "put W=2": lambda i: client.put(key_of(i), VALUE, w=2),
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


def trips(args: argparse.Namespace) -> Rows:
    """Measure how many round trips gets and puts take through the key's owner.

    The ring keeps its records in memory.
    """
    with ring_of(3, None) as ring:
        rows = trio.run(trips_of, [peer.address for peer in ring], args.seconds)
    of = {row["op"]: row["round_trips"] for row in rows}
    return [
        *rows,
        bar("round trips of a get, R=1", of["get R=1"], at_most=TRIPS_ONE_MAX),
        bar("round trips of a get, R=2", of["get R=2"], at_most=TRIPS_GET_MAX),
        bar("round trips of a put with a context, W=2", of["put W=2 with context"], at_most=TRIPS_PUT_MAX),
    ]


# -- puts that share a sync -------------------------------------------------------------------------


async def put_all_the_time(addresses: list[str], clients: int, each: int, seconds: float) -> list[float]:
    """Put new keys from several clients for a time; return the latencies in seconds.

    Args:
        addresses: the nodes.
        clients: the number of clients.
        each: the number of puts in flight of each client.
        seconds: the time.
    """
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def put(client: library.AsyncClient, name: str) -> None:
        count = 0
        while (before := time.perf_counter()) < end:
            await client.put(f"{name}-{count}", VALUE, w=2)
            latencies.append(time.perf_counter() - before)
            count += 1

    async def client(number: int) -> None:
        async with library.open_client(addresses[number % len(addresses)]) as client, trio.open_nursery() as nursery:
            for turn in range(each):
                nursery.start_soon(put, client, f"{clients}-{each}-{number}-{turn}")

    async with trio.open_nursery() as nursery:
        for number in range(clients):
            nursery.start_soon(client, number)
    return latencies


def cpu_s(ring: list[Peer]) -> float:
    """Return the processor time that nodes and this process used so far, in seconds."""
    return time.process_time() + sum(cpu_s_of(peer.process.pid) for peer in ring)


async def raw_puts(directory: str, seconds: float) -> Row:
    """Measure commits to a database without a ring: the lower bound of a put.

    There are as many callers as clients in `puts`.
    """
    store = SqliteStorage(CIRCLE, f"{directory}/alone", bytes(8))
    await store.open()
    row = await commit_all_the_time(store, CLIENTS, seconds)
    await store.close()
    return row


def puts(args: argparse.Namespace) -> Rows:
    """Measure the puts of one client and of many, on a ring of four with databases."""
    seconds, sync_ms = args.seconds, args.sync_ms
    program = PROGRAM if not sync_ms else (sys.executable, "-c", SLOW_DISK.format(seconds=sync_ms / 1000))
    rows: Rows = []
    with scratch(args.directory) as base, ring_of(4, base, program=program) as ring:
        addresses = [peer.address for peer in ring]
        trio.run(put_all_the_time, addresses, 8, 2, 0.5)
        for clients, each in ((1, 1), (CLIENTS, 1), (CLIENTS, EACH)):
            before = {node.address: dict(node.counters) for node in statuses(addresses)}
            spent = cpu_s(ring)
            latencies = trio.run(put_all_the_time, addresses, clients, each, seconds)
            spent = cpu_s(ring) - spent
            per_sync = []
            for node in statuses(addresses):
                now, then = dict(node.counters), before[node.address]
                wrote = now["store_rows_written"] - then["store_rows_written"]
                synced = now["store_transactions"] - then["store_transactions"]
                per_sync.append((wrote, round(wrote / max(1, synced), 1)))
            rows.append(
                {"op": "put W=2", "storage": "sqlite", "nodes": 4, "concurrency": clients * each, "sync_ms": sync_ms,
                 "ops_per_s": round(len(latencies) / seconds), "p50_ms": percentile(latencies, 0.5),
                 "p99_ms": percentile(latencies, 0.99), "records_per_sync": max(per_sync)[1],
                 "cpu_us_per_op": round(1e6 * spent / len(latencies))}
            )  # fmt: skip
        one, many, most = rows
        rows.append({"storage": "sqlite alone", "nodes": 1, "sync_ms": 0.0, **trio.run(raw_puts, str(base), seconds)})
    extra = f", a sync of {sync_ms:g} ms more" if sync_ms else ""
    return [  # a put takes two disk syncs, one after the other: with 32 puts in flight, no node has 20 to write at once
        *rows,
        bar(f"puts of {CLIENTS} clients / of one{extra}", many["ops_per_s"] / one["ops_per_s"], at_least=TIMES_ONE_MIN),
        bar(
            f"records per sync on the busiest node, {CLIENTS} clients of {EACH} puts at a time{extra}",
            most["records_per_sync"],
            at_least=RECORDS_PER_SYNC_MIN,
        ),
    ]


# -- nothing to do ----------------------------------------------------------------------------------


def idle(args: argparse.Namespace) -> Rows:
    """Measure the bytes that anti-entropy sends between nodes with equal records.

    They are the bytes of a ring that compares often, less the bytes of a ring that never does.
    """
    sent = {period_s: bytes_per_s(period_s, args) for period_s in (0.5, 1e6)}
    pairs = 3 * 2  # each of three arcs is compared with two others
    per_period = (sent[0.5] - sent[1e6]) * 0.5 / pairs
    return [
        {"op": "idle", "nodes": 3, "keys": IDLE_KEYS, "bytes_per_s_otherwise": round(sent[1e6])},
        bar("bytes per pair and anti-entropy period", per_period, at_most=IDLE_BYTES_MAX),
    ]


def bytes_per_s(period_s: float, args: argparse.Namespace) -> float:
    """Return the bytes per second that three nodes with equal records send together.

    Args:
        period_s: the period of anti-entropy.
    """
    with scratch(args.directory) as base:
        config = base / "chord.toml"
        config.write_text(f"[timing]\nanti_entropy_s = {period_s}\n")
        with ring_of(3, None, "--config", str(config)) as ring:
            addresses = [peer.address for peer in ring]
            fill(addresses, IDLE_KEYS)
            before = sum(dict(node.counters)["bytes_sent"] for node in statuses(addresses))
            began = time.monotonic()
            time.sleep(args.seconds)
            after = sum(dict(node.counters)["bytes_sent"] for node in statuses(addresses))
            return (after - before) / (time.monotonic() - began)


# -- a join under load ------------------------------------------------------------------------------


def join(args: argparse.Namespace) -> Rows:
    """Measure clients and the transfer of records while a fourth node joins."""
    keys = args.keys
    with scratch(args.directory) as base, ring_of(3, base) as ring, Peers() as late:
        addresses = [peer.address for peer in ring]
        took = fill(addresses, keys)
        with Foreground(addresses, keys) as foreground:
            time.sleep(1.5)
            idle_began = time.perf_counter()
            time.sleep(args.seconds)
            began = time.perf_counter()
            peer = late.start("--data", str(base / "late"), "--join", addresses[0])
            shown = watch(peer, addresses, began)
            ended = time.perf_counter()
        calm, moving = foreground.between(idle_began, began), foreground.between(began, ended)
        everyone = [*addresses, peer.address]
        settled(everyone)
        held = {node.address: node.keys for node in statuses(everyone)}
        copies = sum(held.values())
    p99, p99_idle = percentile(moving, 0.99), percentile(calm, 0.99)
    return [
        {"op": "load", "keys": keys, "ops_per_s": round(keys / took)},
        {"op": "foreground", "while": "idle", "ops": len(calm), "p50_ms": percentile(calm, 0.5), "p99_ms": p99_idle},
        {"op": "foreground", "while": "join", "ops": len(moving), "p50_ms": percentile(moving, 0.5), "p99_ms": p99,
         "errors": len(foreground.errors), "slowest_ms": round(1000 * max(moving), 1)},
        {"op": "join", **shown, "records": held[peer.address]},
        bar("p99 in ms while a node joins", p99, at_most=max(P99_TIMES_MAX * p99_idle, p99_idle + P99_MORE_MS_MAX)),
        bar("records per second for a joiner, under load", held[peer.address] / shown["level_s"],
            at_least=PROGRESS_MIN),
        bar("errors in the foreground", len(foreground.errors), at_most=0),
        bar("missing or surplus copies of all keys", abs(copies - REPLICAS * keys), at_most=0),
        bar("looks at `transfers` that showed a share of progress", shown["looks_with_share"], at_least=1),
    ]  # fmt: skip


def watch(peer: Peer, addresses: list[str], began: float) -> Row:
    """Wait until a joining node is in sync; look at the transfers meanwhile.

    Args:
        peer: the process of the joining node.
        addresses: the other nodes.
        began: start of the join on `time.perf_counter`.

    Returns:
        the times until it was a member and in sync, and counts of the transfers that were seen.
    """
    kinds: dict[str, int] = {}
    with_share = 0
    peer.ready()
    member_s = time.perf_counter() - began
    everyone = [*addresses, peer.address]
    while True:
        nodes = statuses(everyone)
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


OPTIONS: tuple[Row, ...] = (
    {"flag": "--keys", "type": positive, "default": 100_000, "help": "keys before a join (default 100,000)"},
    {"flag": "--seconds", "type": float, "default": 4.0, "help": "seconds of each measurement (default 4)"},
    {"flag": "--sync-ms", "type": float, "default": 0.0, "help": "extra time of a disk sync, in ms (default 0)"},
    {"flag": "--directory", "default": ".", "help": "directory on the disk to measure (default: this one)"},
)

if __name__ == "__main__":
    sys.exit(run_parts(__doc__, {"trips": trips, "puts": puts, "idle": idle, "join": join}, *OPTIONS))
