"""Which values of a saved record the ring has deleted or replaced since, and how they are written anew.

A merge keeps what was decided since the backup: a value that was replaced or deleted stays so. An operator can bring
such values back. Each then becomes a new write beside what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from chord.store import quarantine, versions
from chord.wire.messages import Record, Version


class BroughtBack(NamedTuple):
    """A record with values written anew, and how many."""

    record: Record
    written: int


def missing(saved: Record, merged: Record, now_ms: int) -> list[Version]:
    """Return the live values of a saved record that a record neither shows nor holds in quarantine.

    A value counts as shown if the record shows the same bytes, whichever write they are of.

    Args:
        saved: from a backup.
        merged: what the ring holds of the key once the saved record has been merged.
        now_ms: wall clock, by which values that live for a time are judged.
    """
    shown = [version for version in versions.siblings(merged) if versions.is_live(version, now_ms)]
    values = {version.value for version in shown}
    known = {version.op_id for version in shown} | {one.version.op_id for one in quarantine.hidden(merged)}
    of_saved = [*versions.siblings(saved), *(one.version for one in quarantine.hidden(saved))]
    return [
        version
        for version in of_saved
        if versions.is_live(version, now_ms) and version.op_id not in known and version.value not in values
    ]


def bring_back(
    record: Record,
    lost: Iterable[Version],
    minting: bytes,
    op_id: bytes,
    *,
    fits: Callable[[Record], bool],
    is_retry: bool = False,
) -> BroughtBack:
    """Return the record with values written anew beside what is there, as far as they have room.

    Args:
        lost: the values; see `missing`.
        minting, op_id, fits, is_retry: as of `quarantine.merge`.

    Raises:
        InvalidRequest: definite; the clock would remember too many actors.
    """
    count = 0
    for version in lost:
        after = quarantine.write_anew(record, version, minting, op_id, is_retry=is_retry)
        if fits(after):
            record, count = after, count + 1
    return BroughtBack(record, count)
