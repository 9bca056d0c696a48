"""What the experiments on schemes share: keys, names of nodes, who moved where."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chord.lab.harness.experiment import Scale
from chord.lab.hashing import PREFIX, Hasher, Hashes, number_keys, surname_keys
from chord.lab.placement import Numbers, Placement, UnsupportedChange
from chord.lab.schemes import SCHEMES


def again(command: str) -> Callable[[Scale, int], str]:
    """Return how an experiment says by which command it is measured again."""
    return lambda scale, seed: f"chord lab {command} --seed {seed}" + f" --scale {scale}" * (scale != "standard")


class Keys(NamedTuple):
    """Keys to place: so many made ones, or somebody's own.

    Attributes:
        label: how the command line names them: a number or a file.
        total: how many there are.
        seed: of the made ones; another seed makes others.
        given: somebody's own keys, one a line; a key that stands there twice is asked for twice.
    """

    label: str
    total: int
    seed: int
    given: bytes | None = None

    def list(self) -> list[bytes]:
        """Return the keys."""
        return _list(self)

    def hashes(self, hasher: Hasher) -> Hashes:
        """Return their hashes; shape (total,).

        For a scheme that hashes nothing but keeps the order of keys, made keys are surnames: numbers would all begin
        alike.
        """
        return _hashes(self, hasher)


class Skew(NamedTuple):
    """How often keys stand there twice: different ones, the share of the most frequent, the sum of squared counts."""

    different: int
    most: float
    squares: int


def skew(keys: Keys) -> Skew:
    """Return how often each key is asked for, in three numbers."""
    return _skew(keys)


def chance_deviation(keys: Keys, nodes: int) -> float:
    """Return the standard deviation of keys per node, over the mean, where each different key picks its node by chance.

    A key that is asked for f times brings f: sqrt((n - 1) sum f^2) / m, which is sqrt((n - 1) / m) where all differ.
    """
    squares = keys.total if keys.given is None else skew(keys).squares
    return math.sqrt((nodes - 1) * squares) / keys.total


def sampled(keys: Keys, size: int) -> Keys:
    """Return so many of the keys, or all where there are no more: the first of made ones, any lines of given ones.

    A key that is asked for often is so in the sample, too.
    """
    if size >= keys.total:
        return keys
    if keys.given is None:
        return keys._replace(total=size)
    lines = keys.list()
    chosen = np.sort(np.random.default_rng(keys.seed).choice(keys.total, size, replace=False))
    return keys._replace(total=size, given=b"\n".join(lines[at] for at in chosen.tolist()))


def made_keys(count: int, seed: int) -> Keys:
    """Return so many keys that differ in a number."""
    return Keys(str(count), count, seed)


def given_keys(label: str, text: bytes) -> Keys:
    """Return the keys of a text, one a line; empty lines are none.

    Raises:
        ValueError: there is no key.
    """
    keys = [line for line in text.splitlines() if line]
    if not keys:
        raise ValueError(f"{label} has no keys: one a line is expected")
    return Keys(label, len(keys), 0, b"\n".join(keys))


@lru_cache(1)
def _list(keys: Keys) -> list[bytes]:
    return number_keys(keys.total, f"{keys.seed}/") if keys.given is None else keys.given.split(b"\n")


@lru_cache(1)
def _skew(keys: Keys) -> Skew:
    counts = Counter(keys.list())
    return Skew(len(counts), max(counts.values()) / keys.total, sum(count * count for count in counts.values()))


@lru_cache(2)
def _hashes(keys: Keys, hasher: Hasher) -> Hashes:
    is_order = hasher == PREFIX and keys.given is None
    found = hasher.many(surname_keys(np.random.default_rng(keys.seed), keys.total) if is_order else _list(keys))
    found.flags.writeable = False
    return found


def node_names(count: int, seed: int, first: int = 0) -> list[str]:
    """Return names of nodes; each seed has names of its own, so that schemes that hash them are drawn anew."""
    return [f"n{seed}-{number}" for number in range(first, first + count)]


Factory = Callable[..., Placement]
"""What builds a scheme, as in `SCHEMES`; it travels with a setting, as workers know only the lab's own by name."""


