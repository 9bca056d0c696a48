"""Batches on the wire: order of items and answers, and bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chord.errors import Busy, ChordError, InvalidRequest, MalformedMessage, NotOwner, Overloaded, RemoteFailure
from chord.ids import Circle, Point
from chord.wire.batch import (
    AROUND_BYTES,
    NO_ROOM,
    BatchRequest,
    Frame,
    Item,
    cut,
    frames,
    has_no_room,
    items_of,
    key_of,
    pack,
    unpack,
)
from chord.wire.codec import PREFIX_BYTES, Codec
from chord.wire.messages import (
    BATCH_BYTES_MAX,
    BATCH_ITEMS_MAX,
    PAGE_RECORDS_MAX,
    Contact,
    Get,
    GetMany,
    GetManyReply,
    GetReply,
    Got,
    Merge,
    Ping,
    PingReply,
    Put,
    PutMany,
    PutManyReply,
    Record,
    ReplicaLine,
    Reply,
    Written,
    Wrote,
)

ME = Contact(Point(7), "a:1")
Outcome = Reply | ChordError
LINE = ReplicaLine(ME, "ok", True)
CODEC = Codec(Circle(160))


def put(number: int, value: bytes = b"v") -> Put:
    return Put(b"k-%d" % number, value, number.to_bytes(16, "big"))


def only(items: Sequence[Item]) -> BatchRequest | Item:
    """Return the request of the only frame of some items."""
    (frame,) = frames(items, range(len(items)))
    assert frame.places == [*range(len(items))]
    return frame.request


def said(outcome: Reply | ChordError) -> object:
    """Return an outcome in a form that can be compared."""
    if isinstance(outcome, ChordError):
        return type(outcome), outcome.message, outcome.peer, outcome.after_ms
    return outcome


def there_and_back(batch: GetMany | PutMany, outcomes: list[Reply | ChordError]) -> list[Reply | ChordError]:
    """Return the outcomes after encoding and decoding."""
    frame = CODEC.encode_reply(1, pack(batch, outcomes))
    return unpack(batch, CODEC.decode_reply(frame[PREFIX_BYTES:], batch.reply)[1])


busy = st.builds(Busy, st.text(max_size=20), after_ms=st.none() | st.integers(0, 9))
errors = busy | st.just(NotOwner("no", peer=ME))
written = st.builds(Written, st.binary(max_size=8), st.just(ME), st.integers(0, 9))
found = st.builds(GetReply, st.tuples(st.binary(max_size=8)), st.binary(max_size=8), st.just(ME))


@pytest.mark.slow
@given(st.lists(errors | written, min_size=2, max_size=20), st.lists(errors | found, min_size=2, max_size=20))
def test_batch_answers_are_in_the_order_of_its_items(wrote: list[Outcome], got: list[Outcome]) -> None:
    puts = only([put(i) for i in range(len(wrote))])
    gets = only([Get(b"%d" % i) for i in range(len(got))])
    assert isinstance(puts, PutMany)
    assert isinstance(gets, GetMany)
    assert list(map(said, there_and_back(puts, wrote))) == list(map(said, wrote))
    assert list(map(said, there_and_back(gets, got))) == list(map(said, got))


def test_bundle_holds_its_items_and_leaves_one_item_alone() -> None:
    items: list[Item] = [put(1), Merge(Record(b"m", ())), put(2)]
    batch = only(items)
    assert isinstance(batch, PutMany)
    assert [*items_of(batch)] == items
    assert [key_of(item) for item in items] == [b"k-1", b"m", b"k-2"]
    assert only(items[:1]) is items[0]
    assert only([Get(b"a"), Get(b"b", 2)]) == GetMany((Get(b"a"), Get(b"b", 2)))


def test_batch_answer_omits_replica_lines() -> None:
    (one, two) = there_and_back(
        GetMany((Get(b"a"), Get(b"b"))), [GetReply((b"v",), b"c", ME, 2, 2, (LINE,), (5,)), GetReply((), b"", ME)]
    )
    assert one == GetReply((b"v",), b"c", ME, 2, 2, (), (5,))
    assert two == GetReply((), b"", ME)
    assert there_and_back(PutMany((put(1), put(2))), [Written(b"c", ME, 2, 2, True, (LINE,))] * 2) == [
        Written(b"c", ME, 2, 2, True)
    ] * 2


# -- bounds -----------------------------------------------------------------------------------------


def test_batch_items_max_is_at_most_page_records_max() -> None:
    assert BATCH_ITEMS_MAX <= PAGE_RECORDS_MAX


@pytest.mark.parametrize(("count", "is_taken"), [(0, True), (BATCH_ITEMS_MAX, True), (BATCH_ITEMS_MAX + 1, False)])
def test_batch_beyond_batch_items_max_is_malformed(count: int, is_taken: bool) -> None:
    for batch in (GetMany((Get(b"k"),) * count), PutMany((put(1),) * count)):
        taken = CODEC.decode_call(CODEC.encode_call(1, None, 9, batch, 0)[PREFIX_BYTES:]).request
        assert (taken == batch) is is_taken
        assert isinstance(taken, type(batch) if is_taken else MalformedMessage)


def test_frames_cuts_a_batch_by_count_and_bytes() -> None:
    assert [len(frame.places) for frame in frames([Get(b"k")] * 300, range(300))] == [128, 128, 44]
    assert [len(frame.places) for frame in frames([Get(b"k")] * 10, range(10), 4)] == [4, 4, 2]
    fits = BATCH_BYTES_MAX // 2 - AROUND_BYTES - len(b"k-0")
    for value_bytes, expected in ((fits, [[0, 1]]), (fits + 1, [[0], [1]]), (1 << 20, [[0], [1]])):
        items = [put(i, b"x" * value_bytes) for i in range(2)]
        assert [frame.places for frame in frames(items, [0, 1])] == expected
    assert list(frames([put(1)], [])) == []


def test_planted_frames_without_bounds_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "frames", lambda items, places, count_max=0: [Frame(list(places), items[0])])
    with pytest.raises(AssertionError):
        test_frames_cuts_a_batch_by_count_and_bytes()


def test_cut_yields_a_full_list_before_the_next_thing() -> None:
    """The next thing may be invalid: the list before it counts."""

    def things() -> Iterator[int]:
        yield from (1, 2, 3)
        raise ValueError("no thing")

    lists = cut(things(), lambda thing: thing, 3)
    assert next(lists) == [1, 2, 3]
    with pytest.raises(ValueError, match="no thing"):
        next(lists)


def test_values_beyond_the_frame_are_left_for_later_requests() -> None:
    batch = GetMany(tuple(Get(b"%d" % i) for i in range(4)))
    half = BATCH_BYTES_MAX // 2 - AROUND_BYTES

    def answered(*sizes: int) -> list[bool]:
        outcomes = there_and_back(batch, [GetReply((b"x" * size,), b"", ME) for size in sizes])
        assert all(isinstance(one, GetReply) or has_no_room(one) for one in outcomes)
        return [isinstance(one, GetReply) for one in outcomes]

    assert answered(half, half, 1, 1) == [True, True, False, False]
    assert answered(half, half + 1, 1, 1) == [True, False, True, True]
    assert answered(1 << 20, 1, 1, 1) == [True, False, False, False]
    assert answered(1, 1 << 20, 1, 1) == [True, False, True, True]


def test_error_message_in_a_batch_is_cut() -> None:
    (error, _) = there_and_back(PutMany((put(1), put(2))), [Busy("é" * 5000), Busy("odd \udcff")])
    assert isinstance(error, Busy)
    assert error.message == "é" * 256


# -- errors and malformed answers -------------------------------------------------------------------


def test_error_of_a_batch_is_the_error_of_each_item() -> None:
    outcomes = unpack(PutMany((put(1), put(2))), Busy("later"))
    assert [said(one) for one in outcomes] == [said(Busy("later"))] * 2
    assert unpack(Ping(), PingReply()) == [PingReply()]


@pytest.mark.parametrize(
    "answer",
    [GetManyReply((Got(None),)), GetManyReply((Got(None),) * 3), PutManyReply((Wrote(None),) * 2), PingReply()],
)
def test_batch_answer_of_another_shape_is_malformed(answer: Reply) -> None:
    outcomes = unpack(GetMany((Get(b"a"), Get(b"b"))), answer)
    assert [type(one) for one in outcomes] == [MalformedMessage] * 2


def test_batch_item_without_answer_or_error_is_indefinite() -> None:
    batch = PutMany((put(1), put(2)))
    outcomes = unpack(batch, PutManyReply((Wrote(None), Wrote(Written(b"", ME)))))
    assert [type(one) for one in outcomes] == [RemoteFailure, Written]


def test_is_refused_whole_applies_only_to_several_items() -> None:
    items = [put(1), put(2)]
    (both,) = frames(items, (0, 1))
    assert both.is_refused_whole(MalformedMessage("bad"))
    assert both.is_refused_whole(InvalidRequest("too long"))
    assert not both.is_refused_whole(Busy("later"))
    assert not Frame([1], items[1]).is_refused_whole(MalformedMessage("bad"))


def test_has_no_room_excludes_other_overload_errors() -> None:
    assert has_no_room(NO_ROOM)
    assert not has_no_room(Overloaded("4096 items of batches are in work", after_ms=50))
    assert not has_no_room(Overloaded("128 calls of this connection are in work"))
