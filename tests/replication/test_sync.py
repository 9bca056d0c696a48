"""Replica sync: any two stores, interrupted at any call, with few bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from chord.config import Limits
from chord.errors import Busy, DeadlineExceeded, InvalidRequest, MalformedMessage, PeerLost
from chord.ids import Arc, Circle, Point
from chord.replication import reap_log_sync, replica, sync
from chord.replication.reap_log_sync import NUMBERS_MAX, fitting
from chord.replication.sync import ReplicaSync, SyncOutcome, TokenBucket
from chord.ring.context import PAGE_RECORDS_IDLE, NodeContext
from chord.store import versions
from chord.store.merkle import digest_of
from chord.store.reap_log import ReapLog
from chord.store.reap_log_state import MAKER, SliceState, encode, state_name
from chord.store.storage import Batch, MemoryStorage
from chord.wire.messages import (
    ACTORS_HELD_MAX,
    PAGE_RECORDS_MAX,
    SLICES_ASKED_MAX,
    ActorClock,
    GetCopies,
    GetCopiesReply,
    GetHeads,
    GetHeadsReply,
    GetSums,
    GetSumsReply,
    Head,
    Record,
    Reply,
    Request,
    StoreCopies,
    Version,
    wire_bytes,
)
from tests.support.quorum import durable_by_commit
from tests.support.replica_pair import Clocks, Side, Wire, pair, run

TOP = Point((1 << 160) - 1)
EVERYTHING = Arc(TOP, TOP)
KEYS = [b"key-%d" % number for number in range(12)]

# -- any two stores ---------------------------------------------------------------------------------

Step = tuple[str, str, bytes]


def histories() -> st.SearchStrategy[list[Step]]:
    """Draw the events of both sides: writes, writes without a context, deletes, copies to the other, lost records."""
    event = st.sampled_from(["put", "no context", "delete", "copy", "lose"])
    return st.lists(st.tuples(st.sampled_from("ab"), event, st.sampled_from(KEYS)), max_size=40)


def happened(a: Side, b: Side, steps: Sequence[Step]) -> None:
    lost: set[tuple[Side, bytes]] = set()
    for side, event, key in steps:
        me, other = (a, b) if side == "a" else (b, a)
        if event == "copy":
            record = me.storage.get(key)
            if record is not None:
                other.store(synced(other.storage.get(key), record))
        elif event == "lose":
            me.drop(key)
            lost.add((me, key))  # a node without its clock would mint under another epoch
        elif (me, key) not in lost:
            me.put(key, None if event == "delete" else b"v", {} if event == "no context" else None)


def synced(mine: Record | None, theirs: Record | None) -> Record:
    if mine is None or theirs is None:
        found = mine or theirs
        assert found is not None
        return found
    return versions.sync(mine, theirs)


def merged(a: Clocks, b: Clocks, arc: Arc, side: Side) -> Clocks:
    """Return the merge of both stores inside the arc."""
    hash_ = side.host.circle.hash
    return {k: synced(a.get(k), b.get(k)) for k in sorted({*a, *b}) if hash_(k) in arc}


def outside(clocks: Clocks, arc: Arc, side: Side) -> Clocks:
    return {key: record for key, record in clocks.items() if side.host.circle.hash(key) not in arc}


def arcs(bits: int) -> st.SearchStrategy[Arc]:
    point = st.integers(0, (1 << bits) - 1).map(Point)
    return st.builds(Arc, point, point)


def cases() -> st.SearchStrategy[tuple[int, Arc, list[Step]]]:
    return st.sampled_from([3, 5, 8, 160]).flatmap(lambda bits: st.tuples(st.just(bits), arcs(bits), histories()))


def check_inside(side: Side, expected: Clocks, arc: Arc) -> None:
    assert {k: r for k, r in side.clocks().items() if side.host.circle.hash(k) in arc} == expected


Limited = tuple[bool, bool]


def limits() -> st.SearchStrategy[Limited]:
    """Draw two switches: list few records at once, as for large stores; use tiny pages."""
    return st.tuples(st.booleans(), st.booleans())


@contextmanager
def limited(by: Limited) -> Iterator[None]:
    is_narrowed, is_paged = by
    with pytest.MonkeyPatch.context() as patch:
        if is_narrowed:
            patch.setattr(sync, "LISTED_MAX", 1)
            patch.setattr(sync, "FEW_MAX", 1)
        if is_paged:
            patch.setattr(replica, "HEADS_MAX", 2)
            patch.setattr(NodeContext, "page_records", 2)
        yield


async def sync_all(a: Side, b: Side, arc: Arc) -> None:
    before_a, before_b = a.clocks(), b.clocks()
    expected = merged(before_a, before_b, arc, a)
    outcome = await a.replica_sync.with_partner(b.contact, arc)
    assert outcome.is_equal
    assert outcome.share == 1.0
    check_inside(a, expected, arc)
    check_inside(b, expected, arc)
    assert outside(a.clocks(), arc, a) == outside(before_a, arc, a), "records outside the arc stay as they are"
    assert outside(b.clocks(), arc, b) == outside(before_b, arc, b)
    assert outcome.pulled == sum(before_a.get(k) != r for k, r in expected.items()), "each record once"
    assert outcome.pushed == sum(before_b.get(k) != r for k, r in expected.items())


@pytest.mark.slow
@given(by=limits(), case=cases())
def test_sync_of_any_two_stores_merges_both(by: Limited, case: tuple[int, Arc, list[Step]]) -> None:
    bits, arc, steps = case
    a, b, _ = pair(bits)
    happened(a, b, steps)
    with limited(by):
        run(sync_all, a, b, arc)


@pytest.mark.slow
@given(by=limits(), case=cases(), is_push=st.booleans())
def test_one_way_sync_changes_only_one_side(by: Limited, case: tuple[int, Arc, list[Step]], is_push: bool) -> None:
    bits, arc, steps = case
    a, b, wire = pair(bits)
    happened(a, b, steps)
    giver, taker = (a, b) if is_push else (b, a)
    before, expected = giver.clocks(), taker.clocks()
    for key, record in before.items():
        if a.host.circle.hash(key) in arc:
            expected[key] = synced(expected.get(key), record)
    with limited(by):
        outcome = run(one_way, a, b, arc, is_push)
    assert giver.clocks() == before
    assert taker.clocks() == expected
    assert outcome.is_equal == (merged(before, expected, arc, a) == merged(before, before, arc, a))
    assert not any(isinstance(call, GetCopies if is_push else StoreCopies) for call in wire.calls)
    sent = [record.key for call in wire.calls if isinstance(call, StoreCopies) for record in call.records]
    assert len(sent) == len(set(sent)), "no record is sent twice, even if the partner's copy has more versions"


async def one_way(a: Side, b: Side, arc: Arc, is_push: bool) -> SyncOutcome:
    return await a.replica_sync.with_partner(b.contact, arc, push=is_push, pull=not is_push)


@pytest.mark.slow
@given(by=limits(), case=cases(), fails_at=st.integers(0, 12), is_after=st.booleans())
def test_sync_interrupted_at_any_call_loses_nothing(
    by: Limited, case: tuple[int, Arc, list[Step]], fails_at: int, is_after: bool
) -> None:
    bits, arc, steps = case
    a, b, wire = pair(bits)
    happened(a, b, steps)
    before_a, before_b = a.clocks(), b.clocks()
    expected = merged(before_a, before_b, EVERYTHING if bits == 160 else Arc(Point(0), Point(0)), a)

    def fail(request: Request, reply: Reply | None = None) -> None:
        if len(wire.calls) > fails_at:
            raise PeerLost("cut")

    wire.before, wire.after = (wire.before, fail) if is_after else (fail, wire.after)
    try:
        with limited(by):
            run(sync_all, a, b, arc)
    except PeerLost:
        for side, before in ((a, before_a), (b, before_b)):
            now = side.clocks()
            assert before.keys() <= now.keys()
            for key, record in now.items():
                assert record in (before.get(key), before_a.get(key), before_b.get(key), expected[key])
                assert key not in before or versions.sync(before[key], record) == record, "a store may lose no version"
    wire.before, wire.after = (lambda request: None), (lambda request, reply: None)
    run(sync_all, a, b, arc)


# -- few bytes ---------------------------------------------------------------------------------------


def full_pair(count: int) -> tuple[Side, Side, Wire]:
    a, b, wire = pair()
    for number in range(count):
        record = a.put(b"user:%08d" % number, b"x" * 20)
        b.store(record)
    return a, b, wire


async def test_sync_of_equal_stores_makes_one_call() -> None:
    a, b, wire = full_pair(500)
    arc = Arc(Point(5), Point(1 << 158))
    outcome = await a.replica_sync.with_partner(b.contact, arc)
    assert outcome == SyncOutcome(share=1.0, is_equal=True)
    assert [type(call) for call in wire.calls] == [GetSums]
    assert wire.bytes < 200


@pytest.mark.slow
@pytest.mark.parametrize("change", ["newer here", "newer there", "only here", "only there", "concurrent", "deleted"])
async def test_sync_finds_one_differing_record_with_few_bytes(change: str, autojump_clock: object) -> None:
    a, b, wire = full_pair(5_000)
    key = b"user:00004711"
    {
        "newer here": lambda: a.put(key, b"new"),
        "newer there": lambda: b.put(key, b"new"),
        "only here": lambda: b.drop(key),
        "only there": lambda: a.drop(key),
        "concurrent": lambda: (a.put(key, b"one"), b.put(key, b"two")),
        "deleted": lambda: b.put(key, None),
    }[change]()
    expected = synced(a.storage.get(key), b.storage.get(key))
    outcome = await a.replica_sync.with_partner(b.contact, EVERYTHING)
    assert outcome.is_equal
    assert a.storage.get(key) == b.storage.get(key) == expected
    assert (outcome.pulled, outcome.pushed) == {
        "newer here": (0, 1),
        "newer there": (1, 0),
        "only here": (0, 1),
        "only there": (1, 0),
        "concurrent": (1, 1),
        "deleted": (1, 0),
    }[change]
    assert wire.bytes < 20_000
    assert len(wire.calls) <= 7
    assert {type(call) for call in wire.calls} >= {GetSums, GetHeads}


async def test_sync_fills_an_empty_replica_page_by_page(autojump_clock: object) -> None:
    a, b, wire = pair()
    for number in range(2000):
        b.put(b"user:%08d" % number, bytes(50))
    shares: list[float] = []
    outcome = await a.replica_sync.with_partner(b.contact, EVERYTHING, progress=lambda o: shares.append(o.share))
    assert a.clocks() == b.clocks()
    assert (outcome.pulled, outcome.pushed) == (2000, 0)
    assert outcome.bytes == sum(wire_bytes(record) for record in a.clocks().values())
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    assert 0.2 < shares[len(shares) // 2] < 0.8, "the progress is reported on the way"
    assert len([call for call in wire.calls if isinstance(call, GetHeads)]) == 4
    back = await b.replica_sync.with_partner(a.contact, EVERYTHING)
    assert back.is_equal


async def test_sync_keeps_frames_within_bounds_for_any_record_size(autojump_clock: object) -> None:
    limits = Limits()
    a, b, wire = pair(limits=limits)
    for number in range(5):  # more than the number of passes
        a.put(b"large-%d" % number, bytes(limits.value_bytes_max))
        b.put(b"vast-%d" % number, bytes(limits.value_bytes_max))
    for number in range(300):
        a.put(bytes(1000) + b"%d" % number, None)
    assert (await a.replica_sync.with_partner(b.contact, EVERYTHING)).is_equal
    assert a.clocks() == b.clocks()
    assert all(len(call.records) <= PAGE_RECORDS_IDLE for call in wire.calls if isinstance(call, StoreCopies))


async def test_get_copies_answers_what_fits_and_is_asked_again(autojump_clock: object) -> None:
    a, b, wire = pair()
    for number in range(5):
        b.put(b"vast-%d" % number, bytes(1 << 20))
    outcome = await a.replica_sync.with_partner(b.contact, EVERYTHING)
    assert a.clocks() == b.clocks()
    assert outcome.is_equal
    assert [len(call.keys) for call in wire.calls if isinstance(call, GetCopies)] == [5, 4, 3, 2, 1]


async def test_get_heads_lists_long_keys_in_small_pages(autojump_clock: object) -> None:
    a, b, wire = pair()
    for number in range(300):
        b.put(b"%01024d" % number, b"x")
    sizes: list[int] = []

    def measure(request: Request, reply: Reply) -> None:
        if isinstance(reply, GetHeadsReply):
            sizes.append(sum(len(head.key) for head in reply.heads))

    wire.after = measure
    assert (await a.replica_sync.with_partner(b.contact, EVERYTHING)).pulled == 300
    assert len(sizes) > 4
    assert max(sizes) <= b.host.limits.page_bytes


# -- while others write --------------------------------------------------------------------------------


async def test_sync_during_writes_loses_nothing_and_ends(autojump_clock: object) -> None:
    a, b, wire = full_pair(300)
    for number in range(0, 300, 7):
        a.put(b"user:%08d" % number, b"newer")

    def write(request: Request, reply: Reply) -> None:
        number = len(wire.calls)
        side = a if number % 2 else b
        side.put(b"user:%08d" % (number * 13 % 300), b"again %d" % number)

    wire.after = write
    before = merged(a.clocks(), b.clocks(), EVERYTHING, a)
    await a.replica_sync.with_partner(b.contact, EVERYTHING)
    for key, record in before.items():
        for side in (a, b):
            held = side.storage.get(key)
            assert held is not None
            assert versions.sync(held, record) == held, "both have every version from the beginning of the sync"
    assert len(wire.calls) < 100
    wire.after = lambda request, reply: None
    assert (await a.replica_sync.with_partner(b.contact, EVERYTHING)).is_equal
    assert a.clocks() == b.clocks()


async def test_write_behind_the_comparison_is_found_by_the_next_pass(autojump_clock: object) -> None:
    a, b, wire = full_pair(300)
    a.put(b"user:00000001", b"newer")

    def write(request: Request) -> None:
        if isinstance(request, StoreCopies) and len(wire.calls) < 6:
            b.put(b"user:00000002", b"newer")

    wire.before = write
    outcome = await a.replica_sync.with_partner(b.contact, EVERYTHING)
    assert outcome.is_equal
    assert a.clocks() == b.clocks()
    assert (outcome.pulled, outcome.pushed) == (1, 1)


async def test_difference_that_vanishes_during_sync_moves_nothing() -> None:
    a, b, wire = full_pair(10)
    newer = b.put(b"user:00000003", b"newer")

    def arrive(request: Request) -> None:
        if isinstance(request, GetHeads):
            a.store(newer)

    wire.before = arrive
    outcome = await a.replica_sync.with_partner(b.contact, EVERYTHING)
    assert (outcome.is_equal, outcome.pulled, outcome.pushed) == (True, 0, 0)


# -- proofs --------------------------------------------------------------------------------------------


async def check_proof(a: Side, b: Side, arc: Arc) -> None:
    """Check that the partner holds each proven version, or a later one."""
    held = {key: digest_of(r) for key, r in a.clocks().items() if a.host.circle.hash(key) in arc}
    records = {digest_of(record): record for record in a.clocks().values()}
    proven = await a.replica_sync.prove(b.contact, arc)
    assert proven == held, "the proof covers exactly the records of the arc"
    for key, digest in proven.items():
        theirs = b.storage.get(key)
        assert theirs is not None
        assert versions.sync(theirs, records[digest]) == theirs


@pytest.mark.slow
@given(by=limits(), case=cases())
def test_prove_covers_all_records_of_the_arc(
    by: Limited, case: tuple[int, Arc, list[Step]]
) -> None:
    bits, arc, steps = case
    a, b, wire = pair(bits)
    happened(a, b, steps)
    before = a.clocks()
    with limited(by):
        run(check_proof, a, b, arc)
    assert a.clocks() == before
    assert not any(isinstance(call, GetCopies) for call in wire.calls)


async def test_prove_sends_few_records_without_listing_the_partner(autojump_clock: object) -> None:
    _, b, wire = full_pair(5000)
    hints = [b"hint-%d" % number for number in range(10)]
    a = wire.sides["a:1"]
    for key in list(a.clocks()):
        a.drop(key)
    for key in hints:
        a.put(key, b"x")
    stretches = list(a.storage.digests.stretches(EVERYTHING, 256, a.storage.heads))
    assert len(stretches) == 1
    proven = await a.replica_sync.prove(b.contact, stretches[0])
    assert sorted(proven) == sorted(hints)
    assert [type(call) for call in wire.calls] == [GetSums, StoreCopies]
    assert wire.bytes < 3000


async def test_prove_skips_records_that_are_dropped_meanwhile(autojump_clock: object) -> None:
    a, b, wire = pair()
    keys = [b"hint-%d" % number for number in range(4 * PAGE_RECORDS_MAX)]
    for key in keys:
        a.put(key, b"x")

    def drop(request: Request) -> None:
        if isinstance(request, StoreCopies) and len(a.clocks()) == len(keys):
            sent = {record.key for record in request.records}
            for key in [key for key, _ in a.storage.heads(EVERYTHING) if key not in sent][::2]:
                a.drop(key)

    wire.before = drop
    proven = await a.replica_sync.prove(b.contact, EVERYTHING)
    assert proven == dict(a.storage.heads(EVERYTHING))
    assert a.clocks() == b.clocks()
    sent = [record.key for call in wire.calls if isinstance(call, StoreCopies) for record in call.records]
    assert sorted(sent) == sorted(proven), "each once"


def crowded(key: bytes, side: str) -> Record:
    """Return a record that a store can hold, while the merge of both sides exceeds the bounds."""
    actors = [side.encode() + b"%015d" % number for number in range(ACTORS_HELD_MAX // 2 + 1)]
    return Record(key, tuple(ActorClock(actor, 1, (Version(b"v", actor, 1),)) for actor in actors))


@pytest.mark.parametrize("is_proof", [False, True])
async def test_sync_with_an_unmergeable_record_syncs_the_others(is_proof: bool, autojump_clock: object) -> None:
    a, b, _ = pair()
    for number in range(2 * PAGE_RECORDS_MAX):
        a.put(b"key-%d" % number, b"x")
    a.store(crowded(b"crowded", "a"))
    b.store(crowded(b"crowded", "b"))
    if is_proof:
        proven = await a.replica_sync.prove(b.contact, EVERYTHING)
        assert proven == {key: digest for key, digest in a.storage.heads(EVERYTHING) if key != b"crowded"}
    else:
        with pytest.raises(InvalidRequest, match="nodes have coordinated writes of b'crowded'"):
            await a.replica_sync.with_partner(b.contact, EVERYTHING)
    assert {key for key, record in a.clocks().items() if b.clocks().get(key) != record} == {b"crowded"}


async def test_prove_of_equal_stores_lists_nothing(autojump_clock: object) -> None:
    a, b, wire = full_pair(1000)
    proven: dict[bytes, bytes] = {}
    for stretch in list(a.storage.digests.stretches(EVERYTHING, 256, a.storage.heads)):
        proven |= await a.replica_sync.prove(b.contact, stretch)
    assert proven == dict(a.storage.heads(EVERYTHING))
    assert {type(call) for call in wire.calls} == {GetSums}
    assert wire.bytes < 120_000


CHANGED = b"user:00000003"


def changing_pair(at: type[Request], is_after: bool, is_lacking: bool) -> tuple[Side, Side]:
    """Return a pair of stores with 8 records. One record changes during the proof.

    The partner lacks one record and has another version of a second one. If `is_lacking`, it lacks the changing
    record, too.
    """
    a, b, wire = full_pair(8)
    b.drop(b"user:00000001")
    b.put(b"user:00000002", b"other")
    if is_lacking:
        b.drop(CHANGED)

    def change(request: Request, reply: Reply | None = None) -> None:
        if isinstance(request, at):
            a.put(CHANGED, b"changed in the middle")

    if is_after:
        wire.after = change
    else:
        wire.before = change
    return a, b


async def check_changed(a: Side, b: Side) -> None:
    """Check that each proven digest belongs to a version that the partner holds."""
    proven = await a.replica_sync.prove(b.contact, EVERYTHING)
    for key, digest in proven.items():
        mine, theirs = a.storage.get(key), b.storage.get(key)
        assert mine is not None
        assert theirs is not None
        if digest_of(mine) == digest:
            assert versions.sync(theirs, mine) == theirs, "this store would drop the only copy of the version"


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("at", [GetSums, GetHeads, StoreCopies])
@pytest.mark.parametrize("is_lacking", [False, True])
@pytest.mark.parametrize("few_max", [0, 4])
async def test_prove_returns_no_version_that_the_partner_lacks(
    at: type[Request], is_after: bool, is_lacking: bool, few_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "FEW_MAX", few_max)
    await check_changed(*changing_pair(at, is_after, is_lacking))


# -- durable records ------------------------------------------------------------------------------------


class SlowStorage(MemoryStorage):
    """Storage with records that are durable only after an empty commit."""

    def __init__(self, circle: Circle, incarnation: bytes) -> None:
        super().__init__(circle, incarnation)
        durable_by_commit(self)

    commits = 0
    is_synced = False

    def is_durable(self, key: bytes) -> bool:
        return self.is_synced

    def stage(self, batch: Batch) -> bool:
        self.is_synced &= not batch.puts
        return super().stage(batch) and self.is_synced

    async def commit(self, batch: Batch) -> None:
        if not batch.puts:
            self.commits += 1
            self.is_synced = True
        await super().commit(batch)


@pytest.mark.parametrize("request_type", [GetSums, GetHeads, GetCopies, StoreCopies])
async def test_sync_reports_only_durable_records(request_type: type[Request]) -> None:
    a, b, wire = full_pair(20)
    b.put(b"user:00000001", b"newer")
    a.put(b"user:00000002", b"newer")
    slow = {}
    for side in (a, b):
        slow[side] = SlowStorage(wire.circle, side.storage.incarnation)
        slow[side].apply(Batch(puts=side.storage.scan(EVERYTHING)))
        side.on_disk(slow[side])

    def said(request: Request) -> None:
        for side in slow.values():
            side.is_synced = False
        if isinstance(request, StoreCopies):
            assert slow[a].commits > 0

    def answered(request: Request, reply: Reply) -> None:
        if isinstance(request, request_type):
            assert slow[b].is_synced

    wire.before, wire.after = said, answered
    assert (await a.replica_sync.with_partner(b.contact, EVERYTHING)).is_equal
    assert any(isinstance(call, request_type) for call in wire.calls)


# -- records that were reaped ------------------------------------------------------------------------------


def reaped_pair(limits: Limits | None = None, writes: int = 0) -> tuple[Side, Side, Wire]:
    """Return a pair of stores: one holds a value, the other has deleted and reaped it.

    Args:
        writes: the number of writes before the delete. The record remembers `OTHERS_MAX` replaced operations.
    """
    a, b, wire = pair(limits=limits)
    b.store(a.put(KEYS[0], b"old"))
    for number in range(writes):
        a.put(KEYS[0], b"%d" % number)
    a.put(KEYS[0], None)
    a.reap(KEYS[0])
    return a, b, wire


TRIMMED = Limits(reap_log_entries=0, reap_log_entries_max=0)


@pytest.mark.parametrize(
    ("limits", "writes", "is_hidden"), [(None, 0, False), (None, 20, False), (TRIMMED, 0, False), (TRIMMED, 20, True)]
)
@pytest.mark.parametrize("asker", ["a", "b"])
async def test_sync_does_not_bring_back_a_reaped_record(
    limits: Limits | None, writes: int, is_hidden: bool, asker: str
) -> None:
    """A log entry or an operation's tag decides about the old copy. Without both it is in quarantine."""
    a, b, wire = reaped_pair(limits, writes)
    sides = (a, b) if asker == "a" else (b, a)
    assert (await sides[0].replica_sync.with_partner(sides[1].contact, EVERYTHING)).is_equal
    assert a.storage.get(KEYS[0]) == b.storage.get(KEYS[0])
    held = b.storage.get(KEYS[0])
    assert (held is not None) == is_hidden
    if held is not None:
        assert versions.siblings(held) == []
        assert [version.value for entry in held.quarantine for version in entry.versions] == [b"old"]
    assert a.log.seen_in(EVERYTHING) == b.log.seen_in(EVERYTHING) != ()
    calls = len(wire.calls)
    assert (await sides[0].replica_sync.with_partner(sides[1].contact, EVERYTHING)).is_equal
    assert [type(call) for call in wire.calls[calls:]] == [GetSums], "equal logs take no further call"


