"""Drawn records with actors in quarantine, and the operations in them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from chord.store import versions
from chord.store.merkle import digest_of
from chord.wire.messages import ActorClock, Record, Version

KEY = b"k"
ACTORS = tuple(versions.actor(b"store  %d" % number, number) for number in range(3))
COUNT_MAX = 4
NOTHING = Record(KEY, ())


def op_id(actor: bytes, number: int) -> bytes:
    return b"the name" + b"op" + actor[6:8] + number.to_bytes(4, "big")


def entry(actor: bytes, count: int, held: int) -> ActorClock:
    """Return the entry of an actor with `count` events and the values of the latest `held` ones."""
    return ActorClock(actor, count, tuple(Version(b"v", op_id(actor, count - place), 1) for place in range(held)))


def entries(least: int) -> st.SearchStrategy[tuple[int, int]]:
    """Draw an actor's number of events, and the number of held values."""
    return st.integers(1, COUNT_MAX).flatmap(lambda count: st.tuples(st.just(count), st.integers(least, count)))


@st.composite
def records(draw: st.DrawFn, *, hides: bool = True) -> Record:
    """Draw a record of one history, in which a dot always names the same version."""
    clock, quarantine = [], []
    for actor in ACTORS:
        kind = draw(st.sampled_from(["none", "clock", "hidden", "both"] if hides else ["none", "clock"]))
        if kind in ("clock", "both"):
            clock.append(entry(actor, *draw(entries(0))))
        if kind in ("hidden", "both"):
            quarantine.append(entry(actor, *draw(entries(1))))
    return versions.sync(NOTHING, Record(KEY, tuple(clock), b"", tuple(quarantine)))


def hidden(record: Record) -> set[bytes]:
    return {version.op_id for entry in record.quarantine for version in entry.versions}


def shown(record: Record) -> set[bytes]:
    return {version.op_id for version in versions.siblings(record)}


def converged(held: Sequence[Record]) -> Record:
    """Sync every pair of stores until nothing changes."""
    stores = list(held)
    for _ in range(10):
        before = list(stores)
        for one in range(len(stores)):
            for other in range(len(stores)):
                stores[one] = stores[other] = versions.sync(stores[one], stores[other])
        if stores == before:
            assert len({digest_of(record) for record in stores}) == 1
            return stores[0]
    raise AssertionError("the stores go on changing")
