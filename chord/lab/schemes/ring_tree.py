"""Consistent hashing with a search tree: lookups and changes take O(log K).

K is the number of points. A sorted array of K points finds a point as fast and takes a third of the memory, but a
change copies all of it. The tree is a treap: a binary search tree by point that is also a heap by a hash of the point.
Its depth is that of a tree built in random order, and its shape depends only on the points, not on the order of
changes.

Only a change of the `PointTree` takes O(log K). A `TreeRing` numbers its nodes like every placement, and renumbers them
in O(n) when one goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from chord.lab.hashing import SPAN, XXH3, Hashes, mix_one
from chord.lab.placement import Common, Numbers, Placement, first_distinct
from chord.lab.schemes.ring import RingScheme


class TreePoint:
    """A node of the search tree: a point, its owner's name, and the subtrees of smaller (left) and larger points."""

    __slots__ = ("left", "owner", "point", "priority", "right")

    def __init__(self, point: int, owner: str) -> None:
        self.point = point
        self.owner = owner
        self.priority = mix_one(point)
        self.left: TreePoint | None = None
        self.right: TreePoint | None = None


class PointTree:
    """A search tree of points on the circle, each with the name of its owner.

    Source: Seidel, Aragon 1996 (Algorithmica), Randomized search trees.
    """

    def __init__(self) -> None:
        self._root: TreePoint | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[TreePoint]:
        above: list[TreePoint] = []
        at = self._root
        while above or at is not None:
            while at is not None:
                above.append(at)
                at = at.left
            at = above.pop()
            yield at
            at = at.right

    def __contains__(self, point: object) -> bool:
        found = self.ceiling(point) if isinstance(point, int) else None
        return found is not None and found.point == point

    def ceiling(self, point: int) -> TreePoint | None:
        """Return the smallest point of the tree that is at least `point`; None if all are smaller."""
        at, found = self._root, None
        while at is not None:
            if at.point >= point:
                at, found = at.left, at
            else:
                at = at.right
        return found

    def insert(self, point: int, owner: str) -> None:
        """Insert a point with the name of its owner.

        Raises:
            ValueError: the point is already in the tree.
        """
        if point in self:
            raise ValueError("two points of the ring are the same")
        new = TreePoint(point, owner)
        parent, at = None, self._root
        while at is not None and at.priority > new.priority:
            parent, at = at, at.right if at.point < point else at.left
        new.left, new.right = _split(at, point)
        self._hang(parent, point, new)
        self._count += 1

    def delete(self, point: int) -> None:
        """Delete a point from the tree.

        Raises:
            KeyError: the point is not in the tree.
        """
        parent, at = None, self._root
        while at is not None and at.point != point:
            parent, at = at, at.right if at.point < point else at.left
        if at is None:
            raise KeyError(point)
        self._hang(parent, point, _join(at.left, at.right))
        self._count -= 1

    def depth(self) -> int:
        """Return the depth of the tree: the most points that a lookup visits."""
        deepest, todo = 0, [(self._root, 1)]
        while todo:
            at, level = todo.pop()
            if at is not None:
                deepest = max(deepest, level)
                todo += [(at.left, level + 1), (at.right, level + 1)]
        return deepest

    def _hang(self, parent: TreePoint | None, point: int, below: TreePoint | None) -> None:
        if parent is None:
            self._root = below
        elif parent.point < point:
            parent.right = below
        else:
            parent.left = below


def _split(at: TreePoint | None, point: int) -> tuple[TreePoint | None, TreePoint | None]:
    """Cut a tree in two, in place: the points below `point`, and the points above it."""
    if at is None:
        return None, None
    if at.point < point:
        at.right, above = _split(at.right, point)
        return at, above
    below, at.left = _split(at.left, point)
    return below, at


def _join(below: TreePoint | None, above: TreePoint | None) -> TreePoint | None:
    """Join two trees in place; all points of `below` are less than those of `above`."""
    if below is None or above is None:
        return above if below is None else below
    if below.priority > above.priority:
        below.right = _join(below.right, above)
        return below
    above.left = _join(below, above.left)
    return above