def build(
    scheme: str | Factory, nodes: list[str], weights: dict[str, float] | None = None, **options: Any
) -> Placement:
    """Return a scheme, by its name or what builds it, with these nodes and options of its own.

    Raises:
        UnsupportedChange: it has no weights.
    """
    factory = SCHEMES[scheme] if isinstance(scheme, str) else scheme
    return factory(nodes, weights=weights, **options)


WITH_ROOM = ("anchor", "dx")
"""Schemes that are told at the beginning how many nodes there can ever be."""


def room(scheme: str, most: int) -> dict[str, Any]:
    """Return the options with which a scheme has room for so many nodes."""
    return {"capacity": most} if scheme in WITH_ROOM else {}


def fitting(scheme: str | Factory, nodes: int) -> int:
    """Return how many nodes a scheme can have at most, up to so many: a power of two where it doubles."""
    return 1 << (nodes.bit_length() - 1) if build(scheme, ["any"]).growth == "double" else nodes


class Move(NamedTuple):
    """What a change of the nodes did to the keys.

    Attributes:
        was, now: numbers of nodes before and after.
        kept: share of the keys that stayed where they were.
        ideal: the share that stays if no more moves than evenness asks for.
        between_old: keys that went from a node that stays to another that was there before.
    """

    was: int
    now: int
    kept: float
    ideal: float
    between_old: int


def grow(placement: Placement, hashes: Hashes, then: int, seed: int) -> Move | None:
    """Let nodes in until there are so many, or, where a scheme grows in its own steps, as many as the next step takes.

    Where there is not room for all of them, as many as there is room for.

    Returns: None where the set of nodes is fixed.
    """
    before, was, weight = placement.place_many(hashes), len(placement.nodes), sum(placement.weights.values())
    for target in (then, 2 * was):
        if not _let_in(placement, node_names(target - was, seed, was)):
            continue
        kept, between = moved(before, placement.place_many(hashes), np.arange(was))
        return Move(was, len(placement.nodes), kept, weight / sum(placement.weights.values()), between)
    return None


def _let_in(placement: Placement, names: list[str]) -> bool:
    """Let nodes in, or, where there is not room for all, as many as there is room for; say whether any has come."""
    was = len(placement.nodes)
    try:
        placement.grow(names)
    except UnsupportedChange:
        try:
            for name in names:
                placement.add(name)
        except UnsupportedChange:
            pass
    return len(placement.nodes) > was


def shrink(placement: Placement, hashes: Hashes) -> Move | None:
    """Let one node go: one in the middle, or else the last, or, where a scheme shrinks in its own steps, half of them.

    Returns: None where the set of nodes is fixed.
    """
    before, names, weight = placement.place_many(hashes), placement.nodes, sum(placement.weights.values())
    was = len(names)
    for gone in ((names[was // 2],), (names[-1],), names[was // 2 :]):
        try:
            placement.shrink(gone)
        except UnsupportedChange:
            continue
        left = {name: number for number, name in enumerate(placement.nodes)}
        renumbered = np.array([left.get(name, -1) for name in names], np.intp)
        kept, between = moved(before, placement.place_many(hashes), renumbered)
        return Move(was, len(left), kept, sum(placement.weights.values()) / weight, between)
    return None


def moved(before: Numbers, after: Numbers, renumbered: NDArray[np.intp]) -> tuple[float, int]:
    """Return the share of keys that stayed, and how many went from a node that stays to another old one.

    Args:
        before, after: where each key lived and lives, shape (k,); by the numbers of then and of now.
        renumbered: the numbers that the old nodes have now, -1 for those that are gone.
    """
    home = renumbered[before]
    is_old = np.zeros(int(max(after.max(), renumbered.max())) + 1, bool)
    is_old[renumbered[renumbered >= 0]] = True
    went = home != after
    return 1.0 - float(went.mean()), int((is_old[after[went]] & (home[went] >= 0)).sum())
