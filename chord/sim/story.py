"""One key: every write of it, every version that a store minted, and what follows from these.

Any number of clients write a key at the same time. The simulator sees every store, so nothing here is guessed. A
version covers exactly what its coordinator found when it minted the version: the record's clock, or the context that
the client named, or nothing if the put is blind. A write that nobody answered matters once a store has minted it.

Source: causal histories as the reference for version vectors, Preguica et al. 2010, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from chord.store import versions
from chord.wire.messages import ActorClock, Record

SLACK_S = 0.002
"""Wall clocks and times to live count milliseconds."""
DOTS_MAX = 256
"""A story remembers the operations behind this many dots, the latest ones."""

PADDING = b"~"

Kind: TypeAlias = Literal["put", "with context", "blind"]
Dot: TypeAlias = tuple[bytes, int]
Covers: TypeAlias = Mapping[bytes, int]


class Mint:
    """One version of an operation.

    Attributes:
        host: the machine that minted it; "" if the ring does not tell what its stores take.
        covers: what it replaced; None if the ring does not tell.
    """

    __slots__ = ("covers", "host", "op")

    def __init__(self, op: Op, host: str, covers: Covers | None) -> None:
        self.op = op
        self.host = host
        self.covers = covers

    def may_cover(self, dots: Iterable[Dot]) -> bool:
        """Whether this version may have replaced one of these."""
        return self.covers is None or any(covers(self.covers, dot) for dot in dots)


class Op:
    """One write, of a value or (None) a tombstone.

    Attributes:
        number: among those of its key.
        given: the context that its client named; empty for a blind put.
        covers: what it has replaced for certain, once it is acknowledged.
        dots: its versions: one for each attempt that a store minted.
        began, acked: when, on the story's own clock, which counts beginnings and acknowledgements.
        is_ok: acknowledged.
        w: on this many nodes, by the acknowledgement.
        quorum: the write quorum of the ring at that time, which is smaller if the ring had fewer nodes.
        split: when it was acknowledged, and the coordinator's host, if a split lasted then; None once the parts are one
            ring again.
        is_strict: all of these are members of the replica set; no stand-in counted.
        is_contested: nodes of several rings answered for its key when it was acknowledged.
        is_out: a disk that had it was lost since.
        is_lost: no store has it any more, and enough disks were lost to explain that.
        vanished: lost copies of it, since all members last had it.
        dropped: the machines of leaving nodes that dropped a copy of it.
        is_buried: a store dropped a tombstone, or a value that may have expired, that had replaced it.
        tombstone: such a record that does not show it, or the last that knew it.
        is_reaped: no store has it any more, because it was reaped.
        calm: the oracle's count of disturbances when it began, if the ring was calm then.
        expires: the first and the last virtual second at which the value may expire; infinite without a time to live.
        ttl_s: its time to live, which begins when a store mints it.
    """

    __slots__ = (
        "acked", "began", "calm", "covers", "dots", "dropped", "expires", "given", "is_buried", "is_contested",
        "is_lost", "is_ok", "is_out", "is_reaped", "is_strict", "kind", "number", "op_id", "quorum", "split",
        "tombstone", "ttl_s", "value", "vanished", "w",
    )  # fmt: skip

    def __init__(self, number: int, value: bytes | None, kind: Kind, given: Covers, began: int) -> None:
        self.number = number
        self.value = value
        self.kind = kind
        self.given = given
        self.covers: Covers = {}
        self.op_id = b""
        self.dots: dict[Dot, Mint] = {}
        self.began = began
        self.acked: int | None = None
        self.is_ok = False
        self.w = self.quorum = 0
        self.split: tuple[float, str] | None = None
        self.is_strict = False
        self.is_buried = False
        self.tombstone: Record | None = None
        self.is_reaped = False
        self.is_contested = False
        self.is_out = False
        self.is_lost = False
        self.vanished = 0
        self.dropped: set[str] = set()
        self.calm: int | None = None
        self.expires = (math.inf, math.inf)
        self.ttl_s: float | None = None

    def __str__(self) -> str:
        word = "delete" if self.value is None else self.kind
        return f"{word} {self.number}" + (" (lost)" if self.is_lost else "" if self.is_ok else " (unknown)")

    def is_in(self, record: Record | None) -> bool:
        """Whether a record knows of it, also if it was replaced since. A value in quarantine is not lost."""
        return record is not None and any(knows(record, dot) for dot in self.dots)

    def is_open_in(self, record: Record | None) -> bool:
        """Whether a read of a record takes it into account. A read shows no value that is in quarantine only."""
        return record is not None and any(_is_in_clock(record.clock, dot) for dot in self.dots)

    def is_isolated_in(self, record: Record | None) -> bool:
        """Whether a record has its value in quarantine, and does not show it."""
        if record is None or all(version.op_id != self.op_id for one in record.quarantine for version in one.versions):
            return False
        return all(version.op_id != self.op_id for version in versions.siblings(record))

    def replaces(self, record: Record | None) -> bool:
        """Whether a record shows something that this operation has replaced for certain."""
        return record is not None and any(covers(self.covers, dot) for dot in dots_in(record))


def covers(context: Covers, dot: Dot) -> bool:
    """Whether a context covers a dot."""
    return context.get(dot[0], 0) >= dot[1]


def knows(record: Record, dot: Dot) -> bool:
    """Whether a record has a dot in its history, or in quarantine."""
    return _is_in_clock(record.clock, dot) or _is_in_clock(record.quarantine, dot)


def _is_in_clock(clock: Iterable[ActorClock], dot: Dot) -> bool:
    return any(entry.actor == dot[0] and entry.count >= dot[1] for entry in clock)


def dots_in(record: Record) -> dict[Dot, bytes]:
    """Return the dots of a record's versions, and the operation of each."""
    return {
        (entry.actor, entry.count - place): version.op_id
        for entry in record.clock
        for place, version in enumerate(entry.versions)
    }


