"""Self-stabilization: how long the worst case takes, and how many states a wrong rule leaves dead."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from msgspec import structs

from chord.gallery.explore import systems_of
from chord.gallery.index import entry_of
from chord.gallery.world import Choice, System


def any_choice(choice: Choice) -> bool:
    return True


def most_moves(
    name: str, nodes: int, is_allowed: Callable[[Choice], bool] = any_choice, *, is_whole: bool = False
) -> int:
    """Return the most moves before the goal, over all starts and all schedules of one machine at a time.

    Args:
        name: the entry.
        nodes: the number of machines.
        is_allowed: whether the schedule may have a move.
        is_whole: go on after the goal, until no move is allowed.
    """
    entry = structs.replace(entry_of(name), at_once=False)
    systems = systems_of(entry, nodes)

    @cache
    def moves_from(state: bytes) -> int:
        world = systems[0].decode(state)
        if entry.goal(world) and not is_whole:
            return 0
        most = 0
        for choice in filter(is_allowed, systems[0].choices(world)):
            systems[0].take(world, choice)
            most = max(most, 1 + moves_from(systems[0].encode(world)))
            world = systems[0].decode(state)
        return most

    return max(moves_from(system.encode(system.start())) for system in systems)


@pytest.mark.parametrize(("nodes", "moves"), [(4, 13), (5, 24)])
@pytest.mark.parametrize("name", ["stabilizing-token-ring", "stabilizing-token-ring-one-at-a-time"])
def test_worst_case_of_ring_equals_cost(name: str, nodes: int, moves: int) -> None:
    formula = entry_of("stabilizing-token-ring-one-at-a-time").cost[0].formula
    assert most_moves(name, nodes) == moves == formula(nodes)


@pytest.mark.parametrize("nodes", [3, 4, 5])
def test_first_machine_of_ring_moves_again(nodes: int) -> None:
    """The others make at most N(N − 1)/2 moves in between, and some start needs all of them."""
    name = "stabilizing-token-ring"
    assert most_moves(name, nodes, lambda choice: choice.process != "a", is_whole=True) == nodes * (nodes - 1) // 2


def test_printed_ring_has_four_dead_states() -> None:
    entry = entry_of("stabilizing-token-ring")
    systems = systems_of(entry, 4, entry.printed["first-like-others"])
    assert (len(systems), sum(not system.choices(system.start()) for system in systems)) == (256, 4)


def rounds_of(system: System) -> int:
    """Return the rounds until no machine moves. In a round, all machines move at once."""
    world, rounds = system.start(), 0
    while choices := system.choices(world):
        everyone: Choice = max(choices, key=lambda choice: len(choice.of))
        system.take(world, everyone)
        rounds += 1
    return rounds


@pytest.mark.parametrize("nodes", [3, 4])
def test_tree_needs_as_many_rounds_as_its_depth(nodes: int) -> None:
    assert max(map(rounds_of, systems_of(entry_of("stabilizing-spanning-tree"), nodes))) == 2
