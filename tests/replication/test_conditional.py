"""Early puts: one round if the replicas hold the same, and no wrong answer if they do not.

The scenes of the planted bugs (`tests/mutants/scenes_early.py`) show the rules one by one.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
import trio

from chord import testing
from chord.errors import DeadlineExceeded, MalformedMessage, NotReady, QuorumFailed
from chord.ids import Point
from chord.replication.conditional import ConditionalCopies
from chord.replication.coordinator import EARLY_PAUSE_MAX_S, EARLY_PAUSE_MIN_S
from chord.replication.records import EARLY_ACTORS_MAX
from chord.store import versions
from chord.store.storage import Batch
from chord.wire.messages import (
    ActorClock,
    Contact,
    Put,
    ReadCopy,
    Record,
    StoreCopies,
    StoreCovering,
    StoreCoveringReply,
    Version,
    Written,
)
from tests.mutants import scenes_early as scenes
from tests.mutants.bugs_early import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.scenes_early import OTHER, Stage, add_other, play
from tests.support.quorum import KEY, clockwise, holding, record_at, ring_in_sync, until, until_in_sync, write
from tests.support.rings import only

THERE = Contact(Point(7), "127.0.0.1:9000")
MINE = Record(KEY, (ActorClock(b"sixteen byte act", 1, (Version(b"v", b"o" * 16, 1),)),))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_scene_passes_and_its_planted_bug_does_not(mutant: Mutant) -> None:
    mutant.scenario(0)
    with mutant.planted(), pytest.raises(AssertionError, match="EarlyPuts"):
        mutant.scenario(0)


# -- the way of a put -----------------------------------------------------------------------------


def test_put_without_a_context_takes_one_round() -> None:
    async def scene(at: Stage) -> None:
        written = await write(at.owner, KEY, b"2", w=3)
        assert (written.w, written.is_sloppy, written.beside) == (3, False, 0)
        assert [at.wire.count(of) for of in (StoreCovering, ReadCopy, StoreCopies)] == [2, 0, 0]
        records = [record_at(node, KEY) for node in (at.owner, at.first, at.second)]
        assert records[0] == records[1] == records[2]
        assert versions.values(records[0]) == [b"2"]
        assert at.owner._host.storage.minted(KEY) == records[0].clock[0].actor, "the store has the actor back"
        assert at.owner._host.counters["early_stored"] == 2

    play(0, scene)


def test_first_put_of_a_key_takes_one_round() -> None:
    async def scene(at: Stage) -> None:
        key = next(b"new-%d" % i for i in range(1000) if clockwise(at.ring, b"new-%d" % i)[0] is at.owner)
        await write(at.owner, key, b"1", w=3)
        assert [at.wire.count(of) for of in (StoreCovering, ReadCopy, StoreCopies)] == [2, 0, 0]
        assert len(holding(at.ring, key)) == 3

    play(0, scene)


def quarantine(at: Stage) -> None:
    hidden = msgspec.structs.replace(record_at(at.owner, KEY), quarantine=(OTHER,))
    at.owner._host.storage.apply(Batch([hidden]))  # type: ignore[attr-defined]


def many_actors(at: Stage) -> None:
    more = tuple(ActorClock(b"another store %02d" % i, 1, ()) for i in range(EARLY_ACTORS_MAX))
    crowded = versions.sync(record_at(at.owner, KEY), Record(KEY, more))
    at.owner._host.storage.apply(Batch([crowded]))  # type: ignore[attr-defined]


def no_member_in_sync(at: Stage) -> None:
    only(at.owner).host.vnodes[only(at.owner).id].preference_list._in_sync.clear()


LATE: dict[str, tuple[Callable[[Stage], None], dict[str, object]]] = {
    "with a context": (lambda at: None, {"context": b""}),
    "a retry": (lambda at: None, {"is_retry": True}),
    "a quarantine": (quarantine, {}),
    "many actors": (many_actors, {}),
    "not in sync": (no_member_in_sync, {}),
}


@pytest.mark.parametrize("why", LATE)
def test_put_outside_the_conditions_is_stored_first(why: str) -> None:
    async def scene(at: Stage) -> None:
        change, fields = LATE[why]
        change(at)
        await write(at.owner, KEY, b"2", **fields)
        assert at.wire.count(StoreCovering) == 0
        assert b"2" in versions.values(record_at(at.owner, KEY))

    play(0, scene)


def test_record_with_31_actors_is_sent_early() -> None:
    async def scene(at: Stage) -> None:
        more = tuple(ActorClock(b"another store %02d" % i, 1, ()) for i in range(EARLY_ACTORS_MAX - 1))
        for node in (at.owner, at.first, at.second):
            full = versions.sync(record_at(node, KEY), Record(KEY, more))
            node._host.storage.apply(Batch([full]))  # type: ignore[attr-defined]
        await write(at.owner, KEY, b"2")
        assert at.wire.count(StoreCovering) == 2
        assert len(record_at(at.owner, KEY).clock) == EARLY_ACTORS_MAX

    play(0, scene)


def test_actor_made_for_32_actors_is_never_lent() -> None:
    async def scene(at: Stage) -> None:
        storage = at.owner._host.storage
        many_actors(at)
        storage.lend_actor(KEY, record_at(at.owner, KEY))  # as after a crash
        await write(at.owner, KEY, b"2")
        actor = storage.minted(KEY)
        assert actor is not None
        assert not versions.is_lendable(actor)
        at.owner._host.storage.apply(Batch([Record(KEY, (ActorClock(actor, 1, ()),))]))  # type: ignore[attr-defined]
        await write(at.owner, KEY, b"3")
        assert at.wire.count(StoreCovering) == 0
        assert storage.minted(KEY) == actor

    play(0, scene)


@pytest.mark.parametrize(("copies", "is_early"), [(1, False), (2, True), (3, True), (4, False), (5, False)])
def test_put_is_early_if_the_read_quorum_is_two(copies: int, is_early: bool) -> None:
    async def main() -> None:
        async with testing.open_ring(6, seed=1, replicas=copies) as ring:
            await until_in_sync(ring)
            owner = clockwise(ring, KEY)[0]
            await write(owner, KEY, b"1")
            assert owner._host.counters["early_stored"] == is_early

    testing.run(main, seed=1)


# -- replies --------------------------------------------------------------------------------------


def test_refusing_member_gets_the_stored_version() -> None:
    """One member covers less than the other holds, but the first reply has decided."""

    async def scene(at: Stage) -> None:
        add_other(at.second)
        at.wire.rule = scenes.hold(StoreCovering, to=at.second)
        await write(at.owner, KEY, b"2")
        at.wire.release(StoreCovering)
        await until(lambda: at.wire.count(StoreCopies) == 1)
        await trio.sleep(0.05)
        assert sorted(versions.values(record_at(at.second, KEY))) == [b"2", b"other"], "it was written at the same time"

    play(0, scene)


def test_put_that_does_not_cover_a_members_write_is_made_twice() -> None:
    async def scene(at: Stage) -> None:
        add_other(at.first, at.second)
        await write(at.owner, KEY, b"2")
        assert at.owner._host.counters["early_differs"] == 1
        assert at.owner._host.counters["early_stored"] == 1, "the first put of the key, by the scene"
        record = record_at(at.owner, KEY)
        assert versions.values(record) == [b"2"]
        assert OTHER.actor in versions.context_of(record)

    play(0, scene)


def test_put_that_every_member_refuses_reads_a_quorum() -> None:
    async def scene(at: Stage) -> None:
        for node in (at.first, at.second):
            only(node).preference_list._in_sync.clear()
        add_other(at.first, at.second)
        written = await write(at.owner, KEY, b"2")
        assert written.is_sloppy, "the copies of members that are not in sync do not count"
        assert at.owner._host.counters["early_refused"] == 1
        assert at.wire.count(ReadCopy) >= 2
        assert versions.values(record_at(at.owner, KEY)) == [b"2"]
        assert OTHER.actor in versions.context_of(record_at(at.owner, KEY))

    play(0, scene)


def test_put_that_a_member_knows_is_done() -> None:
    """The first attempt went through another coordinator, and the request does not say that this is a retry."""

    async def scene(at: Stage) -> None:
        done = Record(KEY, (ActorClock(b"another store 01", 1, (Version(b"2", b"same operation 1", 1),)),))
        for node in (at.first, at.second):
            both = versions.sync(record_at(node, KEY), done)
            node._host.storage.apply(Batch([both]))  # type: ignore[attr-defined]
        before = at.owner._host.storage.minted(KEY)
        await write(at.owner, KEY, b"2", op_id=b"same operation 1")
        record = record_at(at.owner, KEY)
        assert sorted(versions.values(record)) == [b"1", b"2"], "no version was added"
        assert before is not None
        assert at.owner._host.storage.minted(KEY) is None, "the actor is given up"

    play(0, scene)


def test_unknown_outcome_comes_soon_and_frees_the_key() -> None:
    async def scene(at: Stage) -> None:
        at.wire.rule = scenes.hold(StoreCovering)
        began = trio.current_time()
        with pytest.raises(QuorumFailed):
            await write(at.owner, KEY, b"2")
        assert trio.current_time() - began < 1, "twice the timeout of the members, not the longest timeout of a call"
        assert at.owner._host.counters["early_undecided"] == 1
        at.wire.rule = scenes.hold()
        await write(at.owner, KEY, b"3")
        assert versions.values(record_at(at.owner, KEY)) == [b"3"]

    play(0, scene)


async def fail(at: Stage) -> None:
    """Let a put end with an unknown outcome."""
    at.wire.rule = scenes.hold(StoreCovering)
    with pytest.raises(QuorumFailed):
        await write(at.owner, KEY, b"unknown")
    at.wire.rule = scenes.hold()


def test_unknown_outcomes_in_a_row_pause_early_puts() -> None:
    async def scene(at: Stage) -> None:
        await fail(at)
        for pause_s in (EARLY_PAUSE_MIN_S, 2 * EARLY_PAUSE_MIN_S, 4 * EARLY_PAUSE_MIN_S):
            await fail(at)
            sent = at.wire.count(StoreCovering)
            await trio.sleep(pause_s - 0.2)
            await write(at.owner, KEY, b"2")
            assert at.wire.count(StoreCovering) == sent, "the pause is not over"
            await trio.sleep(0.2)
        await write(at.owner, KEY, b"3")
        assert at.wire.count(StoreCovering) == sent + 2, "the pause is over"
        await fail(at)
        await write(at.owner, KEY, b"4")
        assert at.wire.count(StoreCovering) == sent + 6, "a reply ends the row"

    play(0, scene)


def test_longest_pause_of_early_puts_is_ten_minutes() -> None:
    async def scene(at: Stage) -> None:
        (parts,) = at.owner._parts.values()
        parts.coordinator._early_unknown = 5000
        await fail(at)
        left_s = parts.coordinator._no_early_before - trio.current_time()
        assert EARLY_PAUSE_MAX_S - 1 < left_s <= EARLY_PAUSE_MAX_S

    play(0, scene)


def test_node_that_ends_leaves_the_outcome_unknown() -> None:
    async def scene(at: Stage) -> None:
        at.wire.rule = scenes.hold(StoreCovering)
        async with trio.open_nursery() as nursery:
            outcome: list[object] = []

            async def client() -> None:
                outcome.append(await scenes.outcome_of(write(at.owner, KEY, b"2")))

            nursery.start_soon(client)
            await until(lambda: len(at.wire.held) == 2)
            at.owner._host.is_ending = True
            at.wire.release(StoreCovering)
        assert isinstance(outcome[0], (QuorumFailed, DeadlineExceeded)), outcome
        at.owner._host.is_ending = False

    play(0, scene)


def test_copies_take_the_first_settled_reply() -> None:
    copies = ConditionalCopies(MINE, b"")
    assert not copies.take(THERE, StoreCoveringReply(is_settled=False))
    assert not copies.is_decided()
    assert not copies.take(THERE, StoreCoveringReply(record=MINE))
    assert copies.is_decided()
    assert copies.take(THERE, StoreCoveringReply(is_stored=True)), "a later reply still says what is stored"
    assert copies.reply is not None
    assert copies.reply.record == MINE
    assert list(copies.refused) == [THERE]


def test_reply_with_the_record_of_another_key_leaves_doubt() -> None:
    copies = ConditionalCopies(MINE, b"")
    with pytest.raises(MalformedMessage):
        copies.take(THERE, StoreCoveringReply(record=msgspec.structs.replace(MINE, key=b"other")))
    assert copies.is_in_doubt


@pytest.mark.parametrize(("error", "is_in_doubt"), [(NotReady(), False), (DeadlineExceeded(), True)])
def test_failed_call_leaves_doubt_if_it_is_indefinite(error: NotReady | DeadlineExceeded, is_in_doubt: bool) -> None:
    copies = ConditionalCopies(MINE, b"")
    with pytest.raises(type(error)):
        copies.failed(THERE, error)
    assert copies.is_in_doubt is is_in_doubt


def test_error_before_the_first_send_is_definite() -> None:
    async def scene(at: Stage) -> None:
        outcome = await scenes.outcome_of(write(at.owner, KEY, bytes((1 << 20) + 1)))
        assert not isinstance(outcome, (Written, QuorumFailed))
        assert at.wire.count(StoreCovering) == 0

    play(0, scene)


def test_item_of_a_batch_is_stored_first() -> None:
    async def main() -> None:
        async with ring_in_sync(4, 0) as ring:
            owner = clockwise(ring, KEY)[0]
            parts = owner._parts[only(owner).id]
            steps = parts.coordinator.put_in_batch(Put(KEY, b"v", b"o" * 16))
            assert steps.__name__ == "_write"
            steps.close()
            steps = parts.coordinator.put(Put(KEY, b"v", b"o" * 16))
            assert steps.__name__ == "_put_early"
            steps.close()

    testing.run(main, seed=0)