@pytest.mark.parametrize("asker", ["a", "b"])
async def test_sync_keeps_a_value_written_after_reaping(asker: str) -> None:
    a, b, _ = reaped_pair()
    new = a.put(KEYS[0], b"new")
    sides = (a, b) if asker == "a" else (b, a)
    assert (await sides[0].replica_sync.with_partner(sides[1].contact, EVERYTHING)).is_equal
    assert a.storage.get(KEYS[0]) == b.storage.get(KEYS[0])
    assert versions.values(new) == [b"new"]
    assert versions.values(a.storage.get(KEYS[0]) or new) == [b"new"]


@pytest.mark.parametrize("request_type", [GetHeads, GetCopies, StoreCopies])
@pytest.mark.parametrize("is_there", [False, True])
async def test_sync_with_a_reap_in_the_middle_syncs_the_logs_again(request_type: type[Request], is_there: bool) -> None:
    a, b, wire = full_pair(20)
    reaped, other = b"user:00000003", b"user:00000004"
    for key in (reaped, other):
        a.put(key, None)
        b.drop(key)
    b.put(b"user:00000005", b"newer")
    side = b if is_there else a
    side.store(synced(side.storage.get(reaped), a.storage.get(reaped)))

    def reap(request: Request) -> None:
        if isinstance(request, request_type) and side.storage.get(reaped) is not None:
            side.reap(reaped)

    wire.before = reap
    await a.replica_sync.with_partner(b.contact, EVERYTHING)
    wire.before = lambda request: None
    assert (await a.replica_sync.with_partner(b.contact, EVERYTHING)).is_equal
    assert a.storage.get(reaped) is b.storage.get(reaped) is None
    assert a.clocks() == b.clocks()


