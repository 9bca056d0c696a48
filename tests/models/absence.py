"""A model of absence: a few stores that are cut off, wiped, reaped and trimmed in any order, and a judge.

The stores, their reap logs and the merges are the real ones; only the network is missing. Messages are generators. The
model advances them at random, so they interleave and arrive late. After a schedule the model heals everything, and
the judge compares the records with the acknowledged writes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from chord.config import Limits
from chord.errors import Behind
from chord.ids import Circle
from chord.replication.records import Records
from chord.store import versions
from chord.store.reap_log import ReapLog
from chord.store.reap_log_state import Grave
from chord.store.storage import Batch, MemoryStorage
from chord.wire.messages import Claim, Holding, Put, Record

CIRCLE = Circle(160)
ROUNDS_MAX = 60
STORES = 4
PAGE_BYTES = 400
ENTRY_PAGE_BYTES = 1
"""A page of a log with room for one entry, and too small for the names of the makers. Every fifth seed has it."""


def keys_in_slices(slices: int, each: int) -> list[bytes]:
    """Return keys in a few slices."""
    digests = MemoryStorage(CIRCLE, bytes(8)).digests
    found: dict[int, list[bytes]] = {}
    missing = slices
    for number in range(1 << 20):
        key = b"k%d" % number
        part = digests.slice_of(CIRCLE.hash(key))[0]
        keys = found.setdefault(part, [])
        keys.append(key)
        missing -= len(keys) == each
        if not missing:
            break
    return [key for keys in found.values() if len(keys) >= each for key in keys[:each]]


KEYS = keys_in_slices(2, 2)


class Store:
    """One store with its reap log."""

    def __init__(self, incarnation: bytes, limits: Limits) -> None:
        self.storage = MemoryStorage(CIRCLE, incarnation)
        self.log = ReapLog(CIRCLE, self.storage, limits)
        host: Any = SimpleNamespace(
            storage=self.storage, circle=CIRCLE, wall_now_ms=lambda: 1, on_write=[], limits=limits, reap_log=self.log
        )
        self.records = Records(host)

    def apply(self, batch: Batch) -> None:
        self.storage.apply(batch)


class Write:
    """One write: its dot, the dots that it replaced, and whether it was acknowledged."""

    def __init__(self, key: bytes, op_id: bytes, is_delete: bool, replaced: set[bytes]) -> None:
        self.key = key
        self.op_id = op_id
        self.is_delete = is_delete
        self.replaced = replaced
        self.is_acknowledged = False


class Model:
    """Stores, writes, and messages in flight.

    Attributes:
        counts: what happened, by name.
    """

    def __init__(self, seed: int, entries: int, *, may_trim: bool = True) -> None:
        self.rng = random.Random(seed)
        self.limits = Limits(reap_log_entries=entries // 2, reap_log_entries_max=entries)
        self.may_trim = may_trim
        self.page_bytes = PAGE_BYTES if seed % 5 else ENTRY_PAGE_BYTES
        self.made = 0
        self.stores = [self._new_store() for _ in range(STORES)]
        self.writes: dict[bytes, Write] = {}
        self.dots: dict[tuple[bytes, int], bytes] = {}
        self.under_way: list[Iterator[None]] = []
        self.cut: set[int] = set()  # stores that get no message
        self.is_lost = False
        self.forced_trims = 0  # of stores that are lost
        self.counts: dict[str, int] = {}
        self.keys = self.rng.choice([KEYS, KEYS[:2], KEYS[:1]])
        self.coordinators = {key: self.rng.randrange(STORES) for key in KEYS}
        self.strays = self.rng.choice([0.1, 0.5, 1.0])  # share of writes with another coordinator than usual
        steps: list[tuple[Callable[[], None], int]] = [
            (self.write, 6), (self.advance, 24), (self.exchange, 6), (self.reap, 8), (self.prune, 3),
            (self.cut_off, 2), (self.return_, 1), (self.drop, 1), (self.lose_disk, 1), (self.late, 1),
        ]  # fmt: skip
        if self.may_trim:
            steps.append((self.trim, 2))
        self.steps = [step for step, _ in steps]
        self.weights = [weight * self.rng.choice([0.2, 1, 1, 3]) for _, weight in steps]

    def _new_store(self) -> Store:
        self.made += 1
        return Store(self.made.to_bytes(8, "big"), self.limits)

    def count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    # -- steps ----------------------------------------------------------------------------------

    def step(self) -> None:
        """Do one thing at random."""
        self.rng.choices(self.steps, self.weights)[0]()

    def run(self, steps: int) -> None:
        """Make a schedule, heal everything and judge."""
        for _ in range(steps):
            self.step()
        self.heal()
        self.judge()

    def _living(self) -> list[int]:
        return [place for place in range(STORES) if place not in self.cut]

    def write(self) -> None:
        """Put or delete at any store with a new, an old or no context. The write may be acknowledged."""
        key = self.rng.choice(self.keys)
        place = self.rng.randrange(STORES) if self.rng.random() < self.strays else self.coordinators[key]
        store = self.stores[place]
        held = store.storage.get(key)
        is_delete = held is not None and self.rng.random() < 0.4
        has_no_context = held is None or self.rng.random() < 0.3
        replaced = set() if has_no_context or held is None else {one.op_id for one in versions.siblings(held)}
        op_id = self.rng.randbytes(16)
        context = b"" if has_no_context or held is None else versions.encode_context(versions.context_of(held))
        try:
            record, batch, _ = store.records.to_put(Put(key, None if is_delete else op_id, op_id, context), None)
        except Exception as error:
            if type(error).__name__ not in ("VersionConflict", "InvalidRequest"):
                raise
            return
        self.note_dots(record, op_id)
        seen = store.log.seen_of_each([record])
        store.apply(batch)
        write = self.writes[op_id] = Write(key, op_id, is_delete, replaced)
        self.count("deletes" if is_delete else "without a context" if has_no_context else "puts")
        same_side = [other for other in range(STORES) if other != place and (other in self.cut) == (place in self.cut)]
        if same_side:
            self.under_way.append(self.replicate(place, self.rng.choice(same_side), record, seen, write))

    def note_dots(self, record: Record, op_id: bytes) -> None:
        for entry in record.clock:
            for number, version in enumerate(entry.versions):
                dot = (entry.actor, entry.count - number)
                if self.dots.setdefault(dot, version.op_id) != version.op_id:
                    raise AssertionError(f"the dot {dot} was minted twice")

    def replicate(self, place: int, to: int, record: Record, seen: tuple[bytes, ...], write: Write) -> Iterator[None]:
        """Send a write to a second store, as its coordinator does. Sync the logs first if they differ."""
        sender, receiver = self.stores[place], self.stores[to]
        for _ in range(3):
            yield
            if self.stores[place] is not sender or self.stores[to] is not receiver:
                return
            try:
                receiver.records.stage([record], seen)
            except Behind:
                self.count("behind")
                yield from self.level(sender, receiver, write.key)
                again = sender.storage.get(write.key)
                if again is None or not versions.is_done(again, write.op_id):
                    return
                record, seen = again, sender.log.seen_of_each([again])
            else:
                write.is_acknowledged = True
                self.count("acknowledged")
                return

    def exchange(self) -> None:
        """Compare two connected stores."""
        living = self._living() if self.rng.random() < 0.8 else sorted(self.cut)
        if len(living) > 1:
            one, other = self.rng.sample(living, 2)
            self.under_way.append(self.exchanged(self.stores[one], self.stores[other], self.rng.choice(self.keys)))

    def exchanged(self, one: Store, other: Store, key: bytes) -> Iterator[None]:
        yield from self.level(one, other, key)
        yield from self.send(one, other, key)
        yield from self.send(other, one, key)

    def send(self, one: Store, other: Store, key: bytes) -> Iterator[None]:
        """Send one record in its present state. The message arrives later."""
        record = one.storage.get(key)
        if record is not None:
            seen = one.log.seen_of_each([record])
            yield
            try:
                other.records.stage([record], seen)
            except Behind:
                self.count("behind")

    def level(self, one: Store, other: Store, key: bytes) -> Iterator[None]:
        """Sync two logs, as `ReapLogSync.sync` does."""
        part = one.log.slice_of(key)
        if one.log.seen(part) != other.log.seen(part):
            yield from self.pull(one, other, part)
        if one.log.seen(part) != other.log.seen(part):
            yield from self.pull(other, one, part)

    def pull(self, store: Store, source: Store, part: int) -> Iterator[None]:
        for _ in range(4):
            log, _ = source.log.log_after(part, store.log.state(part).seen, self.page_bytes)
            yield
            if store.log.is_in_reach(log):
                store.apply(store.log.absorb(log))
            else:
                known: dict[Claim, Holding] = {}
                while claims := store.log.claims(log, known)[:1]:
                    answers, trimmed = source.log.vouch(claims), source.log.state(part).trimmed
                    yield
                    if trimmed != {one.store: one.number for one in log.trimmed}:
                        return
                    known.update(zip(claims, answers, strict=True))
                self.count("caught up")
                store.apply(store.log.catch_up(log, known))
            mine = store.log.state(part).seen
            if all(mine.get(one.store, 0) >= one.number for one in log.seen):
                return

    def advance(self) -> None:
        """Advance a message in flight."""
        if self.under_way:
            one = self.rng.choice(self.under_way)
            if next(one, self) is self:
                self.under_way.remove(one)

    def late(self) -> None:
        """Lose a message in flight."""
        if self.under_way:
            self.under_way.remove(self.rng.choice(self.under_way))

    def reap(self) -> None:
        store, key = self.stores[self.rng.randrange(STORES)], self.rng.choice(self.keys)
        record = store.storage.get(key)
        if record is not None and record.clock and not versions.values(record):
            store.apply(store.log.bury([Grave(record, versions.context_of(record))]))
            self.count("reaped")

    def prune(self) -> None:
        store, key = self.stores[self.rng.randrange(STORES)], self.rng.choice(self.keys)
        record = store.storage.get(key)
        empty = {} if record is None else {entry.actor: entry.count for entry in record.clock if not entry.versions}
        if record is not None and empty:
            store.apply(store.log.bury([Grave(record, empty)]))
            self.count("pruned")

    def trim(self) -> None:
        store = self.stores[self.rng.randrange(STORES)]
        part = store.log.slice_of(self.rng.choice(self.keys))
        if store.log.state(part).entries:
            store.apply(store.log.trim(part, self.rng.randrange(store.log.state(part).entries)))
            self.count("trimmed")

    def cut_off(self) -> None:
        self.cut.add(self.rng.randrange(STORES))

    def return_(self) -> None:
        self.cut.clear()

    def drop(self) -> None:
        """Drop a record that all other stores hold, as a former replica does."""
        place, key = self.rng.randrange(STORES), self.rng.choice(self.keys)
        mine = self.stores[place].storage.get(key)
        others = [store for store in self.stores if store is not self.stores[place]]
        if mine is not None and all(store.storage.get(key) == mine for store in others):
            self.stores[place].apply(Batch(removals=[key]))
            self.count("dropped")

    def lose_disk(self) -> None:
        """Replace a store by an empty one. Twice between heals could lose an acknowledged write."""
        if not self.is_lost and self.rng.random() < 0.1:
            self.is_lost = True
            place = self.rng.randrange(STORES)
            self.forced_trims += self.stores[place].log.forced_trims
            self.stores[place] = self._new_store()
            self.count("lost disks")

    # -- the end --------------------------------------------------------------------------------

    def heal(self) -> None:
        """Compare all stores until nothing changes any more."""
        self.cut.clear()
        self.under_way.clear()
        before: object = None
        for _ in range(ROUNDS_MAX):
            for one in self.stores:
                for other in self.stores:
                    for key in KEYS if one is not other else ():
                        for _ in self.exchanged(one, other, key):
                            pass
            now = [[store.storage.get(key) for key in KEYS] for store in self.stores]
            if now == before and all(row == now[0] for row in now):
                self.is_lost = False
                return
            before = now
        raise AssertionError("the stores do not become equal")

    def judge(self) -> None:
        """Compare the records with the acknowledged writes."""
        for key in KEYS:
            record = self.stores[0].storage.get(key)
            visible = {one.op_id for one in ([] if record is None else versions.siblings(record))}
            hidden = {v.op_id for entry in (record.quarantine if record else ()) for v in entry.versions}
            self.counts["quarantined"] = self.counts.get("quarantined", 0) + len(hidden)
            if hidden and not self.has_trimmed():
                raise AssertionError(f"{len(hidden)} values of {key!r} are in quarantine, and nothing was trimmed")
            gone = self._replaced(key, lambda write: True)
            replaced = self._replaced(key, lambda write: write.is_acknowledged)
            for write in self.writes.values():
                if write.key != key:
                    continue
                if write.op_id in visible and write.op_id in replaced:
                    raise AssertionError(f"a value of {key!r} that an acknowledged write replaced is visible")
                is_missing = write.op_id not in visible | hidden | gone
                if is_missing and write.is_acknowledged and not write.is_delete:
                    raise AssertionError(f"an acknowledged value of {key!r} is missing")
            if record is not None:
                self._judge_quarantine(record)

    def has_trimmed(self) -> bool:
        """Return whether any log has lost entries."""
        has_forced = self.forced_trims or any(store.log.forced_trims for store in self.stores)
        return bool(self.counts.get("trimmed") or has_forced)

    def _replaced(self, key: bytes, counts: Callable[[Write], bool]) -> set[bytes]:
        """Return the dots that writes replaced, directly or indirectly."""
        found: set[bytes] = set()
        todo = [op for write in self.writes.values() if write.key == key and counts(write) for op in write.replaced]
        while todo:
            op_id = todo.pop()
            if op_id not in found:
                found.add(op_id)
                todo += self.writes[op_id].replaced
        return found

    def _judge_quarantine(self, record: Record) -> None:
        part = self.stores[0].log.slice_of(record.key)
        floors = [store.log.state(part).floors for store in self.stores]  # a store that trimmed less has lower floors
        for entry in record.quarantine:
            if int.from_bytes(entry.actor[8:], "big") > max(each.get(entry.actor[:8], -1) for each in floors):
                raise AssertionError("a value in quarantine is above every floor")
            if versions.bury(record, {}) != record:
                raise AssertionError("a record holds what is dead")
