"""Which operations have been replaced: so that another copy of one, when it turns up late, shows nothing.

A put that has to be tried again may be carried out twice, by two coordinators that do not hear of each other; its value
then has two dots. Who replaces the one that can be seen knows nothing of the other. So a record remembers which
operation was replaced by which. Two operations, each done twice and in either order, have replaced each other: then
both are shown, for nobody can say which was meant to be the last.

Operations of more than one attempt are remembered until there are too many of them; of the others, whose second copy
may still come, the latest of some minutes. Clocks decide nothing but what is forgotten first. Both lists are joins
(unions, of which the latest few are kept): merging records commutes, associates and is idempotent, as `versions.sync`
must.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import NamedTuple

from chord.messages import SUPERSEDED_BYTES_MAX, Version

ENTRY_BYTES = 22
RETRIED_MAX = 16
OTHERS_MAX = 8
OTHERS_MS = 600_000
"""So much older than a key's newest write an operation of one attempt may be: a silent node is waited for so long."""

PARSED_MAX = 256

_TAG_BYTES = 8
"""Operation ids are random: half of one tells it from the others of its key."""
_SOMEBODY = bytes(_TAG_BYTES)
_RETRIED = 1 << 47

assert (RETRIED_MAX + OTHERS_MAX) * ENTRY_BYTES == SUPERSEDED_BYTES_MAX


class Replaced(NamedTuple):
    """A version that is gone, and the operation that replaced it where that is known."""

    version: Version
    by: bytes | None


class _Entry(NamedTuple):
    """In the order in which they are forgotten, last first. `at_ms`: when the version that was replaced was written."""

    at_ms: int
    tag: bytes
    by: bytes


def join(remembered: Iterable[bytes], replaced: Iterable[Replaced], newest_ms: int) -> bytes:
    """Return what is to be remembered.

    Args:
        remembered: what several records did.
        replaced: what is gone now.
        newest_ms: when the latest version was written that is left.
    """
    retried: set[_Entry] = set()
    others: set[_Entry] = set()
    for entries in remembered:
        for entry, is_retry in _entries(entries):
            (retried if is_retry else others).add(entry)
    for version, by in replaced:
        entry = _Entry(version.written_ms % _RETRIED, _tag(version.op_id), _SOMEBODY if by is None else _tag(by))
        (retried if version.is_retry else others).add(entry)
    if not retried and not others:
        return b""
    oldest_ms = max(newest_ms, *(entry.at_ms for entry in (*retried, *others))) - OTHERS_MS
    young = {entry for entry in others if entry.at_ms > oldest_ms}
    return _packed(retried, RETRIED_MAX, _RETRIED) + _packed(young, OTHERS_MAX, 0)


def names(op_id: bytes, remembered: bytes) -> bool:
    """Return whether an operation is among those that have been replaced."""
    tag = _tag(op_id)
    return tag in remembered and any(entry.tag == tag for entry, _ in _entries(remembered))


def is_hidden(op_id: bytes, remembered: bytes) -> bool:
    """Return whether an operation has been replaced, and by none that it has replaced itself."""
    tag = _tag(op_id)
    if tag not in remembered:
        return False
    by: dict[bytes, list[bytes]] = {}
    for entry, _ in _entries(remembered):
        by.setdefault(entry.tag, []).append(entry.by)
    has_replaced = any(tag in replacers for replacers in by.values())
    seen: dict[bytes, None] = {}
    following = list(by.get(tag, ()))
    while following:
        other = following.pop()
        if other == tag or (other == _SOMEBODY and has_replaced):
            return False
        if other not in seen:
            seen[other] = None
            following += by.get(other, ())
    return bool(seen)


def is_whole(remembered: bytes) -> bool:
    """Return whether these bytes are what `join` makes."""
    return len(remembered) % ENTRY_BYTES == 0 and remembered == join([remembered], (), 0)


def _tag(op_id: bytes) -> bytes:
    return op_id[-_TAG_BYTES:]


@functools.lru_cache(PARSED_MAX)
def _entries(remembered: bytes) -> tuple[tuple[_Entry, bool], ...]:
    """Return the entries, and of each whether it is of an operation that was tried again.

    Kept for a while, because the same bytes are looked at several times in one write, and at every replica's merge.
    """
    found = []
    for at in range(0, len(remembered), ENTRY_BYTES):
        middle, end = at + _TAG_BYTES, at + 2 * _TAG_BYTES
        what = int.from_bytes(remembered[end : at + ENTRY_BYTES], "big")
        found.append((_Entry(what % _RETRIED, remembered[at:middle], remembered[middle:end]), what >= _RETRIED))
    return tuple(found)


def _packed(found: set[_Entry], count_max: int, mark: int) -> bytes:
    """Return the latest entries as bytes. That somebody has replaced an operation is said where nobody knows who."""
    width = ENTRY_BYTES - 2 * _TAG_BYTES
    known = {entry.tag for entry in found if entry.by != _SOMEBODY}
    latest = sorted((e for e in found if e.by != _SOMEBODY or e.tag not in known), reverse=True)[:count_max]
    return b"".join(tag + by + (mark + at_ms).to_bytes(width, "big") for at_ms, tag, by in latest)
