"""Leaders and followers: how many reads of a follower's copy are old, and how many of them clients can notice.

The course notes "分片 (Sharding)" describe such a store. Each shard has a leader in one data centre, and followers in
the others. The leader orders the writes and answers at once, and the followers receive the writes later. Clients read
the copy of their own region. A trace of a real store found 0.0004 % of reads that a linearizable store would have
answered differently (Lu et al. 2015, SOSP).

The run takes the gallery's entry `order-leader-followers` on virtual time, once for each shard. Keys, sessions and the
lengths of calls are drawn afterwards, because the algorithm does not depend on them. Three counts follow:

- truly old: at the moment of the read, the leader's log has a newer write of the key
- not linearizable: an anomaly of the happens-before graph, which knows only the calls of clients
- not read-your-writes: a write of the same session is newer, and had ended before the read began

A copy is old from a write until the write arrives. Let λ be the writes of a key per second, L the mean lag in seconds,
and φ the share of reads at followers. Then the share of old reads is φ·λL / (1 + λL).
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from chord.gallery.index import entry_of
from chord.gallery.process import Name, Process, names_of
from chord.gallery.timed import Conditions, TimedRun, run_timed
from chord.lab.harness.experiment import Experiment, Field, Result, Scale, Table
from chord.lab.harness.plot import GREY, MEASURED, ORANGE, dress, headline
from chord.testing import Delay
from chord.verify.history.format import HistoryValue, Operation
from chord.verify.history.graph import anomalies

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENTRY = "order-leader-followers"
REGIONS, SESSIONS, KEYS = 4, 5, 20  # the sessions of each region, and the keys of each shard
WEIGHTS = [1 / rank for rank in range(1, KEYS + 1)]  # Zipf's law
SHARDS: dict[Scale, int] = {"quick": 4, "standard": 12, "full": 48}
SECONDS: dict[Scale, float] = {"quick": 75.0, "standard": 250.0, "full": 250.0}
LAGS_S: dict[Scale, tuple[float, ...]] = {
    "quick": (0.0, 0.005, 0.05), "standard": (0.0, 0.0005, 0.005, 0.05), "full": (0.0, 0.0005, 0.005, 0.05)
}  # fmt: skip
NEAR_S, FAR_S = 0.00025, 0.0005
"""The mean of half a call within a region, and what each region on the way adds, in seconds."""

CALL_S = 2 * NEAR_S + FAR_S
"""The mean time from a write in the log to its answer, plus the first half of a read."""

SHORT = 0.04
"""Calls are short if their time is at most this share of the lag."""

ENOUGH, WITHIN, FOUND = 1000, 0.1, 0.95
PUBLISHED = 4e-6
UNLIMITED = 1_000_000_000
LEADER: Name = "a"


class LeadersSetting(NamedTuple):
    """One shard: its leader is in region `shard` modulo `REGIONS`.

    Attributes:
        lag_s: the mean lag of the followers in seconds; 0: they apply each write at once.
        shard: the number of the shard, from 0.
        seconds: the length of the run in virtual seconds.
        seed: the source of all random choices.
    """

    lag_s: float
    shard: int
    seconds: float
    seed: int

    def __str__(self) -> str:
        return f"lag {self.lag_s * 1000:g} ms, shard {self.shard}"


class KeyReads(NamedTuple):
    """The reads of one key at one follower.

    Attributes:
        load: λL, the mean number of writes of the key during one mean lag of the follower.
        reads: the number of reads.
        old: the number of truly old reads: the leader had a newer value of the key at that moment.
    """

    load: float
    reads: int
    old: int

    @property
    def due(self) -> float:
        """The number of old reads that the law predicts: reads · λL / (1 + λL)."""
        return self.reads * self.load / (1 + self.load)


@dataclass(frozen=True)
class LeadersCell:
    """The reads of one shard.

    Attributes:
        groups: the reads at followers, one entry per key and follower.
        at_leader: the number of reads at the leader.
        anomalies: the number of reads that are not linearizable, by the calls of clients alone.
        false_anomalies: how many of these anomalies were not old, by the leader's log.
        not_own: the number of reads that missed an earlier write of their own session.
    """

    setting: LeadersSetting
    groups: tuple[KeyReads, ...]
    at_leader: int
    anomalies: int
    false_anomalies: int
    not_own: int


def plan(scale: Scale, seed: int) -> list[LeadersSetting]:
    """Return one setting for each mean lag and each shard. Without lag, there is one shard per region."""
    return [
        LeadersSetting(lag_s, shard, SECONDS[scale], seed)
        for lag_s in LAGS_S[scale]
        for shard in range(SHARDS[scale] if lag_s else REGIONS)
    ]


def measure(setting: LeadersSetting) -> LeadersCell:
    """Run one shard, draw the calls of its clients, and count the old reads."""
    shard = _Shard(setting, _run(setting))
    shard.replay()
    return shard.cell()


def _run(setting: LeadersSetting) -> TimedRun:
    """Run the entry with one shard, and with asks that never end: writes at the leader, and reads everywhere."""
    entry = entry_of(ENTRY)

    def make(names: Sequence[Name]) -> Iterator[Process]:
        for process in entry.make(names):
            writes = UNLIMITED if process.me == LEADER else 0
            yield msgspec.structs.replace(process, shard_count=1, writes=writes, reads=UNLIMITED)

    seed = setting.seed * SHARDS["full"] + setting.shard
    conditions = Conditions(
        seed=seed, delay=_delay(setting.lag_s), until_s=setting.seconds, steps_max=UNLIMITED
    )  # fmt: skip
    unchecked = msgspec.structs.replace(entry, make=make, laws=())  # a check of whole logs at each step would be slow
    return run_timed(unchecked, REGIONS, conditions, has_states=False)


def _delay(lag_s: float) -> Delay:
    """Return lags with an exponential distribution, around a mean in proportion to the distance."""
    places = {name: place for place, name in enumerate(names_of(REGIONS))}
    mean = fmean(_distance(place) for place in range(1, REGIONS))

    def draw(rng: random.Random, source: str, target: str) -> float:
        mean_s = lag_s * _distance(places[target] - places[source]) / mean
        return rng.expovariate(1 / mean_s) if mean_s else 0.0

    return draw


def _distance(places: int) -> int:
    """Return the distance of two regions, which lie on a circle."""
    return min(places % REGIONS, -places % REGIONS)


class _Shard:
    """The calls of the clients of one shard, and the reads counted from them."""

    def __init__(self, setting: LeadersSetting, run: TimedRun) -> None:
        self._setting = setting
        self._run = run
        self._rng = random.Random(f"leaders/{setting.seed}/{setting.shard}/{setting.lag_s}")
        self._logs: dict[Name, list[str]] = {
            name: process.logs.get(LEADER, []) for name, process in run.world.processes.items()
        }
        log = self._logs[LEADER]
        self._ranks: dict[HistoryValue, int] = {value: rank for rank, value in enumerate(log)}
        self._keys = dict(zip(log, self._rng.choices(range(KEYS), WEIGHTS, k=len(log)), strict=True))
        self._operations: list[Operation] = []
        self._old: set[int] = set()  # the lines of the reads that are truly old
        self._places: dict[int, Name] = {}  # by line, the process that answered the read
        self._lags: dict[Name, list[float]] = {name: [] for name in run.recording.names if name != LEADER}

    def replay(self) -> None:
        """Turn each read and each write of the run into a call of a client."""
        applied: Counter[Name] = Counter()
        latest: dict[Name, dict[int, str]] = {name: {} for name in self._logs}
        written_s: dict[str, float] = {}
        for event in self._run.recording.events:
            name = event.process
            if event.what != "did":
                continue
            if event.with_ == "apply":
                value = self._logs[name][applied[name]]
                applied[name] += 1
                latest[name][self._keys[value]] = value
                if name == LEADER:
                    written_s[value] = event.at
                    self._write(value, event.at)
                else:
                    self._lags[name].append(event.at - written_s[value])
            elif event.with_ == "read":
                (key,) = self._rng.choices(range(KEYS), WEIGHTS)
                found = latest[name].get(key)
                self._read(name, key, found, event.at)
                if found != latest[LEADER].get(key):
                    self._old.add(len(self._operations))

    def _write(self, value: str, at: float) -> None:
        region = self._rng.randrange(REGIONS)
        start_s, end_s = self._call(at, _distance(region - self._setting.shard))
        line = len(self._operations) + 1
        client, key = self._client(region), self._keys[value]
        self._operations.append(Operation(line, client, key, "put", "ok", start_s, end_s, new=value))

    def _read(self, name: Name, key: int, value: str | None, at: float) -> None:
        region = (self._setting.shard + self._run.recording.names.index(name)) % REGIONS
        start_s, end_s = self._call(at, 0)
        line = len(self._operations) + 1
        found = () if value is None else (value,)
        self._operations.append(Operation(line, self._client(region), key, "get", "ok", start_s, end_s, found=found))
        self._places[line] = name

    def _call(self, at: float, distance: int) -> tuple[float, float]:
        """Draw the beginning and the end of a call that takes effect at a time."""
        rate = 1 / (NEAR_S + distance * FAR_S)
        return at - self._rng.expovariate(rate), at + self._rng.expovariate(rate)

    def _client(self, region: int) -> str:
        return f"{region}/{self._rng.randrange(SESSIONS)}"

    # -- counts ---------------------------------------------------------------------------------

    def cell(self) -> LeadersCell:
        """Return the counts of all reads."""
        by_key: dict[int, list[Operation]] = {key: [] for key in range(KEYS)}
        for operation in self._operations:
            assert isinstance(operation.key, int)
            by_key[operation.key].append(operation)
        order = self._logs[LEADER]
        odd = {read.line for operations in by_key.values() for read in anomalies(operations, order)}
        places = Counter(self._places.values())
        not_own = sum(self._count_not_own(operations) for operations in by_key.values())
        return LeadersCell(
            self._setting, tuple(self._groups()), places[LEADER], len(odd), len(odd - self._old), not_own
        )  # fmt: skip

    def _groups(self) -> Iterator[KeyReads]:
        """Yield the reads at each follower, by key."""
        reads = [operation for operation in self._operations if not operation.is_write]
        counts = Counter((self._places[read.line], read.key) for read in reads)
        old = Counter((self._places[read.line], read.key) for read in reads if read.line in self._old)
        writes_per_s = len(self._logs[LEADER]) / self._run.seconds
        for name, lags in self._lags.items():
            for key, weight in enumerate(WEIGHTS):
                load = writes_per_s * weight / sum(WEIGHTS) * fmean(lags)
                yield KeyReads(load, counts[name, key], old[name, key])

    def _count_not_own(self, operations: Iterable[Operation]) -> int:
        """Return how many reads of a key miss an earlier write of their own session."""
        own: dict[object, list[Operation]] = {}
        reads = []
        for operation in operations:
            if operation.is_write:
                own.setdefault(operation.client, []).append(operation)
            else:
                reads.append(operation)
        return sum(any(self._misses(read, write) for write in own.get(read.client, ())) for read in reads)

    def _misses(self, read: Operation, write: Operation) -> bool:
        assert write.new is not None
        rank = self._ranks[read.found[0]] if read.found else -1
        return write.latest_s < read.start_s and self._ranks[write.new] > rank


# -- what comes of it ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class LagOutcome:
    """The reads of all shards with one mean lag of the followers, `lag_s` in seconds."""

    lag_s: float
    cells: tuple[LeadersCell, ...]

    @property
    def groups(self) -> list[KeyReads]:
        """The reads at followers, one entry per shard, key and follower."""
        return [group for cell in self.cells for group in cell.groups]

    @property
    def at_followers(self) -> int:
        """The number of reads at followers."""
        return sum(group.reads for group in self.groups)

    @property
    def reads(self) -> int:
        """The number of all reads, at followers and at leaders."""
        return self.at_followers + sum(cell.at_leader for cell in self.cells)

    @property
    def old(self) -> int:
        """The number of truly old reads: the leader had a newer value of the key at that moment."""
        return sum(group.old for group in self.groups)

    @property
    def due(self) -> float:
        """The number of old reads that the law predicts: the sum of reads · λL / (1 + λL) over followers and keys."""
        return sum(group.due for group in self.groups)

    @property
    def load(self) -> float:
        """The mean λL over all reads at followers: the writes of the read key during one mean lag."""
        return sum(group.load * group.reads for group in self.groups) / self.at_followers

    @property
    def anomalies(self) -> int:
        """The number of reads that are not linearizable, by the calls of clients alone."""
        return sum(cell.anomalies for cell in self.cells)

    @property
    def false_anomalies(self) -> int:
        """The number of these anomalies that were not old, by the leader's log. It should be 0."""
        return sum(cell.false_anomalies for cell in self.cells)

    @property
    def not_own(self) -> int:
        """The number of reads that missed an earlier write of their own session."""
        return sum(cell.not_own for cell in self.cells)


