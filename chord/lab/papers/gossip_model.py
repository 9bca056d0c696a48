"""A model of gossip: how one entry of the membership list spreads in a ring of up to 100,000 nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

STEPS = 10
"""In how many steps the exchanges of a round happen; the exchanges of a step see the same state."""

ROUNDS_MAX = 200


class EntrySpread(NamedTuple):
    """How one entry of the membership list spread in the model.

    Attributes:
        most: the round after which 99 % of the nodes knew the entry; None if fewer ever did.
        whole: the round after which all nodes knew it; None if some never did.
        sends: how often the entry was sent, over the number of nodes.
        missed: the share of the nodes that never got it.
    """

    most: int | None
    whole: int | None
    sends: float
    missed: float


def spread(nodes: int, partners: int, growth: float, seed: int) -> EntrySpread:
    """Let one entry spread from one node until no node sends it any more.

    Args:
        nodes: the number of nodes.
        partners: a node stops sending the entry when this many of the partners that it called knew it.
        growth: period of a node that sends no entry, over the period of a node that does; at least 1.
        seed: decides all draws.
    """
    rng = np.random.default_rng(seed)
    knows = np.zeros(nodes, dtype=bool)
    knows[0] = True
    left = np.where(knows, partners, 0)
    sends, most, whole = 0, None, None
    for number in range(1, ROUNDS_MAX + 1):
        callers = rng.permutation(nodes)
        for some in np.array_split(callers, STEPS):
            partner = (some + rng.integers(1, nodes, len(some))) % nodes
            is_hot = left[some] > 0
            calls = is_hot | (rng.random(len(some)) < 1 / growth)
            pushes, pulls = is_hot, calls & ~is_hot & (left[partner] > 0)
            sends += int(pushes.sum() + pulls.sum())
            knew = pushes & knows[partner]
            learns = np.concatenate([partner[pushes & ~knew], some[pulls & ~knows[some]]])
            left[some[knew]] -= 1
            knows[learns] = True
            left[learns] = partners
        share = knows.mean()
        most = number if most is None and share >= 0.99 else most
        whole = number if whole is None and knows.all() else whole
        if not (left > 0).any():
            break
    return EntrySpread(most, whole, sends / nodes, float(1 - knows.mean()))
