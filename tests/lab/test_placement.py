"""The contract of every scheme: one key or many, copies, weights, shares, refused changes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chord.errors import DefiniteError
from chord.lab import hashing
from chord.lab.hashing import SHA1, SPAN, Hashes
from chord.lab.placement import Numbers, Placement, UnsupportedChange
from chord.lab.schemes import SCHEMES
from chord.lab.schemes.jump import Jump
from chord.lab.schemes.numbered import Mod
from chord.lab.schemes.rendezvous import Rendezvous
from chord.lab.schemes.ring import RingScheme
from tests.lab.kinds import schemes_with
from tests.lab.movement import snapshot
from tests.lab.statistics_of import chi_square, off
from tests.support.real_rings import HANG_S

NAMES = [f"10.0.0.{number}:9000" for number in range(16)]
WEIGHTED = schemes_with(lambda scheme: scheme.has_weights)
DISTINCT = schemes_with(lambda scheme: scheme.has_distinct_replicas)
MANY = hashing.random_hashes(np.random.Generator(np.random.PCG64(11)), 200_000)
SIGMAS = 4.5  # of a few hundred checks under fixed seeds, none is this far off by chance


def counts(placement: Placement, hashes: Hashes = MANY) -> Numbers:
    return np.bincount(placement.place_many(hashes), minlength=len(placement.nodes))


@cache
def built(name: str, nodes: int = len(NAMES)) -> Placement:
    """Return a shared placement for many examples, which only place keys."""
    return SCHEMES[name](NAMES[:nodes])


# -- one key and many -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMES)
@settings(max_examples=20)
@given(keys=st.lists(st.binary(max_size=20), min_size=1, max_size=20))
def test_one_key_and_many_are_placed_the_same(name: str, keys: list[bytes]) -> None:
    placement = built(name)
    hashes = placement.hash_keys(keys)
    assert hashes.tolist() == [placement.hasher.one(key) for key in keys]
    for key in keys:  # one at a time: with bounded loads, earlier keys matter
        (number,) = placement.place_many(placement.hash_keys([key])).tolist()
        assert placement.place(key) == placement.nodes[number]
        assert placement.place(key) == placement.replicas(key, 1)[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMES)
def test_placement_of_keys_changes_nothing(name: str) -> None:
    hashes = MANY[:1000].copy()
    first = SCHEMES[name](NAMES).place_many(hashes)
    assert np.array_equal(hashes, MANY[:1000])
    assert np.array_equal(first, SCHEMES[name](NAMES).place_many(hashes))
    assert first.shape == hashes.shape
    assert SCHEMES[name](NAMES).place_many(hashes[:0]).shape == (0,)


@pytest.mark.parametrize("name", SCHEMES)
def test_scheme_has_all_facts_for_the_table(name: str) -> None:
    placement = SCHEMES[name](["alone"])
    for fact in ("scheme", "title", "source", "lookup_cost", "memory_cost"):
        assert getattr(placement, fact), f"{name} has no {fact}"
    assert placement.state_bytes > 0
    assert placement.place(b"key") == "alone"
    assert placement.replicas(b"key", 3)[0] == "alone"
    assert "1 node" in repr(placement)


# -- copies -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMES)
def test_copies_of_many_keys_equal_those_of_each(name: str) -> None:
    placement = SCHEMES[name]([f"n{number}" for number in range(64)])
    for count in (1, 2, 3, 11):
        many = placement.replicas_many(MANY[:100], count)
        assert many.shape == (100, count)
        assert many.tolist() == [placement.locate_replicas(point, count) for point in MANY[:100].tolist()]


@pytest.mark.slow
@pytest.mark.parametrize("name", DISTINCT)
@settings(max_examples=25)
@given(nodes=st.integers(1, 8).map(lambda depth: 1 << depth % 4), count=st.integers(1, 9), key=st.binary(max_size=9))
def test_copies_are_on_distinct_nodes_if_promised(name: str, nodes: int, count: int, key: bytes) -> None:
    found = built(name, nodes).replicas(key, count)
    assert len(found) == len(set(found)) == min(count, nodes)


@pytest.mark.parametrize("name", sorted(set(SCHEMES) - set(DISTINCT)))
def test_rehashed_copies_collide_as_often_as_chance(name: str) -> None:
    placement = SCHEMES[name](NAMES)
    copies = np.sort(placement.replicas_many(MANY[:50_000], 3), axis=1)
    distinct = ((copies[:, 1:] != copies[:, :-1]).sum(axis=1) == 2).mean()
    assert off(distinct, (1 - 1 / 16) * (1 - 2 / 16), 50_000) < SIGMAS


@pytest.mark.parametrize("name", ["rendezvous", "rendezvous-weighted", "rendezvous-tree", "ring", "ring-100",
                                  "ring-tree", "multi-probe", "dx", "chord"])  # fmt: skip
def test_next_copy_is_the_heir_of_a_removed_node(name: str) -> None:
    placement = SCHEMES[name](NAMES)
    keys = hashing.number_keys(60)
    heirs = {key: placement.replicas(key, 2)[1] for key in keys}
    for node in NAMES:
        without = SCHEMES[name](NAMES)
        without.remove(node)
        for key in keys:
            assert without.place(key) == (heirs[key] if placement.place(key) == node else placement.place(key))


# -- how even -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mod", "mod-factor", "extendible", "rendezvous", "rendezvous-weighted", "jump-naive",
                                  "jump", "fibonacci", "fibonacci-range", "anchor", "dx"])  # fmt: skip
def test_even_schemes_pass_chi_square(name: str) -> None:
    placement = SCHEMES[name](NAMES)
    assert abs(chi_square(counts(placement), np.full(16, 1 / 16))) < SIGMAS
    if placement.growth == "one":
        placement.add("one-more")
        assert abs(chi_square(counts(placement), np.full(17, 1 / 17))) < SIGMAS


class LopsidedJump(Jump):
    """Planted: one bucket loses keys too early."""

    def place_many(self, hashes: Hashes) -> Numbers:
        found = super().place_many(hashes)
        return np.where((found == 7) & (hashes % np.uint64(10) == 0), 8, found)


def test_planted_lopsided_scheme_fails_chi_square() -> None:
    assert chi_square(counts(LopsidedJump(NAMES)), np.full(16, 1 / 16)) > SIGMAS


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMES)
def test_shares_equal_those_of_a_sample(name: str) -> None:
    placement = SCHEMES[name](NAMES, weights={NAMES[3]: 3.0, NAMES[5]: 0.5} if name in WEIGHTED else None)
    shares = placement.shares()
    if shares is None:
        assert name in ("static", "ring-bounded", "anchor")
        return
    assert shares.sum() == pytest.approx(1)
    assert abs(chi_square(counts(placement), shares)) < SIGMAS
    if np.ptp(shares) > 0.01:  # planted: the shares of the neighbours
        assert abs(chi_square(counts(placement), np.roll(shares, 1))) > SIGMAS


# -- weights ------------------------------------------------------------------------------------------------

EXACT = {"rendezvous-weighted": 1e-9, "sections": 0.002, "sections-2": 0.002, "directory": 0.002, "maglev": 0.002,
         "ring-1000": 0.15, "ring-100": 0.35, "chord": 0.35}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_keys_are_in_proportion_to_weights(name: str) -> None:
    weights = {NAMES[0]: 2.0, NAMES[1]: 3.0, NAMES[2]: 0.5}
    placement = SCHEMES[name](NAMES, weights=weights)
    due = np.array([weights.get(node, 1.0) for node in NAMES]) / (13 + 5.5)
    shares = placement.shares()
    assert shares is not None
    tolerance = EXACT[name]
    assert np.all(np.abs(shares - due) <= tolerance * due + (2 / 4096 if tolerance == 0.002 else 0))
    with pytest.raises(AssertionError):
        assert np.all(np.abs(SCHEMES[name](NAMES).shares() - due) <= 0.35 * due), "planted: without weights"  # type: ignore


def test_every_scheme_with_weights_is_measured_with_weights() -> None:
    assert set(WEIGHTED) - set(EXACT) == {"ring", "ring-tree", "ring-bounded", "multi-probe"}  # too uneven to tell


@pytest.mark.parametrize("name", sorted(set(SCHEMES) - set(WEIGHTED)))
def test_scheme_without_weights_refuses_them(name: str) -> None:
    with pytest.raises(UnsupportedChange, match="no weights"):
        SCHEMES[name](NAMES, weights={NAMES[0]: 2.0})


@pytest.mark.slow
@pytest.mark.parametrize("name", WEIGHTED)
def test_newcomer_with_a_weight_gets_its_part(name: str) -> None:
    placement = SCHEMES[name](NAMES)
    placement.add("heavy", 4.0)
    assert placement.weights["heavy"] == 4.0
    light = SCHEMES[name](NAMES)
    light.add("heavy")
    heavy_keys, light_keys = counts(placement)[16], counts(light)[16]
    assert heavy_keys > light_keys or name == "ring-bounded"


# -- changes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEMES)
def test_invalid_argument_is_refused_and_changes_nothing(name: str) -> None:
    build = SCHEMES[name]
    with pytest.raises(ValueError, match="at least one"):
        build([])
    with pytest.raises(ValueError, match="same name"):
        build(["a", "a"])
    with pytest.raises(ValueError, match="not there"):
        build(["a"], weights={"b": 1.0})
    for weight in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="positive"):
            build(["a"], weights={"a": weight})
    placement = build(NAMES)
    before = snapshot(placement, MANY[:500])
    with pytest.raises(ValueError, match="already"):
        placement.add(NAMES[3])
    with pytest.raises(KeyError):
        placement.remove("nobody")
    with pytest.raises(KeyError):
        placement.replace("nobody", "new")
    with pytest.raises(ValueError, match="already"):
        placement.replace(NAMES[1], NAMES[2])
    with pytest.raises(UnsupportedChange, match="only node"):
        build(["a"]).remove("a")
    assert snapshot(placement, MANY[:500]) == before


@pytest.mark.parametrize("name", SCHEMES)
def test_unsupported_change_names_the_reason(name: str) -> None:
    placement = SCHEMES[name](NAMES)
    before = snapshot(placement, MANY[:500])
    if placement.growth != "one":
        with pytest.raises(UnsupportedChange) as refused:
            placement.add("new")
        assert len(refused.value.message.split()) > 4
    if not placement.can_remove:
        with pytest.raises(UnsupportedChange) as refused:
            placement.remove(NAMES[3])
        assert len(refused.value.message.split()) > 4
    if placement.growth != "one" or not placement.can_remove:
        assert snapshot(placement, MANY[:500]) == before
    else:
        placement.add("new")
        placement.remove(NAMES[3])
        assert set(placement.nodes) == {*NAMES, "new"} - {NAMES[3]}


@pytest.mark.parametrize("name", schemes_with(lambda scheme: not scheme.has_names))
def test_replacement_by_number_takes_all_keys_of_the_old_node(name: str) -> None:
    placement = SCHEMES[name](NAMES)
    before = snapshot(placement, MANY[:5000])
    placement.replace(NAMES[4], "new")
    after = snapshot(placement, MANY[:5000])
    assert after.owners == tuple("new" if owner == NAMES[4] else owner for owner in before.owners)
    assert "new" in after.owners


@pytest.mark.slow
@pytest.mark.parametrize("name", schemes_with(lambda scheme: scheme.has_names))
def test_placement_by_name_ignores_the_order_of_changes(name: str) -> None:
    placement = SCHEMES[name](NAMES)
    for node in ("x", "y"):
        placement.add(node)
    placement.remove(NAMES[0])
    placement.replace(NAMES[1], NAMES[0])
    other = SCHEMES[name]([*reversed(NAMES[2:]), "y", NAMES[0], "x"])
    assert snapshot(placement, MANY[:5000]) == snapshot(other, MANY[:5000])


@pytest.mark.parametrize("name", schemes_with(lambda scheme: scheme.has_names))
def test_placement_by_name_ignores_the_order_of_nodes(name: str) -> None:
    one, other = SCHEMES[name](NAMES), SCHEMES[name]([*reversed(NAMES)])
    assert snapshot(one, MANY[:5000]) == snapshot(other, MANY[:5000])


def test_rendezvous_tree_depends_on_the_order_of_nodes() -> None:
    one, other = SCHEMES["rendezvous-tree"](NAMES), SCHEMES["rendezvous-tree"]([*reversed(NAMES)])
    assert not one.has_names
    assert snapshot(one, MANY[:5000]) != snapshot(other, MANY[:5000])


@pytest.mark.parametrize("name", WEIGHTED)
def test_replacement_keeps_the_weight(name: str) -> None:
    placement = SCHEMES[name](NAMES, weights={NAMES[4]: 3.0})
    placement.replace(NAMES[4], "new")
    expected = {**dict.fromkeys(NAMES, 1.0), "new": 3.0}
    del expected[NAMES[4]]
    assert placement.weights == expected


@pytest.mark.parametrize("name", SCHEMES)
def test_placement_can_be_pickled(name: str) -> None:
    placement = SCHEMES[name](NAMES)
    if placement.growth == "one":
        placement.add("new")
    there = pickle.loads(pickle.dumps(placement))
    assert there.nodes == placement.nodes
    assert np.array_equal(there.place_many(MANY[:1000]), placement.place_many(MANY[:1000]))
    assert [there.locate(point) for point in MANY[:20].tolist()] == [placement.locate(p) for p in MANY[:20].tolist()]


def test_unsupported_change_is_a_definite_error() -> None:
    assert issubclass(UnsupportedChange, DefiniteError)
    assert UnsupportedChange.word == "unsupported_change"


@pytest.mark.parametrize("name", SCHEMES)
def test_memory_grows_as_stated(name: str) -> None:
    small, large = (SCHEMES[name](NAMES[:count]).state_bytes for count in (4, 16))
    if SCHEMES[name](["a"]).memory_cost.startswith(("O(1)", "O(S)", "O(S", "O(M)", "O(√S)")):
        assert small == large
    else:
        assert small < large <= 8 * small


BYTES = {
    "static": 16 * 8, "mod": 8, "mod-factor": 8, "extendible": 16 * 4, "trie": 16 * 12, "sections": 4096 * 4,
    "sections-2": 64 * 8 + 64 * 4, "rendezvous": 16 * 8, "rendezvous-weighted": 16 * 16,
    "rendezvous-tree": 4 * 8 + 1 + 16 * 12, "ring": 16 * 12, "ring-tree": 16 * 36, "ring-100": 1600 * 12,
    "ring-1000": 16_000 * 12, "ring-bounded": 16 * (12 + 8), "multi-probe": 16 * 12, "jump-naive": 8, "jump": 8,
    "fibonacci": 8, "fibonacci-range": 8, "maglev": 65_537 * 4, "anchor": 32 * 12, "dx": 32 * 4 + 4,
    "directory": 4096 * 4, "chord": 100 * 16 * (1 + 8 + 11),
}  # fmt: skip


def test_memory_of_sixteen_nodes_equals_the_manual_count() -> None:
    """Count packed tables, points and owners. A Chord vnode has a predecessor, 8 successors, log2 1600 fingers."""
    assert {name: build(NAMES).state_bytes for name, build in SCHEMES.items()} == BYTES


# -- hashing ------------------------------------------------------------------------------------------------


@given(number=st.integers(0, SPAN - 1), salt=st.integers(0, SPAN - 1))
def test_mix_of_one_number_and_an_array_agree(number: int, salt: int) -> None:
    array = np.array([number, 1, SPAN - 1], dtype=np.uint64)
    assert hashing.mix(array, salt)[0] == hashing.mix_one(number, salt)
    assert hashing.mix(array, np.full(3, salt, dtype=np.uint64))[0] == hashing.mix_one(number, salt)
    assert hashing.units(array)[0] == hashing.unit(number)
    assert 0 < hashing.unit(number) < 1
    for count in (1, 7, 1 << 32):
        assert hashing.scale(array, count)[0] == hashing.scale_one(number, count) < count
    assert array.tolist() == [number, 1, SPAN - 1]


def test_mix_equals_splitmix64() -> None:
    """The first outputs of the published generator from seed 1234567 (Vigna's reference program)."""
    first = [hashing.mix_one(1234567, step) for step in (1, 2, 3)]
    assert first == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_mix_of_one_changed_bit_changes_half_of_the_bits() -> None:
    mixed = hashing.mix(MANY[:20_000])
    for bit in range(64):
        changed = hashing.mix(MANY[:20_000] ^ np.uint64(1 << bit)) ^ mixed
        mean = np.unpackbits(changed.view(np.uint8)).mean() * 64
        assert abs(mean - 32) < 0.25, bit  # 6 standard errors


def test_hashes_equal_their_test_vectors() -> None:
    assert hashing.XXH3.one(b"") == 0x2D06800538D394C2  # the test vector of the xxHash specification
    assert SHA1.one(b"abc") == 0xA9993E364706816A
    assert hashing.PREFIX.one(b"Abc") == hashing.PREFIX.one(b"abc") == 0x6162630000000000
    assert hashing.PREFIX.one(b"abcdefgh!") == hashing.PREFIX.one(b"ABCDEFGH") < hashing.PREFIX.one(b"b")
    assert hashing.XXH3.many(iter([b"", b"a"])).tolist() == hashing.XXH3.many([b"", b"a"]).tolist()


def test_generators_of_keys_follow_their_seed() -> None:
    def draw(seed: int) -> tuple[Any, ...]:
        rng = np.random.Generator(np.random.PCG64(seed))
        surnames = hashing.surname_keys(rng, 2000)
        return surnames, hashing.random_hashes(rng, 5).tolist(), hashing.zipf_requests(rng, 100, 20_000).tolist()

    assert draw(1) == draw(1) != draw(2)
    surnames, _, requests = draw(1)
    by_letter = {letter: sum(key.startswith(letter.encode()) for key in surnames) for letter in "sx"}
    assert by_letter["s"] > 150 > 10 > by_letter["x"]
    asked = np.bincount(requests, minlength=100)
    harmonic = sum(1 / k for k in range(1, 101))
    assert off(asked[0] / 20_000, 1 / harmonic, 20_000) < SIGMAS
    assert off(asked[9] / 20_000, 0.1 / harmonic, 20_000) < SIGMAS
    assert hashing.number_keys(2) == [b"key-0", b"key-1"]


# -- Golubtsov's table, in small ------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kept"), [("mod", 4.77), ("jump", 95.24), ("fibonacci", 4.80), ("rendezvous", 95.28)])
def test_growth_from_20_to_21_keeps_the_share_of_golubtsov(name: str, kept: float) -> None:
    placement = SCHEMES[name]([f"shard-{number}" for number in range(20)])
    before = placement.place_many(MANY)
    placement.add("shard-20")
    assert 100 * (before == placement.place_many(MANY)).mean() == pytest.approx(kept, abs=0.3)


def test_fibonacci_range_keeps_one_half_at_any_size() -> None:
    for count in (2, 20, 100):
        placement = SCHEMES["fibonacci-range"]([str(number) for number in range(count)])
        before = placement.place_many(MANY)
        placement.add("new")
        assert off((before == placement.place_many(MANY)).mean(), 0.5, len(MANY)) < SIGMAS


@pytest.mark.parametrize("scheme", [Mod, RingScheme, Rendezvous])
def test_scheme_takes_another_hash(scheme: type[Placement]) -> None:
    placement = scheme(NAMES, hasher=SHA1)
    assert placement.hasher.one(b"abc") == 0xA9993E364706816A
    assert {placement.place(key) for key in hashing.number_keys(500)} == set(NAMES)


def test_package_without_the_lab_does_not_load_numpy() -> None:
    code = (
        "import sys, chord, chord.cli, chord.node, chord.client.blocking; "
        "sys.exit(bool({'numpy', 'xxhash', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=HANG_S, check=False).returncode == 0
