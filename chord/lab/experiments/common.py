"""Shared parts of the experiments on schemes: keys, node names, key movement."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chord.lab.hashing import PREFIX, Hasher, Hashes, number_keys, surname_keys
from chord.lab.placement import Numbers, Placement, UnsupportedChange
from chord.lab.schemes import SCHEMES


class Keys(NamedTuple):
    """Keys to place: generated ones, or a user's own.

    Attributes:
        label: the value of --keys: a number or a file.
        total: number of keys.
        seed: seed of generated keys; another seed gives other keys.
        given: a user's own keys, one per line. A key that occurs twice counts as two requests. None: keys are
            generated.
    """

    label: str
    total: int
    seed: int
    given: bytes | None = None

    def list(self) -> list[bytes]:
        """Return the keys themselves; a key that was given twice occurs twice."""
        return _list(self)

    def hashes(self, hasher: Hasher) -> Hashes:
        """Return the hashes of the keys under a scheme's hash function; shape (total,).

        If `hasher` is `PREFIX`, which keeps the order of keys, generated keys are surnames. Numbered keys would all
        begin with the same bytes.
        """
        return _hashes(self, hasher)


class Skew(NamedTuple):
    """How unevenly keys are requested.

    Attributes:
        different: number of different keys.
        most: share of the requests that ask for the most frequent key.
        squares: sum over the different keys of the squared number of requests.
    """

    different: int
    most: float
    squares: int


@lru_cache(1)
def skew(keys: Keys) -> Skew:
    """Return how unevenly the keys are requested.

    Each occurrence of a key counts as one request.
    """
    counts = Counter(keys.list())
    return Skew(len(counts), max(counts.values()) / keys.total, sum(count * count for count in counts.values()))


def chance_deviation(keys: Keys, nodes: int) -> float:
    """Return the standard deviation of keys per node over the mean, if each key picks a random node.

    It is the unevenness that no hash can avoid. A key that is requested f times brings a load of f. For m requests the
    result is sqrt((n - 1) sum f^2) / m. If all keys differ, this is sqrt((n - 1) / m).
    """
    squares = keys.total if keys.given is None else skew(keys).squares
    return math.sqrt((nodes - 1) * squares) / keys.total


def sampled(keys: Keys, size: int) -> Keys:
    """Return a sample of `size` keys, or all keys if there are no more.

    Of generated keys, the sample is the first ones. Of given keys it is random lines, so frequent keys stay frequent.
    """
    if size >= keys.total:
        return keys
    if keys.given is None:
        return keys._replace(total=size)
    lines = keys.list()
    chosen = np.sort(np.random.default_rng(keys.seed).choice(keys.total, size, replace=False))
    return keys._replace(total=size, given=b"\n".join(lines[at] for at in chosen.tolist()))


def made_keys(count: int, seed: int) -> Keys:
    """Return `count` generated keys, which differ only in a number; another seed gives other keys."""
    return Keys(str(count), count, seed)


def given_keys(label: str, text: bytes) -> Keys:
    """Return the keys in a user's text, one per line; empty lines are skipped.

    Args:
        label: the text's name in tables and errors.
        text: the content of the user's file.

    Raises:
        ValueError: there is no key.
    """
    keys = [line for line in text.splitlines() if line]
    if not keys:
        raise ValueError(f"{label} has no keys: one key per line is expected")
    return Keys(label, len(keys), 0, b"\n".join(keys))


@lru_cache(1)
def _list(keys: Keys) -> list[bytes]:
    return number_keys(keys.total, f"{keys.seed}/") if keys.given is None else keys.given.split(b"\n")


@lru_cache(2)
def _hashes(keys: Keys, hasher: Hasher) -> Hashes:
    is_order = hasher == PREFIX and keys.given is None
    found = hasher.many(surname_keys(np.random.default_rng(keys.seed), keys.total) if is_order else _list(keys))
    found.flags.writeable = False
    return found


def node_names(count: int, seed: int, first: int = 0) -> list[str]:
    """Return `count` names of nodes, numbered from `first` on.

    Each seed gives other names, because schemes may hash them.
    """
    return [f"n{seed}-{number}" for number in range(first, first + count)]


Factory = Callable[..., Placement]
"""A function that builds a scheme, as in `SCHEMES`.

