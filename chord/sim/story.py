"""What the one writer of a key was told, and what follows: which values must be there, and which may not.

The writer makes one operation after the other. An operation whose outcome nobody said may still be under way when the
next begins, and then covers that one's value: so it goes on counting as possible for a while. What an acknowledged
operation has covered is read from the context of its acknowledgement.

Source: causal histories as the reference for version vectors, Preguica et al. 2010, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from chord.data import versions
from chord.messages import Record

ARRIVES_S = 60.0
"""What nobody said anything of for so long was done by now, or never will be."""
DOTS_MAX = 256

Kind: TypeAlias = Literal["put", "with context", "blind"]
Dot: TypeAlias = tuple[bytes, int]


class Op:
    """One write, of a value or (None) a tombstone.

    Attributes:
        number: among those of its key.
        covers: what its writer had read where it says so; else, once acknowledged, what the coordinator has found.
        dots: under which it is stored: of each attempt that came through one.
        is_ok: acknowledged; None while nobody has said anything.
        ended_s: when its writer stopped waiting.
        w: on so many nodes, by the acknowledgement.
        is_strict: all of these keep the key; no fallback stood in.
        is_lost: nobody has it any more, and nobody is to blame.
    """

    __slots__ = ("covers", "dots", "ended_s", "is_lost", "is_ok", "is_strict", "kind", "number", "op_id", "value", "w")

    def __init__(self, number: int, value: bytes | None, kind: Kind, covers: Mapping[bytes, int]) -> None:
        self.number = number
        self.value = value
        self.kind = kind
        self.covers = covers
        self.op_id = b""
        self.dots: dict[Dot, None] = {}
        self.is_ok = False
        self.ended_s: float | None = None
        self.w = 0
        self.is_strict = False
        self.is_lost = False

    def __str__(self) -> str:
        word = "delete" if self.value is None else self.kind
        return f"{word} {self.number}" + (" (lost)" if self.is_lost else "" if self.is_ok else " (unknown)")

    def may_cover(self, other: Op, now: float) -> bool:
        """Whether this one may have replaced what another has written."""
        if self is other or self.kind == "blind":
            return False
        if self.kind == "with context":
            return not other.dots or any(covers(self.covers, dot) for dot in other.dots)
        is_late = not self.is_ok and (self.ended_s is None or now - self.ended_s < ARRIVES_S)
        return self.number > other.number or is_late

    def is_in(self, record: Record | None) -> bool:
        """Whether a record knows of it, whatever has become of it since."""
        return record is not None and any(knows(record, dot) for dot in self.dots)

    def replaces(self, record: Record | None) -> bool:
        """Whether something stands in a record that this one has covered."""
        if self.kind == "blind" or record is None:
            return False
        return any(covers(self.covers, dot) for dot in dots_in(record))


def covers(context: Mapping[bytes, int], dot: Dot) -> bool:
    """Whether a context covers a dot."""
    return context.get(dot[0], 0) >= dot[1]


def knows(record: Record, dot: Dot) -> bool:
    """Whether a record has a dot in its history."""
    return any(entry.actor == dot[0] and entry.count >= dot[1] for entry in record.clock)


def dots_in(record: Record) -> dict[Dot, bytes]:
    """Return the dots of a record's versions, and the operation of each."""
    return {
        (entry.actor, entry.count - place): version.op_id
        for entry in record.clock
        for place, version in enumerate(entry.versions)
    }