def outcomes(result: Result[LeadersCell]) -> list[LagOutcome]:
    """Return one outcome for each mean lag, in the order of the plan."""
    lags = dict.fromkeys(cell.setting.lag_s for cell in result.cells)
    return [LagOutcome(lag, tuple(c for c in result.cells if c.setting.lag_s == lag)) for lag in lags]


def is_law_met(old: int, due: float) -> bool | None:
    """Whether the number of old reads is within 10 % of the predicted number; None for fewer than 1,000 old reads.

    Args:
        old: the number of old reads.
        due: the number that the law predicts.
    """
    return abs(old / due - 1) <= WITHIN if old >= ENOUGH else None


def is_met(outcome: LagOutcome) -> bool:
    """Whether the counts of one mean lag meet the bars.

    - Without lag, no read is old, and none is an anomaly.
    - With enough old reads, their number is within 10 % of the law. No anomaly is a fresh read.
    - If calls take at most 4 % of the lag, at least 95 % of the old reads are anomalies.
    """
    if not outcome.lag_s:
        return outcome.old == outcome.anomalies == 0
    is_found = outcome.anomalies >= FOUND * outcome.old or outcome.lag_s * SHORT < CALL_S
    return is_law_met(outcome.old, outcome.due) is not False and is_found and not outcome.false_anomalies


