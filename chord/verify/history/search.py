"""Searches for one order of a key's operations that explains every answer.

Such an order respects real time: an operation that ended before another one began comes before it. It also respects the
register: a read returns the value that was written last. An operation of unknown outcome may stand anywhere after its
call, or nowhere.

The next operation in the order must have begun before any other open operation ended. The search tries each of these
operations, and backtracks when it is stuck. It does not visit a state again in which the same operations are done and
the register holds the same value. Four rules make real histories quick to search, and rule out no history that can be
explained:

- A read that fits comes at once, because it changes nothing.
- A put comes at once if no operation will read its value, and no operation has to read the value that it replaces.
- Of two operations with the same effect, the one with the earlier end comes first.
- A value that an operation still has to read is not overwritten if no remaining operation can write it again.

The problem is NP-complete. So the search has a limit of states, and beyond it the verdict is `undecided`.

Source: Wing and Gong 1993 (Testing and verifying concurrent objects). Lowe 2017 (Testing for linearizability). Horn and
Kroening 2015 (Faster linearizability checking via P-compositionality), for the search key by key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import NamedTuple

from chord.verify.history.format import Operation, State
from chord.verify.history.register import RegisterVerdict, seen

STEPS_MAX = 500_000
"""Limit of states that are visited for one key. The search remembers each state, in about 200 bytes."""


class SearchOutcome(NamedTuple):
    """The outcome of a search.

    Attributes:
        verdict: ok, violation or undecided.
        steps: number of states that were visited.
        placed: the longest order that was found; empty unless the verdict is violation.
        state: the content of the register after `placed`; None is "not found".
        stuck: the operations that could follow `placed` in time, but contradict the register. If some operations saw
            values that were never written, only these. Empty unless the verdict is violation.
    """

    verdict: RegisterVerdict
    steps: int
    placed: tuple[Operation, ...] = ()
    state: State = None
    stuck: tuple[Operation, ...] = ()


def search(operations: Sequence[Operation], steps_max: int = STEPS_MAX) -> SearchOutcome:
    """Search for an order of one key's operations that explains every answer.

    A state of the search is a set of operations that are in order, and the value of the register. After `steps_max`
    visited states the verdict is undecided.
    """
    return _Search(operations).run(steps_max)


def that_matter(operations: Sequence[Operation]) -> list[Operation]:
    """Return those operations of one key that an explanation of all answers must contain, or may need to contain.

    Failed operations did not happen, and reads of unknown outcome say nothing. A write of unknown outcome need not have
    happened if no operation can have seen its value.
    """
    kept = [o for o in operations if o.status == "ok"]
    wanted = {value for o in kept for value in seen(o)}
    unknown = [o for o in operations if o.status == "unknown" and o.is_write]
    while useful := [o for o in unknown if o.new in wanted]:
        kept += useful
        unknown = [o for o in unknown if o.new not in wanted]
        wanted.update(value for o in useful for value in seen(o))
    return kept


class _Mark(NamedTuple):
    """The state of the search before a choice, to go back to.

    `placed` is the number of operations in the order. The other fields are those of `_Search`.
    """

    placed: int
    low: int
    done: int
    taken: int
    state: State


class _Open:
    """The operations that are not placed yet: a linked list of positions 0 to n - 1.

    Any position can be removed. Positions are put back in the reverse order of their removal.
    """

    def __init__(self, size: int) -> None:
        self._end = size
        self._after: list[int] = [*range(1, size + 1), 0]
        self._before: list[int] = [size, *range(size)]

    def __iter__(self) -> Iterator[int]:
        position = self._after[self._end]
        while position != self._end:
            yield position
            position = self._after[position]

    def __bool__(self) -> bool:
        return self._after[self._end] != self._end

    def take(self, position: int) -> None:
        before, after = self._before[position], self._after[position]
        self._after[before], self._before[after] = after, before

    def put_back(self, position: int) -> None:
        """Put back a position: of all removed positions, the last one."""
        self._after[self._before[position]] = self._before[self._after[position]] = position


class _Search:
    """The search for an order of one key's operations, with backtracking.

    Operations that are known to have happened are at the positions below `_due`. Those of unknown outcome follow.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        kept = sorted(that_matter(operations), key=lambda o: (o.status != "ok", o.start_s, o.line))
        self._operations = kept
        self._due = sum(o.status == "ok" for o in kept)
        self._open = _Open(self._due)
        self._spare = _Open(len(kept) - self._due)
        self._seen = [seen(o) for o in kept]
        self._needs = Counter(v for o, values in zip(kept, self._seen, strict=True) if o.status == "ok" for v in values)
        self._supply = Counter(o.new for o in kept if o.is_write)
        self._chained = {o.old for o in kept[self._due :] if o.kind == "cas"}  # a cas may read them, but need not
        self._trail: list[int] = []
        # Done are all operations below `_low`, and `_low + i` for each bit i of `_done`. If few operations are in
        # progress at the same time, `_done` is a small number for any length of history. `_taken` has the bits of the
        # operations with an unknown outcome.
        self._low = self._done = self._taken = 0
        self._state: State = None

    def run(self, steps_max: int) -> SearchOutcome:
        """Search until an order is found, none is possible, or the limit is reached."""
        unwritten = [o for o, values in zip(self._operations, self._seen, strict=True) if self._is_unwritten(values)]
        if unwritten:
            return SearchOutcome("violation", 0, stuck=tuple(unwritten))
        steps = best = 0
        outcome = SearchOutcome("violation", 0)
        been: set[tuple[int, int, int, State]] = set()
        stack: list[tuple[list[int], _Mark]] = []
        choices: list[int] = self._settle_and_choose()
        while self._open:
            if not choices and len(self._trail) >= best:
                best = len(self._trail) + 1
                outcome = self._report()
            if choices:
                mark = _Mark(len(self._trail), self._low, self._done, self._taken, self._state)
                self._place(choices.pop())
                stack.append((choices, mark))
                steps += 1
                if steps > steps_max:
                    return SearchOutcome("undecided", steps)
                choices = self._settle_and_choose()
                place = (self._low, self._done, self._taken, self._state)
                if place in been:
                    choices = []
                been.add(place)
            elif stack:
                choices, mark = stack.pop()
                self._go_back(mark)
            else:
                return outcome._replace(steps=steps)
        return SearchOutcome("ok", steps)

    def _is_unwritten(self, values: Sequence[State]) -> bool:
        """Whether one of these values was seen for certain, but never written."""
        return any(self._needs[v] and not self._supply[v] and v is not None for v in values)

    def _settle_and_choose(self) -> list[int]:
        """Place operations that need no choice; return the candidates for the next one.

        The best candidate is the last.
        """
        due, until_s = self._next()
        while (free := next(filter(self._is_free, due), None)) is not None:
            self._place(free)
            due, until_s = self._next()
        spare = []
        for position in (self._due + index for index in self._spare):
            operation = self._operations[position]
            if operation.start_s > until_s:
                break
            if (self._needs[operation.new] or operation.new in self._chained) and operation.new != self._state:
                spare.append(position)
        due.sort(key=lambda position: self._operations[position].latest_s)
        choices = self._first_of_a_kind(filter(self._may_follow, due + spare))
        choices.reverse()
        return choices

    def _next(self) -> tuple[list[int], float]:
        """Return the positions that may be placed next, and the earliest end among them.

        Only operations that are known to have happened are considered. None of the returned ones began after the end of
        another operation that is not placed yet. The end is infinity if all are placed.
        """
        found = []
        until_s = inf
        for position in self._open:
            operation = self._operations[position]
            if operation.start_s > until_s:
                break
            found.append(position)
            until_s = min(until_s, operation.latest_s)
        return found, until_s

    def _first_of_a_kind(self, positions: Iterable[int]) -> list[int]:
        """Return the first position of each effect, in the given order.

        Two operations have the same effect if they are of the same kind and write the same value. The caller passes the
        operations with the earliest ends first.
        """
        kinds: dict[tuple[str, State], int] = {}
        for position in positions:
            operation = self._operations[position]
            kinds.setdefault((operation.kind, operation.new), position)
        return list(kinds.values())

    def _is_free(self, position: int) -> bool:
        """Whether an operation can be placed next without trying other orders."""
        operation = self._operations[position]
        if operation.kind == "get":
            return self._fits(position)
        return operation.kind != "cas" and not self._is_wanted(self._state) and not self._is_wanted(operation.new)

    def _is_wanted(self, state: State) -> bool:
        return self._needs[state] > 0 or state in self._chained

    def _fits(self, position: int) -> bool:
        """Whether an operation saw the value that the register holds, or read nothing."""
        values = self._seen[position]
        return not values or values == (self._state,)

    def _may_follow(self, position: int) -> bool:
        """Whether the operation at a position is a write that may come next.

        It must have seen the value that the register holds, or read nothing. It must not overwrite a value that has to
        be read later and cannot be written again.
        """
        operation = self._operations[position]
        if operation.kind == "get" or not self._fits(position):
            return False
        own = position < self._due and operation.kind == "cas"
        return self._needs[self._state] <= own or self._supply[self._state] > 0

    def _place(self, position: int) -> None:
        operation = self._operations[position]
        self._trail.append(position)
        if position < self._due:
            self._open.take(position)
            for value in self._seen[position]:
                self._needs[value] -= 1
            self._done |= 1 << (position - self._low)
            if self._done & 1:
                ones = (~self._done & (self._done + 1)).bit_length() - 1
                self._low += ones
                self._done >>= ones
        else:
            self._spare.take(position - self._due)
            self._taken |= 1 << (position - self._due)
        if operation.is_write:
            self._supply[operation.new] -= 1
            self._state = operation.new

    def _go_back(self, mark: _Mark) -> None:
        while len(self._trail) > mark.placed:
            position = self._trail.pop()
            operation = self._operations[position]
            if position < self._due:
                self._open.put_back(position)
                for value in self._seen[position]:
                    self._needs[value] += 1
            else:
                self._spare.put_back(position - self._due)
            if operation.is_write:
                self._supply[operation.new] += 1
        _, self._low, self._done, self._taken, self._state = mark

    def _report(self) -> SearchOutcome:
        """Return the order so far, and the operations at which the search is stuck."""
        stuck, _ = self._next()
        placed = tuple(self._operations[position] for position in self._trail)
        return SearchOutcome(
            "violation", 0, placed, self._state, tuple(self._operations[position] for position in stuck)
        )
