"""Planted bugs of replication, each with the test that catches it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest import mock

import pytest
import trio

from chord.errors import ChordError
from chord.ids import Arc
from chord.net.steps import Driver, Steps
from chord.replication.coordinator import Coordinator
from chord.replication.effects import Commit
from chord.replication.quorum import KeyTarget
from chord.replication.read import QuorumReads, Reading
from chord.replication.records import Records
from chord.replication.sync import ReplicaSync
from chord.ring import context
from chord.ring.preference_list import Place, PreferenceList, ReplicaSet
from chord.ring.takeover import Takeover
from chord.ring.vnode import Vnode
from chord.store import versions
from chord.store.storage import Batch
from chord.wire.messages import Contact, Record
from tests.mutants.mutant import Edit
from tests.replication import test_anti_entropy as test_repair
from tests.replication import test_bounds_of_records, test_clocks, test_denials, test_replication
from tests.replication import test_coordinator as test_coordinators
from tests.replication import test_denials_without_copies as test_few_copies
from tests.replication import test_handoff as test_hints
from tests.replication import test_transfer as test_moving_keys

CAUGHT = (AssertionError, ChordError, trio.TooSlowError, pytest.fail.Exception, BaseExceptionGroup)


def by_replica_sets_alone(check: Callable[[], object]) -> None:
    """Run a check without the rule for newcomers, which refuses some of the same denials."""
    with mock.patch.object(Vnode, "may_hold", lambda self, key, replicas: replicas.everyone):
        check()


async def proven_at_once(self: ReplicaSync, partner: Contact, arc: Arc) -> dict[bytes, bytes]:
    return dict(self.host.storage.heads(arc))


def every_vnode(self: PreferenceList, key: int, ring: Any, own: Any) -> Iterator[Place]:
    for contact, is_waited_for in self._clockwise(key, ring, own):
        yield Place(contact, is_waited_for)


def visible_is_enough(self: Commit, driver: Driver[Any], /) -> None:
    self.storage.stage(self.batch)
    driver.resume()


def any_owner_after_the_read(self: Coordinator, *what: Any) -> Steps[Any]:
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


def every_member(self: Vnode, key: int) -> bool:
    return any(place.contact == self.me for place in self.replica_set(key).members)


def every_answer_counts(self: Reading, contact: Contact, record: Record | None, *_: Any, **named: Any) -> None:
    ADD(self, contact, record, True, **named)


def deny(self: QuorumReads, reading: Reading, target: KeyTarget, *, until_found: bool) -> Steps[None]:
    return
    yield


READ_FIRST = Coordinator._read_first
ADD = Reading.add

PLANTED: dict[str, tuple[object, str, object, Callable[[], object]]] = {
    "a hint is dropped before its home has it": (
        ReplicaSync, "prove", proven_at_once, test_hints.test_hint_comes_home_without_anti_entropy,
    ),
    "two vnodes of one node count as two replicas": (
        PreferenceList, "walk", every_vnode,
        lambda: test_coordinators.test_copies_are_on_different_nodes_with_many_vnodes(5),
    ),
    "a write is sent to replicas before it is durable": (
        Commit, "begin", visible_is_enough,
        test_coordinators.test_write_is_sent_to_replicas_only_once_it_is_durable,
    ),
    "a key is denied although stand-ins are unreachable": (
        ReplicaSet, "everyone", property(lambda self: self.members),
        lambda: test_denials.test_key_is_not_denied_with_two_unreachable_holders((3, 4)),
    ),
    "a key is denied although no other node was asked": (
        QuorumReads, "ask_everyone", deny,
        lambda: test_denials.test_key_is_denied_with_at_most_one_unreachable_replica("killed", 2, False),
    ),
    "an unreachable vnode is forgotten at once": (
        PreferenceList, "became_unreachable", lambda self, contact, now: None,
        lambda: by_replica_sets_alone(
            lambda: test_denials.test_key_is_denied_with_at_most_one_unreachable_replica("killed", 2, False)
        ),
    ),
    "the context of a write covers unread siblings": (
        versions, "context_after", lambda record, op_id: versions.context_of(record),
        test_replication.test_context_of_a_write_covers_no_unread_sibling,
    ),
    "a reply shows more siblings than it holds": (
        versions, "cut", lambda record, bytes_max: record,
        test_bounds_of_records.test_siblings_beyond_one_reply_after_a_split_can_be_resolved,
    ),
    "a put goes on though its arc was switched meanwhile": (
        Coordinator, "_read_first", any_owner_after_the_read,
        test_moving_keys.test_put_begun_before_a_switch_is_not_stored_after_it,
    ),
    "a clock skew counts for ever": (
        context, "SKEW_ROUNDS", 1e9, test_clocks.test_clock_skew_ends_when_a_node_leaves_or_is_corrected,
    ),
    "repair overwrites": (
        Records, "stage", overwrite, test_repair.test_anti_entropy_merges_concurrent_versions_of_replicas,
    ),
    "a replica coordinates although the owner answers": (
        Vnode, "_stands_in_for", every_member,
        test_coordinators.test_replica_refuses_to_coordinate_while_the_owner_answers,
    ),
    "a replica that was never in sync counts for R": (
        Reading, "add", every_answer_counts,
        test_coordinators.test_replica_that_was_never_in_sync_does_not_count_for_r,
    ),
}  # fmt: skip


EDITED: dict[str, tuple[Edit, Callable[[], None]]] = {
    "a read returns a value before it is durable": (
        Edit(QuorumReads._read_own, "storage.durable(", "storage.get("),
        test_coordinators.test_read_during_a_refused_write_returns_the_durable_value,
    ),
    "a key is denied without another look": (
        Edit(QuorumReads.ask_everyone, "self._host.storage.durable(reading.key)", "None"),
        test_denials.test_copy_that_arrives_during_a_read_is_not_denied,
    ),
    "a node stands in across a gap": (
        Edit(Vnode._stands_in_for, "!= own.start:", "== key:"),
        test_coordinators.test_node_before_its_takeover_stands_in_for_no_key,
    ),
    "a giver does not name the receivers of its arcs": (
        Edit(Vnode._marks_for_others, "*moved, ", ""),
        test_few_copies.test_only_copies_that_moved_to_a_joiner_are_not_denied,
    ),
    "a yielded arc gets no mark": (
        Edit(Takeover._confirm_owners, "Mark(lost, self._vnode.me, self._peers.now()), *", "*"),
        partial(test_few_copies.test_owner_back_from_a_split_fetches_the_only_copies_first, 2),
    ),
}


@pytest.mark.parametrize("name", EDITED)
def test_planted_edit_of_the_source_is_caught(name: str) -> None:
    edit, test = EDITED[name]
    with ExitStack() as stack:
        edit.plant(stack)
        with pytest.raises(CAUGHT):
            test()


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_of_replication_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, bug, test = PLANTED[name]
    monkeypatch.setattr(owner, attribute, bug)
    with pytest.raises(CAUGHT):
        test()
