"""The membership list: merging in any order, bounds, slices, and the order of successors."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chord.ids import Circle, Point, vnode_id
from chord.ring import members as module
from chord.ring.members import Members, Slice, digest, fingerprint, is_valid, order, pages_of
from chord.wire.messages import SUM_BYTES, MemberEntry, MemberState

CIRCLE = Circle(16)
ADDRESSES = tuple(f"10.0.0.{number}:9000" for number in range(6))


def an_entry(
    address: str, start: int = 1, count: int = 0, state: MemberState = "alive", vnodes: int = 2
) -> MemberEntry:
    points = sorted({vnode_id(CIRCLE, address, index) for index in range(vnodes)})
    return MemberEntry(address, start, count, state, tuple(points) if state == "alive" else ())


@st.composite
def entries(draw: st.DrawFn) -> MemberEntry:
    state: MemberState = draw(st.sampled_from(("alive", "silent", "left")))
    numbers = (draw(st.integers(0, 2)), draw(st.integers(0, 2)))
    return an_entry(draw(st.sampled_from(ADDRESSES)), *numbers, state, draw(st.integers(1, 3)))


def a_list(found: Iterable[MemberEntry], size_max: int = 100) -> Members:
    made = Members(CIRCLE, size_max)
    for entry in found:
        made.learn(entry, 0.0)
    return made


def ring_of(count: int) -> Members:
    return a_list((an_entry(f"h{number}:1") for number in range(count)), 4096)


def content(members: Members) -> set[MemberEntry]:
    return set(members)


def merged(one: Members, other: Members) -> Members:
    made = one.copy()
    for entry in other:
        made.learn(entry, 0.0)
    return made


lists = st.lists(entries(), max_size=12)


@given(lists, lists)
def test_merge_is_commutative(one: list[MemberEntry], other: list[MemberEntry]) -> None:
    a, b = a_list(one), a_list(other)
    assert content(merged(a, b)) == content(merged(b, a))
    assert merged(a, b).version == merged(b, a).version


@given(lists, lists, lists)
def test_merge_is_associative(one: list[MemberEntry], other: list[MemberEntry], third: list[MemberEntry]) -> None:
    a, b, c = a_list(one), a_list(other), a_list(third)
    assert content(merged(merged(a, b), c)) == content(merged(a, merged(b, c)))


@given(lists)
def test_merge_is_idempotent(one: list[MemberEntry]) -> None:
    a = a_list(one)
    assert not any(a.learn(entry, 0.0) for entry in [*a, *one])
    assert content(merged(a, a)) == content(a)


@given(lists)
def test_list_keeps_the_latest_entry_of_each_node(found: list[MemberEntry]) -> None:
    members = a_list(found)
    for address in {entry.address for entry in found}:
        assert members.get(address) == max((e for e in found if e.address == address), key=order)
    assert len(members) == len(content(members)) == len({entry.address for entry in found})
    assert members.alive == sum(entry.state == "alive" for entry in members)


@given(lists, st.integers(0, 5))
def test_sums_and_slices_do_not_depend_on_the_cut(found: list[MemberEntry], bits: int) -> None:
    """A list that is cut into more slices gives the same sums and fingerprints."""
    members, larger = a_list(found), Members(CIRCLE)
    larger._bits, larger._slices = 4, [Slice.of(())] * 16
    for entry in members:
        larger._put_all(entry)
    assert larger.sums(bits) == members.sums(bits)
    for index in range(1 << bits):
        assert larger.in_slice(bits, index) == members.in_slice(bits, index)
    assert {e for i in range(1 << bits) for e in members.in_slice(bits, i).values()} == content(members)


def test_merge_by_the_last_word_is_not_commutative(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: the later message wins."""
    monkeypatch.setattr(module, "order", lambda entry: entry.start)
    a, b = a_list([an_entry("h:1")]), a_list([an_entry("h:1", state="silent")])
    assert content(merged(a, b)) != content(merged(b, a))


