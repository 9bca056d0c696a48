"""Measure processor time and memory of simulated nodes.

The rings are:

- messages: 10,000 nodes that call each other without streams or codec (`MessageNetwork`).
- streams: 1,000 nodes with real frames over streams in memory (`MemoryNetwork`).
- soak: 8 nodes with the preset *local*, as the swarms of seeds run them.

Each ring is placed (`Cluster.place`), and then runs undisturbed for 60 virtual seconds with a stabilize period of 30 s.
The soak runs for ten minutes with its period of 0.25 s. Each ring has its own process, so that its memory is its own.
The memory is the growth of the resident set from before the first node to the peak. A ring of two nodes has run before
that. The time is the processor time of that process.

Bars (required figures): 60 s and 45 kB per node for messages, 20 s and 125 kB for streams. Every ring must be Ideal at
the end. Both bars of memory are 5 kB higher than at first. The objects that keep and sync reap logs, watch the disk and
order the deadlines need that memory.

With --nodes the allowed time shrinks with the ring. The exit code is 1 if a bar is missed. With --json the output is
one JSON object per line, bars included.
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

IDLE = msgspec.structs.replace(PRESETS["wan"], stabilize_s=30.0, finger_s=30.0, period_growth_max=1.0)
SEED = 1


class Case(NamedTuple):
    """One simulated ring to measure, with its bars.

    Attributes:
        network: the kind of network.
        nodes: the number of nodes.
        successors: r, the length of successor lists in nodes.
        timing: the periods and timeouts.
        virtual_s: the time that the ring runs, in virtual seconds.
        cpu_s_max: the bar of processor time, in seconds; None: no bar.
        kb_max: the bar of memory per node, in kB; None: no bar.
    """

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


# -- the process of one ring ------------------------------------------------------------------


def resident_kb() -> float:
    """Return the largest resident memory of this process so far, in kB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform == "darwin" else peak


async def live(case: Case, nodes: int, virtual_s: float) -> Row:
    """Run a simulated ring undisturbed; return its processor time and memory."""
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
    """Measure one ring in this process, and print its row as JSON.

    Args:
        name: its name in `CASES`.
    """
    case = CASES[name]
    run(live, case, 2, 60.0, seed=SEED)  # objects that are made only once do not count for a node
    print(json.dumps({"system": name, **run(live, case, nodes, case.virtual_s, seed=SEED)}))


# -- the verdict ------------------------------------------------------------------------------


def bars(row: Row) -> Rows:
    """Return the bars on a simulated ring: Ideal at the end, time and memory."""
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
    """Measure every simulated ring, each in its own process."""
    rows = []
    for name, case in CASES.items():
        command = [sys.executable, "-m", "benchmarks.simulation", name, str(min(case.nodes, args.nodes or case.nodes))]
        rows.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout))
    return [*rows, *(verdict for row in rows for verdict in bars(row))]


def main() -> int:
    """Run the benchmark; with a case and a number of nodes, only that ring."""
    if len(sys.argv) == 3 and sys.argv[1] in CASES:
        measure(sys.argv[1], int(sys.argv[2]))
        return 0
    nodes = {"flag": "--nodes", "type": positive, "help": "largest number of nodes of a ring, for a quicker run"}
    return run_parts(__doc__, {"rings": rings}, nodes)


if __name__ == "__main__":
    sys.exit(main())
