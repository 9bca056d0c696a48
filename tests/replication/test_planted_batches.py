"""Planted bugs of batches, each with the test that catches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from chord.errors import Busy, ChordError
from chord.replication import coalesce
from chord.replication.batch import _Away, _Part
from chord.replication.coalesce import Coalescer
from chord.replication.replica import Replica
from chord.wire import batch as parcels
from chord.wire.batch import Frame
from chord.wire.messages import Done, ReadCopiesReply, ReadCopyReply, Reply, Request, StoreCopies
from tests.replication import test_batch as test_batches

CAUGHT = (AssertionError, ChordError, trio.TooSlowError, pytest.fail.Exception, BaseExceptionGroup)

UNPACK = parcels.unpack
COPIES_OF, ON_REPLY, SEND = Replica.on_read_copies, Coalescer._on_reply, _Away._send


def turned_round(request: Request, answer: Reply | ChordError) -> list[Reply | ChordError]:
    return UNPACK(request, answer)[::-1]


def all_good(self: Coalescer, contact: Any, questions: Any, answer: Reply | ChordError) -> None:
    is_write = isinstance(questions[0].request, StoreCopies)
    ON_REPLY(self, contact, questions, Done() if is_write else answer)


def at_once(self: Coalescer, to: Any, request: Any, expect: Any, callback: Any, *, deadline: float) -> None:
    self._host.peers.begin(to, request, expect, callback, deadline=deadline)


def the_same_for_all(self: Replica, request: Any) -> ReadCopiesReply:
    return ReadCopiesReply(COPIES_OF(self, request).copies[:1] * len(request.asks))


def absent(self: Replica, request: Any) -> ReadCopiesReply:
    copies = COPIES_OF(self, request).copies
    return ReadCopiesReply(tuple(ReadCopyReply(None) if copy is None else copy for copy in copies))


def nothing_happened(self: _Part, late: Any = None) -> list[Reply | ChordError]:
    return [self._outcomes.get(place, Busy("later")) for place in range(len(self.items))]


def one_each(self: _Away, owner: Any, places: list[int], count_max: int = 0) -> None:
    SEND(self, owner, places, 1)


async def never_again(self: _Away, place: int, before: ChordError | None) -> None:
    self._part.end(place, before or Busy("no owner"))


def history() -> None:
    for seed in range(3):
        test_batches.test_batches_have_the_outcomes_of_single_operations(seed)


PLANTED: dict[str, tuple[object, str, object, Callable[[], object]]] = {
    "an owner's answers are in another order": (parcels, "unpack", turned_round, history),
    "a batch is acknowledged though a record lacks its quorum": (
        Coalescer, "_on_reply", all_good,
        test_batches.test_batch_item_without_a_quorum_fails_alone,
    ),
    "every item takes its own frame to a replica": (
        Coalescer, "begin", at_once, test_batches.test_batch_takes_one_frame_per_owner_and_replica,
    ),
    "every item takes its own frame to its owner": (
        _Away, "_send", one_each,
        test_batches.test_batch_takes_one_frame_per_owner_and_replica,
    ),
    "a replica returns the copy of another key": (
        Replica, "on_read_copies", the_same_for_all,
        test_batches.test_read_copies_without_room_for_a_copy_is_asked_again,
    ),
    "a copy without room counts as absent": (
        Replica, "on_read_copies", absent, test_batches.test_read_copies_without_room_for_a_copy_is_asked_again,
    ),
    "an item past its deadline has a definite error": (
        _Part, "outcomes", nothing_happened,
        lambda: test_batches.test_batch_item_past_its_deadline_fails_alone(0.2),
    ),
    "one bad record fails the whole frame": (
        coalesce, "SENT_ALONE", (), test_batches.test_store_copies_refused_for_one_record_is_split,
    ),
    "one bad item fails a forwarded frame": (
        Frame, "is_refused_whole", lambda self, answer: False,
        test_batches.test_forwarded_frame_refused_for_one_item_is_divided,
    ),
    "an item that one owner refused is sent to no other": (
        _Away, "_bring", never_again, test_batches.test_items_for_a_dead_owner_go_to_the_next_one,
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_of_batches_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, bug, test = PLANTED[name]
    monkeypatch.setattr(owner, attribute, bug)
    with pytest.raises(CAUGHT):
        test()
