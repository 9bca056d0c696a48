"""Bugs that many requests in one frame could bring, planted one by one, each caught by the test that is to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio

from chord.errors import Busy, ChordError
from chord.replication import batch as batches
from chord.replication import coalesce
from chord.replication.batch import _Away, _Part
from chord.replication.coalesce import Coalescer
from chord.replication.replica import Replica
from chord.wire import batch as parcels
from chord.wire.messages import CopiesRead, Copy, Done, Reply, Request
from tests.replication import test_batch as test_batches
from tests.wire import test_batch_codec as test_parcels

CAUGHT = (AssertionError, ChordError, trio.TooSlowError, pytest.fail.Exception, BaseExceptionGroup)

UNPACK = parcels.unpack
COPIES_OF, FAILED = Replica.on_read_copies, Coalescer._failed


def turned_round(request: Request, answer: Reply | ChordError) -> list[Reply | ChordError]:
    return UNPACK(request, answer)[::-1]


def all_good(self: Coalescer, contact: Any, questions: Any, expect: type[Reply], error: ChordError) -> None:
    if expect is not Done:
        FAILED(self, contact, questions, expect, error)
        return
    for question in questions:
        question.callback(Done())


def at_once(self: Coalescer, to: Any, request: Any, expect: Any, told: Any, *, deadline: float) -> None:
    self._host.peers.begin(to, request, expect, told, deadline=deadline)


def the_same_for_all(self: Replica, request: Any) -> CopiesRead:
    return CopiesRead(COPIES_OF(self, request).copies[:1] * len(request.asks))


def absent(self: Replica, request: Any) -> CopiesRead:
    return CopiesRead(tuple(Copy(None) if copy is None else copy for copy in COPIES_OF(self, request).copies))


def nothing_happened(self: _Part, late: Any = None) -> list[Reply | ChordError]:
    return [self._outcomes.get(place, Busy("later")) for place in range(len(self.items))]


def one_each(self: _Away, place: int) -> bool:
    owner = self._known(place)
    if owner is None:
        return False
    self._homeless.pop(place, None)
    self._nursery.start_soon(self._send, owner, [place])
    return True


async def never_again(self: _Away, place: int, before: ChordError | None) -> None:
    self._part.end(place, before or Busy("nobody"))


def all_there_are(items: Sequence[Any], places: Any, count_max: int = 0) -> list[list[int]]:
    return [list(places)]


def history() -> None:
    for seed in range(3):
        test_batches.test_a_random_history_comes_to_the_same_in_batches_and_one_by_one(seed)


def old_nodes() -> None:
    test_batches.test_nodes_that_do_not_know_batches_are_asked_one_by_one(3)


PLANTED: dict[str, tuple[object, str, object, Callable[[], object]]] = {
    "an owner's answers are told in another order": (batches, "unpack", turned_round, history),
    "a batch is acknowledged though a record lacks its quorum": (
        Coalescer, "_failed", all_good,
        test_batches.test_a_record_that_lacks_its_quorum_is_not_acknowledged_and_the_others_are,
    ),
    "every item asks for itself": (
        Coalescer, "begin", at_once, test_batches.test_a_batch_is_one_frame_for_each_owner_and_one_for_each_replica,
    ),
    "every item is passed on by itself": (
        _Away, "_send_if_known", one_each,
        test_batches.test_a_batch_is_one_frame_for_each_owner_and_one_for_each_replica,
    ),
    "a replica tells of one key what it holds of another": (
        Replica, "on_read_copies", the_same_for_all, test_batches.test_a_reader_is_told_of_copies_that_had_no_room,
    ),
    "a copy without room is no copy": (
        Replica, "on_read_copies", absent, test_batches.test_a_reader_is_told_of_copies_that_had_no_room,
    ),
    "what was not done in time never happened": (
        _Part, "outcomes", nothing_happened,
        lambda: test_batches.test_what_is_not_done_in_time_does_not_keep_the_others_from_being_told(0.2),
    ),
    "one bad record spoils the frame": (
        coalesce, "TAKEN_APART", (), test_batches.test_a_frame_that_is_refused_for_one_record_is_taken_apart,
    ),
    "old nodes are not asked one by one": (batches, "is_refused_whole", lambda request, answer: False, old_nodes),
    "what one owner refused nobody else is asked for": (
        _Away, "_bring", never_again, old_nodes,
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, bug, test = PLANTED[name]
    monkeypatch.setattr(owner, attribute, bug)
    with pytest.raises(CAUGHT):
        test()


def test_frames_without_bounds_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_parcels, "frames", all_there_are)
    with pytest.raises(CAUGHT):
        test_parcels.test_frames_are_cut_by_count_and_by_bytes_and_hold_one_item_at_least()
