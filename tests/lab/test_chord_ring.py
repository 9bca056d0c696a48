"""The ring of this project in the lab equals the ring with vnodes under SHA-1, and real nodes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chord import testing
from chord.lab.hashing import SHA1, XXH3, number_keys
from chord.lab.placement import Placement
from chord.lab.schemes import SCHEMES
from chord.lab.schemes.chord_ring import ChordRing
from chord.lab.schemes.ring import RingScheme
from tests.lab.references import chord as ring_of_160_bits

KEYS = number_keys(300, "user:")
ADDRESSES = [f"10.0.{number}.1:9000" for number in range(12)]


def same(one: Placement, other: Placement, copies: int = 3) -> None:
    hashes = one.hash_keys(KEYS)
    assert one.nodes == other.nodes
    assert np.array_equal(one.place_many(hashes), other.place_many(other.hash_keys(KEYS)))
    for key in KEYS[:60]:
        assert one.place(key) == other.place(key)
        assert one.replicas(key, copies) == other.replicas(key, copies)


@settings(max_examples=20)
@given(
    nodes=st.integers(1, 12), vnodes=st.integers(1, 5), heavy=st.sampled_from([0.2, 1.0, 3.0]), copies=st.integers(1, 5)
)
def test_chord_ring_equals_the_sha1_ring_with_vnodes(nodes: int, vnodes: int, heavy: float, copies: int) -> None:
    weights = {ADDRESSES[0]: heavy}
    mine = ChordRing(ADDRESSES[:nodes], weights=weights, vnodes=vnodes)
    ring = RingScheme(ADDRESSES[:nodes], weights=weights, vnodes=vnodes, hasher=SHA1)
    same(mine, ring, copies)
    assert np.allclose(mine.shares(), ring.shares())  # type: ignore[arg-type]
    for change in ("10.9.9.9:9000", "10.9.9.8:9000"):
        mine.add(change, 2.0)
        ring.add(change, 2.0)
    mine.remove(ADDRESSES[0])
    ring.remove(ADDRESSES[0])
    same(mine, ring, copies)


def test_chord_ring_of_the_table_has_a_hundred_vnodes() -> None:
    same(SCHEMES["chord"](ADDRESSES), RingScheme(ADDRESSES, vnodes=100, hasher=SHA1))


@pytest.mark.parametrize("wrong", [{"hasher": XXH3, "vnodes": 3}, {"hasher": SHA1, "vnodes": 2}])
def test_ring_with_another_hash_or_vnodes_differs(wrong: dict[str, object]) -> None:
    with pytest.raises(AssertionError):
        same(ChordRing(ADDRESSES, vnodes=3), RingScheme(ADDRESSES, **wrong))  # type: ignore[arg-type]


def test_ring_of_160_bits_agrees() -> None:
    mine = ChordRing(ADDRESSES, vnodes=4, weights={ADDRESSES[2]: 2.0})
    reference = ring_of_160_bits(4)(ADDRESSES, {ADDRESSES[2]: 2.0})
    for key in KEYS:
        assert list(mine.replicas(key, 3)) == reference.replicas_of_key(key, 3)  # type: ignore[attr-defined]
        assert mine.place(key) == reference.owner_of_key(key)  # type: ignore[attr-defined]


def test_vnode_with_a_taken_id_is_refused() -> None:
    ring = ChordRing(["a:1"], vnodes=2)
    with pytest.raises(ValueError, match="points of the ring are the same"):
        ring.add("a:1#1")  # its address is the text that gives the other node's second vnode
    with pytest.raises(ValueError, match="points of the ring are the same"):
        ChordRing(["a:1", "a:1#1"], vnodes=2)
    with pytest.raises(ValueError, match="at least one"):
        ChordRing(["a:1"], vnodes=0)
    assert ring.nodes == ("a:1",)


def test_real_nodes_place_keys_and_copies_as_the_lab() -> None:
    """Five nodes of three vnodes have joined and stabilised. Compare owners and replica sets, key by key."""

    async def main() -> None:
        async with testing.open_ring(5, seed=3, vnodes=3, replicas=3) as ring:
            await ring.converged()
            lab = ChordRing([node.address for node in ring], vnodes=3)
            for key in KEYS[:100]:
                trace = await ring[0].lookup(key)
                assert trace.owner.address == lab.place(key)
                assert tuple(contact.address for contact in trace.replicas) == lab.replicas(key, 3)
                assert trace.owner.address != lab.replicas(key, 2)[1]

    testing.run(main, seed=3)
