"""Dynamo's three ways to cut the ring into partitions and give them to nodes (SOSP 2007, section 6.2).

    1  T random tokens per node, partition by token value: a token ends a partition that begins at the token before it
    2  T random tokens per node, Q equal partitions: each belongs to the first token at or after its end
    3  Q/S tokens per node, equal partitions: Q of them, shared out among the S nodes in equal numbers

Each partition is stored by the first N distinct nodes, clockwise from its end. What a node does is in proportion to the
share of the circle it stores, each of N copies counted; *efficiency* is the mean share over the largest. What every
node must know of the others is the membership: tokens in strategy 1, tokens and partitions in 2, the owner of each
partition in 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Strategy: TypeAlias = Literal[1, 2, 3]

STRATEGIES: dict[Strategy, str] = {
    1: "random tokens, partition by token value",
    2: "random tokens, equal partitions",
    3: "Q/S tokens, equal partitions",
}
TOKEN_BYTES, NODE_BYTES = 16, 4  # a point of Dynamo's 128-bit circle; a node's number


@dataclass(frozen=True)
class Partitions:
    """Partitions of a circle of circumference 1, in clockwise order, and who is asked to store each first.

    Attributes:
        sizes: share of the circle of each partition, shape (P,), adding up to 1.
        walk: node numbers clockwise from each partition's end on: those at the points one meets, shape (M,).
        first: where in `walk` each partition begins, shape (P,).
    """

    sizes: NDArray[np.float64]
    walk: NDArray[np.intp]
    first: NDArray[np.intp]


def by_token(nodes: int, tokens: int, rng: np.random.Generator) -> Partitions:
    """Return strategy 1: so many random tokens for each node, a partition up to each."""
    at, owners = _draw_tokens(nodes, tokens, rng)
    sizes = np.diff(at, prepend=at[-1] - 1.0)
    return Partitions(sizes, owners, np.arange(len(at)))


def by_equal_parts(nodes: int, tokens: int, parts: int, rng: np.random.Generator) -> Partitions:
    """Return strategy 2: so many random tokens for each node, and equal partitions that belong to the next token."""
    at, owners = _draw_tokens(nodes, tokens, rng)
    ends = np.arange(1, parts + 1) / parts
    return Partitions(np.full(parts, 1 / parts), owners, np.searchsorted(at, ends) % len(at))


def by_shared_parts(nodes: int, parts: int, rng: np.random.Generator) -> Partitions:
    """Return strategy 3: equal partitions, shared out at random, to each node as many as to any other, or one more.

    Raises:
        ValueError: there are more nodes than partitions, so that some would have none.
    """
    if parts < nodes:
        raise ValueError(f"{parts} partitions are too few for {nodes} nodes")
    owners = rng.permutation(np.arange(parts) % nodes)
    return Partitions(np.full(parts, 1 / parts), owners, np.arange(parts))


def _draw_tokens(nodes: int, tokens: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    at = rng.random(nodes * tokens)
    order = np.argsort(at)
    return at[order], order // tokens


def shares(found: Partitions, nodes: int, copies: int) -> NDArray[np.float64]:
    """Return what each node stores: the share of the circle of which it has one of the copies; shape (nodes,).

    Each partition is stored by the first so many distinct nodes of its walk, or by all where there are fewer.
    """
    copies = min(copies, nodes)
    total = len(found.walk)
    stored = np.full((len(found.first), copies), -1, np.intp)
    have = np.zeros(len(found.first), np.intp)
    at = found.first.copy()
    open_ = np.arange(len(at))
    while open_.size:
        owner = found.walk[at[open_] % total]
        new = (stored[open_] != owner[:, None]).all(axis=1)
        stored[open_[new], have[open_[new]]] = owner[new]
        have[open_] += new
        at[open_] += 1
        open_ = open_[have[open_] < copies]
    weights = np.repeat(found.sizes, copies)
    return np.asarray(np.bincount(stored.ravel(), weights=weights, minlength=nodes), np.float64)


def efficiency(loads: NDArray[np.float64]) -> float:
    """Return the mean load over the largest: 1 where all are equal.

    Source: DeCandia et al. 2007, section 6.2, "load balancing efficiency".
    """
    return float(loads.mean() / loads.max())


def metadata_bytes(strategy: Strategy, nodes: int, tokens: int, parts: int) -> int:
    """Return what a node keeps of the membership, in bytes.

    Strategy 1: each token with its node. Strategy 2: that, and the owner of each partition, which it would otherwise
    have to walk for. Strategy 3: the owner of each partition; where it lies follows from its number.
    """
    by_tokens, by_parts = nodes * tokens * (TOKEN_BYTES + NODE_BYTES), parts * NODE_BYTES
    return {1: by_tokens, 2: by_tokens + by_parts, 3: by_parts}[strategy]
