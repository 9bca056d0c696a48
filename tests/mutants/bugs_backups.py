"""Mistakes in consistent backups."""

from __future__ import annotations

from chord.client.cut_scan import begin_cut
from chord.replication.cuts import Cuts
from chord.sim.messages import MessageCalls

from . import scenes_backups as scenes
from .mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        "client without the number of the cut",
        "a backup has a write and lacks an earlier one of the same client, which then told no node of the cut",
        (
            Edit(
                MessageCalls._hear,
                "self.cuts.see(ticket.cut)",
                "self.cuts.see(ticket.cut if self.as_caller.address else 0)",
            ),
        ),
        scenes.consistent_backups,
        3,
        ("oracle: backup",),
    ),
    Mutant(
        "cut after the message",
        "a backup has the write that announced the cut, and lacks what its client knew",
        (
            Edit(
                MessageCalls.answer,
                "self.cuts.see(ticket.cut)",
                "self._network.at(trio.current_time() + 0.001, self.host, self.cuts.see, ticket.cut)",
            ),
        ),
        scenes.consistent_backups,
        3,
        ("oracle: backup",),
    ),
    Mutant(
        "scan of the live store",
        "a backup has writes that were made while it was read, and lacks earlier ones on pages read before",
        (
            Edit(
                Cuts.on_scan_cut,
                "held.scan(request.after_key)",
                "self._host.storage.cut(request.number).scan(request.after_key)",
            ),
        ),
        scenes.consistent_backups,
        3,
        ("oracle: backup",),
    ),
    Mutant(
        "backup without a dead member",
        "a backup is called complete without a member that does not answer, and lacks what only this member has",
        (Edit(begin_cut, "after.ok, missing)", "after.ok, {})"),),
        scenes.backups_beside_a_dead_node,
        2,
        ("oracle: backup",),
    ),
    Mutant(
        "backup through a node that restarts",
        "a backup is called complete although the search for members ended at nodes that know no neighbours yet",
        (Edit(begin_cut, " | _without_place(after.ok)", ""),),
        scenes.backups_while_the_ring_restarts,
        2,
        ("oracle: backup",),
    ),
)
