"""The operations of a client, without I/O. Both clients and the node drive them.

This module checks arguments and shapes results. `chord.client.session` makes the requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from chord.client.batch import ClientBatches
from chord.client.quorum_read import quorum_read
from chord.client.results import (
    MISSING,
    BatchResult,
    Decided,
    Found,
    Missing,
    Page,
    Quarantined,
    Stored,
    to_context,
    to_key,
    to_quarantined,
    to_quorum,
    to_record,
    to_ttl_ms,
    to_value,
)
from chord.client.session import ClientCall, ClientOperation, ClientSession, MakeCalls, Outcome, error_of_all, of_peer
from chord.config import split_address
from chord.errors import (
    ChordError,
    InvalidRequest,
    NotFound,
    OtherRing,
    OwnerDown,
    RecordDamaged,
    RecordTooLarge,
    RemoteFailure,
    VersionConflict,
)
from chord.ids import Circle, Point
from chord.wire.messages import (
    Contact,
    DecideQuarantine,
    Forget,
    Get,
    GetQuarantine,
    GetQuarantineReply,
    GetReply,
    GetStatus,
    Leave,
    Lookup,
    Merge,
    Mode,
    Put,
    Record,
    Reply,
    Route,
    Scan,
    ScanOf,
    ScanReply,
    Status,
    Trace,
    WatchRequest,
    Written,
)

if TYPE_CHECKING:
    from chord.client.cut_scan import CutScan

D = TypeVar("D")
T = TypeVar("T")

CRAWL_S = 1.0  # time limit in seconds for one node's status
CRAWL_NODES_MAX = 4096
CRAWL_AT_ONCE = 128
CUT_KEYS_MAX = 256  # keys of cut records that a scan remembers; the others are only counted
CUT_KEYS_NAMED = 5  # keys that the error message names


class Cursor(NamedTuple):
    """The position of a scan within an arc.

    Attributes:
        after: the point up to which the arc is read already.
        after_key: the last key of the previous page, if the owner's part continues; None: begin with the owner's first
            key.
        covered: the number of points of the arc that are read.
        span: the number of points of the whole arc.
        of: the vnode to ask; None: the owner of the next point.
        unreachable: vnodes that are down and may hold records that the scan did not return.
        damaged: the number of records that were left out because they are damaged.
        what: "live" for live values, "whole" for records with their clocks, or "quarantine".
        cut: the number of records that were returned with only some of their values.
        cut_keys: the keys of the first 256 of these records.
        rest: the positions in the arcs to read after this one.
    """

    after: Point
    after_key: bytes | None
    covered: int
    span: int
    of: Contact | None = None
    unreachable: tuple[Contact, ...] = ()
    damaged: int = 0
    what: ScanOf = "live"
    cut: int = 0
    cut_keys: tuple[bytes, ...] = ()
    rest: tuple[Cursor, ...] = ()


def _past(cursor: Cursor, until: Point, circle: Circle) -> Cursor:
    """Return the cursor after an owner's part, which ends at the point `until`."""
    covered = cursor.covered + (circle.distance(cursor.after, until) or circle.size)
    return cursor._replace(after=until, after_key=None, covered=covered)


def _onward(cursor: Cursor) -> Cursor | None:
    """Return where the scan continues: in this arc or in the next.

    At the end, return None if the scan is complete. Otherwise return a cursor for which `scan_page` raises.
    """
    if cursor.covered < cursor.span:
        return cursor
    if cursor.rest:
        first, *rest = cursor.rest
        return first._replace(
            unreachable=cursor.unreachable,
            damaged=cursor.damaged,
            cut=cursor.cut,
            cut_keys=cursor.cut_keys,
            rest=tuple(rest),
        )
    return cursor if cursor.unreachable or cursor.damaged or cursor.cut else None


