"""Mistakes that passed while each key had one writer, and while an excuse was wider than what it excuses."""

from __future__ import annotations

from chord.data.quorum_reads import QuorumReads
from chord.data.replicate import Coordinator

from . import scenes_data as scenes
from .mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        "record made before its task",
        "of two writes at the same moment one is lost, and both have one dot",
        (
            Edit(
                Coordinator._write,
                "        self._host.start_task(self._write_durably, make,",
                "        made = make()\n        self._host.start_task(self._write_durably, lambda: made,",
            ),
        ),
        scenes.shared_keys,
        40,
        ("ledger: dots", "ledger: misread", "ledger: lost"),
    ),
    Mutant(
        "get answered from one copy",
        "a read of R copies rests on one",
        (Edit(QuorumReads.get, "self._quorum.needed(request.r, who)", "1"),),
        scenes.shared_keys,
        40,
        ("ledger: quorum",),
    ),
    Mutant(
        "get answered by one that asks no other",
        "a read says that R copies had to answer, and rests on one",
        (Edit(QuorumReads.get, "who, point, needed, later, have_read", "who, point, 1, later, have_read"),),
        scenes.shared_keys,
        40,
        ("ledger: quorum",),
    ),
)
