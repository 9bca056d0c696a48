"""What a store remembers of reaped records, so that no old copy of one brings it back.

A tombstone takes room for ever, so its owner *reaps* it some day: the record goes, and one short entry in a log says
which dots are dead. Every store keeps, for each of the 4,096 slices of the circle (`digest.py`):

- the log entries of each *maker*, a store that reaped something there; a maker numbers its entries 1, 2, 3, … (a
  store whose notes were damaged goes on as another maker, for it must not use a number twice);
- *seen*: up to which entry of each maker this store has applied the log to all its records of the slice;
- *trimmed*: up to which entry of each maker the entries are gone from the log, for a log has a limit;
- *floors*: for each store, the highest key epoch among the actors in trimmed entries;
- *tags*: the latest operations that trimmed entries had replaced (`superseded.py`).

All of it is kept in notes of the storage, which change in the transaction that changes the records.

**The rule.** A store merges a record only if it has seen the same entries as the sender had, when the sender read it:
then no dead dot is in it. Otherwise the two first take each other's entries, each maker's in order, and apply them.
A store that lacks an entry that the other has trimmed is out of reach, and *catches up*: it asks the other about every
value of an actor that may be in a trimmed entry, which is one whose key epoch is not above the floor. The other
vouches for an actor if it knows all its events, or holds a live value of it. What nothing vouches for goes into the
record's *quarantine*: hidden, but kept and replicated, until a clock or a log decides about it, or an operator does.

No clock and no list of silent nodes has a part in this. A store may be away for any time.

Source: this project's. Tombstones and their grace period are folklore of Dynamo's heirs; a log of removals that
survivors can replay is that of Wuu and Bernstein 1984, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from chord.config import Limits
from chord.errors import Behind
from chord.ids import Arc, Circle
from chord.store import dedup, versions
from chord.store.storage import Batch, Storage
from chord.wire.messages import ActorClock, Claim, DeadActor, Holding, LogEntry, Record, Run, SliceLog, SliceSeen, UpTo

SEGMENT_ENTRIES: Final = 64
TAGS_KEPT: Final = 64
"""Tags of a slice that outlive the entries they came in."""

_STATE, _SEGMENT, _MAKER = b"s", b"l", b"m"
_EPOCH_AT = 8  # an actor is a store's incarnation and, from here on, a key epoch
_SEEN_BYTES = 8
_POINT_BYTES = 8


class SliceState(msgspec.Struct, array_like=True, frozen=True):
    """What is known of the log of one slice, beside its entries; the numbers are by maker, the floors by store."""

    seen: dict[bytes, int] = {}
    trimmed: dict[bytes, int] = {}
    floors: dict[bytes, int] = {}
    tags: bytes = b""

    @property
    def entries(self) -> int:
        """How many entries the log holds."""
        return sum(self.seen.values()) - sum(self.trimmed.values())

    def reaches(self, trimmed: Mapping[bytes, int]) -> bool:
        """Return whether every entry that another store has trimmed was seen here."""
        return all(self.seen.get(maker, 0) >= number for maker, number in trimmed.items())


class Grave(NamedTuple):
    """A record to reap: every dot of each of these actors, up to a number, is dead."""

    record: Record
    dead: Mapping[bytes, int]


class _Segment(msgspec.Struct, array_like=True):
    """Consecutive entries of one maker, as one note."""

    first: int
    entries: list[LogEntry]


_encode = msgspec.msgpack.Encoder().encode
_decode_state = msgspec.msgpack.Decoder(SliceState).decode
_decode_segment = msgspec.msgpack.Decoder(_Segment).decode
_NO_STATE: Final = SliceState()


class ReapLog:
    """The reap logs of one store. Synchronous: every change is a `Batch`, which must be staged at once.

    Args:
        limits: `reap_log_entries` and `reap_log_entries_max`, of one slice.

    Attributes:
        forced_trims: how many times entries were trimmed that other stores may not have seen.
    """

    def __init__(self, circle: Circle, storage: Storage, limits: Limits) -> None:
        self._circle = circle
        self._storage = storage
        self._limits = limits
        self._slices: set[int] | None = None  # those that may have a state; read from the store at the first question
        self._states: dict[int, tuple[bytes, SliceState, bytes]] = {}  # decoded, and the digest of what was seen
        self.forced_trims = 0

    # -- what was seen --------------------------------------------------------------------------

    def slices_in(self, arc: Arc) -> list[int]:
        """Return the slices of an arc that have a log here, in ascending order."""
        known = self._known()
        if not known:
            return []
        return [part for part in self._storage.digests.slices_of(arc) if part in known and self.seen(part)]

    def slice_of(self, key: bytes) -> int:
        """Return the slice in which a key lies."""
        return self._storage.digests.slice_of(self._circle.hash(key))[0]

    def state(self, part: int) -> SliceState:
        """Return what is known of a slice's log."""
        return self._decoded(part, self._storage.note(_state_name(part)))[1]

    def seen(self, part: int) -> bytes:
        """Return the digest of the entries that were applied to a slice; empty if there are none."""
        return self._decoded(part, self._storage.note(_state_name(part)))[2] if part in self._known() else b""

    def seen_of(self, key: bytes) -> bytes:
        """Return `seen` of the slice in which a key lies."""
        return self.seen(self.slice_of(key)) if self._known() else b""

    def durably_seen_of(self, key: bytes) -> bytes:
        """Return `seen` of a key's slice as no crash can take it back: what goes with `Storage.durable`."""
        if not self._known():
            return b""
        part = self.slice_of(key)
        raw = self._storage.durable_note(_state_name(part))
        return _digest(b"" if raw is None else raw, _NO_STATE if raw is None else _decode_state(raw))

    def seen_of_each(self, records: Iterable[Record]) -> tuple[bytes, ...]:
        """Return `seen` of each record, as it travels: nothing at all if all are empty."""
        if not self._known():
            return ()
        found = tuple(self.seen_of(record.key) for record in records)
        return found if any(found) else ()

    def seen_in(self, arc: Arc) -> tuple[SliceSeen, ...]:
        """Return the slices of an arc that have a log here, and what was seen of each."""
        return tuple(SliceSeen(part, self.seen(part)) for part in self.slices_in(arc))

    def digest_in(self, arc: Arc) -> bytes:
        """Return one digest of `seen_in`; empty if there is none."""
        found = self.seen_in(arc)
        if not found:
            return b""
        joined = b"".join(one.slice.to_bytes(2, "big") + one.seen for one in found)
        return blake2b(joined, digest_size=_SEEN_BYTES).digest()

    def require_level(self, records: Sequence[Record], seen: Sequence[bytes]) -> None:
        """Refuse records that were read by a store that had seen other entries.

        Raises:
            Behind: definite; nothing was changed.
        """
        if not seen and not self._known():
            return
        for place, record in enumerate(records):
            if (seen[place] if place < len(seen) else b"") != self.seen_of(record.key):
                raise Behind(f"the reap log of slice {self.slice_of(record.key)} differs; catch up and send it again")

    def mended(self) -> Batch:
        """Return the change that forgets the logs of which the storage found a note damaged.

        Such a slice counts as one of which nothing was seen. To be called once, after the opening.
        """
        damaged = self._storage.damaged_notes
        lost = {name[1:3] for name in damaged if name[:1] in (_STATE, _SEGMENT)}
        gone = [name for name in self._storage.notes() if name[:1] in (_STATE, _SEGMENT) and name[1:3] in lost]
        self._slices = None
        return Batch(notes=dict.fromkeys([*gone, *damaged, _MAKER]))

    # -- reaping --------------------------------------------------------------------------------

    def bury(self, graves: Iterable[Grave]) -> Batch:
        """Return the change that reaps records: their dead dots go, and an entry for each stands in the log."""
        work = _Work(self)
        for grave in graves:
            entry = self._entry_of(grave)
            work.append(self.slice_of(grave.record.key), work.maker(), entry)
            work.bury(grave.record.key, entry)
        return work.batch()

    def _entry_of(self, grave: Grave) -> LogEntry:
        dead = tuple(DeadActor(actor, grave.dead[actor]) for actor in sorted(grave.dead))
        return LogEntry(self._prefix(grave.record.key), dead, dedup.tags(grave.record.superseded))

    def news(self, part: int, before: SliceState, graves: Iterable[Grave]) -> SliceLog:
        """Return the entries of a slice's graves for the other replicas, also entries that this log trimmed at once.

        Args:
            before: the state of the slice before these graves. The caller has stored what `bury` returned.
        """
        own = self._storage.note(_MAKER) or b""
        entries = tuple(self._entry_of(grave) for grave in graves if self.slice_of(grave.record.key) == part)
        first = before.seen.get(own, 0) + 1
        seen = _up_tos({**before.seen, own: first + len(entries) - 1})
        trimmed, floors = _up_tos(before.trimmed), _up_tos(before.floors)
        return SliceLog(part, seen, trimmed, floors, before.tags, (Run(own, first, entries),))

    def next_number(self, part: int) -> int:
        """Return the number of the next entry that this store makes for a slice."""
        return self.state(part).seen.get(self._storage.note(_MAKER) or b"", 0) + 1

    def run_of(self, part: int, first: int) -> SliceLog:
        """Return the log of a slice with this store's own entries from a number on, for those that have the others."""
        own = self._storage.note(_MAKER)
        seen = self.state(part).seen
        return self._log(part, seen if own is None else {**seen, own: first - 1}, None)[0]

    def trim(self, part: int, keep: int) -> Batch:
        """Return the change that trims a slice's log to so many entries, those of the longest run first."""
        work = _Work(self)
        work.trim_to(part, keep)
        return work.batch()

    # -- giving ---------------------------------------------------------------------------------

    def log_after(self, part: int, seen: Mapping[bytes, int], bytes_max: int) -> tuple[SliceLog, int]:
        """Return the log of a slice with the entries that another store has not seen, and about its bytes.

        Of a log that takes more than `bytes_max` only the first entries are returned.
        """
        return self._log(part, seen, bytes_max)

    def _log(self, part: int, seen: Mapping[bytes, int], bytes_max: int | None) -> tuple[SliceLog, int]:
        state = self.state(part)
        runs: list[Run] = []
        size = 64 * (1 + len(state.seen))
        for maker, last in sorted(state.seen.items()):
            first = max(seen.get(maker, 0), state.trimmed.get(maker, 0)) + 1
            entries: list[LogEntry] = []
            for entry in self._entries(part, maker, first, last):
                if bytes_max is not None and size > bytes_max:
                    break
                entries.append(entry)
                size += 32 + 26 * len(entry.dead) + len(entry.tags)
            if entries:
                runs.append(Run(maker, first, tuple(entries)))
        seen_here, trimmed, floors = _up_tos(state.seen), _up_tos(state.trimmed), _up_tos(state.floors)
        return SliceLog(part, seen_here, trimmed, floors, state.tags, tuple(runs)), size

    def vouch(self, claims: Iterable[Claim]) -> tuple[Holding, ...]:
        """Return what the records here know of each claimed actor."""
        found = []
        for claim in claims:
            record = self._storage.get(claim.key)
            entry = None if record is None else next((e for e in record.clock if e.actor == claim.actor), None)
            found.append(Holding(0, 0) if entry is None else Holding(entry.count, len(entry.versions)))
        return tuple(found)

    # -- taking ---------------------------------------------------------------------------------

    def absorb(self, log: SliceLog) -> Batch:
        """Return the change that applies the entries of another store's log which follow those that were seen here.

        If all that the other has trimmed was seen here, this store trims it too.
        """
        work = _Work(self)
        work.absorb(log)
        return work.batch()

    def as_if_absorbed(self, key: bytes, logs: Iterable[SliceLog]) -> tuple[Record | None, bytes]:
        """Return a key's record, and what its slice would have seen, if logs were absorbed. Changes nothing.

        Args:
            logs: logs of the key's slice.
        """
        work = _Work(self)
        for log in logs:
            work.absorb(log)
        state = work.slice(self.slice_of(key)).frozen()
        return work.record(key), _digest(b"", state)

    def is_in_reach(self, log: SliceLog) -> bool:
        """Return whether every entry that another store has trimmed was seen here."""
        return self.state(log.slice).reaches(_mapping(log.trimmed))

    def claims(self, log: SliceLog, known: Mapping[Claim, Holding]) -> list[Claim]:
        """Return of which values here it is not known what another store, from which this one is out of reach, says."""
        floors = _mapping(log.floors)
        return [
            claim
            for record in self._storage.scan(self._storage.digests.arc_of(log.slice))
            for entry in record.clock
            if entry.versions and not _is_above(entry.actor, floors)
            if (claim := Claim(record.key, entry.actor)) not in known
        ]

    def catch_up(self, log: SliceLog, known: Mapping[Claim, Holding]) -> Batch:
        """Return the change after which another store's trimmed entries count as seen.

        Args:
            log: of the other store, from which this one is out of reach.
            known: what the other store has said of all `claims`.
        """
        work = _Work(self)
        floors = _mapping(log.floors)
        for record in self._storage.scan(self._storage.digests.arc_of(log.slice)):
            decided, undecided = _judge(record, floors, known, log.tags)
            if decided is not record:
                work.replace(record, decided, undecided)
        work.adopt(log)
        work.absorb(log)
        return work.batch()

    def restored(self, record: Record) -> Record | None:
        """Return what is not dead of a record from a backup; None if nothing is left.

        A backup has seen no entry: dead is what the log names, and what nothing here vouches for. The backup's own
        quarantine stays in quarantine, but for what the log names.
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
        if live is not None and state.floors:
            hidden = live.quarantine
            asked = [Claim(record.key, entry.actor) for entry in live.clock]
            shown = Record(record.key, live.clock, live.superseded)
            decided, _ = _judge(shown, state.floors, dict(zip(asked, self.vouch(asked), strict=True)), state.tags)
            clock = () if decided is None else decided.clock
            live = Record(record.key, clock, record.superseded if clock else b"", hidden) if clock or hidden else None
        return live

    # -- inside ---------------------------------------------------------------------------------

    def _known(self) -> set[int]:
        if self._slices is None:
            states = (name for name in self._storage.notes() if name[:1] == _STATE)
            self._slices = {int.from_bytes(name[1:], "big") for name in states}
        return self._slices

    def _decoded(self, part: int, raw: bytes | None) -> tuple[bytes, SliceState, bytes]:
        if raw is None:
            return b"", _NO_STATE, b""
        held = self._states.get(part)
        if held is None or held[0] is not raw:
            state = _decode_state(raw)
            held = self._states[part] = raw, state, _digest(raw, state)
        return held

    def _prefix(self, key: bytes) -> bytes:
        return self._circle.hash(key).to_bytes(self._circle.width, "big")[:_POINT_BYTES]

    def _keys_at(self, prefix: bytes) -> list[bytes]:
        """Return the keys whose points begin so: nearly always one, or none."""
        rest = 8 * max(0, self._circle.width - _POINT_BYTES)
        low = int.from_bytes(prefix, "big") << rest
        arc = Arc(self._circle.point(low - 1), self._circle.point(low | (1 << rest) - 1))
        return [key for key, _ in self._storage.heads(arc)]

    def _entries(self, part: int, maker: bytes, first: int, last: int) -> Iterator[LogEntry]:
        """Yield a maker's entries from one number to another; both are in the log."""
        for number in range((first - 1) // SEGMENT_ENTRIES, (last - 1) // SEGMENT_ENTRIES + 1):
            raw = self._storage.note(_segment_name(part, maker, number))
            segment = _Segment(0, []) if raw is None else _decode_segment(raw)
            for place, entry in enumerate(segment.entries, segment.first):
                if first <= place <= last:
                    yield entry


class _Slice:
    """The state of a slice while it changes."""

    def __init__(self, state: SliceState) -> None:
        self.seen, self.trimmed, self.floors = dict(state.seen), dict(state.trimmed), dict(state.floors)
        self.tags = state.tags

    def frozen(self) -> SliceState:
        """Return the state, in one order whoever made it."""
        seen, trimmed, floors = (dict(sorted(one.items())) for one in (self.seen, self.trimmed, self.floors))
        return SliceState(seen, trimmed, floors, self.tags)


class _Work:
    """One change of logs and records, until it is a batch."""

    def __init__(self, log: ReapLog) -> None:
        self._log = log
        self._storage = log._storage
        self._slices: dict[int, _Slice] = {}
        self._segments: dict[bytes, _Segment | None] = {}
        self._records: dict[bytes, Record | None] = {}
        self._minted: dict[bytes, bytes] = {}
        self._maker = b""

    def maker(self) -> bytes:
        """Return this store's name as a maker of log entries."""
        self._maker = self._maker or self._storage.note(_MAKER) or b""
        if not self._maker:
            epoch = self._storage.next_key_epoch().to_bytes(8, "big")
            fresh = blake2b(self._storage.incarnation + epoch, digest_size=8).digest()
            self._maker = fresh
        return self._maker

    def batch(self) -> Batch:
        """Return the change. A log that has become too long is trimmed first."""
        limits = self._log._limits
        for part, state in list(self._slices.items()):
            if state.frozen().entries > limits.reap_log_entries_max:
                self._log.forced_trims += 1
                self.trim_to(part, limits.reap_log_entries)
        notes: dict[bytes, bytes | None] = {_MAKER: self._maker} if self._maker else {}
        for part, state in self._slices.items():
            if (frozen := state.frozen()) != self._log.state(part):  # a full disk refuses even an unchanged note
                notes[_state_name(part)] = _encode(frozen)
                self._log._known().add(part)
        for name, segment in self._segments.items():
            notes[name] = _encode(segment) if segment is not None and segment.entries else None
        puts = [record for record in self._records.values() if record is not None]
        removals = [key for key, record in self._records.items() if record is None]
        return Batch(puts, removals, self._minted, notes)

    # -- records --------------------------------------------------------------------------------

    def record(self, key: bytes) -> Record | None:
        """Return the record of a key, as it is after the change."""
        return self._records[key] if key in self._records else self._storage.get(key)

    def bury(self, key: bytes, entry: LogEntry) -> None:
        """Take the dead dots of an entry off a record."""
        record = self.record(key)
        if record is not None:
            dead = {one.actor: one.count for one in entry.dead}
            left = versions.bury(record, dead, entry.tags)
            if left != record:
                self.replace(record, left, dead)

    def replace(self, old: Record, new: Record | None, gone: Iterable[bytes]) -> None:
        """Put another record in the place of one. Under an actor that is gone from it no dot is minted any more."""
        self._records[old.key] = new
        minted = None if new is None else self._storage.minted(old.key)
        if minted is not None and minted in gone:
            epoch = self._storage.next_key_epoch()
            self._minted[old.key] = versions.actor(self._storage.incarnation, epoch)

    # -- logs -----------------------------------------------------------------------------------

    def slice(self, part: int) -> _Slice:
        """Return the state of a slice, to be changed."""
        if part not in self._slices:
            self._slices[part] = _Slice(self._log.state(part))
        return self._slices[part]

    def append(self, part: int, maker: bytes, entry: LogEntry) -> None:
        """Add the next entry of a maker."""
        state = self.slice(part)
        number = state.seen[maker] = state.seen.get(maker, 0) + 1
        name = _segment_name(part, maker, (number - 1) // SEGMENT_ENTRIES)
        segment = self._segment(name)
        if segment is None:
            segment = self._segments[name] = _Segment(number, [])
        segment.entries.append(entry)

    def absorb(self, log: SliceLog) -> None:
        """Apply the entries that follow those that were seen, and trim what the other store has."""
        state = self.slice(log.slice)
        for run in log.runs:
            for number, entry in enumerate(run.entries, run.first):
                if number == state.seen.get(run.maker, 0) + 1:
                    self.append(log.slice, run.maker, entry)
                    for key in self._log._keys_at(entry.point):
                        self.bury(key, entry)
        trimmed = _mapping(log.trimmed)
        if all(state.seen.get(maker, 0) >= number for maker, number in trimmed.items()):
            self.adopt(log)

    def adopt(self, log: SliceLog) -> None:
        """Count as seen and trimmed what another store has trimmed, and take its floors and tags."""
        state = self.slice(log.slice)
        for up_to in log.trimmed:
            if state.trimmed.get(up_to.store, 0) < up_to.number:
                self._drop(log.slice, up_to.store, up_to.number)
                state.trimmed[up_to.store] = up_to.number
                state.seen[up_to.store] = max(up_to.number, state.seen.get(up_to.store, 0))
        for up_to in log.floors:
            state.floors[up_to.store] = max(up_to.number, state.floors.get(up_to.store, 0))
        state.tags = _latest(state.tags, log.tags)

    def trim_to(self, part: int, keep: int) -> None:
        """Trim a slice's log to so many entries; raise the floors to the actors in what goes."""
        state = self.slice(part)
        while (surplus := state.frozen().entries - keep) > 0:
            lengths = {maker: last - state.trimmed.get(maker, 0) for maker, last in state.seen.items()}
            maker = max(sorted(lengths), key=lambda one: lengths[one])
            number = state.trimmed.get(maker, 0) + min(surplus, lengths[maker])
            for entry in self._drop(part, maker, number):
                for dead in entry.dead:
                    store, epoch = dead.actor[:_EPOCH_AT], int.from_bytes(dead.actor[_EPOCH_AT:], "big")
                    state.floors[store] = max(epoch, state.floors.get(store, 0))
                state.tags = _latest(state.tags, entry.tags)
            state.trimmed[maker] = number

    def _drop(self, part: int, maker: bytes, last: int) -> list[LogEntry]:
        """Take a maker's entries up to a number out of the log, and return them."""
        state = self.slice(part)
        first = state.trimmed.get(maker, 0) + 1
        dropped: list[LogEntry] = []
        held = min(last, state.seen.get(maker, 0))
        for number in range((first - 1) // SEGMENT_ENTRIES, (held - 1) // SEGMENT_ENTRIES + 1):
            name = _segment_name(part, maker, number)
            segment = self._segment(name)
            if segment is not None:
                count = max(0, min(last - segment.first + 1, len(segment.entries)))
                dropped += segment.entries[:count]
                segment.first += count
                del segment.entries[:count]
        return dropped

    def _segment(self, name: bytes) -> _Segment | None:
        if name not in self._segments:
            raw = self._storage.note(name)
            if raw is None:
                return None
            self._segments[name] = _decode_segment(raw)
        segment = self._segments[name]
        return segment if segment is not None and segment.entries else None


def _judge(
    record: Record, floors: Mapping[bytes, int], known: Mapping[Claim, Holding], tags: bytes
) -> tuple[Record | None, list[bytes]]:
    """Return what is left of a record once another store has vouched for its values, and the actors it knows not.

    Of an actor with deletes alone nothing needs to be hidden: an empty entry remains, as all its values are replaced.
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
    decided = Record(record.key, tuple(clock), record.superseded, record.quarantine)
    if undecided:
        decided = versions.isolate(decided, undecided)
    left = versions.bury(decided, {}, tags) if tags else decided
    return (record if left == record else left), [*undecided, *emptied]


def _is_above(actor: bytes, floors: Mapping[bytes, int]) -> bool:
    """Return whether no trimmed entry can name an actor."""
    floor = floors.get(actor[:_EPOCH_AT])
    return floor is None or int.from_bytes(actor[_EPOCH_AT:], "big") > floor


def _mapping(up_tos: Iterable[UpTo]) -> dict[bytes, int]:
    return {up_to.store: up_to.number for up_to in up_tos}


def _up_tos(numbers: Mapping[bytes, int]) -> tuple[UpTo, ...]:
    return tuple(UpTo(store, number) for store, number in numbers.items())


def _digest(raw: bytes, state: SliceState) -> bytes:
    if not state.seen:
        return b""
    seen = b"".join(maker + number.to_bytes(8, "big") for maker, number in sorted(state.seen.items()))
    return blake2b(seen, digest_size=_SEEN_BYTES).digest()


def _latest(*tags: bytes) -> bytes:
    """Return the last of all tags, each once."""
    joined = b"".join(tags)
    size = dedup.TAG_BYTES
    found = dict.fromkeys(joined[at : at + size] for at in range(0, len(joined), size))
    return b"".join(list(found)[-TAGS_KEPT:])


def _state_name(part: int) -> bytes:
    return _STATE + part.to_bytes(2, "big")


def _segment_name(part: int, maker: bytes, number: int) -> bytes:
    return _SEGMENT + part.to_bytes(2, "big") + maker + number.to_bytes(8, "big")


