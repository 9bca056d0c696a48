"""Measure the cost of a ring without changes, and how fast a ring of processes starts.

    python -m benchmarks.idle [--seconds 20] [--only local,lan,up,start] [--json]

The parts are:

- local: 16 idle nodes with the preset `local`; processor time of a node, in percent of a core.
- lan: the same with the preset `lan`.
- up: `chord up -n 64`: seconds until the ring is proven, and the processor time of all its idle peers together.
- start: 15 nodes with the preset `lan` join one node at once; seconds until `chord check` finds the ring Ideal.

Before a part measures an idle ring, it waits until all periods have grown.

Bars (required figures), at most:

- local: 0.25 % of a core per node. lan: 0.15 %.
- up: 8 s, and 16 % of a core for all 64 peers.
- start: 3 s.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from benchmarks.bars import Rows, bar, run_parts
from benchmarks.others.processes import cpu_s_of
from benchmarks.rings import ring_of
from chord.config import PRESETS
from tests.support.ports import Ports
from tests.support.processes import Peers, ideal
from tests.support.real_rings import running

NODES = 16
PEERS = 64
RINGS = 3
QUIET_ROUNDS = 60
"""The number of stabilize periods before a ring counts as idle. Periods grow for 32 of them."""
IDLE_MAX = {"local": 0.25, "lan": 0.15}
MANY_MAX, UP_S_MAX, START_S_MAX = 16.0, 8.0, 3.0


def percent_of_core(pids: list[int], preset: str, seconds: float) -> float:
    """Return the processor time of processes in an idle ring, together, in percent of a core."""
    time.sleep(QUIET_ROUNDS * PRESETS[preset].stabilize_s)
    spent, began = sum(map(cpu_s_of, pids)), time.perf_counter()
    time.sleep(seconds)
    return 100 * (sum(map(cpu_s_of, pids)) - spent) / (time.perf_counter() - began)


def idle(preset: str, seconds: float) -> Rows:
    """Measure a node of an idle ring."""
    with ring_of(NODES, None, "--preset", preset) as ring:
        share = percent_of_core([peer.process.pid for peer in ring], preset, seconds) / NODES
    return [
        {"op": "idle", "preset": preset, "nodes": NODES, "percent_of_core_per_node": round(share, 3)},
        bar(f"% of a core of an idle node, preset {preset}", share, at_most=IDLE_MAX[preset]),
    ]


def local(args: argparse.Namespace) -> Rows:
    """Measure an idle ring with the preset of `chord up`."""
    return idle("local", args.seconds)


def lan(args: argparse.Namespace) -> Rows:
    """Measure an idle ring with the preset of `chord node`."""
    return idle("lan", args.seconds)


def up(args: argparse.Namespace) -> Rows:
    """Measure the start of 64 local peers, and their cost while nothing happens."""
    with Ports() as ports, running("up", "-n", str(PEERS), "--base-port", str(ports.row(PEERS))) as ring:
        took = float(ring.ready["seconds"])
        share = percent_of_core([node["pid"] for node in ring.nodes], "local", args.seconds)
    return [
        {"op": f"chord up -n {PEERS}", "seconds": took, "percent_of_core": round(share, 2)},
        bar(f"seconds to a proven ring of {PEERS}", took, at_most=UP_S_MAX),
        bar(f"% of a core of {PEERS} idle peers together", share, at_most=MANY_MAX),
    ]


def start(args: argparse.Namespace) -> Rows:
    """Measure the time until nodes that start at once are an Ideal ring."""
    took = []
    for _ in range(RINGS):
        with Peers() as peers:
            first = peers.start("--preset", "lan").ready()
            began = time.perf_counter()
            ring = [peers.start("--preset", "lan", "--join", first.address) for _ in range(NODES - 1)]
            for peer in ring:
                peer.ready()
            ready_s = time.perf_counter() - began
            ideal(first.address)
            took.append((time.perf_counter() - began, ready_s))
    seconds, ready_s = (statistics.median(times) for times in zip(*took, strict=True))
    return [
        {"op": "start", "nodes": NODES, "ready_s": ready_s, "ideal_s": seconds, "slowest_s": max(took)[0]},
        bar(f"seconds until {NODES} nodes that start at once are Ideal", seconds, at_most=START_S_MAX),
    ]


if __name__ == "__main__":
    sys.exit(
        run_parts(
            __doc__,
            {"local": local, "lan": lan, "up": up, "start": start},
            {"flag": "--seconds", "type": float, "default": 20.0, "help": "seconds of an idle ring (default 20)"},
        )
    )
