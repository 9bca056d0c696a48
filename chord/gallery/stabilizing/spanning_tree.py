"""A self-stabilizing tree of shortest paths (ticket 26): each machine corrects its distance and its parent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from msgspec import structs

from chord.gallery.entry import STUCK, Altered, Breaks, Entry
from chord.gallery.laws import SmallWorld, law_of_worlds
from chord.gallery.process import Machine, Name, all_of

STEPS = (1, 3)
"""Two machines are neighbours if their places differ by one of these numbers."""


class TreeMachine(Machine):
    """A machine that takes the neighbour with the least distance as its parent. The first machine is the root."""

    distance: int = 0
    parent: Name = ""

    def neighbours(self) -> list[Name]:
        """Return the neighbours in the graph, in ascending order."""
        names = sorted([self.me, *self.others])
        return [name for name in self.others if abs(names.index(name) - names.index(self.me)) in STEPS]

    def rule(self, seen: Mapping[Name, Any]) -> TreeMachine | None:
        if self.me < self.others[0] or not self.neighbours():
            return None
        nearest = min(self.neighbours(), key=lambda name: (seen[name].distance, name))
        after = structs.replace(self, distance=self.distance_over(seen[nearest].distance), parent=nearest)
        return None if after == self else after

    def distance_over(self, distance: int) -> int:
        """Return the distance of this machine, over a neighbour with the given distance."""
        return distance + 1


def depths(machines: Mapping[Name, Any]) -> dict[Name, int]:
    """Return the true distance from the root of each machine that a path connects with it."""
    root = next(iter(machines))
    found, border = {root: 0}, [root]
    for name in border:
        for other in machines[name].neighbours():
            if other not in found:
                found[other] = found[name] + 1
                border.append(other)
    return found


def is_tree(machines: Mapping[Name, Any]) -> bool:
    """Return whether the parents form a tree of shortest paths, and the distances are true."""
    root, *rest = machines.values()
    depth = depths(machines)
    return root.distance == 0 and all(
        machine.distance == depth.get(machine.me)
        and machine.parent in machine.neighbours()
        and depth[machine.parent] == machine.distance - 1
        for machine in rest
    )


@law_of_worlds("closure", ticket=26)
def closure(world: SmallWorld) -> str:
    """If the parents form a tree of shortest paths, then they also do after any move."""
    machines = world.processes
    if is_tree(machines):
        for machine in machines.values():
            after = machine.rule(machines)
            if after is not None and not is_tree({**machines, machine.me: after}):
                return f"after the move of {machine.me}, the parents form no tree of shortest paths"
    return ""


def every_state(names: Sequence[Name]) -> Iterable[list[TreeMachine]]:
    """Yield all states of N machines with distances below N, in which each parent is a neighbour."""
    made = [TreeMachine(me, tuple(name for name in names if name != me)) for me in names]
    states = [list(product(range(len(names)), machine.neighbours())) for machine in made[1:]]
    for chosen in product(*states):
        yield [made[0], *(structs.replace(m, distance=d, parent=p) for m, (d, p) in zip(made[1:], chosen, strict=True))]


class DoesNotAdd(TreeMachine):
    """A bug: a machine takes the distance of its parent, without the step to it."""

    def distance_over(self, distance: int) -> int:
        return distance


class LastIsAlone(TreeMachine):
    """A bug: the graph is not connected, because the last machine has no neighbours."""

    def neighbours(self) -> list[Name]:
        last = max(self.me, self.others[-1])
        return [] if self.me == last else [name for name in super().neighbours() if name != last]


ENTRY = Entry(
    name="stabilizing-spanning-tree",
    ticket=26,
    title="A tree of shortest paths from any state",
    make=all_of(TreeMachine),
    goal=lambda world: is_tree(world.processes),
    laws=(closure,),
    small=(3, 4),
    sizes=(3, 8),
    starts=every_state,
    at_once=True,
    is_inevitable=True,
    tolerates=("loss", "copies", "restart"),
    needs={"crash": Breaks(STUCK, 3)},
    bugs={
        "does-not-add": Altered(all_of(DoesNotAdd), breaks="closure", nodes=3, text="All distances become 0."),
        "not-connected": Altered(
            all_of(LastIsAlone), breaks=STUCK, nodes=3, text="A machine without a path to the root has no distance."
        ),
    },
)
