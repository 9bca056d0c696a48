"""The interface of every sharding scheme: a placement of keys on nodes.

A scheme numbers its nodes 0, 1, … in the order of `nodes`. It places one hash (`locate`) or an array of hashes
(`place_many`, with NumPy); both give the same result. Schemes do no I/O, read no clock and draw no random numbers, so
the same calls give the same placement on every machine.

A custom scheme implements `_build`, `locate`, `place_many` and `state_bytes`. If nodes may come and go, it also
implements `_add` and `_remove`. Its class attributes are the name and the facts that tables print.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import wraps
from typing import Any, ClassVar, Literal, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from chord.errors import DefiniteError
from chord.lab.hashing import XXH3, Hasher, Hashes, mix, mix_one

CHUNK = 1 << 16
"""Number of hashes placed at a time by schemes that need scratch space per hash.

The space then fits a core's cache.
"""

Numbers = NDArray[np.intp]
"""Node numbers: indices into `Placement.nodes`."""

Growth = Literal["one", "factor", "double", "never"]
"""How a scheme grows: by any node, by a whole factor, by doubling, or not at all."""


class UnsupportedChange(DefiniteError):
    """The scheme does not support this change, and nothing has changed."""

    word = "unsupported_change"


WEIGHTS_RATIO_MAX = 1000.0
"""Largest allowed ratio of the heaviest node's weight to the lightest node's."""


def require_ratio(weights: Sequence[float]) -> None:
    """Check that the weights of nodes are not too far apart.

    Tables of slots and numbers of points cannot represent such weights.

    Raises:
        ValueError: the largest weight is more than `WEIGHTS_RATIO_MAX` times the smallest.
    """
    low, high = min(weights), max(weights)
    if high / WEIGHTS_RATIO_MAX > low:
        raise ValueError(
            f"weights from {low:g} to {high:g}: the largest may be {WEIGHTS_RATIO_MAX:,.0f} times the least"
        )


P = TypeVar("P")


def in_chunks(place: Callable[[P, Hashes], Numbers]) -> Callable[[P, Hashes], Numbers]:
    """Decorate a `place_many` to pass it at most `CHUNK` (65,536) hashes at a time."""

    @wraps(place)
    def place_many(self: P, hashes: Hashes) -> Numbers:
        found = np.empty(len(hashes), dtype=np.intp)
        for start in range(0, len(hashes), CHUNK):
            found[start : start + CHUNK] = place(self, hashes[start : start + CHUNK])
        return found

    return place_many


class Common(TypedDict, total=False):
    """The optional arguments that all schemes accept: the weights of the nodes, and the hash function."""

    weights: Mapping[str, float] | None
    hasher: Hasher


class Placement(ABC):
    """A sharding scheme with its nodes: maps the hash of a key to a node.

    Args:
        nodes: names, all different, at least one. Their order is their numbering.
        weights: share of the keys that each node should have, relative to the others; 1.0 for nodes that are not named.
            The mean should be about 1, because a new node weighs 1 by default and rings multiply weights by vnodes.
        hasher: hashes keys, and the names of nodes if the scheme hashes names.

    Raises:
        ValueError: there is no node, or a name occurs twice. Or a weight is not positive and finite, belongs to no node
            or is more than 1,000 times another.
        UnsupportedChange: weights were given, and the scheme does not support them.
    """

    scheme: ClassVar[str] = ""
    """The scheme's name on the command line."""
    title: ClassVar[str] = ""
    """The scheme's name in tables."""
    source: ClassVar[str] = ""
    """The publication."""
    lookup_cost: ClassVar[str] = ""
    """Steps of a lookup among n nodes, as an order of growth."""
    memory_cost: ClassVar[str] = ""
    """Memory that a lookup needs, as an order of growth."""
    growth: ClassVar[Growth] = "one"
    has_names: ClassVar[bool] = True
    """Whether the names of nodes decide the placement.

    Otherwise their numbers do, and a new node can take over a number.
    """
    has_weights: ClassVar[bool] = False
    has_even_shares: ClassVar[bool] = False
    """Whether all nodes have the same share of all hashes."""
    is_consistent: ClassVar[bool] = True
    """Whether a change never moves a key between two nodes that stay."""
    has_distinct_replicas: ClassVar[bool] = True
    """Whether `replicas` are always on different nodes.

    Otherwise each copy is hashed again, and two copies may meet on one node.
    """
    can_remove: ClassVar[bool] = True
    """Whether any node can be removed; otherwise only the last one, or none."""

    _adds_at_once: ClassVar[bool] = False
    """Whether `_add_all` raises before any change, so that no rollback is needed."""

    _nodes: list[str]
    _weights: list[float]

    def __init__(
        self, nodes: Sequence[str], *, weights: Mapping[str, float] | None = None, hasher: Hasher = XXH3
    ) -> None:
        if not nodes:
            raise ValueError("a placement needs at least one node")
        if len(set(nodes)) < len(nodes):
            raise ValueError("two nodes have the same name")
        if strangers := set(weights or ()) - set(nodes):
            raise ValueError(f"weights of nodes that are not there: {', '.join(sorted(strangers))}")
        self._nodes = list(nodes)
        self._weights = [self._checked(weight) for weight in ((weights or {}).get(node, 1.0) for node in nodes)]
        require_ratio(self._weights)
        self.hasher = hasher
        self._build()

    # -- the nodes ------------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes; `place_many` returns indices into this tuple."""
        return tuple(self._nodes)

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each node by name: the share of keys that it should have.

        Only the proportions of weights count.
        """
        return dict(zip(self._nodes, self._weights, strict=True))

    @property
    @abstractmethod
    def state_bytes(self) -> int:
        """Bytes of state that a lookup needs: packed tables and points, without the nodes' names."""

    def shares(self) -> NDArray[np.float64] | None:
        """Return each node's exact share of all possible hashes.

        Returns:
            shape (number of nodes,), with sum 1; None if the scheme's shares can only be sampled.
        """
        return np.full(len(self._nodes), 1 / len(self._nodes)) if self.has_even_shares else None

    # -- placing --------------------------------------------------------------------------------

    def hash_keys(self, keys: Iterable[bytes]) -> Hashes:
        """Return the hashes of keys under this scheme's hash function; shape (keys,)."""
        return self.hasher.many(keys)

    def place(self, key: bytes) -> str:
        """Return the name of the node on which a key lives."""
        return self._nodes[self.locate(self.hasher.one(key))]

    def replicas(self, key: bytes, count: int) -> tuple[str, ...]:
        """Return the nodes of the copies of a key; the first is that of `place`.

        Args:
            count: number of copies. If there are fewer nodes, a scheme with distinct replicas returns all nodes.

        Raises:
            ValueError: `count` is less than 1.
        """
        self._check_copies(count)
        return tuple(self._nodes[number] for number in self.locate_replicas(self.hasher.one(key), count))

    @abstractmethod
    def locate(self, point: int) -> int:
        """Return the number of the node on which a hash lives.

        Args:
            point: the hash of a key, below 2**64.
        """

    @abstractmethod
    def place_many(self, hashes: Hashes) -> Numbers:
        """Return the number of the node on which each hash lives.

        Args:
            hashes: shape (k,); not changed.

        Returns:
            indices into `nodes`, shape (k,).
        """

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the numbers of the nodes on which the copies of a hash live.

        The first is that of `locate`. By default each further copy is placed by a new hash of `point`, so two copies
        may be on one node. Schemes in which a node has neighbours override this, and return different nodes: `count`,
        or all if there are fewer.

        Args:
            point: the hash of a key, below 2**64.
            count: number of copies, at least 1. `replicas` checks it, and this method does not.

        Source: Golubtsov 2024, "Алгоритмы шардинга (разделения) данных", on replication.
        """
        return [self.locate(replica_hash(point, copy)) for copy in range(count)]

    def replicas_many(self, hashes: Hashes, count: int) -> Numbers:
        """Return the numbers of the nodes on which the copies of each hash live.

        Args:
            hashes: shape (k,).
            count: copies per hash.

        Returns:
            indices into `nodes`, shape (k, count). If the scheme has distinct replicas and fewer nodes than `count`,
            the shape is (k, number of nodes).

        Raises:
            ValueError: `count` is less than 1.
        """
        self._check_copies(count)
        if not self.has_distinct_replicas:
            return np.stack([self.place_many(replica_hashes(hashes, copy)) for copy in range(count)], axis=1)
        count = min(count, len(self._nodes))
        found = [self.locate_replicas(point, count) for point in hashes.tolist()]
        return np.array(found, dtype=np.intp).reshape(len(hashes), count)

    # -- changes --------------------------------------------------------------------------------

    def add(self, node: str, weight: float = 1.0) -> None:
        """Add a node, which gets the next number and its share of the keys.

        Args:
            node: the name of the new node.
            weight: share of the keys that it should have, relative to the other nodes.

        Raises:
            ValueError: the name is taken, or the weight is not positive and finite, or the largest weight would be more
                than 1,000 times the smallest.
            UnsupportedChange: the scheme cannot grow by one node.
        """
        self._check_newcomers([node])
        weight = self._checked(weight)
        require_ratio([*self._weights, weight])
        self._let_in(node, weight)

    def remove(self, node: str) -> None:
        """Remove a node; other nodes get its keys.

        The numbers of the nodes after it fall by one.

        Raises:
            KeyError: there is no such node.
            UnsupportedChange: it is the only node, or the scheme cannot remove it.
        """
        number = self._number(node)
        if len(self._nodes) == 1:
            raise UnsupportedChange(f"{node} is the only node, and a placement needs at least one")
        self._remove(number)
        del self._nodes[number], self._weights[number]

    def replace(self, old: str, new: str) -> None:
        """Replace a node with a new one of the same weight.

        If the placement depends on the numbers of nodes, all keys of the old node move to the new one, and no other key
        moves. If it depends on names, the change equals adding the new node and then removing the old one.

        Raises:
            ValueError: the new name is taken.
            KeyError: there is no such node.
            UnsupportedChange: as for `add` and `remove`.
        """
        number = self._number(old)
        self._check_newcomers([new])
        if self.has_names:
            self.add(new, self._weights[number])
            self.remove(old)
        else:
            self._nodes[number] = new

    def grow(self, nodes: Sequence[str]) -> None:
        """Add several nodes of weight 1 at once, or none of them if an error is raised.

        They get the next numbers, in the given order. Some schemes can only multiply the number of nodes. Such a scheme
        takes exactly the nodes that a whole factor needs.

        Raises:
            ValueError: as for `add`.
            UnsupportedChange: as for `add`.
        """
        self._check_newcomers(nodes)
        require_ratio([*self._weights, 1.0])
        self._all_or_none(lambda: self._add_all(nodes), 1 if self._adds_at_once else len(nodes))

    def shrink(self, nodes: Sequence[str]) -> None:
        """Remove several nodes at once, or none of them if an error is raised.

        Raises:
            ValueError: a name occurs twice.
            KeyError: as for `remove`.
            UnsupportedChange: as for `remove`. Or the scheme can only divide the number of nodes by a whole number, and
                `nodes` are not exactly the nodes that this removes.
        """
        if len(set(nodes)) < len(nodes):
            raise ValueError("a node to remove is named twice")
        for node in nodes:
            self._number(node)

        def remove_all() -> None:
            for node in nodes:
                if node in self._nodes:  # removing a node from a trie may have evicted it already
                    self.remove(node)

        self._all_or_none(remove_all, len(nodes))

    # -- what a scheme fills in -----------------------------------------------------------------

    def _build(self) -> None:  # noqa: B027 - a scheme without tables has nothing to build
        """Build a scheme's tables from its nodes and weights, when it is constructed."""

    def _add(self, node: str, weight: float) -> None:
        """Update a scheme's tables for a new node, which gets the next number.

        The caller then appends the node to the list of nodes. An implementation raises before it changes anything.
        """
        raise UnsupportedChange(f"{self.scheme}: the set of nodes is fixed")

    def _add_all(self, nodes: Sequence[str]) -> None:
        """Add several nodes of weight 1 to the tables and to the list of nodes.

        The caller has checked their names. A scheme that rebuilds tables overrides this to rebuild them once. If this
        raises, the caller rolls back any change, unless the scheme sets `_adds_at_once`.
        """
        for node in nodes:
            self._let_in(node, 1.0)

    def _remove(self, number: int) -> None:
        """Update a scheme's tables for a node that goes; later nodes get a number less.

        The caller then deletes the node from the list of nodes. An implementation raises before it changes anything.
        """
        raise UnsupportedChange(f"{self.scheme}: the set of nodes is fixed")

    # -- inside ---------------------------------------------------------------------------------

    def _let_in(self, node: str, weight: float) -> None:
        self._add(node, weight)
        self._admit([node], weight)

    def _admit(self, nodes: Sequence[str], weight: float = 1.0) -> None:
        """Append new nodes of the same weight to the list of nodes.

        Their places in the list are their numbers.
        """
        self._nodes += nodes
        self._weights += [weight] * len(nodes)

    def _all_or_none(self, change: Callable[[], None], nodes: int) -> None:
        """Apply a change of several nodes; if it raises, restore the state before.

        A change of one node needs no rollback, because `_add` and `_remove` raise before they change anything.

        Args:
            change: applies the change.
            nodes: number of nodes that are added or removed.
        """
        as_it_was = deepcopy(self.__dict__) if nodes > 1 else None
        try:
            change()
        except (DefiniteError, ValueError):
            if as_it_was is not None:
                self.__dict__.clear()
                self.__dict__.update(as_it_was)
            raise

    def _check_copies(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"a key has at least one copy, not {count}")

    def _number(self, node: str) -> int:
        try:
            return self._nodes.index(node)
        except ValueError:
            raise KeyError(f"there is no node {node}") from None

    def _check_newcomers(self, nodes: Sequence[str]) -> None:
        if len(set(nodes)) < len(nodes):
            raise ValueError("two new nodes have the same name")
        there = set(self._nodes)
        for node in nodes:
            if node in there:
                raise ValueError(f"a node {node} already exists")

    def _checked(self, weight: float) -> float:
        if not 0.0 < weight < float("inf"):
            raise ValueError(f"a weight must be positive and finite, not {weight}")
        if weight != 1.0 and not self.has_weights:
            raise UnsupportedChange(f"{self.scheme} has no weights: every node weighs the same")
        return float(weight)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._nodes)} nodes>"


def replica_hash(point: int, copy: int) -> int:
    """Return the hash that places one copy of a key.

    It is for schemes that place each copy by a hash of its own.

    Args:
        point: hash of the key.
        copy: number of the copy; 0 returns `point` itself.
    """
    return mix_one(point, copy) if copy else point


def replica_hashes(hashes: Hashes, copy: int) -> Hashes:
    """Return for each hash the hash that places one copy of its key.

    It is `replica_hash` for an array; the result has the same shape.
    """
    return mix(hashes, copy) if copy else hashes


def first_distinct(numbers: Iterable[int], count: int) -> list[int]:
    """Return the first `count` different numbers of a sequence in their order, or all if there are fewer.

    Args:
        numbers: node numbers, some more than once.
        count: the most numbers to return.
    """
    found: dict[int, None] = {}
    for number in numbers:
        if len(found) == count:
            break
        found[number] = None
    return list(found)


def compact(numbers: NDArray[Any], gone: int) -> None:
    """Close the gap in an array of node numbers after a node has left, in place.

    Each number above `gone`, the number of that node, falls by one.
    """
    numbers[numbers > gone] -= 1
