"""The interface of every scheme: where keys live, and what a change of the nodes does to them.

A scheme numbers its nodes 0, 1, … in the order of `nodes`. It places hashes, one (`locate`, what a program does with a
key it is asked for) or an array (`place_many`, NumPy); both give the same. Everything is a value: no I/O, no dice, no
clock; the same calls give the same placement on every machine.

A scheme of one's own fills in `_build`, `locate`, `place_many` and `state_bytes`, and `_add` and `_remove` where nodes
may come and go; the name and the facts at the class are what tables print.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from chord.errors import DefiniteError
from chord.lab.hashing import XXH3, Hasher, Hashes, mix, mix_one

CHUNK = 1 << 16
"""Hashes that are placed at a time where a scheme needs scratch space for each: what fits a core's cache."""

Numbers = NDArray[np.intp]
"""Numbers of nodes: indices into `Placement.nodes`."""

Growth = Literal["one", "factor", "double", "never"]
"""How a scheme grows: by any node, by a whole factor at a time, by doubling, or not at all."""


class UnsupportedChange(DefiniteError):
    """The scheme cannot do this; the message says why. Nothing has changed."""

    word = "unsupported_change"


WEIGHTS_RATIO_MAX = 1000.0
"""How many times the lightest node's weight the heaviest may have."""


def require_ratio(weights: Iterable[float]) -> None:
    """Refuse weights that are too far apart to be kept by tables and points.

    Raises: ValueError.
    """
    known = list(weights)
    low, high = min(known), max(known)
    if high / WEIGHTS_RATIO_MAX > low:
        raise ValueError(f"weights from {low:g} to {high:g}: the most may be {WEIGHTS_RATIO_MAX:,.0f} times the least")


