"""Measure what a dashboard costs: its process, the nodes that it watches, its recordings.

    python -m benchmarks.dashboard [--seconds 10] [--rounds 20] [--only cpu,throughput,recording,memory] [--json]

The parts are:

- cpu: 16 idle nodes, and a dashboard with an open page. The processor time of the dashboard, and of a node beyond that
  of an unwatched one, in percent of a core.
- throughput: gets of a client, with a dashboard and an open page, as a share of the gets without it.
- recording: a quiet hour of 16 nodes on virtual time: the size of the recording, and the longest time to seek in it.
- memory: the memory of the aggregator of 10,000 nodes, in a process of its own.

Bars (required figures):

- cpu: at most 5 % of a core for the dashboard, 0.5 % for a watched node.
- throughput: at least 98 %.
- recording: at most 2 MB per hour, and 100 ms for a seek.
- memory: at most 120 MB.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from msgspec.structs import replace

import chord as library
from benchmarks.bars import Rows, bar, run_parts
from benchmarks.others.processes import cpu_s_of
from benchmarks.rings import ring_of
from chord.ids import Contact, Point
from chord.observe.chordlog import Chordlog
from chord.web.aggregator import Aggregator
from chord.web.hub import EventHub
from chord.web.recorder import RingRecorder
from chord.web.sampling import RingMeter
from chord.web.source import LiveRing, PlayedRing
from chord.wire.messages import DescribeReply, GetEventsReply, PeerInfo, Status
from tests.support.real_rings import HANG_S, running
from tests.support.statuses import statuses

NODES = 16
QUIET_S = 15.0
"""The time after which the periods of an idle ring of the preset `local` have grown."""

WARM_S = 2.0
SLICE_S, SETTLE_S = 1.0, 0.1
HOUR_S = 3600
SEEKS = 200
LARGE = 10_000
CPU_MAX, NODE_MAX = 5.0, 0.5
SHARE_MIN = 98.0
HOUR_MB_MAX, SEEK_MS_MAX = 2.0, 100.0
MEMORY_MB_MAX = 120.0
STARTED_MS = 1_800_000_000_000


@contextmanager
def open_page(entry: str) -> Iterator[int]:
    """Run a dashboard with one reader of its event stream, and give the id of its process."""
    with running("dashboard", "--node", entry, "--listen", "127.0.0.1:0") as dashboard:
        place = urlsplit(dashboard.ready["url"])
        connection = HTTPConnection(place.hostname or "", place.port or 0, timeout=HANG_S)
        connection.request("GET", "/api/v1/events")
        answer = connection.getresponse()

        def read() -> None:
            while answer.readline():
                pass

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        time.sleep(WARM_S)
        try:
            yield dashboard.process.pid
        finally:
            dashboard.stop()
            reader.join()
            connection.close()


def cpu(args: argparse.Namespace) -> Rows:
    """Measure the processor time of a dashboard and of the nodes that it watches."""

    def spent_s(pids: list[int]) -> float:
        before = sum(map(cpu_s_of, pids))
        time.sleep(args.seconds)
        return sum(map(cpu_s_of, pids)) - before

    with ring_of(NODES, None, "--preset", "local") as ring:
        nodes = [peer.process.pid for peer in ring]
        time.sleep(QUIET_S)
        idle_s = spent_s(nodes)
        with open_page(ring[0].address) as dashboard:
            before_s = cpu_s_of(dashboard)
            watched_s = spent_s(nodes)
            share = 100 * (cpu_s_of(dashboard) - before_s) / args.seconds
    more = 100 * (watched_s - idle_s) / args.seconds / NODES
    idle = 100 * idle_s / args.seconds / NODES
    return [
        {"op": "cpu", "nodes": NODES, "dashboard_percent": round(share, 2), "idle_node_percent": round(idle, 3),
         "watching_percent": round(more, 3)},
        bar(f"% of a core of a dashboard of {NODES} nodes", share, at_most=CPU_MAX),
        bar("% of a core that watching costs a node", more, at_most=NODE_MAX),
    ]  # fmt: skip


def throughput(args: argparse.Namespace) -> Rows:
    """Measure how much slower a client is while a page is open.

    Slices of a second take turns: in every other one, the process of the dashboard is stopped.
    """

    def gets_in_a_slice(client: library.Client) -> int:
        time.sleep(SETTLE_S)
        ends, count = time.perf_counter() + SLICE_S, 0
        while time.perf_counter() < ends:
            client.get(f"key {count % 100}")
            count += 1
        return count

    open_, closed = [], []
    with ring_of(NODES, None, "--preset", "local") as ring, library.connect(ring[0].address) as client:
        while client.put_many([(f"key {i}", "value") for i in range(100)]).errors:
            pass
        with open_page(ring[0].address) as dashboard:
            for _ in range(args.rounds):
                os.kill(dashboard, signal.SIGSTOP)
                try:
                    closed.append(gets_in_a_slice(client))
                finally:
                    os.kill(dashboard, signal.SIGCONT)
                open_.append(gets_in_a_slice(client))
    share = 100 * statistics.median(a / b for a, b in zip(open_, closed, strict=True))
    return [
        {"op": "throughput", "nodes": NODES, "gets_per_s": round(statistics.median(closed) / SLICE_S),
         "percent_of_median": round(share, 2), "percent_of_sum": round(100 * sum(open_) / sum(closed), 2)},
        bar("throughput with an open page, % of that without", share, at_least=SHARE_MIN),
    ]  # fmt: skip


class QuietRing:
    """A ring that never ran. Once per minute, one node suspects a peer for a moment, and gets a key."""

    def __init__(self, count: int) -> None:
        ids = tuple(range(1, count + 1))
        nodes = statuses(ids, bits=32, addresses={p: f"10.0.0.{p}:9000" for p in ids})
        self.nodes = {node.address: replace(node, replicas=3) for node in nodes}
        self.now_s = 0.0
        self.aggregator = Aggregator([nodes[0].address], 0.0)
        self.origin = LiveRing(self.aggregator, lambda: self.now_s, STARTED_MS)

    def turn(self, second: int) -> None:
        """Answer all polls of a second."""
        self.now_s = float(second)
        address = list(self.nodes)[second // 60 % len(self.nodes)]
        status = self.nodes[address]
        peers = (PeerInfo("10.0.0.1:9000", "suspect", None, 500, "no answer in 500 ms", 1),) if second % 60 == 0 else ()
        self.nodes[address] = replace(status, peers=peers, keys=status.keys + (second % 60 == 0))
        while polls := self.aggregator.due(self.now_s):
            for poll in polls:
                self.aggregator.on_reply(poll, self._answer(poll.address, poll.kind), self.now_s)

    def _answer(self, address: str, kind: str) -> DescribeReply | GetEventsReply:
        now_ms = STARTED_MS + int(1000 * self.now_s)
        if kind == "events":
            return GetEventsReply((), 0, 0, 1, now_ms, now_ms)
        status: Status = replace(self.nodes[address], wall_ms=now_ms, uptime_ms=int(1000 * self.now_s))
        return DescribeReply(b"", now_ms, status)


def recording(args: argparse.Namespace) -> Rows:
    """Measure a recording of a quiet hour."""
    ring, parts = QuietRing(NODES), list[bytes]()
    meter = RingMeter(ring.origin, EventHub(ring.origin))
    recorder = RingRecorder(ring.origin, meter, parts.append, "benchmark", with_keys=False)
    for second in range(HOUR_S):
        ring.turn(second)
        meter.series.add(STARTED_MS + 1000 * second, {})
        recorder.take()
    content = b"".join(parts)
    played, rng, took = PlayedRing(Chordlog(content)), random.Random(1), []
    for _ in range(SEEKS):
        began = time.perf_counter()
        played.at(STARTED_MS + rng.randrange(1000 * HOUR_S))
        took.append(1000 * (time.perf_counter() - began))
    size = len(content) / 1e6
    return [
        {"op": "recording", "nodes": NODES, "mb_per_hour": round(size, 3), "seek_ms_max": round(max(took), 2)},
        bar(f"MB of a recorded quiet hour of {NODES} nodes", size, at_most=HOUR_MB_MAX),
        bar("ms of the slowest seek in it", max(took), at_most=SEEK_MS_MAX),
    ]


def memory(args: argparse.Namespace) -> Rows:
    """Measure the memory of the aggregator of a large ring."""
    done = subprocess.run(
        [sys.executable, "-c", "from benchmarks.dashboard import fill; fill()"],
        capture_output=True, text=True, check=True, timeout=HANG_S,
    )  # fmt: skip
    size = float(done.stdout)
    return [
        {"op": "memory", "nodes": LARGE, "mb": round(size, 1)},
        bar(f"MB of an aggregator of {LARGE} nodes", size, at_most=MEMORY_MB_MAX),
    ]


def fill() -> None:
    """Print the memory that the state and history of a large ring take, in MB."""
    ids = tuple(range(1, LARGE + 1))
    nodes = (
        replace(node, peers=(), known=())
        for start in range(0, LARGE, 100)
        for node in statuses(ids[start : start + 100], bits=32, addresses={p: f"10.0.0.1:{p}" for p in ids})
    )
    aggregator = Aggregator(["10.0.0.1:1"], 0.0)
    before, (poll, *_) = _resident_mb(), aggregator.due(0.0)
    everyone = tuple(Contact(Point(p), f"10.0.0.1:{p}") for p in ids)
    aggregator.on_reply(poll, DescribeReply(b"", 0, replace(next(nodes), known=everyone)), 1.0)
    for node in nodes:
        aggregator.history.change(1.0, aggregator.model.describe(node))
    print(_resident_mb() - before)


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


if __name__ == "__main__":
    sys.exit(
        run_parts(
            __doc__,
            {"cpu": cpu, "throughput": throughput, "recording": recording, "memory": memory},
            {"flag": "--seconds", "type": float, "default": 10.0, "help": "seconds of each measurement (default 10)"},
            {"flag": "--rounds", "type": int, "default": 20, "help": "pairs of slices of throughput (default 20)"},
        )
    )
