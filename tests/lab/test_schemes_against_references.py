"""Every scheme against its naive reference, through any history; no key moves between old nodes.

Every check is also shown to fail, on a planted scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chord.lab.hashing import SPAN, Hashes, mix
from chord.lab.placement import Numbers, Placement, UnsupportedChange
from chord.lab.schemes import SCHEMES
from chord.lab.schemes.anchor import AnchorHash
from chord.lab.schemes.dx import DxHash
from chord.lab.schemes.jump import Jump, NaiveJump
from chord.lab.schemes.maglev import Maglev
from chord.lab.schemes.multi_probe import MultiProbe
from chord.lab.schemes.numbered import Fibonacci, Mod, ModFactor
from chord.lab.schemes.rendezvous import Rendezvous, WeightedRendezvous
from chord.lab.schemes.rendezvous_tree import RendezvousTree
from chord.lab.schemes.ring import RingScheme
from chord.lab.schemes.ring_tree import TreeRing
from chord.lab.schemes.sections import Directory, Sections, TwoLevelSections
from chord.lab.schemes.trie import BitTrie
from tests.lab import references
from tests.lab.kinds import schemes_with
from tests.lab.movement import moved_between_old_nodes, snapshot
from tests.lab.references import Reference

Build = Callable[..., Placement]


class Case(NamedTuple):
    """A scheme, small enough for its reference."""

    build: Build
    reference: type[Reference]


CASES: dict[str, Case] = {
    "mod": Case(Mod, references.remainder),
    "mod-factor": Case(ModFactor, references.remainder),
    "trie": Case(BitTrie, references.Trie),
    "sections": Case(partial(Sections, sections=64), references.Cards),
    "sections-2": Case(partial(TwoLevelSections, sections=64, parts=8), references.Cards),
    "rendezvous": Case(Rendezvous, references.rendezvous),
    "rendezvous-weighted": Case(WeightedRendezvous, references.rendezvous_weighted),
    "rendezvous-tree": Case(partial(RendezvousTree, fanout=2, levels=2), references.Skeleton),
    "ring": Case(RingScheme, references.ring(1)),
    "ring-tree": Case(partial(TreeRing, vnodes=3), references.ring(3)),
    "ring-100": Case(partial(RingScheme, vnodes=7), references.ring(7)),
    "multi-probe": Case(partial(MultiProbe, probes=5), references.multi_probe(5)),
    "jump-naive": Case(NaiveJump, references.jump_naive),
    "jump": Case(Jump, references.jump),
    "fibonacci": Case(Fibonacci, references.fibonacci),
    "fibonacci-range": Case(partial(Fibonacci, reduce="range"), references.fibonacci_range),
    "maglev": Case(partial(Maglev, slots=37), references.maglev(37)),
    "anchor": Case(AnchorHash, references.Anchor),
    "dx": Case(DxHash, references.Dx),
    "directory": Case(partial(Directory, sections=64), references.Cards),
}

ELSEWHERE = {
    "static": "test_numbered_schemes.py",
    "extendible": "test_numbered_schemes.py",
    "ring-1000": "ring-100 is the same",
    "ring-bounded": "test_rings.py",
    "chord": "test_chord_ring.py",
}

EDGES = [0, 1, SPAN // 2 - 1, SPAN // 2, SPAN - 1]


class Step(NamedTuple):
    """A change: the name and weight of a newcomer, or the node that leaves."""

    kind: str
    which: int
    weight: float


STEPS = st.lists(
    st.builds(
        Step, st.sampled_from(["add", "remove", "remove"]), st.integers(0, 99), st.sampled_from([0.5, 1.0, 2.0, 3.0])
    ),
    max_size=8,
)


def named(count: int) -> list[str]:
    return [f"node-{number}" for number in range(count)]


def sample(placement: Placement, seed: int) -> Hashes:
    """Return random hashes and the edge cases: the ends of the range, and the points of a ring with neighbours."""
    rng = np.random.Generator(np.random.PCG64(seed))
    special = list(EDGES)
    if isinstance(placement, RingScheme):
        of_all = np.concatenate([placement.points_of(node) for node in placement.nodes])[:20]
        special += [(int(point) + step) % SPAN for point in of_all for step in (-1, 0, 1)]
    return np.concatenate([rng.integers(0, SPAN, 40, dtype=np.uint64), np.array(special, dtype=np.uint64)])


def agree(placement: Placement, reference: Reference, hashes: Hashes) -> None:
    assert list(placement.nodes) == reference.nodes
    many = placement.place_many(hashes)
    assert many.dtype == np.intp
    for point, number in zip(hashes.tolist(), many.tolist(), strict=True):
        assert placement.nodes[number] == reference.owner(point), (point, placement)
        assert placement.locate(point) == number, (point, placement)


def live(build: Build, reference_of: type[Reference], count: int, steps: list[Step], seed: int) -> None:
    """Go through a history with a scheme and its reference, and compare the two after every change."""
    weights = {}
    if build(["a"]).has_weights:
        weights = {f"node-{step.which}": step.weight for step in steps if step.which < count}
    placement, reference = build(named(count), weights=weights), reference_of(named(count), weights)
    agree(placement, reference, sample(placement, seed))
    for number, (kind, which, weight) in enumerate(steps):
        hashes = sample(placement, seed + number)
        before = snapshot(placement, hashes)
        if placement.growth == "factor":
            live_by_factors(placement, reference, kind, which, number)
            agree(placement, reference, hashes)
            assert moved_between_old_nodes(before, snapshot(placement, hashes)) == 0
            continue
        node = f"new-{number}" if kind == "add" else placement.nodes[which % len(placement.nodes)]
        weight = weight if placement.has_weights else 1.0
        try:
            placement.add(node, weight) if kind == "add" else placement.remove(node)
        except UnsupportedChange:
            assert snapshot(placement, hashes) == before, "a change that was refused has changed something"
            continue
        reference.add(node, weight) if kind == "add" else reference.remove(node)
        agree(placement, reference, sample(placement, seed + number))
        if placement.is_consistent:
            assert moved_between_old_nodes(before, snapshot(placement, hashes)) == 0


MOST = 100


def live_by_factors(placement: Placement, reference: Reference, kind: str, which: int, number: int) -> None:
    """Grow or shrink by a whole factor of 2 to 4, if one is possible."""
    was = len(placement.nodes)
    if kind == "add":
        newcomers = [f"new-{number}-{k}" for k in range((1 + which % 3) * was)] if was <= MOST // 4 else []
        placement.grow(newcomers)
        for node in newcomers:
            reference.add(node)
    else:
        parts = [factor for factor in (2, 3, 4) if was % factor == 0]
        stay = was // parts[which % len(parts)] if parts else was
        gone = list(placement.nodes[stay:])
        if gone:
            placement.shrink(gone)
        for node in reversed(gone):
            reference.remove(node)


def test_history_of_growth_by_factors_changes_the_size() -> None:
    placement, sizes = ModFactor(named(3)), []
    reference = CASES["mod-factor"].reference(named(3), {})
    for number, (kind, which) in enumerate([("add", 0), ("add", 1), ("remove", 1), ("remove", 0), ("remove", 0)]):
        live_by_factors(placement, reference, kind, which, number)
        agree(placement, reference, sample(placement, number))
        sizes.append(len(placement.nodes))
    assert sizes == [6, 18, 6, 3, 1]


class UnpairedFactor(ModFactor):
    """Planted: newcomers stand before the others, so that keys are dealt anew."""

    def grow(self, nodes: Sequence[str]) -> None:
        super().grow(nodes)
        self._nodes = [*self._nodes[-len(nodes) :], *self._nodes[: -len(nodes)]] if nodes else self._nodes


class ShufflingFactor(ModFactor):
    """Planted: keys of one node in two change sides when there are more."""

    def place_many(self, hashes: Hashes) -> Numbers:
        return super().place_many(hashes // np.uint64(len(self._nodes)))


@pytest.mark.parametrize("build", [UnpairedFactor, ShufflingFactor])
def test_planted_growth_that_deals_anew_is_caught(build: Build) -> None:
    with pytest.raises(AssertionError):
        live(build, CASES["mod-factor"].reference, 3, [Step("add", 0, 1.0), Step("remove", 0, 1.0)], 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@settings(max_examples=30)
@given(count=st.integers(1, 9), steps=STEPS, seed=st.integers(0, 2**32))
def test_scheme_equals_its_reference_through_any_history(name: str, count: int, steps: list[Step], seed: int) -> None:
    live(*CASES[name], count, steps, seed)


def test_every_scheme_has_a_reference() -> None:
    assert list(SCHEMES) == [name for name in SCHEMES if name in CASES or name in ELSEWHERE]
    assert set(CASES) | set(ELSEWHERE) == set(SCHEMES)


# -- 0 keys between old nodes ---------------------------------------------------------------------------

MANY = np.random.Generator(np.random.PCG64(7)).integers(0, SPAN, 20_000, dtype=np.uint64)


def changes(build: Build, count: int) -> list[tuple[str, Callable[[Placement], None]]]:
    """Return the changes that a scheme with this number of nodes supports."""
    kind = build(["a"])
    newcomers = [f"new-{number}" for number in range(count)]
    if kind.growth in ("factor", "double"):
        last = named(count)[count // 2 :]
        return [("grow", lambda p: p.grow(newcomers)), ("shrink", lambda p: p.shrink(last))]
    found: list[tuple[str, Callable[[Placement], None]]] = [("replace", lambda p: p.replace("node-1", "new-0"))]
    if kind.growth == "one":
        found.append(("add", lambda p: p.add("new-0")))
        gone = named(count)[::3] if kind.can_remove else [f"node-{count - 1}"]
        found += [(f"remove {node}", partial(lambda node, p: p.remove(node), node)) for node in gone]
    return found


def stray(build: Build, count: int = 16) -> dict[str, int]:
    """Return for each kind of change the number of 20,000 keys that moved between old nodes."""
    found = {}
    for name, change in changes(build, count):
        placement = build(named(count))
        before = snapshot(placement, MANY)
        change(placement)
        after = snapshot(placement, MANY)
        assert before != after, f"{name} has moved nothing at all"
        found[name] = moved_between_old_nodes(before, after)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", schemes_with(lambda scheme: scheme.is_consistent))
def test_consistent_scheme_moves_no_key_between_old_nodes(name: str) -> None:
    assert set(stray(SCHEMES[name]).values()) == {0}


@pytest.mark.slow
@pytest.mark.parametrize("name", schemes_with(lambda scheme: not scheme.is_consistent))
def test_inconsistent_scheme_moves_keys_between_old_nodes(name: str) -> None:
    found = stray(SCHEMES[name])
    assert found.pop("replace", 0) >= 0
    assert all(found.values()), found


class NumberedRing(RingScheme):
    """Planted: points belong to numbers, so a removal deletes the last points and reassigns the others."""

    def _remove(self, number: int) -> None:
        super()._remove(len(self._nodes) - 1)


class ShiftingJump(Jump):
    """Planted: any node may leave, and later nodes move up."""

    can_remove = True

    def _remove(self, number: int) -> None:
        pass


class RedealtSections(Sections):
    """Planted: every newcomer makes the map anew."""

    def _add(self, node: str, weight: float) -> None:
        self._nodes.append(node)
        self._weights.append(weight)
        self._build()
        del self._nodes[-1], self._weights[-1]


class NumberedRendezvous(Rendezvous):
    """Planted: bids by number instead of name."""

    def _bids(self, hashes: Hashes, numbers: int | slice) -> Hashes:
        return mix(hashes + np.arange(len(self._seeds), dtype=np.uint64)[numbers])


class ForgetfulAnchor(AnchorHash):
    """Planted: a removed bucket rehashes among the present buckets, not among those that stayed at its removal."""

    def place_many(self, hashes: Hashes) -> Numbers:
        buckets = (hashes % np.uint64(self.capacity)).astype(np.intp)
        lost = np.flatnonzero(self._left[buckets])
        mixed = mix(hashes[lost], (buckets[lost] + 1).astype(np.uint64))
        buckets[lost] = self._working[(mixed % np.uint64(self._works)).astype(np.intp)]
        return self._number_of[buckets].astype(np.intp)


class RestlessDx(DxHash):
    """Planted: the sequence depends on how many nodes there are."""

    def place_many(self, hashes: Hashes) -> Numbers:
        return super().place_many(mix(hashes, len(self._nodes)))


class EvictingTrie(BitTrie):
    """Planted: when a leaf goes, the numbers of the others are mixed up."""

    def remove(self, node: str) -> None:
        number = self._number(node)
        self._leaves = [leaf._replace(number=(number + 5) % 15 if leaf.number == number else leaf.number % 15)
                        for leaf in self._leaves]  # fmt: skip
        del self._nodes[number], self._weights[number]
        self._index()


PLANTED: list[Build] = [
    NumberedRing,
    ShiftingJump,
    RedealtSections,
    NumberedRendezvous,
    ForgetfulAnchor,
    RestlessDx,
    EvictingTrie,
    type("UnfairMod", (Mod,), {"is_consistent": True}),
    type("ImpatientMaglev", (Maglev,), {"is_consistent": True}),
]


@pytest.mark.slow
@pytest.mark.parametrize("build", PLANTED, ids=lambda build: build.__name__)
def test_planted_inconsistent_scheme_is_caught(build: Build) -> None:
    assert sum(stray(build).values()) > 0


class LateRing(RingScheme):
    """Planted: a key that hashes to a point goes to the next one."""

    def _following(self, hashes: Hashes) -> Numbers:
        return np.searchsorted(self._points, hashes, side="right") % len(self._points)


class RoundedJump(Jump):
    """Planted: half the precision in the array's arithmetic."""

    def place_many(self, hashes: Hashes) -> Numbers:
        return super().place_many(hashes & np.uint64(SPAN - 2**40))


