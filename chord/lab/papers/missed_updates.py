"""Replicas that miss an update: they catch up by anti-entropy, and never without it.

This is the reason that the course notes "分片 (Sharding)" give for anti-entropy in Dynamo. A log of operations, as in
Paxos, shows a gap with the next operation on any key. Without a log, only traffic on the same key can show it.

The run has three nodes with a copy of each record. Messages to one of them are lost while clients replace some values,
at a write quorum of two. Then the network is whole again, and the clients are idle. The experiment counts the records
of the third node that are behind, for a day of virtual time. At the end clients write some of the keys again, and read
others from all replicas. One ring has anti-entropy, and in the other it is switched off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import trio

from chord import testing
from chord.config import PRESETS, RingConstants
from chord.lab.harness.experiment import Column, Experiment, Result, Row, Scale, Table
from chord.lab.harness.plot import BLUE, ORANGE, dress, headline
from chord.lab.papers.world import NEVER_TIMES
from chord.node import Node
from chord.sim.cluster import Cluster, cluster
from chord.sim.messages import MessageNetwork

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES, KEYS, AGAIN = 3, 20, 5
MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0
LOOKS_S = {"at once": 0.0, "2 min": 2 * MINUTE_S, "10 min": 10 * MINUTE_S, "1 h": HOUR_S, "1 day": DAY_S}
ASIDE_S = 10.0
TIMING = msgspec.structs.replace(
    PRESETS["wan"],
    stabilize_s=MINUTE_S,
    finger_s=10 * MINUTE_S,
    suspect_misses=NEVER_TIMES,
    dead_misses=NEVER_TIMES,
)
"""Timing with one round a minute, under which a node that misses messages keeps its place, so no arc moves."""


class MissedSetting(NamedTuple):
    """A ring with or without anti-entropy.

    Attributes:
        has_anti_entropy: whether anti-entropy is on.
        looks_s: times after the missed updates at which the stores are compared, in seconds.
        seed: the source of all random choices.
    """

    has_anti_entropy: bool
    looks_s: tuple[float, ...]
    seed: int

    def __str__(self) -> str:
        return f"anti-entropy {'on' if self.has_anti_entropy else 'off'}"


@dataclass(frozen=True)
class MissedCell:
    """How many of the 20 records of one node were behind: older than at the other nodes.

    Attributes:
        behind: their number at each time of the setting's `looks_s`.
        after_puts: their number after clients had written 5 keys again.
        after_reads: their number after clients had then read 5 other keys from all replicas.
    """

    setting: MissedSetting
    behind: tuple[int, ...]
    after_puts: int
    after_reads: int


def plan(scale: Scale, seed: int) -> list[MissedSetting]:
    """Return a ring with anti-entropy and one without; `quick` ends after an hour."""
    looks = tuple(look for look in LOOKS_S.values() if scale != "quick" or look <= HOUR_S)
    return [MissedSetting(has, looks, seed) for has in (True, False)]


def measure(setting: MissedSetting) -> MissedCell:
    """Let one node miss updates, and count the records of it that stay behind."""
    seed = f"missed/{setting.seed}"
    found: list[MissedCell] = []

    async def main() -> None:
        constants = RingConstants(successors=NODES - 1, replicas=NODES)
        async with cluster(seed=seed, ring=constants, timing=TIMING, network=MessageNetwork(seed)) as ring:
            found.append(await _run(ring, await ring.place(NODES), setting))

    testing.run(main, seed=seed)
    return found[0]


async def _run(ring: Cluster, nodes: Sequence[Node], setting: MissedSetting) -> MissedCell:
    away, *others = nodes
    keys = _keys_of(others)
    for key in keys:
        await others[0].put(key, b"old", w=NODES)
    if not setting.has_anti_entropy:
        for node in nodes:
            for services in node._parts.values():
                services.repair.repair = partial(trio.sleep, 0)  # type: ignore[method-assign]
    for other in others:
        ring.network.block(other.name, away.name)
    for key in keys:
        await others[0].put(key, b"new", w=NODES - 1)
    await trio.sleep(ASIDE_S)  # until no call to the node is on its way
    ring.network.heal()
    began = trio.current_time()
    behind = []
    for look in setting.looks_s:
        await trio.sleep_until(began + look)
        behind.append(_behind(away, others, keys))
    for key in keys[:AGAIN]:
        await others[0].put(key, b"newer", w=NODES)
    after_puts = _behind(away, others, keys)
    for key in keys[AGAIN : 2 * AGAIN]:
        await others[0].get(key, r=NODES)
    await trio.sleep(ASIDE_S)
    return MissedCell(setting, tuple(behind), after_puts, _behind(away, others, keys))


def _keys_of(owners: Sequence[Node]) -> list[bytes]:
    """Return keys that these nodes own, so that they coordinate the writes."""
    found: list[bytes] = []
    number = 0
    while len(found) < KEYS:
        key = b"key-%d" % number
        point = owners[0].config.ring.circle.hash(key)
        if any(vnode.ownership.is_owner(point) for node in owners for vnode in node._host.vnodes.values()):
            found.append(key)
        number += 1
    return found


def _behind(away: Node, others: Sequence[Node], keys: Sequence[bytes]) -> int:
    """Return the number of keys with another record at one node than at the others."""
    return sum(away._host.storage.get(key) != others[0]._host.storage.get(key) for key in keys)


# -- what comes of it ---------------------------------------------------------------------------------


def is_met(cell: MissedCell) -> bool:
    """Whether the records catch up as expected.

    With anti-entropy all are behind at first, and none later. Without it, only the keys that clients write or read
    again catch up.
    """
    if cell.setting.has_anti_entropy:
        return cell.behind[0] == KEYS and not any(cell.behind[1:])
    stays = all(count == KEYS for count in cell.behind)
    return stays and (cell.after_puts, cell.after_reads) == (KEYS - AGAIN, KEYS - 2 * AGAIN)


def tables(result: Result[MissedCell]) -> list[Table]:
    """Return the number of records that are behind, with anti-entropy and without it."""
    looks = [name for name, look in LOOKS_S.items() if look in result.cells[0].setting.looks_s]
    columns = (Column("anti-entropy"), *map(Column, looks), Column(f"{AGAIN} written again"), Column(f"{AGAIN} read"))
    rows = tuple(
        Row(("on" if c.setting.has_anti_entropy else "off", *c.behind, c.after_puts, c.after_reads), is_met(c))
        for c in result.cells
    )
    notes = (
        f"{NODES} nodes, each with a copy of {KEYS} records; one node missed an update of each. The table counts its "
        "records that are behind. The times are virtual.",
        f"Anti-entropy repairs all of them within a period. Without it, only a new write of a key repairs the key, or "
        f"a read that asks all {NODES} replicas.",
    )
    bar = "with anti-entropy none is behind after 2 min; without it all are, until clients write or read the keys"
    return [Table("missed_updates", "Replicas that missed an update", columns, rows, bar, notes)]


def draw(result: Result[MissedCell], figure: Figure) -> None:
    """Plot the number of records that are behind against time."""
    off = next(cell for cell in result.cells if not cell.setting.has_anti_entropy)
    headline(
        figure,
        f"Without anti-entropy, {off.behind[-1]} of {KEYS} missed updates are still missing after "
        f"{off.setting.looks_s[-1] / HOUR_S:g} h",
    )
    axes = figure.subplots()
    for cell in result.cells:
        has = cell.setting.has_anti_entropy
        x = [look / MINUTE_S for look in cell.setting.looks_s]
        axes.plot(x, cell.behind, "o-" if has else "s-", color=BLUE if has else ORANGE, label=str(cell.setting))
    axes.set_xscale("symlog", linthresh=1)
    dress(axes, "minutes since the network is whole", "records of the node that are behind", is_from_zero=False)


EXPERIMENT = Experiment(
    name="missed_updates",
    title="Replicas that missed an update",
    source="the course notes “分片 (Sharding)”: without anti-entropy such a node may never catch up; no figures",
    plan=plan,
    measure=measure,
    tables=tables,
    pictures={"missed_updates": draw},
    command="sim paper missed_updates",
)
