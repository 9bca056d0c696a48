"""Early puts: a put without a context that reads and writes in one round.

Such a put replaces the values that a read quorum holds. If the read quorum is two, the coordinator and one other
replica are a read quorum. So the coordinator makes a version that covers its own copy, and stores nothing. It sends the
version to the other members. A member in sync stores the version only if the version covers the member's copy, too.
The first reply of a member in sync decides:

- *Stored*: the version covers a read quorum. The coordinator stores it, and sends it to the members that refused.
- *Differs*: the reply has the member's copy. The two copies are a read quorum. The coordinator makes a second version
  that replaces both copies and the first version. Only copies of the second version count for W.
- *No reply*: the outcome is unknown. The coordinator never mints under the same actor again, because some member may
  have stored the version. It does not replace the version either, because a client may have read it.

If every member refuses without a settled answer, the coordinator reads a quorum as any other put does, and makes the
second version from that.

After the first send no error is definite, because a member may have stored the version. While the put is undecided, all
other writes of the key wait before they make their versions. `chord/store/early.py` says how the store makes sure that
no dot is used twice.

Source: this project.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from chord.errors import Behind, ChordError, IndefiniteError, MalformedMessage
from chord.net.steps import Driver
from chord.store import versions
from chord.store.early import UndecidedPuts
from chord.wire.messages import Contact, Record, StoreCovering, StoreCoveringReply


class UntilDecided(NamedTuple):
    """Effect: wait until the early put of a key is decided."""

    undecided: UndecidedPuts
    key: bytes

    def begin(self, driver: Driver[Any], /) -> None:
        """Let the end of the early put resume the driver."""
        self.undecided.wait(self.key, driver.resume)


class ConditionalCopies:
    """One version that members store only if it covers their copies.

    Args:
        record: the record with the version.
        seen: digest of the reap-log entries that this node had applied when the version was made.

    Attributes:
        request: the request that sends the version.
        reply: the first settled reply; None while the version is undecided.
        refused: the members that replied before `is_over`, and have not stored the version.
        is_in_doubt: whether a member that has not replied may have stored the version.
        is_over: whether the coordinator has stored the version, so that every member must store it.
    """

    def __init__(self, record: Record, seen: bytes) -> None:
        self._key = record.key
        self.request = StoreCovering(record, seen)
        self.reply: StoreCoveringReply | None = None
        self.refused: dict[Contact, None] = {}
        self.is_in_doubt = False
        self.is_over = False

    def is_decided(self) -> bool:
        """Return whether a member has given a settled reply."""
        return self.reply is not None

    def take(self, contact: Contact, reply: StoreCoveringReply) -> bool:
        """Take the reply of a member, and return whether the member has stored the version.

        Raises:
            MalformedMessage: the reply has no sound record of the key.
        """
        if reply.is_stored:
            self.reply = self.reply or reply
            return True
        record = reply.record
        if record is not None and not (record.key == self._key and versions.is_sound(record)):
            self.is_in_doubt = True
            raise MalformedMessage(f"{contact.address} answered with the record of another key, or none at all")
        if reply.is_settled and record is not None:
            self.reply = self.reply or reply
        self.refused[contact] = None
        return False

    def failed(self, contact: Contact, error: ChordError) -> None:
        """Take the failure of a call, and raise it unless the member has only applied other log entries.

        Raises:
            ChordError: the given error.
        """
        if not isinstance(error, Behind):
            self.is_in_doubt = self.is_in_doubt or isinstance(error, IndefiniteError)
            raise error
        self.refused[contact] = None