def _lacking(cursor: Cursor) -> ChordError:
    """Return the error for an incomplete scan. Further reasons are in its `also`."""
    errors: list[ChordError] = []
    if cursor.unreachable:
        names = ", ".join(sorted({contact.address for contact in cursor.unreachable}))
        down = f"the result is incomplete: no answer from {names}, which may hold more"
        errors.append(OwnerDown(down, peer=cursor.unreachable[0]))
    if cursor.damaged:
        records = "1 record is" if cursor.damaged == 1 else f"{cursor.damaged} records are"
        damaged = RecordDamaged(f"the result is incomplete: {records} damaged")
        damaged.records = cursor.damaged
        errors.append(damaged)
    if cursor.cut:
        names = ", ".join(repr(key.decode(errors="backslashreplace")) for key in cursor.cut_keys[:CUT_KEYS_NAMED])
        more = f" and {cursor.cut - CUT_KEYS_NAMED} more" if cursor.cut > CUT_KEYS_NAMED else ""
        keys = "1 key has" if cursor.cut == 1 else f"{cursor.cut} keys have"
        large = RecordTooLarge(f"the result is incomplete: {keys} more values than one reply can hold: {names}{more}")
        large.records, large.keys = cursor.cut, cursor.cut_keys
        errors.append(large)
    first, *others = errors
    first.also = tuple(others)
    return first


def contacts_in(node: Status) -> list[Contact]:
    """Return all vnodes that a node's status names, such as its neighbours and fingers.

    A vnode may occur several times, also of the node itself. Former receivers of its arcs, which may be gone, do not.
    """
    contacts: list[Contact] = []
    for vnode in node.vnodes:
        contacts += [vnode.predecessor] if vnode.predecessor else []
        contacts += [*vnode.successors, *vnode.predecessors, *(run.contact for run in vnode.fingers)]
        contacts += [arc.peer for arc in vnode.arcs if arc.peer and arc.state != "moved"]
    for replica_set in node.sets:
        contacts += replica_set.members
    return [*contacts, *node.known]


def addresses_in(node: Status) -> list[str]:
    """Return the addresses of all nodes that a node's status names, each once, its own first."""
    return list(dict.fromkeys([node.address, *(contact.address for contact in contacts_in(node))]))


