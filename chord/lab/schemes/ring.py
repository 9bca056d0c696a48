"""Consistent hashing: a key lives on the node with the first point after its hash.

A point at the hash itself counts, too. A node has one point, or many (`vnodes`, in proportion to its weight). The i-th
point is the hash of the node's name and i, written as this project writes its vnodes. The points are a sorted array, so
that among K points a lookup takes O(log K) and a change O(K). `ring_tree` has the search tree. A change moves one
contiguous arc of hashes for each point, and nothing else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from chord.lab.hashing import SPAN, Hashes
from chord.lab.placement import Common, Numbers, Placement, compact, first_distinct

Points = NDArray[np.uint64]
Owners = NDArray[np.int32]


def vnode_label(node: str, index: int) -> bytes:
    """Return the text to hash for a point of a node.

    It is the node's name for index 0, `host:port`, and name and index for the others: `host:port#1`.
    """
    return (node if index == 0 else f"{node}#{index}").encode()


POINTS_MAX = 1_000_000


def points_of_weight(vnodes: int, weight: float) -> int:
    """Return the number of points of a node: `vnodes` times its weight, at least 1.

    The product is rounded.

    Args:
        vnodes: points of a node of weight 1.

    Raises:
        ValueError: more than a million points.
    """
    if vnodes * weight > POINTS_MAX:
        raise ValueError(
            f"a node of weight {weight:g} would have {vnodes * weight:.3g} points, more than {POINTS_MAX:,}; a ring "
            f"multiplies weights by {vnodes} vnodes, so divide them by their mean"
        )
    return max(1, round(vnodes * weight))


class RingScheme(Placement):
    """Consistent hashing: sorted points on a circle, several for each node.

    A node of weight w has max(1, round(`vnodes` * w)) points. The number depends on the node's own weight only. The
    order in which nodes come therefore does not matter, and a new node does not change the points of others. Every node
    has at least one point, so weights far below 1 are all treated alike; divide weights by their mean.

    Args:
        vnodes: points of a node of weight 1, at least 1.
        points: explicit points of some nodes, by name, in place of hashed ones; integers below 2**64. None: all points
            are hashed.

    Raises:
        ValueError: `vnodes` is less than 1, two points are the same, or a node has more than a million points; see also
            `Placement`.

    Source: Karger et al. 1997 (STOC), section 4; vnodes: Stoica et al. 2001, section 6.1.
    """

    scheme = "ring"
    title = "ring"
    source = "Karger et al. 1997"
    lookup_cost = "O(log nv)"
    memory_cost = "O(nv)"
    has_weights = _adds_at_once = True

    def __init__(
        self,
        nodes: Sequence[str],
        *,
        vnodes: int = 1,
        points: Mapping[str, Sequence[int]] | None = None,
        **common: Unpack[Common],
    ) -> None:
        if vnodes < 1:
            raise ValueError("a node has at least one point")
        self.vnodes = vnodes
        self._given = {node: tuple(given) for node, given in (points or {}).items()}
        super().__init__(nodes, **common)

    def points_of(self, node: str, weight: float = 1.0) -> Points:
        """Return the points of a node, in the order of their numbers; shape (points,).

        The node need not be in the ring. If the node has explicit points, its weight does not matter.
        """
        if node in self._given:
            return np.array(self._given[node], dtype=np.uint64)
        count = points_of_weight(self.vnodes, weight)
        return self.hasher.many([vnode_label(node, index) for index in range(count)])

    # -- placing --------------------------------------------------------------------------------

    @property
    def state_bytes(self) -> int:
        """Bytes that a lookup needs: 8 per point, and 4 for its owner's number."""
        return int(self._points.nbytes + self._owners.nbytes)

    def locate(self, point: int) -> int:
        """Return the number of the node with the first point at or after a hash."""
        points, owners = self._lists()
        at = bisect_left(points, point)
        return owners[at if at < len(points) else 0]

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return for each hash the number of the node with the first point after it.

        A point at the hash itself counts, too.
        """
        return self._owners[self._following(hashes)].astype(np.intp)

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the first `count` distinct node numbers clockwise from a hash."""
        points, owners = self._lists()
        at = bisect_left(points, point)
        return first_distinct((owners[(at + step) % len(points)] for step in range(len(points))), count)

    def replicas_many(self, hashes: Hashes, count: int) -> Numbers:
        """Return for each hash the first `count` distinct node numbers clockwise.

        The shape is (k, count), or (k, number of nodes) if there are fewer nodes.
        """
        self._check_copies(count)
        count = min(count, len(self._nodes))
        at = self._following(hashes)
        found = np.full((len(hashes), count), -1, dtype=np.intp)
        have = np.zeros(len(hashes), dtype=np.intp)
        walking = np.arange(len(hashes))
        while len(walking):
            owner = self._owners[at[walking]]
            is_new = (found[walking] != owner[:, None]).all(axis=1)
            takes = walking[is_new]
            found[takes, have[takes]] = owner[is_new]
            have[takes] += 1
            walking = walking[have[walking] < count]
            at[walking] = (at[walking] + 1) % len(self._points)
        return found

    # -- arcs -----------------------------------------------------------------------------------

    def arcs(self, node: str) -> list[tuple[int, int]]:
        """Return the arcs (start, end] of a node, ordered by end.

        The node owns the hashes inside its arcs. The arc (x, x] is the whole circle.

        Raises:
            KeyError: there is no such node.
        """
        ends = np.flatnonzero(self._owners == self._number(node))
        return [(int(self._points[end - 1]), int(self._points[end])) for end in ends.tolist()]

    def shares(self) -> NDArray[np.float64] | None:
        """Return the share of the circle of each node: the gaps before its points.

        The result is None in subclasses without an exact share.
        """
        gaps = (self._points - np.roll(self._points, 1)).astype(np.float64)  # uint64 wraps modulo 2**64
        if len(self._points) == 1:
            gaps = np.array([float(SPAN)])
        return np.bincount(self._owners, weights=gaps, minlength=len(self._nodes)) / SPAN

    # -- changes --------------------------------------------------------------------------------

    def _build(self) -> None:
        each = [self.points_of(node, weight) for node, weight in zip(self._nodes, self._weights, strict=True)]
        points = np.concatenate(each)
        owners = np.repeat(np.arange(len(each), dtype=np.int32), [len(of_node) for of_node in each])
        order = np.argsort(points, kind="stable")
        self._adopt(points[order], owners[order])

    def _add(self, node: str, weight: float) -> None:
        new = np.sort(self.points_of(node, weight))
        at = np.searchsorted(self._points, new)
        number = np.int32(len(self._nodes))
        self._adopt(np.insert(self._points, at, new), np.insert(self._owners, at, number))

    def _add_all(self, nodes: Sequence[str]) -> None:
        each = [self.points_of(node) for node in nodes]
        owners = np.repeat(np.arange(len(each), dtype=np.int32), [len(of_node) for of_node in each])
        points = np.concatenate([self._points[:0], *each])
        order = np.argsort(points, kind="stable")
        at = np.searchsorted(self._points, points[order])
        newcomers = owners[order] + np.int32(len(self._nodes))
        self._adopt(np.insert(self._points, at, points[order]), np.insert(self._owners, at, newcomers))
        self._admit(nodes)

    def _remove(self, number: int) -> None:
        stays = self._owners != number
        owners = self._owners[stays]
        compact(owners, number)
        self._adopt(self._points[stays], owners)

    def _adopt(self, points: Points, owners: Owners) -> None:
        if np.any(points[1:] == points[:-1]):  # a real node also refuses to start with an id that is taken
            raise ValueError("two points of the ring are the same")
        self._points, self._owners = points, owners
        self._as_lists: tuple[list[int], list[int]] | None = None

    def _following(self, hashes: Hashes) -> Numbers:
        at = np.searchsorted(self._points, hashes)
        at[at == len(self._points)] = 0
        return at

    def _lists(self) -> tuple[list[int], list[int]]:
        """Return the points and their owners' numbers as lists, computed once.

        Bisecting a list is faster: bisecting an array makes a Python number of every element it compares.
        """
        if self._as_lists is None:
            self._as_lists = self._points.tolist(), self._owners.tolist()
        return self._as_lists
