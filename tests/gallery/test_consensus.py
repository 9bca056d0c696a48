"""Consensus: the rule of Raft that only a long run tests."""

from __future__ import annotations

import msgspec
import pytest

from chord.gallery.explore import play, prove, systems_of
from chord.gallery.index import entry_of


def test_only_the_bug_breaks_a_law_in_the_transcript() -> None:
    raft = entry_of("consensus-raft")
    bug = raft.bugs["counts-old-terms"]
    whole = msgspec.structs.replace(bug, make=raft.make)
    (system,) = systems_of(raft, bug.nodes, whole)
    assert play(system, bug.transcript, raft.laws).kind == "holds"
    assert len(prove(raft, bug.nodes, variant=bug).path) == len(bug.transcript)


def test_impossible_step_of_transcript_is_named() -> None:
    raft = entry_of("consensus-raft")
    (system,) = systems_of(raft, 3)
    with pytest.raises(ValueError, match="step 2 is not possible: b receive c"):
        play(system, ["a timer election", "b receive c"], ())
