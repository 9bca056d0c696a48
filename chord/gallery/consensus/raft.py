"""Raft (ticket 24): its description, its bugs, and the run that needs four terms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from msgspec import structs

from chord.gallery.consensus.raft_algorithm import Item, Raft, Request
from chord.gallery.entry import Altered, Cost, Entry
from chord.gallery.laws import GUARANTEES, SmallWorld
from chord.gallery.process import Name, Process, all_of


def is_written(world: SmallWorld) -> bool:
    """Return whether all processes that are up have committed two entries, or no election is left. The goal."""
    return all(p.committed >= 2 for p in world.up()) or not any(p.elections for p in world.up())


def short(names: Sequence[Name]) -> Iterable[Iterable[Process]]:
    """Return the start of a search: two processes may begin one election each, and a leader may write one entry."""
    made = all_of(Raft)(names)
    return [[structs.replace(p, left=1, elections=int(i < 2), beats=0) for i, p in enumerate(made)]]


class CountsOldTerms(Raft):
    """A bug: a leader commits an entry of an earlier term by counting its copies."""

    def is_of_this_term(self, item: Item) -> bool:
        return True


class VotesForStalerLog(Raft):
    """A bug: a process votes for a candidate with a log that lacks entries."""

    def is_fresh(self, request: Request) -> bool:
        return True


class ForgetsVote(Raft):
    """A bug: the vote is not on disk."""

    stable: ClassVar[tuple[str, ...]] = tuple(name for name in Raft.stable if name != "vote")


LOST_COMMIT = (
    *("a timer election", "c receive a", "a receive c", "a ask write"),  # a leads term 1; its entry stays at a
    *("b timer election", "b timer election", "c receive b", "c receive b", "b receive c", "b ask write"),  # b: term 2
    *("a receive b", "a receive b", "a timer election", "c receive a", "c receive a", "a receive c"),  # a: term 3
    *("a timer heartbeat", "c receive a", "a receive c"),  # c has no entry, so a goes back by one
    *("a timer heartbeat", "c receive a", "a receive c"),  # c copies the entry of term 1
    *("b receive a", "b receive a", "b receive a", "b timer election", "c receive b", "c receive b", "b receive c"),
)
"""The entry of term 1 is at a and c, a majority. Then b leads term 4 without it, since its own entry has term 2."""

ENTRY = Entry(
    name="consensus-raft", ticket=24, title="Raft", make=all_of(Raft), goal=is_written, starts=short, small=(3,),
    laws=GUARANTEES, histories=(), ends_quietly=False, tolerates=("loss", "copies", "crash", "restart"),
    cost=(Cost("2(n − 1)", "round", lambda n: 2 * (n - 1), is_exact=False, kinds=("append", "appended")),),
    bugs={
        "forgets-vote": Altered(all_of(ForgetsVote), "election safety", "Two majorities share a forgetful process.",
                                nodes=3, fault="restart"),
        "staler-log": Altered(all_of(VotesForStalerLog), "leader completeness", "A leader may lack committed entries.",
                              nodes=3),
        "counts-old-terms": Altered(all_of(CountsOldTerms), "leader completeness",
                                    "A log with a later term can still win an election.", nodes=3, order="fifo",
                                    transcript=LOST_COMMIT),
    },
)  # fmt: skip
