"""Mistakes in group commit: acknowledgements, rollbacks, and early visibility."""

from __future__ import annotations

from chord.store.group_commit import GroupCommit
from chord.store.sqlite import SqliteStorage

from . import scenes_commits as scenes
from .mutant import Edit, Mutant, Swap

MUTANTS = (
    Mutant(
        "acknowledged before the sync",
        "a write counts as durable when its transaction begins, and a power failure takes it",
        (
            Edit(SqliteStorage.commit, "await group.done.wait()", "await trio.lowlevel.checkpoint()"),
            Edit(SqliteStorage.when_durable, "group.callbacks.append(callback)", "callback(None)"),
        ),
        scenes.power_is_cut,
        8,
        ("oracle: acknowledged",),
    ),
    Mutant(
        "rollback lost",
        "a write that a full disk refused stays visible until the node restarts",
        (Edit(GroupCommit._written, "        self._take_back()\n", "        self._settle(group)\n"),),
        scenes.disk_is_full,
        4,
        ("oracle: acknowledged", "oracle: dropped", "oracle: lost", "copies"),
    ),
    Mutant(
        "write shown before it is durable",
        "other nodes see a write that a power failure takes back",
        (
            Swap(SqliteStorage, "stage", lambda stage: lambda self, batch: (stage(self, batch), True)[1]),
            Swap(SqliteStorage, "is_durable", lambda is_durable: lambda self, key: True),
            Edit(SqliteStorage.durable, "self._rows.durable(", "self._rows.row("),
        ),
        scenes.power_is_cut_before_the_sync,
        4,
        ("oracle: lost", "oracle: replaced"),
    ),
)
