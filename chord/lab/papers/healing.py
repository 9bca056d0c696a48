"""Healing of two faults that stabilization alone never repairs: splits and loops.

*Split*: two halves of a ring cannot reach each other. Each takes the other for dead and becomes an Ideal ring (all
pointers exact) that has forgotten the other. Clients write to both, also to the same keys. Then the halves can reach
each other again. The experiment counts the rounds from then until one Ideal ring stands. It also counts the
acknowledged values that no node can read afterwards.

*Loop*: every node points to the node after its successor. Pointers, lists and arcs agree, and no finger points
elsewhere. Each node looks correct. Yet the ring passes over every other node, goes round twice before it closes, and
every key has two owners. The experiment counts the rounds until the ring is Ideal.

A round is one stabilize period, on average. Nodes detect the end of a split when they probe unreachable peers. They do
so after 60 s, and then at growing intervals. The 60 s are 60 rounds of preset `lan`, 240 of `local` and 4 of `wan`.
Because of the growing intervals, there is one measurement after a split of an hour.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import trio

from chord import testing
from chord.config import Timing
from chord.errors import ChordError
from chord.lab.harness.experiment import Column, Experiment, Result, Row, Scale, Table
from chord.lab.harness.plot import BLUE, GREEN, ORANGE, PURPLE, dress, headline
from chord.lab.papers.world import fixed_periods, placed_ring
from chord.node import Node
from chord.ring.vnode import Vnode
from chord.sim.cluster import Cluster
from chord.verify import invariants
from chord.wire.messages import Contact

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DamageKind: TypeAlias = Literal["split", "loop"]

BARRED = 50  # rings with a bar: nodes of each half, and one less than on the loop
UNBARRED = "local"  # for 60 s, 240 of its rounds, a node does not believe others that a dead peer lives
ROUNDS_MAX: dict[DamageKind, int] = {"split": 30, "loop": 10}
GIVE_UP_ROUNDS = 1000
LOOKS_PER_ROUND = 4
KEYS_PER_NODE = 2
PATIENCE_S = 30.0

SUCCESSORS = 8
HOUR_S = 3600.0


class HealingSetting(NamedTuple):
    """One damaged ring: split into two halves of `nodes` nodes each, or a loop.

    Attributes:
        kind: "split" or "loop".
        nodes: number of nodes of each half, or of the loop.
        timing: the timing of the nodes.
        preset: the name of the preset of this timing.
        seed: the source of all random choices.
        parted_s: least duration of the split in seconds; it lasts at least until each half is an Ideal ring.
    """

    kind: DamageKind
    nodes: int
    timing: Timing
    preset: str
    seed: int
    parted_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} of {self.nodes}, {self.preset}, seed {self.seed}"


@dataclass(frozen=True)
class HealingCell:
    """The time that one damaged ring took to heal, and the values that it lost.

    Attributes:
        rounds: rounds (stabilize periods) until the ring was Ideal; None if it was not within 1,000.
        home_rounds: rounds until every record was with its owner as well. None for a loop, and if it took more than
            1,000.
        acknowledged: values with an acknowledged write, before the split and on either side during it.
        lost: acknowledged values that could not be read afterwards.
    """

    setting: HealingSetting
    rounds: float | None
    home_rounds: float | None = None
    acknowledged: int = 0
    lost: int = 0


def plan(scale: Scale, seed: int) -> list[HealingSetting]:
    """Return damaged rings of 8 to 128 nodes.

    The size that the pass criterion applies to, 50 nodes, occurs more often.
    """
    sizes: dict[Scale, dict[int, int]] = {
        "quick": {8: 1, 16: 1, BARRED: 1},
        "standard": {8: 3, 16: 3, 32: 3, BARRED: 5},
        "full": {8: 10, 16: 10, 32: 10, BARRED: 20, 64: 10, 128: 10},
    }
    rings = [(nodes, seed + number) for nodes, times in sizes[scale].items() for number in range(times)]
    found = [HealingSetting("loop", nodes + 1, fixed_periods("lan"), "lan", ring_seed) for nodes, ring_seed in rings]
    for preset in ("lan",) if scale == "quick" else ("wan", "local", "lan"):
        timing = fixed_periods(preset)
        found += [HealingSetting("split", nodes, timing, preset, ring_seed) for nodes, ring_seed in rings]
    if scale == "full":
        timing = fixed_periods("lan")
        found += [HealingSetting("split", BARRED, timing, "lan", seed + number, HOUR_S) for number in range(3)]
    return found


def measure(setting: HealingSetting) -> HealingCell:
    """Damage a ring beyond the repair of stabilization, and measure its healing."""
    seed = f"healing/{setting.seed}/{setting.kind}/{setting.nodes}/{setting.preset}"
    found: list[HealingCell] = []

    async def main() -> None:
        nodes = setting.nodes * (2 if setting.kind == "split" else 1)
        async with placed_ring(nodes, SUCCESSORS, setting.timing, seed) as ring:
            healing = _Healing(ring, setting.timing, random.Random(seed))
            found.append(await (healing.split(setting) if setting.kind == "split" else healing.loop(setting)))

    testing.run(main, seed=seed)
    return found[0]


class _Healing:
    """The damage and the healing of one ring."""

    def __init__(self, ring: Cluster, timing: Timing, rng: random.Random) -> None:
        self._ring = ring
        self._timing = timing
        self._rng = rng
        self._acknowledged: list[tuple[bytes, bytes]] = []

    async def loop(self, setting: HealingSetting) -> HealingCell:
        """Let every node point to the node after its successor; measure the healing."""
        vnodes = list(self._ring._vnodes().values())
        for at, vnode in enumerate(vnodes):
            point_past_the_next(vnode, [vnodes[(at + 2 * step) % len(vnodes)].me for step in range(len(vnodes))])
        assert any(violation.invariant == "OrderedRing" for violation in self._ring.violations())
        return HealingCell(setting, await self._rounds_until(lambda: not self._ring.waiting()))

    async def split(self, setting: HealingSetting) -> HealingCell:
        """Partition the ring, write on both sides, reconnect them; measure the healing."""
        nodes = list(self._ring.nodes)
        away = self._rng.sample(nodes, len(nodes) // 2)
        sides = [[node for node in nodes if node not in away], away]
        await self._write(nodes, b"before", KEYS_PER_NODE * len(nodes))
        self._ring.network.partition([node.name for node in away])
        if await self._rounds_until(lambda: all(self._is_ring(side) for side in sides)) is None:
            raise AssertionError(f"{setting}: the halves did not become rings of their own")
        await trio.sleep(max(0.0, setting.parted_s - trio.current_time()))
        for name, side in zip((b"here", b"away"), sides, strict=True):
            await self._write(side, name, KEYS_PER_NODE * len(side))
            await self._write(side, b"both", KEYS_PER_NODE * len(side), value=name)
        self._ring.network.heal()
        began = trio.current_time()
        rounds = await self._rounds_until(lambda: not self._ring.waiting())
        home = await self._rounds_until(lambda: not any(node._handoff.count() for node in nodes), since=began)
        lost = [pair for pair in self._acknowledged if not await self._is_readable(*pair)]
        return HealingCell(setting, rounds, home, len(self._acknowledged), len(lost))

    async def _rounds_until(self, is_reached: Callable[[], bool], since: float | None = None) -> float | None:
        began = trio.current_time() if since is None else since
        period = self._timing.stabilize_s
        while not is_reached():
            if trio.current_time() - began > GIVE_UP_ROUNDS * period:
                return None
            await trio.sleep(period / LOOKS_PER_ROUND)
        return (trio.current_time() - began) / period

    def _is_ring(self, side: Sequence[Node]) -> bool:
        """Whether one half has become a complete ring of its own.

        Its nodes own the whole circle, and no finger points to the other half.
        """
        own = {node.address for node in side}
        vnodes = {point: vnode for point, vnode in self._ring._vnodes().items() if vnode.me.address in own}
        snapshot = {point: member for point, member in self._ring.snapshot().items() if point in vnodes}
        constants = side[0].config.ring
        arcs = {point: [v.ownership.arc] if v.ownership.arc else [] for point, v in vnodes.items()}
        return (
            not invariants.waiting(snapshot, constants.successors)
            and not invariants.ownership(arcs, constants.circle)
            and all(contact.address in own for vnode in vnodes.values() for contact in vnode.fingers.contacts())
        )

    async def _write(self, nodes: Sequence[Node], name: bytes, count: int, value: bytes = b"") -> None:
        """Put the keys NAME/0 to NAME/(count - 1) through random nodes.

        The acknowledged writes are recorded, to be read later.

        Args:
            value: the value of all keys; empty: the name.
        """
        for number in range(count):
            key = b"%s/%d" % (name, number)
            try:
                with trio.fail_after(PATIENCE_S):
                    await self._rng.choice(nodes).put(key, value or name)
            except ChordError:
                continue
            self._acknowledged.append((key, value or name))

    async def _is_readable(self, key: bytes, value: bytes) -> bool:
        try:
            with trio.fail_after(PATIENCE_S):
                return value in (await self._rng.choice(self._ring.nodes).get(key)).values
        except ChordError:
            return False


def point_past_the_next(vnode: Vnode, loop: Sequence[Contact]) -> None:
    """Set the pointers, fingers and arc of a vnode as on a loop.

    On the loop, each vnode points to the vnode after its true successor.

    Args:
        vnode: the vnode to change.
        loop: all vnodes of the ring in the order of the loop, beginning with `vnode`. Their number is odd.
    """
    circle = vnode.host.circle
    ahead = [circle.distance(vnode.id, contact.id) for contact in loop]
    once = next(step for step in range(1, len(loop)) if step + 1 == len(loop) or ahead[step + 1] < ahead[step])
    vnode.ring.successors = tuple(loop[1 : 1 + min(once, vnode.ring.r)])
    vnode.ring.predecessor = loop[-1]
    vnode.ring.predecessors = (loop[-1],)
    for contact in vnode.fingers.contacts():
        vnode.fingers.forget(contact)
    vnode.ownership.start, vnode.ownership.boundary = loop[-1].id, loop[-1]


# -- what comes of it ---------------------------------------------------------------------------------


def tables(result: Result[HealingCell]) -> list[Table]:
    """Return a table of the rounds until healing, by kind of damage, number of nodes and preset."""
    columns = (
        Column("what"),
        Column("nodes"),
        Column("preset"),
        Column("parted for, min", ".0f"),
        Column("rounds, mean", ".1f"),
        Column("rounds, worst", ".1f"),
        Column("at most"),
        Column("records home, worst", ".1f"),
        Column("values acknowledged", ","),
        Column("lost"),
        Column("rings"),
    )
    notes = (
        "A split lasts until both halves are Ideal rings that have forgotten each other, or for the time given.",
        "A loop has no records; its rows are about pointers, lists and arcs.",
        "Without self-lookups none of these rings heals.",
    )
    groups: dict[tuple[DamageKind, int, str, float], list[HealingCell]] = {}
    for cell in result.cells:
        shape = cell.setting
        groups.setdefault((shape.kind, shape.nodes, shape.preset, shape.parted_s), []).append(cell)
    rows = tuple(_row(cells) for cells in groups.values())
    bar = (
        f"two rings of {BARRED} heal in at most {ROUNDS_MAX['split']} rounds (presets lan and wan), a loop of "
        f"{BARRED + 1} in at most {ROUNDS_MAX['loop']}. Every ring heals, and no value is lost"
    )
    return [Table("healing", "Rings that stabilization cannot heal", columns, rows, bar, notes)]


def _row(cells: Sequence[HealingCell]) -> Row:
    shape = cells[0].setting
    rounds = [cell.rounds for cell in cells if cell.rounds is not None]
    is_healed = len(rounds) == len(cells)
    is_barred = BARRED <= shape.nodes <= BARRED + 1 and shape.preset != UNBARRED and not shape.parted_s
    most = ROUNDS_MAX[shape.kind] if is_barred else None
    lost = sum(cell.lost for cell in cells)
    home = [cell.home_rounds for cell in cells if cell.home_rounds is not None]
    is_split = shape.kind == "split"
    values = (
        "two rings" if is_split else "loop",
        f"2 × {shape.nodes}" if is_split else str(shape.nodes),
        shape.preset,
        shape.parted_s / 60 if shape.parted_s else None,
        fmean(rounds) if is_healed else None,
        max(rounds) if is_healed else None,
        most,
        max(home) if home else None,
        sum(cell.acknowledged for cell in cells) if is_split else None,
        lost if is_split else None,
        len(cells),
    )
    return Row(values, is_healed and lost == 0 and (most is None or max(rounds) <= most))


def draw(result: Result[HealingCell], figure: Figure) -> None:
    """Plot the rounds until healing against the number of nodes."""
    splits = [cell for cell in result.cells if cell.setting.kind == "split"]
    lost, acknowledged = sum(cell.lost for cell in splits), sum(cell.acknowledged for cell in splits)
    worst = {
        kind: max(cell.rounds or GIVE_UP_ROUNDS for cell in result.cells if cell.setting.kind == kind)
        for kind in ROUNDS_MAX
    }
    headline(
        figure,
        f"Two rings become one within {worst['split']:.0f} rounds and a loop untangles within {worst['loop']:.0f}; "
        f"{lost or 'none'} of {acknowledged:,} acknowledged values {'were' if lost > 1 else 'was'} lost",
    )
    kinds: tuple[tuple[DamageKind, str], ...] = (("split", "nodes of each half"), ("loop", "nodes"))
    for axes, (kind, x) in zip(figure.subplots(1, 2), kinds, strict=True):
        for preset, colour, marker in (("local", PURPLE, "v"), ("lan", BLUE, "o"), ("wan", GREEN, "s")):
            cells = [
                cell
                for cell in result.cells
                if (cell.setting.kind, cell.setting.preset, cell.setting.parted_s) == (kind, preset, 0.0)
            ]
            sizes = sorted({cell.setting.nodes for cell in cells})
            rounds = [[c.rounds or GIVE_UP_ROUNDS for c in cells if c.setting.nodes == size] for size in sizes]
            if sizes:
                look: dict[str, Any] = {"color": colour, "marker": marker, "label": f"preset {preset}, mean and range"}
                means = [fmean(each) for each in rounds]
                below = [mean - min(each) for mean, each in zip(means, rounds, strict=True)]
                above = [max(each) - mean for mean, each in zip(means, rounds, strict=True)]
                axes.errorbar(sizes, means, yerr=[below, above], capsize=3, **look)
        at = BARRED if kind == "split" else BARRED + 1
        axes.plot([at], [ROUNDS_MAX[kind]], "_", color=ORANGE, markersize=22, markeredgewidth=3, label="bar: at most")
        axes.set_title("two rings" if kind == "split" else "loop", fontsize=11)
        dress(axes, x, "rounds until the ring is Ideal")


EXPERIMENT = Experiment(
    name="healing",
    title="Rings that stabilization cannot heal",
    source="none for a real node; in our own model two rings of 500 heal in about 4 rounds, loops in 4 to 5",
    plan=plan,
    measure=measure,
    tables=tables,
    pictures={"healing": draw},
    command="sim paper healing",
)
