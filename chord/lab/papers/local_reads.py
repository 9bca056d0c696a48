"""Local reads: how often they return an old value, beside reads from one replica and from a read quorum.

Clients write with W = 2 of three replicas. After each acknowledgement, reads at random nodes follow at several
intervals: with R = 2, with R = 1, and local reads. A read is old if its newest value is older than that write.

One ring is calm. In the other, one node at a time vanishes and returns after a while.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from chord import testing
from chord.config import RingConstants
from chord.errors import ChordError
from chord.lab.harness.experiment import Column, Experiment, Result, Row, Scale, Table
from chord.lab.harness.plot import BLUE, GREEN, ORANGE, dress, headline
from chord.lab.papers.world import fixed_periods, members
from chord.sim.cluster import Cluster, cluster
from chord.sim.disk import flash
from chord.sim.messages import MessageNetwork

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES, REPLICAS, KEYS, W = 6, 3, 40, 2
TIMING = fixed_periods("lan")
WAYS: dict[str, dict[str, Any]] = {"R = 2": {"r": 2}, "R = 1": {"r": 1}, "local": {"local": True}}
AFTER_S = {"at once": 0.0, "1 ms": 0.001, "10 ms": 0.01, "1 s": 1.0, "a period": TIMING.anti_entropy_s}
WRITES: dict[Scale, int] = {"quick": 200, "standard": 1_000, "full": 5_000}
WRITES_PER_S = 20.0
KILL_S, AWAY_S, TIMEOUT_S = 5.0, 2.0, 5.0


class LocalSetting(NamedTuple):
    """A ring with or without nodes that vanish.

    Attributes:
        has_churn: whether one node at a time vanishes and returns.
        writes: the number of writes.
        seed: the source of all random choices.
    """

    has_churn: bool
    writes: int
    seed: int

    def __str__(self) -> str:
        return "churn" if self.has_churn else "calm"


@dataclass(frozen=True)
class LocalCell:
    """The reads of one ring.

    The way of reading is "R = 2", "R = 1" or "local".

    Attributes:
        reads: the number of answered reads, by way of reading and seconds since the write's acknowledgement.
        old: how many of them returned only values older than that write, by the same keys as `reads`.
        is_local: by the way of reading, how many answers came from the copy of the node that the client asked.
        took_ms: by the way of reading, the mean time of a read in ms.
        errors: the number of reads without an answer.
    """

    setting: LocalSetting
    reads: dict[tuple[str, float], int]
    old: dict[tuple[str, float], int]
    is_local: dict[str, int]
    took_ms: dict[str, float]
    errors: int


def plan(scale: Scale, seed: int) -> list[LocalSetting]:
    """Return a calm ring and one with churn."""
    return [LocalSetting(has_churn, WRITES[scale], seed) for has_churn in (False, True)]


def measure(setting: LocalSetting) -> LocalCell:
    """Write keys, read them in each way after each interval, and count the old reads."""
    seed = f"local/{setting.seed}/{setting}"
    reads = _Reads(setting, random.Random(seed))

    async def main() -> None:
        constants = RingConstants(successors=NODES - 1, replicas=REPLICAS)
        network = MessageNetwork(seed)
        async with cluster(seed=seed, ring=constants, timing=TIMING, network=network, sync_delay=flash) as ring:
            await ring.place(NODES)
            await reads.run(ring)

    testing.run(main, seed=seed)
    return reads.cell()


class _Reads:
    """The writes and the reads on one ring, and the counts of their outcomes."""

    def __init__(self, setting: LocalSetting, rng: random.Random) -> None:
        self._setting = setting
        self._rng = rng
        self._reads: Counter[tuple[str, float]] = Counter()
        self._old: Counter[tuple[str, float]] = Counter()
        self._is_local: Counter[str] = Counter()
        self._took_ms: dict[str, list[float]] = {way: [] for way in WAYS}
        self._errors = 0

    async def run(self, ring: Cluster) -> None:
        async with trio.open_nursery() as churning:
            if self._setting.has_churn:
                churning.start_soon(self._churn, ring)
            async with trio.open_nursery() as reading:
                for number in range(self._setting.writes):
                    await trio.sleep(self._rng.expovariate(WRITES_PER_S))
                    await self._write(ring, number, reading)
            churning.cancel_scope.cancel()

    async def _write(self, ring: Cluster, number: int, reading: trio.Nursery) -> None:
        """Write a number to a random key; if the write is acknowledged, let the reads follow."""
        key = b"key-%d" % self._rng.randrange(KEYS)
        try:
            with trio.fail_after(TIMEOUT_S):
                await self._rng.choice(members(ring.nodes)).put(key, b"%d" % number, w=W)
        except (ChordError, trio.TooSlowError):
            return
        for way in WAYS:
            for after_s in AFTER_S.values():
                reading.start_soon(self._read, ring, key, number, way, after_s)

    async def _read(self, ring: Cluster, key: bytes, number: int, way: str, after_s: float) -> None:
        await trio.sleep(after_s)
        began = trio.current_time()
        try:
            with trio.fail_after(TIMEOUT_S):
                found = await self._rng.choice(members(ring.nodes)).get(key, **WAYS[way])
        except (ChordError, trio.TooSlowError):
            self._errors += 1
            return
        self._took_ms[way].append(1000 * (trio.current_time() - began))
        self._reads[way, after_s] += 1
        self._old[way, after_s] += max(map(int, found.values)) < number
        self._is_local[way] += found.is_local

    async def _churn(self, ring: Cluster) -> None:
        """Let one node at a time vanish and return, forever."""
        while True:
            await trio.sleep(self._rng.expovariate(1 / KILL_S))
            node = self._rng.choice(members(ring.nodes))
            await ring.kill(node, silently=True)
            await trio.sleep(AWAY_S)
            await (await ring.start(name=node.name)).ready()

    def cell(self) -> LocalCell:
        took_ms = {way: fmean(took) for way, took in self._took_ms.items()}
        return LocalCell(
            self._setting, dict(self._reads), dict(self._old), dict(self._is_local), took_ms, self._errors
        )  # fmt: skip


# -- what comes of it ---------------------------------------------------------------------------------


def is_met(cell: LocalCell, way: str) -> bool | None:
    """Whether one way of reading meets its bar; None if there is no bar, because nodes vanish.

    With "R = 2" no read may be old. With "R = 1" and "local", no read one anti-entropy period after the write may be.
    """
    if cell.setting.has_churn:
        return None
    old = [cell.old[way, after_s] for after_s in AFTER_S.values()]
    return not (any(old) if way == "R = 2" else old[-1])


def tables(result: Result[LocalCell]) -> list[Table]:
    """Return a table of the share of old reads, by the way of reading and the interval after the write."""
    columns = (
        *map(Column, ("ring", "read")), *(Column(f"old after: {name}, %", ".3g") for name in AFTER_S),
        Column("reads", ","), Column("own copy", ".0%"), Column("mean ms", ".2f"),
    )  # fmt: skip
    rows = []
    for cell in result.cells:
        for way in WAYS:
            counts = [cell.reads[way, after_s] for after_s in AFTER_S.values()]
            old = [cell.old[way, after_s] for after_s in AFTER_S.values()]
            shares = (100 * few / many for few, many in zip(old, counts, strict=True))
            rest = (sum(counts), cell.is_local[way] / sum(counts), cell.took_ms[way])
            rows.append(Row((str(cell.setting), way, *shares, *rest), is_met(cell, way)))
    notes = (
        f"{NODES} nodes with preset lan, {REPLICAS} replicas, W = {W}. A read is old if its newest value is older than "
        "the write before it. The times are virtual.",
        f"In churn a node vanishes every {KILL_S + AWAY_S:g} s on average, for {AWAY_S:g} s. A node that returns is "
        "not in sync until an owner has compared it, and forwards local reads until then.",
    )
    bar = "in the calm ring no read is old a period of anti-entropy after the write, and none ever with R = 2"
    return [Table("local_reads", "Old reads after an acknowledged write", columns, tuple(rows), bar, notes)]


def draw(result: Result[LocalCell], figure: Figure) -> None:
    """Plot the share of old reads against the time since the write."""
    calm = result.cells[0]
    share = calm.old["local", 0.0] / calm.reads["local", 0.0]
    headline(figure, f"Of the local reads just after an acknowledgement, {share:.1%} return an older value")
    axes = figure.subplots()
    colours = dict(zip(WAYS, (BLUE, GREEN, ORANGE), strict=True))
    for cell in result.cells:
        for way in WAYS:
            y = [100 * cell.old[way, after_s] / cell.reads[way, after_s] for after_s in AFTER_S.values()]
            style = "o--" if cell.setting.has_churn else "o-"
            axes.plot(range(len(AFTER_S)), y, style, color=colours[way], label=f"{way}, {cell.setting}")
    axes.set_xticks(range(len(AFTER_S)), list(AFTER_S))
    dress(axes, "time since the write was acknowledged", "old reads, %")


EXPERIMENT = Experiment(
    name="local_reads",
    title="Local reads",
    source="the course notes “分片 (Sharding)”: followers may return old values; no figures",
    plan=plan,
    measure=measure,
    tables=tables,
    pictures={"local_reads": draw},
    command="sim paper local_reads",
)
