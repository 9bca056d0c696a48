"""How many simulated nodes one processor carries, how fast, and what one of them weighs.

    messages    10,000 nodes that call each other without streams or codec     `MessageNetwork`
    streams     1,000 nodes with real frames over streams in memory            `MemoryNetwork`
    soak        8 nodes with the *local* preset, as the swarms of seeds run them

Each ring is placed (`Cluster.place`) and left alone for 60 virtual seconds with a stabilize period of 30 s; the soak
runs its 0.25 s period for ten minutes. Each has a process of its own, so that what it weighs is its own as well: the
growth of the resident set from before the first node, a ring of two having come and gone before that, to the most it
ever was. Time is the processor's: what another process takes is not counted.

Bars: 60 s and 40 kB a node for messages, 20 s and 120 kB for streams, and every ring is Ideal at the end. With --nodes
the time allowed shrinks with the ring. Exit code 1 when a bar is missed. With --json, one JSON object per line, the
bars included.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any, NamedTuple

import msgspec
import trio

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
    "messages": Case(MessageNetwork, 10_000, 16, IDLE, 60, 60, 40),
    "streams": Case(MemoryNetwork, 1_000, 16, IDLE, 60, 20, 120),
    "soak": Case(MessageNetwork, 8, 4, PRESETS["local"], 600, None, None),
}


# -- the process that runs one ring -----------------------------------------------------------


def resident_kb() -> float:
    """The most this process ever had in memory."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform == "darwin" else peak


async def live(case: Case, nodes: int, virtual_s: float) -> dict[str, Any]:
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


def bars(row: dict[str, Any]) -> list[dict[str, Any]]:
    """What is asked of one ring, and whether it is so."""
    case = CASES[row["system"]]
    checked: list[tuple[str, float, float]] = [("rings not Ideal at the end", float(not row["is_ideal"]), 0)]
    if case.cpu_s_max is not None:
        allowed = case.cpu_s_max * min(1.0, row["nodes"] / case.nodes)
        checked.append((f"processor seconds for {row['virtual_s']:g} virtual ones", row["cpu_s"], round(allowed, 2)))
    if case.kb_max is not None:
        checked.append(("kB a node", row["kb_per_node"], case.kb_max))
    name = row["system"]
    return [
        {"bar": f"{name}: {text}", "value": value, "at_most": most, "verdict": "PASS" if value <= most else "FAIL"}
        for text, value, most in checked
    ]


def report(rows: list[dict[str, Any]], verdicts: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print what was measured and whether the bars are met."""
    if as_json:
        for line in (*rows, *verdicts):
            print(json.dumps(line))
        return
    print(f"{'ring':10}{'nodes':>7}{'placed in':>11}{'virtual s':>11}{'CPU s':>8}{'virtual s/s':>13}", end="")
    print(f"{'deliveries/s':>14}{'kB/node':>9}")
    for row in rows:
        print(f"{row['system']:10}{row['nodes']:>7,}{row['placing_cpu_s']:>9.2f} s{row['virtual_s']:>11g}", end="")
        print(f"{row['cpu_s']:>8.2f}{row['virtual_s_per_s']:>13.1f}", end="")
        print(f"{row['deliveries_per_s']:>14,}{row['kb_per_node']:>9.1f}")
    print()
    for one in verdicts:
        print(f"{one['verdict']}  {one['value']:6.1f} (at most {one['at_most']:g})  {one['bar']}")


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nodes", type=int, help="in every ring, for a quicker run; the soak keeps its 8")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        measure(args.case, args.nodes)
        return 0

    rows = []
    for name, case in CASES.items():
        nodes = min(case.nodes, args.nodes or case.nodes)
        command = [sys.executable, __file__, "--case", name, "--nodes", str(nodes)]
        rows.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout))
    verdicts = [verdict for row in rows for verdict in bars(row)]
    report(rows, verdicts, as_json=args.json)
    return 0 if all(verdict["verdict"] == "PASS" for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