class TreeRing(Placement):
    """The same ring as `RingScheme`, but with its points in a search tree.

    Both place every key on the same node.

    Args:
        vnodes: points of a node of weight 1, at least 1.

    Source: Karger et al. 1997. The search tree: Kokorin, "Шардирование"; the exam notes "Распределенные системы",
    ticket 20.
    """

    scheme = "ring-tree"
    title = "ring, search tree"
    source = "Karger et al. 1997"
    lookup_cost = "O(log nv)"
    memory_cost = "O(nv)"
    has_weights = True

    def __init__(self, nodes: Sequence[str], *, vnodes: int = 1, **common: Unpack[Common]) -> None:
        hasher = common.get("hasher", XXH3)
        self._pattern = RingScheme(nodes[:1], hasher=hasher, vnodes=vnodes) if nodes else None  # computes the points
        self.tree = PointTree()
        super().__init__(nodes, **common)

    def _build(self) -> None:
        self._number_of = {node: number for number, node in enumerate(self._nodes)}
        for node, weight in zip(self._nodes, self._weights, strict=True):
            for point in self._points_of(node, weight):
                self.tree.insert(point, node)
        self._flat: tuple[NDArray[np.uint64], Numbers] | None = None

    def _points_of(self, node: str, weight: float) -> list[int]:
        assert self._pattern is not None
        points: list[int] = self._pattern.points_of(node, weight).tolist()
        return points

    @property
    def state_bytes(self) -> int:
        """Bytes that a lookup needs: per point, 8 each for four fields, 4 for its owner.

        The fields are the point, its priority and two links.
        """
        return 36 * len(self.tree)

    def shares(self) -> NDArray[np.float64]:
        """Return for each node its share of the circle: the gaps before its points."""
        points, owners = self._flattened()
        gaps = (points - np.roll(points, 1)).astype(np.float64) if len(points) > 1 else np.array([float(SPAN)])
        return np.bincount(owners, weights=gaps, minlength=len(self._nodes)) / SPAN

    def locate(self, point: int) -> int:
        """Return the number of the node with the first point at or after a hash."""
        return self._number_of[self._following(point).owner]

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return for each hash the number of the node with the first point after it.

        A point at the hash itself counts, too. The points are first copied to a sorted array.
        """
        points, owners = self._flattened()
        at = np.searchsorted(points, hashes)
        at[at == len(points)] = 0
        return owners[at]

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the first `count` distinct node numbers clockwise from a hash."""
        return first_distinct((self._number_of[owner] for owner in self._owners_behind(point)), count)

    def _owners_behind(self, point: int) -> Iterator[str]:
        """Yield the owner's name of each point clockwise from a hash, once around."""
        for _ in range(len(self.tree)):
            at = self._following(point)
            yield at.owner
            point = at.point + 1

    def _following(self, point: int) -> TreePoint:
        found = self.tree.ceiling(point) or self.tree.ceiling(0)
        assert found is not None
        return found

    def _add(self, node: str, weight: float) -> None:
        points = self._points_of(node, weight)
        if len(set(points)) < len(points) or any(point in self.tree for point in points):
            raise ValueError("two points of the ring are the same")
        for point in points:
            self.tree.insert(point, node)
        self._number_of[node] = len(self._nodes)
        self._flat = None

    def _remove(self, number: int) -> None:
        node = self._nodes[number]
        for point in self._points_of(node, self._weights[number]):
            self.tree.delete(point)
        del self._number_of[node]
        for behind in self._nodes[number + 1 :]:
            self._number_of[behind] -= 1
        self._flat = None

    def _flattened(self) -> tuple[NDArray[np.uint64], Numbers]:
        if self._flat is None:
            points = np.fromiter((at.point for at in self.tree), np.uint64, len(self.tree))
            owners = np.fromiter((self._number_of[at.owner] for at in self.tree), np.intp, len(self.tree))
            self._flat = points, owners
        return self._flat
