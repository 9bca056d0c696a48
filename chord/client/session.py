"""A client session without I/O: entry nodes, retries, backoff, error precedence.

An operation is a generator. It yields effects (`MakeCalls`, `Pause`, `ReadClock`) and receives their results. The
driver answers `MakeCalls` with one outcome for each call, and `Timed` answers `ReadClock`. If an effect would begin
after the operation's deadline, `Timed` throws `DeadlineExceeded` into the operation. The drivers are
`chord.client.blocking`, `chord.client.trio_driver` and `chord.client.asyncio_client`.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from chord.client.routing import OwnerRouting
from chord.config import split_address
from chord.errors import (
    NO_REPLY,
    ChordError,
    DeadlineExceeded,
    IndefiniteError,
    InvalidRequest,
    OtherRing,
    PeerUnreachable,
    RemoteFailure,
    UnknownVnode,
)
from chord.ids import Circle
from chord.wire.cuts import CutNumber
from chord.wire.messages import (
    FEATURE_MEMBERS,
    MEMBERS_MAX,
    WRITES,
    Contact,
    GetMembers,
    GetMembersReply,
    GetReply,
    GetStatus,
    MemberEntry,
    Reply,
    Request,
    Status,
    Written,
    as_retry,
    without_owner,
)

if TYPE_CHECKING:
    import random

TIMEOUT_S = 5.0  # limit of an operation in seconds, if the caller names none
ATTEMPT_S = 1.5  # limit of one attempt in seconds, if another entry node can be tried
MEMBERS_S = 0.5  # limit in seconds for a page of the membership list, which other requests do not need
ENTRIES_MAX = 16  # no entry node is learnt beyond this number; callers may name more
REMOTE_FAILURES_MAX = 3  # attempts: a bug of the peer does not go away by retrying
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.02, 0.5

T = TypeVar("T")


class ClientCall(NamedTuple):
    """A call of a client: a request to a vnode or to a node.

    Attributes:
        to: the vnode (a contact) or the address of the node.
        request: the request.
        within_s: the time limit in seconds, besides that of all calls of the effect; None: no further limit.
    """

    to: Contact | str
    request: Request
    within_s: float | None = None

    @property
    def address(self) -> str:
        """The address of the node to call."""
        return self.to if isinstance(self.to, str) else self.to.address


class MakeCalls(NamedTuple):
    """Effect: make calls at the same time. The result is a tuple with an outcome for each.

    Attributes:
        calls: the calls. Their outcomes have the same order.
        within_s: the time limit in seconds, besides the operation's deadline; None: no further limit.
        among: the number of attempts, this one included, that share the time until the operation's deadline equally.
    """

    calls: tuple[ClientCall, ...]
    within_s: float | None = None
    among: int = 1


class Pause(NamedTuple):
    """Effect: wait. The result is None.

    Attributes:
        seconds: how long to wait, in seconds.
    """

    seconds: float


class ReadClock(NamedTuple):
    """Effect: read the driver's clock. The result is the time in seconds, from an arbitrary start."""


ClientEffect: TypeAlias = MakeCalls | Pause | ReadClock

Learn: TypeAlias = Callable[[str, int, bytes | None, int], None]
"""A callback that gets the address of a node, and the circle width, ring id and features of its hello.

It may raise `OtherRing`.
"""

Outcome: TypeAlias = Reply | ChordError
"""The result of a call: a reply such as `Status`, or an error."""

ClientOperation: TypeAlias = Generator[ClientEffect, Any, T]


