"""Divide the processor time of one operation among the parts of the program.

    python -m benchmarks.cost_parts [--seconds 40] [--in-flight 32] [--json]

The ring and the operations are those of `benchmarks.cost`: three nodes in memory, and one client. A ping, the shortest
call, shows what the RPC takes by itself. Every process samples itself: a timer of its processor time interrupts it,
and the sample notes the part that runs. A part is a group of modules. Time in a library counts for the part that called
it, except for Trio. The cost of an operation in a part is the share of the samples in this part, times the processor
time of the operation.

The samples themselves take time. So the totals are above those of `benchmarks.cost`, and only proportions count.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import trio

import chord as library
from benchmarks.bars import Rows, positive, run_parts
from benchmarks.cost import Operations, keep_in_flight, operations_of
from benchmarks.replicas import cpu_s
from benchmarks.rings import ring_of
from chord.client.session import ClientCall
from chord.wire.messages import Ping
from tests.support.processes import Peer

INTERVAL_S = 0.004
SAMPLED = "import sys; from benchmarks.cost_parts import run_sampled; run_sampled(sys.argv.pop(1))"
PARTS = (
    ("chord.wire", "codec and messages"),
    ("chord.net.transport", "sockets"),
    ("chord.net.send_buffer", "sockets"),
    ("trio._core._io", "sockets"),
    ("trio", "Trio"),
    ("chord.rpc", "connections and calls"),
    ("chord.net", "connections and calls"),
    ("chord.client", "client"),
    ("chord.store", "store and versions"),
    ("chord.replication", "coordinator and replicas"),
    ("chord.observe", "metrics and traces"),
    ("chord.events", "metrics and traces"),
    ("chord", "ring and ownership"),
    ("benchmarks", "the benchmark"),
)
"""The parts by the prefix of their modules; the first match counts."""


def part_of(frame: FrameType | None) -> str:
    """Return the part of the innermost frame that belongs to one."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        for prefix, part in PARTS:
            if module.startswith(prefix):
                return part
        frame = frame.f_back
    return "other"


class Sampler:
    """Samples the part that this process runs, at intervals of its processor time.

    Attributes:
        samples: for each sample the time on the monotonic clock, in seconds, and the part.
    """

    def __init__(self) -> None:
        self.samples: list[tuple[float, str]] = []

    def start(self) -> None:
        """Start the timer. Only the main thread may call this."""
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)

    def stop(self) -> None:
        """Stop the timer."""
        signal.setitimer(signal.ITIMER_PROF, 0.0)

    def _sample(self, _: int, frame: FrameType | None) -> None:
        self.samples.append((time.monotonic(), part_of(frame)))


def run_sampled(directory: str) -> None:
    """Run the `chord` program, and write its samples into a directory when it ends."""
    from chord.cli import main

    sampler = Sampler()
    sampler.start()
    try:
        main()
    finally:
        sampler.stop()
        Path(directory, f"{os.getpid()}.json").write_text(json.dumps(sampler.samples))


class Period(NamedTuple):
    """A time in which the client repeated one operation.

    Attributes:
        began: on the monotonic clock, in seconds.
        ended: on the same clock.
        cpu_us: processor time of one operation, in µs.
    """

    began: float
    ended: float
    cpu_us: float


async def periods_of(ring: list[Peer], in_flight: int, seconds: float) -> dict[str, Period]:
    """Repeat each operation for the same time, and return the periods by operation."""
    async with library.open_client(ring[0].address) as client:
        operations: Operations = {
            "ping": lambda _: client._call(ClientCall(ring[0].address, Ping()), trio.current_time() + 5),
            **await operations_of(client, in_flight),
        }
        periods = {}
        for name, call in operations.items():
            await keep_in_flight(in_flight, 0.5, call)  # warms up
            spent, began = cpu_s(ring), time.monotonic()
            made = await keep_in_flight(in_flight, seconds / len(operations), call)
            periods[name] = Period(began, time.monotonic(), 1e6 * (cpu_s(ring) - spent) / made)
    return periods


def parts_of(samples: Sequence[tuple[float, str]], period: Period) -> dict[str, float]:
    """Return the processor time of one operation in each part, in µs."""
    found = Counter(part for when, part in samples if period.began <= when < period.ended)
    return {part: period.cpu_us * count / found.total() for part, count in found.items()}


def parts(args: argparse.Namespace) -> Rows:
    """Sample the client and all nodes of a ring of three."""
    sampler = Sampler()
    with tempfile.TemporaryDirectory() as directory:
        with ring_of(3, None, program=(sys.executable, "-c", SAMPLED, directory)) as ring:
            sampler.start()
            periods = trio.run(periods_of, ring, args.in_flight, args.seconds)
            sampler.stop()
            for peer in ring:
                peer.kill(signal.SIGTERM)
            for peer in ring:
                peer.ended()
        samples = sampler.samples + [
            (when, part) for file in Path(directory).iterdir() for when, part in json.loads(file.read_text())
        ]
    costs = {name: parts_of(samples, period) for name, period in periods.items()}
    names = [*dict.fromkeys(part for _, part in PARTS), "other"]
    return [
        *(
            {"part": part, **{f"{name}, us": round(cost.get(part, 0.0), 1) for name, cost in costs.items()}}
            for part in names
        ),
        {"part": "all", **{f"{name}, us": round(period.cpu_us, 1) for name, period in periods.items()}},
    ]


if __name__ == "__main__":
    sys.exit(
        run_parts(
            __doc__,
            {"parts": parts},
            {"flag": "--seconds", "type": float, "default": 40.0, "help": "seconds in all (default 40)"},
            {"flag": "--in-flight", "type": positive, "default": 32, "help": "operations under way (default 32)"},
        )
    )
