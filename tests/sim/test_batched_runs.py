"""Runs with faults in which every client reads and writes in batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from chord.client import requests
from chord.client.operations import Operations
from chord.client.results import Found, Stored
from chord.client.session import ClientOperation
from chord.errors import ChordError
from chord.replication import batch as batches
from chord.sim.plan import FAULTS, Fidelity, draw
from chord.sim.run import Run, RunFailure
from chord.wire import batch as codec
from chord.wire.batch import Item
from chord.wire.messages import Get, GetMany, Merge, Put, PutMany, Written

pytestmark = pytest.mark.slow

OTHERS = 12  # extra keys for each key of the workload, so that frames hold several
OTHER_KEYS = 40


def always_a_batch(items: Sequence[Item]) -> GetMany | PutMany:
    if isinstance(items[0], Get):
        return GetMany(tuple(item for item in items if isinstance(item, Get)))
    return PutMany(tuple(item for item in items if not isinstance(item, Get)))


def others(core: Operations) -> list[bytes]:
    return [b"other-%d" % core.session.rng.randrange(OTHER_KEYS) for _ in range(OTHERS)]


def write(self: Operations, request: Put | Merge) -> ClientOperation[Stored]:
    with_it = [self.to_put(key, b"v") for key in dict.fromkeys(others(self))]
    outcome, *_ = yield from self.batches.request_all([request, *with_it])
    if isinstance(outcome, ChordError):
        raise outcome
    assert isinstance(outcome, Written)
    assert isinstance(request, Put)
    return Stored(
        request.key, outcome.context, outcome.owner, outcome.w, outcome.w_needed, outcome.is_sloppy, outcome.replicas
    )


def get(core: Operations, key: bytes, r: int | None) -> ClientOperation[Found]:
    found, *_ = yield from core.get_all([key, *others(core)], r, replicas=True)
    if isinstance(found, ChordError):
        raise found
    return found


@pytest.fixture
def batched(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let clients use batches only. Return the number of batches that reached an owner, by type."""
    seen: Counter[str] = Counter()

    async def count(self: batches.Batches, vnode: Any, batch: Any) -> Any:
        seen[type(batch).__name__] += 1
        return await for_vnode(self, vnode, batch)

    for_vnode = batches.Batches.for_vnode
    monkeypatch.setattr(batches.Batches, "for_vnode", count)
    monkeypatch.setattr(codec, "_bundle", always_a_batch)
    monkeypatch.setattr(Operations, "write", write)
    monkeypatch.setattr(requests, "_get", get)
    return seen


@pytest.mark.parametrize(
    ("seed", "fidelity"),
    [
        (1, "messages"),
        (9, "frames"),
        *(pytest.param(seed, "messages", marks=pytest.mark.thorough) for seed in range(2, 9)),
    ],
)
def test_run_with_batches_holds(batched: Counter[str], seed: int, fidelity: Fidelity) -> None:
    plan = draw(seed, nodes=8, successors=3, fidelity=fidelity, faults=tuple(FAULTS), membership=8, steps=900)
    report = Run(plan).run()
    assert report.counts["client put ok"] > 3
    assert min(batched["PutMany"], batched["GetMany"]) > 20


def test_failed_item_that_is_acknowledged_is_caught(batched: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The other items of the batch are stored."""

    def told_another(self: batches._Part, place: int, outcome: Any) -> None:
        is_failed = isinstance(outcome, ChordError) and isinstance(self.items[place], Put)
        end(self, place, Written(b"", self.owner) if is_failed else outcome)  # type: ignore[attr-defined]

    def remember(self: batches.Batches, part: Any, here: Any, deadline: float) -> None:
        part.owner = next(iter(self._host.vnodes.values())).me
        begin_here(self, part, here, deadline)

    begin_here, end = batches.Batches._begin_here, batches._Part.end
    monkeypatch.setattr(batches._Part, "end", told_another)
    monkeypatch.setattr(batches.Batches, "_begin_here", remember)
    with pytest.raises(RunFailure):
        test_run_with_batches_holds(batched, 3, "messages")
