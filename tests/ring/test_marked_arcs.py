"""With N = 1, the mark of a dead owner outlives an older goodbye of that owner."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
import trio

from chord import testing
from chord.errors import NotFound, OwnerDown
from chord.net.peers import Peers
from chord.ring import marked_arcs
from chord.ring.merge import RingMerge
from chord.ring.ownership import Mark
from chord.wire.messages import MarkedArc
from tests.support.quorum import clockwise, keep_disks, key_at, timing, until
from tests.support.rings import only

VALUE = b"acknowledged"


async def ask_no_node(self: RingMerge) -> None:
    """Ask no vnode whether it is back: the return was too short."""


async def heir_leaves_to_a_node_that_missed_a_return() -> None:
    """An owner leaves, joins again, takes a write and dies. Then its heir leaves."""
    async with testing.open_ring(6, seed=3, replicas=1, timing=timing()) as ring:
        keep_disks(ring)
        key = key_at(ring, "n2")
        owner, heir, last, other, *_ = clockwise(ring, key)
        await owner.leave()
        await ring.converged()
        assert last._host.peers.is_known_to_have_left(only(owner).me)
        owner = await ring.start(name=owner.name, join=[other])
        await owner.ready()
        await owner.put(key, VALUE)
        await ring.kill(owner)
        await until(lambda: only(heir).ownership.marks)
        assert last._host.peers.is_known_to_have_left(only(owner).me)
        await heir.leave()
        await ring.converged()
        await trio.sleep(5)
        with pytest.raises(OwnerDown):
            await other.get(key)
        back = await ring.start(name=owner.name)
        await back.ready()
        await ring.converged()
        assert (await other.get(key)).values == (VALUE,)


def test_mark_outlives_an_older_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RingMerge, "_ask_whether_back", ask_no_node)
    testing.run(heir_leaves_to_a_node_that_missed_a_return, seed=1)


def test_planted_mark_without_the_last_sight_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def to_others(marks: Iterable[Mark], peers: Peers) -> tuple[MarkedArc, ...]:
        return tuple(msgspec.structs.replace(mark, owned_ms=None) for mark in said(marks, peers))

    said = marked_arcs.to_others
    monkeypatch.setattr(RingMerge, "_ask_whether_back", ask_no_node)
    monkeypatch.setattr(marked_arcs, "to_others", to_others)
    with pytest.raises(NotFound):
        testing.run(heir_leaves_to_a_node_that_missed_a_return, seed=1)
