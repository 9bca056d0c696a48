"""The operations of the clients and the node, with their documentation. This is their only definition.

`AsyncApi` has the methods. A subclass drives the operations of `chord.client.operations`: `chord.client.trio_driver`
on Trio, `chord.client.asyncio_client` on asyncio. `tools/unasync.py` makes the same classes for the blocking client,
`chord.client.blocking_api`, from this file.

`AsyncClientApi` adds the methods that only a client has, such as `decommission(address)`: it makes a node leave.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import TypeVar, overload

from chord.client.batch import IN_FLIGHT, key_batches, many_pairs, many_records, require_in_flight
from chord.client.inspection import Inspection, inspect
from chord.client.operations import Operations
from chord.client.results import (
    MISSING,
    BatchResult,
    Decided,
    Found,
    Missing,
    Pair,
    Quarantined,
    Resolver,
    Stored,
    resolved,
    to_value,
)
from chord.client.session import TIMEOUT_S, ClientOperation
from chord.config import Limits
from chord.errors import ChordError
from chord.ids import Circle
from chord.wire.messages import Contact, Mode, Record, Route, Status, Trace, WatchRequest

D = TypeVar("D")
T = TypeVar("T")


class AsyncApi(ABC):
    """The operations on a ring for an asynchronous program.

    Errors: every operation may raise these errors, besides those in its own list. `PeerUnreachable` means that no node
    could be reached. `DeadlineExceeded` and `PeerLost` mean that the operation may have happened. `OwnerDown` means
    that the copies are on nodes that are down. `InvalidRequest` means that an argument is out of bounds. `ConfigError`
    means that an address is not HOST:PORT. Requests that may succeed later are retried until the deadline. A put keeps
    its operation id, so that it takes effect once. Operations on many keys do not raise errors of the ring, because
    each key has an outcome of its own.

    Cancelling: a cancelled operation harms neither client nor node. A write may have happened, or may still happen
    within its time limit. If `put_many` or `import_many` is cancelled, only its current batch is uncertain: earlier
    batches are done, but their results are lost. Close a scan that you leave early (`contextlib.aclosing`).

    Concurrency: every coroutine checkpoints. Any number of tasks may share one object.
    """

    timeout_s: float = TIMEOUT_S
    """Time limit of every operation in seconds, if the caller has set no deadline. It may be changed at any time."""

    _core: Operations
    _limits: Limits

    # -- records ----------------------------------------------------------------------------------

    @overload
    async def get(
        self,
        key: str | bytes,
        *,
        r: int | None = None,
        resolve: Resolver | None = None,
        replicas: bool = False,
        local: bool = False,
    ) -> Found: ...

    @overload
    async def get(
        self,
        key: str | bytes,
        default: D,
        *,
        r: int | None = None,
        resolve: Resolver | None = None,
        replicas: bool = False,
        local: bool = False,
    ) -> Found | D: ...

    async def get(
        self,
        key: str | bytes,
        default: D | Missing = MISSING,
        *,
        r: int | None = None,
        resolve: Resolver | None = None,
        replicas: bool = False,
        local: bool = False,
    ) -> Found | D:
        """Read a key.

        Args:
            key: 1 to 1024 bytes; text is encoded as UTF-8.
            default: returned in place of raising `NotFound`. Other errors are raised.
            r: number of replicas that must answer, 1 to N; default: a majority.
            resolve: function that turns concurrent values into one value, such as `chord.last_writer_wins`. Without it,
                `Found.siblings` holds all of them. Its exceptions propagate.
            replicas: list in `Found.replicas` the outcome at each replica. The key's owner then reads from replicas. By
                default the client reads from them itself if it can, which saves a round trip.
            local: let the entry node answer from its own copy alone, if this copy is in sync. The values may be old,
                and `Found.is_local` is then True. Without such a copy, or without a value in it, this is a read from a
                majority. Cannot be combined with `r` or `replicas`.

        Raises:
            NotFound: no value is stored under the key, and no default was given. This answer is certain.
            TooFewReplicas: fewer replicas than `r` answered in time.
            OwnerDown: the replicas that answered hold no value, and nodes that are down may hold one.
            RecordDamaged: a damaged record may be the one of this key, and no node has an intact copy.
        """
        found = await self._drive(self._core.get(key, r, default, replicas=replicas, local=local))
        return resolved(found, resolve) if isinstance(found, Found) and found is not default else found

    async def contains(self, key: str | bytes, *, r: int | None = None) -> bool:
        """Return whether a value is stored under a key.

        Args:
            key: 1 to 1024 bytes; text is encoded as UTF-8.
            r: number of replicas that must answer, 1 to N; default: a majority.

        Raises:
            TooFewReplicas, OwnerDown, RecordDamaged: as for `get`.
        """
        return await self.get(key, None, r=r) is not None

    async def put(
        self,
        key: str | bytes,
        value: str | bytes,
        *,
        context: bytes | None = None,
        no_context: bool = False,
        w: int | None = None,
        sloppy: bool = True,
        ttl_s: float | None = None,
        replicas: bool = False,
    ) -> Stored:
        """Write a key.

        Args:
            key: 1 to 1024 bytes; text is encoded as UTF-8.
            value: up to 1 MiB; text is encoded as UTF-8.
            context: bytes from an earlier `get` or `put`. The write replaces exactly the values that the context
                covers; later values stay beside the new one. Default: replace the values that a read quorum holds now.
            no_context: replace nothing; existing values stay beside the new one. Cannot be combined with `context`.
            w: number of nodes on which the write must be durable before it is acknowledged, 1 to N; default: a majority
                of N.
            sloppy: count a stand-in towards `w` if it keeps the write for a replica that does not answer. If False,
                only replicas count.
            ttl_s: lifetime of the value in seconds, more than 0 and at most ten years; default: until it is replaced.
            replicas: list in `Stored.replicas` the outcome at each replica.

        Raises:
            QuorumFailed: too few nodes acknowledged in time; the write may have happened.
            TooFewReplicas, WritesRefused: too few nodes can take the write, or the coordinator's disk takes no writes;
                nothing was written.
            ClocksDiffer: `ttl_s` was given, and the coordinator's clock differs from a neighbour's by more than a
                minute; nothing was written.
            VersionConflict: the key holds too many concurrent values; nothing was written. Read the key, and put with
                the context of that read.
        """
        put = self._core.to_put(
            key,
            to_value(value),
            context=context,
            no_context=no_context,
            w=w,
            sloppy=sloppy,
            ttl_s=ttl_s,
            replicas=replicas,
        )
        return await self._drive(self._core.write(put))

    async def delete(
        self,
        key: str | bytes,
        *,
        context: bytes | None = None,
        w: int | None = None,
        sloppy: bool = True,
        replicas: bool = False,
    ) -> Stored:
        """Delete a key. Deleting an absent key is no error.

        Args:
            key: 1 to 1024 bytes; text is encoded as UTF-8.
            context: bytes from an earlier `get` or `put`; only the values that it covers are deleted. Default: all
                values that a read quorum holds now.
            w, sloppy, replicas: as for `put`.

        Raises:
            QuorumFailed, TooFewReplicas, WritesRefused, VersionConflict: as for `put`.
        """
        put = self._core.to_put(key, None, context=context, w=w, sloppy=sloppy, replicas=replicas)
        return await self._drive(self._core.write(put))

    async def get_many(
        self, keys: Iterable[str | bytes], *, r: int | None = None, in_flight: int = IN_FLIGHT,
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> BatchResult[str | bytes, Found]:
        """Read many keys, in batches with one frame for each owner.

        Args:
            keys: the keys, all held in memory; a repeated key is read once.
            r: number of replicas that must answer for each key, 1 to N; default: a majority.
            in_flight: number of keys in a batch, 1 to 4096. A batch begins when the batch before has ended.
            on_progress: callback that gets the number of keys tried so far, after each batch.

        Returns:
            A `Found` or an error for each key, in the order of `keys`. `NotFound` is certain, as for `get`.

        Raises:
            InvalidRequest: a key or an argument is out of bounds, or `keys` is a single key. Results that were read
                before are lost.
        """
        found: dict[str | bytes, Found | ChordError] = {}
        for some in key_batches(keys, "get_many", in_flight, on_progress):
            found.update(zip(some, await self._drive(self._core.get_all(some, r)), strict=True))
        return BatchResult(found)

    async def put_many(
        self,
        pairs: Iterable[tuple[str | bytes, str | bytes]],
        *,
        w: int | None = None,
        sloppy: bool = True,
        ttl_s: float | None = None,
        in_flight: int = IN_FLIGHT,
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> BatchResult[str | bytes, Stored]:
        """Write many keys, in batches with one frame for each owner.

        If a key occurs twice, the later value wins, and the result has the outcome of the later write.

        Args:
            pairs: keys and values. The iterable is consumed batch by batch, so the values are never all in memory.
            w, sloppy, ttl_s: as for `put`, for each key.
            in_flight: largest number of keys in a batch, 1 to 4096. A batch begins when the batch before has ended.
            on_progress: callback that gets the number of pairs tried so far, after each batch.

        Returns:
            A `Stored` or an error for each key. `Stored.replicas` is empty.

        Raises:
            InvalidRequest: a key, a value or an argument is out of bounds, or an item is not a pair. The batches before
                that item were tried, and their results are lost. Nothing of its own batch was sent.
        """
        bulk = many_pairs(
            pairs,
            lambda pair: self._core.to_put(*pair, w=w, sloppy=sloppy, ttl_s=ttl_s),
            require_in_flight(in_flight),
            self._limits.buffer_bytes_max,
            on_progress,
        )
        for requests in bulk:
            bulk.ended(await self._drive(self._core.write_all(requests)))
        return BatchResult(bulk.outcomes)

    async def delete_many(
        self, keys: Iterable[str | bytes], *, w: int | None = None, sloppy: bool = True, in_flight: int = IN_FLIGHT,
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> BatchResult[str | bytes, Stored]:
        """Delete many keys, in batches with one frame for each owner.

        Deleting an absent key is no error.

        Args:
            keys: the keys, all held in memory; a repeated key is deleted once.
            w, sloppy: as for `put`, for each key.
            in_flight: number of keys in a batch, 1 to 4096. A batch begins when the batch before has ended.
            on_progress: callback that gets the number of keys tried so far, after each batch.

        Returns:
            A `Stored` or an error for each key, in the order of `keys`. `Stored.replicas` is empty.

        Raises:
            InvalidRequest: a key or an argument is out of bounds, or `keys` is a single key. The batches before that
                key were tried, and their results are lost. Nothing of its own batch was sent.
        """
        deleted: dict[str | bytes, Stored | ChordError] = {}
        for some in key_batches(keys, "delete_many", in_flight, on_progress):
            deletes = [self._core.to_put(key, None, w=w, sloppy=sloppy) for key in some]
            deleted.update(zip(some, await self._drive(self._core.write_all(deletes)), strict=True))
        return BatchResult(deleted)

    async def scan(self) -> AsyncGenerator[Pair, None]:
        """Yield every key with its values, clockwise from point 0.

        A scan is not a snapshot: changes made meanwhile may show.

        Raises:
            OwnerDown: raised after the last readable pair, if nodes that are down may hold more.
            RecordDamaged: raised after the last readable pair, if damaged records were left out.
            RecordTooLarge: raised after the last readable pair, if one reply could not hold all values of some records.
        """
        following = await self._drive(self._core.scan_start())
        while following is not None:
            page, following = await self._drive(self._core.scan_page(following))
            for pair in page.pairs():
                yield pair

    async def export(self, *, of: str | None = None, consistent: bool = False) -> AsyncGenerator[Record, None]:
        """Yield every record with its clock, tombstones and quarantine, for a backup.

        Restore the records with `import_` or `import_many`.

        Args:
            of: address of a node; yield only the records of the arcs that this node owns. If it does not answer, no
                other node is asked. Default: all records.
            consistent: yield the records of a consistent cut of all nodes. If they contain a write of a client, they
                contain each write that this client had made or read before. `of` must be None.

        Raises:
            OwnerDown: raised after the last readable record, if nodes that are down may hold more.
            CutMissing: raised after the last readable record, if some members did not hold the cut until the end.
            RecordDamaged, RecordTooLarge: raised after the last readable record, if damaged records were left out, or
                one reply could not hold all values of some records.
        """
        following = await self._drive(self._core.export_start(of, consistent=consistent))
        while following is not None:
            page, following = await self._drive(self._core.export_page(following))
            for record in page.records:
                yield record

    async def import_(self, record: Record, *, w: int | None = None, bring_back: bool = False) -> Stored:
        """Import a record from `export` into the ring. Repeating it changes nothing.

        Values that were overwritten or deleted since the backup stay so, and `Stored.dead` counts them. Newer values
        stay beside the merged ones.

        Args:
            record: a record as `export` yields it.
            w: number of nodes on which the record must be durable, 1 to N; default: a majority.
            bring_back: write the overwritten and deleted values anew, beside the present values of the key. Then
                `Stored.brought_back` counts them.

        Raises:
            InvalidRequest: the argument is not a record.
            QuorumFailed, TooFewReplicas, WritesRefused: as for `put`.
        """
        return await self._drive(self._core.write(self._core.to_merge(record, w, bring_back=bring_back)))

    async def import_many(
        self,
        records: Iterable[Record],
        *,
        w: int | None = None,
        in_flight: int = IN_FLIGHT,
        bring_back: bool = False,
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> BatchResult[bytes, Stored]:
        """Import many records, in batches with one frame for each owner.

        Args:
            records: records as `export` yields them; consumed batch by batch, so they are never all in memory.
            w: number of nodes on which each record must be durable, 1 to N; default: a majority.
            in_flight: largest number of records in a batch, 1 to 4096. A batch begins when the batch before has ended.
            bring_back: write overwritten and deleted values anew, as for `import_`.
            on_progress: callback that gets the number of records tried so far, after each batch.

        Returns:
            A `Stored` or an error for each key. If a key occurs twice, the outcome is that of its last record.

        Raises:
            InvalidRequest: an item is not a record, or an argument is out of bounds. The batches before that item were
                tried, and their results are lost. Nothing of its own batch was sent.
        """
        bulk = many_records(
            records,
            lambda record: self._core.to_merge(record, w, bring_back=bring_back),
            require_in_flight(in_flight),
            self._limits.buffer_bytes_max,
            on_progress,
        )
        for requests in bulk:
            bulk.ended(await self._drive(self._core.write_all(requests)))
        return BatchResult(bulk.outcomes)

    # -- quarantine -------------------------------------------------------------------------------

    async def scan_quarantine(self) -> AsyncGenerator[Quarantined, None]:
        """Yield every key that has values in quarantine, clockwise from point 0.

        A value is in quarantine if a node brought it back after an absence and no other node can say whether it was
        deleted meanwhile. Readers do not see the value; all replicas keep it.

        Raises:
            OwnerDown: raised after the last readable key, if nodes that are down may hold more.
            RecordDamaged: raised after the last readable key, if damaged records were left out.
            RecordTooLarge: raised after the last readable key, if one reply could not hold all values of some records.
        """
        following = await self._drive(self._core.scan_start(what="quarantine"))
        while following is not None:
            page, following = await self._drive(self._core.scan_page(following))
            for found in page.quarantined():
                yield found

    async def get_quarantine(self, key: str | bytes, *, r: int | None = None) -> Quarantined:
        """Read the quarantined values of a key. The result may have none.

        Args:
            key: 1 to 1024 bytes; text is encoded as UTF-8.
            r: number of replicas that must answer, 1 to N; default: a majority.

        Raises:
            TooFewReplicas: fewer replicas than `r` answered in time.
            OwnerDown: the replicas that answered hold no such value, and nodes that are down may hold one.
        """
        return await self._drive(self._core.get_quarantine(key, r))

    async def drop_quarantine(self, key: str | bytes, *, context: bytes | None = None, w: int | None = None) -> Decided:
        """Discard the quarantined values of a key, on all replicas and for good.

        Args:
            key: 1 to 1024 bytes; text is encoded as UTF-8.
            context: bytes from `Quarantined.context`; discard only the values that it names. Default: all in
                quarantine.
            w: number of nodes on which the decision must be durable, 1 to N; default: a majority.

        Returns:
            The number of values that were discarded, and of those left.

        Raises:
            NotFound: no context was given, and no value of the key is in quarantine.
            QuorumFailed, TooFewReplicas, WritesRefused: as for `put`.
        """
        return await self._drive(self._core.decide_quarantine(key, context, w, merge=False))

    async def merge_quarantine(
        self, key: str | bytes, *, context: bytes | None = None, w: int | None = None
    ) -> Decided:
        """Bring the quarantined values of a key back as new values.

        Each becomes a concurrent value beside the present values of the key.

        Args:
            key: 1 to 1024 bytes; text is encoded as UTF-8.
            context: bytes from `Quarantined.context`; bring back only the values that it names. Default: all in
                quarantine.
            w: number of nodes on which the decision must be durable, 1 to N; default: a majority.

        Returns:
            The number of values that were brought back. `Decided.left` counts the values that had no room beside the
            others: resolve the concurrent values with a put, then merge again.

        Raises:
            NotFound: no context was given, and no value of the key is in quarantine.
            VersionConflict: the key holds too many values already; none was brought back.
            QuorumFailed, TooFewReplicas, WritesRefused: as for `put`.
        """
        return await self._drive(self._core.decide_quarantine(key, context, w, merge=True))

    async def inspect(self, key: str | bytes) -> Inspection:
        """Return the copy of a key at each member of its replica set, or why it is not known.

        No quorum is needed, and nothing is repaired. A member that does not answer the owner is not asked.

        Args:
            key: 1 to 1024 bytes; text is encoded as UTF-8.
        """
        return await self._drive(inspect(self._core.session, key))

    # -- the ring ---------------------------------------------------------------------------------

    async def lookup(
        self,
        key: str | bytes | None = None,
        *,
        key_id: int | None = None,
        mode: Mode = "iterative",
        route: Route = "classic",
        from_: Contact | str | None = None,
    ) -> Trace:
        """Find the owner of a key or of a point, and the path to it.

        Args:
            key, key_id: the key, or the point as a number; exactly one of the two.
            mode: iterative: the node that performs the lookup asks every hop itself. recursive: each hop passes the
                lookup on to the next. successor: iterative, along successors only.
            route: classic: by fingers and successor lists. fast, as for `get` and `put`: remembered owners first, and
                stop as soon as any successor list reaches the key. full: members of the membership list first, then as
                fast. A node without this list begins with fast.
            from_: the node (an address) or vnode (a contact) that performs the lookup; default: the entry node.

        Raises:
            LookupFailed: no path to the owner was found.
            InvalidRequest: both or neither of `key` and `key_id` were given, or the point is not on the circle.
        """
        return await self._drive(self._core.lookup(key, key_id, mode, route, from_))

    async def status(self, address: str | None = None) -> Status:
        """Return the status of a node, as the node reports it.

        Args:
            address: HOST:PORT of the only node to ask. None: the entry node, or the next entry node that answers.
        """
        return await self._drive(self._core.status(address))

    async def members(self, *, also: Iterable[str] = (), only: Sequence[str] = ()) -> BatchResult[str, Status]:
        """Ask every node that can be found for its status.

        The search begins at the entry nodes, and follows every address that a status names.

        Args:
            also: further addresses to begin at.
            only: ask exactly these addresses, and follow no others. Then `also` is ignored. Default: search.

        Returns:
            A `Status` or an error for each address, in the order of discovery. A node that answers is listed under the
            address that it advertises.

        Raises:
            PeerUnreachable: no node answered. Not raised if `only` is given.
        """
        return await self._drive(self._core.members(also, only))

    async def remove_node(self, address: str) -> BatchResult[str, None]:
        """Declare that the node last seen at this address will never return.

        The ring stops waiting for the node. It makes new replicas on other nodes, and gives up records that only this
        node held. If another node lives at the address now, the former node is meant.

        Returns:
            By address, None for each node that has confirmed this, and an error for each other node that was asked.

        Raises:
            InvalidRequest: a node of the ring answers at the address, and no node names a former one there. Use a
                client's `decommission` for a living node.
        """
        return await self._drive(self._core.remove_node(address))

    # -- watching ---------------------------------------------------------------------------------

    async def watch(self, request: WatchRequest[T], address: str | None = None) -> T:
        """Ask a node for its events, its metrics or another report for watchers.

        A `GetEvents` that waits must end before the time limit of the operation.

        Args:
            request: the question, such as `chord.GetEvents`. Its class describes the answer.
            address: HOST:PORT of the only node to ask. None: the entry node, or the next entry node that answers.

        Raises:
            Overloaded: too many watchers ask the node.
        """
        return await self._drive(self._core.watch(request, address))

    # -- driving operations -------------------------------------------------------------------------

    @abstractmethod
    async def _drive(self, operation: ClientOperation[T]) -> T:
        """Carry out an operation of `chord.client.operations` before its deadline."""


class AsyncClientApi(AsyncApi):
    """The operations of an asynchronous client: those of `AsyncApi`, and those on nodes.

    Attributes:
        is_closed: whether the client is closed. Then every operation raises `InvalidRequest`.
    """

    is_closed: bool

    def __repr__(self) -> str:
        return f"<chord.{type(self).__name__} {'closed' if self.is_closed else self.entry}>"

    @property
    def entry(self) -> str:
        """The address of the entry node in use."""
        return self._core.session.entry

    @property
    def circle(self) -> Circle:
        """The circle of the ring."""
        assert self._core.session.circle is not None  # the client learnt it when it was opened
        return self._core.session.circle

    async def decommission(self, address: str) -> None:
        """Make another node hand its arcs and records over, and leave the ring.

        Returns as soon as the node has the request; the node ends when it has handed over. The node does not check
        whether it is the last one: in that case its records are lost.

        Args:
            address: HOST:PORT of the node.

        Raises:
            ConfigError: the argument is not HOST:PORT; node names are not accepted.
            PeerUnreachable, PeerLost: the node does not answer.
        """
        await self._drive(self._core.decommission(address))
