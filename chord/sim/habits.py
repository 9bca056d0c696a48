"""How the clients of a life use the ring: beside single keys also batches, large values, values that expire, scans.

A plan names the habits that its clients have.
"""

from __future__ import annotations

import random
from collections import Counter

from chord.asking import Operation
from chord.errors import ChordError
from chord.messages import Put, Written
from chord.operations import Core
from chord.values import Found, Stored

SHARE = 0.3
"""Which share of the operations of a client that has a habit follows it."""
BATCH = 6
"""A batch holds this many keys beside the one that the oracle knows."""
BESIDE = 24
"""These keys are drawn from so many, of which the oracle knows nothing."""
PADDING = (20_000, 70_000)
"""A large value has this many bytes more: enough for a bulk stream, and together for a record in parts."""
TTL_S = (0.2, 3.0)

HABITS: dict[str, str] = {
    "batch": "keys are read and written in batches",
    "large": "values take bulk streams, and records are sent in parts",
    "ttl": "values live for a moment",
    "scan": "all keys are read at a time",
}


class Habits:
    """The habits of the clients of one life.

    Args:
        names: out of `HABITS`.
        counts: how often each was followed.
    """

    def __init__(self, names: tuple[str, ...], rng: random.Random, counts: Counter[str]) -> None:
        self._names = names
        self._rng = rng
        self._counts = counts

    def follows(self, habit: str) -> bool:
        """Draw whether the next operation follows a habit."""
        is_drawn = habit in self._names and self._rng.random() < SHARE
        self._counts[f"habit {habit}"] += is_drawn
        return is_drawn

    def padding(self) -> int:
        """Draw by how many bytes a value is larger than it needs to be."""
        return self._rng.randint(*PADDING) if self.follows("large") else 0

    def ttl_s(self) -> float | None:
        """Draw how long a value lives."""
        return self._rng.uniform(*TTL_S) if self.follows("ttl") else None

    def write(self, core: Core, request: Put) -> Operation[Stored]:
        """Write, alone or with other keys in a batch."""
        if not self.follows("batch"):
            return core.write(request)
        return _write_among(core, request, [core.to_put(key, b"v") for key in self._others()])

    def get(self, core: Core, key: bytes, r: int | None) -> Operation[Found]:
        """Read, alone or with other keys in a batch."""
        return _get_among(core, key, r, self._others()) if self.follows("batch") else core.get(key, r)

    def _others(self) -> list[bytes]:
        return list(dict.fromkeys(b"beside-%d" % self._rng.randrange(BESIDE) for _ in range(BATCH)))


def _write_among(core: Core, request: Put, others: list[Put]) -> Operation[Stored]:
    outcome, *_ = yield from core.request_all([request, *others])
    if isinstance(outcome, ChordError):
        raise outcome
    assert isinstance(outcome, Written)
    told = outcome.context, outcome.owner, outcome.w, outcome.w_needed, outcome.is_sloppy, outcome.replicas
    return Stored(request.key, *told)


def _get_among(core: Core, key: bytes, r: int | None, others: list[bytes]) -> Operation[Found]:
    found, *_ = yield from core.get_all([key, *others], r)
    if isinstance(found, ChordError):
        raise found
    return found
