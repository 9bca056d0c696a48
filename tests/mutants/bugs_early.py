"""Mistakes in early puts (`chord/replication/conditional.py`), which are sent before they are stored."""

from __future__ import annotations

from chord.replication.coordinator import Coordinator
from chord.replication.records import Records
from chord.replication.replica import Replica
from chord.store.early import LentActors
from chord.store.sqlite import SqliteStorage
from chord.store.storage import MemoryStorage

from . import scenes_early as scenes
from .mutant import Edit, Mutant

WAITS = """\
    if target.key in self._records.undecided.keys:  # now, and not before the read
        yield from self._until_decided(target)
"""
READS = """\
    held, is_sloppy = None, False
    if must_read and len(target.replicas.members) > 1:
        held, is_sloppy = yield from self._read_first(target, strict)
"""

MUTANTS = (
    Mutant(
        "a replica stores although it differs",
        "an acknowledged value that one member holds is gone, and no write has replaced it",
        (Edit(Records.stage_if_covering, "if self._synced(mine, record) != record:", "if False:"),),
        scenes.members_hold_more,
        1,
        ("EarlyPuts",),
    ),
    Mutant(
        "a replica stores while it is not in sync",
        "a put rests on a member that lacks acknowledged values, and does not replace them",
        (Edit(Replica.on_store_covering, "return StoreCoveringReply(is_settled=False)\n    mine", "pass\n    mine"),),
        scenes.first_reply_is_not_in_sync,
        1,
        ("EarlyPuts",),
    ),
    Mutant(
        "a copy of the first version counts for W",
        "a put is acknowledged by nodes that have only a version without the values of a read quorum",
        (Edit(Coordinator._replace_early, "record, seen, needed)", "record, seen, needed - 1)"),),
        scenes.one_member_has_only_the_first_version,
        1,
        ("EarlyPuts",),
    ),
    Mutant(
        "the actor stays in use after no reply",
        "a dot names two writes, and one of them is gone",
        (Edit(MemoryStorage.lend_actor, "self._minted.pop(key, None)", "pass"),),
        scenes.no_reply_arrives,
        1,
        ("EarlyPuts",),
    ),
    Mutant(
        "other puts wait on arrival only",
        "a put makes its version while an early put is undecided, and does not replace it",
        (Edit(Coordinator._write, READS + WAITS, WAITS + READS),),
        scenes.another_put_comes_in_between,
        1,
        ("EarlyPuts",),
    ),
    Mutant(
        "a definite error after an early send",
        "a client gets the answer that nothing happened, although a member has the value",
        (Edit(Coordinator._put_early, "if isinstance(error, IndefiniteError):", "if True:"),),
        scenes.owner_cannot_store_what_it_sent,
        1,
        ("EarlyPuts",),
    ),
    Mutant(
        "a lent actor is kept after a crash",
        "a dot that was sent before the crash names another write",
        (Edit(LentActors.__init__, "key_epoch if mark == MARK or is_damaged else ", ""),),
        scenes.power_fails_after_an_early_send,
        1,
        ("EarlyPuts",),
    ),
    Mutant(
        "a lent actor is kept after a refused transaction",
        "a dot that was sent before names another write",
        (Edit(SqliteStorage._take_back, "self._lent.give_up_all(self._commits.key_epoch)", "pass"),),
        scenes.disk_refuses_what_was_sent,
        1,
        ("EarlyPuts",),
    ),
    Mutant(
        "an actor is lent before the mark is durable",
        "a crash does not give up an actor that was lent",
        (Edit(SqliteStorage._mark, "self._notes.durable(EARLY_NOTE) == MARK", "True"),),
        scenes.power_fails_before_the_mark,
        1,
        ("EarlyPuts",),
    ),
)