def by_load(found: Iterable[LagOutcome]) -> list[tuple[int, KeyReads]]:
    """Return the reads at followers, grouped by the order of magnitude of λL, the largest λL first.

    λL is the number of writes of a key during one mean lag. Runs without lag are left out.

    Returns:
        pairs: an exponent p, and the sums over all reads of keys with a λL from 10^p to 10^(p + 1). The `load` of the
            sums is the λL at which the law gives the same share of old reads.
    """
    groups = [group for outcome in found if outcome.lag_s for group in outcome.groups if group.reads]
    powers: dict[int, list[KeyReads]] = {}
    for group in groups:
        powers.setdefault(math.floor(math.log10(group.load)), []).append(group)
    rows = []
    for power, alike in sorted(powers.items(), reverse=True):
        reads, due = sum(group.reads for group in alike), sum(group.due for group in alike)
        share = due / reads
        rows.append((power, KeyReads(share / (1 - share), reads, sum(group.old for group in alike))))
    return rows


def tables(result: Result[LeadersCell]) -> list[Table]:
    """Return two tables of the old reads: for each mean lag, and for keys of similar λL."""
    found = outcomes(result)
    fields: list[Field[LagOutcome]] = [
        Field("mean lag, ms", "g", lambda o: o.lag_s * 1000),
        Field("reads", ",", lambda o: o.reads),
        Field("φ", ".3f", lambda o: o.at_followers / o.reads),
        Field("λL", ".2g", lambda o: o.load),
        Field("old, %", ".3g", lambda o: 100 * o.old / o.reads),
        Field("law, %", ".3g", lambda o: 100 * o.due / o.reads),
        Field("not linearizable, %", ".3g", lambda o: 100 * o.anomalies / o.reads),
        Field("of the old", ".1%", lambda o: o.anomalies / o.old if o.old else None),
        Field("fresh", "", lambda o: o.false_anomalies),
        Field("not read-your-writes, %", ".2g", lambda o: 100 * o.not_own / o.reads),
    ]
    notes = (
        f"Each shard has {KEYS} keys under Zipf's law, a leader in one of {REGIONS} regions, and a follower in each "
        f"other region. Each region has {SESSIONS} sessions. The times are virtual.",
        "λL is the number of writes of a key during a mean lag, from the measured lags. A follower that waits for an "
        "earlier write lags longer than its messages.",
        f"A write takes {CALL_S * 1000:g} ms on average until the graph can miss it in a read. With shorter lags the "
        "graph finds fewer of the old reads.",
        f"The published 0.0004 % follow from λL = {PUBLISHED * REGIONS / (REGIONS - 1):.0e}, if reads spread evenly "
        f"over {REGIONS} regions. That is one write of a key in two days, and a lag of one second.",
    )
    bar = (
        f"old reads within {WITHIN:.0%} of the law from {ENOUGH:,} old reads on. The graph counts no fresh read. It "
        f"counts at least {FOUND:.0%} of the old ones if calls take at most {SHORT:.0%} of the lag. No old read "
        "without lag"
    )
    first = Table.of("leaders", "Old reads by the lag of followers", fields, found, is_met, bar, notes)
    columns: list[Field[tuple[int, KeyReads]]] = [
        Field("λL from", "g", lambda row: 10.0 ** row[0]),
        Field("mean λL", ".2g", lambda row: row[1].load),
        Field("reads", ",", lambda row: row[1].reads),
        Field("old", ",", lambda row: row[1].old),
        Field("old, %", ".3g", lambda row: 100 * row[1].old / row[1].reads),
        Field("law, %", ".3g", lambda row: 100 * row[1].due / row[1].reads),
    ]
    second = Table.of(
        "leaders_keys", "Old reads at followers by the writes of a key during a lag", columns, by_load(found),
        lambda row: is_law_met(row[1].old, row[1].due), f"within {WITHIN:.0%} of the law from {ENOUGH:,} old reads on",
    )  # fmt: skip
    return [first, second]


