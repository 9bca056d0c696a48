"""Mistakes about the owners of arcs, and about missing records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from chord.membership.join import Membership
from chord.node import Node
from chord.node.maintenance import Maintenance
from chord.replication import transfer_source
from chord.replication.handoff import Handoff
from chord.replication.transfer import Transfers
from chord.replication.transfer_source import Outbound, TransferSender
from chord.ring.context import NodeContext
from chord.ring.ownership import Giving, Ownership, OwnerVerdict
from chord.ring.takeover import Takeover
from chord.stabilize import Stabilizer
from chord.store.storage import Batch
from chord.wire.messages import Contact

from . import scenes_arcs as scenes
from .mutant import Edit, Mutant, Swap


def _owning_what_it_gives(verdict: Callable[..., OwnerVerdict]) -> Callable[..., OwnerVerdict]:
    def owning(self: Ownership, point: int) -> OwnerVerdict:
        found = verdict(self, point)
        return OwnerVerdict("owned") if found.answer == "giving" else found

    return owning


def _dropping_first(switch: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    async def dropping(self: TransferSender, outbound: Outbound, giving: Giving) -> None:
        keys = [record.key for record in self._host.storage.scan(giving.arc)]
        await self._host.storage.commit(Batch(removals=keys))
        await switch(self, outbound, giving)

    return dropping


def _never(is_taken_back: Callable[..., Awaitable[bool]]) -> Callable[..., Awaitable[bool]]:
    async def never(self: Membership, giver: Contact) -> bool:
        await is_taken_back(self, giver)
        return False

    return never


STAY = (Edit(Maintenance.bring_home, "if not any(", "if False and not any("),)
DROP = (Edit(Handoff._hand_to, "for contact in confirmed.holders:", "for contact in ():"),)
MUTANTS = (
    Mutant(
        "ownership follows the pointer",
        "a node owns an arc before it has the records (as in the papers)",
        (
            Edit(
                Stabilizer.rectify,
                '    self._done("rectify")\n',
                '    self._done("rectify")\n'
                "    own = self._vnode.ownership\n"
                "    if happened and own.start is not None:\n"
                "        own.start, own.boundary, own.marks = ring.predecessor.id, ring.predecessor, ()\n",
            ),
        ),
        scenes.only_copy_dies_before_a_join,
        4,
        ("oracle: denied", "oracle: lost"),
    ),
    Mutant(
        "ownership before the switch",
        "a joiner answers for an arc that another vnode still owns",
        (
            Edit(
                Membership.join,
                "await self._receive_arc(around.successor)",
                "p = around.predecessor\n"
                "                self._host.tell(self._vnode.ownership._gain(p.id, p, 'received', 1))\n"
                "                await self._receive_arc(around.successor)",
            ),
        ),
        scenes.busy,
        2,
        ("OwnedOnce",),
    ),
    Mutant(
        "served while switching",
        "writes before the acknowledgement of the switch stay behind",
        (Swap(Ownership, "verdict", _owning_what_it_gives),),
        scenes.written_while_switching,
        8,
        ("oracle: denied",),
    ),
    Mutant(
        "deltas not sent",
        "writes during a transfer stay behind",
        (Swap(Transfers, "_note_write", lambda note: lambda self, point, key: None),),
        scenes.busy,
        4,
        ("oracle: denied", "oracle: misread", "oracle: replaced"),
    ),
    Mutant(
        "switch not idempotent",
        "a lost acknowledgement makes a second owner",
        (Edit(Transfers.on_switch, "if request.session in self._switched:", "if False:"),),
        scenes.lost_acknowledgement,
        2,
        ("OwnedOnce",),
    ),
    Mutant(
        "dropped before the acknowledgement",
        "the joiner dies, and the giver has already dropped the records",
        (Swap(TransferSender, "switch", _dropping_first),),
        scenes.joiner_dies,
        12,
        ("oracle: denied", "oracle: dropped"),
    ),
    Mutant(
        "lease never runs out",
        "a joiner waits for a dead giver for ever",
        (Edit(Transfers.inbound, "> self._host.timing.lease_s", "> 1e9"),),
        scenes.giver_dies,
        4,
        ("liveness",),
    ),
    Mutant(
        "dead owner denied",
        "the node that takes over denies keys that died with their owner",
        (Edit(Ownership.take_over, "if contact.id in gap:", "if False:"),),
        scenes.only_copy_dies_before_a_join,
        4,
        ("oracle: denied",),
    ),
    Mutant(
        "takeover without a question",
        "the arc of a living joiner is taken over",
        (Edit(Takeover._take_over, "if living:", "if False:"),),
        scenes.joins_and_leaves,
        2,
        ("OwnedOnce",),
    ),
    Mutant(
        "goodbye without a hand-over",
        "a key that a leaving node took with it is denied",
        (Edit(Node._part, "and self._shutdown.has_handed_over(self._goodbye)", ""),),
        scenes.leave_exceeds_its_time,
        2,
        ("oracle: denied",),
    ),
    Mutant(
        "mark lost in a join",
        "a node that joins there denies keys that died with their owner",
        (Swap(transfer_source, "marks_within", lambda within: lambda marks, arc: ()),),
        scenes.only_copy_dies_before_a_join,
        4,
        ("oracle: denied",),
    ),
    Mutant(
        "old copy kept after a late Switch",
        "a joiner denies keys that were written after the giver took its arc back",
        (
            Swap(Membership, "_is_taken_back", _never),
            Edit(Takeover._confirm_owners, "Mark(lost, self._vnode.me, self._peers.now()), *", "*"),
        ),
        scenes.late_switch,
        8,
        ("oracle: denied", "oracle: misread", "oracle: replaced"),
    ),
    Mutant(
        "old copy kept after a takeover",
        "the giver dies, and the joiner denies keys that were written to the next owner",
        (Edit(Membership._take_pointers, "await self._renounce_if_taken_back(around.successor)", "pass"),),
        scenes.giver_dies_after_the_switch,
        16,
        ("oracle: denied", "oracle: misread"),
    ),
    Mutant(
        "misplaced records dropped unacknowledged",
        "writes of two halves are gone when the halves merge",
        DROP,
        scenes.halves_merge,
        2,
        ("oracle: dropped",),
    ),
    Mutant(
        "misplaced records stay where they are",
        "keys that one part of a long split wrote never move to their owner, and are denied when the parts have merged",
        STAY,
        scenes.parts_of_a_long_split_merge,
        4,
        ("copies",),  # not "oracle: denied": the oracle excuses the denials until the records must have moved
    ),
    Mutant(
        "misplaced records dropped after a long split",
        "the same mistake as *misplaced records dropped unacknowledged*, while the oracle excuses denials of them",
        DROP,
        scenes.parts_of_a_long_split_merge,
        4,
        ("oracle: dropped",),
    ),
    Mutant(
        "records stay as a node joins after a split",
        "the same mistake as *misplaced records stay where they are*, and a node without pointers owns some of the "
        "keys",
        STAY,
        scenes.node_joins_as_a_long_split_ends,
        4,
        ("copies",),
    ),
    Mutant(
        "records dropped as a node joins after a split",
        "the same mistake as *misplaced records dropped unacknowledged*, and a node without pointers owns some of the "
        "keys",
        DROP,
        scenes.node_joins_as_a_long_split_ends,
        4,
        ("oracle: dropped",),
    ),
    Mutant(
        "young ring moves no records",
        "the same mistake as *misplaced records stay where they are*, in a ring that splits before it is Ideal",
        STAY,
        scenes.parts_of_a_young_ring_merge,
        4,
        ("copies",),
    ),
    Mutant(
        "young ring drops records",
        "the same mistake as *misplaced records dropped unacknowledged*, in a ring that splits before it is Ideal",
        DROP,
        scenes.parts_of_a_young_ring_merge,
        4,
        ("oracle: dropped",),
    ),
    Mutant(
        "leaver forgets the other part of a split",
        "only reachable nodes count as nodes of the ring, so a leaver drops copies while fewer than W nodes have them",
        (Edit(NodeContext.nodes_known, "| gone - taken ", ""),),
        scenes.two_leave_a_part,
        4,
        ("oracle: dropped",),
    ),
)