class Timed(Generic[T]):
    """An operation with a deadline, as a driver executes it.

    The driver carries out each effect that `next` returns, and passes the effect's result to the next call.

    Args:
        operation: the operation, as steps.
        now: the time, in seconds on the driver's clock.
        deadline: the time at which the operation must end, in seconds on the same clock.

    Attributes:
        result: the operation's result. It is set once `next` has returned None.
    """

    result: T

    def __init__(self, operation: ClientOperation[T], now: float, deadline: float) -> None:
        self._operation = operation
        self._began = now
        self._deadline = deadline

    def next(self, now: float, result: tuple[Outcome, ...] | None = None) -> MakeCalls | Pause | None:
        """Continue the operation up to its next effect.

        Args:
            now: the time, in seconds on the driver's clock.
            result: the result of the previous effect: outcomes after `MakeCalls`, None after `Pause` and at the start.

        Returns:
            The next effect; None if the operation has ended.

        Raises:
            ChordError: the operation failed.
        """
        try:
            effect = self._operation.send(result)
            while True:
                if isinstance(effect, ReadClock):
                    effect = self._operation.send(now)
                elif now + (effect.seconds if isinstance(effect, Pause) else 0.0) >= self._deadline:
                    late = DeadlineExceeded(f"not done within {self._deadline - self._began:g} s")
                    effect = self._operation.throw(late)
                else:
                    return effect
        except StopIteration as stop:
            self.result = stop.value
            return None

    def limit(self, ask: MakeCalls, now: float) -> float:
        """Return the time by which the calls of a `MakeCalls` must end, in seconds on the driver's clock.

        Args:
            ask: the effect.
            now: the time, in seconds on the same clock.
        """
        share = self._deadline if ask.among == 1 else now + (self._deadline - now) / ask.among
        return share if ask.within_s is None else min(share, now + ask.within_s)


def telling(before: ChordError | None, now: ChordError, *, is_write: bool = True) -> ChordError:
    """Return the error to report after a further failed attempt.

    Usually it is the latest error. If an attempt to write may have taken effect, no later error may claim that nothing
    happened. An error reply such as "one replica of two" has precedence over a later silence.

    Args:
        before: the error to report so far; None after the first attempt.
        now: the error of the latest attempt.
        is_write: whether the attempts were to write.
    """
    if not is_write and before is not None:
        return before if isinstance(now, NO_REPLY) and not isinstance(before, NO_REPLY) else now
    if not isinstance(before, IndefiniteError):
        return now
    if not isinstance(now, IndefiniteError):
        return before
    return before if isinstance(now, NO_REPLY) and not isinstance(before, NO_REPLY) else now


def of_peer(error: ChordError) -> ChordError:
    """Return an error of a peer, and raise an error that this process made about itself."""
    if isinstance(error, PeerUnreachable) and error.is_own:
        raise error
    return error


