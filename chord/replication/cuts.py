"""The cut of one node: its part of a consistent backup.

A command chooses a number, and sends it to every node. From then on each call and each reply carries the number. If a
node sees a number for the first time, it cuts before it handles the message. The cuts of all nodes together have this
property: if they contain an effect, they contain its causes.

No message in transit is recorded. A node drops a record only after other nodes have acknowledged it, and their
acknowledgement carries the number. So a record in transit is in the cut of its sender. Hints count as records.

A node keeps one cut. It ends with its lease (`Limits.cut_lease_s` without a request), with its greatest age
(`Limits.cut_age_max_s`), with a newer cut, or with a restart. The number survives the restart: it becomes durable with
the first transaction after the cut. If no transaction follows, the disk is as it was at the cut. Then a cut after the
restart is as good as the first one.

How far a message may raise the number, and what else limits cuts:

1. A node takes no number of a cut that began over a day after the present time of its clock. It handles the message,
   and does not pass the number on. So a hostile peer, or one with a wrong clock, cannot use up the numbers. A newcomer,
   or a node that was away for long, needs no such bound: it takes every other number at once.
2. The message may have come from a node that had cut. So a node that left out a number makes no cut for
   `cut_lease_s`. A backup that begins within that time is incomplete, and later backups are not affected.
3. A node that finds its own number too far ahead, because its clock was wrong, forgets the number like a restart.
4. A node makes at most `Limits.cuts_per_minute` cuts within a minute. It takes a further number without a cut, and
   keeps the cut that it has.

In each case a backup names the nodes without a cut, and says why.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Final

import trio

from chord.errors import ChordError, CutMissing
from chord.net.handlers import handles
from chord.replication.records import cut_as, is_cut, pack
from chord.ring.context import NodeContext
from chord.store.cuts import StoreCut
from chord.store.reap_log_state import is_reap_log_note
from chord.wire.cuts import AHEAD_MS_MAX, began_ms_of
from chord.wire.messages import CutNote, GetCutNotes, GetCutNotesReply, ScanCut, ScanCutReply
from chord.wire.messages.cuts import NOTES_MAX

MINUTE_S: Final = 60.0


class Cuts:
    """Makes, keeps and reads the cut of one node."""

    __slots__ = ("_cut_at", "_held", "_host", "_left_out_at", "_newest", "_notes", "_number", "_why_none")

    def __init__(self, host: NodeContext) -> None:
        self._host = host
        self._newest = 0  # the number that the next message carries
        self._why_none = "it has made no cut"  # why there is no cut of that number
        self._number = 0  # of the cut that is held
        self._held: StoreCut | None = None
        self._notes: list[CutNote] | None = None
        self._cut_at: list[float] = []  # the times of the latest cuts; a list, because most nodes make none
        self._left_out_at = -math.inf

    def resume(self, number: int) -> int:
        """Take over the number of the newest cut from before a restart, which has ended that cut.

        Return the number for messages from now on: the same, or 0 if it is over a day ahead of this node's clock.
        """
        if self._is_too_far_ahead(number):
            self._left_out_at = trio.current_time()
            return 0
        self._newest, self._why_none = number, "it has restarted since"
        return number

    def take(self, number: int) -> int:
        """Make a cut now, and close the earlier one; return the number for messages from now on.

        A number over a day ahead of this node's clock is ignored. No cut is made for `cut_lease_s` after such a number,
        or if `cuts_per_minute` cuts were made within a minute. Then the earlier cut stays.

        Args:
            number: the number of the cut, higher than the number of this node's messages so far.
        """
        now, limits = trio.current_time(), self._host.limits
        if self._is_too_far_ahead(number):
            self._left_out_at = now
            if self._is_too_far_ahead(self._newest):
                self._drop("its clock was wrong")
                self._newest = 0
                self._host.storage.note_cut_number(0)
            return self._newest
        self._newest = number
        if now < self._left_out_at + limits.cut_lease_s:
            self._skip(f"a cut with a wrong time has reached it within the last {limits.cut_lease_s:g} s")
        elif len(self._cut_at) == limits.cuts_per_minute and now < self._cut_at[0] + MINUTE_S:
            self._skip(f"it makes at most {limits.cuts_per_minute} cuts per minute (cuts_per_minute)")
        else:
            self._cut(number, now)
        return number

    def _cut(self, number: int, now: float) -> None:
        self._drop("")
        self._cut_at = [*self._cut_at, now][-self._host.limits.cuts_per_minute :]
        try:
            self._held = self._host.storage.cut(number)
        except ChordError as error:
            self._why_none = error.message
        else:
            self._number = number
            self._host.counters["cuts"] += 1
            self._renew()

    def _skip(self, why: str) -> None:
        self._why_none = why
        self._host.storage.note_cut_number(self._newest)

    def _is_too_far_ahead(self, number: int) -> bool:
        return began_ms_of(number) - self._host.wall_now_ms() > AHEAD_MS_MAX

    @handles(ScanCut)
    async def on_scan_cut(self, request: ScanCut) -> ScanCutReply:
        """Return the next page of the records of the cut, and renew its lease.

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
        start = 0 if request.after is None else bisect_right(self._notes, request.after, key=lambda note: note.name)
        left = self._host.limits.page_bytes
        page: list[CutNote] = []
        for note in self._notes[start : start + NOTES_MAX]:
            left -= len(note.name) + len(note.value)
            if page and left < 0:
                break
            page.append(note)
        more_after = page[-1].name if start + len(page) < len(self._notes) else None
        return GetCutNotesReply(tuple(page), more_after, int(1000 * self._host.limits.cut_lease_s))

    def _cut_of(self, number: int) -> StoreCut:
        if self._held is None or number != self._number:
            raise CutMissing(f"{self._host.address} does not hold cut {number}: {self._why(number)}")
        self._renew()
        return self._held

    def _why(self, number: int) -> str:
        if number == self._newest:
            return self._why_none
        if self._is_too_far_ahead(number):
            return "its clock shows a time over a day before the cut; check the clocks of the members"
        return f"its newest cut is {self._newest}"

    def _renew(self) -> None:
        limits = self._host.limits
        until = min(trio.current_time() + limits.cut_lease_s, self._cut_at[-1] + limits.cut_age_max_s)
        self._host.timers.set(self._expire, until)

    def _expire(self) -> None:
        limits = self._host.limits
        if trio.current_time() >= self._cut_at[-1] + limits.cut_age_max_s:
            self._drop(f"its cut was {limits.cut_age_max_s:g} s old, the greatest age (cut_age_max_s)")
        else:
            self._drop(f"its lease of {limits.cut_lease_s:g} s is over")

    def _drop(self, why: str) -> None:
        self._host.timers.clear(self._expire)
        if self._held is not None:
            self._held.close()
        self._held, self._notes = None, None
        if self._number == self._newest:
            self._why_none = why
