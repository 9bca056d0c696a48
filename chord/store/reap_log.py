"""Logs of reaped records, so that no old copy brings a deleted value back.

A tombstone takes room for ever, so its owner *reaps* it some day. The owner removes the record and adds one short entry
to a log, which names the dead dots. Every store keeps a log for each of the 4,096 slices of the circle (`merkle.py`).
It consists of:

- *entries*, numbered 1, 2, 3, … by their *maker*, a store that reaped a record of the slice. A store with damaged notes
  continues as another maker, because it must not use a number twice.
- *seen*: for each maker, the last entry that this store has applied to all its records of the slice.
- *trimmed*: for each maker, the last entry that is gone from the log, because a log has a size limit.
- *floors*: for each store, the highest key epoch among the actors in trimmed entries.
- *tags*: the latest replaced operations that trimmed entries named (`dedup.py`).

The parts are notes of the storage. They change in the transaction that changes the records.

**The rule.** A store merges a record only if it has seen the same entries as the sender when the sender read the
record. Then the record holds no dead dot. If the entries differ, the two stores first take each other's entries, each
maker's in order, and apply them.

A store is *out of reach* if it lacks an entry that the other store has trimmed. It then *catches up*: it asks the other
store about every value of an actor that a trimmed entry may name. A trimmed entry names only actors with key epochs up
to the floor. The other store vouches for an actor if it knows all events of the actor, or still holds a version of it.

A value for which the other store does not vouch goes into the record's *quarantine*. It is hidden from readers, but
kept and replicated, until a clock, a log or an operator decides about it.

Wall clocks and lists of unreachable nodes play no part in this. A store may be away for any time.

Source: this project. Tombstones with a grace period are common in systems derived from Dynamo. A log of removals that
survivors can replay comes from Wuu and Bernstein 1984, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b

from chord.config import Limits
from chord.errors import Behind
from chord.ids import Arc, Circle
from chord.store import dedup, versions
from chord.store.early import EARLY_NOTE, MARK
from chord.store.reap_log_state import (
    EPOCH_AT,
    MAKER,
    NO_STATE,
    POINT_BYTES,
    SEEN_BYTES,
    SEGMENT,
    SEGMENT_ENTRIES,
    STATE,
    Grave,
    Segment,
    SliceDraft,
    SliceState,
    decode_segment,
    decode_state,
    digest_of_seen,
    encode,
    latest_tags,
    segment_name,
    state_name,
    to_mapping,
    up_tos,
)
from chord.store.storage import Batch, Storage
from chord.wire.messages import ActorClock, Claim, DeadActor, EntryRun, Holding, LogEntry, Record, SliceLog, SliceSeen


class ReapLog:
    """The reap logs of one store, one for each slice; the module explains the terms.

    Concurrency: synchronous. A change is returned as a `Batch`, and the caller must stage it at once.

    Args:
        circle: of the ring.
        storage: holds the records, and the logs as notes.
        limits: a slice's log of over `reap_log_entries_max` entries is cut to `reap_log_entries`.

    Attributes:
        forced_trims: how often a log was cut so, and lost entries that other stores may lack.
    """

    __slots__ = ("_circle", "_limits", "_slices", "_states", "_storage", "forced_trims")

    def __init__(self, circle: Circle, storage: Storage, limits: Limits) -> None:
        self._circle = circle
        self._storage = storage
        self._limits = limits
        self._slices: dict[int, None] | None = None  # slices that may have a state; None: the notes were not read yet
        self._states: dict[int, tuple[bytes, SliceState, bytes]] = {}  # encoded, decoded, and the digest of `seen`
        self.forced_trims = 0

    # -- seen entries ---------------------------------------------------------------------------

    def slices_in(self, arc: Arc) -> list[int]:
        """Return the numbers of slices that overlap an arc and have applied log entries here, ascending."""
        return [part for part in self._storage.digests.slices_of(arc, self._known()) if self.seen(part)]

    def slice_of(self, key: bytes) -> int:
        """Return the number of the slice, one of 4,096, that contains a key."""
        return self._storage.digests.slice_of(self._circle.hash(key))[0]

    def state(self, part: int) -> SliceState:
        """Return the state of the log of slice `part`: by maker, the last entry applied and the last trimmed."""
        return self._decoded(part, self._storage.note(state_name(part)))[1]

    def seen(self, part: int) -> bytes:
        """Return a digest, 8 bytes, of the log entries that this store has applied to the slice with number `part`.

        Two stores with equal digests have applied the same entries. The digest is empty if no entry was applied.
        """
        return self._decoded(part, self._storage.note(state_name(part)))[2] if part in self._known() else b""

    def seen_of(self, key: bytes) -> bytes:
        """Return the digest of the log entries applied to a key's slice; see `seen`."""
        return self.seen(self.slice_of(key)) if self._known() else b""

    def durably_seen_of(self, key: bytes) -> bytes:
        """Return the digest of the log entries durably applied to a key's slice.

        No crash can undo them. The digest belongs to the record that `Storage.durable` returns.
        """
        if not self._known():
            return b""
        part = self.slice_of(key)
        raw = self._storage.durable_note(state_name(part))
        return digest_of_seen(NO_STATE if raw is None else decode_state(raw))

    def seen_of_each(self, records: Iterable[Record]) -> tuple[bytes, ...]:
        """Return `seen_of` the key of each record, in their order; an empty tuple if all of them are empty."""
        if not self._known():
            return ()
        found = tuple(self.seen_of(record.key) for record in records)
        return found if any(found) else ()

    def seen_in(self, arc: Arc) -> tuple[SliceSeen, ...]:
        """Return the `seen` digest of each slice that overlaps an arc and has applied log entries here."""
        return tuple(SliceSeen(part, self.seen(part)) for part in self.slices_in(arc))

    def digest_in(self, arc: Arc) -> bytes:
        """Return one digest of the results of `seen_in` for an arc; empty without applied entries."""
        found = self.seen_in(arc)
        if not found:
            return b""
        joined = b"".join(one.slice.to_bytes(2, "big") + one.seen for one in found)
        return blake2b(joined, digest_size=SEEN_BYTES).digest()

    def require_same_entries(self, records: Sequence[Record], seen: Sequence[bytes]) -> None:
        """Refuse records of another store that has not applied the same log entries as this store.

        `seen` has that store's `seen_of` for each record. A missing digest counts as empty.

        Raises:
            Behind: definite; the entries of a record's slice differ.
        """
        if not seen and not self._known():
            return
        for place, record in enumerate(records):
            if (seen[place] if place < len(seen) else b"") != self.seen_of(record.key):
                raise Behind(f"the reap log of slice {self.slice_of(record.key)} differs; catch up and send it again")

    def mended(self) -> Batch:
        """Return the change that deletes the damaged notes, and every log that has one of them.

        This store then counts as if it had applied no entry to the slices of these logs. It makes its next entries
        under another name, because it must not use a number twice. The mark of early puts may be damaged, so it is set
        anew. Call this once, after a storage with damaged notes has opened.
        """
        damaged = self._storage.damaged_notes
        lost = {name[1:3] for name in damaged if name[:1] in (STATE, SEGMENT)}
        gone = [name for name in self._storage.notes() if name[:1] in (STATE, SEGMENT) and name[1:3] in lost]
        self._slices = None
        return Batch(notes={**dict.fromkeys([*gone, *damaged, MAKER]), EARLY_NOTE: MARK})

    # -- reaping --------------------------------------------------------------------------------

    def bury(self, graves: Iterable[Grave]) -> Batch:
        """Return the change that reaps records: it removes their dead dots, and names these in the log.

        The log gets one entry for each record. A dead dot is the dot of a write that every replica may forget.
        """
        work = _Work(self)
        for grave in graves:
            entry = self._entry_of(grave)
            work.append(self.slice_of(grave.record.key), work.maker(), entry)
            work.bury(grave.record.key, entry)
        return work.batch()

    def _entry_of(self, grave: Grave) -> LogEntry:
        dead = tuple(DeadActor(actor, grave.dead[actor]) for actor in sorted(grave.dead))
        return LogEntry(self._prefix(grave.record.key), dead, dedup.tags(grave.record.replaced))

    def news(self, part: int, before: SliceState, graves: Iterable[Grave]) -> SliceLog:
        """Return the log entries of just reaped records, for the other replicas.

        Call it after the result of `bury` was stored. Entries that the log has already trimmed are also included.

        Args:
            part: the number of a slice.
            before: the state of the slice's log before `bury`.
            graves: the reaped records. Those of other slices are skipped.
        """
        own = self._storage.note(MAKER) or b""
        entries = tuple(self._entry_of(grave) for grave in graves if self.slice_of(grave.record.key) == part)
        first = before.seen.get(own, 0) + 1
        seen = up_tos({**before.seen, own: first + len(entries) - 1})
        trimmed, floors = up_tos(before.trimmed), up_tos(before.floors)
        return SliceLog(part, seen, trimmed, floors, before.tags, (EntryRun(own, first, entries),))

    def next_number(self, part: int) -> int:
        """Return the number that the next log entry made by this store for slice `part` will have."""
        return self.state(part).seen.get(self._storage.note(MAKER) or b"", 0) + 1

    def run_of(self, part: int, first: int) -> SliceLog:
        """Return the log of slice `part` with only the entries that this store made, from number `first` on.

        The entries of other makers are left out, so the receivers must have them.
        """
        own = self._storage.note(MAKER)
        seen = self.state(part).seen
        return self.log_after(part, seen if own is None else {**seen, own: first - 1})[0]

    def trim(self, part: int, keep: int) -> Batch:
        """Return the change that shortens the log of slice `part` to `keep` entries of all makers together.

        The oldest entries of the maker with the most entries go first. A shorter log stays as it is. This method does
        not check whether other stores have applied the entries; see `GarbageCollector`.
        """
        work = _Work(self)
        work.trim_to(part, keep)
        return work.batch()

    # -- giving ---------------------------------------------------------------------------------

    def log_after(self, part: int, seen: Mapping[bytes, int], bytes_max: float = math.inf) -> tuple[SliceLog, int]:
        """Return a slice's log with the entries that another store lacks, and about how many bytes it takes.

        Args:
            part: the number of the slice.
            seen: by maker (the store that made the entries), the last entry that the other store has applied.
            bytes_max: once the log takes more bytes, no further entries are added. So an entry may exceed it. However
                many makers the log has, half of this is for entries. Otherwise the two stores might never agree.
        """
        state = self.state(part)
        runs: list[EntryRun] = []
        head, size = 64 * (1 + len(state.seen)), 0
        room = max(bytes_max - head, bytes_max / 2)
        for maker, last in sorted(state.seen.items()):
            first = max(seen.get(maker, 0), state.trimmed.get(maker, 0)) + 1
            entries: list[LogEntry] = []
            for entry in self._entries(part, maker, first, last):
                if size > room:
                    break
                entries.append(entry)
                size += 32 + 26 * len(entry.dead) + len(entry.tags)
            if entries:
                runs.append(EntryRun(maker, first, tuple(entries)))
        seen_here, trimmed, floors = up_tos(state.seen), up_tos(state.trimmed), up_tos(state.floors)
        return SliceLog(part, seen_here, trimmed, floors, state.tags, tuple(runs)), head + size

    def vouch(self, claims: Iterable[Claim]) -> tuple[Holding, ...]:
        """Answer another store's questions about old values: how much is known here.

        A claim names a key, and an actor with values of that key at the other store. The result has an answer for each
        claim, in order. An answer counts the actor's writes and versions in this store's record; 0 and 0 without any.
        """
        found = []
        for claim in claims:
            record = self._storage.get(claim.key)
            entry = None if record is None else next((e for e in record.clock if e.actor == claim.actor), None)
            found.append(Holding(0, 0) if entry is None else Holding(entry.count, len(entry.versions)))
        return tuple(found)

    # -- taking ---------------------------------------------------------------------------------

    def absorb(self, log: SliceLog) -> Batch:
        """Return the change that applies the entries of another store's log.

        It applies only entries that follow the applied ones without a gap. If this store has then applied every entry
        that the other store trimmed, it also trims these entries.
        """
        work = _Work(self)
        work.absorb(log)
        return work.batch()

    def as_if_absorbed(self, key: bytes, logs: Iterable[SliceLog]) -> tuple[Record | None, bytes]:
        """Return a key's record and `seen_of` the key, as they would be after `absorb` of some logs.

        It changes nothing. The record is None if it is missing or nothing would be left of it. `logs` are logs of the
        key's slice at other stores.
        """
        work = _Work(self)
        for log in logs:
            work.absorb(log)
        state = work.slice(self.slice_of(key)).frozen()
        return work.record(key), digest_of_seen(state)

    def is_in_reach(self, log: SliceLog) -> bool:
        """Return whether this store has applied every entry that another store trimmed."""
        return self.state(log.slice).reaches(to_mapping(log.trimmed))

    def claims(self, log: SliceLog, known: Mapping[Claim, Holding]) -> list[Claim]:
        """Return the questions that another store must answer before `catch_up`.

        The other store has trimmed log entries that this store lacks. A claim names a key and an actor with versions
        here, if such an entry may have declared them dead. Claims in `known`, already answered, are left out.
        """
        floors = to_mapping(log.floors)
        return [
            claim
            for record in self._storage.scan(self._storage.digests.arc_of(log.slice))
            for entry in record.clock
            if entry.versions and not _is_above(entry.actor, floors)
            if (claim := Claim(record.key, entry.actor)) not in known
        ]

    def catch_up(self, log: SliceLog, known: Mapping[Claim, Holding]) -> Batch:
        """Return the change after which another store's trimmed entries count as applied.

        It removes values that the other store has replaced. It moves values for which the other store does not vouch to
        the quarantine. The module explains vouching and the quarantine.

        Args:
            log: the other store's log of a slice.
            known: the other store's answers to all `claims`.
        """
        work = _Work(self)
        floors = to_mapping(log.floors)
        for record in self._storage.scan(self._storage.digests.arc_of(log.slice)):
            decided, undecided = _judge(record, floors, known, log.tags)
            if decided is not record:
                work.replace(record, decided, undecided)
        work.adopt(log)
        work.absorb(log)
        return work.batch()

    def restored(self, record: Record, *, is_current: bool = False) -> Record | None:
        """Return a backup's record without dead values; None if nothing is left.

        A value is dead if an entry in the log names it. It also counts as dead if a trimmed entry may name it and this
        store does not vouch for it. With `is_current` it does not, because the backup has applied all trimmed entries.
        The backup's own quarantine stays in quarantine, except for values that the log names.
        """
        part = self.slice_of(record.key)
        if part not in self._known():
            return record
        state, prefix = self.state(part), self._prefix(record.key)
        live: Record | None = record
        for maker, last in state.seen.items():
            for entry in self._entries(part, maker, state.trimmed.get(maker, 0) + 1, last):
                if live is not None and entry.point == prefix:
                    live = versions.bury(live, {dead.actor: dead.count for dead in entry.dead}, entry.tags)
        if live is not None and state.floors and not is_current:
            hidden = live.quarantine
            asked = [Claim(record.key, entry.actor) for entry in live.clock]
            shown = Record(record.key, live.clock, live.replaced)
            decided, _ = _judge(shown, state.floors, dict(zip(asked, self.vouch(asked), strict=True)), state.tags)
            clock = () if decided is None else decided.clock
            live = Record(record.key, clock, record.replaced if clock else b"", hidden) if clock or hidden else None
        return live

    # -- inside ---------------------------------------------------------------------------------

    def _known(self) -> dict[int, None]:
        if self._slices is None:
            states = (name for name in self._storage.notes() if name[:1] == STATE)
            self._slices = {int.from_bytes(name[1:], "big"): None for name in states}
        return self._slices

    def _decoded(self, part: int, raw: bytes | None) -> tuple[bytes, SliceState, bytes]:
        if raw is None:
            return b"", NO_STATE, b""
        held = self._states.get(part)
        if held is None or held[0] is not raw:
            state = decode_state(raw)
            held = self._states[part] = raw, state, digest_of_seen(state)
        return held

    def _prefix(self, key: bytes) -> bytes:
        return self._circle.hash(key).to_bytes(self._circle.width, "big")[:POINT_BYTES]

    def _keys_at(self, prefix: bytes) -> list[bytes]:
        """Return the stored keys with points that begin with a prefix: rarely several."""
        rest = 8 * max(0, self._circle.width - POINT_BYTES)
        low = int.from_bytes(prefix, "big") << rest
        arc = Arc(self._circle.point(low - 1), self._circle.point(low | (1 << rest) - 1))
        return [key for key, _ in self._storage.heads(arc)]

    def _entries(self, part: int, maker: bytes, first: int, last: int) -> Iterator[LogEntry]:
        """Yield the entries `first` to `last` of a maker in the log of slice `part`.

        The log must hold the first and the last of them.
        """
        for number in range((first - 1) // SEGMENT_ENTRIES, (last - 1) // SEGMENT_ENTRIES + 1):
            raw = self._storage.note(segment_name(part, maker, number))
            segment = Segment(0, []) if raw is None else decode_segment(raw)
            for place, entry in enumerate(segment.entries, segment.first):
                if first <= place <= last:
                    yield entry


class _Work:
    """A change of reap logs and records in progress; `batch` returns the result."""

    def __init__(self, log: ReapLog) -> None:
        self._log = log
        self._storage = log._storage
        self._slices: dict[int, SliceDraft] = {}
        self._segments: dict[bytes, Segment | None] = {}
        self._records: dict[bytes, Record | None] = {}
        self._minted: dict[bytes, bytes] = {}
        self._maker = b""

    def maker(self) -> bytes:
        """Return the 8-byte name under which this store makes log entries; new if needed."""
        self._maker = self._maker or self._storage.note(MAKER) or b""
        if not self._maker:
            epoch = self._storage.next_key_epoch().to_bytes(8, "big")
            self._maker = blake2b(self._storage.incarnation + epoch, digest_size=8).digest()
        return self._maker

    def batch(self) -> Batch:
        """Return the change; before, cut (and count) too long logs; see `ReapLog`."""
        limits = self._log._limits
        for part, state in list(self._slices.items()):
            if state.frozen().entries > limits.reap_log_entries_max:
                self._log.forced_trims += 1
                self.trim_to(part, limits.reap_log_entries)
        notes: dict[bytes, bytes | None] = {MAKER: self._maker} if self._maker else {}
        for part, state in self._slices.items():
            if (frozen := state.frozen()) != self._log.state(part):  # a full disk would refuse even an unchanged note
                notes[state_name(part)] = encode(frozen)
                self._log._known()[part] = None
        for name, segment in self._segments.items():
            notes[name] = encode(segment) if segment is not None and segment.entries else None
        puts = [record for record in self._records.values() if record is not None]
        removals = [key for key, record in self._records.items() if record is None]
        return Batch(puts, removals, self._minted, notes)

    # -- records --------------------------------------------------------------------------------

    def record(self, key: bytes) -> Record | None:
        """Return the record of a key as it is after the change; None if it is missing."""
        return self._records[key] if key in self._records else self._storage.get(key)

    def bury(self, key: bytes, entry: LogEntry) -> None:
        """Remove the dots that a log entry declares dead from a key's record."""
        record = self.record(key)
        if record is not None:
            dead = {one.actor: one.count for one in entry.dead}
            left = versions.bury(record, dead, entry.tags)
            if left != record:
                self.replace(record, left, dead)

    def replace(self, old: Record, new: Record | None, gone: Iterable[bytes]) -> None:
        """Replace a record, or remove it if `new` is None.

        The record may have lost the counts of the actors in `gone`. If one of them is this store's actor for the key,
        the next write here uses a new one.
        """
        self._records[old.key] = new
        minted = None if new is None else self._storage.minted(old.key)
        if minted is not None and minted in gone:
            epoch = self._storage.next_key_epoch()
            self._minted[old.key] = versions.actor(self._storage.incarnation, epoch)

    # -- logs -----------------------------------------------------------------------------------

    def slice(self, part: int) -> SliceDraft:
        """Return the draft of the log state of slice `part`; the caller may change it."""
        if part not in self._slices:
            self._slices[part] = SliceDraft(self._log.state(part))
        return self._slices[part]

    def append(self, part: int, maker: bytes, entry: LogEntry) -> None:
        """Append an entry of a maker (the store that made it) to the log of slice `part`."""
        state = self.slice(part)
        number = state.seen[maker] = state.seen.get(maker, 0) + 1
        name = segment_name(part, maker, (number - 1) // SEGMENT_ENTRIES)
        segment = self._segment(name)
        if segment is None:
            segment = self._segments[name] = Segment(number, [])
        segment.entries.append(entry)

    def absorb(self, log: SliceLog) -> None:
        """Apply the entries of another store's log; see `ReapLog.absorb`."""
        state = self.slice(log.slice)
        for run in log.runs:
            for number, entry in enumerate(run.entries, run.first):
                if number == state.seen.get(run.maker, 0) + 1:
                    self.append(log.slice, run.maker, entry)
                    for key in self._log._keys_at(entry.point):
                        self.bury(key, entry)
        if state.frozen().reaches(to_mapping(log.trimmed)):
            self.adopt(log)

    def adopt(self, log: SliceLog) -> None:
        """Count the entries that another store has trimmed as applied and trimmed here.

        This store also takes over the other store's floors and tags; the module explains them.
        """
        state = self.slice(log.slice)
        for up_to in log.trimmed:
            if state.trimmed.get(up_to.store, 0) < up_to.number:
                self._drop(log.slice, up_to.store, up_to.number)
                state.trimmed[up_to.store] = up_to.number
                state.seen[up_to.store] = max(up_to.number, state.seen.get(up_to.store, 0))
        for up_to in log.floors:
            state.floors[up_to.store] = max(up_to.number, state.floors.get(up_to.store, 0))
        state.tags = latest_tags(state.tags, log.tags)

    def trim_to(self, part: int, keep: int) -> None:
        """Shorten the log of slice `part` to `keep` entries; see `ReapLog.trim`.

        The floors rise to the key epochs of the actors in the trimmed entries. The latest tags of trimmed entries are
        kept, up to `TAGS_KEPT`.
        """
        state = self.slice(part)
        while (surplus := state.frozen().entries - keep) > 0:
            lengths = {maker: last - state.trimmed.get(maker, 0) for maker, last in state.seen.items()}
            maker = max(sorted(lengths), key=lambda one: lengths[one])
            number = state.trimmed.get(maker, 0) + min(surplus, lengths[maker])
            for entry in self._drop(part, maker, number):
                for dead in entry.dead:
                    store, epoch = dead.actor[:EPOCH_AT], int.from_bytes(dead.actor[EPOCH_AT:], "big")
                    state.floors[store] = max(epoch, state.floors.get(store, 0))
                state.tags = latest_tags(state.tags, entry.tags)
            state.trimmed[maker] = number

    def _drop(self, part: int, maker: bytes, last: int) -> list[LogEntry]:
        """Remove a maker's entries up to `last` from slice `part`'s log, and return them."""
        state = self.slice(part)
        first = state.trimmed.get(maker, 0) + 1
        dropped: list[LogEntry] = []
        held = min(last, state.seen.get(maker, 0))
        for number in range((first - 1) // SEGMENT_ENTRIES, (held - 1) // SEGMENT_ENTRIES + 1):
            name = segment_name(part, maker, number)
            segment = self._segment(name)
            if segment is not None:
                count = max(0, min(last - segment.first + 1, len(segment.entries)))
                dropped += segment.entries[:count]
                segment.first += count
                del segment.entries[:count]
        return dropped

    def _segment(self, name: bytes) -> Segment | None:
        if name not in self._segments:
            raw = self._storage.note(name)
            if raw is None:
                return None
            self._segments[name] = decode_segment(raw)
        segment = self._segments[name]
        return segment if segment is not None and segment.entries else None


def _judge(
    record: Record, floors: Mapping[bytes, int], known: Mapping[Claim, Holding], tags: bytes
) -> tuple[Record | None, list[bytes]]:
    """Decide about the values of a record by another store's answers about them.

    Returns the record, None if nothing is left of it; and the actors for which the other store does not vouch. Their
    values move to the quarantine. If such an actor has tombstones alone, it stays in the clock, without versions,
    because all its values were replaced. A record without changes is returned as the same object.

    Args:
        record: the record.
        floors: by store, the highest key epoch that a trimmed entry may name.
        known: the answers. A missing answer counts as no events and no versions.
        tags: the tags of replaced operations in trimmed entries.
    """
    clock, undecided, emptied = [], [], []
    for entry in record.clock:
        said = known.get(Claim(record.key, entry.actor), Holding(0, 0))
        if not entry.versions or _is_above(entry.actor, floors):
            clock.append(entry)
        elif said.count >= entry.count or said.held:
            clock.append(versions.narrow(entry, said.count, said.held))
        elif all(version.value is None for version in entry.versions):
            clock.append(ActorClock(entry.actor, entry.count, ()))
            emptied.append(entry.actor)
        else:
            clock.append(entry)
            undecided.append(entry.actor)
    decided = Record(record.key, tuple(clock), record.replaced, record.quarantine)
    if undecided:
        decided = versions.isolate(decided, undecided)
    left = versions.bury(decided, {}, tags) if tags else decided
    return (record if left == record else left), [*undecided, *emptied]


def _is_above(actor: bytes, floors: Mapping[bytes, int]) -> bool:
    """Return whether an actor is too new to be named in a trimmed log entry.

    `floors` has the highest key epoch in trimmed entries for each store. An actor is a store's incarnation and a key
    epoch.
    """
    floor = floors.get(actor[:EPOCH_AT])
    return floor is None or int.from_bytes(actor[EPOCH_AT:], "big") > floor
