"""Reduces a violation to a few operations that still violate.

Leaving out an operation must not create a new violation. Reads can always be left out. A write can be left out if no
remaining operation saw its value. An order that explains the history with that write explains it without, too.

Source: Zeller and Hildebrandt 2002 (Simplifying and isolating failure-inducing input), with this rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chord.verify.history.format import Operation
from chord.verify.history.register import seen

TRIALS_MAX = 500


def shrink(
    operations: Sequence[Operation], is_violation: Callable[[Sequence[Operation]], bool], trials_max: int = TRIALS_MAX
) -> list[Operation]:
    """Reduce a violation to a few operations that still violate, in the given order.

    They need not be the fewest possible.

    Args:
        operations: operations that violate.
        is_violation: returns whether the operations that it gets, a part of all, still violate.
        trials_max: limit of calls of `is_violation`; at the limit, the result is as far as the reduction got.
    """
    kept = list(operations)
    trials = 0
    size = max(1, len(kept) // 2)
    while True:
        before = len(kept)
        end = before
        while end > 0:  # from the end: most operations come after the violation, and go first
            start = max(0, end - size)
            fewer = _without(kept, start, end)
            if len(fewer) < len(kept):
                if trials >= trials_max:
                    return kept
                trials += 1
                if is_violation(fewer):
                    kept = fewer
            end = start
        if size > 1:
            size //= 2
        elif len(kept) == before:
            return kept


def _without(operations: Sequence[Operation], start: int, end: int) -> list[Operation]:
    """Return the operations without those in [start:end] that can be left out.

    A write must stay if a remaining operation saw its value.
    """
    gone = {o.line for o in operations[start:end] if not o.is_write}
    while True:
        left = [o for o in operations if o.line not in gone]
        saw = {value for o in left for value in seen(o)}
        more = {o.line for o in operations[start:end] if o.is_write and o.new not in saw} - gone
        if not more:
            return left
        gone |= more
