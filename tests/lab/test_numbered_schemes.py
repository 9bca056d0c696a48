"""Tables, remainders, bits, sections and jumps against the figures of the texts and the papers."""

from __future__ import annotations

from collections import Counter
from itertools import chain, pairwise, repeat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chord.lab import hashing
from chord.lab.hashing import SPAN
from chord.lab.placement import Placement, UnsupportedChange
from chord.lab.schemes.anchor import AnchorHash
from chord.lab.schemes.dx import DxHash
from chord.lab.schemes.extendible import Extendible
from chord.lab.schemes.jump import Jump, NaiveJump
from chord.lab.schemes.maglev import Maglev
from chord.lab.schemes.numbered import Mod, ModFactor
from chord.lab.schemes.sections import Directory, Sections, TwoLevelSections
from chord.lab.schemes.static import StaticMap, equal_starts
from chord.lab.schemes.trie import BitTrie
from tests.lab.references import Doubling, maglev_table
from tests.lab.statistics_of import chi_square, off

MANY = hashing.random_hashes(np.random.Generator(np.random.PCG64(5)), 200_000)
SIGMAS = 4.5


def named(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


# -- the static map -----------------------------------------------------------------------------------------


def test_static_map_of_thirteen_pairs_the_letters() -> None:
    assert equal_starts(13) == [letter.encode() for letter in "cegikmoqsuwy"]
    assert [StaticMap(named(13)).place(name.encode()) for name in ("Adams", "brown", "Clark", "Zhou")] == [
        "n0", "n0", "n1", "n12",
    ]  # fmt: skip


@given(
    count=st.integers(1, 60),
    keys=st.lists(st.text("abcXYZmnop0~", max_size=7).map(str.encode), min_size=1, max_size=20),
)
def test_static_map_uses_the_last_range_at_or_before_a_key(count: int, keys: list[bytes]) -> None:
    starts = [b"", *equal_starts(count)]
    assert len(set(starts)) == count
    placement = StaticMap(named(count))
    for key in keys:
        number = max(at for at, start in enumerate(starts) if start <= key.lower())
        assert placement.place(key) == f"n{number}"
        assert placement.replicas(key, 2) == tuple(f"n{(number + step) % count}" for step in range(min(2, count)))


def test_static_map_takes_custom_ranges() -> None:
    placement = StaticMap(["low", "high"], starts=[b"user:5"])
    assert placement.place(b"user:499") == "low"
    assert placement.place(b"user:5") == "high"
    for wrong in ([], [b"b", b"a"], [b""]):
        with pytest.raises(ValueError, match="start"):
            StaticMap(["low", "high", "more"][: len(wrong) + 1] if wrong != [] else ["low", "high"], starts=wrong)
    with pytest.raises(ValueError, match="17576"):
        equal_starts(20_000)


@pytest.mark.slow
def test_surnames_load_the_static_map_unevenly() -> None:
    placement = StaticMap(named(13))
    keys = hashing.surname_keys(np.random.Generator(np.random.PCG64(1)), 50_000)
    loads = Counter(placement.place(key) for key in keys)
    assert 9 < max(loads.values()) / min(loads.values()) < 13
    by_hash = Counter(Mod(named(13)).place(key) for key in keys)  # planted: a hash has no such skew
    assert max(by_hash.values()) / min(by_hash.values()) < 1.2


# -- the remainder ------------------------------------------------------------------------------------------


def test_remainder_of_fifteen_is_kokorins_example() -> None:
    assert Mod(named(2)).locate(15) == 1
    assert Mod(named(3)).locate(15) == 0


def test_remainder_moves_foo_and_baz_as_in_the_article() -> None:
    """The anonymous article prints no hashes. 8 and 11 are the smallest that move as in its pictures."""
    placement, keys = Mod(named(3)), np.array([8, 1, 11], dtype=np.uint64)  # foo, bar, baz
    assert placement.place_many(keys).tolist() == [2, 1, 2]
    placement.add("n3")
    assert placement.place_many(keys).tolist() == [0, 1, 3]


@pytest.mark.parametrize("factor", [2, 3, 5])
def test_growth_by_a_factor_moves_keys_to_paired_newcomers(factor: int) -> None:
    placement, newcomers = ModFactor(named(4)), [f"m{number}" for number in range(4 * (factor - 1))]
    before = placement.place_many(MANY)
    placement.grow(newcomers)
    after = placement.place_many(MANY)
    assert np.array_equal(after % 4, before)
    assert off((after == before).mean(), 1 / factor, len(MANY)) < SIGMAS
    placement.shrink(newcomers)
    assert np.array_equal(placement.place_many(MANY), before)


def test_growth_by_a_fraction_is_refused() -> None:
    placement = ModFactor(named(4))
    for newcomers in (["a"], ["a", "b", "c"], list("abcde")):
        with pytest.raises(UnsupportedChange, match="whole factor"):
            placement.grow(newcomers)
    for leavers in (["n3"], ["n0", "n1"], ["n1", "n2", "n3", "n0"], ["n2", "x"]):
        with pytest.raises(UnsupportedChange, match="whole factor"):
            placement.shrink(leavers)
    with pytest.raises(ValueError, match="same name"):
        placement.grow(["a", "b", "c", "c"])
    assert placement.nodes == ("n0", "n1", "n2", "n3")
    placement.shrink(["n1", "n2", "n3"])
    placement.add("second")
    placement.remove("second")
    assert placement.nodes == ("n0",)


# -- bits ---------------------------------------------------------------------------------------------------


@given(doublings=st.lists(st.booleans(), max_size=6), depth=st.integers(0, 3), seed=st.integers(0, 2**32))
def test_extendible_hashing_equals_its_reference(doublings: list[bool], depth: int, seed: int) -> None:
    placement, reference = Extendible(named(2**depth)), Doubling(named(2**depth), {})
    hashes = hashing.random_hashes(np.random.Generator(np.random.PCG64(seed)), 30)
    for turn, is_growth in enumerate([*doublings, True]):
        before = [placement.nodes[n] for n in placement.place_many(hashes)]
        if is_growth:
            newcomers = [f"t{turn}-{number}" for number in range(len(placement.nodes))]
            placement.grow(newcomers)
            reference.double(newcomers)
        elif len(placement.nodes) > 1:
            placement.shrink(placement.nodes[len(placement.nodes) // 2 :])
            reference.halve()
        assert list(placement.nodes) == reference.nodes
        after = [placement.nodes[n] for n in placement.place_many(hashes)]
        assert after == [reference.owner(point) for point in hashes.tolist()]
        assert after == [placement.nodes[placement.locate(point)] for point in hashes.tolist()]
        assert all(old == new or new.startswith(f"t{turn}-") for old, new in zip(before, after, strict=True)) or (
            not is_growth
        )


def test_extendible_hashing_only_doubles_and_halves() -> None:
    with pytest.raises(ValueError, match="1, 2, 4, 8"):
        Extendible(named(3))
    placement = Extendible(named(4))
    assert placement.depth == 2
    with pytest.raises(UnsupportedChange, match="4 newcomers"):
        placement.grow(["a", "b"])
    for leavers in (["n3"], ["n0", "n1"]):
        with pytest.raises(UnsupportedChange, match="last doubling"):
            placement.shrink(leavers)
    one = Extendible(["a"])
    one.add("b")
    assert [one.nodes[one.locate(point)] for point in (0, SPAN - 1)] == ["a", "b"]
    one.remove("b")
    assert one.nodes == ("a",)
    with pytest.raises(UnsupportedChange, match="halves"):
        one.shrink(["a"])


def test_trie_split_halves_one_leaf() -> None:
    trie = BitTrie(["a"])
    for node, shares in (("b", [8, 8]), ("c", [4, 8, 4]), ("d", [4, 4, 4, 4])):
        trie.add(node)
        shares_now = trie.shares()
        assert shares_now is not None
        assert (16 * shares_now).tolist() == shares
    trie.split("c", "e")
    assert 16 * trie.shares()[trie.nodes.index("c")] == 16 * trie.shares()[trie.nodes.index("e")] == 2  # type: ignore[index]


def test_trie_leaf_leaves_to_its_sibling_or_evicts() -> None:
    trie = BitTrie(["a", "b"])  # 0: a, 1: b
    trie.split("b", "c")  # 10: b, 11: c
    trie.split("c", "d")  # 110: c, 111: d
    assert trie.evicted_by("d") == ()
    assert trie.evicted_by("b") == ("d",)  # its sibling is the subtree of c and d
    trie.remove("b")
    assert trie.nodes == ("a", "c")  # c has all of 1
    assert [trie.nodes[trie.locate(point)] for point in (0, SPAN // 2, SPAN - 1)] == ["a", "c", "c"]
    with pytest.raises(KeyError):
        trie.split("b", "x")
    trie.remove("a")
    assert trie.nodes == ("c",)


def test_trie_leaf_of_all_bits_cannot_be_split() -> None:
    trie = BitTrie(["a"])
    for number in range(64):
        trie.split("a", f"n{number}")
    with pytest.raises(UnsupportedChange, match="one hash"):
        trie.split("a", "too-many")
    assert trie.locate(0) == 0
    assert trie.nodes[trie.locate(1)] == "n63"


# -- sections -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 20, 100])
def test_every_node_has_its_share_of_sections_within_one(count: int) -> None:
    placement = Sections(named(count))
    for turn in range(3):
        due, have = 4096 / len(placement.nodes), Counter(placement.owners())
        assert all(abs(number - due) <= 1 for number in have.values())
        placement.add(f"more-{turn}")
        placement.remove(placement.nodes[1])


def test_sections_fewer_than_nodes_leave_a_node_empty() -> None:
    placement = Sections(named(4), sections=4)
    placement.add("late")
    assert len(set(placement.owners())) == 4  # of five nodes
    assert len(placement.replicas(b"key", 5)) == 4


def test_hot_sections_move_to_cold_nodes() -> None:
    placement = Sections(named(10), sections=500)
    rng = np.random.Generator(np.random.PCG64(3))
    requests = hashing.zipf_requests(rng, 20_000, 300_000, 0.9)
    hashes = hashing.XXH3.many(hashing.number_keys(20_000))
    loads = np.bincount((hashes[requests] % np.uint64(500)).astype(np.intp), minlength=500).astype(float)

    def peak() -> float:
        heat = np.bincount(placement.place_many(hashes[requests]), minlength=10)
        return float(heat.max() / heat.mean())

    before, owners = peak(), placement.owners()
    moves = placement.move_hot(loads, 1.05)
    assert before > 1.3 > 1.06 > peak()
    assert 0 < len(moves) < 60
    for section, old, new in moves:
        assert old != new
        assert placement.owners()[section] != owners[section] or Counter(m.section for m in moves)[section] > 1
    assert placement.move_hot(loads, 1.05) == []


def test_hottest_section_that_helps_is_moved_first() -> None:
    placement = Sections(named(2), sections=8)
    loads = np.zeros(8)
    loads[[section for section, owner in enumerate(placement.owners()) if owner == "n0"]] = [1.0, 6.0, 3.0, 2.0]
    (only,) = placement.move_hot(loads)
    assert (loads[only.section], only.old, only.new) == (6.0, "n0", "n1")


def test_load_of_a_single_section_cannot_be_moved() -> None:
    placement = Sections(named(4), sections=8)
    assert placement.move_hot(np.array([100.0, 0, 0, 0, 0, 0, 0, 0])) == []
    with pytest.raises(ValueError, match="one load"):
        placement.move_hot(np.ones(7))


def test_two_level_sections_equal_sections_in_smaller_parts() -> None:
    one, two = Sections(named(7)), TwoLevelSections(named(7))
    assert np.array_equal(one.place_many(MANY), two.place_many(MANY))
    assert two.state_bytes * 20 < one.state_bytes
    assert [two.part_of(section) for section in (0, 63, 64, 4095)] == [0, 0, 1, 63]
    with pytest.raises(ValueError, match="equal parts"):
        TwoLevelSections(named(2), sections=100, parts=7)


def test_directory_numbers_its_configurations() -> None:
    directory = Directory(named(2), sections=16)
    first = directory.query()
    directory.add("n2")
    directory.move(3, "n2")
    directory.replace("n0", "m0")
    directory.remove("n1")
    assert directory.version == 4
    assert directory.query(0) == first
    assert directory.query(2)[3] == "n2"
    assert set(directory.query()) == {"m0", "n2"}
    assert directory.query() == directory.owners()
    assert [sum(a != b for a, b in pairwise((directory.query(0)[s], directory.query(1)[s]))) for s in range(16)].count(
        1
    ) == 5  # round(16 / 3) sections went to the newcomer, and no other
    for version in (5, -2):
        with pytest.raises(IndexError, match="configuration"):
            directory.query(version)
    with pytest.raises(IndexError, match="sections"):
        directory.move(16, "n2")
    hot = np.zeros(16)
    hot[[section for section, owner in enumerate(directory.owners()) if owner == "m0"]] = 1.0
    assert directory.move_hot(hot)
    assert directory.version == 5


# -- jump ---------------------------------------------------------------------------------------------------

GUAVA_100 = [0, 55, 62, 8, 45, 59, 86, 97, 82, 59, 73, 37, 17, 56, 86, 21, 90, 37, 38, 83]
KNOWN = [
    (10863919174838991, 11, 6), (2016238256797177309, 11, 3), (1673758223894951030, 11, 5), (2, 100_001, 80_343),
    (2201, 100_001, 22_152), (2202, 100_001, 15_018), (42, 57, 43), (256, 1024, 520), (0xDEAD10CC, 666, 361),
    (16045690984833335023, 255, 237), (SPAN - 1, 128, 92),
]  # fmt: skip


def test_jump_equals_the_published_function() -> None:
    """The values are the test vectors of Guava, and of implementations in Go, Python and ClickHouse."""
    hundred = Jump(named(100))
    assert hundred.place_many(np.arange(20, dtype=np.uint64)).tolist() == GUAVA_100
    for point, buckets, bucket in KNOWN:
        placement = Jump([str(number) for number in range(buckets)])
        assert placement.locate(point) == bucket
        assert placement.place_many(np.array([point], dtype=np.uint64)).tolist() == [bucket]


def bucket_from(start: int, point: int, buckets: int) -> int:
    """Run the jump algorithm from a given start, and return the last bucket below the limit."""
    dice, here = point, start
    for onward in chain([0], repeat(None)):
        if onward is None:
            dice = (dice * 0x27BB2EE687B0B0FD + 1) % SPAN
            onward = int((here + 1) * (2.0**31 / (dice // 2**33 + 1)))
        if onward >= buckets:
            return here
        here = onward
    raise AssertionError("dice never end")


@given(point=st.integers(0, SPAN - 1), buckets=st.integers(1, 5000))
def test_jump_listing_of_golubtsov_gives_the_same(point: int, buckets: int) -> None:
    found = [bucket_from(start, point, buckets) for start in (1, -1)]
    assert found == [Jump(named(buckets)).locate(point)] * 2
    assert bucket_from(1, point, 0) != bucket_from(-1, point, 0)  # for zero buckets the two differ


@pytest.mark.parametrize("scheme", [Jump, NaiveJump])
@pytest.mark.parametrize(("few", "many"), [(1, 2), (3, 10), (20, 21), (40, 64)])
def test_bucket_of_m_and_of_n_agree_with_probability_m_over_n(scheme: type[Placement], few: int, many: int) -> None:
    small, large = scheme(named(few)).place_many(MANY), scheme(named(many)).place_many(MANY)
    assert off((small == large).mean(), few / many, len(MANY)) < SIGMAS
    assert np.all((small == large) | (large >= few))
    assert off((Mod(named(few)).place_many(MANY) == Mod(named(many)).place_many(MANY)).mean(), few / many, 200_000) > (
        SIGMAS
    ) or few == 1  # planted: the remainder does not


# -- Maglev, AnchorHash, DxHash -----------------------------------------------------------------------------


def test_maglev_permutation_has_every_slot_once() -> None:
    placement = Maglev(named(5), slots=1009)
    wishes = [list(placement.permutation(node)) for node in placement.nodes]
    assert all(sorted(wish) == list(range(1009)) for wish in wishes)
    steps = [{(b - a) % 1009 for a, b in pairwise(wish)} for wish in wishes]
    assert all(len(step) == 1 for step in steps)
    assert len({step.pop() for step in steps}) == 5  # each by a skip of its own


def test_maglev_slots_per_node_differ_by_at_most_one() -> None:
    placement = Maglev(named(21))
    slots = Counter(placement.table)
    assert max(slots.values()) - min(slots.values()) <= 1
    weighted = Maglev(named(3), slots=1009, weights={"n0": 2.0})
    assert list(weighted.table) == maglev_table(1009, named(3), {"n0": 2.0, "n1": 1.0, "n2": 1.0})
    assert Counter(weighted.table)["n0"] == pytest.approx(504.5, abs=1)


def test_maglev_moves_few_slots_of_remaining_nodes() -> None:
    """Figure 12 of the Maglev paper: with a hundred slots a node a few percent move, with more slots fewer."""
    found = []
    for slots in (2003, 65_537):
        placement = Maglev(named(20), slots=slots)
        before = placement.table
        placement.remove("n7")
        found.append(sum(a not in ("n7", b) for a, b in zip(before, placement.table, strict=True)) / slots)
    assert 0 < found[1] < found[0] < 0.05


def test_maglev_slots_must_be_a_large_enough_prime() -> None:
    for slots in (100, 65_536, 2, 1):
        with pytest.raises(ValueError, match="prime"):
            Maglev(named(2), slots=slots)
    full = Maglev(named(5), slots=5)
    with pytest.raises(UnsupportedChange, match="slots"):
        full.add("sixth")


@pytest.mark.parametrize("scheme", [AnchorHash, DxHash])
def test_scheme_at_capacity_refuses_a_newcomer(scheme: type[AnchorHash] | type[DxHash]) -> None:
    placement = scheme(named(4), capacity=4)
    with pytest.raises(UnsupportedChange, match="all 4"):
        placement.add("fifth")
    placement.remove("n1")
    placement.add("fifth")
    assert len(placement.nodes) == 4
    with pytest.raises(ValueError, match="not 2"):
        scheme(named(4), capacity=2)
    roomy = scheme(named(4), capacity=33)
    roomy.grow([f"m{number}" for number in range(29)])
    assert len(roomy.nodes) == 33
    assert DxHash(named(4), capacity=33).slots == 64


@settings(max_examples=25)
@given(order=st.permutations(range(6)))
def test_dx_ignores_the_order_of_removals(order: list[int]) -> None:
    placement, other = DxHash(named(10)), DxHash(named(10))
    for number in order[:4]:
        placement.remove(f"n{number}")
    for number in sorted(order[:4]):
        other.remove(f"n{number}")
    assert np.array_equal(placement.place_many(MANY[:500]), other.place_many(MANY[:500]))


def test_anchor_stays_even_with_most_buckets_removed() -> None:
    placement = AnchorHash(named(40))
    for number in range(30):
        placement.remove(f"n{number}")
    counts = np.bincount(placement.place_many(MANY), minlength=10)
    assert abs(chi_square(counts, np.full(10, 0.1))) < SIGMAS
