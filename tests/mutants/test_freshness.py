"""Every planted bug fits the source: a fast test, which needs no hunt."""

from __future__ import annotations

import pytest

from chord.ring.pointers import RingState

from .mutant import Stale, Swap
from .run import MUTANTS


def test_planted_bugs_fit_the_source() -> None:
    for mutant in MUTANTS:
        for edit in mutant.edits:
            edit.check()


def test_swap_lasts_for_its_block() -> None:
    before = RingState.join
    one = next(mutant for mutant in MUTANTS if mutant.name == "join takes one pointer")
    with one.planted():
        assert RingState.join is not before
    assert RingState.join is before


@pytest.mark.parametrize("name", ["no_such_method", "successor", "__repr__"])
def test_swap_of_no_own_method_is_stale(name: str) -> None:
    with pytest.raises(Stale, match=f"RingState defines no function {name}"):
        Swap(RingState, name, lambda original: original).check()