def out_of_files(address: str) -> PeerUnreachable:
    """Return the error for a node that this process cannot call, because it may open no more files."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    said = f"cannot call {address}: this process has run out of file descriptors; its limit is {limit} (ulimit -n)"
    return PeerUnreachable(said, is_own=True)


def error_of_all(failures: Mapping[str, Outcome]) -> ChordError:
    """Return the error to raise if none of several nodes gave a useful answer. `failures` is by address.

    The first error reply has precedence over silences. Several silences become one `PeerUnreachable` that names them
    all. If each of them is a `DeadlineExceeded`, the error is a `DeadlineExceeded`, too.
    """
    errors = [outcome for outcome in failures.values() if isinstance(outcome, ChordError)]
    spoken = [error for error in errors if not isinstance(error, NO_REPLY)]
    if spoken or len(errors) == 1:
        return (spoken or errors)[0]
    is_late = bool(errors) and all(isinstance(error, DeadlineExceeded) for error in errors)
    kind = DeadlineExceeded if is_late else PeerUnreachable
    return kind("; ".join(error.message for error in errors) or "no node answered")


class ClientSession:
    """The state that the operations of a client share: entry nodes, circle, and owner cache.

    Args:
        entries: the addresses of the entry nodes; at least one.
        rng, circle: see the attributes.
        arcs_max: the largest number of arcs with a remembered owner. Requests for keys in these arcs go directly to the
            owner. 0: no owner is remembered.
        members_max: the largest number of nodes in the membership list.
        member: the address of the node that owns the session; None: the session of a client. A node routes its requests
            itself, so it uses the owner cache only for quorum reads, and learns no other entry node.
        cuts: see the attribute; None: no cut is known yet.

    Attributes:
        entries: the addresses of the entry nodes: those that the caller named, then remembered owners.
        circle: the circle of the ring; None until it is known.
        rng: random numbers for pauses and operation ids.
        cuts: the number of the newest cut that the client, or the node, knows.
        owner_routing: the owner cache.

    Concurrency: synchronous; several operations may be under way at once.
    """

    def __init__(
        self,
        entries: Sequence[str],
        *,
        rng: random.Random,
        circle: Circle | None = None,
        arcs_max: int = 0,
        members_max: int = MEMBERS_MAX,
        member: str | None = None,
        cuts: CutNumber | None = None,
    ) -> None:
        if not entries:
            raise InvalidRequest("no address was given; expected at least one HOST:PORT")
        for entry in entries:
            split_address(entry)
        self.entries = tuple(dict.fromkeys(entries))
        self.circle = circle
        self.rng = rng
        self.member = member
        self.cuts = cuts or CutNumber()
        self._ring_id: bytes | None = None
        self._at = 0
        self.owner_routing = OwnerRouting(arcs_max, members_max)

    @property
    def entry(self) -> str:
        """The address of the entry node in use."""
        return self.entries[self._at]

    def learn(self, address: str, bits: int, ring_id: bytes | None, features: int = 0) -> None:
        """Take note of the ring to which a node belongs. Every later node must belong to it, too.

        Args:
            address: the node's address.
            bits: the width of its circle, `--bits`.
            ring_id: the id of its ring; None if the node has not joined yet.
            features: the features that its hello announces, as bits, such as a membership list.

        Raises:
            OtherRing: the ring differs from that of earlier nodes.
        """
        if self.circle is not None and self.circle.bits != bits:
            raise OtherRing(f"{address} belongs to another ring: it has {bits} bits, others {self.circle.bits}")
        if None not in (ring_id, self._ring_id) and ring_id != self._ring_id:
            raise OtherRing(f"{address} belongs to another ring than earlier nodes")
        self.circle = Circle(bits)
        self._ring_id = self._ring_id or ring_id
        if features & FEATURE_MEMBERS:
            self.owner_routing.members.is_offered = True

    def request(self, request: Request, to: Contact | str | None = None) -> ClientOperation[Reply]:
        """Make a request, and retry it until its outcome is final.

        Args:
            request: the request.
            to: the only vnode or node to ask. If it does not answer, the request is not retried. Default: the
                remembered owner of the key, then the entry nodes.

        Raises:
            ChordError: the error reply, if a retry cannot change it. At the deadline the last error, and an indefinite
                one if any attempt may have taken effect.
        """
        attempt = 0
        known: ChordError | None = None
        cached_owner = None if to or self.member else self.owner_routing.to(self.circle, request)
        if to is None and self.owner_routing.members.is_due:
            yield from self.read_members()
            cached_owner = self.owner_routing.to(self.circle, request)
        while True:
            entry = self.entry
            asked = to or cached_owner or entry
            sent = request if cached_owner is None else without_owner(request)
            try:
                within_s = None if to else self.attempt_s(cached_owner)
                (outcome,) = yield MakeCalls((ClientCall(asked, sent),), within_s)
            except DeadlineExceeded as error:
                raise (known or error) from None
            self.owner_routing.learn(self.circle, request, cached_owner, outcome)
            if cached_owner is not None and isinstance(outcome, (GetReply, Written)) and outcome.owner is None:
                return msgspec.structs.replace(outcome, owner=cached_owner)
            if isinstance(outcome, Reply):
                return outcome
            assert isinstance(outcome, ChordError)
            known = telling(known, outcome, is_write=isinstance(request, WRITES))
            if isinstance(outcome, IndefiniteError):
                request = as_retry(request)
            is_elsewhere = isinstance(outcome, (OtherRing, UnknownVnode))
            if cached_owner is not None and (is_elsewhere or self.is_worth_retrying(outcome, 0)):
                cached_owner = None  # ask the entry node at once: it may know the present owner
                continue
            if not self.is_worth_retrying(outcome, attempt) or (to is not None and isinstance(outcome, NO_REPLY)):
                # A definite error settles a read. A write may have happened in an earlier attempt.
                raise known if isinstance(request, WRITES) else outcome
            if isinstance(outcome, NO_REPLY):
                self.turn_from(entry)
            try:
                yield Pause(self.backoff_s(attempt, outcome))
            except DeadlineExceeded:
                raise known from None
            attempt += 1

    def enter(self) -> ClientOperation[None]:
        """Find an entry node that answers, trying each once, and use it from now on.

        Its hello says which circle the ring has.

        Raises:
            ChordError: none of the nodes answered; see `error_of_all`.
        """
        failures: dict[str, Outcome] = {}
        for left in range(len(self.entries), 0, -1):
            entry = self.entry
            (failures[entry],) = yield MakeCalls(
                (ClientCall(entry, GetStatus()),), None if left == 1 else ATTEMPT_S, among=left
            )
            if isinstance(failures[entry], Reply):
                return
            self.turn_from(entry)
        raise error_of_all(failures)

    def read_members(self) -> ClientOperation[None]:
        """Read the membership list of the entry node, unless it has not changed since the last time.

        After an error the present list stays, and a later operation tries again.
        """
        members, entry = self.owner_routing.members, self.entry
        members.begin()
        entries: list[MemberEntry] = []
        request = GetMembers(members.version)
        while True:
            try:
                (page,) = yield MakeCalls((ClientCall(entry, request),), MEMBERS_S, among=2)
            except DeadlineExceeded:
                return
            if not isinstance(page, GetMembersReply):
                members.fail()
                return
            if page.version == request.since:
                return
            entries += page.entries
            is_odd = not page.entries or len(entries) > MEMBERS_MAX
            if is_odd or page.after is None or page.after <= request.after:
                members.replace(entries, page.version)
                return
            request = GetMembers(after=page.after)

    def listed(self) -> ClientOperation[tuple[str, ...]]:
        """Return the addresses in the membership list of the entry node; none if no node keeps a list."""
        if self.owner_routing.members.is_offered:
            yield from self.read_members()
        return self.owner_routing.members.addresses

    def known_circle(self) -> ClientOperation[Circle]:
        """Return the circle of the ring. If no hello has shown it yet, ask a node for it."""
        if self.circle is None:
            node = yield from self.request(GetStatus())
            assert isinstance(node, Status)
            self.learn(node.address, node.bits, node.ring)
        assert self.circle is not None
        return self.circle

    def attempt_s(self, cached_owner: Contact | str | None = None) -> float | None:
        """Return the time limit of one attempt in seconds; None: only the operation's deadline counts.

        `cached_owner` is the remembered owner that the attempt asks; None: the attempt asks the entry node.
        """
        if cached_owner is not None or len(self.entries) > 1 or self._another() is not None:
            return ATTEMPT_S
        return None

    def turn_from(self, entry: str) -> None:
        """Use the next entry node in place of `entry`, unless another operation has already done so.

        A remembered owner becomes an entry node as well: the nodes that the caller named may all be down.
        """
        if entry == self.entry:
            learnt = self._another() if len(self.entries) < ENTRIES_MAX else None
            if learnt is not None:
                self.entries += (learnt,)
            self._at = (self._at + 1) % len(self.entries)

    def _another(self) -> str | None:
        """Return the address of a remembered owner that could become an entry node."""
        return None if self.member else self.owner_routing.another(self.entries)

    @staticmethod
    def is_worth_retrying(error: ChordError, attempt: int) -> bool:
        """Return whether to send the same request again, because its outcome may be another.

        Args:
            error: the error of the latest attempt.
            attempt: the number of that attempt, from 0.
        """
        if isinstance(error, RemoteFailure):
            return attempt + 1 < REMOTE_FAILURES_MAX
        return error.is_retryable or isinstance(error, IndefiniteError)

    def backoff_s(self, attempt: int, error: ChordError | None) -> float:
        """Return the time in seconds to wait before the next attempt.

        It doubles with each attempt, up to a limit, and varies at random.

        Args:
            attempt: the number of the latest attempt, from 0.
            error: its error; None if it ended without one. If the node did not answer, and an entry node was not tried
                yet, the result is 0.
        """
        if isinstance(error, NO_REPLY) and attempt + 1 < len(self.entries):
            return 0.0  # another entry node has not been tried yet
        least = BACKOFF_FIRST_S * 2.0 ** min(attempt, 10)
        if error is not None and error.after_ms is not None:
            least = max(least, error.after_ms / 1000)
        return float(min(least, BACKOFF_MAX_S) * self.rng.uniform(0.5, 1.5))
