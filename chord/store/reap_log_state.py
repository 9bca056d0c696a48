"""The parts of a reap log (`reap_log.py`), as they stand in the notes of a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from chord.errors import InvalidRequest
from chord.store import dedup
from chord.wire.conversion import first_use
from chord.wire.messages import MAKERS_MAX, LogEntry, Record, UpTo

SEGMENT_ENTRIES: Final = 64
TAGS_KEPT: Final = 64
"""Number of tags of replaced operations that a slice keeps from trimmed entries."""

STATE, SEGMENT, MAKER = b"s", b"l", b"m"
EPOCH_AT = 8  # offset of the key epoch in an actor; the store's incarnation comes before it
SEEN_BYTES = 8
POINT_BYTES = 8


class SliceState(msgspec.Struct, array_like=True, frozen=True):
    """The state of the reap log of one slice at one store, without the log's entries.

    Attributes:
        seen: by maker, the number of the last entry that the store has applied.
        trimmed: by maker, the number of the last entry that is gone from the log.
        floors: by incarnation of a store, the highest key epoch of its actors in trimmed entries.
        tags: the joined tags of replaced operations from trimmed entries, at most `TAGS_KEPT` of them.
    """

    seen: dict[bytes, int] = {}
    trimmed: dict[bytes, int] = {}
    floors: dict[bytes, int] = {}
    tags: bytes = b""

    @property
    def entries(self) -> int:
        """The number of entries that the log holds."""
        return sum(self.seen.values()) - sum(self.trimmed.values())

    def reaches(self, trimmed: Mapping[bytes, int]) -> bool:
        """Return whether the store with this state has applied every entry that another store trimmed.

        `trimmed` maps each maker to the number of its last entry that the other store trimmed.
        """
        return all(self.seen.get(maker, 0) >= number for maker, number in trimmed.items())


class Grave(NamedTuple):
    """A record to reap, and its dead dots: those of the writes to forget.

    Attributes:
        record: the record.
        dead: by actor, the number of its last dead write. All earlier writes of the actor are also dead.
    """

    record: Record
    dead: Mapping[bytes, int]


class Segment(msgspec.Struct, array_like=True):
    """Consecutive log entries of one maker for one slice, kept in one note; `first` is the number of the first."""

    first: int
    entries: list[LogEntry]


encode = msgspec.msgpack.Encoder().encode
with first_use:
    decode_state = msgspec.msgpack.Decoder(SliceState).decode
    decode_segment = msgspec.msgpack.Decoder(Segment).decode
NO_STATE: Final = SliceState()


class SliceDraft:
    """A `SliceState` that can be changed."""

    def __init__(self, state: SliceState) -> None:
        self.seen, self.trimmed, self.floors = dict(state.seen), dict(state.trimmed), dict(state.floors)
        self.tags = state.tags

    def frozen(self) -> SliceState:
        """Return the state with its keys sorted, so that equal states encode equally.

        Raises:
            InvalidRequest: definite; the state names more than `MAKERS_MAX` stores in one mapping. Every message about
                the slice would be refused.
        """
        if (stores := max(map(len, (self.seen, self.trimmed, self.floors)))) > MAKERS_MAX:
            raise InvalidRequest(f"a slice's reap log would name {stores} stores; the limit is {MAKERS_MAX}")
        seen, trimmed, floors = (dict(sorted(one.items())) for one in (self.seen, self.trimmed, self.floors))
        return SliceState(seen, trimmed, floors, self.tags)


def to_mapping(numbers: Iterable[UpTo]) -> dict[bytes, int]:
    """Return pairs of a store (or maker) and a number, from a message, as a mapping."""
    return {up_to.store: up_to.number for up_to in numbers}


def up_tos(numbers: Mapping[bytes, int]) -> tuple[UpTo, ...]:
    """Return a mapping from a store (or maker) to a number as pairs for a message; see `SliceState`."""
    return tuple(UpTo(store, number) for store, number in numbers.items())


def digest_of_seen(state: SliceState) -> bytes:
    """Return the digest, 8 bytes, of the log entries that a store has applied to a slice; empty without entries."""
    if not state.seen:
        return b""
    seen = b"".join(maker + number.to_bytes(8, "big") for maker, number in sorted(state.seen.items()))
    return blake2b(seen, digest_size=SEEN_BYTES).digest()


def latest_tags(*tags: bytes) -> bytes:
    """Join tags of replaced operations, each once, and keep the last `TAGS_KEPT` of them.

    Each argument is a string of joined tags, of 8 bytes each. The earlier arguments have the earlier tags.
    """
    joined = b"".join(tags)
    size = dedup.TAG_BYTES
    found = dict.fromkeys(joined[at : at + size] for at in range(0, len(joined), size))
    return b"".join(list(found)[-TAGS_KEPT:])


def state_name(part: int) -> bytes:
    """Return the name of the storage note with the state of slice `part`'s log."""
    return STATE + part.to_bytes(2, "big")


def is_reap_log_note(name: bytes) -> bool:
    """Return whether a note is a part of a reap log, by its name."""
    return name[:1] in (STATE, SEGMENT)


def segment_name(part: int, maker: bytes, number: int) -> bytes:
    """Return the name of the storage note with a segment of the log of slice `part`.

    A segment has up to 64 entries of one maker, the store that made them. `number` counts the maker's segments from 0.
    """
    return SEGMENT + part.to_bytes(2, "big") + maker + number.to_bytes(8, "big")
