"""The scan of a cut: every node's part of a consistent backup, merged key by key."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce

from chord.client.results import BatchResult, Page
from chord.client.session import ClientCall, ClientOperation, ClientSession, MakeCalls, Outcome, Pause, ReadClock
from chord.config import Limits
from chord.errors import NO_REPLY, ChordError, CutMissing, DeadlineExceeded, RecordDamaged, RecordTooLarge
from chord.ids import Circle, Point
from chord.store import versions
from chord.store.reap_log import ReapLog
from chord.store.storage import Batch, MemoryStorage
from chord.wire.cuts import next_number
from chord.wire.messages import GetCutNotes, GetCutNotesReply, Record, ScanCut, ScanCutReply, Status
from chord.wire.messages.base import PAGE_RECORDS_MAX
from chord.wire.messages.cuts import LAST_NAME

ATTEMPTS_MAX = 3
SMALLER = 8  # a page that came too late is asked for again with this part of its records
RENEWALS = 3  # requests to a node within its lease, so that one may fail
RENEW_MIN_S = 0.5  # a shorter lease cannot be kept: its reply would have no time
CUT_KEYS_MAX = 256  # keys of records with too many values that a scan remembers; the others are only counted
CUT_KEYS_NAMED = 5
WITHOUT_PLACE = ("starting", "joining", "resuming")
"""States of a node that does not know its neighbours yet, and names none."""


def begin_cut(
    session: ClientSession, members: Callable[..., ClientOperation[BatchResult[str, Status]]]
) -> ClientOperation[CutScan]:
    """Let every node make a cut, and return the scan of these cuts.

    The scan is complete only if all members hold their cut until its end. These are the members that answer before the
    number of the cut is chosen, and those that are found afterwards. So are vnodes that an owner must ask before it can
    deny a key. The address of such a vnode may belong to another node by now. A member that does not know its
    neighbours yet makes the scan incomplete, too.

    Args:
        session: makes the requests.
        members: asks every node that can be found for its status; see `Operations.members`.

    Raises:
        CutMissing: the session belongs to a node, and the node's clock is too far behind to begin a cut.
    """
    circle = yield from session.known_circle()
    before = yield from members()
    clocks_ms = sorted(status.wall_ms for status in before.ok.values())
    number = next_number(session.cuts.number, clocks_ms[(len(clocks_ms) - 1) // 2], session.rng)
    session.cuts.see(number)
    if session.cuts.number < number:
        raise CutMissing(f"{session.member} cannot begin a cut: its clock is over a day behind those of the members")
    after = yield from members(also=before.ok)
    missing = {address: error.message for address, error in after.errors.items()}
    missing |= {address: "it is no longer a member" for address in before.ok if address not in after}
    missing |= _displaced(after.ok) | _without_place(after.ok)
    return CutScan(session, circle, number, after.ok, missing)


def _displaced(nodes: Mapping[str, Status]) -> dict[str, str]:
    """Return the missing members with a last known address that belongs to another node, each with the reason in words.

    Without their records an owner can deny no key of a part of its arc. As in `chord check`, other members do not
    count: a write quorum of the rest holds each acknowledged write.

    Args:
        nodes: by address, the statuses of the nodes that answered.
    """
    held = {vnode.contact.id for status in nodes.values() for vnode in status.vnodes}
    lacking = (contact for status in nodes.values() for part in status.sets for contact in part.missing)
    return {
        f"once {contact.address}": "another node has its address now"
        for contact in lacking
        if contact.address in nodes and contact.id not in held
    }


def _without_place(nodes: Mapping[str, Status]) -> dict[str, str]:
    """Return the nodes that keep the search for members from being complete, each with the reason in words.

    A node that restarts names no neighbours before it has its place again. While a whole ring restarts, perhaps
    no node names a member, and the search does not find it. The members know the neighbours of a new node. So a joiner
    counts only if the search has found no member.

    Args:
        nodes: by address, the statuses of the nodes that answered.
    """
    has_members = any(status.state not in WITHOUT_PLACE for status in nodes.values())
    return {
        address: "it does not know its neighbours yet"
        for address, status in nodes.items()
        if status.state in WITHOUT_PLACE and not (status.state == "joining" and has_members)
    }


class _NodeCut:
    """The cut of one node, as far as it is read.

    Attributes:
        log: the reap logs of the cut. Its storage has the notes, and at most one record at a time.
        ahead: the records that are read and not merged yet.
        after: the key after which the next page begins; None: the first page was not read.
        is_over: whether all records are read.
        damaged: number of damaged records in the cut so far.
        renew_s: seconds after which the lease is renewed.
    """

    def __init__(self, address: str, circle: Circle) -> None:
        self.address = address
        self.storage = MemoryStorage(circle, bytes(8))
        self.log = ReapLog(circle, self.storage, Limits())
        self.has_notes = False
        self.after_note: bytes | None = None
        self.ahead: deque[Record] = deque()
        self.after: bytes | None = None
        self.is_over = False
        self.damaged = self.attempts = 0
        self.renew_s = Limits().cut_lease_s / RENEWALS
        self._renewed = -math.inf  # when the latest request began that the node answered
        self._records_max = PAGE_RECORDS_MAX

    def to_ask(self, number: int, now: float) -> GetCutNotes | ScanCut | None:
        """Return the next request to the node; None if no more is needed now.

        Args:
            number: the number of the cut.
            now: the time, in seconds.
        """
        if self.is_over:
            return None
        if self.ahead:
            return GetCutNotes(number, LAST_NAME) if now >= self._renewed + self.renew_s else None
        if self.has_notes:
            return ScanCut(number, self.after, self._records_max)
        return GetCutNotes(number, self.after_note)

    def take(self, reply: GetCutNotesReply | ScanCutReply, asked_at: float) -> None:
        """Take a page, or the renewal of the lease.

        Args:
            reply: the reply.
            asked_at: when the request began, in seconds.
        """
        self.attempts, self._renewed = 0, asked_at
        if isinstance(reply, GetCutNotesReply):
            self.renew_s = max(reply.lease_ms / 1000 / RENEWALS, RENEW_MIN_S)
            if self.has_notes:
                return
            self.storage.apply(Batch(notes={note.name: note.value for note in reply.notes}))
            self.after_note, self.has_notes = reply.more_after, reply.more_after is None
            return
        self._records_max = min(2 * self._records_max, PAGE_RECORDS_MAX)
        self.ahead.extend(reply.records)
        self.after, self.is_over = reply.more_after, reply.more_after is None
        self.damaged = max(self.damaged, reply.damaged)

    def fail(self, error: ChordError) -> bool:
        """Count a failed request; return whether to repeat it, for fewer records if the page came too late."""
        self.attempts += 1
        if isinstance(error, DeadlineExceeded):
            self._records_max = max(1, self._records_max // SMALLER)
        return self.attempts < ATTEMPTS_MAX and (error.is_retryable or isinstance(error, NO_REPLY))


class CutScan:
    """A scan of the cuts of all nodes, and its position.

    Args:
        session: makes the requests.
        circle: the circle of the ring.
        number: the number of the cut.
        addresses: the addresses of the nodes to read from.
        missing: by address, the nodes that did not cut, each with the reason in words.
    """

    def __init__(
        self, session: ClientSession, circle: Circle, number: int, addresses: Iterable[str], missing: dict[str, str]
    ) -> None:
        self._session = session
        self._circle = circle
        self._number = number
        self._parts = [_NodeCut(address, circle) for address in addresses]
        self._missing = missing
        self._cut: dict[bytes, None] = {}

    def page(self) -> ClientOperation[tuple[Page, CutScan | None]]:
        """Return the next records, merged from the copies of all nodes, and this object to go on, or None at the end.

        If a node does not answer, the page ends early, and the next page asks that node again. A page also ends early
        if nodes must be asked to keep their cuts for longer.

        Raises:
            DeadlineExceeded: the deadline had passed before the page began.
            CutMissing: the scan is finished, and some nodes did not hold the cut until its end.
            RecordDamaged: the scan is finished, and damaged records were left out.
            RecordTooLarge: the scan is finished, and some records were returned with only some of their values.
        """
        if self._is_over:
            raise self._lacking()
        now: float = yield ReadClock()
        asked = [(part, request) for part in self._parts if (request := part.to_ask(self._number, now)) is not None]
        if asked:
            calls = tuple(ClientCall(part.address, request) for part, request in asked)
            outcomes = yield MakeCalls(calls, min(part.renew_s for part in self._parts if not part.is_over))
            failures = [self._take(part, outcome, now) for (part, _), outcome in zip(asked, outcomes, strict=True)]
            if pauses := [failure for failure in failures if failure is not None]:
                with suppress(DeadlineExceeded):  # the next page has a later deadline
                    yield Pause(self._session.backoff_s(0, pauses[0]))
        page = Page(tuple(self._merged_ahead()), 0)
        is_complete = not (self._missing or self._cut or self._damaged)
        return page, None if self._is_over and is_complete else self

    @property
    def _is_over(self) -> bool:
        return all(part.is_over and not part.ahead for part in self._parts)

    @property
    def _damaged(self) -> int:
        return sum(part.damaged for part in self._parts)

    def _take(self, part: _NodeCut, outcome: Outcome, asked_at: float) -> ChordError | None:
        """Take the outcome of a request; return the error if the next page repeats the request."""
        if isinstance(outcome, (GetCutNotesReply, ScanCutReply)):
            part.take(outcome, asked_at)
            if isinstance(outcome, ScanCutReply):
                self._cut.update(dict.fromkeys(outcome.cut))
            return None
        assert isinstance(outcome, ChordError)
        if part.fail(outcome):
            return outcome
        part.is_over = True
        self._missing[part.address] = outcome.message
        return None

    def _lacking(self) -> ChordError:
        """Return the error for an incomplete scan. Further reasons are in its `also`."""
        errors: list[ChordError] = []
        if self._missing:
            names = "; ".join(f"{address} ({why})" for address, why in sorted(self._missing.items()))
            members = "1 member has" if len(self._missing) == 1 else f"{len(self._missing)} members have"
            missing = CutMissing(f"the backup is incomplete: {members} no cut: {names}")
            missing.addresses = tuple(sorted(self._missing))
            errors.append(missing)
        if self._damaged:
            copies = "1 copy of a record is" if self._damaged == 1 else f"{self._damaged} copies of records are"
            damaged = RecordDamaged(f"the backup is incomplete: {copies} damaged")
            damaged.records = self._damaged
            errors.append(damaged)
        if self._cut:
            named = [repr(key.decode(errors="backslashreplace")) for key in list(self._cut)[:CUT_KEYS_NAMED]]
            keys = "1 key has" if len(self._cut) == 1 else f"{len(self._cut)} keys have"
            large = RecordTooLarge(
                f"the backup is incomplete: {keys} more values than one reply can hold, such as {', '.join(named)}"
            )
            large.records, large.keys = len(self._cut), tuple(self._cut)[:CUT_KEYS_MAX]
            errors.append(large)
        first, *others = errors
        first.also = tuple(others)
        return first

    # -- merging ----------------------------------------------------------------------------------

    def _merged_ahead(self) -> Iterator[Record]:
        """Yield the merge of each record that no node can have copies of behind the pages read so far."""
        while True:
            ready = [part for part in self._parts if part.ahead]
            if not ready or any(not part.is_over and not part.ahead for part in self._parts):
                return
            first = min(self._place(part) for part in ready)
            copies = [(part, part.ahead.popleft()) for part in ready if self._place(part) == first]
            if (record := self._merged(copies)) is not None:
                yield record

    def _place(self, part: _NodeCut) -> tuple[Point, bytes]:
        key = part.ahead[0].key
        return self._circle.hash(key), key

    def _merged(self, copies: Sequence[tuple[_NodeCut, Record]]) -> Record | None:
        """Merge the copies of one record, as the stores themselves would.

        A store merges a copy only after both have applied the same reap log entries; see `chord/store/reap_log.py`. So
        a copy loses the values that the log of any other part names as dead. A store that was away for long may lack
        entries that another store has trimmed. Its copy then counts only beside a copy of a store that lacks none.
        """
        key = copies[0][1].key
        slice_ = self._parts[0].log.slice_of(key)
        states = [part.log.state(slice_) for part in self._parts]
        fresh: list[Record] = []
        stale: list[Record] = []
        for part, copy in copies:
            mine = part.log.state(slice_)
            if all(mine.reaches(state.trimmed) for state in states):
                fresh += self._without_dead(copy, [p for p in self._parts if p is not part], part)
            else:
                stale.append(copy)
        whole = reduce(versions.sync, fresh) if fresh else None
        for copy in stale:
            if whole is None:  # no store vouches for it: hidden from readers, as in the ring
                hidden = tuple(entry for entry in copy.clock if entry.versions)
                whole = Record(key, (), b"", copy.quarantine or hidden)
                continue
            for part in self._parts:
                part.storage.apply(Batch([whole]))
            for live in self._without_dead(copy, self._parts, None):
                whole = versions.sync(whole, live)
            for part in self._parts:
                part.storage.apply(Batch(removals=[key]))
        return whole if whole is not None and (whole.clock or whole.quarantine) else None

    @staticmethod
    def _without_dead(copy: Record, others: Iterable[_NodeCut], of: _NodeCut | None) -> list[Record]:
        """Return what the logs of other parts leave of a copy: one record, or none.

        `of` is the part of the copy, which has applied every entry that the others trimmed; None: it has not.
        """
        live: Record | None = copy
        for other in others:
            if live is not None and (of is None or other.log.seen_of(copy.key) != of.log.seen_of(copy.key)):
                live = other.log.restored(live, is_current=of is not None)
        return [] if live is None else [live]
