"""Errors of the package: their wire codes, and whether the operation took effect.

A `DefiniteError` says that the operation had no effect and never will. An `IndefiniteError` says that it may have had
one. Only `PeerUnreachable`, `PeerLost` and `DeadlineExceeded` are evidence that a peer is dead. An error *reply* proves
the peer alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from chord.ids import Contact


class ChordError(Exception):
    """Base of every error that this package raises on purpose.

    The first line of a class's docstring is its default message.

    Attributes:
        code: number of the class on the wire; 0 if the class is never sent.
        word: name of the class in outputs and events, such as "not_found".
        is_retryable: whether a repetition of the same request may succeed.
        peer: a vnode that the error names (a better owner, a leaver's successor, a vnode of a down node), or None.
        after_ms: how long to wait before a retry, in ms; None if unknown. For `OwnerDown`, how long `peer` has been
            down.
        also: further reasons why the same scan is incomplete; () for all other operations.
    """

    code: ClassVar[int] = 0
    word: ClassVar[str] = "error"
    is_retryable: ClassVar[bool] = False
    also: tuple[ChordError, ...] = ()

    def __init__(self, message: str = "", *, peer: Contact | None = None, after_ms: int | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").split("\n")[0])
        self.peer = peer
        self.after_ms = after_ms

    @property
    def message(self) -> str:
        """The text of the error for people: the `message` that was given, or the default message of the class."""
        return str(self.args[0])


class DefiniteError(ChordError):
    """The operation had no effect, and never will."""


class IndefiniteError(ChordError):
    """The operation may have had an effect, or may still have one."""


# -- definite ---------------------------------------------------------------------------------


class MalformedMessage(DefiniteError):
    """The bytes are not a message of this protocol."""

    code, word = 1, "malformed"


class UnknownRequest(DefiniteError):
    """The peer does not know this request."""

    code, word = 2, "unknown_request"


class UnknownVnode(DefiniteError):
    """No vnode with this id lives at this address (any more)."""

    code, word = 3, "unknown_vnode"


class NotReady(DefiniteError):
    """The node has not finished joining the ring yet."""

    code, word, is_retryable = 4, "not_ready", True


class Busy(DefiniteError):
    """The node is in the middle of a step; ask again after `after_ms`."""

    code, word, is_retryable = 5, "busy", True


class Overloaded(DefiniteError):
    """A limit on work in flight is reached; ask again later."""

    code, word, is_retryable = 6, "overloaded", True


class NotOwner(DefiniteError):
    """This vnode does not answer for that key; `peer`, if set, is a better one.

    A better vnode owns the key, or is closer to its owner.
    """

    code, word, is_retryable = 7, "not_owner", True


class Leaving(DefiniteError):
    """The node is leaving the ring and accepts nothing new; `peer` is its successor."""

    code, word, is_retryable = 8, "leaving", True


class OwnerDown(DefiniteError):
    """Down nodes may hold more than the others; `peer` has been down for `after_ms`.

    A read raises this error instead of `NotFound`, because a down node may hold the only value. A scan raises it after
    the last record that it can read. If several nodes are down, `peer` is one of them. `after_ms` is None if unknown.
    """

    code, word = 9, "owner_down"


class NotFound(DefiniteError):
    """No value is stored under that key.

    Attributes:
        quarantined: how many values of the key are in quarantine; see `get_quarantine`.
    """

    code, word = 10, "not_found"
    quarantined: int = 0


class VersionConflict(DefiniteError):
    """Too many concurrent versions; put with a context that covers some of them.

    If a put raised it, nothing was written. The property `value` of a read's result, `Found`, raises it if the read
    found several values.
    """

    code, word = 11, "version_conflict"


class InvalidRequest(DefiniteError):
    """An argument is outside its bounds (an empty key, a value over the limit, …)."""

    code, word = 12, "invalid"


class UseBulk(DefiniteError):
    """The reply is too large for the control stream; ask on the bulk stream.

    `chord.rpc` handles this error itself: it repeats the request on the bulk stream.
    """

    code, word = 13, "use_bulk"


class OtherRing(DefiniteError):
    """The peer's ring id, cluster, bits, successors, replicas or version differ.

    Nodes of one ring have the same values. A client needs only a version of the protocol that the node also knows, and
    nodes with equal bits.
    """

    code, word = 14, "other_ring"


class DuplicateId(DefiniteError):
    """Another node already stands at this point of the circle."""

    code, word = 15, "duplicate_id"


class LookupFailed(DefiniteError):
    """The lookup ran out of hops or of peers to ask."""

    code, word, is_retryable = 16, "lookup_failed", True


class PeerUnreachable(DefiniteError):
    """The peer could not be reached; nothing was sent.

    Attributes:
        is_refused: the machine answered, but no process listens at the port. This indicates death sooner than a timeout
            does.
        is_unknown: no host has that name.
        is_late: the caller's deadline passed before the request was sent.
        is_taken: a program at the address took the connection, and did not answer as a node does.
        is_own: the process made the error about itself. The disk of a node hangs, and its reply to the caller is this
            error; see `retold`. Or a client has run out of file descriptors.
        is_answer: the unreachable node itself sent this error. Its disk hangs, or it refused the stream for lack of a
            resource.
        is_ended: the calling node has ended; nothing is known of the peer.
    """

    code, word, is_retryable = 17, "unreachable", True

    def __init__(
        self,
        message: str = "",
        *,
        is_refused: bool = False,
        is_unknown: bool = False,
        is_late: bool = False,
        is_taken: bool = False,
        is_own: bool = False,
        is_answer: bool = False,
        is_ended: bool = False,
        peer: Contact | None = None,
        after_ms: int | None = None,
    ) -> None:
        super().__init__(message, peer=peer, after_ms=after_ms)
        self.is_refused = is_refused
        self.is_unknown = is_unknown
        self.is_late = is_late
        self.is_taken = is_taken
        self.is_own = is_own
        self.is_answer = is_answer
        self.is_ended = is_ended


class ConfigError(DefiniteError):
    """The configuration contradicts itself or the ring; the node does not start."""

    code, word = 18, "config"


class WritesRefused(DefiniteError):
    """The node's disk is full or has failed: it takes no writes; reads go on."""

    code, word = 19, "writes_refused"


class TooFewReplicas(DefiniteError):
    """Too few nodes can take the write or answer the read; nothing was written."""

    code, word, is_retryable = 20, "too_few_replicas", True


class RecordDamaged(DefiniteError):
    """Every copy of a record is damaged, or a scan lacks records for that reason.

    Attributes:
        records: the number of damaged records that a scan left out; 1 for all other operations.
    """

    code, word = 21, "record_damaged"
    records: int = 1


class Behind(DefiniteError):
    """The stores have applied different reap log entries; one must catch up first.

    They are the stores of the sender and the receiver of a record. A reap log lists the deleted records that a store
    has removed for good; see `chord/store/reap_log.py`.
    """

    code, word, is_retryable = 22, "behind", True


class RecordTooLarge(DefiniteError):
    """A scan shows only some values of a record: together they exceed one reply.

    Attributes:
        records: how many such records the scan met.
        keys: their keys, the first 256.
    """

    code, word = 23, "record_too_large"
    records: int = 1
    keys: tuple[bytes, ...] = ()


class ClocksDiffer(DefiniteError):
    """The coordinator's and a neighbour's clocks differ too much for a time to live.

    The limit is `chord.config.SKEW_REFUSED_MS`, one minute. Nothing was written.
    """

    code, word = 24, "clocks_differ"


class CutMissing(DefiniteError):
    """A node does not hold the cut that a consistent backup reads.

    The node never made this cut, it has restarted, or a newer backup has replaced the cut. Or it dropped the cut,
    because no page of it was read for `cut_lease_s`. An export raises this error after the last record that it can
    read. The error then names all such nodes.

    Attributes:
        addresses: the nodes without the cut, if an export raised the error.
    """

    code, word = 25, "cut_missing"
    addresses: tuple[str, ...] = ()


# -- indefinite -------------------------------------------------------------------------------


class DeadlineExceeded(IndefiniteError):
    """No answer within the deadline."""

    code, word = 32, "timeout"


class PeerLost(IndefiniteError):
    """The connection broke after the request was sent."""

    code, word = 33, "peer_lost"


class RemoteFailure(IndefiniteError):
    """The peer failed while handling the request."""

    code, word = 34, "remote_failure"


class QuorumFailed(IndefiniteError):
    """Too few replicas acknowledged; some may have stored the write."""

    code, word = 35, "quorum_failed"


class unwrapped:
    """Context manager that replaces an exception group of one error by that error.

    Trio wraps the exceptions of a nursery in a group, even a single one. A group of several errors stays a group.
    """

    __slots__ = ()

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, group: BaseException | None, trace: object) -> None:
        if isinstance(group, BaseExceptionGroup):
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
                error = error.exceptions[0]
            raise error from error.__cause__


