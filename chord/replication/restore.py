"""Values of a backup that the ring has deleted or replaced, and their return.

A merge keeps the decisions made since the backup: a replaced or deleted value stays so. An operator can bring such
values back. Each then becomes a new write beside the values of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from chord.store import quarantine, versions
from chord.wire.messages import Record, Version


class BroughtBack(NamedTuple):
    """A record with lost values written again, and `written`, the number of these values."""

    record: Record
    written: int


def missing(saved: Record, merged: Record, now_ms: int) -> list[Version]:
    """Return the live values of a backup's record that its key does not have now.

    Values in the backup's quarantine are included. The key has a value if its merged record shows the same bytes, from
    any write. It also has the value if that record holds the value's operation id, visible or in quarantine.

    Args:
        saved: the record in the backup.
        merged: the record of the key after the backup was merged.
        now_ms: the current time of the wall clock, in ms since 1970, by which values expire.
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
    """Write lost values again, as new versions beside those of a record.

    Values for which the record has no room are left out.

    Args:
        record: the record.
        lost: the values, from `missing`.
        minting: the actor under which this store writes the versions; see `versions.put`.
        op_id: the operation id of the restore. Each version gets an operation id derived from it.
        fits: returns whether a record is within the limits.
        is_retry: whether an earlier attempt of the restore may have been carried out elsewhere.

    Raises:
        InvalidRequest: definite; the clock would remember too many actors.
    """
    count = 0
    for version in lost:
        after = quarantine.write_anew(record, version, minting, op_id, is_retry=is_retry)
        if fits(after):
            record, count = after, count + 1
    return BroughtBack(record, count)