def test_successors_follow_the_circle_and_skip_the_silent() -> None:
    members = ring_of(40)
    members.learn(an_entry("h7:1", state="silent"), 0.0)
    points = sorted((point, entry.address) for entry in members for point in entry.vnodes)
    assert "h7:1" not in {address for _, address in points}
    for start in (0, points[5][0], points[5][0] + 1, CIRCLE.size - 1):
        expected = [p for p in points if p[0] >= start] + [p for p in points if p[0] < start]
        assert [(contact.id, contact.address) for contact in members.successors(start)] == expected


def test_full_list_replaces_only_nodes_that_are_gone() -> None:
    members = a_list([an_entry(f"h{n}:1") for n in range(4)], size_max=4)
    assert members.is_full
    assert not members.learn(an_entry("h9:1"), 0.0)
    members.learn(an_entry("h2:1", state="left"), 0.0)
    assert members.learn(an_entry("h9:1"), 0.0)
    assert (len(members), members.get("h2:1")) == (4, None)


def test_gone_node_fades_and_does_not_return_by_old_entries() -> None:
    members = a_list([an_entry("a:1"), an_entry("b:1")])
    members.learn(an_entry("b:1", state="silent"), 10.0)
    members.expire(10.0 + 301, 600.0)
    assert len(members) == 1, "it takes no part in comparisons"
    assert not members.learn(an_entry("b:1"), 312.0)
    assert not members.learn(an_entry("b:1", state="silent"), 312.0)
    members.expire(10.0 + 601, 600.0)
    assert members.get("b:1") is None
    assert members.learn(an_entry("b:1", start=2), 612.0)


@pytest.mark.parametrize("entry", [
    MemberEntry("h:1", 1, 0, "alive"),
    MemberEntry("h:1", 1, 0, "silent", (Point(4),)),
    MemberEntry("h:1", 1, 0, "alive", (Point(5), Point(4))),
    MemberEntry("h:1", 1, 0, "alive", (Point(4), Point(4))),
])  # fmt: skip
def test_entry_of_another_form_is_refused(entry: MemberEntry) -> None:
    assert not is_valid(entry)
    assert not a_list([]).learn(entry, 0.0)


def test_equal_slices_are_one_object() -> None:
    one, other = ring_of(300), ring_of(300)
    assert all(a is b for a, b in zip(one._slices, other._slices, strict=True))
    other.learn(an_entry("h7:1", state="silent"), 0.0)
    different = sum(a is not b for a, b in zip(one._slices, other._slices, strict=True))
    assert 1 <= different <= 3


def test_draws_reach_every_living_member() -> None:
    members, rng = ring_of(40), random.Random(1)
    members.learn(an_entry("h7:1", state="silent"), 0.0)
    drawn = [members.draw(rng.randrange) for _ in range(800)]
    assert {entry.address for entry in drawn if entry} == {entry.address for entry in members if entry.vnodes}
    assert a_list([]).draw(rng.randrange) is None


def test_pages_have_bounded_sizes_and_every_entry() -> None:
    found = [an_entry(f"h{number}:1") for number in range(50)]
    pages = list(pages_of(found, 500))
    assert [entry for page in pages for entry in page] == found
    assert max(len(page) for page in pages) <= 7
    assert len(ring_of(3).sums(0)) == SUM_BYTES
    assert len({fingerprint(entry) for entry in found}) == 50


def test_change_of_an_entry_reads_few_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    members = a_list((an_entry(f"h{number}:1", vnodes=32) for number in range(60)), 4096)
    found: list[MemberEntry] = []

    def counted(entry: MemberEntry) -> bytes:
        found.append(entry)
        return digest(entry)

    monkeypatch.setattr(module, "digest", counted)
    assert members.learn(an_entry("h7:1", count=1, vnodes=32), 0.0)
    assert len(found) <= 2 * len(members._slices)
    assert [piece.sum for piece in members._slices] == [
        sum(int.from_bytes(digest(entry), "big") for _, entry in piece.places) % (1 << 8 * SUM_BYTES)
        for piece in members._slices
    ]
