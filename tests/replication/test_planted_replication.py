"""Bugs a store like this has had, planted one by one: each is caught by the test that is to catch it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any
from unittest import mock

import pytest
import trio

from chord.errors import ChordError
from chord.ids import Arc
from chord.net.steps import Driver, Steps
from chord.replication.coordinator import Coordinator
from chord.replication.effects import Commit
from chord.replication.read import KeyTarget, QuorumReads, Reading
from chord.replication.records import Records
from chord.replication.sync import ReplicaSync
from chord.ring import context
from chord.ring.preference_list import Place, PreferenceList, ReplicaSet
from chord.ring.vnode import Vnode
from chord.store import versions
from chord.store.storage import Batch
from chord.wire.messages import Contact, Record
from tests.mutants.mutant import Edit
from tests.replication import test_anti_entropy as test_repair
from tests.replication import test_bounds_of_records, test_clocks, test_denials, test_replication
from tests.replication import test_coordinator as test_coordinators
from tests.replication import test_handoff as test_hints
from tests.replication import test_transfer as test_moving_keys
from tests.ring import test_preference_list as test_view

CAUGHT = (AssertionError, ChordError, trio.TooSlowError, pytest.fail.Exception, BaseExceptionGroup)


def by_replica_sets_alone(check: Callable[[], object]) -> None:
    """Run a check without the rule for newcomers, which refuses some of the same denials."""
    with mock.patch.object(Vnode, "may_hold", lambda self, key, who: who.everyone):
        check()


async def proven_at_once(self: ReplicaSync, partner: Contact, arc: Arc) -> dict[bytes, bytes]:
    return dict(self.host.storage.heads(arc))


def every_vnode(self: PreferenceList, key: int, ring: Any, own: Any) -> Iterator[Place]:
    for contact, is_waited_for in self._clockwise(key, ring, own):
        yield Place(contact, is_waited_for)


def visible_is_enough(self: Commit, driver: Driver[Any], /) -> None:
    self.storage.stage(self.batch)
    driver.resume()


def whatever_happened_meanwhile(self: Coordinator, *what: Any) -> Steps[Any]:
    self._vnode.require_coordinator = lambda key: None  # type: ignore[method-assign, assignment, return-value]
    try:
        return (yield from READ_FIRST(self, *what))
    finally:
        del self._vnode.require_coordinator


def overwrite(
    self: Records, records: Iterable[Record], seen: object, *, must_all: bool = True
) -> tuple[int, bool]:
    new = tuple(records)
    return len(new), self._host.storage.stage(Batch(puts=new))


def whoever_is_asked(self: Vnode, key: int) -> bool:
    return any(place.contact == self.me for place in self.replica_set(key).members)


def whoever_answers_counts(self: Reading, contact: Contact, record: Record | None, *_: Any, **named: Any) -> None:
    ADD(self, contact, record, True, **named)


def deny(self: QuorumReads, reading: Reading, target: KeyTarget, *, until_found: bool) -> Steps[None]:
    return
    yield


READ_FIRST = Coordinator._read_first
ADD = Reading.add

PLANTED: dict[str, tuple[object, str, object, Callable[[], object]]] = {
    "a hint is dropped before its home has it": (
        ReplicaSync, "prove", proven_at_once, test_hints.test_a_hint_comes_home_though_nobody_compares,
    ),
    "two vnodes of one node count as two replicas": (
        PreferenceList, "walk", every_vnode,
        lambda: test_coordinators.test_copies_are_on_different_nodes_however_many_vnodes_these_have(5),
    ),
    "two vnodes of one node count as two in the view": (
        PreferenceList, "walk", every_vnode, test_view.test_a_replica_set_is_the_beginning_of_the_walk,
    ),
    "others hear of a write before it is durable": (
        Commit, "begin", visible_is_enough,
        test_coordinators.test_nobody_hears_of_a_write_before_it_is_durable_where_it_was_made,
    ),
    "a key is denied although fallbacks are silent": (
        ReplicaSet, "everyone", property(lambda self: self.members),
        lambda: test_denials.test_two_of_those_who_may_hold_a_key_are_silent((3, 4)),
    ),
    "a key is denied although nobody else was asked": (
        QuorumReads, "ask_everyone", deny,
        lambda: test_denials.test_so_many_silent_replicas_are_too_many("killed", 2, False),
    ),
    "a vnode that fell silent is forgotten at once": (
        PreferenceList, "fell_silent", lambda self, contact, now: None,
        lambda: by_replica_sets_alone(
            lambda: test_denials.test_so_many_silent_replicas_are_too_many("killed", 2, False)
        ),
    ),
    "the context of a write covers what its writer has not seen": (
        versions, "context_after", lambda record, op_id: versions.context_of(record),
        test_replication.test_who_goes_on_from_a_write_replaces_nothing_that_was_not_read,
    ),
    "a reply shows more siblings than it holds": (
        versions, "cut", lambda record, bytes_max: record,
        test_bounds_of_records.test_siblings_that_both_sides_of_a_partition_let_grow_can_be_read_and_settled_by_anybody,
    ),
    "a put goes on though its arc was switched meanwhile": (
        Coordinator, "_read_first", whatever_happened_meanwhile,
        test_moving_keys.test_a_put_that_is_begun_before_a_switch_is_not_made_after_it,
    ),
    "what a clock once said counts for ever": (
        context, "SKEW_ROUNDS", 1e9, test_clocks.test_a_clock_that_has_left_or_was_set_right_stands_in_nobodys_way,
    ),
    "repair overwrites": (
        Records, "stage", overwrite, test_repair.test_two_replicas_that_differ_both_get_what_both_have,
    ),
    "a replica coordinates although the owner answers": (
        Vnode, "_stands_in_for", whoever_is_asked, test_coordinators.test_nobody_coordinates_while_the_owner_answers,
    ),
    "one that was never brought level counts for R": (
        Reading, "add", whoever_answers_counts,
        test_coordinators.test_a_replica_that_was_never_brought_level_does_not_count_for_r,
    ),
}  # fmt: skip


EDITED: dict[str, tuple[Edit, Callable[[], None]]] = {
    "a read tells what no disk has yet": (
        Edit(QuorumReads.get, "storage.durable(", "storage.get("),
        test_coordinators.test_a_full_disk_is_no_reason_not_to_read,
    ),
    "a key is denied without another look": (
        Edit(QuorumReads.ask_everyone, "self._host.storage.durable(reading.key)", "None"),
        test_denials.test_a_copy_that_comes_home_while_the_others_are_asked_is_not_denied,
    ),
}


@pytest.mark.parametrize("name", EDITED)
def test_a_bug_of_a_few_words_is_caught(name: str) -> None:
    edit, test = EDITED[name]
    with ExitStack() as stack:
        edit.plant(stack)
        with pytest.raises(CAUGHT):
            test()


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, bug, test = PLANTED[name]
    monkeypatch.setattr(owner, attribute, bug)
    with pytest.raises(CAUGHT):
        test()
