"""Full membership: lookups with one call, and the bytes of the gossip that make it possible.

Every node knows all members of a ring, and exchanges entries with a member at random. The experiment has three parts:

- *rounds*: how fast one entry reaches all lists, and how often it is sent; real nodes beside a model.
- *calls*: the calls of random lookups on the routes classic, fast (cold and warm) and full. The ring is calm, or its
  nodes live for an exponential time. Half of them then leave, and half crash silently. A new node joins for each.
- *bytes*: the bytes of gossip by part, beside the law 90/T + 168·λ + C and beside the maintenance of the ring. λ is the
  number of changes per second, two for each session, and C is the cost of the comparisons. The law holds for a fixed
  period of gossip; the periods of that ring are 5 s. The rings with lookups have preset lan, in which the period of
  gossip grows. The other periods never grow.

The routes classic and fast run on a ring without lists. A warm cache has all arcs as they were at the beginning, and
what lookups of the same node have learnt since.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec
import trio

from chord import testing
from chord.config import RingConstants, Timing
from chord.errors import ChordError
from chord.ids import Point
from chord.lab.harness.experiment import Column, Experiment, Field, Result, Row, Scale, Table
from chord.lab.harness.plot import BLUE, GREEN, ORANGE, PURPLE, dress, headline
from chord.lab.papers.gossip_bytes import ByteKind, GossipWeigher
from chord.lab.papers.world import draw_point, fixed_periods, has_model, members, placed_ring, rightful_owner
from chord.membership.gossip import PARTNERS, QUIET_PARTNERS
from chord.node import Node
from chord.ring.members import Members
from chord.sim.cluster import Cluster
from chord.sim.messages import MessageNetwork
from chord.wire.messages import MemberEntry, Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Part: TypeAlias = Literal["model", "rounds", "calls", "bytes"]

SUCCESSORS = 16
TIMEOUT_S, WARM_UP_S, ASKING = 5.0, 15.0, 16
MODEL_RUNS, REAL_RUNS, WATCH_S = 10, 4, 0.25
RING_PERIOD_S = 5.0
CALLS_MAX = {None: 1.02, 60.0: 1.1, 10.0: 1.3}
"""The bar of route full at 1,000 nodes: its mean number of calls, by the mean session in minutes."""

WITHIN, BYTES_S_MAX = 0.2, 250.0
ROUTES = ("classic", "fast, cold", "fast, warm", "full")


class MembershipSetting(NamedTuple):
    """One measurement.

    Attributes:
        part: "model" or "rounds": how one entry spreads, in the model or in real nodes. "calls": the calls of lookups,
            and the bytes. "bytes": only the bytes.
        nodes: the number of nodes.
        grows: whether the period of gossip grows while a node has no entry to send.
        seed: the source of all random choices.
        session_min: the mean time that a node stays in the ring, in minutes; None: no node comes or goes.
        has_lists: whether the nodes keep membership lists.
        seconds: the time of the measurement, in virtual seconds.
        lookups: the number of lookups on each route.
    """

    part: Part
    nodes: int
    grows: bool
    seed: int
    session_min: float | None = None
    has_lists: bool = True
    seconds: float = 0.0
    lookups: int = 0

    def __str__(self) -> str:
        text = f"{self.part}: {self.nodes:,} nodes, {'growing' if self.grows else 'fixed'} periods"
        if self.part in ("calls", "bytes"):
            text += f", {self.session}{'' if self.has_lists else ', no lists'}"
        return text

    @property
    def session(self) -> str:
        """The mean session in words, such as "60 min"; "calm" if no node comes or goes."""
        return "calm" if self.session_min is None else f"{self.session_min:g} min"

    @property
    def timing(self) -> Timing:
        """The timing of the nodes: preset lan if the period of gossip grows, otherwise one with fixed periods."""
        lan = fixed_periods("lan")
        if self.grows:
            return lan
        return msgspec.structs.replace(
            lan, gossip_growth_max=1.0, stabilize_s=RING_PERIOD_S, finger_s=RING_PERIOD_S
        )


@dataclass(frozen=True)
class MembershipCell:
    """The results of one measurement. Only the attributes of its `Part` have values.

    Attributes:
        most: the mean number of gossip periods until 99 % of the nodes knew an entry; None: not in every run.
        whole: the mean number of gossip periods until all nodes knew it; None: some run did not get so far.
        sends: how often an entry was sent, divided by the number of nodes.
        missed: the share of nodes that never got it.
        calls: by route, the number of calls of each answered lookup.
        errors: by route, the number of lookups without an answer in time.
        wrong: lookups that named a node that did not own the key.
        wrong_guesses: the number of lookups on the route "full" that needed more than one call.
        bytes_s: bytes per second that a node sent, by the kinds of `GossipWeigher`.
        changes: how many nodes joined, left or crashed.
        entries_sent: how many entries all exchanges together sent.
        list_kb: memory of a list that shares nothing, in KB; None: not measured.
        shared: how many times their memory the lists would take if they shared no slices; None: not measured.
    """

    setting: MembershipSetting
    most: float | None = None
    whole: float | None = None
    sends: float | None = None
    missed: float | None = None
    calls: dict[str, tuple[int, ...]] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    wrong: int = 0
    wrong_guesses: int = 0
    bytes_s: dict[ByteKind, float] = field(default_factory=dict)
    changes: int = 0
    entries_sent: int = 0
    list_kb: float | None = None
    shared: float | None = None

    @property
    def gossip_s(self) -> float:
        """Bytes of gossip that a node sent per second: exchanges, their entries and comparisons."""
        return sum(self.bytes_s[kind] for kind in ("period", "news", "comparison"))

    @property
    def changes_s(self) -> float:
        """λ: how many nodes joined, left or crashed per second, as measured."""
        return self.changes / self.setting.seconds

    @property
    def law(self) -> float:
        """The bytes of gossip per second that the law predicts: 90 / T + 168 λ + C.

        T is the period of gossip in seconds, and C the measured bytes of comparisons.
        """
        return 90 / self.setting.timing.gossip_s + 168 * self.changes_s + self.bytes_s["comparison"]


def plan(scale: Scale, seed: int) -> list[MembershipSetting]:
    """Return the models, the rounds of calm rings, and the rings with lookups, the most costly ones last."""
    sizes: tuple[int, ...] = {"quick": (16, 64), "standard": (16, 256), "full": (16, 256, 1000)}[scale]
    models = (16, 64, 1000) if scale == "quick" else (16, 256, 1000, 10_000, 100_000)
    found = [MembershipSetting("model", nodes, grows, seed) for nodes in models for grows in (False, True)]
    found = found if has_model() else []
    found += [MembershipSetting("rounds", nodes, grows, seed) for nodes in sizes for grows in (False, True)]
    sessions = {"quick": (None, 10.0), "standard": (None, 60.0, 10.0), "full": (None, 180.0, 60.0, 10.0)}[scale]
    node_seconds = {"quick": 2_000, "standard": 15_000, "full": 60_000}[scale]
    lookups = {"quick": 100, "standard": 1_000, "full": 5_000}[scale]
    for nodes in sizes:
        seconds = min(node_seconds / nodes, 1200.0)
        found.append(MembershipSetting("bytes", nodes, False, seed, 60.0, True, 2 * seconds, 0))
        for session in sessions:
            for has_lists in (True, False):
                found.append(MembershipSetting("calls", nodes, True, seed, session, has_lists, seconds, lookups))
    return found


def measure(setting: MembershipSetting) -> MembershipCell:
    """Make the measurement of one setting: of the model, of the rounds, or of calls and bytes."""
    if setting.part == "model":
        return _model(setting)
    return _rounds(setting) if setting.part == "rounds" else _calls(setting)


# -- rounds -------------------------------------------------------------------------------------------


def _model(setting: MembershipSetting) -> MembershipCell:
    from chord.lab.papers.gossip_model import spread

    growth = setting.timing.gossip_growth_max
    partners = QUIET_PARTNERS if setting.grows else PARTNERS
    runs = [spread(setting.nodes, partners, growth, 100 * setting.seed + run) for run in range(MODEL_RUNS)]
    most, whole = [run.most for run in runs if run.most], [run.whole for run in runs if run.whole]
    return MembershipCell(
        setting,
        most=fmean(most) if len(most) == len(runs) else None,
        whole=fmean(whole) if len(whole) == len(runs) else None,
        sends=fmean(run.sends for run in runs),
        missed=fmean(run.missed for run in runs),
    )


def _rounds(setting: MembershipSetting) -> MembershipCell:
    """Let nodes of a calm ring raise their own counts, one after another, and watch the entries spread."""
    seed = f"membership/{setting.seed}/{setting}"
    rng = random.Random(seed)
    most: list[float] = []
    whole: list[float | None] = []
    missed: list[float] = []
    weigher = GossipWeigher(RingConstants().circle)

    async def main() -> None:
        network = MessageNetwork(seed, weigh=weigher)
        # No comparisons: they would hide the nodes that gossip misses.
        timing = msgspec.structs.replace(setting.timing, gossip_compare_s=1e6)
        async with placed_ring(setting.nodes, _successors(setting), timing, seed, network, "on") as ring:
            await trio.sleep(6 * timing.gossip_growth_max * timing.gossip_s)
            weigher.clear()
            for _ in range(REAL_RUNS):
                node = rng.choice(ring.nodes)
                own = _members(node).get(node.address)
                assert own is not None
                began = trio.current_time()
                node._gossip._announce_self(_members(node), own.count + 1, own.start)
                due = _members(node).get(node.address)
                known, at = 0.0, None
                while any(other._gossip._hot for other in ring.nodes):
                    await trio.sleep(WATCH_S)
                    known = fmean(_members(other).get(node.address) == due for other in ring.nodes)
                    if at is None and known >= 0.99:
                        at = trio.current_time() - began
                    if known == 1 and len(whole) == len(missed):
                        whole.append(trio.current_time() - began)
                most.append(at if at is not None else trio.current_time() - began)
                missed.append(1 - known)
                if len(whole) < len(missed):
                    whole.append(None)
                await trio.sleep(5 * timing.gossip_growth_max * timing.gossip_s)

    testing.run(main, seed=seed)
    complete = [seconds for seconds in whole if seconds is not None]
    period_s = setting.timing.gossip_s
    return MembershipCell(
        setting,
        most=fmean(most) / period_s,
        whole=fmean(complete) / period_s if len(complete) == len(whole) else None,
        sends=weigher.entries / REAL_RUNS / setting.nodes,
        missed=fmean(missed),
    )


# -- calls and bytes ----------------------------------------------------------------------------------


def _calls(setting: MembershipSetting) -> MembershipCell:
    seed = f"membership/{setting.seed}/{setting.part}/{setting.nodes}/{setting.session_min}"
    weigher = GossipWeigher(RingConstants().circle)
    load = _Load(setting, random.Random(seed), weigher)

    async def main() -> None:
        network = MessageNetwork(seed, weigh=weigher)
        lists: Literal["off", "on"] = "on" if setting.has_lists else "off"
        async with placed_ring(setting.nodes, _successors(setting), setting.timing, seed, network, lists) as ring:
            await load.run(ring)

    testing.run(main, seed=seed)
    return load.cell()


class _Load:
    """The sessions and the lookups on one ring, and the counts of their outcomes."""

    def __init__(self, setting: MembershipSetting, rng: random.Random, weigher: GossipWeigher) -> None:
        self._setting = setting
        self._rng = rng
        self._weigher = weigher
        self._routes = ("full",) if setting.has_lists else ROUTES[:-1]
        self._calls: dict[str, list[int]] = {route: [] for route in self._routes}
        self._errors: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._asking: list[Node] = []  # nodes with a warm cache
        self._seconds = 0.0
        self._shared: float | None = None

    async def run(self, ring: Cluster) -> None:
        setting = self._setting
        async with trio.open_nursery() as churning:
            if setting.session_min is not None:
                churning.start_soon(self._churn, ring, churning)
            await trio.sleep(WARM_UP_S)
            self._weigher.clear()
            self._counts.clear()
            began = trio.current_time()
            async with trio.open_nursery() as looking:
                if not setting.lookups:
                    await trio.sleep(setting.seconds)
                for _ in range(setting.lookups):
                    await trio.sleep(self._rng.expovariate(setting.lookups / setting.seconds))
                    for route in self._routes:
                        looking.start_soon(self._look_up, ring, route)
            self._seconds = trio.current_time() - began
            churning.cancel_scope.cancel()
        if setting.has_lists:
            pieces = [piece for node in members(ring.nodes) for piece in _members(node)._slices]
            self._shared = len(pieces) / len({id(piece) for piece in pieces})

    async def _churn(self, ring: Cluster, nursery: trio.Nursery) -> None:
        """End the session of a random node after each exponential time, and start a new node."""
        assert self._setting.session_min is not None
        ends_per_s = self._setting.nodes / (60 * self._setting.session_min)
        while True:
            await trio.sleep(self._rng.expovariate(ends_per_s))
            node = self._rng.choice(members(ring.nodes))
            self._counts["changes"] += 2
            if self._rng.random() < 0.5:
                await ring.kill(node, silently=True)
            else:
                nursery.start_soon(node.leave)
            await ring.start()

    async def _look_up(self, ring: Cluster, route: str) -> None:
        node = self._warm(ring) if route == "fast, warm" else self._rng.choice(members(ring.nodes))
        key = draw_point(self._rng)
        before, trace = rightful_owner(ring, key), None
        try:
            with trio.move_on_after(TIMEOUT_S):
                trace = await self._find(node, key, route)
        except ChordError:
            pass  # an error counts as no answer
        if node.state != "ready" or node not in ring.nodes:
            return
        if trace is None:
            self._errors[route] += 1
            return
        self._calls[route].append(trace.calls)
        self._counts["wrong"] += trace.owner.id not in (before, rightful_owner(ring, key))
        self._counts["wrong guesses"] += route == "full" and trace.calls > 1

    async def _find(self, node: Node, key: Point, route: str) -> Trace:
        if route == "fast, cold":
            return await node._lookups.find(key, node.contact, route="fast", is_remembered=False)
        return await node._lookups.find(key, node.contact, route="fast" if route == "fast, warm" else _route(route))

    def _warm(self, ring: Cluster) -> Node:
        """Return a node with a cache that knows, or knew once, all arcs."""
        self._asking = [node for node in self._asking if node.state == "ready" and node in ring.nodes]
        if len(self._asking) < ASKING:
            node = self._rng.choice(members(ring.nodes))
            for other in members(ring.nodes):
                vnode = next(iter(other._host.vnodes.values()))
                if other is not node and vnode.ownership.start is not None:
                    node._lookups.arcs.learn(vnode.id, vnode.me, vnode.ownership.start)
            self._asking.append(node)
        return self._rng.choice(self._asking)

    def cell(self) -> MembershipCell:
        node_seconds = self._setting.nodes * self._seconds
        kinds: tuple[ByteKind, ...] = ("period", "news", "comparison", "ring")
        return MembershipCell(
            self._setting._replace(seconds=self._seconds),
            calls={route: tuple(calls) for route, calls in self._calls.items()},
            errors=dict(self._errors),
            wrong=self._counts["wrong"],
            wrong_guesses=self._counts["wrong guesses"],
            bytes_s={kind: self._weigher.bytes[kind] / node_seconds for kind in kinds},
            changes=self._counts["changes"],
            entries_sent=self._weigher.entries,
            list_kb=_list_kb(self._setting.nodes) if self._setting.has_lists else None,
            shared=self._shared,
        )


def _route(route: str) -> Literal["classic", "full"]:
    return "classic" if route == "classic" else "full"


def _successors(setting: MembershipSetting) -> int:
    return min(SUCCESSORS, setting.nodes // 4)


def _members(node: Node) -> Members:
    members = node._host.members
    assert members is not None
    return members


def _list_kb(nodes: int) -> float:
    """Return the memory of a list that shares nothing, in KB."""
    import tracemalloc

    rng = random.Random("list")
    found = [MemberEntry(f"10.1.{n >> 8}.{n & 255}:9000", 1, 0, "alive", (draw_point(rng),)) for n in range(nodes)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        members = Members(RingConstants().circle)
        for entry in found:
            copy = MemberEntry(f"{entry.address}", 2, 0, "alive", (Point(int(entry.vnodes[0])),))
            members.learn(copy, 0.0)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / 1024


# -- what comes of it ---------------------------------------------------------------------------------


class MembershipLine(NamedTuple):
    """The measurements of a ring with membership lists (`on`) and without them (`off`), under the same sessions."""

    on: MembershipCell
    off: MembershipCell

    def mean(self, route: str) -> float | None:
        """Return the mean number of calls on a route, such as "classic" or "full"; None without an answered lookup."""
        calls = {**self.off.calls, **self.on.calls}[route]
        return fmean(calls) if calls else None


def lines(result: Result[MembershipCell]) -> list[MembershipLine]:
    """Return the measurements of calls, each with the measurement of the same ring without lists."""
    cells = [cell for cell in result.cells if cell.setting.part == "calls"]
    return [MembershipLine(on, off) for on, off in zip(cells[::2], cells[1::2], strict=True)]


def is_met(line: MembershipLine) -> bool | None:
    """Whether no answer is wrong, and route full meets its bar.

    The bar holds at 1,000 nodes: on average at most 1.02 calls if no node comes or goes. With sessions of an hour it is
    1.1, and of ten minutes 1.3. Without a bar or a wrong answer, the result is None.
    """
    setting = line.on.setting
    if line.on.wrong or line.off.wrong:
        return False
    if setting.nodes != 1000 or setting.session_min not in CALLS_MAX:
        return None
    mean = line.mean("full")
    return mean is not None and mean <= CALLS_MAX[setting.session_min]


def has_bytes_of_law(cell: MembershipCell) -> bool | None:
    """Whether the bytes of gossip meet their bars; None if no bar applies.

    With fixed periods, the bytes per second are within 20 % of the law. At 1,000 nodes with sessions of an hour or
    more, a node sends at most 250 bytes per second.
    """
    verdicts = []
    if not cell.setting.grows:
        verdicts.append(abs(cell.gossip_s / cell.law - 1) <= WITHIN)
    if cell.setting.nodes == 1000 and cell.setting.session_min in (None, 180.0, 60.0):
        verdicts.append(cell.gossip_s <= BYTES_S_MAX)
    return all(verdicts) if verdicts else None


CALLS_FIELDS: tuple[Field[MembershipLine], ...] = (
    Field("nodes", ",", lambda line: line.on.setting.nodes),
    Field("session", "", lambda line: line.on.setting.session),
    Field("classic", ".2f", lambda line: line.mean("classic")),
    Field("fast, cold", ".2f", lambda line: line.mean("fast, cold")),
    Field("fast, warm", ".3f", lambda line: line.mean("fast, warm")),
    Field("full", ".3f", lambda line: line.mean("full")),
    Field("most calls", "", lambda line: max(line.on.calls["full"], default=None)),
    Field("wrong guesses", ".2%", lambda line: line.on.wrong_guesses / max(1, len(line.on.calls["full"]))),
    Field("no answer: others", "", lambda line: sum(line.off.errors.values())),
    Field("no answer: full", "", lambda line: line.on.errors.get("full", 0)),
    Field("wrong", "", lambda line: line.on.wrong + line.off.wrong),
    Field("lookups", ",", lambda line: len(line.on.calls["full"])),
)

BYTES_FIELDS: tuple[Field[MembershipCell], ...] = (
    Field("nodes", ",", lambda cell: cell.setting.nodes),
    Field("periods", "", lambda cell: "grow" if cell.setting.grows else "fixed"),
    Field("session", "", lambda cell: cell.setting.session),
    Field("changes /s", ".3f", lambda cell: cell.changes_s),
    Field("period", ".0f", lambda cell: cell.bytes_s["period"]),
    Field("news", ".0f", lambda cell: cell.bytes_s["news"]),
    Field("comparison", ".0f", lambda cell: cell.bytes_s["comparison"]),
    Field("gossip", ".0f", lambda cell: cell.gossip_s),
    Field("law", ".0f", lambda cell: None if cell.setting.grows else cell.law),
    Field("ring", ".0f", lambda cell: cell.bytes_s["ring"]),
    Field("sends per entry", ".2f", lambda cell: _sends(cell)),
    Field("KB of a list", ".0f", lambda cell: cell.list_kb),
    Field("shared", ".0f", lambda cell: cell.shared),
)


def _sends(cell: MembershipCell) -> float | None:
    return cell.entries_sent / cell.changes / cell.setting.nodes if cell.changes else None


def _rounds_table(result: Result[MembershipCell]) -> Table:
    found: dict[tuple[int, bool], dict[Part, MembershipCell]] = {}
    for cell in result.cells:
        if cell.setting.part in ("rounds", "model"):
            found.setdefault((cell.setting.nodes, cell.setting.grows), {})[cell.setting.part] = cell
    columns = (
        Column("nodes", ","), Column("periods"),
        *(Column(f"{what}: {who}", spec) for what, spec in (
            ("99 %", ".1f"), ("all", ".1f"), ("sends", ".2f"), ("missed", ".4%")
        ) for who in ("real", "model")),
    )  # fmt: skip
    rows = []
    for (nodes, grows), cells in sorted(found.items()):
        real, model = cells.get("rounds"), cells.get("model")
        values = [
            None if cell is None else value
            for name in ("most", "whole", "sends", "missed")
            for cell in (real, model)
            for value in (getattr(cell, name, None),)
        ]
        passed = None
        if real is not None and model is not None and real.sends is not None and model.sends is not None:
            passed = abs(real.sends / model.sends - 1) <= WITHIN
        rows.append(Row((nodes, "grow" if grows else "fixed", *values), passed))
    notes = (
        "Periods until 99 % and all of the nodes know an entry; a dash: some node got it from no exchange in some run. "
        "Comparisons are off here.",
        f"A node stops after {PARTNERS} partners that knew the entry, or {QUIET_PARTNERS} if it was quiet before.",
    )
    bar = "the real nodes send an entry as often as the model says, within 20 %"
    return Table("membership_rounds", "How one entry spreads", columns, tuple(rows), bar, notes)


def tables(result: Result[MembershipCell]) -> list[Table]:
    """Return three tables: the calls by route, the bytes by kind, and the rounds until all know an entry."""
    found = lines(result)
    costs = [cell for cell in result.cells if cell.setting.part in ("calls", "bytes") and cell.setting.has_lists]
    calls_bar = "route full at 1,000 nodes: at most 1.02 calls if calm, 1.1 at 60 min, 1.3 at 10 min; no wrong answer"
    calls_notes = (
        "Mean calls of a lookup with its delivery, key and asking node at random. Wrong guesses: lookups on route full "
        "with more than one call.",
    )
    bytes_bar = "gossip within 20 % of the law; at most 250 bytes/s at 1,000 nodes with sessions of an hour or more"
    bytes_notes = (
        "Bytes of frames per second that a node sends. Gossip is the sum of period, news and comparison. The law takes "
        "C from the column comparison. Bytes of TCP, IP and handshakes are not counted.",
        "In the column ring are all other messages: maintenance of the ring, joins, leaves and lookups. Its periods "
        f"are 1 s, or {RING_PERIOD_S:g} s if the period of gossip is fixed.",
        "Shared: how many times smaller the lists of all nodes in one process are together than apart.",
    )
    return [
        Table.of("membership_calls", "Calls of a lookup", CALLS_FIELDS, found, is_met, calls_bar, calls_notes),
        Table.of("membership_bytes", "Bytes of gossip", BYTES_FIELDS, costs, has_bytes_of_law, bytes_bar, bytes_notes),
        _rounds_table(result),
    ]


def draw(result: Result[MembershipCell], figure: Figure) -> None:
    """Plot the calls of a lookup against the bytes of upkeep."""
    found = lines(result)
    most = max(line.on.setting.nodes for line in found)
    large = [line for line in found if line.on.setting.nodes == most]
    full = [line.mean("full") or 0.0 for line in large]
    headline(
        figure, f"At {most:,} nodes a lookup needs {min(full):.2f} to {max(full):.2f} calls if nodes know all members"
    )
    axes = figure.subplots()
    for route, colour in zip(ROUTES, (ORANGE, GREEN, PURPLE, BLUE), strict=True):
        cost = [line.off.bytes_s["ring"] + (line.on.gossip_s if route == "full" else 0.0) for line in large]
        axes.plot(cost, [line.mean(route) or 0.0 for line in large], "o", color=colour, label=route)
    dress(axes, "bytes/s of upkeep that a node sends", "mean calls of a lookup")


EXPERIMENT = Experiment(
    name="membership",
    title="Full membership",
    source="the course notes “分片 (Sharding)”: gossip of servers and vnode ids; no figures",
    plan=plan,
    measure=measure,
    tables=tables,
    pictures={"membership": draw},
    command="sim paper membership",
)