async def test_sync_with_a_partner_that_keeps_reaping_ends() -> None:
    a, b, wire = full_pair(20)
    key = b"user:00000003"
    b.drop(key)
    a.put(key, b"newer")

    def reap(request: Request) -> None:
        if isinstance(request, StoreCopies):
            b.put(key, None)
            b.reap(key)

    wire.before = reap
    with pytest.raises(Busy, match="keep reaping"):
        await a.replica_sync.with_partner(b.contact, EVERYTHING)
    assert sum(isinstance(call, StoreCopies) for call in wire.calls) == sync.LOG_SYNCS_MAX + 1


@pytest.mark.parametrize("makers", [1022, 1023, 1024, 1025])
async def test_sync_of_a_log_with_a_thousand_makers_ends(makers: int) -> None:
    """The makers take 64 bytes each, so 1,023 of them fill a page."""
    a, b, _ = pair()
    for number in range(makers):
        b.storage.apply(Batch(notes={MAKER: b"%08d" % number}))
        b.put(KEYS[0], None)
        b.reap(KEYS[0])
    await a.log_sync.sync(b.contact, EVERYTHING)
    assert a.log.seen_in(EVERYTHING) == b.log.seen_in(EVERYTHING) != ()


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ([1], 1),
        ([NUMBERS_MAX + 1, 0], 1),
        ([NUMBERS_MAX, 0, 1], 2),
        ([NUMBERS_MAX - 1, 1], 2),
        ([NUMBERS_MAX, 1], 1),
        ([NUMBERS_MAX // 64] * SLICES_ASKED_MAX, 64),
        ([0] * (SLICES_ASKED_MAX + 1), 64),
    ],
)
def test_fitting_slices_are_few_enough_and_at_least_one(sizes: list[int], count: int) -> None:
    assert fitting(sizes) == count


