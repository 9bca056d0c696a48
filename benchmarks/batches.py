"""Compare `put_many` and `get_many` with single puts and gets of the same keys.

    python -m benchmarks.batches [--only memory,disk] [--nodes 4] [--keys 2000] [--rounds 5] [--bytes 100] [--json]

The ring consists of real processes on loopback, in memory or with databases in --directory. Each round runs all ways,
so that other work on the machine affects all of them. A figure is the median of the rounds. A ratio is the median of
the ratios within a round. CPU time is that of all nodes and of the client.

Bars (required figures), in records per second: a batch is at least 1.3 times as fast as 32 requests at a time. It is at
least twice as fast as one request after the other. The exit code is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import trio

import chord as library
from benchmarks.bars import Row, Rows, bar, run_parts
from benchmarks.rings import ring_of, scratch

ONE_AT_A_TIME_MIN, AT_ONCE_MIN = 2.0, 1.3
AT_ONCE = 32
WITHIN_S = 600.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

Run = Callable[[Sequence[str]], Awaitable[None]]


def cpu_s(pids: Sequence[int]) -> float:
    """Return the processor time that nodes and this process used so far, in seconds.

    Args:
        pids: the processes of the nodes.
    """
    total = time.process_time()
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return total


def runs_of(client: library.AsyncClient, value: bytes) -> dict[tuple[str, str], Run]:
    """Return the functions that put or get keys, by operation and by way.

    The ways are: one after the other, 32 at once, and in batches. The first takes only every eighth key.

    Args:
        value: the value of every key.
    """

    async def put(key: str) -> None:
        await client.put(key, value)

    async def get(key: str) -> None:
        assert (await client.get(key)).value == value

    async def one_by_one(keys: Sequence[str], do: Callable[[str], Awaitable[None]], at_once: int) -> None:
        left = iter(keys)

        async def work() -> None:
            for key in left:
                await do(key)

        async with trio.open_nursery() as nursery:
            for _ in range(at_once):
                nursery.start_soon(work)

    async def put_many(keys: Sequence[str]) -> None:
        stored = await client.put_many((key, value) for key in keys)
        assert not stored.errors

    async def get_many(keys: Sequence[str]) -> None:
        found = await client.get_many(keys)
        assert all(one.value == value for one in found.ok.values())
        assert not found.errors

    return {
        ("put", "one after the other"): lambda keys: one_by_one(keys[::8], put, 1),
        ("put", f"{AT_ONCE} at once"): lambda keys: one_by_one(keys, put, AT_ONCE),
        ("put", "in batches"): put_many,
        ("get", "one after the other"): lambda keys: one_by_one(keys[::8], get, 1),
        ("get", f"{AT_ONCE} at once"): lambda keys: one_by_one(keys, get, AT_ONCE),
        ("get", "in batches"): get_many,
    }


async def measure(addresses: list[str], pids: list[int], keys: int, rounds: int, value: bytes) -> Rows:
    """Measure puts and gets in every way, with new keys in each round.

    Args:
        addresses: the nodes.
        pids: the processes of the nodes, to read their processor time.
        keys: number of keys of a run.
        rounds: number of rounds.
        value: the value of every key.
    """
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    async with library.open_client(*addresses) as client:
        with trio.fail_after(WITHIN_S):
            runs = runs_of(client, value)
            for number in range(-1, rounds):
                for (op, how), run in runs.items():
                    names = [f"{'' if op == 'get' else how}{number}-{i}" for i in range(keys)]
                    if op == "get":
                        await client.put_many((name, value) for name in names)
                    count = len(names[::8] if how == "one after the other" else names)
                    cpu, began = cpu_s(pids), time.perf_counter()
                    await run(names)
                    took, used = time.perf_counter() - began, cpu_s(pids) - cpu
                    if number >= 0:  # round -1 only warms up
                        found.setdefault((op, how), []).append((count / took, 1e6 * used / count))
    rows: Rows = [
        {"op": op, "how": how, "nodes": len(addresses), "value_bytes": len(value),
         "records_per_s": round(statistics.median(rate for rate, _ in some)),
         "cpu_us_per_record": round(statistics.median(used for _, used in some))}
        for (op, how), some in found.items()
    ]  # fmt: skip
    return [*rows, *bars(found)]


def bars(found: dict[tuple[str, str], list[tuple[float, float]]]) -> Rows:
    """Return the bars: how many times faster batches are than the other ways.

    Args:
        found: for each operation and way, rate and processor time in each round.
    """
    made: list[Row] = []
    for op in ("put", "get"):
        for how, least in (("one after the other", ONE_AT_A_TIME_MIN), (f"{AT_ONCE} at once", AT_ONCE_MIN)):
            pairs = zip(found[op, "in batches"], found[op, how], strict=True)
            ratio = statistics.median(batch[0] / single[0] for batch, single in pairs)
            made.append(bar(f"{op}s per second, in batches / {how}", ratio, at_least=least))
    return made


def measured(args: argparse.Namespace, base: Path | None) -> Rows:
    """Start a ring, measure it, and return the rows.

    Args:
        args: the options.
        base: the directory of the databases; None: in memory.
    """
    with ring_of(args.nodes, base) as ring:
        addresses, pids = [peer.address for peer in ring], [peer.process.pid for peer in ring]
        rows = trio.run(measure, addresses, pids, args.keys, args.rounds, b"v" * args.bytes)
    where = "memory" if base is None else "sqlite"
    return [{**row, "storage": where} if "op" in row else {**row, "bar": f"{row['bar']} ({where})"} for row in rows]


def on_disk(args: argparse.Namespace) -> Rows:
    """Measure a ring that keeps its records in databases on disk."""
    with scratch(args.directory) as base:
        return measured(args, base)


def main() -> int:
    """Run the benchmark."""
    return run_parts(
        __doc__,
        {"memory": lambda args: measured(args, None), "disk": on_disk},
        {"flag": "--nodes", "type": int, "default": 4, "help": "nodes of the ring (default 4)"},
        {"flag": "--keys", "type": int, "default": 2000, "help": "keys of each measurement (default 2,000)"},
        {"flag": "--rounds", "type": int, "default": 5, "help": "rounds, after one to warm up (default 5)"},
        {"flag": "--bytes", "type": int, "default": 100, "help": "bytes of a value (default 100)"},
        {"flag": "--directory", "default": ".", "help": "directory on the disk to measure (default: here)"},
    )


if __name__ == "__main__":
    sys.exit(main())
