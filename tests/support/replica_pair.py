"""Two replicas without nodes, and the wire between them, which encodes and counts every message."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import trio
from trio.testing import MockClock

from chord.config import Limits, NodeConfig, RingConstants
from chord.events import ignore
from chord.ids import Arc, Circle, Point
from chord.net.calls import Answer, reply_of
from chord.net.peers import Peers
from chord.observe.event_log import EventLog
from chord.replication.reap_log_sync import ReapLogSync
from chord.replication.records import Records
from chord.replication.replica import Replica
from chord.replication.sync import ReplicaSync
from chord.ring.context import NodeContext
from chord.ring.preference_list import PreferenceList
from chord.store import versions
from chord.store.reap_log import ReapLog
from chord.store.reap_log_state import Grave
from chord.store.storage import Batch, MemoryStorage
from chord.wire.cbor import require_items
from chord.wire.codec import PREFIX_BYTES, codec_for
from chord.wire.hello import HelloPolicy
from chord.wire.messages import (
    Contact,
    FetchLogs,
    GetCopies,
    GetHeads,
    GetLogs,
    GetSeen,
    GetSums,
    Record,
    Reply,
    Request,
    StoreCopies,
    StoreLogs,
    Version,
    Vouch,
)

Clocks = dict[bytes, Record]


class Side:
    """One replica: a store, its handlers, and its calls to the other replica."""

    def __init__(self, wire: Wire, name: str, limits: Limits) -> None:
        config = NodeConfig(ring=RingConstants(bits=wire.circle.bits), limits=limits)
        self.contact = Contact(Point(0), f"{name}:1")
        self.storage = MemoryStorage(wire.circle, name.encode() * 8)
        self.actor = versions.actor(self.storage.incarnation, 1)
        peers, policy = cast(Peers, wire), cast(HelloPolicy, None)
        events = EventLog(1, lambda: 0.0, lambda: 0, ignore)
        self.host = NodeContext(config, peers, self.storage, random.Random(1), lambda: 0, events, policy)
        vnode: Any = SimpleNamespace(me=self.contact, preference_list=PreferenceList(self.contact, wire.circle))
        self.host.vnodes[self.contact.id] = vnode
        self.on_disk(self.storage)

    def on_disk(self, storage: MemoryStorage) -> None:
        """Use this storage from now on."""
        self.storage = self.host.storage = storage
        self.log = self.host.reap_log = ReapLog(self.host.circle, storage, self.host.limits)
        self.records = Records(self.host)
        self.log_sync = ReapLogSync(self.host, self.log)
        self.replica_sync = ReplicaSync(self.host, self.records.merge, self.log_sync)
        self.replica = Replica(self.host, self.records.stage, self.records.stage_if_covering)

    def put(self, key: bytes, value: bytes | None, context: dict[bytes, int] | None = None) -> Record:
        old = self.storage.get(key)
        op_id = (self.storage.incarnation + b"%08x" % self.storage.next_key_epoch())[-16:]
        new = versions.put(old, key, context, self.actor, Version(value, op_id, 1))
        self.storage.apply(Batch(puts=(new,)))
        return new

    def drop(self, key: bytes) -> None:
        self.storage.apply(Batch(removals=(key,)))

    def reap(self, key: bytes) -> None:
        """Reap a record without a message to the other replica."""
        record = self.storage.get(key)
        assert record is not None
        self.storage.apply(self.log.bury([Grave(record, versions.context_of(record))]))

    def store(self, *records: Record) -> None:
        self.storage.apply(Batch(puts=records))

    def clocks(self) -> Clocks:
        top = Point((1 << self.host.circle.bits) - 1)
        return {record.key: record for record in self.storage.scan(Arc(top, top))}


class Wire:
    """The `Peers` of both sides.

    Attributes:
        calls: the requests so far.
        bytes: of all frames, both ways.
        before: called with every request before its delivery; may raise, or change a store.
        after: called with every request and its reply, before the caller gets the reply.
    """

    def __init__(self, bits: int, limits: Limits) -> None:
        self.circle = Circle(bits)
        self.calls: list[Request] = []
        self.bytes = 0
        self.before: Callable[[Request], None] = lambda request: None
        self.after: Callable[[Request, Reply], None] = lambda request, reply: None
        self.frame_bytes_max = limits.frame_bulk_bytes_max
        self.frame_items_max = limits.frame_items_max
        self.sides = {f"{name}:1": Side(self, name, limits) for name in "ab"}

    async def call(self, to: Contact, request: Request, expect: type[Reply]) -> Reply:
        self.calls.append(request)
        codec = codec_for(self.circle)
        frame = codec.encode_call(1, to.id, 1000, request, 0)
        arrived = codec.decode_call(frame[PREFIX_BYTES:]).request
        assert arrived == request
        self.before(request)
        await trio.lowlevel.checkpoint()
        side = self.sides[to.address]
        replica = side.replica
        answers: dict[type[Request], Callable[[Any], Answer]] = {
            GetSums: replica.on_get_sums,
            GetHeads: replica.on_get_heads,
            GetCopies: replica.on_get_copies,
            StoreCopies: replica.on_store_copies,
            GetSeen: side.log_sync.on_get_seen,
            GetLogs: side.log_sync.on_get_logs,
            StoreLogs: side.log_sync.on_store_logs,
            Vouch: side.log_sync.on_vouch,
            FetchLogs: side.log_sync.on_fetch_logs,
        }
        given = answers[type(request)](request)
        answer = codec.encode_reply(1, await reply_of(given))
        _, reply = codec.decode_reply(answer[PREFIX_BYTES:], expect)
        assert max(len(frame), len(answer)) <= self.frame_bytes_max
        require_items(frame[PREFIX_BYTES:], self.frame_items_max)
        require_items(answer[PREFIX_BYTES:], self.frame_items_max)
        self.bytes += len(frame) + len(answer)
        self.after(request, reply)
        return reply


def pair(bits: int = 160, limits: Limits | None = None) -> tuple[Side, Side, Wire]:
    """Return two empty replicas and the wire between them."""
    wire = Wire(bits, limits or Limits())
    a, b = wire.sides.values()
    return a, b, wire


def run(function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Any:
    """Run on virtual time."""
    return trio.run(function, *args, clock=MockClock(autojump_threshold=0))
