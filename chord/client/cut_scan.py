"""The scan of a cut: every node's part of a consistent backup, merged key by key."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce

from chord.client.results import BatchResult, Page
from chord.client.session import ATTEMPT_S, ClientCall, ClientOperation, ClientSession, MakeCalls, Outcome, Pause
from chord.config import Limits
from chord.errors import NO_REPLY, ChordError, CutMissing, DeadlineExceeded, RecordDamaged, RecordTooLarge
from chord.ids import Circle, Point
from chord.store import versions
from chord.store.reap_log import ReapLog
from chord.store.storage import Batch, MemoryStorage
from chord.wire.cuts import next_number
from chord.wire.messages import GetCutNotes, GetCutNotesReply, Record, ScanCut, ScanCutReply, Status

ATTEMPTS_MAX = 3
CUT_KEYS_MAX = 256  # keys of records with too many values that a scan remembers; the others are only counted
CUT_KEYS_NAMED = 5


def begin_cut(
    session: ClientSession, members: Callable[..., ClientOperation[BatchResult[str, Status]]]
) -> ClientOperation[CutScan]:
    """Let every node cut, and return the scan of the cuts.

    The members that answer before the new number is chosen, and those that are found afterwards, must all hold the cut
    at the end.

    Args:
        session: makes the requests.
        members: asks every node that can be found for its status; see `Operations.members`.
    """
    circle = yield from session.known_circle()
    before = yield from members()
    number = next_number(session.cuts.number, session.rng)
    session.cuts.see(number)
    after = yield from members(also=before.ok)
    missing = {address: error.message for address, error in after.errors.items()}
    missing |= {address: "it is no longer a member" for address in before.ok if address not in after}
    return CutScan(session, circle, number, after.ok, missing)


class _NodeCut:
    """The cut of one node, as far as it is read.

    Attributes:
        log: the reap logs of the cut. Its storage has the notes, and at most one record at a time.
        ahead: the records that are read and not merged yet.
        after: the key after which the next page begins; None: the first page was not read.
        is_over: whether all records are read.
        damaged: number of damaged records in the cut so far.
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

    def to_ask(self, number: int) -> GetCutNotes | ScanCut | None:
        """Return the next request to the node; None if no more is needed now."""
        if self.is_over or self.ahead:
            return None
        return ScanCut(number, self.after) if self.has_notes else GetCutNotes(number, self.after_note)

    def take(self, reply: GetCutNotesReply | ScanCutReply) -> None:
        """Take a page."""
        self.attempts = 0
        if isinstance(reply, GetCutNotesReply):
            self.storage.apply(Batch(notes={note.name: note.value for note in reply.notes}))
            self.after_note, self.has_notes = reply.more_after, reply.more_after is None
            return
        self.ahead.extend(reply.records)
        self.after, self.is_over = reply.more_after, reply.more_after is None
        self.damaged = max(self.damaged, reply.damaged)


class CutScan:
    """The position in a scan of the cuts of all nodes.

    Args:
        session: makes the requests.
        circle: of the ring.
        number: the number of the cut.
        addresses: the nodes that answered after the number was chosen.
        missing: the nodes that did not cut, each with the reason.
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
        """Return the next merged records, and this object, or None at the end.

        Raises:
            CutMissing: the scan is finished, and some nodes did not hold the cut until its end.
            RecordDamaged: the scan is finished, and damaged records were left out.
            RecordTooLarge: the scan is finished, and only some values of some records were shown.
        """
        if self._is_over:
            raise self._lacking()
        asked = [(part, request) for part in self._parts if (request := part.to_ask(self._number)) is not None]
        try:
            if asked:
                calls = tuple(ClientCall(part.address, request) for part, request in asked)
                outcomes = yield MakeCalls(calls, ATTEMPT_S)
                failures = [self._take(part, outcome) for (part, _), outcome in zip(asked, outcomes, strict=True)]
                if pauses := [failure for failure in failures if failure is not None]:
                    yield Pause(self._session.backoff_s(0, pauses[0]))
        except DeadlineExceeded as error:
            for part, request in asked:
                if part.to_ask(self._number) is request:
                    self._lose(part, error)
        page = Page(tuple(self._merged_ahead()), 0)
        is_complete = not (self._missing or self._cut or self._damaged)
        return page, None if self._is_over and is_complete else self

    @property
    def _is_over(self) -> bool:
        return all(part.is_over and not part.ahead for part in self._parts)

    @property
    def _damaged(self) -> int:
        return sum(part.damaged for part in self._parts)

    def _take(self, part: _NodeCut, outcome: Outcome) -> ChordError | None:
        """Take the outcome of a request; return the error if the next page repeats the request."""
        if isinstance(outcome, (GetCutNotesReply, ScanCutReply)):
            part.take(outcome)
            if isinstance(outcome, ScanCutReply):
                self._cut.update(dict.fromkeys(outcome.cut))
            return None
        assert isinstance(outcome, ChordError)
        part.attempts += 1
        if part.attempts < ATTEMPTS_MAX and (outcome.is_retryable or isinstance(outcome, NO_REPLY)):
            return outcome
        self._lose(part, outcome)
        return None

    def _lose(self, part: _NodeCut, error: ChordError) -> None:
        part.is_over = True
        self._missing[part.address] = error.message

    def _lacking(self) -> ChordError:
        """Return the error for an incomplete scan. Further reasons are in its `also`."""
        errors: list[ChordError] = []
        if self._missing:
            names = "; ".join(f"{address} ({why})" for address, why in sorted(self._missing.items()))
            missing = CutMissing(f"the backup is incomplete: {len(self._missing)} of the members have no cut: {names}")
            missing.addresses = tuple(sorted(self._missing))
            errors.append(missing)
        if self._damaged:
            damaged = RecordDamaged(f"the backup is incomplete: {self._damaged} copies of records are damaged")
            damaged.records = self._damaged
            errors.append(damaged)
        if self._cut:
            named = [repr(key.decode(errors="backslashreplace")) for key in list(self._cut)[:CUT_KEYS_NAMED]]
            large = RecordTooLarge(
                f"the backup is incomplete: {len(self._cut)} keys have more values than one reply can hold, "
                f"such as {', '.join(named)}"
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
