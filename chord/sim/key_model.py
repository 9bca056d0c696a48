"""The key model: all writes and versions of one key, and their consequences.

Any number of clients write a key at the same time. The simulator sees every store, so the model does not guess. A
version covers exactly the events that its coordinator found when it minted the version. These are the clock of the
record, the context that the client named, or nothing for a put with no context. A write without an acknowledgement
matters once a store has minted a version of it.

Source: causal histories as the reference for version vectors, Preguica et al. 2010, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from chord.store import versions
from chord.wire.messages import ActorClock, Record

SLACK_S = 0.002
"""Tolerance of expiry times, in seconds.

Wall clocks and times to live count milliseconds.
"""
DOTS_MAX = 256
"""Number of latest dots, and of latest operations, that a key's model remembers."""

PADDING = b"~"

OpKind: TypeAlias = Literal["put", "with context", "no context"]
ModelDot: TypeAlias = tuple[bytes, int]
Covers: TypeAlias = Mapping[bytes, int]


@dataclass(slots=True, eq=False)
class Mint:
    """One version of an operation, as a store minted (created) it for an attempt.

    Attributes:
        op: the operation.
        host: the machine that minted the version; "" if the simulator saw it first elsewhere.
        covers: the events that the version replaced; None if unknown.
        dropped_s: the virtual second at which `KeyModel` learned that it was replaced for certain; infinite before it.
    """

    op: Op
    host: str
    covers: Covers | None
    dropped_s: float = math.inf

    def may_cover(self, dots: Iterable[ModelDot]) -> bool:
        """Return whether this version may have replaced any of these dots.

        The answer is true if `covers` is unknown.
        """
        return self.covers is None or any(covers(self.covers, dot) for dot in dots)


@dataclass(slots=True, eq=False)
class Op:
    """One write of a value, or of a tombstone (value None).

    Attributes:
        number: serial number among the operations of its key, from 1.
        value: the value; None: a delete.
        kind: "put" replaces the versions that its coordinator finds, "with context" those of `given`, "no context"
            none.
        op_id: the operation id of its request; empty before it is sent.
        given: the context that its client named; empty if it named none.
        covers: the events that it has replaced for certain; empty before it is acknowledged.
        dots: its versions by dot, one for each attempt that a store minted.
        began, acked: `KeyModel.clock` at its start and at its acknowledgement; `acked` is None before it.
        is_ok: whether it was acknowledged.
        w: number of nodes that the acknowledgement had to wait for; 0 before it.
        quorum: the write quorum of the ring at that time, smaller if the ring had fewer nodes; 0 before it.
        split: if it was acknowledged during a split, the virtual second and the coordinator's host. None once the parts
            are one ring again.
        is_strict: whether only members of the replica set counted towards `w`, and no stand-ins.
        is_contested: whether nodes of several rings answered for its key when it was acknowledged. False unless N = 1.
        is_alarmed: whether it was acknowledged during an alarm, and no quorum was seen to have it after the alarm.
        is_out: whether any copy of it was lost since the write.
        is_lost: whether `KeyModel.lost` was called for it, because no store has it any more.
        vanished: number of copies lost since all members last had it.
        dropped: machines of leaving nodes that dropped a copy.
        is_buried: whether a store dropped a record that knew the operation outside of its quarantine, and held only
            tombstones and expired values.
        tombstone: the last such record, if it had replaced the operation or was the last copy; otherwise None.
        is_reaped: whether no store has it any more because stores reaped it.
        calm: if the ring was calm when it began, `Oracle.disturbances` at that time; otherwise None.
        expires: first and last virtual second at which the value may expire; infinite without a time to live.
        ttl_s: time to live in seconds, counted from the minting; None: unlimited.
    """

    number: int
    value: bytes | None
    kind: OpKind
    given: Covers
    began: int
    covers: Covers = field(default_factory=dict)
    op_id: bytes = b""
    dots: dict[ModelDot, Mint] = field(default_factory=dict)
    acked: int | None = None
    is_ok: bool = False
    w: int = 0
    quorum: int = 0
    split: tuple[float, str] | None = None
    is_strict: bool = False
    is_buried: bool = False
    tombstone: Record | None = None
    is_reaped: bool = False
    is_contested: bool = False
    is_alarmed: bool = False
    is_out: bool = False
    is_lost: bool = False
    vanished: int = 0
    dropped: set[str] = field(default_factory=set)
    calm: int | None = None
    expires: tuple[float, float] = (math.inf, math.inf)
    ttl_s: float | None = None

    def __str__(self) -> str:
        word = "delete" if self.value is None else self.kind
        return f"{word} {self.number}" + (" (lost)" if self.is_lost else "" if self.is_ok else " (unknown)")

    def is_in(self, record: Record | None) -> bool:
        """Return whether a record knows the operation: shown, replaced or in quarantine."""
        return record is not None and any(knows(record, dot) for dot in self.dots)

    def is_open_in(self, record: Record | None) -> bool:
        """Return whether a record knows the operation outside of its quarantine."""
        return record is not None and any(_is_in_clock(record.clock, dot) for dot in self.dots)

    def is_isolated_in(self, record: Record | None) -> bool:
        """Return whether a record has the value in quarantine and does not show it."""
        if record is None or all(version.op_id != self.op_id for one in record.quarantine for version in one.versions):
            return False
        return all(version.op_id != self.op_id for version in versions.siblings(record))

    def replaces(self, record: Record | None) -> bool:
        """Return whether a record shows a version that this operation surely replaced."""
        return record is not None and any(covers(self.covers, dot) for dot in dots_in(record))


