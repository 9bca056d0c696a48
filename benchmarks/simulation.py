"""How many simulated nodes one processor carries, how fast, and what one of them weighs.

    messages    10,000 nodes that call each other without streams or codec     `MessageNetwork`
    streams     1,000 nodes with real frames over streams in memory            `MemoryNetwork`
    soak        8 nodes with the *local* preset, as the swarms of seeds run them

Each ring is placed (`Cluster.place`) and left alone for 60 virtual seconds with a stabilize period of 30 s; the soak
runs its 0.25 s period for ten minutes. Each has a process of its own, so that what it weighs is its own as well: the
growth of the resident set from before the first node, a ring of two having come and gone before that, to the most it
ever was. Time is the processor's: what another process takes is not counted.

Bars: 60 s and 45 kB a node for messages, 20 s and 125 kB for streams, and every ring is Ideal at the end. Both bars of
memory were 5 kB less until each node had the objects that keep a reap log, level it with other nodes, watch the disk
and find the next deadline in a heap.
With --nodes the time allowed shrinks with the ring. Exit code 1 when a bar is missed. With --json, one JSON object per
line, the bars included.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import NamedTuple

import msgspec
import trio

from benchmarks.bars import Row, Rows, bar, positive, run_parts
from chord.config import PRESETS, RingConstants, Timing
from chord.sim.cluster import cluster
from chord.sim.messages import MessageNetwork
from chord.testing import MemoryNetwork, run

IDLE = msgspec.structs.replace(PRESETS["wan"], stabilize_s=30.0, finger_s=30.0)
SEED = 1


class Case(NamedTuple):
    """One ring to run; `None` where there is no bar."""

    network: type[MessageNetwork] | type[MemoryNetwork]
    nodes: int
    successors: int
    timing: Timing
    virtual_s: float
    cpu_s_max: float | None
    kb_max: float | None


CASES = {
    "messages": Case(MessageNetwork, 10_000, 16, IDLE, 60, 60, 45),
    "streams": Case(MemoryNetwork, 1_000, 16, IDLE, 60, 20, 125),
    "soak": Case(MessageNetwork, 8, 4, PRESETS["local"], 600, None, None),
}


# -- the process that runs one ring -----------------------------------------------------------


def resident_kb() -> float:
    """The most this process ever had in memory."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform == "darwin" else peak


async def live(case: Case, nodes: int, virtual_s: float) -> Row:
    """Place a ring, let it run, and say what that took."""
    network = case.network(SEED)
    before_kb, began = resident_kb(), time.process_time()
    ring = RingConstants(successors=case.successors, replicas=1)
    async with cluster(seed=SEED, network=network, timing=case.timing, ring=ring) as machines:
        await machines.place(nodes)
        placed, deliveries = time.process_time(), network.deliveries
        await trio.sleep(virtual_s)
        cpu_s = time.process_time() - placed
        deliveries = network.deliveries - deliveries
        return {
            "nodes": nodes,
            "virtual_s": virtual_s,
            "placing_cpu_s": round(placed - began, 2),
            "cpu_s": round(cpu_s, 2),
            "virtual_s_per_s": round(virtual_s / cpu_s, 1),
            "deliveries": deliveries,
            "deliveries_per_s": round(deliveries / cpu_s),
            "kb_per_node": round((resident_kb() - before_kb) / nodes, 1),
            "is_ideal": not machines.waiting(),
        }


def measure(name: str, nodes: int) -> None:
    """Run one case in this process and print its line."""
    case = CASES[name]
    run(live, case, 2, 60.0, seed=SEED)  # what is made once and for all is not a node's
    print(json.dumps({"system": name, **run(live, case, nodes, case.virtual_s, seed=SEED)}))


# -- the verdict ------------------------------------------------------------------------------


def bars(row: Row) -> Rows:
    """What is asked of one ring, and whether it is so."""
    name = row["system"]
    case = CASES[name]
    found = [bar(f"{name}: rings not Ideal at the end", float(not row["is_ideal"]), at_most=0)]
    if case.cpu_s_max is not None:
        allowed = case.cpu_s_max * min(1.0, row["nodes"] / case.nodes)
        text = f"{name}: processor seconds for {row['virtual_s']:g} virtual ones"
        found.append(bar(text, row["cpu_s"], at_most=round(allowed, 2)))
    if case.kb_max is not None:
        found.append(bar(f"{name}: kB a node", row["kb_per_node"], at_most=case.kb_max))
    return found


def rings(args: argparse.Namespace) -> Rows:
    """Every ring, in a process of its own."""
    rows = []
    for name, case in CASES.items():
        command = [sys.executable, "-m", "benchmarks.simulation", name, str(min(case.nodes, args.nodes or case.nodes))]
        rows.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout))
    return [*rows, *(verdict for row in rows for verdict in bars(row))]


def main() -> int:
    """Run the benchmark, or one ring of it."""
    if len(sys.argv) == 3 and sys.argv[1] in CASES:
        measure(sys.argv[1], int(sys.argv[2]))
        return 0
    nodes = {"flag": "--nodes", "type": positive, "help": "in every ring, for a quicker run; the soak keeps its 8"}
    return run_parts(__doc__, {"rings": rings}, nodes)


if __name__ == "__main__":
    sys.exit(main())