def logs_of_makers(makers: int) -> tuple[Side, Side]:
    """Return a pair of stores with many makers in 64 logs. Each store has seen an entry that the other lacks."""
    a, b, _ = pair()
    for side, other in ((a, b"other  a"), (b, b"other  b")):
        seen = {**{b"%08d" % number: 300 for number in range(makers)}, other: 1}
        state = encode(SliceState(seen, seen, {}))
        side.storage.apply(Batch(notes={state_name(part): state for part in range(SLICES_ASKED_MAX)}))
        side.on_disk(side.storage)
    return a, b


async def check_logs_of_makers(makers: int) -> None:
    a, b = logs_of_makers(makers)
    await a.log_sync.sync(b.contact, EVERYTHING)
    assert len(a.log.seen_in(EVERYTHING)) == SLICES_ASKED_MAX
    assert a.log.seen_in(EVERYTHING) == b.log.seen_in(EVERYTHING)
    logs = [a.log.log_after(part, {})[0] for part in range(SLICES_ASKED_MAX)]
    await a.log_sync.tell(b.contact, logs)


@pytest.mark.parametrize("makers", [1, 112, 341, 1300])
async def test_sync_of_many_logs_with_many_makers_fits_frames(makers: int) -> None:
    """64 logs at once would have too many CBOR items from 341 makers on, and too many bytes from 1,300 makers on."""
    await check_logs_of_makers(makers)


