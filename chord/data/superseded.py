"""Which operations have been replaced: so that another copy of one, when it turns up late, shows nothing.

A put that has to be tried again may be carried out twice, by two coordinators that do not hear of each other; its value
then has two dots. Who replaces the one that can be seen knows nothing of the other. So a record remembers what was
replaced in it, in fourteen bytes each: eight of the operation's id, when the version was written that replaced it (ms),
and whether it took more than one attempt. Copies older than that show nothing. A copy that is younger was written in
spite of it, and stays: else two operations, each done twice and in either order, would hide each other.

Operations of more than one attempt are remembered until there are too many of them; of the others, whose second copy is
still to come, only young ones. Both lists are joins (the latest time of each operation, and of these the latest few):
merging records commutes, associates and is idempotent, as `versions.sync` must.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from chord.messages import SUPERSEDED_BYTES_MAX, Version

ENTRY_BYTES = 14
RETRIED_MAX = 16
OTHERS_MAX = 8
OTHERS_MS = 600_000
"""So much older than a key's newest write an operation of one attempt may be: a silent node is waited for so long."""

_ID_BYTES = 8
_RETRIED = 1 << 47

assert (RETRIED_MAX + OTHERS_MAX) * ENTRY_BYTES == SUPERSEDED_BYTES_MAX


def is_hidden(version: Version, remembered: bytes) -> bool:
    """Return whether a version is a late copy of something that has been replaced."""
    own = version.op_id[-_ID_BYTES:]
    return any(id_ == own and version.written_ms < at_ms for id_, at_ms, _ in _entries(remembered))


def names(op_id: bytes, remembered: bytes) -> bool:
    """Return whether an operation is among those that have been replaced."""
    return any(id_ == op_id[-_ID_BYTES:] for id_, _, _ in _entries(remembered))


def join(remembered: Iterable[bytes], replaced: Iterable[tuple[Version, int]], newest_ms: int) -> bytes:
    """Return what is to be remembered.

    Args:
        remembered: what several records did.
        replaced: versions that are gone now, and when what replaced them was written; at least when they were
            themselves, where nobody knows.
        newest_ms: when the latest version was written that is left.
    """
    retried: dict[bytes, int] = {}
    others: dict[bytes, int] = {}
    for entries in remembered:
        for id_, at_ms, is_retry in _entries(entries):
            found = retried if is_retry else others
            found[id_] = max(at_ms, found.get(id_, 0))
    for version, at_ms in replaced:
        found = retried if version.is_retry else others
        id_ = version.op_id[-_ID_BYTES:]
        found[id_] = max(at_ms % _RETRIED, found.get(id_, 0))
    if not retried and not others:
        return b""
    oldest_ms = max(newest_ms, *retried.values(), *others.values()) - OTHERS_MS
    young = {id_: at_ms for id_, at_ms in others.items() if at_ms > oldest_ms}
    return _packed(retried, RETRIED_MAX, _RETRIED) + _packed(young, OTHERS_MAX, 0)


def is_whole(remembered: bytes) -> bool:
    """Return whether these bytes are what `join` makes."""
    return len(remembered) % ENTRY_BYTES == 0 and remembered == join([remembered], (), 0)


def _entries(remembered: bytes) -> Iterator[tuple[bytes, int, bool]]:
    for at in range(0, len(remembered), ENTRY_BYTES):
        what = int.from_bytes(remembered[at + _ID_BYTES : at + ENTRY_BYTES], "big")
        yield remembered[at : at + _ID_BYTES], what % _RETRIED, what >= _RETRIED


def _packed(found: dict[bytes, int], count_max: int, mark: int) -> bytes:
    latest = sorted(((at_ms, id_) for id_, at_ms in found.items()), reverse=True)[:count_max]
    return b"".join(id_ + (mark + at_ms).to_bytes(ENTRY_BYTES - _ID_BYTES, "big") for at_ms, id_ in latest)