def draw(result: Result[LeadersCell], figure: Figure) -> None:
    """Plot the share of old reads at followers against λL."""
    rows = [row for _, row in by_load(outcomes(result)) if row.old]
    few, many = rows[-1], rows[0]
    headline(
        figure,
        f"The share of old reads follows the writes of a key during a lag: {many.old / many.reads:.1%} with "
        f"{many.load:.1g} writes, {few.old / few.reads:.2%} with {few.load:.1g}",
    )
    axes = figure.subplots()
    loads = [10.0 ** (power / 4) for power in range(-24, 1)]
    axes.plot(loads, [load / (1 + load) for load in loads], color=GREY, label="law: λL / (1 + λL)")
    axes.plot([row.load for row in rows], [row.old / row.reads for row in rows], **(MEASURED | {"linestyle": ""}))
    axes.axhline(PUBLISHED, color=ORANGE, linestyle="--", label="published: 0.0004 % of all reads")
    axes.set_xscale("log")
    axes.set_yscale("log")
    dress(axes, "λL: writes of a key during a mean lag", "share of old reads at followers", is_from_zero=False)


EXPERIMENT = Experiment(
    name="leaders",
    title="Leaders and followers",
    source="the course notes “分片 (Sharding)”, after Lu et al. 2015 (SOSP): 0.0004 % of reads are not linearizable",
    plan=plan,
    measure=measure,
    tables=tables,
    pictures={"leaders": draw},
    command="sim paper leaders",
)