class Placement(ABC):
    """Where keys live: from the hash of a key to a node.

    Args:
        nodes: names, all different, at least one; their order is their numbering.
        weights: how much of the keys a node is to have, relative to the others; 1.0 for those that are not named.
            Their mean should be about 1, as newcomers weigh 1 unless it is said otherwise, and as rings take a weight
            times their vnodes.
        hasher: what makes hashes of keys (and of the names of nodes, where the scheme hashes these).
    Raises:
        ValueError: no nodes, a name twice, a weight that is not positive or of nobody, weights too far apart.
        UnsupportedChange: weights, and the scheme has none.
    """

    scheme: ClassVar[str] = ""
    """The scheme's name on the command line."""
    title: ClassVar[str] = ""
    """Its name in a table."""
    source: ClassVar[str] = ""
    """Where it was published."""
    lookup_cost: ClassVar[str] = ""
    """Steps of a look-up among n nodes, as an order of growth."""
    memory_cost: ClassVar[str] = ""
    """What a look-up needs in memory, as an order of growth."""
    growth: ClassVar[Growth] = "one"
    has_names: ClassVar[bool] = True
    """Whether the names of nodes decide the placement; otherwise their numbers do, and a newcomer can take one over."""
    has_weights: ClassVar[bool] = False
    is_consistent: ClassVar[bool] = True
    """Whether a change moves no key from a node that stays to another node that was there before."""
    has_distinct_replicas: ClassVar[bool] = True
    """Whether `replicas` are on different nodes; otherwise they come from hashing again, and may meet."""
    can_remove: ClassVar[bool] = True
    """Whether any node can go; otherwise only the last, or none."""

    _adds_at_once: ClassVar[bool] = False
    """Whether `_add_all` refuses before it has changed anything, so that nothing is to be taken back."""

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
        """The names of the nodes; `place_many` answers with indices into this."""
        return tuple(self._nodes)

    @property
    def weights(self) -> dict[str, float]:
        """The weight of every node."""
        return dict(zip(self._nodes, self._weights, strict=True))

    @property
    @abstractmethod
    def state_bytes(self) -> int:
        """What a look-up needs in memory, in bytes: tables and points, packed; without the nodes' names."""

    def shares(self) -> NDArray[np.float64] | None:
        """Return which share of all hashes each node has, exactly; None where the scheme can only be sampled.

        Returns: shape (number of nodes,), adding up to 1.
        """
        return None

    # -- placing --------------------------------------------------------------------------------

    def hash_key(self, key: bytes) -> int:
        """Return a key's hash, as this scheme takes it."""
        return self.hasher.one(key)

    def hash_keys(self, keys: Iterable[bytes]) -> Hashes:
        """Return the hashes of keys, as this scheme takes them; shape (number of keys,)."""
        return self.hasher.many(keys)

    def place(self, key: bytes) -> str:
        """Return the node where a key lives."""
        return self._nodes[self.locate(self.hasher.one(key))]

    def replicas(self, key: bytes, count: int) -> tuple[str, ...]:
        """Return the nodes where the copies of a key live, the first one as `place` says.

        Args:
            count: so many copies; where there are fewer nodes, a scheme with distinct replicas gives all of them.
        Raises: ValueError: less than one copy.
        """
        self._check_copies(count)
        return tuple(self._nodes[number] for number in self.locate_replicas(self.hasher.one(key), count))

    @abstractmethod
    def locate(self, point: int) -> int:
        """Return the number of the node where a hash lives."""

    @abstractmethod
    def place_many(self, hashes: Hashes) -> Numbers:
        """Return the number of the node where each hash lives.

        Args:
            hashes: shape (k,); not changed.
        Returns: indices into `nodes`, shape (k,).
        """

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the numbers of the nodes where the copies of a hash live.

        Unless a scheme knows better it hashes again for every copy (the fourth text's advice for schemes that have no
        neighbours): two copies may meet on one node.
        """
        return [self.locate(replica_hash(point, copy)) for copy in range(count)]

    def replicas_many(self, hashes: Hashes, count: int) -> Numbers:
        """Return the numbers of the nodes where the copies of each hash live.

        Args:
            hashes: shape (k,).
            count: copies of each; where replicas are distinct at most the number of nodes.
        Returns: indices into `nodes`, shape (k, count).
        Raises: ValueError: less than one copy.
        """
        self._check_copies(count)
        if not self.has_distinct_replicas:
            return np.stack([self.place_many(replica_hashes(hashes, copy)) for copy in range(count)], axis=1)
        count = min(count, len(self._nodes))
        found = [self.locate_replicas(point, count) for point in hashes.tolist()]
        return np.array(found, dtype=np.intp).reshape(len(hashes), count)

    # -- changes --------------------------------------------------------------------------------

    def add(self, node: str, weight: float = 1.0) -> None:
        """Let a node in.

        Raises:
            ValueError: the name is taken, or the weight not positive or too far from the others'.
            UnsupportedChange: the scheme does not grow so.
        """
        self._check_newcomer(node)
        weight = self._checked(weight)
        require_ratio([*self._weights, weight])
        self._let_in(node, weight)

    def remove(self, node: str) -> None:
        """Let a node go.

        Raises:
            KeyError: there is no such node.
            UnsupportedChange: it is the only node, or the scheme cannot do without it.
        """
        number = self._number(node)
        if len(self._nodes) == 1:
            raise UnsupportedChange(f"{node} is the only node, and keys must live somewhere")
        self._remove(number)
        del self._nodes[number], self._weights[number]

    def replace(self, old: str, new: str) -> None:
        """Let a newcomer take the place of a node, and its weight.

        Where numbers decide, all keys of the one go to the other and no other key moves. Where names do, the two swap
        as any two: others take over from the old and give to the new.

        Raises: as `add` and `remove`.
        """
        number = self._number(old)
        self._check_newcomer(new)
        if not self.has_names:
            self._nodes[number] = new
            return
        weight = self._weights[number]
        self.add(new, weight)
        self.remove(old)

    def grow(self, nodes: Sequence[str]) -> None:
        """Let several nodes in, all or none: as many as it takes, where a scheme grows by a factor only.

        Raises: as `add`; then nobody has come.
        """
        self._check_newcomers(nodes)
        require_ratio([*self._weights, 1.0])
        self._all_or_none(lambda: self._add_all(nodes), 1 if self._adds_at_once else len(nodes))

    def shrink(self, nodes: Sequence[str]) -> None:
        """Let several nodes go, all or none: as many as it takes, where a scheme shrinks by a factor only.

        Raises: as `remove`, also where a name stands twice; then nobody has gone.
        """
        if len(set(nodes)) < len(nodes):
            raise ValueError("a node cannot go twice")
        for node in nodes:
            self._number(node)

        def remove_all() -> None:
            for node in nodes:
                if node in self._nodes:  # a trie evicts some
                    self.remove(node)

        self._all_or_none(remove_all, len(nodes))

    # -- what a scheme fills in -----------------------------------------------------------------

    def _build(self) -> None:  # noqa: B027 - a scheme without tables has nothing to make
        """Make the tables for `_nodes` and `_weights`."""

    def _add(self, node: str, weight: float) -> None:
        """Change the tables for a node that will have the next number, or raise before anything is changed."""
        raise UnsupportedChange(f"{self.scheme}: the set of nodes is fixed")

    def _add_all(self, nodes: Sequence[str]) -> None:
        """Let several nodes in, of weight 1 and known to be new; whoever changes tables for each may do so once.

        What has changed when it raises is taken back, unless `_adds_at_once`.
        """
        for node in nodes:
            self._let_in(node, 1.0)

    def _remove(self, number: int) -> None:
        """Change the tables for a node that goes, those behind it moving up, or raise before anything is changed."""
        raise UnsupportedChange(f"{self.scheme}: the set of nodes is fixed")

    # -- inside ---------------------------------------------------------------------------------

    def _let_in(self, node: str, weight: float) -> None:
        self._add(node, weight)
        self._nodes.append(node)
        self._weights.append(weight)

    def _all_or_none(self, change: Callable[[], None], nodes: int) -> None:
        """Make a change of so many nodes, or, where it is refused, none; that of one node is so by itself."""
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
            raise ValueError(f"a key has one copy at least, not {count}")

    def _number(self, node: str) -> int:
        try:
            return self._nodes.index(node)
        except ValueError:
            raise KeyError(f"there is no node {node}") from None

    def _check_newcomer(self, node: str) -> None:
        if node in self._nodes:
            raise ValueError(f"there is a node {node} already")

    def _check_newcomers(self, nodes: Sequence[str]) -> None:
        if len(set(nodes)) < len(nodes):
            raise ValueError("two newcomers have the same name")
        there = set(self._nodes)
        for node in nodes:
            if node in there:
                raise ValueError(f"there is a node {node} already")

    def _checked(self, weight: float) -> float:
        if not 0.0 < weight < float("inf"):
            raise ValueError(f"a weight must be positive, not {weight}")
        if weight != 1.0 and not self.has_weights:
            raise UnsupportedChange(f"{self.scheme} has no weights: every node is as good as any other")
        return float(weight)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._nodes)} nodes>"


def replica_hash(point: int, copy: int) -> int:
    """Return the hash that stands for the copy-th replica where replicas come from hashing again; 0: itself."""
    return mix_one(point, copy) if copy else point


def replica_hashes(hashes: Hashes, copy: int) -> Hashes:
    """Return `replica_hash` of every hash; the same shape."""
    return mix(hashes, copy) if copy else hashes


def only_the_last(scheme: str, number: int, count: int, node: str) -> None:
    """Refuse the removal of any but the last of `count` numbered nodes.

    Raises: UnsupportedChange.
    """
    if number != count - 1:
        raise UnsupportedChange(
            f"{scheme} has no names, only numbers, 0 to {count - 1}: the last can go, not {node}, the {number}; "
            "replace it, and a newcomer takes over its number"
        )


def compact(numbers: NDArray[Any], gone: int) -> None:
    """Renumber, in place, the nodes behind one that is gone."""
    numbers[numbers > gone] -= 1