class TimidWeights(WeightedRendezvous):
    """Planted: multiplies by the weight instead of dividing."""

    def _costs(self, hashes: Hashes, numbers: int | slice) -> Any:
        return super()._costs(hashes, numbers) * np.square(self._weights[numbers])


class UncorrectedMaglev(Maglev):
    """Planted: nodes take turns in the order they came."""

    def _fill(self, nodes: Any, weights: Any) -> Any:
        alias = sorted(nodes, reverse=True)
        return super()._fill([alias[number] for number in range(len(nodes))], weights)


WRONG: list[tuple[Build, str]] = [
    (LateRing, "ring"),
    (RoundedJump, "jump"),
    (TimidWeights, "rendezvous-weighted"),
    (partial(UncorrectedMaglev, slots=37), "maglev"),
    (ForgetfulAnchor, "anchor"),
    (NumberedRendezvous, "rendezvous"),
    (partial(NumberedRing, vnodes=7), "ring-100"),
    (partial(RedealtSections, sections=64), "sections"),
]


@pytest.mark.parametrize(("build", "name"), WRONG, ids=lambda value: value if isinstance(value, str) else None)
def test_planted_mistake_is_caught_by_the_reference(build: Build, name: str) -> None:
    history = [Step("add", 2, 3.0), Step("remove", 3, 1.0), Step("remove", 1, 1.0), Step("add", 1, 2.0)]
    live(*CASES[name], 8, history, 1)
    with pytest.raises(AssertionError):
        live(build, CASES[name].reference, 8, history, 1)