def _without(context: Covers, dots: Iterable[Dot]) -> dict[bytes, int]:
    """Return a context that covers the same events, but not these dots, each the last of its actor."""
    last = dict(iter(dots))
    return {who: count - (last.get(who) == count) for who, count in context.items()}


class Story:
    """What is known of one key.

    Attributes:
        ops: what still matters: not refused, and not replaced for certain.
        issued: how many operations there ever were.
        contexts: the last context that each client read or was given.
        owner: the address that coordinated the last acknowledged write.
        dropped_at: when each machine last began to remove its record, or lost it. The disk may have refused a removal.
    """

    __slots__ = (
        "_buried", "_by_id", "_clock", "_expiring", "_gone", "_mints", "_names", "_reaped", "_refused", "_taken_back",
        "contexts", "dropped_at", "issued", "key", "ops", "owner", "point",
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
        self._mints: dict[Dot, Mint] = {}
        self._taken_back: dict[tuple[bytes, Dot], Covers | None] = {}  # by crashes; a copy may be under way
        self._names: dict[Dot, dict[bytes, bool]] = {}  # by dot: the operations, and whether others rely on it
        self._reaped: dict[bytes, int] = {}  # of tombstones
        self._buried: dict[bytes, int] = {}  # of tombstones and expired values that a store dropped
        self._gone: dict[bytes, int] = {}  # what acknowledged operations have replaced for certain

    # -- what clients do --------------------------------------------------------------------------

    def begin(self, kind: Kind, *, client: str = "", is_delete: bool = False, padding: int = 0) -> Op:
        """A write begins."""
        self.issued += 1
        value = None if is_delete else b"%s/%d" % (self.key, self.issued) + padding * PADDING
        context = self.contexts.get(client)
        given = versions.decode_context(context) if kind == "with context" and context else {}
        self.ops.append(Op(self.issued, value, kind, given, self._tick()))
        return self.ops[-1]

    def sent(self, op: Op, op_id: bytes) -> None:
        """An operation is about to be sent under this id."""
        op.op_id = op_id
        self._by_id[op_id] = op

    def refused(self, op: Op) -> None:
        """Nothing happened, and nothing ever will."""
        self.ops = [other for other in self.ops if other is not op]
        self._refused.add(op.number)
        self._mints = {dot: mint for dot, mint in self._mints.items() if mint.op is not op}

    def acknowledged(self, op: Op, context: bytes, client: str = "", host: str = "") -> str:
        """A write is done. The story must have seen its versions by now.

        Args:
            context: as the client was given it.
            host: the machine that coordinated it.
        Returns:
            What is wrong, in words: an acknowledged version shares its dot with another operation.
        """
        op.is_ok, op.acked = True, self._tick()
        self.contexts[client] = context
        mints = [mint for mint in op.dots.values() if mint.host == host] or list(op.dots.values())
        told = _without(versions.decode_context(context), op.dots) if op.kind == "put" else op.given
        every = [told if mint.covers is None else mint.covers for mint in mints]
        op.covers = {who: min(one.get(who, 0) for one in every) for who in every[0]} if every else {}
        self._raise_gone(op.covers)
        self._prune()
        told_dots = [dot for dot in op.dots if covers(versions.decode_context(context), dot)]
        own = [dot for dot in told_dots if op.dots[dot].host == host] or told_dots
        return self._claim(own[-1], op.op_id, is_firm=True) if own else ""

    def lost(self, op: Op) -> None:
        """No store has an acknowledged operation any more: what it had replaced may be back."""
        op.is_lost = True
        self._gone = {}
        for context in (self._reaped, *(other.covers for other in self.required())):
            self._raise_gone(context)

    def reaped(self, op: Op, record: Record) -> None:
        """The tombstone that has replaced an operation is gone from the last store that knew the operation."""
        if op.value is not None:
            self.ops.remove(op)
            self._reaped.update(versions.context_of(record))
            self._raise_gone(self._reaped)

    def bury(self, record: Record) -> None:
        """A store drops a record of tombstones and expired values: what it knows is dead."""
        for actor, count in versions.context_of(record).items():
            self._buried[actor] = max(count, self._buried.get(actor, 0))

    def is_buried(self, record: Record) -> bool:
        """Whether all that a record knows is dead. A trimmed reap log does not tell any more."""
        return all(self._buried.get(actor, 0) >= count for actor, count in versions.context_of(record).items())

    # -- what stores take -------------------------------------------------------------------------

    def saw(self, record: Record, host: str = "", *, is_own: bool = False, now: float = 0.0) -> str:
        """Take note of the dots in a store. Returns what is wrong: one that names two operations.

        Args:
            is_own: this store has just minted the newest. A crash may take it back, unless another store knows it or
                the store has acknowledged it: then its dot names another operation later.
            now: the virtual second.
        """
        wrong = ""
        for dot, op_id in dots_in(record).items():
            op = self._by_id.get(op_id)
            if op is not None and dot not in op.dots:
                mint = op.dots[dot] = Mint(op, host if is_own else "", self._covered(op, record, dot, is_own))
                self._minted(op, now)
                if op.number not in self._refused:
                    self._mints[dot] = mint
            wrong = self._claim(dot, op_id, is_firm=not is_own) or wrong
        while len(self._names) > DOTS_MAX:
            del self._names[next(iter(self._names))]
        return wrong

    def crashed(self, host: str, left: Sequence[Record]) -> None:
        """A machine's node has died: dots that it alone knew name nothing now, unless its disk has them.

        Args:
            left: what is on its disk, and the copies in all other stores. A copy may know a dot by a later dot of the
                same actor.
        """
        for op in self._by_id.values():
            for dot in [dot for dot, mint in op.dots.items() if mint.host == host]:
                is_firm = self._names.get(dot, {}).get(op.op_id, True)
                if not is_firm and not any(knows(record, dot) for record in left):
                    self._taken_back[op.op_id, dot] = op.dots[dot].covers
                    del op.dots[dot], self._names[dot][op.op_id]
                    self._mints.pop(dot, None)

    def unminted(self, record: Record) -> Op | None:
        """Return an operation of which a record has a version that no store has minted."""
        for dot, op_id in dots_in(record).items():
            op = self._by_id.get(op_id)
            if op is not None and dot in op.dots and op.dots[dot].covers is None:
                return op
        return None

    def _covered(self, op: Op, record: Record, dot: Dot, is_own: bool) -> Covers | None:
        if op.kind != "put":
            return op.given
        return _without(versions.context_of(record), [dot]) if is_own else self._taken_back.get((op.op_id, dot))

    def _claim(self, dot: Dot, op_id: bytes, *, is_firm: bool) -> str:
        """Note that a dot is this operation's. It may not be another's too, if others rely on both."""
        names = self._names.setdefault(dot, {})
        names[op_id] = names.get(op_id, False) or is_firm
        if len(names) > 1 and sum(names.values()) > 1:
            return f"a dot was minted twice: {dot[0].hex()} {dot[1]}"
        return ""

    # -- what must be -----------------------------------------------------------------------------

    def was_written(self, value: bytes) -> bool:
        """Whether a value was ever written here, as far as anybody knows."""
        key, _, number = value.rstrip(PADDING).rpartition(b"/")
        return key == self.key and 1 <= int(number) <= self.issued and int(number) not in self._refused

    def every(self) -> list[Op]:
        """Return every operation that was sent, also one that was replaced before its answer arrived."""
        return list({**dict.fromkeys(self._by_id.values()), **dict.fromkeys(self.ops)})

    def required(self) -> list[Op]:
        """Return the acknowledged operations that were not lost."""
        return [op for op in self.ops if op.is_ok and not op.is_lost]

    def expiry(self, value: bytes) -> tuple[float, float]:
        """Return the first and the last moment at which a value may expire; infinite, if it has no time to live."""
        return self._expiring.get(value, (math.inf, math.inf))

    def lives(self, op: Op, ttl_s: float | None, now: float) -> None:
        """A value that is about to be sent has a time to live. It does not expire until a store has minted it."""
        if op.value is not None and ttl_s is not None:
            op.ttl_s = ttl_s
            op.expires = self._expiring[op.value] = (now + ttl_s - SLACK_S, math.inf)

    def _minted(self, op: Op, now: float) -> None:
        """A store mints a version of an operation now: if it lives for a while, that while begins."""
        if op.value is not None and op.ttl_s is not None:
            last = now + op.ttl_s + SLACK_S
            is_first = math.isinf(op.expires[1])
            first = last - 2 * SLACK_S if is_first else op.expires[0]
            op.expires = self._expiring[op.value] = (first, last)

    def must_be_found(self, now: float) -> list[Op]:
        """Return the acknowledged values that may not be denied. Each was acknowledged by at least a quorum.

        Args:
            now: a value whose time to live may be over does not count.
        """
        return [
            op
            for op in self.required()
            if op.value is not None and op.w >= op.quorum and now < op.expires[0] and not self.may_be_deleted(op, now)
        ]

    def may_be_deleted(self, op: Op, now: float) -> bool:
        """Whether a minted tombstone, or a value that may have expired, replaces an operation, or what replaces it."""
        todo, seen = [op], {op.number}
        while todo:
            dots = todo.pop().dots
            for mint in self._mints.values():
                if mint.op.number not in seen and mint.may_cover(dots):
                    if mint.op.value is None or mint.op.expires[0] <= now:
                        return True
                    seen.add(mint.op.number)
                    todo.append(mint.op)
        return False

    def gone(self) -> Covers:
        """Return what acknowledged operations have replaced for certain by now."""
        return dict(self._gone)

    def shown_again(self, values: Iterable[bytes], gone: Covers) -> Op | None:
        """Return an operation whose value is among these although all its versions were replaced."""
        shown = frozenset(values)
        for op in self._by_id.values():
            if op.value in shown and op.dots and all(covers(gone, dot) for dot in op.dots):
                return op
        return None

    def is_shown(self, op: Op, values: Iterable[bytes]) -> bool:
        """Whether the value of an operation is among these, or one that may have replaced it, directly or not."""
        shown, todo, seen = frozenset(values), [op], {op.number}
        while todo:
            now = todo.pop()
            if now.value in shown:
                return True
            for mint in self._mints.values():
                if mint.op.number not in seen and mint.may_cover(now.dots):
                    seen.add(mint.op.number)
                    todo.append(mint.op)
        return False

    def wrong(self, merged: Record | None, now: float) -> list[str]:
        """Return what is wrong with all that there is of the key together, in words; nothing, if all is well."""
        found: list[str] = []
        visible = {} if merged is None else dots_in(merged)
        shown = {} if merged is None else dict.fromkeys(version.op_id for version in versions.siblings(merged))
        for op in self.required():
            if op.replaces(merged):
                found.append(f"{op} has replaced what is there again")
            if op.value is None or op.op_id in shown or now >= op.expires[0]:
                continue
            if not op.is_in(merged):
                found.append(f"{op} was acknowledged, and nobody has it")
            elif not self.is_replaced(op, merged) and not op.is_isolated_in(merged):
                found.append(f"{op} was acknowledged, and is replaced by nothing that could")
        for dot, op_id in visible.items():
            if op_id in shown and covers(self._gone, dot) and not found:
                found.append(f"{self._by_id.get(op_id, 'an older write')} was replaced, and is back")
        return found

    def is_replaced(self, op: Op, merged: Record | None) -> bool:
        """Whether a version that these records know may have replaced an operation."""
        if merged is None:
            return False
        known = (mint for dot, mint in self._mints.items() if mint.op is not op and knows(merged, dot))
        return any(mint.may_cover(op.dots) for mint in known)

    def hidden(self, context: bytes, shown: Iterable[bytes], before: int) -> Op | None:
        """Return a value that a reader's context covers although the reader was not shown it, and nothing replaced it.

        Args:
            before: only of what was acknowledged by then.
        """
        seen, covered = frozenset(shown), versions.decode_context(context)
        for op in self.required():
            is_old = op.acked is not None and op.acked <= before and op.value is not None and op.value not in seen
            is_hidden = is_old and op.dots and all(covers(covered, dot) for dot in op.dots)
            if is_hidden and math.isinf(op.expires[0]) and not self._is_covered_by(op, covered):
                return op
        return None

    def _is_covered_by(self, op: Op, context: Covers) -> bool:
        known = (mint for dot, mint in self._mints.items() if mint.op is not op and covers(context, dot))
        return any(mint.may_cover(op.dots) for mint in known)

    def left_beside(self, op: Op, merged: Record | None, w_min: int, now: float) -> list[Op]:
        """Return what an operation without a context should have replaced, and has not.

        It reads a quorum first, and finds there what a write quorum had before it began, both of those who keep the
        key; unless none of these is there any more, which a story does not know (see `Losses.in_reach`).

        Args:
            w_min: with fewer nodes, the two need not have met.
            now: what has expired by now may have been reaped, and a copy of it wait for the reap log.
        """
        if op.kind != "put" or not op.is_strict or merged is None:
            return []
        shown = {version.op_id for version in versions.siblings(merged)}
        before = [old for old in self.required() if old.is_strict and old.w >= w_min and (old.acked or 0) < op.began]
        living = [old for old in before if now < old.expires[0]]
        return [old for old in living if old.op_id in shown and len(old.dots) == 1 and old is not op]

    @property
    def clock(self) -> int:
        """Beginnings and acknowledgements so far."""
        return self._clock

    # -- inside -----------------------------------------------------------------------------------

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _raise_gone(self, context: Covers) -> None:
        for who, count in context.items():
            if count > self._gone.get(who, 0):
                self._gone[who] = count

    def _prune(self) -> None:
        """Forget what was replaced for certain; contexts are closed, so what that had replaced is covered as well."""
        gone = self._gone
        self.ops = [op for op in self.ops if not (op.dots and all(covers(gone, dot) for dot in op.dots))]
        self._mints = {dot: mint for dot, mint in self._mints.items() if not covers(gone, dot)}
        while len(self._by_id) > DOTS_MAX:
            del self._by_id[next(iter(self._by_id))]