def covers(context: Covers, dot: ModelDot) -> bool:
    """Return whether a context covers a dot. A context has, by actor, the number of its last covered write."""
    return context.get(dot[0], 0) >= dot[1]


def knows(record: Record, dot: ModelDot) -> bool:
    """Return whether a record has a dot in its history or in quarantine."""
    return _is_in_clock(record.clock, dot) or _is_in_clock(record.quarantine, dot)


def _is_in_clock(clock: Iterable[ActorClock], dot: ModelDot) -> bool:
    return any(entry.actor == dot[0] and entry.count >= dot[1] for entry in clock)


def dots_in(record: Record) -> dict[ModelDot, bytes]:
    """Return the dots of a record's versions, each with its operation id."""
    return {
        (entry.actor, entry.count - place): version.op_id
        for entry in record.clock
        for place, version in enumerate(entry.versions)
    }


def _without(context: Covers, dots: Iterable[ModelDot]) -> dict[bytes, int]:
    """Return a context without those of the `dots` that are the last of their actors."""
    last = dict(iter(dots))
    return {who: count - (last.get(who) == count) for who, count in context.items()}


class KeyModel:
    """The model of one key: its writes and versions, and the answers that they allow.

    Attributes:
        ops: the operations that still matter: neither refused nor replaced for certain.
        issued: number of operations so far.
        contexts: by client, the last context that the client received.
        owner: address of the coordinator of the last acknowledged write; "" before it.
        dropped_at: by machine, the virtual second at which it last began to remove its record, or lost it. The disk may
            have refused the removal.
    """

    __slots__ = (
        "_buried", "_by_id", "_clock", "_expiring", "_former", "_gone", "_mints", "_names", "_reaped", "_refused",
        "_unstored", "contexts", "dropped_at", "issued", "key", "ops", "owner", "point",
    )  # fmt: skip

    def __init__(self, key: bytes, point: int) -> None:
        self.key = key
        self.point = point
        self.ops: list[Op] = []
        self.issued = 0
        self.contexts: dict[str, bytes] = {}
        self.owner = ""
        self.dropped_at: dict[str, float] = {}
        self._clock = 0
        self._refused: set[int] = set()
        self._by_id: dict[bytes, Op] = {}
        self._expiring: dict[bytes, tuple[float, float]] = {}
        self._mints: dict[ModelDot, Mint] = {}
        # Versions that no store has, because of a crash or because they were sent early. Messages may carry them.
        self._unstored: dict[tuple[bytes, ModelDot], Covers | None] = {}
        self._names: dict[ModelDot, dict[bytes, bool]] = {}  # by dot: operation ids, and whether others rely on each
        self._reaped: dict[bytes, int] = {}  # context of reaped tombstones
        self._buried: dict[bytes, int] = {}  # context of dropped tombstones and expired values
        self._gone: dict[bytes, int] = {}  # events that acknowledged operations replaced for certain
        self._former: dict[ModelDot, Mint] = {}  # in `_gone`; may have replaced one of `ops` before

    # -- client operations ------------------------------------------------------------------------

    def begin(self, kind: OpKind, *, client: str = "", is_delete: bool = False, padding: int = 0) -> Op:
        """Begin a write and return it.

        Args:
            kind: how the write replaces earlier versions: "put", "with context" or "no context"; see `Op`.
            client: the client that writes; a write with a context uses the last one of this client.
            is_delete: whether to write a tombstone.
            padding: number of bytes to append to the value.
        """
        self.issued += 1
        value = None if is_delete else b"%s/%d" % (self.key, self.issued) + padding * PADDING
        context = self.contexts.get(client)
        given = versions.decode_context(context) if kind == "with context" and context else {}
        self.ops.append(Op(self.issued, value, kind, given, self._tick()))
        return self.ops[-1]

    def sent(self, op: Op, op_id: bytes) -> None:
        """Record that an operation is about to be sent under this operation id."""
        op.op_id = op_id
        self._by_id[op_id] = op

    def refused(self, op: Op) -> None:
        """Record that an operation was refused: it never takes effect."""
        self.ops = [other for other in self.ops if other is not op]
        self._refused.add(op.number)
        self._mints = {dot: mint for dot, mint in self._mints.items() if mint.op is not op}

    def acknowledged(self, op: Op, context: bytes, client: str = "", host: str = "", now: float = 0.0) -> str:
        """Note the acknowledgement of a write, after `saw` was called for its versions.

        Args:
            op: the write.
            context: the context in the acknowledgement; it is now the last one of `client`.
            client: the client that wrote.
            host: the machine that coordinated the write.
            now: the virtual second.

        Returns:
            The error in words if an acknowledged version shares its dot with another operation; otherwise "".
        """
        op.is_ok, op.acked = True, self._tick()
        self.contexts[client] = context
        mints = [mint for mint in op.dots.values() if mint.host == host] or list(op.dots.values())
        reported = _without(versions.decode_context(context), op.dots) if op.kind == "put" else op.given
        every = [reported if mint.covers is None else mint.covers for mint in mints]
        op.covers = {who: min(one.get(who, 0) for one in every) for who in every[0]} if every else {}
        self._raise_gone(op.covers)
        self._prune(now)
        reported_dots = [dot for dot in op.dots if covers(versions.decode_context(context), dot)]
        own = [dot for dot in reported_dots if op.dots[dot].host == host] or reported_dots
        return self._claim(own[-1], op.op_id, is_firm=True) if own else ""

    def lost(self, op: Op) -> None:
        """Record that no store has an acknowledged operation any more.

        From then on it is no error if versions that the operation had replaced are back.
        """
        op.is_lost = True
        self._gone = {}
        for context in (self._reaped, *(other.covers for other in self.required())):
            self._raise_gone(context)

    def reaped(self, op: Op, record: Record) -> None:
        """Record that no store knows an operation any more, because stores reaped it.

        A reaped value is no longer required: from then on a read may answer "not found". A scan of a calm ring may not
        show the value again, and no store may show it at the end of the run. The same holds for every version that
        `record` knows.

        For a delete the call does nothing. The delete stays required: versions that it replaced may not be back.

        Args:
            op: the reaped operation.
            record: the last tombstone that had replaced it, or the last record that knew it.
        """
        if op.value is not None:
            self.ops.remove(op)
            self._reaped.update(versions.context_of(record))
            self._raise_gone(self._reaped)

    def bury(self, record: Record) -> None:
        """Record that a store drops a record of tombstones and expired values.

        All events that the record knows count as dead from then on: deleted, replaced or expired.
        """
        for actor, count in versions.context_of(record).items():
            self._buried[actor] = max(count, self._buried.get(actor, 0))

    def is_buried(self, record: Record) -> bool:
        """Return whether `bury` has noted all events that a record knows as dead, those in quarantine included.

        The model still knows that when the reap logs of the stores have been trimmed.
        """
        return all(self._buried.get(one.actor, 0) >= one.count for one in (*record.clock, *record.quarantine))

    # -- versions in stores -----------------------------------------------------------------------

    def saw(self, record: Record, host: str = "", *, is_own: bool = False, now: float = 0.0) -> str:
        """Note the versions of a record in a store.

        Args:
            record: the record.
            host: the machine of the store.
            is_own: whether this store has just minted the newest version. A crash may take such a version back, unless
                another store knows it or the store has acknowledged it. Its dot then names another operation later.
            now: the virtual second; the time to live of a new version runs from it.

        Returns:
            The error in words if a dot names two operations; otherwise "".
        """
        wrong = ""
        for dot, op_id in dots_in(record).items():
            op = self._by_id.get(op_id)
            if op is not None and dot not in op.dots:
                mint = op.dots[dot] = Mint(op, host if is_own else "", self._covered(op, record, dot, is_own))
                self._minted(op, now)
                if op.number not in self._refused:
                    self._mints[dot] = mint
            is_elsewhere = op is None or op.dots[dot].host != host  # a merge in the minter's store proves nothing
            wrong = self._claim(dot, op_id, is_firm=not is_own and is_elsewhere) or wrong
        while len(self._names) > DOTS_MAX:
            del self._names[next(iter(self._names))]
        return wrong

    def sent_early(self, record: Record, now: float) -> None:
        """Note the version of an early put, which its coordinator sends before it stores it.

        The version counts as minted when a store has it. `now` is the virtual second; its time to live runs from it.
        """
        for dot, op_id in dots_in(record).items():
            op = self._by_id.get(op_id)
            if op is not None and dot not in op.dots:
                self._unstored[op_id, dot] = self._covered(op, record, dot, is_own=True)
                self._minted(op, now)

    def crashed(self, host: str, left: Sequence[Record]) -> None:
        """Forget the versions that only a dead node knew and its disk lacks.

        Versions that were on its disk until it reaped them stay. The dots of the forgotten versions may name other
        operations later.

        Args:
            host: the machine of the dead node.
            left: the records on its disk, and the copies in all other stores. A copy may know a dot by a later dot of
                the same actor.
        """
        for op in self._by_id.values():
            for dot in [dot for dot, mint in op.dots.items() if mint.host == host]:
                is_firm = self._names.get(dot, {}).get(op.op_id, True)
                is_reaped = self._buried.get(dot[0], 0) >= dot[1]  # a store reaps only durable records
                if not is_firm and not is_reaped and not any(knows(record, dot) for record in left):
                    self._unstored[op.op_id, dot] = op.dots[dot].covers
                    del op.dots[dot], self._names[dot][op.op_id]
                    self._mints.pop(dot, None)
                    self._former.pop(dot, None)

    def unminted(self, record: Record) -> Op | None:
        """Return an operation with a version in a record that no store was seen to mint; None without one."""
        for dot, op_id in dots_in(record).items():
            op = self._by_id.get(op_id)
            if op is not None and dot in op.dots and op.dots[dot].covers is None:
                return op
        return None

    def _covered(self, op: Op, record: Record, dot: ModelDot, is_own: bool) -> Covers | None:
        if op.kind != "put":
            return op.given
        return _without(versions.context_of(record), [dot]) if is_own else self._unstored.get((op.op_id, dot))

    def _claim(self, dot: ModelDot, op_id: bytes, *, is_firm: bool) -> str:
        """Record that a dot names this operation; return an error if it names another too.

        Args:
            is_firm: whether other nodes or clients may rely on the dot. Two operations with one dot are an error only
                if both are firm.
        """
        names = self._names.setdefault(dot, {})
        names[op_id] = names.get(op_id, False) or is_firm
        if len(names) > 1 and sum(names.values()) > 1:
            return f"a dot was minted twice: {dot[0].hex()} {dot[1]}"
        return ""

    # -- requirements -----------------------------------------------------------------------------

    def was_written(self, value: bytes) -> bool:
        """Return whether a client wrote a value here, and the write was not refused."""
        key, _, number = value.rstrip(PADDING).rpartition(b"/")
        is_of_key = key == self.key and number.isdigit()
        return is_of_key and 1 <= int(number) <= self.issued and int(number) not in self._refused

    def every(self) -> list[Op]:
        """Return every operation sent, even if refused, or replaced before its answer.

        Of the operations that no longer matter, the model remembers only the latest 256 (`DOTS_MAX`).
        """
        return list({**dict.fromkeys(self._by_id.values()), **dict.fromkeys(self.ops)})

    def required(self) -> list[Op]:
        """Return the acknowledged operations that the ring must still have, oldest first.

        Operations that were lost or surely replaced are left out, and values that were reaped. Deletes stay, even if
        they were reaped.
        """
        return [op for op in self.ops if op.is_ok and not op.is_lost]

    def expiry(self, value: bytes) -> tuple[float, float]:
        """Return the first and the last virtual second at which a value may expire.

        Both are infinite for a value without a time to live.
        """
        return self._expiring.get(value, (math.inf, math.inf))

    def lives(self, op: Op, ttl_s: float | None, now: float) -> None:
        """Note the time to live of a value before it is sent; None: unlimited.

        The time runs from the moment when a store mints the version. `now` is the virtual second.
        """
        if op.value is not None and ttl_s is not None:
            op.ttl_s = ttl_s
            op.expires = self._expiring[op.value] = (now + ttl_s - SLACK_S, math.inf)

    def _minted(self, op: Op, now: float) -> None:
        """Start the time to live of an operation: a store mints a version of it now."""
        if op.value is not None and op.ttl_s is not None:
            last = now + op.ttl_s + SLACK_S
            is_first = math.isinf(op.expires[1])
            first = last - 2 * SLACK_S if is_first else op.expires[0]
            op.expires = self._expiring[op.value] = (first, last)

    def must_be_found(self, now: float) -> list[Op]:
        """Return the acknowledged values for which "not found" is an error.

        Each was acknowledged by at least a quorum.

        Args:
            now: the virtual second; values that may have expired by then are left out.
        """
        return [
            op
            for op in self.required()
            if op.value is not None and op.w >= op.quorum and now < op.expires[0] and not self.may_be_deleted(op, now)
        ]

    def may_be_deleted(self, op: Op, now: float, since: float = math.inf) -> bool:
        """Return whether a delete, or a value expired by `now`, may have replaced an operation; see `_replacements`."""
        return any(new.value is None or new.expires[0] <= now for new in self._replacements(op, since))

    def _replacements(self, op: Op, since: float) -> Iterator[Op]:
        """Yield the operations that may have replaced an operation, also indirectly.

        Those that were replaced for certain themselves count only if that was at virtual second `since` or later.
        """
        mints = [*self._mints.values(), *(mint for mint in self._former.values() if mint.dropped_s >= since)]
        todo, seen = [op], {op.number, *self._refused}
        while todo:
            dots = todo.pop().dots
            for mint in mints:
                if mint.op.number not in seen and mint.may_cover(dots):
                    yield mint.op
                    seen.add(mint.op.number)
                    todo.append(mint.op)

    def gone(self) -> Covers:
        """Return the events (dots) that acknowledged operations have replaced for certain by now, as a context."""
        return dict(self._gone)

    def shown_again(self, values: Iterable[bytes], gone: Covers) -> Op | None:
        """Return an operation that a read shows although it was replaced, or None.

        `values` are the values that the read shows, and `gone` the events replaced before it.
        """
        shown = frozenset(values)
        for op in self._by_id.values():
            if op.value in shown and op.dots and all(covers(gone, dot) for dot in op.dots):
                return op
        return None

    def is_shown(self, op: Op, values: Iterable[bytes], since: float) -> bool:
        """Return whether a read shows an operation's value or a replacement of it; see `_replacements`."""
        shown = frozenset(values)
        return op.value in shown or any(new.value in shown for new in self._replacements(op, since))

    def wrong(self, merged: Record | None, now: float) -> list[str]:
        """Return the errors in the merged copies of the key, in words; empty if none.

        Args:
            merged: all copies of the record, merged; None: no store has one.
            now: the virtual second; values that may have expired by then may be missing.
        """
        found: list[str] = []
        visible = {} if merged is None else dots_in(merged)
        shown = {} if merged is None else dict.fromkeys(version.op_id for version in versions.siblings(merged))
        for op in self.required():
            if op.replaces(merged):
                found.append(f"{op} has replaced a version that is there again")
            if op.value is None or op.op_id in shown or now >= op.expires[0]:
                continue
            if not op.is_in(merged):
                found.append(f"{op} was acknowledged, and no store has it")
            elif not self.is_replaced(op, merged) and not op.is_isolated_in(merged):
                found.append(f"{op} was acknowledged, and no version that may have replaced it is there")
        for dot, op_id in visible.items():
            if op_id in shown and covers(self._gone, dot) and not found:
                found.append(f"{self._by_id.get(op_id, 'an older write')} was replaced, and is back")
        return found

    def is_replaced(self, op: Op, merged: Record | None) -> bool:
        """Return whether a version that a record knows may have replaced an operation; False without a record."""
        if merged is None:
            return False
        known = (mint for dot, mint in self._mints.items() if mint.op is not op and knows(merged, dot))
        return any(mint.may_cover(op.dots) for mint in known)

    def hidden(self, context: bytes, shown: Iterable[bytes], before: int) -> Op | None:
        """Return an operation that a read should have shown and did not; otherwise None.

        The context of the read covers this operation, and no version that may have replaced it. A replacement that
        stores dropped as deleted or expired counts as covered. Values with a time to live do not count.

        Args:
            context: the context that the read returned.
            shown: the values that the read returned.
            before: a value of `KeyModel.clock`; only values acknowledged by then count.
        """
        seen, covered = frozenset(shown), versions.decode_context(context)
        for op in self.required():
            is_old = op.acked is not None and op.acked <= before and op.value is not None and op.value not in seen
            is_hidden = is_old and op.dots and all(covers(covered, dot) for dot in op.dots)
            if is_hidden and math.isinf(op.expires[0]) and not self._is_covered_by(op, covered):
                return op
        return None

    def _is_covered_by(self, op: Op, context: Covers) -> bool:
        others = [(dot, mint) for dot, mint in self._mints.items() if mint.op is not op]
        known = (mint for dot, mint in others if covers(context, dot) or covers(self._buried, dot))
        return any(mint.may_cover(op.dots) for mint in known)

    def left_beside(self, op: Op, merged: Record | None, w_min: int, now: float) -> list[Op]:
        """Return the operations that a put should have replaced and did not.

        Only an `op` of kind "put" is judged, because such a put first reads a quorum. There it finds each write that a
        write quorum of the replica set had before the put began. The put may miss a write if all nodes that had it are
        gone. The model does not know that, but `LossAccounting.in_reach` does.

        Args:
            op: the acknowledged put.
            merged: all copies of the record, merged; None: no store has one.
            w_min: least W of an old write. The put need not find writes with a smaller W, because its read quorum may
                miss all their nodes.
            now: the virtual second. A value that has expired by then may be reaped, while a copy of it waits for the
                reap log.
        """
        if op.kind != "put" or not op.is_strict or merged is None:
            return []
        shown = {version.op_id for version in versions.siblings(merged)}
        before = [old for old in self.required() if old.is_strict and old.w >= w_min and (old.acked or 0) < op.began]
        living = [old for old in before if now < old.expires[0]]
        return [old for old in living if old.op_id in shown and len(old.dots) == 1 and old is not op]

    @property
    def clock(self) -> int:
        """Number of starts and acknowledgements of this key's operations so far."""
        return self._clock

    # -- inside -----------------------------------------------------------------------------------

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _raise_gone(self, context: Covers) -> None:
        for who, count in context.items():
            if count > self._gone.get(who, 0):
                self._gone[who] = count

    def _prune(self, now: float) -> None:
        """Forget the operations that were replaced for certain. An operation with a version elsewhere remains.

        Contexts are closed: they also cover the events that those operations had replaced.
        """
        gone = self._gone
        self.ops = [op for op in self.ops if not (op.dots and all(covers(gone, dot) for dot in op.dots))]
        for dot in [dot for dot in self._mints if covers(gone, dot)]:
            self._former[dot] = replace(self._mints.pop(dot), dropped_s=now)
        self._former = {dot: one for dot, one in self._former.items() if any(one.may_cover(o.dots) for o in self.ops)}
        while len(self._by_id) > DOTS_MAX:
            del self._by_id[next(iter(self._by_id))]
