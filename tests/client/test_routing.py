"""The owner cache of a client session: direct requests, and their errors. Without a network."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from chord.client.batch import ClientBatches
from chord.client.operations import Operations
from chord.client.results import Stored
from chord.client.routing import LEFT_ALONE_FIRST, OwnerRouting
from chord.client.session import (
    ATTEMPT_S,
    ENTRIES_MAX,
    ClientCall,
    ClientOperation,
    ClientSession,
    MakeCalls,
    Outcome,
    Pause,
)
from chord.errors import Busy, ChordError, DeadlineExceeded, NotFound, OtherRing, OwnerDown, PeerLost, PeerUnreachable
from chord.ids import Circle
from chord.wire.messages import Contact, Get, GetReply, Merge, Put, Record, Written

CIRCLE = Circle(160)
KEY = b"user:42"
ENTRY, STRAIGHT, NEWER = "entry:1", "owner:1", "newer:1"

Answerer = Callable[[ClientCall], Outcome]


def owner(address: str = STRAIGHT, key: bytes = KEY) -> Contact:
    return Contact(CIRCLE.point(CIRCLE.hash(key) + 1), address)


class World:
    """Nodes with scripted answers. By default each node names `of` as the owner.

    Attributes:
        asked: the addresses of all requests, in order.
        limits: the time limit of each request, in seconds.
        paused: the number of pauses.
    """

    def __init__(self, arcs_max: int = 256) -> None:
        self.core = Operations(ClientSession((ENTRY,), rng=random.Random(1), arcs_max=arcs_max))
        self.core.session.learn(ENTRY, CIRCLE.bits, b"ring" * 4)
        self.of: dict[bytes, Contact] = {}
        self.answers: dict[str, Answerer] = {}
        self.asked: list[str] = []
        self.requests: list[Any] = []
        self.limits: list[float | None] = []
        self.paused = 0

    def run(self, operation: ClientOperation[Any]) -> Any:
        """Carry an operation out."""
        try:
            effect = next(operation)
            while True:
                if isinstance(effect, Pause):
                    self.paused += 1
                    effect = operation.send(None)
                else:
                    assert isinstance(effect, MakeCalls)
                    self.limits.append(effect.within_s)
                    effect = operation.send(tuple(self._answer(call) for call in effect.calls))
        except StopIteration as stop:
            return stop.value

    def get(self, key: bytes = KEY) -> Any:
        """Read a key."""
        return self.run(self.core.get(key))

    def _answer(self, call: ClientCall) -> Outcome:
        self.asked.append(call.address)
        self.requests.append(call.request)
        return self.answers.get(call.address, self._well)(call)

    def _well(self, call: ClientCall) -> Outcome:
        request = call.request
        if isinstance(request, Get):
            return GetReply((b"v",), b"context", self.of.get(request.key, owner(key=request.key)))
        key = request.record.key if isinstance(request, Merge) else getattr(request, "key", b"")
        return Written(b"context", self.of.get(key, owner(key=key)))


def failing(error: ChordError) -> Answerer:
    return lambda call: error


def test_second_request_goes_directly_to_the_owner() -> None:
    world = World()
    world.get()
    world.get()
    world.run(world.core.write(world.core.to_put(KEY, b"v")))
    world.run(world.core.write(world.core.to_merge(Record(KEY, ()))))
    assert world.asked == [ENTRY, STRAIGHT, STRAIGHT, STRAIGHT]
    assert world.limits == [None, ATTEMPT_S, ATTEMPT_S, ATTEMPT_S], "a direct request has a time limit"


def test_client_without_an_owner_cache_asks_its_entry_node() -> None:
    world = World(arcs_max=0)
    world.get()
    world.get()
    assert world.asked == [ENTRY, ENTRY]


def test_reply_with_another_owner_corrects_the_owner_cache() -> None:
    world = World()
    world.get()
    world.of[KEY] = owner(NEWER)
    world.get()
    world.get()
    assert world.asked == [ENTRY, STRAIGHT, NEWER]


@pytest.mark.parametrize(
    "error",
    [PeerUnreachable("refused"), PeerLost("gone"), Busy("an arc is changing hands"), OtherRing("another ring by now")],
    ids=lambda error: type(error).__name__,
)
def test_failed_direct_request_is_repeated_at_the_entry_node(error: ChordError) -> None:
    world = World()
    world.get()
    world.answers[STRAIGHT] = failing(error)
    assert world.get().value == b"v"
    assert world.asked == [ENTRY, STRAIGHT, ENTRY]
    assert not world.paused
    assert world.core.session.entry == ENTRY


@pytest.mark.parametrize("error", [NotFound(), OwnerDown("its copies are down")], ids=lambda error: error.word)
def test_definite_error_of_the_owner_is_not_repeated(error: ChordError) -> None:
    world = World()
    world.get()
    world.answers[STRAIGHT] = failing(error)
    with pytest.raises(type(error)):
        world.get()
    assert world.asked == [ENTRY, STRAIGHT]


def test_write_lost_at_the_owner_is_retried_with_its_id() -> None:
    world = World()
    world.get()
    world.answers[STRAIGHT] = failing(PeerLost("gone"))
    world.run(world.core.write(world.core.to_put(KEY, b"v")))
    first, second = (request for request in world.requests if isinstance(request, Put))
    assert world.asked == [ENTRY, STRAIGHT, ENTRY]
    assert (first.op_id, first.is_retry, second.op_id, second.is_retry) == (second.op_id, False, first.op_id, True)


def test_unreachable_address_is_avoided_longer_each_time() -> None:
    """Nodes may know each other by addresses that a client cannot reach."""
    world = World()
    world.answers[STRAIGHT] = failing(PeerUnreachable("no route"))
    gaps, since = [], 0
    for _ in range(10 * LEFT_ALONE_FIRST):
        since += 1
        before = len(world.asked)
        assert world.get().value == b"v"
        if STRAIGHT in world.asked[before:]:
            gaps.append(since)
            since = 0
    assert gaps[:4] == [2, LEFT_ALONE_FIRST, 2 * LEFT_ALONE_FIRST, 4 * LEFT_ALONE_FIRST]


def test_put_many_sends_each_key_to_its_owner() -> None:
    world = World()
    keys = [b"a", b"b", b"c"]
    world.of = {b"a": owner("a:1", b"a"), b"b": owner("b:1", b"b")}
    for key in keys[:2]:
        world.get(key)
    world.answers["b:1"] = failing(PeerUnreachable("refused"))
    puts = [world.core.to_put(key, b"v") for key in keys]
    assert all(isinstance(outcome, Stored) for outcome in world.run(world.core.write_all(puts)))
    assert world.asked == [ENTRY, ENTRY, "a:1", "b:1", ENTRY, ENTRY]
    assert world.core.session.entry == ENTRY, "the entry node was never unreachable"


def test_owner_cache_is_bounded() -> None:
    owner_routing = OwnerRouting(4)
    for number in range(20):
        key = b"%d" % number
        owner_routing.learn(CIRCLE, Get(key), None, GetReply((b"v",), b"", owner(f"n{number}:1", key)))
        owner_routing.learn(CIRCLE, Get(key), f"n{number}:1", PeerLost("gone"))
    assert len(owner_routing._left_alone) == 4
    for number in range(20):
        key = b"%d" % number
        owner_routing.learn(CIRCLE, Get(key), None, GetReply((b"v",), b"", owner(f"m{number}:1", key)))
    known = [number for number in range(20) if owner_routing.to(CIRCLE, Get(b"%d" % number))]
    assert known == [16, 17, 18, 19]


def test_known_owner_replaces_an_unreachable_entry_node() -> None:
    world = World()
    world.get()
    world.answers[ENTRY] = failing(PeerLost("killed"))
    other = b"another key"
    assert world.get(other).value == b"v"
    assert world.asked == [ENTRY, ENTRY, STRAIGHT]
    assert world.limits == [None, ATTEMPT_S, ATTEMPT_S], "no request waits for a stopped node while another is known"
    assert world.core.session.entry == STRAIGHT
    assert not any(limit is None for limit in world.limits[1:])


def test_entry_nodes_are_learnt_up_to_a_limit() -> None:
    world = World()
    for number in range(2 * ENTRIES_MAX):
        key = b"%d" % number
        world.of[key] = owner(f"n{number}:1", key)
        world.get(key)
        world.core.session.turn_from(world.core.session.entry)
    assert len(world.core.session.entries) == ENTRIES_MAX
    assert world.core.session.entries[0] == ENTRY


def test_batch_with_many_retries_keeps_its_window() -> None:
    world = World()
    rounds = 0
    batch = ClientBatches(world.core.session).request_all([Get(KEY)])
    effect = batch.send(None)
    while rounds < 100:
        if isinstance(effect, MakeCalls):
            rounds += 1
            effect = batch.send(tuple(Busy("busy") for _ in effect.calls))
        else:
            effect = batch.send(None)
    with pytest.raises(StopIteration) as ended:
        batch.throw(DeadlineExceeded("late"))
    assert [type(outcome) for outcome in ended.value.value] == [Busy]
