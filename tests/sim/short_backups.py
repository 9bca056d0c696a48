"""Many short runs with consistent backups, killed processes and bad networks.

    python -m tests.sim.short_backups 0-999

A run takes a fraction of a second: six nodes with disks, three clients, three virtual seconds. A whole run of the
simulator (`chord sim run --backups`) takes as long as dozens of these.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from contextlib import suppress

import trio

from chord import testing
from chord.config import RingConstants
from chord.errors import ChordError
from chord.sim.backups import Backups
from chord.sim.cluster import Cluster, cluster
from chord.sim.messages import MessageNetwork

LASTS_S = 3.0
NODES = 6


def short_run(seed: int) -> Counter[str]:
    """Run one seed; return how many backups were complete and incomplete.

    Raises:
        AssertionError: a complete backup breaks the law.
    """
    rng = random.Random(f"short/{seed}")
    least_s = rng.choice([0.0002, 0.001, 0.004])
    network = MessageNetwork(seed, delay=testing.uniform(least_s, least_s * rng.choice([2, 15])))
    counts: Counter[str] = Counter()
    wrong: list[str] = []

    async def main() -> None:
        constants = RingConstants(successors=3, replicas=rng.choice([1, 2, 3]))
        async with cluster(seed=seed, ring=constants, network=network, sync_delay=_sync_s) as ring:
            await ring.place(NODES)
            made = Backups(ring, network, rng, wrong.append, counts, clients=3, pause_s=0.01, between_s=(0.05, 0.3))
            async with trio.open_nursery() as nursery:
                scope: trio.CancelScope = await nursery.start(made.run)
                nursery.start_soon(_disturb, ring, network, rng)
                await trio.sleep(LASTS_S)
                scope.cancel()
                nursery.cancel_scope.cancel()

    testing.run(main, seed=seed)
    assert not wrong, f"seed {seed}: {wrong[0]}"
    return counts


def _sync_s(rng: random.Random) -> float:
    return rng.uniform(0.001, 0.01)


async def _disturb(ring: Cluster, network: MessageNetwork, rng: random.Random) -> None:
    """Kill and restart nodes, stop a process for a moment, and let nodes join and leave."""
    while True:
        await trio.sleep(rng.uniform(0.1, 0.8))
        ready = [node for node in ring.nodes if node.state == "ready"]
        if len(ready) < NODES - 1:
            continue
        node = rng.choice(ready)
        what = rng.choice(["restart", "freeze", "join", "leave", "nothing"])
        with suppress(ChordError):
            if what == "restart":
                await ring.kill(node)
                await trio.sleep(rng.uniform(0, 0.5))
                await ring.restart(node)
            elif what == "freeze":
                network.stop(node.name)
                await trio.sleep(rng.uniform(0, 0.3))
                network.wake(node.name)
            elif what == "join":
                await ring.start(join=[node])
            elif what == "leave":
                await node.leave()


def main() -> int:
    """Run the seeds that the command line names; return the exit code: 1 if a seed failed."""
    first, _, last = sys.argv[1].partition("-")
    total: Counter[str] = Counter()
    failed = 0
    for seed in range(int(first), int(last or first) + 1):
        try:
            total += short_run(seed)
        except AssertionError as error:
            failed += 1
            print(error, flush=True)
        total["seeds"] += 1
        if not (seed + 1) % 20:
            print(dict(total), f"{failed} failed", flush=True)
    print(dict(total), f"{failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
