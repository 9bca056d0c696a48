"""Messages about a cut: the content of every store at a consistent moment.

The envelope of a call announces a new cut; see `chord/wire/cuts.py`. These messages read the cut of one node.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from chord.wire.messages.base import PAGE_RECORDS_MAX, VALUE_BYTES_MAX, Count, Key, Reply, Request
from chord.wire.messages.records import Records

NOTE_NAME_BYTES_MAX = 64
NOTES_MAX = 4096
LAST_NAME = b"\xff" * NOTE_NAME_BYTES_MAX
"""No note has a larger name."""

NoteName = Annotated[bytes, Meta(max_length=NOTE_NAME_BYTES_MAX)]


class ScanCutReply(Reply, frozen=True, tag=162):
    """The next records of a cut.

    Attributes:
        records: the records, in the order of the points of their keys, with their quarantine.
        more_after: the key after which the next page begins; None: this page is the last.
        damaged: the number of damaged records that this page and the pages before it left out.
        cut: keys of this page with more versions than the page has, because one reply cannot hold them all.
    """

    records: Records
    more_after: Key | None
    damaged: Count = 0
    cut: Annotated[tuple[Key, ...], Meta(max_length=PAGE_RECORDS_MAX)] = ()


class ScanCut(Request, frozen=True, tag=47):
    """*node* Request for the next records of the node's cut: all of its store, hints included.

    The node drops a cut that gets no request for `Limits.cut_lease_s` seconds.

    Attributes:
        number: the number of the cut.
        after_key: the last key of the page before; None for the first page.
        limit: the largest number of records in the reply.
    """

    number: Count
    after_key: Key | None = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_RECORDS_MAX)] = PAGE_RECORDS_MAX
    reply = ScanCutReply
    patient = True
    for_clients = True
    bulk = True


class CutNote(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A part of a reap log.

    Attributes:
        name: the name of the part, as the store has it.
        value: the encoded content.
    """

    name: NoteName
    value: Annotated[bytes, Meta(max_length=VALUE_BYTES_MAX)]


class GetCutNotesReply(Reply, frozen=True, tag=163):
    """The next parts of the reap logs of a cut, in the order of their names.

    Attributes:
        notes: the parts.
        more_after: the name after which the next page begins; None: this page is the last.
        lease_ms: the time in ms after which the node drops the cut, unless a request arrives before.
    """

    notes: Annotated[tuple[CutNote, ...], Meta(max_length=NOTES_MAX)]
    more_after: NoteName | None
    lease_ms: Count = 60_000


class GetCutNotes(Request, frozen=True, tag=59):
    """*node* Request for the reap logs of the node's cut.

    The reader of several cuts needs them: a record in one cut may be reaped in another. Each request also keeps the cut
    for another `lease_ms`. A request for the names after `LAST_NAME` does only that.

    Attributes:
        number: the number of the cut.
        after: the last name of the page before; None for the first page.
    """

    number: Count
    after: NoteName | None = None
    reply = GetCutNotesReply
    patient = True
    for_clients = True
    bulk = True
