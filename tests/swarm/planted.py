"""Bugs on purpose, each with the scenario that must catch it and within how many seeds.

A check that never failed proves nothing. Every plant replaces one rule of the protocol by a
plausible wrong one, the way a hurried reader of the papers might write it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple
from unittest import mock

from chord.data.transfer import Mover, Outbound, TransferFailed
from chord.events import Event, RingJoined
from chord.ids import between
from chord.membership import Membership
from chord.messages import Contact, Done, GetRing, NeighboursOf, RingPointers, Switch
from chord.ownership import Giving, Ownership, Verdict
from chord.ring import RingState
from chord.self_lookup import SelfLookup
from chord.stabilize import Stabilizer
from chord.vnode import Vnode

from . import scenarios

Patch = Callable[[ExitStack], None]


class Plant(NamedTuple):
    """One bug.

    Attributes:
        name: what is wrong.
        plant: puts it in, for the life of the stack.
        scenario: where it shows; a function of a seed.
        seeds: within so many it is caught.
        sign: a word of the complaint, so that it is caught for the right reason.
        is_slow: too slow for every run of the tests.
    """

    name: str
    plant: Patch
    scenario: Callable[[int], None]
    seeds: int
    sign: str
    is_slow: bool = False

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Have the bug for the length of the block."""
        with ExitStack() as stack:
            self.plant(stack)
            yield


def replace(stack: ExitStack, owner: type, name: str, wrong: Callable[..., Any]) -> None:
    """Replace a method."""
    stack.enter_context(mock.patch.object(owner, name, wrong))


def without_assertions(stack: ExitStack) -> None:
    """The list's own assertion would see it first; here the swarm's checks must."""
    replace(stack, RingState, "_check", lambda state: None)


# -- pointers -----------------------------------------------------------------------------------


def join_takes_one_pointer(stack: ExitStack) -> None:
    """SIGCOMM 2001: a joiner learns its successor, and nothing else."""
    original = RingState.join

    def join(state: RingState, predecessor: Contact, its_successors: Iterable[Contact]) -> list[Event]:
        return original(state, predecessor, tuple(its_successors)[:1])

    replace(stack, RingState, "join", join)


def list_padded_with_a_repeat(stack: ExitStack) -> None:
    """The list shall always have r entries, so the last one is repeated."""
    original = RingState._copied

    def copied(state: RingState, entries: tuple[Contact, ...]) -> tuple[Contact, ...]:
        kept = original(state, entries)
        return kept + (kept[-1],) * (state.r - len(kept))

    without_assertions(stack)
    replace(stack, RingState, "_copied", copied)


def list_wraps(stack: ExitStack) -> None:
    """The list shall always have r entries, so it goes on past oneself."""

    def copied(state: RingState, entries: tuple[Contact, ...]) -> tuple[Contact, ...]:
        return entries[: state.r]

    without_assertions(stack)
    replace(stack, RingState, "_copied", copied)


def join_does_not_look_again(stack: ExitStack) -> None:
    """JOIN without its re-check: somebody else may stand between by the time the list is there."""
    original = RingState.join

    def join(state: RingState, predecessor: Contact, its_successors: Iterable[Contact]) -> list[Event]:
        theirs = [c for c in its_successors if c.id != state.me.id]
        behind = [c for c in theirs if between(predecessor.id, state.me.id, c.id)]
        if behind == theirs or not theirs:
            return original(state, predecessor, theirs)
        state.successors, state.predecessor = state._copied(tuple(theirs)), predecessor
        return [RingJoined(state.me.id, predecessor, state.successor)]

    replace(stack, RingState, "join", join)


def stale_state_served(stack: ExitStack) -> None:
    """No abort-if-observed: what is served while a step is under way is not counted."""
    original = Vnode.on_get_ring

    def on_get_ring(vnode: Vnode, request: GetRing) -> RingPointers:
        seen = vnode.ring.observed
        reply = original(vnode, request)
        vnode.ring.observed = seen
        return reply

    replace(stack, Vnode, "on_get_ring", on_get_ring)


def no_self_lookup(stack: ExitStack) -> None:
    """Stabilization as published, and nothing beside it."""
    replace(stack, SelfLookup, "pick", lambda looker, joins: None)


def predecessor_replaced_without_a_ping(stack: ExitStack) -> None:
    """RECTIFY believes whoever notifies."""

    async def rectify(stabilizer: Stabilizer, contact: Contact) -> None:
        ring = stabilizer._ring
        if ring.is_member and contact.id != stabilizer._vnode.id and contact != ring.predecessor:
            stabilizer._host.tell(ring._set_predecessor(contact))
        stabilizer._done("rectify")

    replace(stack, Stabilizer, "rectify", rectify)


# -- ownership ----------------------------------------------------------------------------------


def ownership_follows_the_pointer(stack: ExitStack) -> None:
    """As in the papers: I own what lies between my predecessor and me, whoever that is at the moment."""
    original = RingState._set_predecessor
    owners: dict[int, Ownership] = {}
    created = Vnode.__init__

    def init(vnode: Vnode, *arguments: Any) -> None:
        created(vnode, *arguments)
        owners[id(vnode.ring)] = vnode.ownership

    def set_predecessor(state: RingState, new: Contact) -> list[Event]:
        own = owners[id(state)]
        if own.start is not None and own.giving is None:
            own.start, own.boundary = new.id, new
        return original(state, new)

    replace(stack, Vnode, "__init__", init)
    replace(stack, RingState, "_set_predecessor", set_predecessor)