NO_REPLY = (PeerUnreachable, PeerLost, DeadlineExceeded)
"""The errors that are evidence of a peer's death.

Any other error proves the peer alive.
"""


def retold(error: ChordError) -> ChordError:
    """Return the error that this node sends to a caller if the handler of the request raised `error`.

    A failed call to a third node is no evidence against this node. So `PeerUnreachable` becomes `LookupFailed`, and
    `PeerLost` and `DeadlineExceeded` become `RemoteFailure`. A `PeerUnreachable` with `is_own` stays one, because it is
    about this node. All other errors are returned unchanged.
    """
    if isinstance(error, PeerUnreachable):
        return PeerUnreachable(error.message) if error.is_own else LookupFailed(error.message)
    if isinstance(error, (PeerLost, DeadlineExceeded)):
        return RemoteFailure(error.message)
    return error


def _subclasses(base: type[ChordError]) -> list[type[ChordError]]:
    return [c for sub in base.__subclasses__() for c in (sub, *_subclasses(sub))]


BY_CODE: dict[int, type[ChordError]] = {c.code: c for c in _subclasses(ChordError) if c.code}


def from_wire(code: int, message: str, peer: Contact | None, after_ms: int | None) -> ChordError:
    """Return the error that a peer replied with; an unknown code gives a `RemoteFailure`.

    Args:
        code: the number of the class.
        message: the text for people.
        peer, after_ms: see `ChordError`.
    """
    if code == PeerUnreachable.code:  # a node answers this only about itself; see `retold`
        return PeerUnreachable(message, is_answer=True, peer=peer, after_ms=after_ms)
    return BY_CODE.get(code, RemoteFailure)(message, peer=peer, after_ms=after_ms)
