"""Measure the database of a node: durable writes, reads, opening a large store.

    python -m benchmarks.storage [--keys 1000000] [--seconds 3] [--directory DIR] [--json]

The directory must be on a real disk. If a disk sync takes no time, group commit has no effect.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import trio

from benchmarks.bars import Row, Rows, bar, positive, run_parts
from benchmarks.rings import scratch
from chord.ids import Arc, Circle
from chord.store.database import row_of
from chord.store.sqlite import SqliteStorage
from chord.store.sqlite_file import FILE_NAME, StoreFile
from chord.store.storage import Batch
from chord.wire.messages import ActorClock, Record, Version

CIRCLE = Circle(160)
VALUE_BYTES = 100
CALLERS = 32
SCANNED = 100_000
CHUNK = 50_000
RECORDS_PER_SYNC_MIN = 20.0
OPEN_S_MAX = 10.0
BYTES_PER_KEY_MAX = 200.0


def record(number: int) -> Record:
    """Return a record with the key `key-NUMBER` and a pseudorandom value."""
    key = b"key-%d" % number
    noise = hashlib.shake_128(key).digest(16 + VALUE_BYTES)
    return Record(key, (ActorClock(noise[:16], 1, (Version(noise[16:], noise[:16], 1),)),))


def fill(directory: str, keys: int) -> None:
    """Write a database file with `keys` records as fast as possible.

    The rows are written in the order of the circle.
    """
    file = StoreFile(CIRCLE, directory, lambda: None)
    file.open(bytes(8))
    places = sorted((CIRCLE.hash(b"key-%d" % number), number) for number in range(keys))
    for start in range(0, keys, CHUNK):
        made = (row_of(point.to_bytes(20, "big"), record(number), None) for point, number in places[start:][:CHUNK])
        file.write({(row.point, row.key): row for row in made}, {}, 0)
    file.close()


def resident_bytes() -> int:
    """Return the current resident memory of this process, in bytes."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def commit_all_the_time(store: SqliteStorage, callers: int, seconds: float) -> Row:
    """Measure commits of single records from several tasks at the same time.

    Args:
        callers: number of tasks.
        seconds: the duration.
    """
    end, latencies, transactions = time.perf_counter() + seconds, [], store.counters["store_transactions"]

    async def caller(name: int) -> None:
        number = 0
        while (before := time.perf_counter()) < end:
            number += 1
            await store.commit(Batch([record(callers << 56 | name << 48 | number)]))
            latencies.append(time.perf_counter() - before)

    began, cpu_before = time.perf_counter(), time.process_time()
    async with trio.open_nursery() as nursery:
        for name in range(callers):
            nursery.start_soon(caller, name)
    took, latencies = time.perf_counter() - began, sorted(latencies)
    return {
        "op": "put",
        "concurrency": callers,
        "ops_per_s": round(len(latencies) / took),
        "p50_ms": round(1e3 * latencies[len(latencies) // 2], 3),
        "p99_ms": round(1e3 * latencies[int(0.99 * len(latencies))], 3),
        "records_per_sync": round(len(latencies) / (store.counters["store_transactions"] - transactions), 1),
        "cpu_us_per_op": round(1e6 * (time.process_time() - cpu_before) / len(latencies)),
    }


def timed(op: str, fn: Any) -> Row:
    """Time a function that makes many operations; return their rate.

    Args:
        op: the name of the operation.
        fn: makes the operations and returns their number.
    """
    began = time.perf_counter()
    count = fn()
    took = time.perf_counter() - began
    return {"op": op, "concurrency": 1, "ops_per_s": round(count / took), "us_per_op": round(1e6 * took / count, 2)}


async def measure(directory: str, seconds: float) -> Rows:
    """Measure a store on disk: opening it, reads, scans and commits.

    Args:
        directory: the directory of the database.
        seconds: the duration of the commits.
    """
    before = resident_bytes()
    store = SqliteStorage(CIRCLE, directory, bytes(8))
    began = time.perf_counter()
    await store.open()
    opening = time.perf_counter() - began
    keys = len(store)
    rows: Rows = [{"op": "open", "keys": keys, "seconds": round(opening, 2)}]
    rng = random.Random(1)
    wanted = [b"key-%d" % rng.randrange(keys) for _ in range(20_000)]
    part = Arc(CIRCLE.point(0), CIRCLE.point(CIRCLE.size * min(SCANNED, keys - 1) // keys))
    rows.append(timed("get", lambda: sum(store.get(key) is not None for key in wanted)))
    rows.append(timed("scan", lambda: sum(1 for _ in store.scan(part))))
    rows.append(timed("heads", lambda: sum(1 for _ in store.heads(part))))
    rows[0]["bytes_per_key"] = round((resident_bytes() - before) / keys, 1)
    for callers in (1, CALLERS):
        rows.append(await commit_all_the_time(store, callers, seconds))
    rows[-1]["times_one"] = round(rows[-1]["ops_per_s"] / rows[-2]["ops_per_s"], 1)  # higher on slower disks
    await store.close()
    return rows


def bars(rows: Rows) -> Rows:
    """Return the bars on group commit, opening time and memory per key."""
    opened, many = rows[0], rows[-1]
    return [
        bar(f"records per sync, {CALLERS} callers", many["records_per_sync"], at_least=RECORDS_PER_SYNC_MIN),
        bar(f"seconds to open {opened['keys']:,} keys", opened["seconds"], at_most=OPEN_S_MAX),
        bar("bytes of memory per key", opened["bytes_per_key"], at_most=BYTES_PER_KEY_MAX),
    ]


def store(args: argparse.Namespace) -> Rows:
    """Fill a database, and measure it in another process.

    That process has not filled the database, so its memory is that of the store alone.
    """
    with scratch(args.directory) as base:
        directory = str(base)
        fill(directory, args.keys)
        size = (base / FILE_NAME).stat().st_size
        command = [sys.executable, "-m", "benchmarks.storage", directory, str(args.seconds)]
        rows = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
    rows[0]["file_bytes_per_key"] = round(size / args.keys)
    return [*rows, *bars(rows)]


def main() -> int:
    """Run the benchmark; with a directory and a duration, measure only that store."""
    if len(sys.argv) == 3 and not sys.argv[1].startswith("-"):
        print(json.dumps(trio.run(measure, sys.argv[1], float(sys.argv[2]))))
        return 0
    return run_parts(
        __doc__,
        {"store": store},
        {"flag": "--keys", "type": positive, "default": 1_000_000, "help": "keys in the store (default 1,000,000)"},
        {"flag": "--seconds", "type": float, "default": 3.0, "help": "seconds of each kind of write (default 3)"},
        {"flag": "--directory", "default": ".", "help": "directory on the disk to measure (default: this one)"},
    )


if __name__ == "__main__":
    sys.exit(main())
