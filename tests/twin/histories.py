"""Random histories of a store: groups of changes, how each transaction ends, kills and openings.

A life is a sequence of rounds. In a round one group is being written while the next gathers, so a refusal also rolls
back the next group. A kill or a failed sync ends a life, and the next life opens the remaining files.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, Protocol, TypeAlias

import trio
import trio.lowlevel

from chord.errors import ChordError
from chord.ids import Arc, Circle, Point
from chord.store.merkle import digest_of
from chord.store.sqlite import SqliteStorage
from chord.store.storage import Batch
from chord.wire.messages import ActorClock, Record, Version

CIRCLE = Circle(160)
WHOLE = Arc(Point(0), Point(0))
HALF = Arc(Point(1 << 158), Point(3 << 158))
KEYS = [b"key-%d" % number for number in range(6)]
NOTES = [b"note-%d" % number for number in range(3)]
INCARNATION = b"12345678"

End: TypeAlias = Literal["ok", "full", "failed", "failed, and written", "killed", "killed, and written"]
"""How a transaction ends. The last four end the life; "and written" is what the next opening finds."""

ENDS: tuple[End, ...] = ("full", "failed", "failed, and written", "killed", "killed, and written")
LAST = ENDS[1:]


class Round(NamedTuple):
    """Two groups and the end of each. The second gathers while the first is written."""

    first: tuple[Batch, ...]
    second: tuple[Batch, ...]
    ends: tuple[End, End]


Life: TypeAlias = tuple[Round, ...]


class Control(Protocol):
    """A switch that holds transactions back, and decides the end of each."""

    def end_next(self, end: End) -> None:
        """Let the transaction under way end like this; further ones wait again."""


def history(seed: int) -> list[Life]:
    """Draw a history."""
    rng = random.Random(f"history/{seed}")
    return [tuple(_rounds(rng)) for _ in range(rng.randint(2, 4))]


def _rounds(rng: random.Random) -> Iterator[Round]:
    for _ in range(rng.randint(1, 4)):
        ends: list[End] = [rng.choice(ENDS) if rng.random() < 0.4 else "ok" for _ in range(2)]
        first = tuple(_batch(rng) for _ in range(rng.randint(1, 3)))
        second = tuple(_batch(rng) for _ in range(rng.randint(0, 3)))
        yield Round(first, second, (ends[0], ends[1]))
        if ends[0] in LAST or (ends[0] == "ok" and second and ends[1] in LAST):
            return


def _batch(rng: random.Random) -> Batch:
    """Draw changes of records, removals and notes; at least one."""
    puts = [_record(rng) for _ in range(rng.randint(0, 3))]
    removals = [rng.choice(KEYS) for _ in range(rng.choice((0, 0, 1)))]
    notes = {rng.choice(NOTES): rng.choice((None, rng.randbytes(5))) for _ in range(rng.choice((0, 1, 2)))}
    minted = {one.key: rng.randbytes(16) for one in puts if rng.random() < 0.3}
    if not (puts or removals or notes):
        puts = [_record(rng)]
    return Batch(puts, removals, minted, notes)


def _record(rng: random.Random) -> Record:
    size = rng.choice((0, 9, 9, 1500, 9000))
    count = rng.choice((1, 1, 2))
    versions = tuple(Version(rng.choice((None, rng.randbytes(size))), rng.randbytes(16), n) for n in range(count))
    return Record(rng.choice(KEYS), (ActorClock(rng.randbytes(16), count, versions),))


def look(store: SqliteStorage) -> str:
    """Return the visible state of a store in one line."""
    records = [f"{one.key.decode()}={digest_of(one).hex()[:8]}" for one in store.scan(WHOLE)]
    durable = [digest_of(one).hex()[:8] if (one := store.durable(key)) else "-" for key in KEYS]
    minted = [(store.minted(key) or b"-").hex()[:6] for key in KEYS]
    sums = [store.digests.sum(arc, 0, 0, store.heads).hex()[:12] for arc in (WHOLE, HALF)]
    facts = (
        records,
        [key.decode() for key, _ in store.heads(WHOLE)],
        durable,
        [store.is_durable(key) for key in KEYS],
        minted,
        sums,
        (len(store), store.count(HALF), store.value_bytes, store.sibling_keys, store.bad_records),
        sorted(store.notes().items()),
        [store.durable_note(name) for name in NOTES],
        store.incarnation,
        store.failed.is_set(),
    )
    return repr(facts)


async def play(store: SqliteStorage, life: Life, control: Control, tell: Callable[[str], object]) -> None:
    """Open a store and play a life. Report each visible state. In a real process a kill does not return."""
    await store.open()
    tell(f"opened {store.next_key_epoch()} {look(store)}")
    for round_ in life:
        for batch in round_.first:
            store.stage(batch)
        while store.busy_since is None:
            await trio.lowlevel.checkpoint()
        for batch in round_.second:
            store.next_key_epoch()
            store.stage(batch)
        tell(f"under way {look(store)}")
        groups = [round_.ends[0]]
        if round_.ends[0] == "ok" and round_.second:
            groups.append(round_.ends[1])
        for end in groups:
            tell(f"{end}: {await _end(store, control, end)}")
        tell(f"after {look(store)}")
        if groups[-1] in LAST:
            return


async def _end(store: SqliteStorage, control: Control, end: End) -> str:
    """Let the running transaction end, and return the results of its callers."""
    while store.busy_since is None:
        await trio.lowlevel.checkpoint()
    group = store._commits.under_way
    assert group is not None
    control.end_next(end)
    await group.done.wait()
    error: ChordError | None = group.error
    return "durable" if error is None else type(error).__name__
