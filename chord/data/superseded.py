"""Which operations have been replaced: so that another copy of one, when it turns up late, shows nothing.

A put that has to be tried again may be carried out twice, by two coordinators that do not hear of each other; its value
then has two dots. Who replaces the one that can be seen knows nothing of the other. So a record remembers what was
replaced in it, in fourteen bytes each: eight of the operation's id, when it was written (ms), and whether it
took more than one attempt. Those that did are remembered until there are too many of them; of the others, whose second
copy is still to come, only young ones.

Everything here is a join of sets, cut off by rules that depend on nothing but the whole: it commutes, associates and is
idempotent, as `versions.sync` must.
"""

from __future__ import annotations

from collections.abc import Iterable

from chord.messages import SUPERSEDED_BYTES_MAX, Version

ENTRY_BYTES = 14
RETRIED_MAX = 16
OTHERS_MAX = 8
OTHERS_MS = 600_000
"""So much older than a key's newest write an operation of one attempt may be: a silent node is waited for so long."""

_ID_BYTES = 8
_RETRIED = 1 << 47

assert (RETRIED_MAX + OTHERS_MAX) * ENTRY_BYTES == SUPERSEDED_BYTES_MAX


def prefix(op_id: bytes) -> bytes:
    """Return what an operation is remembered by."""
    return op_id[-_ID_BYTES:]


def prefixes(remembered: bytes) -> set[bytes]:
    """Return the operations that are remembered."""
    return {remembered[at : at + _ID_BYTES] for at in range(0, len(remembered), ENTRY_BYTES)}


def join(remembered: Iterable[bytes], gone: Iterable[Version], newest_ms: int) -> bytes:
    """Return what is to be remembered.

    Args:
        remembered: what several records did.
        gone: versions that have been replaced now.
        newest_ms: when the latest version was written that is left.
    """
    found: dict[bytes, int] = {}
    for entries in remembered:
        for at in range(0, len(entries), ENTRY_BYTES):
            _add(found, entries[at : at + _ID_BYTES], int.from_bytes(entries[at + _ID_BYTES : at + ENTRY_BYTES], "big"))
    for version in gone:
        _add(found, prefix(version.op_id), version.written_ms % _RETRIED + _RETRIED * version.is_retry)
    if not found:
        return b""
    oldest_ms = max(newest_ms, *(what % _RETRIED for what in found.values())) - OTHERS_MS
    latest = sorted(((what % _RETRIED, id_, what) for id_, what in found.items()), reverse=True)
    retried = [entry for entry in latest if entry[2] >= _RETRIED][:RETRIED_MAX]
    others = [entry for entry in latest if entry[2] < _RETRIED and entry[0] > oldest_ms][:OTHERS_MAX]
    return b"".join(id_ + what.to_bytes(ENTRY_BYTES - _ID_BYTES, "big") for _, id_, what in (*retried, *others))


def _add(found: dict[bytes, int], id_: bytes, what: int) -> None:
    """Two copies of one operation: the latest time counts, and that it was tried again."""
    old = found.get(id_, 0)
    found[id_] = max(old % _RETRIED, what % _RETRIED) + _RETRIED * (max(old, what) >= _RETRIED)


def is_whole(remembered: bytes) -> bool:
    """Return whether these bytes are what `join` makes."""
    return len(remembered) % ENTRY_BYTES == 0 and remembered == join([remembered], (), 0)
