"""Mistakes in quorum reads that a client performs itself (`chord/client/quorum_read.py`).

`tests/client/test_quorum_read.py` plants the mistakes one by one. A run does not show them, because two replicas always
include one with the last write, and an owner in sync has every write. So here several checks are missing at once.
"""

from __future__ import annotations

from chord.client import quorum_read
from chord.replication.read import QuorumReads

from . import scenes_data as scenes
from .mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        "owner answers a read alone",
        "an owner that missed writes answers, and its partners need not agree",
        (
            Edit(QuorumReads._is_with, "if needed != ", "return True\n    if needed != "),
            Edit(QuorumReads._read_own, "if not self._is_in_sync(point, key):", "if False:"),
            Edit(quorum_read.quorum_read, "isinstance(digest, ReadDigestReply) and digest.copy == reply.copy", "True"),
        ),
        scenes.others_read_what_the_owner_missed,
        40,
        ("oracle: misread",),
    ),
)
