"""Histories for tests: written by hand, made by a correct register, and random ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import chain, combinations, permutations
from typing import Any

import msgspec

from chord.verify.history.format import HistoryValue, Operation, State
from chord.verify.history.register import seen


def op(kind: Any, start_s: float, end_s: float | None, value: Any = None, status: Any = "ok", **more: Any) -> Operation:
    """Return an operation; `value` is the input of a put, the result of a get, or (old, new) of a cas."""
    client, line, key = more.get("client", "c"), more.get("line", 0), more.get("key", "k")
    old, new, found = None, None, ()
    if kind == "put":
        new = value
    elif kind == "cas":
        old, new = value
    elif kind == "get" and value is not None:
        found = value if isinstance(value, tuple) else (value,)
    return Operation(line, client, key, kind, status, start_s, end_s, old, new, found)


def history(*operations: Operation) -> list[Operation]:
    """Return the operations with their line numbers."""
    return [msgspec.structs.replace(o, line=line) for line, o in enumerate(operations, 1)]


def registers(
    rng: random.Random, operations: int, clients: int = 3, keys: int = 1, *, unknown: float = 0.0, dels: bool = True,
    values: int | None = None, cas: bool = True,
) -> list[Operation]:
    """Return a history of clients of correct registers.

    Every operation takes effect at one moment of its time. One with an unknown outcome may do so later or never.

    Args:
        unknown: the share of operations with an unknown outcome.
        values: the number of different values; None to write each value once.
    """
    planned: list[tuple[float, int, Operation]] = []
    free_s = [float(rng.randrange(4)) for _ in range(clients)]
    kinds = ["put", "get", "get"] + ["del"] * dels + ["cas"] * cas
    for number in range(operations):
        client = rng.randrange(clients)
        start_s = free_s[client] + rng.randrange(3) / 2  # multiples of 0.5, so that ties occur
        point_s = start_s + rng.randrange(4) / 2
        end_s = point_s + rng.randrange(4) / 2
        free_s[client] = end_s
        status = "unknown" if rng.random() < unknown else "ok"
        if status == "unknown":
            point_s += rng.choice([0.0, 1.0, 20.0])
        value = number if values is None else rng.randrange(values)
        new = value if (kind := rng.choice(kinds)) in ("put", "cas") else None
        key = rng.randrange(keys)
        planned.append((point_s, number, Operation(0, client, key, kind, status, start_s, end_s, None, new)))
    recorded = []
    state: dict[Any, State] = {}
    for _, _, o in sorted(planned, key=lambda plan: plan[:2]):
        held = state.get(o.key)
        if o.kind == "get":
            if o.status == "ok" and held is not None:
                o = msgspec.structs.replace(o, found=(held,))
        elif o.kind == "cas" and rng.random() < 0.2:
            o = msgspec.structs.replace(o, old=-1, status="fail" if o.status == "ok" else "unknown")
        elif o.status == "ok" or rng.random() < 0.5:
            o = msgspec.structs.replace(o, old=held if o.kind == "cas" else None)
            state[o.key] = o.new
        recorded.append(o)
    return history(*sorted(recorded, key=lambda o: o.end_s or 0))


def spoil(rng: random.Random, operations: Sequence[Operation]) -> list[Operation]:
    """Return the history with the answer of one read changed to another written value, or to none."""
    reads = [i for i, o in enumerate(operations) if o.kind == "get" and o.status == "ok"]
    written: list[HistoryValue] = [o.new for o in operations if o.new is not None]
    spoiled = list(operations)
    if reads:
        i = rng.choice(reads)
        value = rng.choice([None, *written])
        spoiled[i] = msgspec.structs.replace(spoiled[i], found=() if value is None else (value,))
    return spoiled


def anything(rng: random.Random, operations: int) -> list[Operation]:
    """Return random operations on few values."""
    made = []
    for _ in range(operations):
        start_s = float(rng.randrange(6))
        end_s = start_s + rng.randrange(4)
        kind = rng.choice(["put", "put", "get", "get", "get", "cas", "del"])
        status = rng.choice(["ok"] * 6 + ["unknown"] * 2 + ["fail"])
        value: Any = rng.choice(["a", "b", "c"])
        if kind == "cas":
            value = (rng.choice(["a", "b", None]), value)
        elif kind == "get":
            found = rng.choice(["a", "b", "c", None] * 5 + [("a", "b")])
            value = found if status == "ok" else None
        made.append(op(kind, start_s, end_s, None if kind == "del" else value, status))
    return history(*made)


def is_explained(operations: Sequence[Operation]) -> bool:
    """Return whether an order explains the operations, by a trial of all orders."""
    due = [o for o in operations if o.status == "ok"]
    spare = [o for o in operations if o.status == "unknown" and o.is_write]
    subsets = chain.from_iterable(combinations(spare, n) for n in range(len(spare) + 1))
    return any(_is_order(order) for subset in subsets for order in permutations([*due, *subset]))


def _is_order(order: Sequence[Operation]) -> bool:
    state: State = None
    for i, o in enumerate(order):
        if any(later.latest_s < o.start_s for later in order[i + 1 :]) or seen(o) not in ((), (state,)):
            return False
        if o.is_write:
            state = o.new
    return True
