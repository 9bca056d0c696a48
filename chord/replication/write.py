"""The replication of one write, from its coordinator to the other replicas.

The write is durable at the coordinator before this begins. A put may also send its record conditionally before that;
see `conditional.py`.
"""

from __future__ import annotations

import trio

from chord.errors import Behind, ChordError, DeadlineExceeded, NotReady, QuorumFailed, WritesRefused
from chord.net.steps import Steps
from chord.replication.anti_entropy import AntiEntropy
from chord.replication.conditional import ConditionalCopies
from chord.replication.effects import Ask, InTask
from chord.replication.fanout import Fanout
from chord.replication.reap_log_sync import ReapLogSync
from chord.replication.replica import parts_of
from chord.ring.preference_list import Place, ReplicaSet
from chord.ring.vnode import Vnode
from chord.store import quarantine, versions
from chord.store.merkle import VERSION_BYTES, digest_of
from chord.store.storage import Batch
from chord.wire.messages import Contact, Done, Put, Record, ReplicaLine, StoreCopies, Written


class ReplicatedWrite:
    """A record that is durable here, and the nodes that have stored it.

    Args:
        vnode: the coordinator.
        me: the vnode of this node in the replica set; the coordinator if this node is not in it.
        replicas: the replica set.
        record: the record.
        seen: digest of the reap-log entries that this node had applied to the key's slice when the record was made.
        repair: notes the replicas that miss the write.
        log_sync: syncs the reap logs with a replica that has applied other entries. That replica then gets the record
            as it is here by then.
        put: the request, if the record is the result of a put. If the put is strict, only members count, and no
            stand-in is used. None: the record is the result of a `Merge` or `DecideQuarantine`, and the context in the
            reply covers all of it.

    Attributes:
        stored: the nodes that have the record, with the round-trip time in ms; None for this node.
    """

    def __init__(
        self,
        vnode: Vnode,
        me: Contact,
        replicas: ReplicaSet,
        record: Record,
        seen: bytes,
        repair: AntiEntropy,
        log_sync: ReapLogSync,
        *,
        put: Put | None,
    ) -> None:
        self._vnode = vnode
        self._host = vnode.host
        self._replicas = replicas
        self._record = record
        self._put = put
        self._seen = (seen,) if seen else ()
        self._copies: dict[bool, list[StoreCopies]] = {}  # by whether they are hints; made when the first is sent
        self._first_try: ConditionalCopies | None = None
        self._repair = repair
        self._log_sync = log_sync
        self._members = [place.contact for place in replicas.members]
        self.stored: dict[Contact, float | None] = {me: None}
        self._up = vnode.reachable(replicas.members, but=me)
        strict = put is not None and put.strict
        self._spare = [] if strict else vnode.reachable(replicas.stand_ins, but=me)
        self._missing = len(self._members) - len(self._up) - (me in self._members)
        self._counted = frozenset(self._members if strict else (*self._members, *self._spare, me))
        self._fanout = Fanout(self._host, self._store, self._spare[self._missing :])

    def try_members(self, first_try: ConditionalCopies) -> Fanout:
        """Return the effect that sends the record conditionally to the reachable members.

        It ends with the first settled reply, when no member is left that may reply, or when the members are late. Call
        `send` afterwards if the record is durable here by then.
        """
        self._first_try = first_try
        self._fanout = Fanout(self._host, self._store)
        return self._fanout.ask(self._up, first_try.is_decided, is_hasty=True)

    def send(self, needed: int) -> Steps[Written]:
        """Send the record to all other replicas, and return when enough nodes have it.

        Slower replicas still get it afterwards. For each member that is unreachable, fails or is late, the next
        stand-in keeps it.

        Args:
            needed: the number of nodes that must have the record, this node included.

        Raises:
            QuorumFailed: indefinite; too few nodes acknowledged, or this node ended.
        """
        for contact in self._members:
            if contact not in self.stored and contact not in self._up:
                self._repair.fell_behind(contact.address)
        first = [*self._up, *self._spare[: self._missing]]
        if self._first_try is not None:
            first = self._after_first_try(self._first_try)
        try:
            yield self._fanout.ask(first, until=lambda: len(self.stored.keys() & self._counted) >= needed)
        except NotReady:
            raise QuorumFailed("the node ended before other nodes had stored the write") from None
        return self._written(needed)

    @property
    def is_awaited(self) -> bool:
        """Whether a node has been asked, and has neither answered nor failed yet."""
        return bool(self._fanout.waiting)

    def _after_first_try(self, first_try: ConditionalCopies) -> list[Contact]:
        """Return the nodes to which the record goes at once: refusing members, and stand-ins for the others."""
        first_try.is_over = True
        missing = self._missing + len(self._fanout.failures)
        self._fanout.add_spares(self._spare[missing:])
        return [*first_try.refused, *self._spare[:missing]]

    def _written(self, needed: int) -> Written:
        w = len(self.stored.keys() & self._counted)
        if w < needed:
            refusals = {at: error for at, error in self._fanout.failures.items() if isinstance(error, WritesRefused)}
            by = ", ".join(contact.address for contact in refusals)
            why = f"; refused by {by}: {next(iter(refusals.values())).message:.200}" if refusals else ""
            raise QuorumFailed(f"stored on {w} of {needed} nodes{why}")
        is_sloppy = len(self.stored.keys() & self._members) < needed
        self._host.counters["sloppy_puts"] += is_sloppy
        record, put, now_ms = self._record, self._put, self._host.wall_now_ms()
        op_id = None if put is None else put.op_id
        context = versions.context_of(record) if op_id is None else versions.context_after(record, op_id)
        beside = 0
        for version in versions.siblings(record):
            beside += version.op_id != op_id and versions.is_live(version, now_ms)
        return Written(
            context=versions.encode_context(context),
            owner=self._vnode.me if put is None or put.with_owner else None,
            w=w,
            w_needed=needed,
            is_sloppy=is_sloppy,
            replicas=self._lines() if put is None or put.with_replicas else (),
            beside=beside,
            quorum=self._host.constants.quorum,
            quarantined=quarantine.count(self._record) if self._record.quarantine else 0,
        )

    def _store(self, contact: Contact) -> Steps[None]:
        """Send the record to one node, in parts; there is nearly always one part.

        While the coordinator has not stored the record, the node gets it conditionally. If the node refuses, it gets
        the record unconditionally as soon as the coordinator has stored it.

        If the node fails, this vnode no longer counts it as in sync, until it compares again.
        """
        sent = trio.current_time()
        deadline, first_try = sent + self._host.timing.timeout_cap_s, self._first_try
        try:
            try:
                if first_try is not None and not first_try.is_over:
                    try:
                        reply = yield Ask(self._host.peers, contact, first_try.request, deadline)
                    except ChordError as error:
                        first_try.failed(contact, error)
                    else:
                        if first_try.take(contact, reply):
                            self.stored[contact] = 1000 * (trio.current_time() - sent)
                            return
                    if not first_try.is_over:
                        return
                    deadline = trio.current_time() + self._host.timing.timeout_cap_s
                for request in self._copies_for(contact):
                    yield Ask(self._host.peers, contact, request, deadline)
            except Behind:
                yield InTask(self._host, self._sync_log_and_send, contact)
        except ChordError:
            self._repair.fell_behind(contact.address)
            raise
        self.stored[contact] = 1000 * (trio.current_time() - sent)

    async def _sync_log_and_send(self, contact: Contact) -> None:
        """Sync the reap logs with a replica, and send the record as it is here by then.

        Raises:
            QuorumFailed: indefinite; the record no longer shows the write of the put.
            ChordError: the sync or the call failed, or took longer than twice `timeout_cap_s`.
        """
        try:
            with trio.fail_after(2 * self._host.timing.timeout_cap_s):
                await self._log_sync.sync_slice(contact, self._record.key)
                await self._send_again(contact)
        except trio.TooSlowError:
            raise DeadlineExceeded("the reap logs were not in sync in time") from None

    async def _send_again(self, contact: Contact) -> None:
        host, key = self._host, self._record.key
        record, seen = host.storage.get(key), host.reap_log.seen_of(key)
        if record is None or (self._put is not None and not versions.is_done(record, self._put.op_id)):
            raise QuorumFailed("the actor of the write may have been reaped; write again")
        await host.storage.commit(Batch())
        for part in parts_of(host, record):
            request = StoreCopies((part,), as_hints=contact not in self._members, seen=(seen,) if seen else ())
            await host.peers.call(contact, request, Done)

    def _copies_for(self, contact: Contact) -> list[StoreCopies]:
        """Return the requests that send the record to a member, or as a hint to a stand-in."""
        as_hints = contact not in self._members
        if as_hints not in self._copies:
            parts = parts_of(self._host, self._record)
            self._copies[as_hints] = [StoreCopies((part,), as_hints=as_hints, seen=self._seen) for part in parts]
        return self._copies[as_hints]

    def _lines(self) -> tuple[ReplicaLine, ...]:
        version = digest_of(self._record)[:VERSION_BYTES]
        lines = (self._line(place, version) for place in self._replicas.everyone)
        return tuple(line for line in lines if line is not None)

    def _line(self, place: Place, version: bytes) -> ReplicaLine | None:
        """Return how one node took part in this write; None for an unasked stand-in."""
        contact = place.contact
        if contact in self.stored:
            outcome = "ok" if contact in self._members else "hinted"
            return ReplicaLine(contact, outcome, True, self.stored[contact], version)
        if contact in self._fanout.failures:
            return ReplicaLine(contact, self._fanout.failures[contact].message[:1024], False)
        if contact in self._fanout.waiting:
            return ReplicaLine(contact, "on its way", False)
        return ReplicaLine(contact, "unreachable", False) if contact in self._members else None
