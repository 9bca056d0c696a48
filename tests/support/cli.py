"""The ring of the worked example as fake nodes, for tests of commands. The fixtures are in `conftest.py`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import msgspec

from chord.errors import ChordError
from chord.ids import Arc, Point
from chord.store import quarantine, versions
from chord.wire.messages import (
    ActorClock,
    Contact,
    DecideQuarantine,
    Done,
    Get,
    GetQuarantine,
    GetQuarantineReply,
    GetReply,
    GetStatus,
    Lookup,
    Merge,
    Ping,
    PingReply,
    Put,
    ReadCopy,
    ReadCopyReply,
    Record,
    ReplicaLine,
    Reply,
    Scan,
    ScanReply,
    Status,
    Version,
    Written,
)
from tests.support.fake_node import Answer, FakeNode, Heard, ScannedRing
from tests.support.schemas import check_shape
from tests.support.statuses import WORKED_IDS, statuses, worked_trace

Run = Callable[..., "Ended"]


class Ended:
    """A command that has ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self, shape: str) -> Any:
        """Return the printed object, checked against its schema."""
        value = json.loads(self.out)
        check_shape(shape, value)
        return value

    def failure(self, code: str) -> Any:
        """Return the error that was printed with --json, checked against its schema."""
        error = json.loads(self.err.splitlines()[-1])
        check_shape("error", error)
        assert error["error"]["code"] == code
        return error["error"]


class CannedRing:
    """The ring of the worked example: seven fake nodes with one store."""

    def __init__(self) -> None:
        self.values: dict[bytes, tuple[bytes, ...]] = {}
        self.override: Callable[[int, Heard], Answer | ChordError | None] = lambda point, heard: None
        self.trace_is_dead = False
        self.scanned = ScannedRing(list(WORKED_IDS), [])
        self.change: Callable[[int, Status], Status] = lambda point, node: node
        self.merged: list[Record] = []
        self.hidden: dict[bytes, Record] = {}  # records with a quarantine
        self.dead: dict[bytes, int] = {}  # number of values of a backup that were deleted since, by key
        self.stays = 0  # number of dead values without room
        self.room = 99  # number of values that a decision can bring back
        self.lines: tuple[ReplicaLine, ...] = ()
        self.beside = 0
        self.nodes = {p: FakeNode(self._answer_as(p)) for p in WORKED_IDS}
        self.addresses = {p: node.address for p, node in self.nodes.items()}
        self.entry = self.addresses[10]

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()

    def _answer_as(self, point: int) -> Callable[[Heard], Answer]:
        def answer(heard: Heard) -> Answer:
            overridden = self.override(point, heard)
            return overridden if overridden is not None else self._answer(point, heard.request)

        return answer

    def _answer(self, point: int, request: object) -> Reply | ChordError:
        owner = Contact(Point(80), self.addresses[80])
        if isinstance(request, GetStatus):
            node = statuses(addresses=self.addresses)[WORKED_IDS.index(point)]
            return self.change(point, msgspec.structs.replace(node, pid=os.getpid()))
        if isinstance(request, Put):
            if request.value is None:
                self.values.pop(request.key, None)
            else:
                beside = self.values.get(request.key, ()) if request.context == b"" else ()
                self.values[request.key] = (*beside, request.value)
            return Written(b"context", owner, 2, 2, is_sloppy=True, replicas=self.lines, beside=self.beside)
        if isinstance(request, Get):
            found = self.values.get(request.key)
            written = tuple(range(1, 1 + len(found or ())))
            hidden = quarantine.count(self.hidden.get(request.key, Record(request.key, ())))
            return GetReply(found or (), b"context", owner, 2, 2, self.lines, written, hidden, is_local=request.any)
        if isinstance(request, Merge):
            self.merged.append(request.record)
            dead = self.dead.get(request.record.key, 0)
            decisions = {"decided": dead - self.stays} if request.op_id else {}
            left = quarantine.count(self.hidden.get(request.record.key, request.record))
            return Written(b"context", owner, dead=self.stays if request.op_id else dead, quarantined=left, **decisions)
        if isinstance(request, (GetQuarantine, DecideQuarantine)):
            return self._answer_hidden(request, owner)
        if isinstance(request, Scan) and request.what == "quarantine":
            return self._hidden_page(request)
        if isinstance(request, Lookup):
            trace = worked_trace(self.addresses, dead=self.trace_is_dead)
            return msgspec.structs.replace(trace, key=request.key, mode=request.mode)
        if isinstance(request, ReadCopy):
            live = tuple(Version(value, bytes([i]) * 16, 9) for i, value in enumerate(self.values.get(request.key, ())))
            return ReadCopyReply(Record(request.key, (ActorClock(b"a" * 16, len(live), live),)) if live else None)
        if isinstance(request, Scan):
            page = self.scanned(Heard(None, request, "bulk", 1))
            assert isinstance(page, ScanReply)
            return page
        return PingReply() if isinstance(request, Ping) else Done()

    def _answer_hidden(self, request: GetQuarantine | DecideQuarantine, owner: Contact) -> Reply | ChordError:
        record = self.hidden.get(request.key, Record(request.key, ()))
        if isinstance(request, GetQuarantine):
            context = versions.encode_context(quarantine.context_of(record))
            return GetQuarantineReply(record.quarantine, context, owner, 0, 2, 2)
        context_, fits = versions.decode_context(request.context), self._has_room
        if request.merge:
            decided = quarantine.merge(record, context_, b"minting" + bytes(9), request.op_id, fits=fits)
            self.values[request.key] = (*self.values.get(request.key, ()), *versions.values(decided.record))
        else:
            decided = quarantine.drop(record, context_)
        self.hidden[request.key] = decided.record
        left = quarantine.count(decided.record)
        return Written(b"context", owner, 2, 2, decided=decided.decided, quarantined=left)

    def _has_room(self, record: Record) -> bool:
        return len(versions.values(record)) <= self.room

    def _hidden_page(self, request: Scan) -> ScanReply:
        """Answer as the owner of the next point."""
        circle = self.scanned.circle
        until = next((o for o in WORKED_IDS if o >= circle.point(request.after + 1)), WORKED_IDS[0])
        arc = Arc(request.after, Point(until))
        found = [record for key, record in self.hidden.items() if record.quarantine and circle.hash(key) in arc]
        return ScanReply(tuple(found), Point(until), None)