async def test_planted_request_about_64_slices_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reap_log_sync, "NUMBERS_MAX", 1 << 30)
    await check_logs_of_makers(100)
    with pytest.raises(MalformedMessage, match="items"):
        await check_logs_of_makers(341)


async def test_planted_merge_without_synced_logs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReapLog, "digest_in", lambda self, arc: b"")
    monkeypatch.setattr(ReapLog, "require_same_entries", lambda self, records, seen: None)
    a, b, _ = reaped_pair()
    await a.replica_sync.with_partner(b.contact, EVERYTHING)
    assert versions.values(a.storage.get(KEYS[0]) or Record(KEYS[0], ())) == [b"old"], "the delete is undone"


# -- pace ------------------------------------------------------------------------------------------------


def test_token_bucket_allows_a_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(1000)
    burst = 1000 * sync.BURST_S
    assert bucket.take(burst, 10.0) == 0
    assert bucket.take(500, 10.0) == pytest.approx(0.5)
    assert bucket.take(500, 10.5) == pytest.approx(0.5)
    assert bucket.take(burst + 100, 99.0) == pytest.approx(0.1), "idle time allows at most one burst"


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 5)), max_size=30))
def test_token_bucket_never_exceeds_its_rate(takes: list[tuple[float, float]]) -> None:
    bucket, now, taken = TokenBucket(10), 0.0, 0.0
    for amount, idle_s in takes:
        wait_s = bucket.take(amount, now)
        taken += amount
        now += wait_s
        assert taken <= 10 * sync.BURST_S + 10 * now + 1e-6
        now += idle_s


