"""Dijkstra's self-stabilizing ring (ticket 25): in the end exactly one machine has the privilege, from any state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from msgspec import structs

from chord.gallery.entry import ENDLESS, STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import SmallWorld, law_of_worlds
from chord.gallery.process import Machine, Make, Name


class RingMachine(Machine):
    """A machine that compares its number with that of the machine to its left. It may move if it is privileged."""

    number: int = 0

    def left(self) -> Name:
        """Return the machine to the left. For the first machine it is the last one."""
        return max((name for name in self.others if name < self.me), default=self.others[-1])

    def is_first(self) -> bool:
        """Return whether this is the first machine."""
        return self.me < self.others[0]

    def numbers(self) -> int:
        """Return K: the first machine counts modulo K."""
        return len(self.others) + 1

    def is_privileged(self, left: int) -> bool:
        """Return whether this machine has the privilege: it may move. `left` is the number of its left neighbour."""
        return (self.number == left) if self.is_first() else (self.number != left)

    def rule(self, seen: Mapping[Name, Any]) -> RingMachine | None:
        left = seen[self.left()].number
        if not self.is_privileged(left):
            return None
        return structs.replace(self, number=(self.number + 1) % self.numbers() if self.is_first() else left)


class RingOfOneMover(RingMachine):
    """A machine of a ring in which only one machine moves at a time: K = N − 1 is enough."""

    def numbers(self) -> int:
        return len(self.others)


def privileged(machines: Mapping[Name, Any]) -> list[Any]:
    """Return the machines that have the privilege."""
    return [machine for machine in machines.values() if machine.rule(machines) is not None]


@law_of_worlds("closure", ticket=25)
def closure(world: SmallWorld) -> str:
    """If exactly one machine has the privilege, then this is also true after its move."""
    holders = privileged(world.processes)
    if len(holders) != 1:
        return ""
    after = {**world.processes, holders[0].me: holders[0].rule(world.processes)}
    return "" if (count := len(privileged(after))) == 1 else f"after the move, {count} machines have the privilege"


def one_can_move(world: SmallWorld) -> bool:
    """Return whether exactly one machine has the privilege, and is up to use it. The goal."""
    holders = privileged(world.processes)
    return len(holders) == 1 and holders[0].me not in world.down


def ring(kind: type[RingMachine]) -> Make:
    """Return a function that makes a ring with descending numbers: nearly every machine has the privilege."""

    def make(names: Sequence[Name]) -> Iterable[RingMachine]:
        made = [kind(me, tuple(name for name in names if name != me)) for me in names]
        return [structs.replace(m, number=(len(names) - 1 - i) % m.numbers()) for i, m in enumerate(made)]

    return make


def every_state(kind: type[RingMachine], names: Sequence[Name]) -> Iterable[list[RingMachine]]:
    """Yield all K^N states of a ring of N machines of one class with numbers below K."""
    made = [kind(me, tuple(name for name in names if name != me)) for me in names]
    for numbers in product(range(made[0].numbers()), repeat=len(names)):
        yield [structs.replace(machine, number=number) for machine, number in zip(made, numbers, strict=True)]


class TooFewNumbers(RingMachine):
    """A bug: the first machine counts modulo N − 1, although several machines may move at once."""

    def numbers(self) -> int:
        return len(self.others)


class FarTooFewNumbers(RingMachine):
    """A bug: the first machine counts modulo N − 2."""

    def numbers(self) -> int:
        return len(self.others) - 1


class FirstLikeOthers(RingMachine):
    """As printed: the first machine, too, has the privilege if its number differs from that to its left."""

    def is_privileged(self, left: int) -> bool:
        return self.number != left


ENTRY = Entry(
    name="stabilizing-token-ring", ticket=25, title="Dijkstra's ring with one privilege",
    make=ring(RingMachine),
    goal=one_can_move,
    laws=(closure,),
    small=(3, 4),
    sizes=(3, 8),
    starts=lambda names: every_state(RingMachine, names),
    at_once=True,
    is_inevitable=True,
    tolerates=("loss", "copies", "restart"),
    needs={"crash": Breaks(STUCK, 3)},
    bugs={
        "too-few-numbers": Altered(
            ring(TooFewNumbers), breaks=ENDLESS, nodes=4, text="The machines can move in step, and go round forever."
        )
    },
    printed={
        "first-like-others": Altered(
            ring(FirstLikeOthers), breaks=STUCK, nodes=4, text="If all numbers are equal, no machine has the privilege."
        )
    },
)  # fmt: skip

ONE_AT_A_TIME = structs.replace(
    ENTRY,
    name="stabilizing-token-ring-one-at-a-time",
    title="Dijkstra's ring, one move at a time",
    make=ring(RingOfOneMover),
    starts=lambda names: every_state(RingOfOneMover, names),
    at_once=False,
    small=(3, 4, 5),
    cost=(Cost("(3n² − 5n − 2)/2", "run", lambda n: (3 * n * n - 5 * n - 2) // 2, is_exact=False, unit="moves"),),
    bugs={
        "too-few-numbers": Altered(
            ring(FarTooFewNumbers), breaks=ENDLESS, nodes=4, text="The first machine meets its old number again."
        )
    },
    printed={},
)