def ownership_before_the_switch(stack: ExitStack) -> None:
    """The joiner answers for its arc as soon as it knows who stands before it."""
    look, receive = Membership._around, Membership._receive_arc
    around: dict[int, NeighboursOf] = {}

    async def stash(membership: Membership, via: Contact | str) -> NeighboursOf:
        found = around[id(membership)] = await look(membership, via)
        return found

    async def hasty(membership: Membership, owner: Contact) -> None:
        vnode = membership._vnode
        predecessor = around[id(membership)].predecessor
        vnode.host.tell(vnode.ownership.resume(predecessor.id, predecessor))
        await receive(membership, owner)

    replace(stack, Membership, "_around", stash)
    replace(stack, Membership, "_receive_arc", hasty)


def served_while_switching(stack: ExitStack) -> None:
    """The giver goes on answering between the Switch and its acknowledgement."""
    original = Ownership.verdict

    def verdict(own: Ownership, point: int) -> Verdict:
        found = original(own, point)
        return Verdict("owned") if found.answer == "giving" else found

    replace(stack, Ownership, "verdict", verdict)


def dropped_unacknowledged(stack: ExitStack) -> None:
    """The leaver, or whoever gives, forgets the records when it has sent the Switch, not when it is confirmed."""
    original = Mover._switch

    async def switch(mover: Mover, outbound: Outbound, giving: Giving) -> None:
        await mover._drop(giving.arc, outbound.to)
        await original(mover, outbound, giving)

    replace(stack, Mover, "_switch", switch)


def leaver_forgets_unconfirmed(stack: ExitStack) -> None:
    """Whether or not the Switch was confirmed, the arc counts as given."""
    original = Mover._switch

    async def switch(mover: Mover, outbound: Outbound, giving: Giving) -> None:
        with suppress(TransferFailed):
            await original(mover, outbound, giving)

    replace(stack, Mover, "_switch", switch)


def switch_not_idempotent(stack: ExitStack) -> None:
    """The receiver does not recognise a Switch it has carried out."""
    original = Mover.on_switch

    def on_switch(mover: Mover, request: Switch) -> Done:
        mover._switched = []
        return original(mover, request)

    replace(stack, Mover, "on_switch", on_switch)


def no_reclaim(stack: ExitStack) -> None:
    """The receiver died before it acknowledged, and the giver gives all the same."""
    replace(stack, Ownership, "reclaim", Ownership.finish_switch)


def deltas_not_sent(stack: ExitStack) -> None:
    """What is written during a transfer stays behind."""
    replace(stack, Mover, "_note_write", lambda mover, point, key: None)


def lease_never_runs_out(stack: ExitStack) -> None:
    """A joiner waits for a dead giver for ever."""
    replace(stack, Mover, "inbound", property(lambda mover: mover._inbound))  # type: ignore[arg-type]


def dead_owner_denied(stack: ExitStack) -> None:
    """Who takes an arc over says "not found" for what died with its owner."""
    original = Ownership.take_over

    def take_over(own: Ownership, predecessor: Contact, dead: Iterable[Contact], now: float) -> list[Event]:
        return original(own, predecessor, (), now)

    replace(stack, Ownership, "take_over", take_over)


def mark_lost_in_a_join(stack: ExitStack) -> None:
    """The mark of a dead owner does not travel with its arc."""
    original = Ownership.receive

    def receive(own: Ownership, arc: Any, epoch: int, boundary: Contact | None, taken: Any) -> list[Event]:
        return original(own, arc, epoch, boundary, ())

    replace(stack, Ownership, "receive", receive)


PLANTS = (
    Plant("join takes one pointer", join_takes_one_pointer, scenarios.one_failure, 2, "OneLiveSuccessor"),
    Plant("list padded with a repeat", list_padded_with_a_repeat, scenarios.few, 2, "NoDuplicates"),
    Plant("list wraps", list_wraps, scenarios.few, 2, "NoDuplicates"),
    Plant("join does not look again", join_does_not_look_again, scenarios.hurry, 4, "Principals"),
    Plant("stale state served", stale_state_served, scenarios.hurry, 30, "PrincipalsPersist", is_slow=True),
    Plant("no self-lookup", no_self_lookup, scenarios.split, 1, "not Ideal"),
    Plant("predecessor replaced without a ping", predecessor_replaced_without_a_ping, scenarios.late, 4, "Progress"),
    Plant("ownership follows the pointer", ownership_follows_the_pointer, scenarios.mourning, 6, "denies"),
    Plant("ownership before the switch", ownership_before_the_switch, scenarios.busy, 2, "OwnedOnce"),
    Plant("served while switching", served_while_switching, scenarios.busy, 8, "was acknowledged|written was"),
    Plant("deltas not sent", deltas_not_sent, scenarios.busy, 4, "was acknowledged|written was"),
    Plant("switch not idempotent", switch_not_idempotent, scenarios.lost_acknowledgement, 2, "OwnedOnce"),
    Plant("dropped before the ack", dropped_unacknowledged, scenarios.joiner_dies, 12, "denies"),
    Plant("leaver forgets too soon", leaver_forgets_unconfirmed, scenarios.heir_dies, 20, "does not find"),
    Plant("no reclaim", no_reclaim, scenarios.heir_dies, 20, "does not find"),
    Plant("lease never runs out", lease_never_runs_out, scenarios.giver_dies, 4, "not Ideal"),
    Plant("dead owner denied", dead_owner_denied, scenarios.mourning, 6, "denies"),
    Plant("mark lost in a join", mark_lost_in_a_join, scenarios.mourning, 6, "denies"),
)