async def test_sync_keeps_to_repair_bytes_s(autojump_clock: object) -> None:
    a, b, _ = pair(limits=Limits(repair_bytes_s=100_000))
    for number in range(1000):
        a.put(b"one-%d" % number, bytes(400))
        b.put(b"two-%d" % number, bytes(400))
    began = trio.current_time()
    outcome = await a.replica_sync.with_partner(b.contact, EVERYTHING)
    took = trio.current_time() - began
    assert outcome.bytes > 900_000
    assert took == pytest.approx(outcome.bytes / 100_000 - sync.BURST_S, rel=0.01)


# -- partners that misbehave -------------------------------------------------------------------------------


async def test_sync_with_a_hanging_partner_ends_at_the_deadline(autojump_clock: object) -> None:
    a, b, _ = full_pair(3)

    async def hang(request: object) -> Reply:
        await trio.sleep_forever()
        raise AssertionError

    b.replica.on_get_sums = hang  # type: ignore[method-assign, assignment]
    began = trio.current_time()
    with pytest.raises(DeadlineExceeded):
        await a.replica_sync.with_partner(b.contact, EVERYTHING)
    assert trio.current_time() - began == pytest.approx(a.host.timing.timeout_cap_s)


STRANGE: list[tuple[str, Reply]] = [
    ("on_get_sums", GetSumsReply(())),
    ("on_get_heads", GetHeadsReply((), True)),
    ("on_get_heads", GetHeadsReply((Head(b"not of the arc", bytes(16)),), False)),
    ("on_get_heads", GetHeadsReply((Head(b"user:00000001", bytes(16)),) * 2, False)),
    ("on_get_heads", GetHeadsReply((Head(b"user:00000001", bytes(16)),), True)),
    ("on_get_copies", GetCopiesReply((), 0)),
    ("on_get_copies", GetCopiesReply((), 99)),
    ("on_get_copies", GetCopiesReply((Record(b"not asked for", ()),), 1)),
]


