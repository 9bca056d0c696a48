"""Dynamo's three partition strategies (DeCandia et al. 2007, SOSP, section 6.2).

1. T random tokens per node, partition by token value. Each partition ends at a token and begins at the one before.
2. T random tokens per node, Q equal partitions. Each belongs to the first token at or after its end.
3. Q/S tokens per node, Q equal partitions, shared out among the S nodes in equal numbers.

The first N distinct nodes clockwise from a partition's end store it. A node's load is the share of the circle that it
stores, with each of the N copies counted. *Efficiency* is the mean load over the largest load.

*Membership* is the state about the others that every node keeps. It consists of tokens in strategy 1, of tokens and
partition owners in strategy 2, and of partition owners in strategy 3.
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
TOKEN_BYTES, NODE_BYTES = 16, 4  # a point on Dynamo's 128-bit circle; a node's number


@dataclass(frozen=True)
class Partitions:
    """Partitions of a circle of circumference 1, clockwise, and their nodes.

    Attributes:
        sizes: share of the circle of each partition, shape (P,); the sum is 1.
        walk: node numbers at the successive points of the circle, clockwise, shape (M,).
        first: index into `walk` at which each partition's list of nodes begins, shape (P,).
    """

    sizes: NDArray[np.float64]
    walk: NDArray[np.intp]
    first: NDArray[np.intp]


def by_token(nodes: int, tokens: int, rng: np.random.Generator) -> Partitions:
    """Return strategy 1: `tokens` random tokens per node, each the end of a partition."""
    at, owners = _draw_tokens(nodes, tokens, rng)
    sizes = np.diff(at, prepend=at[-1] - 1.0)
    return Partitions(sizes, owners, np.arange(len(at)))


def by_equal_parts(nodes: int, tokens: int, parts: int, rng: np.random.Generator) -> Partitions:
    """Return strategy 2: `tokens` random tokens per node, `parts` equal partitions.

    Each partition belongs to the first token at or after its end.
    """
    at, owners = _draw_tokens(nodes, tokens, rng)
    ends = np.arange(1, parts + 1) / parts
    return Partitions(np.full(parts, 1 / parts), owners, np.searchsorted(at, ends) % len(at))


def by_shared_parts(nodes: int, parts: int, rng: np.random.Generator) -> Partitions:
    """Return strategy 3: `parts` equal partitions, shared out at random.

    The numbers of partitions of any two nodes differ by at most one.

    Raises:
        ValueError: there are fewer partitions than nodes, so that some nodes would have none.
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
    """Return the share of the circle that each node stores; shape (nodes,).

    All copies are counted. The first `copies` distinct nodes of its walk store a partition. If there are fewer nodes,
    all of them do.
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
    """Return the mean load over the largest: 1 if all loads are equal.

    Source: DeCandia et al. 2007, section 6.2, "load balancing efficiency".
    """
    return float(loads.mean() / loads.max())


def metadata_bytes(strategy: Strategy, nodes: int, tokens: int, parts: int) -> int:
    """Return the size of the membership that a node keeps, in bytes.

    Strategy 1 keeps each token with its node. Strategy 2 also keeps the owner of each partition, so that a node need
    not walk to find it. Strategy 3 keeps the owner of each partition only, because the partition's number gives its
    position.
    """
    by_tokens, by_parts = nodes * tokens * (TOKEN_BYTES + NODE_BYTES), parts * NODE_BYTES
    return {1: by_tokens, 2: by_tokens + by_parts, 3: by_parts}[strategy]
