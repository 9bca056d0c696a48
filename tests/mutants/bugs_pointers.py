"""Mistakes with pointers that a reader of the papers could make."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from chord.membership.leave import Departures
from chord.net.peers import Peers
from chord.node.dispatch import Dispatcher
from chord.node.maintenance import Maintenance
from chord.replication.anti_entropy import AntiEntropy
from chord.ring.merge import RingMerge
from chord.ring.pointers import RingState
from chord.stabilize import Stabilizer
from chord.wire.messages import Contact

from . import scenes_pointers as scenes
from .mutant import Edit, Mutant, Swap

# Without this assertion of the list, the checks from outside must catch the bug.
UNASSERTED = Swap(RingState, "_check", lambda check: lambda self: None)


def _padded(copied: Callable[..., tuple[Contact, ...]]) -> Callable[..., tuple[Contact, ...]]:
    def padded(self: RingState, entries: tuple[Contact, ...]) -> tuple[Contact, ...]:
        kept = copied(self, entries)
        return kept if kept == (self.me,) else (*kept, *kept[-1:] * (self.r - len(kept)))

    return padded


def _believing_verdicts(is_gone: Callable[..., Awaitable[bool]]) -> Callable[..., Awaitable[bool]]:
    async def believing(self: Peers, contact: Contact) -> bool:
        return self.is_dead(contact) or await is_gone(self, contact)

    return believing


MUTANTS = (
    Mutant(
        "join takes one pointer",
        "a joiner depends on one node (SIGCOMM 2001)",
        (Swap(RingState, "join", lambda join: lambda self, before, theirs: join(self, before, tuple(theirs)[:1])),),
        scenes.one_failure,
        2,
        ("OneLiveSuccessor",),
    ),
    Mutant(
        "list padded with a repeat",
        "a list looks more fault-tolerant than it is",
        (UNASSERTED, Swap(RingState, "_copied", _padded)),
        scenes.small_ring,
        2,
        ("NoDuplicates",),
    ),
    Mutant(
        "list wraps",
        "a list goes on past its owner",
        (UNASSERTED, Edit(RingState._leading, "distance <= last or", "")),
        scenes.small_ring,
        2,
        ("NoDuplicates", "OrderedSuccessorList"),
    ),
    Mutant(
        "join does not look again",
        "a joiner takes a place that is no longer free",
        (Edit(RingState.join, "or not between(predecessor.id, self.me.id, theirs[0].id)", ""),),
        scenes.adjacent_joins_and_crashes,
        4,
        ("SufficientPrincipals", "PrincipalsPersist", "OneLiveSuccessor"),
    ),
    Mutant(
        "stale answers adopted",
        "a step undoes a later step that finished first (no abort-if-observed)",
        (
            Edit(Stabilizer._ask_pointers, "if ring.observed == seen:", "if True:"),
            Edit(Stabilizer.rectify, "if ring.observed == seen:", "if True:"),
        ),
        scenes.adjacent_joins_and_crashes,
        24,
        ("PrincipalsPersist", "SufficientPrincipals"),
    ),
    Mutant(
        "answer of a former head adopted",
        "a vnode forgets pointers that it learnt later",
        (Edit(RingState.adopt_list, "or self.successors[0].id != head.id", ""),),
        scenes.adjacent_joins_and_crashes,
        4,
        ("PrincipalsPersist", "SufficientPrincipals", "OneLiveSuccessor"),
    ),
    Mutant(
        "a vnode answers after it left",
        "nodes adopt pointers that no step maintains any more",
        (Edit(Dispatcher._services_of, 'if services.vnode.state == "left" and', "if False and"),),
        scenes.lost_goodbye,
        2,
        ("OneLiveSuccessor",),
    ),
    Mutant(
        "successor adopted without a question",
        "the new head is put before the old list (SIGCOMM 2001)",
        (
            Edit(
                Stabilizer.consider_successor,
                'await self._ask_pointers(contact, "adopt")',
                "self._host.tell(self._ring.adopt_successor(contact, self._ring.successors))",
            ),
        ),
        scenes.adjacent_joins_and_crashes,
        24,
        ("PrincipalsPersist", "SufficientPrincipals", "OneLiveSuccessor"),
    ),
    Mutant(
        "dead head dropped without a question",
        "a predecessor forgets a node that is back",
        (
            Edit(
                Stabilizer.stabilize,
                'reply = await self._ask_pointers(head, "stabilize")',
                "if self._peers.is_dead(head): raise PeerGone\n            "
                'reply = await self._ask_pointers(head, "stabilize")',
            ),
        ),
        scenes.wrong_verdict_about_a_successor,
        8,
        ("PrincipalsPersist",),
    ),
    Mutant(
        "predecessor replaced without a ping",
        "a vnode gives up a nearer predecessor for a farther vnode that notifies it",
        (Edit(Stabilizer.rectify, "gone = await self._peers.is_gone(old)", "gone = True"),),
        scenes.late,
        8,
        ("Progress",),
    ),
    Mutant(
        "outdated verdict believed",
        "a node that is back is replaced and loses its arc, and no node asks it",
        (Swap(Peers, "is_gone", _believing_verdicts),),
        scenes.wrong_verdict_about_a_predecessor,
        2,
        ("Progress", "OwnedOnce"),
    ),
    Mutant(
        "leaver keeps its list to itself",
        "a vnode ends up alone if its list names no other vnode",
        (Swap(Departures, "_inherit", lambda inherit: lambda self, request: None),),
        scenes.last_entry_leaves,
        16,
        ("SufficientPrincipals", "AtMostOneRing"),
    ),
    Mutant(
        "grown periods stay after news",
        "a ring that was calm for long heals slowly",
        (Edit(Maintenance._on_news, "self.timetable.fall_back()", "return"),),
        scenes.death_in_a_calm_ring,
        2,
        ("liveness",),
    ),
    Mutant(
        "no self-lookup",
        "two rings stay two (stabilization as published)",
        (Swap(RingMerge, "pick", lambda pick: lambda self, joins: None),),
        scenes.split,
        2,
        ("liveness",),
    ),
    Mutant(
        "unreachable nodes forgotten",
        "the nodes of the other half are never asked again",
        (
            Swap(Stabilizer, "remember_unreachable", lambda remember: lambda self, contact: None),
            Edit(AntiEntropy._fetch_arc, "self._host.peers.passive.add(mark.dead, trio.current_time())", "pass"),
        ),
        scenes.split,
        2,
        ("liveness",),
    ),
)