class Operations:
    """The operations of a client or a node on the ring, as steps without I/O.

    Args:
        session: makes the requests.

    Attributes:
        session: as given.
        batches: makes many requests at once.

    Concurrency: synchronous; several operations may be under way at once.
    """

    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self.batches = ClientBatches(session)

    # -- records ----------------------------------------------------------------------------------

    def get(
        self,
        key: str | bytes,
        r: int | None = None,
        default: D | Missing = MISSING,
        *,
        replicas: bool = False,
        local: bool = False,
    ) -> ClientOperation[Found | D]:
        """Read a key. If the ring is certain that it has no value, return the default or raise `NotFound`.

        Args:
            key, r, default: the key; how many replicas must answer (None: a majority); returned in place of `NotFound`.
            replicas: whether the result lists the replicas. Then the owner coordinates the read.
            local: whether the entry node may answer from its own copy, which may be old.
        """
        raw = to_key(key)
        if local and (r is not None or replicas):
            raise InvalidRequest("cannot get with local and r or replicas: a local read asks one replica")
        values: Outcome | None = None
        try:
            if r is None and not replicas and not local:
                values = yield from quorum_read(self.session, raw)
            if values is None:
                request = Get(raw, to_quorum(r, "r"), with_replicas=replicas, any=local)
                values = yield from self.session.request(request)
            found = to_found(raw, values)
            if isinstance(found, ChordError):
                raise found
        except NotFound:
            if isinstance(default, Missing):
                raise
            return default
        return found

    def to_put(
        self,
        key: str | bytes,
        value: str | bytes | None,
        *,
        context: bytes | None = None,
        no_context: bool = False,
        w: int | None = None,
        sloppy: bool = True,
        ttl_s: float | None = None,
        replicas: bool = False,
    ) -> Put:
        """Return the request that writes a key, with a new operation id.

        Args:
            value: the value; None: delete the key.
            context, no_context, w, sloppy, ttl_s, replicas: as for `AsyncApi.put`.

        Raises:
            InvalidRequest: an argument is out of bounds.
        """
        if no_context and context is not None:
            raise InvalidRequest("cannot put with both no_context and context: with no_context a put replaces nothing")
        raw = None if value is None else to_value(value)
        covers = b"" if no_context else to_context(context)
        op_bytes = self.session.rng.randbytes
        needed, ttl_ms = to_quorum(w, "w"), to_ttl_ms(ttl_s)
        return Put(to_key(key), raw, op_bytes(16), covers, needed, not sloppy, ttl_ms, with_replicas=replicas)

    def write(self, request: Put | Merge) -> ClientOperation[Stored]:
        """Send a write, again after each failure, until it is acknowledged, and return the acknowledgement.

        All attempts have the same operation id, so that the write takes effect once.
        """
        stored = _stored(request, (yield from self.session.request(request)))
        if isinstance(stored, ChordError):
            raise stored
        return stored

    def to_merge(self, record: Record, w: int | None = None, *, bring_back: bool = False) -> Merge:
        """Return the request that merges a record into the ring.

        Args:
            record: the record.
            w: the number of nodes on which it must be durable; None: a majority of N.
            bring_back: whether to write the values anew that the ring has deleted or replaced since.

        Raises:
            InvalidRequest: the argument is not a record, or `w` is out of bounds.
        """
        to_key(to_record(record).key)
        return Merge(record, to_quorum(w, "w"), self.session.rng.randbytes(16) if bring_back else b"")

    def write_all(self, requests: Sequence[Put | Merge]) -> ClientOperation[list[Stored | ChordError]]:
        """Send many writes at once, and return the acknowledgement or the error of each, in order."""
        outcomes = yield from self.batches.request_all(requests)
        return [
            outcome if isinstance(outcome, ChordError) else _stored(request, outcome)
            for request, outcome in zip(requests, outcomes, strict=True)
        ]

    def get_all(
        self, keys: Sequence[str | bytes], r: int | None = None, *, replicas: bool = False
    ) -> ClientOperation[list[Found | ChordError]]:
        """Read many keys at once, and return the result or the error of each, in order; arguments as for `get`."""
        asked = [Get(to_key(key), to_quorum(r, "r"), with_replicas=replicas) for key in keys]
        outcomes = yield from self.batches.request_all(asked)
        return [to_found(get.key, outcome) for get, outcome in zip(asked, outcomes, strict=True)]

    # -- quarantine -------------------------------------------------------------------------------

    def get_quarantine(self, key: str | bytes, r: int | None = None) -> ClientOperation[Quarantined]:
        """Read the values that a key has in quarantine; `r` is how many replicas must answer (None: a majority)."""
        raw = to_key(key)
        reply = yield from self.session.request(GetQuarantine(raw, to_quorum(r, "r")))
        assert isinstance(reply, GetQuarantineReply)
        return to_quarantined(Record(raw, (), b"", reply.entries), reply.left)

    def decide_quarantine(
        self, key: str | bytes, context: bytes | None, w: int | None, *, merge: bool
    ) -> ClientOperation[Decided]:
        """Drop or merge the quarantined values of a key.

        Args:
            key: the key.
            context: names the values to decide about; None: all.
            w: the number of nodes on which the decision must be durable; None: a majority of N.
            merge: True: merge the values. False: drop them.

        Raises:
            NotFound: no context was given, and no value is in quarantine.
            VersionConflict: the record has no room for any of the values to merge.
        """
        raw, needed = to_key(key), to_quorum(w, "w")
        if context is not None:
            return (yield from self._decide(raw, to_context(context) or b"", needed, merge))
        last: Decided | None = None
        while True:  # if the values do not fit one answer, several follow
            found = yield from self.get_quarantine(raw)
            if not found.values:
                if last is None:
                    raise NotFound(f"no value of {raw!r} is in quarantine")
                return last
            try:
                decided = yield from self._decide(raw, found.context, needed, merge)
            except VersionConflict:
                if last is None:
                    raise
                return last
            last = msgspec.structs.replace(decided, values=decided.values + (last.values if last else 0))
            if not found.left or not decided.values:
                return last

    def _decide(self, key: bytes, context: bytes, w: int, merge: bool) -> ClientOperation[Decided]:
        request = DecideQuarantine(key, context, self.session.rng.randbytes(16), merge, w)
        reply = yield from self.session.request(request)
        assert isinstance(reply, Written)
        return Decided(key, reply.decided, reply.quarantined, reply.w, reply.w_needed)

    # -- many records -----------------------------------------------------------------------------

    def scan_start(self, of: str | None = None, what: ScanOf = "live") -> ClientOperation[Cursor | None]:
        """Return the cursor at the start of a scan.

        Args:
            of: address of a node; scan only the arcs that it owns. Default: scan the circle from point 0.
            what: "live" for live values, "whole" for records with their clocks, or "quarantine".

        Returns:
            The cursor; None if `of` is given and that node owns no arc.
        """
        circle = yield from self.session.known_circle()
        if of is None:
            return Cursor(Point(circle.size - 1), None, 0, circle.size, what=what)
        node = yield from self.status(of)
        cursors = [
            Cursor(arc.start, None, 0, circle.distance(arc.start, arc.end) or circle.size, vnode.contact, what=what)
            for vnode in node.vnodes
            for arc in vnode.arcs
            if arc.state == "owned"
        ]
        return cursors[0]._replace(rest=tuple(cursors[1:])) if cursors else None

    def export_start(self, of: str | None, *, consistent: bool) -> ClientOperation[Cursor | CutScan | None]:
        """Return the position at the start of an export of records; None if there is nothing to export.

        Args:
            of: the address of a node; export only the arcs that it owns. None: the whole ring.
            consistent: whether every node makes a cut now, and the export has the records of the cut.

        Raises:
            InvalidRequest: both `consistent` and `of` were given.
        """
        if not consistent:
            return (yield from self.scan_start(of, "whole"))
        if of is not None:
            raise InvalidRequest("cannot export the records of one node consistently: a cut is of all nodes")
        from chord.client.cut_scan import begin_cut  # here: it loads the store, which no other operation needs

        return (yield from begin_cut(self.session, self.members))

    def export_page(self, position: Cursor | CutScan) -> ClientOperation[tuple[Page, Cursor | CutScan | None]]:
        """Return the next page of an export, and the position after it, or None at the end."""
        if isinstance(position, Cursor):
            return (yield from self.scan_page(position))
        return (yield from position.page())

    def scan_page(self, cursor: Cursor) -> ClientOperation[tuple[Page, Cursor | None]]:
        """Return the next page of a scan, and the cursor after it, or None at the end.

        The owner of the next point answers up to its own id. Records in the part that is already read are left out,
        because arcs may change between two pages. If nodes are down, a page may be empty, and the scan continues behind
        them. An error about missing records comes after all pages, so no record that was found is lost with it.

        Raises:
            OwnerDown: the scan is finished, and nodes that are down may hold more.
            RecordDamaged: the scan is finished, and damaged records were left out.
            RecordTooLarge: the scan is finished, and some records were returned with only some of their values.
        """
        if cursor.covered >= cursor.span:
            raise _lacking(cursor)
        circle = yield from self.session.known_circle()
        try:
            reply = yield from self.session.request(Scan(cursor.after, cursor.after_key, what=cursor.what), cursor.of)
        except OwnerDown as error:
            if error.peer is None:
                raise
            unreachable = tuple(dict.fromkeys((*cursor.unreachable, error.peer)))
            return Page((), 0), _onward(_past(cursor._replace(unreachable=unreachable), error.peer.id, circle))
        assert isinstance(reply, ScanReply)
        start = circle.point(cursor.after - cursor.covered)
        covered = cursor.covered

        def is_fresh(point: int) -> bool:
            return covered < (circle.distance(start, point) or circle.size)

        fresh = tuple(record for record in reply.records if is_fresh(circle.hash(record.key)))
        page = Page(fresh, reply.now_ms)
        cut = tuple(key for key in reply.cut if is_fresh(circle.hash(key)))
        cursor = cursor._replace(
            unreachable=tuple(dict.fromkeys((*cursor.unreachable, *reply.unreachable))),
            damaged=cursor.damaged + sum(is_fresh(point) for point in reply.damaged),
            cut=cursor.cut + len(cut),
            cut_keys=(*cursor.cut_keys, *cut)[:CUT_KEYS_MAX],
        )
        if reply.more_after is not None:
            return page, cursor._replace(after_key=reply.more_after)
        return page, _onward(_past(cursor, reply.until, circle))

    # -- the ring ---------------------------------------------------------------------------------

    def lookup(
        self, key: str | bytes | None, key_id: int | None, mode: Mode, route: Route, start: Contact | str | None
    ) -> ClientOperation[Trace]:
        """Find the owner of a key or a point, and the path to it.

        Args:
            key, key_id: the key, or the point as a number; exactly one is not None.
            mode, route: as for `AsyncApi.lookup`.
            start: the node or vnode that performs the lookup; None: the entry node.
        """
        if (key is None) == (key_id is None):
            raise InvalidRequest("look up either a key or a key id")
        circle = yield from self.session.known_circle()
        if key is not None:
            point = circle.hash(to_key(key))
        else:
            assert key_id is not None
            if not 0 <= key_id < circle.size:
                raise InvalidRequest(f"{key_id} is not on a circle of {circle.bits} bits (0 to {circle.size - 1})")
            point = Point(key_id)
        reply = yield from self.session.request(Lookup(point, mode, route), start)
        assert isinstance(reply, Trace)
        return reply

    def status(self, address: str | None) -> ClientOperation[Status]:
        """Return the status of the node at an address, as the node reports it; None: the entry node."""
        if address is not None:
            split_address(address)
        reply = yield from self.session.request(GetStatus(), address)
        assert isinstance(reply, Status)
        return reply

    def watch(self, request: WatchRequest[T], address: str | None) -> ClientOperation[T]:
        """Return a node's reply to a request for watchers, such as `GetEvents`; the address None: the entry node."""
        if address is not None:
            split_address(address)
        reply = yield from self.session.request(request, address)
        assert isinstance(reply, request.reply)
        return reply  # type: ignore[return-value]

    def decommission(self, address: str) -> ClientOperation[None]:
        """Make a node hand its arcs and records over, and leave. The node answers before it has done so."""
        split_address(address)
        yield from self.session.request(Leave(), address)

    def remove_node(self, address: str) -> ClientOperation[BatchResult[str, None]]:
        """Make every node that answers give up the node last seen at an address.

        If another node lives at the address now, the former node is meant.

        Returns:
            By address, None for each node that has confirmed this, and an error for each other node that was asked.

        Raises:
            InvalidRequest: a node of the ring answers at the address, and no node names a former one there.
        """
        split_address(address)
        (outcome,) = yield MakeCalls((ClientCall(address, GetStatus()),), CRAWL_S)
        crawl = yield from self.members()
        reported, nodes = list(crawl.ok), list(crawl.ok.values())
        living: tuple[Point, ...] = ()
        if isinstance(outcome, Status) and (
            any(node.ring == outcome.ring for node in nodes) or outcome.address in reported
        ):
            living = tuple(vnode.contact.id for vnode in outcome.vnodes)
            if not any(c.address == address and c.id not in living for node in nodes for c in contacts_in(node)):
                raise InvalidRequest(f"cannot remove {address}: a node answers there; make it leave")
        answers: dict[str, ChordError | None] = {}
        for i in range(0, len(reported), CRAWL_AT_ONCE):
            some = reported[i : i + CRAWL_AT_ONCE]
            said = yield MakeCalls(tuple(ClientCall(at, Forget(address, living)) for at in some), CRAWL_S)
            for at, answer in zip(some, said, strict=True):
                answers[at] = answer if isinstance(answer, ChordError) else None
        return BatchResult(answers)

    def members(self, also: Iterable[str] = (), only: Sequence[str] = ()) -> ClientOperation[BatchResult[str, Status]]:
        """Ask every node that can be found for its status, from the entry nodes and the membership list outwards.

        A member that only the list names, and that does not answer, is left out.

        Args:
            also: further addresses to ask besides the entry nodes.
            only: if given, ask exactly these addresses and follow no others. Then `also` is ignored.

        Returns:
            A `Status` or an error for each address, in the order of discovery. A node that answers appears only under
            its own address.

        Raises:
            PeerUnreachable: no node answered. Not raised if `only` is given.
        """
        found: dict[str, Status | ChordError] = {}
        ring: bytes | None = None
        known = dict.fromkeys(only or (*self.session.entries, *also))
        frontier = list(known) if only else list(dict.fromkeys((*known, *(yield from self.session.listed()))))
        while frontier and len(found) < CRAWL_NODES_MAX:
            now, frontier = frontier[:CRAWL_AT_ONCE], frontier[CRAWL_AT_ONCE:]
            outcomes = yield MakeCalls(tuple(ClientCall(address, GetStatus()) for address in now), CRAWL_S)
            named: list[str] = []
            for address, outcome in zip(now, outcomes, strict=True):
                if isinstance(outcome, ChordError):
                    found[address] = of_peer(outcome)
                elif outcome.ring in (None, ring or outcome.ring):
                    ring = ring or outcome.ring
                    found[outcome.address] = outcome
                    named += addresses_in(outcome)
                else:
                    found[address] = OtherRing(f"{address} belongs to another ring")
            if not only:
                known |= dict.fromkeys(named)
                frontier = [a for a in dict.fromkeys([*frontier, *named]) if a not in found]
        result = BatchResult({at: it for at, it in found.items() if at in known or isinstance(it, Status)})
        if not only and not result.ok:
            raise error_of_all(result)
        return result