@pytest.mark.parametrize(("method", "reply"), STRANGE)
async def test_sync_rejects_malformed_replies(method: str, reply: Reply) -> None:
    a, b, wire = full_pair(3)
    b.put(b"user:00000001", b"newer")
    point = wire.circle.hash(b"not of the arc")
    arc = Arc(point, wire.circle.point(point - 1))
    before = a.clocks()

    async def answer(request: object) -> Reply:
        return reply

    setattr(b.replica, method, answer)
    with pytest.raises(MalformedMessage):
        await a.replica_sync.with_partner(b.contact, arc)
    assert all(a.storage.get(key) in (record, b.storage.get(key)) for key, record in before.items())
    assert a.clocks().keys() == before.keys()
    assert len(wire.calls) <= 5


# -- planted bugs ----------------------------------------------------------------------------------------


async def overwrite(side: Side, records: Sequence[Record]) -> int:
    """The bug: records of the partner replace own records."""
    await side.storage.commit(Batch(puts=records))
    return len(records)


def test_planted_pull_that_overwrites_is_caught() -> None:
    for is_planted in (False, True):
        a, b, _ = pair()
        happened(a, b, [("a", "put", KEYS[0]), ("a", "copy", KEYS[0]), ("a", "put", KEYS[0]), ("b", "put", KEYS[0])])
        if not is_planted:
            run(sync_all, a, b, EVERYTHING)
            continue
        a.replica_sync = ReplicaSync(a.host, lambda records, seen, a=a: overwrite(a, records), a.log_sync)  # type: ignore[misc]
        with pytest.raises(AssertionError):
            run(sync_all, a, b, EVERYTHING)


async def test_planted_proof_of_the_current_version_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    prove = ReplicaSync.prove

    async def prove_too_much(self: ReplicaSync, partner: object, arc: Arc) -> dict[bytes, bytes]:
        keys = await prove(self, partner, arc)  # type: ignore[arg-type]
        records = {key: self.host.storage.get(key) for key in keys}
        return {key: digest_of(record) for key, record in records.items() if record is not None}

    monkeypatch.setattr(ReplicaSync, "prove", prove_too_much)
    for is_lacking in (False, True):
        with pytest.raises(AssertionError):
            await check_changed(*changing_pair(StoreCopies, True, is_lacking))


async def test_planted_removal_missing_in_the_tree_is_caught() -> None:
    a, b, _ = full_pair(20)
    key, storage = b"user:00000003", b.storage
    record = storage.get(key)
    assert record is not None
    storage.apply(Batch(removals=(key,)))
    storage.digests.change(b.host.circle.hash(key), None, digest_of(record))  # the bug: the leaf is stale
    with pytest.raises(AssertionError):
        await sync_all(a, b, EVERYTHING)
