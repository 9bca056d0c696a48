"""Mistakes about durability, and about the knowledge of a restarted node."""

from __future__ import annotations

from collections.abc import Callable

from chord.membership.join import Membership
from chord.membership.leave import Departures
from chord.net.peers import Peers
from chord.replication.coordinator import Coordinator
from chord.replication.handoff import Handoff
from chord.replication.replica import Replica
from chord.ring.lookup import Lookups
from chord.ring.ownership import Ownership
from chord.ring.preference_list import PreferenceList
from chord.ring.vnode import Vnode
from chord.sim.cluster import Cluster
from chord.store.sqlite import SqliteStorage
from chord.store.storage import Batch

from . import scenes_restarts as scenes
from .mutant import Edit, Mutant, Swap
from .scenes_data import joins_leaves_and_crashes

_MARKING_NONE = Swap(Vnode, "mark_only_copies", lambda mark: lambda self, others: None)
_NO_SECOND_CHANCE = (  # a vnode also looks for only copies at its heirs, and learns from them which owners are silent
    Swap(Ownership, "learn_only_copies", lambda learn: lambda self, unreachable: None),
    _MARKING_NONE,
)


def _remembering_actors(stage: Callable[..., bool]) -> Callable[..., bool]:
    def remembering(self: SqliteStorage, batch: Batch) -> bool:
        vars(self).setdefault("was", {}).update(batch.minted)
        return stage(self, batch)

    return remembering


MUTANTS = (
    Mutant(
        "acknowledged before the fsync",
        "a power failure takes back a write that the client takes for stored",
        (
            Edit(
                Coordinator._write,
                "yield Commit(self._host.storage, batch)",
                "self._host.storage.stage(batch)",
            ),
        ),
        scenes.power_fails,
        2,
        ("oracle: acknowledged",),
    ),
    Mutant(
        "written during a sync counts as synced",
        "an acknowledged write is on no disk when the power fails",
        tuple(
            Edit(wait, "group = self._commits.last()", "group = self._commits.under_way")
            for wait in (SqliteStorage.commit, SqliteStorage.when_durable)
        ),
        scenes.power_fails,
        2,
        ("oracle: acknowledged",),
    ),
    Mutant(
        "acknowledged before a replica's fsync",
        "a write that was acknowledged as on several disks is on one",
        (Edit(Replica.on_store_copies, "if is_durable else", "if True else"),),
        joins_leaves_and_crashes,
        4,
        ("oracle: acknowledged",),
    ),
    Mutant(
        "timeout reported as failure",
        "a client gets the answer that nothing happened, although the write happened",
        (
            Edit(
                Lookups._offer,
                "path.timeouts += 1",
                'from chord.errors import OwnerDown; raise OwnerDown("no answer") from error',
            ),
        ),
        scenes.acknowledgements_are_lost,
        12,
        ("oracle: misread",),
    ),
    Mutant(
        "an arc given away and back",
        "a dot is minted twice, and one of two values is never seen again",
        (
            Swap(SqliteStorage, "stage", _remembering_actors),
            Swap(SqliteStorage, "minted", lambda minted: lambda self, key: vars(self).get("was", {}).get(key)),
        ),
        scenes.given_away_and_back,
        4,
        ("oracle: dots", "oracle: misread", "oracle: lost"),
    ),
    Mutant(
        "actor reused after a wipe",
        "an empty disk mints the dots of the disk before it",
        (Edit(Cluster._make_node, "rng.randbytes(8)", "bytes(8)"),),
        scenes.given_away_and_wiped,
        8,
        ("oracle: dots", "oracle: misread", "oracle: lost"),
    ),
    Mutant(
        "arc dropped while it is handed back",
        "a giver goes on dropping an arc that is handed back to it",
        (
            Edit(Handoff._bring_part_home, "or self._is_receiving()", ""),
            Edit(Handoff._hand_to, "or self._is_receiving() or", "or"),
            Edit(Handoff._is_to_drop, "return not any(", "return True or any("),
        ),
        scenes.back_while_it_is_forgotten,
        32,
        ("oracle: denied", "oracle: dropped"),
    ),
    Mutant(
        "marks lost in a restart",
        "a node that took over and restarted denies keys that died before",
        (
            Swap(Ownership, "_recalled", lambda recalled: lambda self, arc: ()),
            *_NO_SECOND_CHANCE,
        ),
        scenes.taker_restarts,
        4,
        ("oracle: denied",),
    ),
    Mutant(
        "marks dropped by a returned owner",
        "a node that is back denies keys that the owner before it had",
        (Edit(Ownership._without_mine, "elif old is not None and", "elif False and"), *_NO_SECOND_CHANCE),
        scenes.one_of_two_comes_back,
        4,
        ("oracle: denied",),
    ),
    Mutant(
        "forgotten owner marked again",
        "a node that is back waits for ever for the owner before it, although an operator has forgotten that owner",
        (Edit(Departures.on_forget, "self._host.peers.give_up(gone)", "pass"),),
        scenes.neighbour_is_forgotten,
        4,
        ("liveness",),
    ),
    Mutant(
        "forgotten owner not expected again",
        "a forgotten node returns and dies again, and keys that it took meanwhile are denied",
        (Swap(PreferenceList, "is_back", lambda is_back: lambda self, address: None),),
        scenes.forgotten_node_is_back,
        4,
        ("oracle: denied",),
    ),
    Mutant(
        "marks dropped when an arc shrinks",
        "a node that was cut off denies keys that the next node acknowledged before it died",
        (Edit(Vnode.on_give_marks, "arc is not None", "False"),),
        scenes.taker_of_a_cut_off_arc_dies,
        4,
        ("oracle: denied",),
    ),
    Mutant(
        "resumed with the arc of a dead neighbour",
        "a node that is back denies keys that died with its neighbour",
        (
            Edit(Membership._own_again, "if start is None or", "if True or"),
            *_NO_SECOND_CHANCE,
        ),
        scenes.predecessor_dies_meanwhile,
        4,
        ("oracle: denied",),
    ),
    Mutant(
        "restarted neighbours wait for each other",
        "two neighbours never come back",
        (
            Edit(
                Membership._taker_of_my_arc,
                "except (UnknownVnode, NotReady):\n                is_sure = False",
                "except (UnknownVnode, NotReady):\n                continue",
            ),
            Swap(Peers, "has_lost_its_place", lambda has_lost: lambda self, contact: False),
        ),
        scenes.neighbours_restart,
        2,
        ("liveness",),
    ),
    Mutant(
        "wait for a vnode without a place",
        "two nodes wait for each other for ever",
        (Edit(Peers.is_gone, 'if pong.is_owner or pong.state not in ("joining", "resuming"):', "if True:"),),
        scenes.blackouts,
        3,
        ("liveness",),
    ),
    Mutant(
        "only copies not looked for after a restart",
        "a node that is back denies keys that its heir took while it was away",
        (_MARKING_NONE,),
        scenes.heir_dies_before_the_owner_is_back,
        4,
        ("oracle: denied",),
    ),
)
