"""Measure one process: memory, time of a command, stalls of the event loop.

    python -m benchmarks.process [--keys 100000] [--seconds 5] [--directory DIR] [--only memory,start,up,…] [--json]

The parts are:

- memory: a node with a database of `--keys` keys, beside a process that has only imported a node's modules.
- start: `chord get` of a key, from start to end, and `chord --help`. For comparison, a process that only imports the
  client's dependencies.
- up: `chord up -n 16`, until the ring is Ideal.
- stalls: the longest step of any task, in processor time, in a ring of four with databases. Meanwhile 32 clients put,
  then a fifth node joins and one node is killed.

Bars (required figures), at most:

- memory: 45 MB, and 8 MB above the imports.
- start: 150 ms for `chord get`, and 100 ms of processor time.
- up: 5 s.
- stalls: 100 ms of processor time for a step.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import trio

from benchmarks import storage
from benchmarks.bars import Row, Rows, bar, positive, run_parts
from benchmarks.foreground import Foreground
from benchmarks.replicas import put_all_the_time
from benchmarks.rings import fill, ring_of, scratch, settled
from tests.support.ports import Ports
from tests.support.processes import PROGRAM, Peers, ideal
from tests.support.real_rings import running

NODE_MB_MAX, ABOVE_IMPORTS_MB_MAX = 45.0, 8.0
GET_MS_MAX, GET_CPU_MS_MAX = 150.0, 100.0
UP_S_MAX = 5.0
STALL_MS_MAX = 100.0
STARTS, RINGS = 15, 3

IMPORTS = """
import sys
import chord.node, chord.cli.node, chord.cli.serve, chord.store.sqlite, chord.rpc, chord.net.transport
print(flush=True)
sys.stdin.read()
"""

WATCHED = """
import os, sys, time
import trio
from chord.cli import main

where = sys.argv.pop(1)

class Longest(trio.abc.Instrument):
    '''Notes the longest task step so far, in processor time, with its task.'''

    most = began = 0.0

    def before_task_step(self, task):
        self.began = time.thread_time()

    def after_task_step(self, task):
        took = time.thread_time() - self.began
        if took > self.most:
            self.most = took
            with open(f"{where}/{os.getpid()}", "w") as file:
                file.write(f"{1000 * took} {task.name}")

run = trio.run
trio.run = lambda *args, **kwargs: run(*args, **kwargs, instruments=[Longest()])
sys.exit(main())
"""


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process, in MB (10^6 bytes)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1000


def memory(args: argparse.Namespace) -> Rows:
    """Measure the memory of a node with a large database.

    For comparison, another process has only imported the node's modules.
    """
    with subprocess.Popen([sys.executable, "-c", IMPORTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bare:
        assert bare.stdout is not None
        bare.stdout.readline()
        imports = resident_mb(bare.pid)
        bare.kill()
    with scratch(args.directory) as base, Peers() as peers:
        first = peers.start("--data", str(base)).ready()  # makes the directory a data directory
        first.kill(signal.SIGTERM)
        first.ended()
        storage.fill(str(base), args.keys)
        node = resident_mb(peers.start("--data", str(base)).ready().process.pid)
    return [
        {"op": "memory", "keys": args.keys, "imports_mb": imports, "node_mb": node},
        bar(f"MB of a node with {args.keys:,} keys on disk", node, at_most=NODE_MB_MAX),
        bar("MB of these above the imports", node - imports, at_most=ABOVE_IMPORTS_MB_MAX),
    ]


def start(args: argparse.Namespace) -> Rows:
    """Measure the time of `chord get` and of `chord --help` from the shell."""
    with ring_of(3, None) as ring:
        fill([ring[0].address], 10)
        commands = {
            "chord get": (*PROGRAM, "get", "key-1", "--node", ring[0].address),
            "chord --help": (*PROGRAM, "--help"),
            "dependencies": (sys.executable, "-c", "import cbor2, msgspec, socket"),
        }
        get, helped, bare = timed(commands)
    return [
        get,
        helped,
        bare,
        {"op": "chord get / dependencies", "times": get["cpu_ms"] / bare["cpu_ms"]},
        bar("ms of `chord get`", get["wall_ms"], at_most=GET_MS_MAX),
        bar("ms of processor of `chord get`", get["cpu_ms"], at_most=GET_CPU_MS_MAX),
    ]


def timed(commands: dict[str, tuple[str, ...]]) -> list[Row]:
    """Run commands in turns; return the median times of each in ms."""
    wall: dict[str, list[float]] = {name: [] for name in commands}
    cpu: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(STARTS):
        for name, command in commands.items():
            before, began = getrusage(RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            after = getrusage(RUSAGE_CHILDREN)
            wall[name].append(time.perf_counter() - began)
            cpu[name].append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return [
        {"op": name, "wall_ms": 1000 * statistics.median(wall[name]), "cpu_ms": 1000 * statistics.median(cpu[name])}
        for name in commands
    ]


def up(args: argparse.Namespace) -> Rows:
    """Measure the time until `chord up` has started an Ideal ring of 16 nodes."""
    took = []
    for _ in range(RINGS):
        with Ports() as ports, running("up", "-n", "16", "--base-port", str(ports.row(16))) as ring:
            took.append(float(ring.ready["seconds"]))
    seconds = statistics.median(took)
    return [
        {"op": "chord up -n 16", "seconds": seconds, "slowest": max(took)},
        bar("seconds to a proven ring of 16", seconds, at_most=UP_S_MAX),
    ]


def stalls(args: argparse.Namespace) -> Rows:
    """Measure how long a task blocks a node's event loop, under heavy load.

    The figure of a node is the longest step of any task, in processor time.
    """
    with scratch(args.directory) as base:
        program = (sys.executable, "-c", WATCHED, str(base))
        with ring_of(4, base / "data", program=program) as ring, Peers() as late:
            addresses = [peer.address for peer in ring]
            trio.run(put_all_the_time, addresses, 32, 1, args.seconds)
            fill(addresses, args.keys // 5)
            with Foreground(addresses, args.keys // 5):
                joiner = late.start("--data", str(base / "late"), "--join", addresses[0], program=program).ready()
                settled([*addresses, joiner.address])
                ring[-1].kill()
                ring[-1].ended()
                ideal(addresses[0])
            pids = [peer.process.pid for peer in (*ring, joiner)]
            found = [(base / str(pid)).read_text().split(" ", 1) for pid in pids]
    rows: Rows = [{"op": "stall", "node": number, "ms": float(ms), "task": task}
                  for number, (ms, task) in enumerate(found)]  # fmt: skip
    return [*rows, bar("ms of processor in one step of a task", max(row["ms"] for row in rows), at_most=STALL_MS_MAX)]


if __name__ == "__main__":
    sys.exit(
        run_parts(
            __doc__,
            {"memory": memory, "start": start, "up": up, "stalls": stalls},
            {"flag": "--keys", "type": positive, "default": 100_000, "help": "keys in the database (default 100,000)"},
            {"flag": "--seconds", "type": float, "default": 5.0, "help": "seconds of puts (default 5)"},
            {"flag": "--directory", "default": ".", "help": "directory on the disk to measure (default: this one)"},
        )
    )
