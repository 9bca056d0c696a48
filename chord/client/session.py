"""How a request is made, without I/O: which entry node is asked, how often, and what its answers come to.

An operation is a generator: it yields effects (`Ask`, `Pause`) and is sent what came of them. A driver answers `Ask`
with one outcome per call, and throws `DeadlineExceeded` in when an effect would begin after the operation's deadline.
`chord.client.blocking` and `chord.client.api` are the drivers.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from chord.client.routing import ShortCuts
from chord.config import split_address
from chord.errors import (
    SILENCE,
    ChordError,
    DeadlineExceeded,
    IndefiniteError,
    InvalidRequest,
    OtherRing,
    PeerUnreachable,
    RemoteFailure,
)
from chord.ids import Circle
from chord.wire.messages import WRITES, Contact, Describe, Description, Reply, Request, as_retry

if TYPE_CHECKING:
    import random

ATTEMPT_S = 1.5  # with another entry node to turn to, one attempt gets so long
ENTRIES_MAX = 16  # more are not learnt; any number may be named
REMOTE_FAILURES_MAX = 3  # a bug on the other side does not go away by asking for ever
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.02, 0.5

T = TypeVar("T")


class Call(NamedTuple):
    """One request to a vnode (a contact) or to the node at an address."""

    to: Contact | str
    request: Request

    @property
    def address(self) -> str:
        """The node that is called."""
        return self.to if isinstance(self.to, str) else self.to.address


class Ask(NamedTuple):
    """Effect: make these calls at the same time; the answer is one outcome for each, in order.

    `within_s` limits the calls besides the operation's deadline.
    """

    calls: tuple[Call, ...]
    within_s: float | None = None


class Pause(NamedTuple):
    """Effect: wait so long; the answer is None."""

    seconds: float


Effect: TypeAlias = Ask | Pause
Outcome: TypeAlias = Reply | ChordError
Operation: TypeAlias = Generator[Effect, Any, T]


def telling(before: ChordError | None, now: ChordError, *, is_write: bool = True) -> ChordError:
    """Return which error of two attempts to tell the caller.

    Once an attempt to write may have had its effect, no later one may say that nothing happened. And an answer, like
    "one replica of two", says more than silence after it.
    """
    if not is_write and before is not None:
        return before if isinstance(now, SILENCE) and not isinstance(before, SILENCE) else now
    if not isinstance(before, IndefiniteError):
        return now
    if not isinstance(now, IndefiniteError):
        return before
    return before if isinstance(now, SILENCE) and not isinstance(before, SILENCE) else now


def nobody(failures: Mapping[str, Outcome]) -> ChordError:
    """Return what to raise when none of several nodes could be talked to: what one said, else all silences."""
    errors = [outcome for outcome in failures.values() if isinstance(outcome, ChordError)]
    spoken = [error for error in errors if not isinstance(error, SILENCE)]
    if spoken or len(errors) == 1:
        return (spoken or errors)[0]
    return PeerUnreachable("; ".join(error.message for error in errors) or "no node answered")


class Entries:
    """What operations share: the entry nodes, the one in use, the circle once it is known, and who owns which arc.

    Args:
        arcs_max: of so many arcs it is remembered who answered for them; requests for their keys go there straight.

    Attributes:
        entries: addresses of nodes to ask: as named, and behind them who took the place of a silent one.
        circle: of the ring; None until it is known.
        rng: draws pauses and operation ids.
        short_cuts: who answers for which keys.

    Concurrency: synchronous; several operations may be under way at once.
    """

    def __init__(self, entries: Sequence[str], *, rng: random.Random, arcs_max: int = 0) -> None:
        if not entries:
            raise InvalidRequest("name at least one node of the ring, HOST:PORT")
        for entry in entries:
            split_address(entry)
        self.entries = tuple(dict.fromkeys(entries))
        self.circle: Circle | None = None
        self.rng = rng
        self._ring_id: bytes | None = None
        self._at = 0
        self.short_cuts = ShortCuts(arcs_max)

    @property
    def entry(self) -> str:
        """The entry node in use."""
        return self.entries[self._at]

    def learn(self, address: str, bits: int, ring_id: bytes | None) -> None:
        """Take note of what a node says of its ring; the ring id is None where it has not joined yet.

        Raises:
            OtherRing: it is not the ring already known.
        """
        if self.circle is not None and self.circle.bits != bits:
            raise OtherRing(f"{address} has {bits} bits, the nodes met before {self.circle.bits}: not one ring")
        if None not in (ring_id, self._ring_id) and ring_id != self._ring_id:
            raise OtherRing(f"{address} belongs to another ring than the nodes met before")
        self.circle = Circle(bits)
        self._ring_id = self._ring_id or ring_id

    def request(self, request: Request, to: Contact | str | None = None) -> Operation[Reply]:
        """Make a request until it is answered for good: by one place, or by whichever entry node answers.

        A place that was named is not asked again when it is silent: that it does not answer is the answer.

        Raises:
            ChordError: the answer, where it is an error that asking again does not change; else, at the deadline,
                the last error: an indefinite one if any attempt may have had its effect.
        """
        attempt = 0
        known: ChordError | None = None
        short_cut = None if to else self.short_cuts.to(self.circle, request)
        while True:
            entry = self.entry
            asked = to or short_cut or entry
            try:
                (outcome,) = yield Ask((Call(asked, request),), None if to else self.attempt_s(short_cut))
            except DeadlineExceeded as error:
                raise (known or error) from None
            self.short_cuts.learn(self.circle, request, short_cut, outcome)
            if isinstance(outcome, Reply):
                return outcome
            assert isinstance(outcome, ChordError)
            known = telling(known, outcome, is_write=isinstance(request, WRITES))
            if isinstance(outcome, IndefiniteError):
                request = as_retry(request)
            if short_cut is not None and (self.is_worth_retrying(outcome, 0) or isinstance(outcome, OtherRing)):
                short_cut = None  # the entry node may know better, at once
                continue
            if not self.is_worth_retrying(outcome, attempt) or (to is not None and isinstance(outcome, SILENCE)):
                # To a read, a definite answer is the answer. A write may have happened in an earlier attempt.
                raise known if isinstance(request, WRITES) else outcome
            if isinstance(outcome, SILENCE):
                self.turn_from(entry)
            try:
                yield Pause(self.backoff_s(attempt, outcome))
            except DeadlineExceeded:
                raise known from None
            attempt += 1

    def enter(self) -> Operation[None]:
        """Find an entry node that answers, each asked once, and learn the circle from it."""
        failures: dict[str, Outcome] = {}
        for _ in self.entries:
            entry = self.entry
            (failures[entry],) = yield Ask((Call(entry, Describe()),), ATTEMPT_S)
            outcome = failures[entry]
            if isinstance(outcome, Description):
                self.learn(entry, outcome.bits, outcome.ring)
                return
            self.turn_from(entry)
        raise nobody(failures)

    def known_circle(self) -> Operation[Circle]:
        """Return the ring's circle, asking for it where no connection has told it yet."""
        if self.circle is None:
            node = yield from self.request(Describe())
            assert isinstance(node, Description)
            self.learn(node.address, node.bits, node.ring)
        assert self.circle is not None
        return self.circle

    def attempt_s(self, short_cut: str | None = None) -> float | None:
        """Return how long one attempt may take, None: as long as the operation."""
        if short_cut is not None or len(self.entries) > 1 or self.short_cuts.another(self.entries) is not None:
            return ATTEMPT_S
        return None

    def turn_from(self, entry: str) -> None:
        """Use another entry node from now on, unless another operation has turned away already.

        Who has answered for a key is good for an entry, too, when one that was named is silent.
        """
        if entry == self.entry:
            learnt = self.short_cuts.another(self.entries) if len(self.entries) < ENTRIES_MAX else None
            if learnt is not None:
                self.entries += (learnt,)
            self._at = (self._at + 1) % len(self.entries)

    @staticmethod
    def is_worth_retrying(error: ChordError, attempt: int) -> bool:
        """Whether the same request may be answered otherwise the next time."""
        if isinstance(error, RemoteFailure):
            return attempt + 1 < REMOTE_FAILURES_MAX
        return error.is_retryable or isinstance(error, IndefiniteError)

    def backoff_s(self, attempt: int, error: ChordError | None) -> float:
        """Return how long to wait before the next attempt."""
        if isinstance(error, SILENCE) and attempt + 1 < len(self.entries):
            return 0.0  # another entry node has not been tried yet
        least = BACKOFF_FIRST_S * 2.0 ** min(attempt, 10)
        if error is not None and error.after_ms is not None:
            least = max(least, error.after_ms / 1000)
        return float(min(least, BACKOFF_MAX_S) * self.rng.uniform(0.5, 1.5))
