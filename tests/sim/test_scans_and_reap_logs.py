"""A scan may show a replaced value if only the reap logs of other nodes still know of the replacement."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from chord import testing
from chord.config import PRESETS, Limits
from chord.node import Node
from chord.sim.key_model import KeyModel, Op
from chord.sim.oracle import Oracle
from chord.store import versions
from chord.store.reap_log_state import Grave
from chord.store.storage import Batch
from chord.testing.rings import TestRing
from chord.wire.messages import ActorClock, Record, Version

KEY = b"k"
ACTOR, OTHER_ACTOR = bytes(15) + b"\1", bytes(15) + b"\2"
VALUE = Version(KEY + b"/1", b"1" * 16, 1)
COPY = Record(KEY, (ActorClock(ACTOR, 1, (VALUE,)),))
TOMBSTONE = Record(KEY, (ActorClock(ACTOR, 2, (Version(None, b"2" * 16, 2),)),))
FIXED = msgspec.structs.replace(PRESETS["local"], period_growth_max=1)


def acknowledge(model: KeyModel, op: Op, record: Record, host: str) -> None:
    """Let a write be acknowledged that a machine minted."""
    model.sent(op, record.clock[0].versions[0].op_id)
    model.saw(record, host, is_own=True)
    op.w = 2
    model.acknowledged(op, versions.encode_context(versions.context_of(record)), "client", host)


def reap(node: Node, record: Record) -> None:
    """Let a node reap a record, and name it in its log."""
    log = node._host.reap_log
    node._host.storage.apply(log.bury([Grave(record, versions.context_of(record))]))


def apply_log(node: Node, of: Node) -> None:
    """Apply the reap log of another node; its trimmed entries count as applied, too."""
    log = node._host.reap_log
    theirs, _ = of._host.reap_log.log_after(log.slice_of(KEY), {})
    node._host.storage.apply(log.absorb(theirs) if log.is_in_reach(theirs) else log.catch_up(theirs, {}))


def is_excused(case: str, limits: Limits) -> bool:
    """Return whether the oracle lets a scan show a value that all nodes but its owner have deleted and reaped."""

    def prepare(ring: TestRing, oracle: Oracle, owner: Node, reaper: Node) -> None:
        storage = owner._host.storage
        if case != "no log has the entry":
            reap(reaper, TOMBSTONE)
        if case in ("the owner applied it", "the owner lacks another entry", "the disk refuses it"):
            apply_log(owner, reaper)
            assert storage.get(KEY) != COPY
        if case == "the disk refuses it":  # the change is visible, and the disk takes it back soon
            storage.durable = lambda key: COPY  # type: ignore[method-assign]
            storage.durable_note = lambda name: None  # type: ignore[method-assign]
        else:
            storage.apply(Batch(puts=(COPY,)))
        if case == "the owner lacks another entry":
            reap(reaper, Record(KEY, (ActorClock(OTHER_ACTOR, 1, (VALUE,)),)))
        if case == "a dead node has the entry":
            oracle.inventory.dies(reaper, lambda key: False)

    async def main() -> bool:
        async with testing.open_ring(3, seed=1, timing=FIXED, limits=limits) as ring:
            complaints: list[str] = []
            oracle = Oracle(ring, ring[0]._host.constants, Counter(), complaints.append)
            oracle.disturb()
            model = oracle.models[KEY] = KeyModel(KEY, ring[0]._host.circle.hash(KEY))
            owner, reaper = sorted(ring.nodes, key=lambda node: node._host.owner_of(model.point) is None)[:2]
            acknowledge(model, model.begin("put"), COPY, reaper.name)
            acknowledge(model, model.begin("put", is_delete=True), TOMBSTONE, reaper.name)
            prepare(ring, oracle, owner, reaper)
            oracle.scanned(owner, {KEY: (KEY + b"/1",)}, oracle.before_scan())
            assert all("reads put 1 under b'k' in a scan, which is old" in text for text in complaints)
            return not complaints

    return testing.run(main)


WHOLE, TRIMMED = Limits(), Limits(reap_log_entries=0, reap_log_entries_max=0)


@pytest.mark.parametrize("limits", [WHOLE, TRIMMED], ids=["whole logs", "trimmed logs"])
@pytest.mark.parametrize("case", ["the owner was away", "the disk refuses it"])
def test_scan_may_show_what_was_reaped_without_the_owner(case: str, limits: Limits) -> None:
    """A store that missed a delete hides the value as soon as it has applied the other stores' reap logs."""
    assert is_excused(case, limits)


@pytest.mark.parametrize("limits", [WHOLE, TRIMMED], ids=["whole logs", "trimmed logs"])
@pytest.mark.parametrize("case", ["the owner applied it", "no log has the entry", "a dead node has the entry"])
def test_scan_may_not_show_what_its_owner_knows_as_reaped(case: str, limits: Limits) -> None:
    assert not is_excused(case, limits)


def test_other_missing_entries_do_not_excuse_a_scan() -> None:
    assert not is_excused("the owner lacks another entry", WHOLE)
