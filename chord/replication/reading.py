"""What the holders of a key have said so far, and the line of a trace that tells of one."""

from __future__ import annotations

from chord.replication.coalesce import Asker
from chord.ring.preference_list import Place
from chord.store import versions
from chord.store.merkle import digest_of
from chord.wire.messages import Contact, Record, ReplicaLine, SliceLog

VERSION_BYTES = 4  # of a clock's digest, shown in traces


class Reading:
    """One read of a key. `record` is the merge of all copies, `copies` has the reader's own first.

    Args:
        over: asks the holders.
        seen: what of the slice's log the reader has seen, durably. Copies that were read after others do not count.

    Attributes:
        damaged: the holders with a damaged copy; they count as unsettled, too.
        behind: the holders that have seen other entries of the reap log; their answers do not count.
        logs: the logs of holders that the reader applies in memory only, because its disk takes no writes.
    """

    def __init__(self, key: bytes, over: Asker, seen: bytes = b"") -> None:
        self.key = key
        self.over = over
        self.seen = seen
        self.behind: dict[Contact, None] = {}
        self.logs: list[SliceLog] = []
        self.record: Record | None = None
        self.copies: dict[Contact, Record | None] = {}
        self.unsettled: dict[Contact, None] = {}
        self.damaged: dict[Contact, None] = {}
        self.rtt_ms: dict[Contact, float] = {}
        self._digests: dict[int, tuple[Record, bytes]] = {}  # by identity: most copies are one and the same

    def takes(self, record: Record) -> bool:
        """Whether a record is one, and of the key that is read."""
        return record.key == self.key and versions.is_sound(record)

    def add(self, contact: Contact, record: Record | None, is_settled: bool, *, is_damaged: bool = False) -> None:
        """One holder's answer."""
        self.copies[contact] = record
        self.behind.pop(contact, None)
        if is_damaged:
            self.damaged[contact] = None
        if not is_settled:
            self.unsettled[contact] = None
        if record is not None:
            self.record = record if self.record is None else versions.sync(self.record, record)

    def read_ahead(self, log: SliceLog, record: Record | None, seen: bytes) -> list[Contact]:
        """Begin again with the reader's copy as it would be after one more holder's log.

        Returns:
            The holders whose earlier answers no longer count.
        """
        me, *dropped = self.copies
        self.copies, self.record = {me: record}, record
        self.unsettled = {contact: None for contact in self.unsettled if contact == me}
        self.behind.update(dict.fromkeys(dropped))
        self.seen = seen
        self.logs.append(log)
        return dropped

    @property
    def is_ahead(self) -> bool:
        """Whether `seen` includes logs that the reader's store has not applied."""
        return bool(self.logs)

    @property
    def own(self) -> Record | None:
        """The reader's own copy."""
        return next(iter(self.copies.values()), None)

    def stale(self, contacts: list[Contact]) -> list[Contact]:
        """Return which of those that answered hold something else than the merge."""
        best = self.digest(self.record)
        return [contact for contact in contacts if self.digest(self.copies.get(contact, self.record)) != best]

    def line(self, place: Place, is_member: bool) -> ReplicaLine:
        """Return what one holder had to do with it that has answered, or is silent."""
        contact = place.contact
        if contact not in self.copies:
            return ReplicaLine(contact, "silent", False)
        mine = self.digest(self.copies[contact])
        outcome = "ok" if mine == self.digest(self.record) and mine else "stale" if mine else "absent"
        return ReplicaLine(contact, outcome, is_member, self.rtt_ms.get(contact), mine[:VERSION_BYTES])

    def digest(self, record: Record | None) -> bytes:
        """Return the digest of a copy, or nothing where there is none."""
        if record is None:
            return b""
        if id(record) not in self._digests:
            self._digests[id(record)] = record, digest_of(record)
        return self._digests[id(record)][1]