class Story:
    """One key's life as its writer knows it.

    Attributes:
        ops: what still matters: not refused, and not covered by an acknowledged one.
        issued: how many there ever were.
        context: the writer's last, of a read or an acknowledgement.
        owner: the address that coordinated the last acknowledged write.
        has_lost: operations of this key are lost; then what they had replaced may be back.
    """

    __slots__ = ("_refused", "_replaced", "_seen", "context", "has_lost", "issued", "key", "ops", "owner", "point")

    def __init__(self, key: bytes, point: int) -> None:
        self.key = key
        self.point = point
        self.ops: list[Op] = []
        self.issued = 0
        self.context: bytes | None = None
        self.owner = ""
        self.has_lost = False
        self._refused: set[int] = set()
        self._replaced: dict[bytes, str] = {}  # acknowledged operations, by their ids
        self._seen: dict[Dot, bytes] = {}

    # -- what the writer does ---------------------------------------------------------------------

    def begin(self, kind: Kind, *, is_delete: bool = False) -> Op:
        """A write begins."""
        self.issued += 1
        value = None if is_delete else b"%s/%d" % (self.key, self.issued)
        given = versions.decode_context(self.context) if kind == "with context" and self.context else {}
        self.ops.append(Op(self.issued, value, kind, given))
        return self.ops[-1]

    def refused(self, op: Op) -> None:
        """Nothing happened, and nothing ever will."""
        self.ops.remove(op)
        self._refused.add(op.number)

    def unknown(self, op: Op, now: float) -> None:
        """Nobody said what became of it."""
        op.ended_s = now

    def acknowledged(self, op: Op, context: bytes, now: float) -> None:
        """It is done. Its dots must be known by now."""
        op.is_ok, op.ended_s, self.context = True, now, context
        if op.kind == "put":
            found = versions.decode_context(context)
            op.covers = {who: count - ((who, count) in op.dots) for who, count in found.items()}
        for old in self.ops:
            if old.is_ok and old is not op and any(covers(op.covers, dot) for dot in old.dots):
                self._replaced[old.op_id] = str(old)
        while len(self._replaced) > DOTS_MAX:
            del self._replaced[next(iter(self._replaced))]
        self.ops = [o for o in self.ops if o is op or not self._is_over(o, op, now)]

    def _is_over(self, old: Op, by: Op, now: float) -> bool:
        if not old.is_ok and (old.ended_s is None or now - old.ended_s < ARRIVES_S):
            return False
        return bool(old.dots or old.ended_s) and all(covers(by.covers, dot) for dot in old.dots)

    def reaped(self, op: Op) -> None:
        """The tombstone that an acknowledged operation left, or that has replaced its value, is gone on proof."""
        if op.value is not None:
            self.ops.remove(op)
            self._replaced[op.op_id] = str(op)

    # -- what must be ---------------------------------------------------------------------------

    def was_written(self, value: bytes) -> bool:
        """Whether a value was ever written here, as far as anybody knows."""
        key, _, number = value.rpartition(b"/")
        return key == self.key and 1 <= int(number) <= self.issued and int(number) not in self._refused

    def required(self) -> list[Op]:
        """Return the acknowledged operations that were not lost."""
        return [op for op in self.ops if op.is_ok and not op.is_lost]

    def must_be_found(self, now: float, w_min: int) -> list[Op]:
        """Return the values of which not one may be denied: of all that no delete may have covered.

        Args:
            w_min: acknowledged by fewer nodes, it may be.
        """
        deletes = [op for op in self.ops if op.value is None]
        return [
            op
            for op in self.required()
            if op.value is not None and op.w >= w_min and not any(one.may_cover(op, now) for one in deletes)
        ]

    def wrong(self, merged: Record | None, now: float) -> list[str]:
        """Return what is wrong with all that there is of the key together, in words; nothing, if all is well."""
        found: list[str] = []
        shown = {} if merged is None else dict.fromkeys(version.op_id for version in versions.siblings(merged))
        if not self.has_lost:
            back = [self._replaced[op_id] for op_id in shown if op_id in self._replaced]
            found += [f"{op} was replaced, and is back" for op in back]
        for op in self.required():
            if op.replaces(merged):
                found.append(f"{op} has replaced what is there again")
            if op.value is None or op.op_id in shown:
                continue
            if not op.is_in(merged):
                found.append(f"{op} was acknowledged, and nobody has it")
            elif not any(other.may_cover(op, now) for other in self.ops) and not self._is_covered(op):
                found.append(f"{op} was acknowledged, and is replaced by nothing that could")
        return found

    def _is_covered(self, op: Op) -> bool:
        return any(o.is_ok and any(covers(o.covers, dot) for dot in op.dots) for o in self.ops if o is not op)

    def left_beside(self, op: Op, merged: Record | None, w_min: int) -> list[Op]:
        """Return what an operation without a context should have replaced, and has not.

        It reads a quorum first, and finds there what a write quorum had before it began, both of those who keep the
        key; unless none of these is there any more, which a story does not know (see `Losses.in_reach`).

        Args:
            w_min: with fewer nodes, the two need not have met.
        """
        if op.kind != "put" or not op.is_strict or merged is None:
            return []
        shown = {version.op_id for version in versions.siblings(merged)}
        before = [old for old in self.required() if old.number < op.number and old.is_strict and old.w >= w_min]
        return [old for old in before if old.op_id in shown and len(old.dots) == 1]  # a late second copy may be seen

    def saw(self, record: Record, *, is_shared: bool = True) -> str:
        """Take note of the dots in a store. Returns what is wrong: one that names two operations.

        Args:
            is_shared: others than the node that minted the newest know it. What nobody knew may be minted again.
        """
        for dot, op_id in dots_in(record).items():
            for op in self.ops:
                if op.op_id == op_id:
                    op.dots[dot] = None
            if is_shared and self._seen.setdefault(dot, op_id) != op_id:
                return f"a dot was minted twice: {dot[0].hex()} {dot[1]}"
        while len(self._seen) > DOTS_MAX:
            del self._seen[next(iter(self._seen))]
        return ""
