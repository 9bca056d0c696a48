"""A blocking client on plain sockets: no Trio, no threads, quick to start.

    with chord.connect("127.0.0.1:9000") as ring:
        ring.put("user:42", b"Ada")
        ring.get("user:42").value

Drives the operations of `chord.client.operations` over `chord.client.sockets`. A `Ring` belongs to one thread.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import TypeVar

from chord.client.batch import IN_FLIGHT, require_in_flight
from chord.client.bulk import many_pairs, many_records
from chord.client.operations import Core
from chord.client.pool import Pool
from chord.client.results import Decided, Found, Pair, Quarantined, Resolver, Stored, to_keys, to_value
from chord.client.routing import CLIENT_ARCS_MAX
from chord.client.session import Ask, Operation, Outcome, Pause, nobody
from chord.config import Limits
from chord.errors import ChordError, DeadlineExceeded, InvalidRequest, PeerUnreachable
from chord.ids import Circle
from chord.wire.messages import Contact, Description, Mode, Record, Route, Trace

TIMEOUT_S = 5.0
HELLO_S = 0.25
"""A node says hello within this time. A shorter deadline that passes says nothing about the node."""

T = TypeVar("T")


def connect(*addresses: str, timeout_s: float = TIMEOUT_S, limits: Limits | None = None) -> Ring:
    """Connect to a ring through the first of these nodes that answers.

    Args:
        addresses: HOST:PORT of one or more nodes. The others stand in when the one in use falls silent.
        timeout_s: every operation ends within so many seconds, with a result or an error, and so does connecting.
        limits: sizes, where the ring was given others than the default.

    Returns:
        The ring, as a context manager that hangs up at the end.

    Raises:
        ConfigError, InvalidRequest: an address is not HOST:PORT, or there is none.
        PeerUnreachable: none of the nodes answers.
        OtherRing: a node speaks another version of the protocol.
    """
    ring = Ring(addresses, timeout_s=timeout_s, limits=limits or Limits())
    ring.open()
    return ring


class Ring:
    """A ring of nodes, seen from outside. Made by `connect`.

    Attributes:
        timeout_s: every operation ends within so many seconds; may be changed between two of them.

    Deadlines: `timeout_s` is the time of each operation; of each batch, where it is one on many keys; of each page of
    `scan` and `records`. Then the error is what the ring said last, if anything, else `DeadlineExceeded`.

    Errors: besides what they document, operations raise `PeerUnreachable` (no node could be reached),
    `DeadlineExceeded` or `PeerLost` (it may have happened), `OwnerDown` (the copies are on nodes that are down),
    `InvalidRequest`, or `ConfigError` for an address that is none. What may be asked again is asked again until the
    deadline; a put keeps its operation id, so that it is done once. In operations on many keys each key has an outcome
    of its own, and errors of the ring are among these; they are not raised.

    Closed, by `close` or at the end of its `with` block, it refuses every operation (`InvalidRequest`).

    Concurrency: belongs to one thread.
    """

    def __init__(self, addresses: Sequence[str], *, timeout_s: float, limits: Limits) -> None:
        self.timeout_s = timeout_s
        self._core = Core(addresses, rng=random.SystemRandom(), arcs_max=CLIENT_ARCS_MAX)
        self._limits = limits
        self._pool = Pool(limits, self._core.learn)
        self._is_closed = False

    def __enter__(self) -> Ring:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def open(self) -> None:
        """Connect to the first entry node that answers, and turn to it. Done by `connect`."""
        deadline = time.monotonic() + self.timeout_s
        entries = self._core.entries
        failures: dict[str, Outcome] = {}
        for i, entry in enumerate(entries):
            share = (deadline - time.monotonic()) / (len(entries) - i)
            failure = self._pool.open([(entry, "control")], time.monotonic() + share).get((entry, "control"))
            if failure is None:
                return
            failures[entry] = self._judged(failure, entry)
            self._core.turn_from(entry)
        if all(isinstance(failure, DeadlineExceeded) for failure in failures.values()):
            raise DeadlineExceeded(f"no answer from {', '.join(entries)} within {self.timeout_s:g} s")
        raise nobody(failures)

    def close(self) -> None:
        """Hang up. Twice is once."""
        self._is_closed = True
        self._pool.close()

    @property
    def entry(self) -> str:
        """The node operations go through at the moment."""
        return self._core.entry

    @property
    def circle(self) -> Circle:
        """The ring's identifier circle."""
        return self._run(self._core.known_circle())

    # -- records ----------------------------------------------------------------------------------

    def get(self, key: str | bytes, *, r: int | None = None, resolve: Resolver | None = None) -> Found:
        """Read a key.

        Args:
            key: 1 to 1024 bytes; text is encoded as UTF-8.
            r: so many replicas must answer, 1 to N; default: a majority.
            resolve: makes one value of concurrent ones, such as `chord.last_writer_wins` or a function of your own.
                Without one, `Found.siblings` holds them all. What it raises, `get` raises.

        Raises:
            NotFound: nothing is stored there, for sure.
            QuorumFailed, TooFewReplicas: too few replicas answered in time.
        """
        return self._run(self._core.get(key, r, resolve))

    def put(
        self,
        key: str | bytes,
        value: str | bytes,
        *,
        context: bytes | None = None,
        blind: bool = False,
        w: int | None = None,
        strict: bool = False,
        ttl_s: float | None = None,
    ) -> Stored:
        """Write a key.

        Args:
            key: 1 to 1024 bytes; text is encoded as UTF-8.
            value: up to 1 MiB; text is encoded as UTF-8.
            context: from an earlier `get` or `put`: replace exactly what was seen then, keep what was written since
                beside it. Without one, replace what a read quorum holds at that moment.
            blind: replace nothing; what is there stays beside the new value. Takes no context.
            w: durable on so many nodes before it is acknowledged, 1 to N; default: a majority of the replicas.
            strict: only replicas count, not those who keep it for one that does not answer.
            ttl_s: the value lives for so many seconds, at most ten years; default: until it is replaced.

        Raises:
            QuorumFailed: too few replicas acknowledged in time; it may have happened.
            TooFewReplicas, WritesRefused: too few nodes can take it, or the owner's disk is full; nothing was written.
            ClocksDiffer: the value has a time to live, and clocks differ by a minute or more; nothing was written.
            VersionConflict: too many concurrent values; read, and put with the context.
        """
        request = self._core.to_put(key, to_value(value), context=context, blind=blind, w=w, strict=strict, ttl_s=ttl_s)
        return self._run(self._core.write(request))

    def delete(
        self, key: str | bytes, *, context: bytes | None = None, w: int | None = None, strict: bool = False
    ) -> Stored:
        """Delete a key; no error where nothing is there. Arguments and errors are those of `put`."""
        return self._run(self._core.write(self._core.to_put(key, None, context=context, w=w, strict=strict)))

    def get_many(
        self, keys: Iterable[str | bytes], *, r: int | None = None, in_flight: int = IN_FLIGHT
    ) -> dict[str | bytes, Found | ChordError]:
        """Read many keys, so many at a time: one frame for each owner.

        Args:
            keys: each is read once; all of them are held in memory.
            r: so many replicas must answer for each; default: a majority.
            in_flight: so many keys are under way at a time, 1 to 4096: a batch.

        Returns:
            For each key, as it was named, what is stored there, or why that could not be told: `NotFound` where
            nothing is, for sure. `Found.replicas` is empty; `get` tells of them.

        Raises:
            InvalidRequest: a key or an argument is out of its bounds, or `keys` is one key; nothing that was read is
                returned.
        """
        found: dict[str | bytes, Found | ChordError] = {}
        source, length = iter(to_keys(keys)), require_in_flight(in_flight)
        while some := list(islice(source, length)):
            found.update(zip(some, self._run(self._core.get_all(some, r)), strict=True))
        return found

    def put_many(
        self,
        pairs: Iterable[tuple[str | bytes, str | bytes]],
        *,
        w: int | None = None,
        strict: bool = False,
        ttl_s: float | None = None,
        in_flight: int = IN_FLIGHT,
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> list[tuple[str | bytes, ChordError]]:
        """Write many keys, so many at a time: one frame for each owner. Of two values for a key the later wins.

        Args:
            pairs: keys and values, taken as they are needed: never all of them are in memory.
            w, strict, ttl_s: as of `put`, for each key.
            in_flight: so many keys are under way at a time, 1 to 4096: a batch.
            on_progress: told after each batch how many keys have been tried by then.

        Returns:
            The keys that could not be written and why; empty when all went well.

        Raises:
            InvalidRequest: a key, a value or an argument is out of its bounds, or an item is no pair. The batches
                before it were tried, and what failed of them is not told; of its own batch nothing was sent.
        """
        bulk = many_pairs(
            pairs,
            lambda pair: self._core.to_put(*pair, w=w, strict=strict, ttl_s=ttl_s),
            require_in_flight(in_flight),
            self._limits.buffer_bytes_max,
            on_progress,
        )
        for requests in bulk:
            bulk.ended(self._run(self._core.write_all(requests)))
        return bulk.failures

    def scan(self) -> Iterator[Pair]:
        """Yield every key and its values, clockwise from point 0. Not a snapshot: what changes meanwhile may show.

        Raises:
            OwnerDown: behind all that could be read: nodes that are down may hold more.
            RecordDamaged: behind all that could be read: damaged records are not among it.
            RecordTooLarge: behind all that could be read: no reply held all values of some records.
        """
        following = self._run(self._core.scan_start())
        while following is not None:
            page, following = self._run(self._core.scan_page(following))
            yield from page.pairs()

    def records(self, *, of: str | None = None) -> Iterator[Record]:
        """Yield every record whole, with its clock, tombstones and quarantine: what a backup needs. See `merge`.

        Args:
            of: only the records of the arcs the node at this address answers for.

        Raises:
            OwnerDown: behind all that could be read: nodes that are down may hold more.
            RecordDamaged: behind all that could be read: damaged records are not among it.
            RecordTooLarge: behind all that could be read: no reply held all values of some records.
        """
        following = self._run(self._core.scan_start(of, "whole"))
        while following is not None:
            page, following = self._run(self._core.scan_page(following))
            yield from page.records

    def merge(self, record: Record, *, w: int | None = None, bring_back: bool = False) -> Stored:
        """Merge a record as it is, from `records`, into what the ring holds; doing it again changes nothing.

        What was overwritten since stays overwritten, what was written since stays beside it. `Stored.dead` says how
        many values of the record were overwritten or deleted since.

        Args:
            w: as of `put`.
            bring_back: write these values anew, beside what the key holds now.

        Raises:
            InvalidRequest: that is no record.
            QuorumFailed, TooFewReplicas, WritesRefused: as of `put`.
        """
        return self._run(self._core.write(self._core.to_merge(record, w, bring_back=bring_back)))

    def merge_many(
        self,
        records: Iterable[Record],
        *,
        w: int | None = None,
        in_flight: int = IN_FLIGHT,
        bring_back: bool = False,
        on_progress: Callable[[int], None] = lambda done: None,
        on_stored: Callable[[Stored], object] = lambda stored: None,
    ) -> list[tuple[bytes, ChordError]]:
        """Merge many records, so many at a time; with arguments and errors as `put_many` has them.

        Args:
            bring_back: as of `merge`.
            on_stored: told of each record that was merged. `Stored.replicas` is empty.

        Returns:
            The keys that could not be merged and why; empty when all went well.
        """
        bulk = many_records(
            records,
            lambda record: self._core.to_merge(record, w, bring_back=bring_back),
            require_in_flight(in_flight),
            self._limits.buffer_bytes_max,
            on_progress,
            on_stored,
        )
        for requests in bulk:
            bulk.ended(self._run(self._core.write_all(requests)))
        return bulk.failures

    # -- quarantine -------------------------------------------------------------------------------

    def scan_quarantine(self) -> Iterator[Quarantined]:
        """Yield every key with values in quarantine, and these values, clockwise from point 0.

        A value is in quarantine if a node brought it back after an absence, and no other node can say whether it was
        deleted meanwhile. Readers do not see it; all replicas keep it.

        Raises:
            OwnerDown: behind all that could be read: nodes that are down may hold more.
            RecordDamaged: behind all that could be read: damaged records are not among it.
            RecordTooLarge: behind all that could be read: no reply held all values of some records.
        """
        following = self._run(self._core.scan_start(what="quarantine"))
        while following is not None:
            page, following = self._run(self._core.scan_page(following))
            yield from page.quarantined()

    def get_quarantine(self, key: str | bytes, *, r: int | None = None) -> Quarantined:
        """Read the values of a key that are in quarantine; there may be none.

        Args:
            key, r: as of `get`.

        Raises:
            TooFewReplicas: too few replicas answered in time.
        """
        return self._run(self._core.get_quarantine(key, r))

    def drop_quarantine(self, key: str | bytes, *, context: bytes | None = None, w: int | None = None) -> Decided:
        """Discard the values of a key that are in quarantine, on all replicas and for good.

        Args:
            key, w: as of `put`.
            context: from `Quarantined.context`: decide about exactly these values. Default: about all there are.

        Raises:
            NotFound: without a context: no value of the key is in quarantine.
            QuorumFailed, TooFewReplicas, WritesRefused: as of `put`.
        """
        return self._run(self._core.decide_quarantine(key, context, w, is_merge=False))

    def merge_quarantine(self, key: str | bytes, *, context: bytes | None = None, w: int | None = None) -> Decided:
        """Bring the values of a key that are in quarantine back: each becomes a new value beside what the key holds.

        Args:
            key, context, w: as of `drop_quarantine`.

        Returns:
            How many values were brought back. `Decided.left` counts those that had no room beside the others: settle
            the key with a put, and merge again.

        Raises:
            NotFound: without a context: no value of the key is in quarantine.
            VersionConflict: the key holds too many values already: there is no room for any.
            QuorumFailed, TooFewReplicas, WritesRefused: as of `put`.
        """
        return self._run(self._core.decide_quarantine(key, context, w, is_merge=True))

    # -- the ring ---------------------------------------------------------------------------------

    def lookup(
        self,
        key: str | bytes | None = None,
        *,
        key_id: int | None = None,
        mode: Mode = "iterative",
        route: Route = "classic",
        from_: Contact | str | None = None,
    ) -> Trace:
        """Find the owner of a key, or of a point of the circle, and how one gets there.

        Args:
            key, key_id: what to look up; one of the two.
            mode: who asks the next hop: the first node (iterative), each node in turn (recursive); or go from
                successor to successor only (successor).
            route: classic, with fingers and successor lists; or fast, as `get` and `put` do.
            from_: who performs the lookup: a node's address or a vnode; default: the entry node.

        Raises:
            LookupFailed: definite; no way was found.
            InvalidRequest: neither or both of key and key_id, or a point that is not on the circle.
        """
        return self._run(self._core.lookup(key, key_id, mode, route, from_))

    def describe(self, address: str | None = None) -> Description:
        """Return what a node says of itself.

        Args:
            address: whom to ask; where it is silent, nobody else is asked. Default: the entry node.
        """
        return self._run(self._core.describe(address))

    def members(self, *, also: Iterable[str] = (), only: Sequence[str] = ()) -> dict[str, Outcome]:
        """Ask every node that can be named to describe itself.

        Args:
            also: addresses to visit besides the entry nodes.
            only: if given, visit exactly these and follow nothing.

        Returns:
            For each address, in the order they were found, the `Description`, or the error that stood in its way.

        Raises:
            PeerUnreachable: no node answered at all; not with `only`.
        """
        return self._run(self._core.members(also, only))

    def forget(self, address: str) -> dict[str, Outcome]:
        """Say that the silent node last seen at this address will never be back.

        The ring stops waiting for the node. Its replicas are made anew elsewhere, and records that only it held are
        given up. If another node lives at the address now, the former node there is meant.

        Returns:
            What each node that was told answered, by its address: `Done`, or an error.

        Raises:
            InvalidRequest: the node answers, so make it leave; or the ring waits for no former node at its address.
        """
        return self._run(self._core.forget(address))

    def leave(self, address: str) -> None:
        """Tell a node to hand everything over and leave. Returns at once; the node ends when it has.

        It is not asked whether it is the last one: then what it holds is gone with it.

        Args:
            address: HOST:PORT of the node.

        Raises:
            ConfigError: that is no address; a name is none.
            PeerUnreachable, PeerLost: it does not answer.
        """
        self._run(self._core.leave(address))

    # -- driving operations -------------------------------------------------------------------------

    def _run(self, operation: Operation[T]) -> T:
        if self._is_closed:
            raise InvalidRequest("this Ring is closed, its with block has ended; connect again: chord.connect(...)")
        deadline = time.monotonic() + self.timeout_s
        try:
            effect = next(operation)
            while True:
                now = time.monotonic()
                wait = effect.seconds if isinstance(effect, Pause) else 0.0
                if now + wait >= deadline:
                    effect = operation.throw(DeadlineExceeded(f"not done within {self.timeout_s:g} s"))
                elif isinstance(effect, Ask):
                    limit = deadline if effect.within_s is None else min(deadline, now + effect.within_s)
                    outcomes = zip(self._pool.ask(effect.calls, limit), effect.calls, strict=True)
                    effect = operation.send(tuple(self._judged(outcome, call.address) for outcome, call in outcomes))
                else:
                    time.sleep(wait)
                    effect = operation.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _judged(self, outcome: Outcome, address: str) -> Outcome:
        """Return an outcome, but no silence of a node that had too little time to say hello."""
        if self.timeout_s < HELLO_S and isinstance(outcome, PeerUnreachable) and outcome.is_late:
            return DeadlineExceeded(f"no answer from {address} within {self.timeout_s:g} s")
        return outcome