It travels with a setting, because worker processes know only the lab's own schemes by name.
"""


def build(
    scheme: str | Factory, nodes: list[str], weights: dict[str, float] | None = None, **options: Any
) -> Placement:
    """Return a scheme that places keys on these nodes.

    Args:
        scheme: its name in `SCHEMES`, or the function that builds it.
        nodes: the names of the nodes.
        weights: weights by the names of nodes; None: all are equal.
        options: further arguments of the scheme, such as `vnodes`.

    Raises:
        UnsupportedChange: weights were given, and the scheme does not support them.
    """
    factory = SCHEMES[scheme] if isinstance(scheme, str) else scheme
    return factory(nodes, weights=weights, **options)


WITH_ROOM = ("anchor", "dx")
"""Schemes that fix the largest number of nodes when they are built."""


def room(scheme: str, most: int) -> dict[str, Any]:
    """Return the options of a scheme that let it grow to `most` nodes.

    The result is empty for a scheme that has no largest number of nodes.
    """
    return {"capacity": most} if scheme in WITH_ROOM else {}


def fitting(scheme: str | Factory, nodes: int) -> int:
    """Return the largest number of nodes, at most `nodes`, with which a scheme can be built.

    It is a power of two for a scheme that grows by doubling, and `nodes` itself for all others.
    """
    return 1 << (nodes.bit_length() - 1) if build(scheme, ["any"]).growth == "double" else nodes


class KeyMove(NamedTuple):
    """The keys that stayed or moved when nodes were added or removed.

    Attributes:
        was: number of nodes before the change.
        now: number of nodes after the change.
        kept: share of the keys that stayed on their node.
        ideal: the largest share that can stay if the scheme remains even.
        between_old: number of keys that moved between two nodes that are there before and after.
    """

    was: int
    now: int
    kept: float
    ideal: float
    between_old: int


def grow(placement: Placement, hashes: Hashes, then: int, seed: int) -> KeyMove | None:
    """Grow a scheme to `then` nodes, and measure the keys that move.

    If only some of the new nodes fit, as many as fit are added. If none can be added, the function tries to double the
    number of nodes.

    Args:
        placement: the scheme; it is changed.
        hashes: hashes of the keys.
        then: the number of nodes to reach.
        seed: decides the names of the new nodes.

    Returns:
        the movement; None if the scheme takes no new node.
    """
    before, was, weight = placement.place_many(hashes), len(placement.nodes), sum(placement.weights.values())
    for target in (then, 2 * was):
        if not _let_in(placement, node_names(target - was, seed, was)):
            continue
        kept, between = moved(before, placement.place_many(hashes), np.arange(was))
        return KeyMove(was, len(placement.nodes), kept, weight / sum(placement.weights.values()), between)
    return None


def _let_in(placement: Placement, names: list[str]) -> bool:
    """Add nodes to a scheme, as many of them as fit; return whether any was added."""
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


def shrink(placement: Placement, hashes: Hashes) -> KeyMove | None:
    """Remove one node from a scheme, and measure the keys that move.

    The node is one in the middle, or the last if only the last can go. If the scheme shrinks in its own steps, half of
    the nodes are removed.

    Args:
        placement: the scheme; it is changed.
        hashes: hashes of the keys.

    Returns:
        the movement; None if neither one node nor half of them can be removed.
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
        return KeyMove(was, len(left), kept, sum(placement.weights.values()) / weight, between)
    return None


def moved(before: Numbers, after: Numbers, renumbered: NDArray[np.intp]) -> tuple[float, int]:
    """Return the share of keys that stayed, and the number of needless moves.

    A move is needless if it leads from a node that stays to another node that was there before.

    Args:
        before: node number of each key before the change, shape (k,).
        after: node number of each key after the change, when nodes may have other numbers; shape (k,).
        renumbered: number after the change of each old node; -1 for nodes that were removed.
    """
    home = renumbered[before]
    is_old = np.zeros(int(max(after.max(), renumbered.max())) + 1, bool)
    is_old[renumbered[renumbered >= 0]] = True
    went = home != after
    return 1.0 - float(went.mean()), int((is_old[after[went]] & (home[went] >= 0)).sum())
