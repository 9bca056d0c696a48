"""The cut of one node: its part of a consistent backup.

A command chooses a number, and sends it to every node. From then on each call and each reply carries the number. If a
node sees a number for the first time, it cuts before it handles the message. The cuts of all nodes together have this
property: if they contain an effect, they contain its causes.

No message in transit is recorded. A node drops a record only after other nodes have acknowledged it, and their
acknowledgement carries the number. So a record in transit is in the cut of its sender. Hints count as records.

A node keeps one cut. A lease ends it: `Limits.cut_lease_s` without a request for a page. A higher number ends it, too.

A restart ends the cut, but the number stays: it becomes durable with the first transaction after the cut. If no
transaction follows, the disk is as it was at the cut. Then a cut after the restart is as good as the first one.
"""

from __future__ import annotations

from itertools import islice

import trio

from chord.errors import ChordError, CutMissing
from chord.net.handlers import handles
from chord.replication.records import cut_as, is_cut, pack
from chord.ring.context import NodeContext
from chord.store.reap_log_state import is_reap_log_note
from chord.store.storage import StoreCut
from chord.wire.messages import CutNote, GetCutNotes, GetCutNotesReply, ScanCut, ScanCutReply
from chord.wire.messages.cuts import NOTES_MAX


class Cuts:
    """Makes, keeps and reads the cut of one node."""

    def __init__(self, host: NodeContext) -> None:
        self._host = host
        self._number = 0
        self._held: StoreCut | None = None
        self._notes: list[CutNote] | None = None
        self._why_none = "it has restarted since"

    def take(self, number: int) -> None:
        """Cut now. An earlier cut is dropped."""
        self._drop(f"a newer cut, {number}, has replaced it")
        self._number = number
        try:
            self._held = self._host.storage.cut(number)
        except ChordError as error:
            self._why_none = error.message
        else:
            self._host.counters["cuts"] += 1
            self._renew()

    @handles(ScanCut)
    async def on_scan_cut(self, request: ScanCut) -> ScanCutReply:
        """Return the next page of the cut, and renew its lease.

        While this node serves clients, the reply waits, so that a backup takes at most a quarter of the node's time.

        Raises:
            CutMissing: definite; this node does not hold a cut of that number.
        """
        began = trio.current_time()
        held, limits = self._cut_of(request.number), self._host.limits
        count = min(request.limit, self._host.page_records)
        records, has_more = pack(held.scan(request.after_key), count, limits.page_bytes)
        page = tuple(cut_as(record, "whole", limits.record_bytes_max) for record in records)
        cut = tuple(whole.key for whole, shown in zip(records, page, strict=True) if is_cut(whole, shown, "whole"))
        reply = ScanCutReply(page, page[-1].key if has_more else None, held.damaged, cut)
        await self._host.give_way(began)
        return reply

    @handles(GetCutNotes)
    def on_get_cut_notes(self, request: GetCutNotes) -> GetCutNotesReply:
        """Return the next page of the reap logs of the cut, and renew its lease.

        Raises:
            CutMissing: definite; this node does not hold a cut of that number.
        """
        held = self._cut_of(request.number)
        if self._notes is None:
            self._notes = [CutNote(*note) for note in sorted(held.notes().items()) if is_reap_log_note(note[0])]
        after, left = request.after, self._host.limits.page_bytes
        page: list[CutNote] = []
        rest = [note for note in self._notes if after is None or note.name > after]
        for note in islice(rest, NOTES_MAX):
            left -= len(note.name) + len(note.value)
            if page and left < 0:
                break
            page.append(note)
        more_after = page[-1].name if len(page) < len(rest) else None
        return GetCutNotesReply(tuple(page), more_after, int(1000 * self._host.limits.cut_lease_s))

    def _cut_of(self, number: int) -> StoreCut:
        if self._held is None or number != self._number:
            why = self._why_none if number == self._number else f"its newest cut is {self._number}"
            raise CutMissing(f"{self._host.address} does not hold cut {number}: {why}")
        self._renew()
        return self._held

    def _renew(self) -> None:
        self._host.timers.set(self._expire, trio.current_time() + self._host.limits.cut_lease_s)

    def _expire(self) -> None:
        self._drop(f"its lease of {self._host.limits.cut_lease_s:g} s is over")

    def _drop(self, why: str) -> None:
        self._host.timers.clear(self._expire)
        if self._held is not None:
            self._held.close()
        self._held, self._notes, self._why_none = None, None, why
