"""Two replicas and the wire between them, without a node around: every message through the codec and counted."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, cast

import trio
from trio.testing import MockClock

from chord.calls import Answer
from chord.config import Limits, NodeConfig, RingConstants
from chord.data import versions
from chord.data.copies import Reaped, Replica
from chord.data.exchange import Exchange
from chord.data.reap import on_reap
from chord.data.storage import Batch, MemoryStorage
from chord.greeting import Greeter
from chord.host import Host
from chord.ids import Arc, Circle, Point
from chord.messages import (
    Contact,
    GetCopies,
    GetHeads,
    GetSums,
    Reap,
    Record,
    Reply,
    Request,
    StoreCopies,
    Version,
)
from chord.peers import Peers
from chord.wire import PREFIX_BYTES, codec_for

Clocks = dict[bytes, Record]


class Side:
    """One replica: a store, what it answers, and its way to ask the other."""

    def __init__(self, wire: Wire, name: str, limits: Limits) -> None:
        config = NodeConfig(ring=RingConstants(bits=wire.circle.bits), limits=limits)
        self.contact = Contact(Point(0), f"{name}:1")
        self.storage = MemoryStorage(wire.circle, name.encode() * 8)
        self.actor = versions.actor(self.storage.incarnation, 1)
        peers, greeter = cast(Peers, wire), cast(Greeter, None)
        self.host = Host(config, peers, self.storage, random.Random(1), lambda: 0, lambda event: None, greeter)
        self.reaped = Reaped()
        self.exchange = Exchange(self.host, self.merge, self.reaped)
        self.replica = Replica(self.host, self.stage, self.reaped)

    async def merge(self, records: Sequence[Record]) -> int:
        changed, is_durable = self.stage(records)
        if not is_durable:
            await self.storage.commit(Batch())
        return changed

    def stage(self, records: Iterable[Record]) -> tuple[int, bool]:
        changed = 0
        for record in records:
            old = self.storage.get(record.key)
            new = record if old is None else versions.sync(old, record)
            changed += new != old
            self.storage.stage(Batch(puts=(new,)))
        return changed, self.storage.stage(Batch())

    def put(self, key: bytes, value: bytes | None, context: dict[bytes, int] | None = None) -> Record:
        old = self.storage.get(key)
        op_id = (self.storage.incarnation + b"%08x" % self.storage.next_key_epoch())[-16:]
        new = versions.put(old, key, context, self.actor, Version(value, op_id, 1))
        self.storage.apply(Batch(puts=(new,)))
        return new

    def drop(self, key: bytes) -> None:
        self.storage.apply(Batch(removals=(key,)))

    def store(self, *records: Record) -> None:
        self.storage.apply(Batch(puts=records))

    def clocks(self) -> Clocks:
        top = Point((1 << self.host.circle.bits) - 1)
        return {record.key: record for record in self.storage.scan(Arc(top, top))}


class Wire:
    """Stands for `Peers` on both sides. There are two, so who is not called is calling.

    Attributes:
        calls: the requests so far.
        bytes: of all frames, both ways.
        before: told every request before it is delivered; may raise, or change a store.
        after: told every request and its reply before the caller gets it.
    """

    def __init__(self, bits: int, limits: Limits) -> None:
        self.circle = Circle(bits)
        self.calls: list[Request] = []
        self.bytes = 0
        self.before: Callable[[Request], None] = lambda request: None
        self.after: Callable[[Request, Reply], None] = lambda request, reply: None
        self.frame_bytes_max = limits.frame_bulk_bytes_max
        self.sides = {f"{name}:1": Side(self, name, limits) for name in "ab"}

    async def call(self, to: Contact, request: Request, expect: type[Reply]) -> Reply:
        self.calls.append(request)
        codec = codec_for(self.circle)
        frame = codec.encode_call(1, to.id, 1000, request)
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
            Reap: lambda reap: on_reap(side.host, side.reaped, reap),
        }
        given = answers[type(request)](request)
        answer = codec.encode_reply(1, given if isinstance(given, Reply) else await given)
        _, reply = codec.decode_reply(answer[PREFIX_BYTES:], expect)
        assert max(len(frame), len(answer)) <= self.frame_bytes_max
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
