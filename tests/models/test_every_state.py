"""No order of steps breaks the invariant: a search through all states of a few vnodes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from chord.events import Event
from chord.ring.pointers import RingState
from chord.wire.messages import Contact

from .every_state import explore
from .original import ideal


def ring(*ids: int, r: int) -> dict[int, tuple[int, ...]]:
    return {n: entry.successors for n, entry in ideal(ids, r).items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("r", "start", "others", "states"),
    [
        (2, (0, 20, 40), (10, 30), 4051),
        (3, (0, 20, 40, 50), (10,), 3296),
        pytest.param(2, (0, 20, 40), (10, 30, 50), 102_046, marks=pytest.mark.thorough),
    ],
    ids=["r = 2, five vnodes", "r = 3, five vnodes", "r = 2, six vnodes"],
)
def test_every_reachable_state_keeps_the_invariant(
    r: int, start: tuple[int, ...], others: tuple[int, ...], states: int
) -> None:
    """Start with r + 1 members. Joins, failures within the assumption and offers of any vnode follow without end."""
    found, wrong, way = explore(ring(*start, r=r), (*start, *others), r)
    assert not wrong, f"{wrong[0]} after {way}"
    assert found == states, "the number of reachable states has changed: check the difference"


def test_planted_join_with_one_pointer_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = RingState.join

    def join(state: RingState, predecessor: Contact, its_successors: Iterable[Contact]) -> list[Event]:
        return original(state, predecessor, tuple(its_successors)[:1])

    monkeypatch.setattr(RingState, "join", join)
    _, wrong, way = explore(ring(0, 20, 40, r=2), (0, 10, 20, 30, 40), 2)
    assert wrong, way


def test_planted_adoption_without_a_question_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stabilize as published: the new head precedes the old list, and is not asked for its own list."""
    original = RingState.adopt_successor

    def adopt(state: RingState, new: Contact, its_successors: Iterable[Contact]) -> list[Event]:
        return original(state, new, state.successors[1:])

    monkeypatch.setattr(RingState, "adopt_successor", adopt)
    _, wrong, way = explore(ring(0, 20, 40, r=2), (0, 10, 20, 30, 40), 2)
    assert wrong, way