def _stored(request: Put | Merge, reply: Reply) -> Stored | ChordError:
    assert isinstance(reply, Written)
    if reply.owner is None:
        return RemoteFailure("the acknowledgement of a write does not name the owner")
    return Stored(
        request.key if isinstance(request, Put) else request.record.key,
        reply.context,
        reply.owner,
        reply.w,
        reply.w_needed,
        reply.is_sloppy,
        reply.replicas,
        reply.beside,
        reply.quorum,
        is_under_replicated=request.w == 0 and reply.w_needed < reply.quorum,
        dead=reply.dead,
        brought_back=reply.decided,
        quarantined=reply.quarantined,
    )


def to_found(key: bytes, outcome: Outcome) -> Found | ChordError:
    """Return the result of a read; `NotFound` if there is no value."""
    if isinstance(outcome, ChordError):
        return outcome
    assert isinstance(outcome, GetReply)
    if not outcome.values:
        missing = NotFound(f"no value is stored under {key!r}")
        missing.quarantined = outcome.quarantined
        return missing
    if outcome.owner is None:
        return RemoteFailure("the answer to a read does not name the owner")
    shown = outcome.r, outcome.r_needed, outcome.replicas, outcome.written_ms, outcome.quarantined, outcome.left
    return Found(key, outcome.values, outcome.context, outcome.owner, *shown, outcome.is_local)
