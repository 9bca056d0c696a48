"""An operation of a history, and the JSON line that holds it.

See docs/reference/history-format.md. The checkers take a history literally. So a line that could mean two things is
refused, and not guessed at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from math import inf, isfinite
from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

Name: TypeAlias = str | int
HistoryValue: TypeAlias = str | int
State: TypeAlias = HistoryValue | None  # the content of a register; None is "not found"
OperationKind: TypeAlias = Literal["put", "get", "cas", "del"]
OperationStatus: TypeAlias = Literal["ok", "fail", "unknown"]

LINE_BYTES_MAX = 4 << 20
OPERATIONS_MAX = 2_000_000
SHOWN_CHARACTERS_MAX = 40


class BadHistory(ValueError):
    """A line of a history is not an operation, or the history is too long.

    Attributes:
        line: the number of the line, from 1.
        why: the reason, in words.
    """

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line = line
        self.why = why


class Operation(msgspec.Struct, frozen=True):
    """One operation of a client, and its outcome.

    Attributes:
        line: the number of its line in the history, from 1, which identifies the operation.
        client: the client that made it.
        key: the key that it reads or writes.
        kind: put, get, cas (compare and set) or del.
        status: ok (it happened), fail (it did not happen and never will) or unknown (it may have happened, or may
            still happen).
        start_s: when the client made the call, in seconds.
        end_s: when the answer came, in seconds; None if no answer came.
        old: the value that a cas replaces; None is "not found". Also None for other kinds.
        new: the value that a put or a cas writes; None for other kinds.
        found: the values that a get returned: none, one, or several siblings. Empty unless the get is ok.
    """

    line: int
    client: Name
    key: Name
    kind: OperationKind
    status: OperationStatus
    start_s: float
    end_s: float | None
    old: State = None
    new: State = None
    found: tuple[HistoryValue, ...] = ()

    @property
    def latest_s(self) -> float:
        """The time by which the operation had taken effect; infinity unless it is ok."""
        return self.end_s if self.status == "ok" and self.end_s is not None else inf

    @property
    def is_write(self) -> bool:
        """Whether the operation may change the value of its key."""
        return self.kind != "get"

    def __str__(self) -> str:
        """Return the operation in a few words, as reports of violations show it."""
        if self.kind == "get":
            text = f"get → {' | '.join(shown(v) for v in self.found) or shown(None)}" if self.status == "ok" else "get"
        elif self.kind == "cas":
            text = f"cas {shown(self.old)} → {shown(self.new)}"
        else:
            text = f"put {shown(self.new)}" if self.kind == "put" else "del"
        return text if self.status == "ok" else f"{text} ({self.status})"


class _Line(msgspec.Struct):
    """The fields of a JSON line, named as in docs/reference/history-format.md.

    Other fields of the line are ignored.
    """

    c: Name
    k: Name
    f: OperationKind
    st: OperationStatus
    t0: float
    t1: float | None = None
    a: HistoryValue | tuple[State, HistoryValue] | None = None
    v: HistoryValue | UnsetType | None = UNSET
    vs: tuple[HistoryValue, ...] | UnsetType = UNSET


_DECODER = msgspec.json.Decoder(_Line)


def shown(state: State) -> str:
    """Return a value as text for reports: as JSON, cut to 40 characters.

    None is shown as "not found".
    """
    if state is None:
        return "not found"
    text = json.dumps(state, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 1] + "…"


def read(lines: Iterable[bytes]) -> Iterator[Operation]:
    """Yield the operation of every line of a history that is not empty.

    Raises:
        BadHistory: a line is not an operation or has more than 4 MiB, or there are more than two million operations.
    """
    count = 0
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_BYTES_MAX:
            raise BadHistory(number, f"longer than {LINE_BYTES_MAX} bytes")
        if not line.strip():
            continue
        count += 1
        if count > OPERATIONS_MAX:
            raise BadHistory(number, f"a history has at most {OPERATIONS_MAX} operations")
        yield decode(line, number)


def decode(line: bytes, number: int) -> Operation:
    """Return the operation of one line; `number` is the line's number, from 1.

    Raises:
        BadHistory: the line is not an operation.
    """
    try:
        given = _DECODER.decode(line)
        _check_times(given)
        a = given.a
        if given.f in ("get", "del") and a is not None:
            raise ValueError(f'a {given.f} takes no arguments: "a" must be null or absent')
        old: State = None
        new: State = None
        if given.f == "put":
            if a is None or isinstance(a, tuple):
                raise ValueError('the "a" of a put is the value: text or a whole number')
            new = a
        elif given.f == "cas":
            if not isinstance(a, tuple):
                raise ValueError('the "a" of a cas is [old, new]; an old of null is "not found"')
            old, new = a
        found = _found(given)
    except (ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors
        raise BadHistory(number, str(error)) from None
    return Operation(number, given.c, given.k, given.f, given.st, given.t0, given.t1, old, new, found)


def encode(operation: Operation) -> bytes:
    """Return the JSON line of an operation, without the newline and the line's number."""
    kind, found = operation.kind, operation.found
    arguments = {"put": operation.new, "cas": [operation.old, operation.new]}.get(kind)
    line = {
        "c": operation.client, "k": operation.key, "f": kind, "a": arguments, "v": found[0] if found else None,
        "st": operation.status, "t0": operation.start_s, "t1": operation.end_s,
    }
    if len(found) > 1:
        line["vs"] = list(found)
        del line["v"]
    return msgspec.json.encode(line)


def _check_times(given: _Line) -> None:
    if not isfinite(given.t0) or (given.t1 is not None and not isfinite(given.t1)):
        raise ValueError("a time is a finite number of seconds")
    if given.t1 is None and given.st == "ok":
        raise ValueError('an ok operation has ended: "t1" must be a number')
    if given.t1 is not None and given.t1 < given.t0:
        raise ValueError('"t1" is before "t0"')


def _found(given: _Line) -> tuple[HistoryValue, ...]:
    if given.f != "get" or given.st != "ok":
        if given.v not in (UNSET, None) or given.vs is not UNSET:
            raise ValueError('only a get that is ok has a "v" or "vs"')
        return ()
    if given.vs is not UNSET:
        if given.v is not UNSET:
            raise ValueError('a get has "v" or "vs", not both')
        if len(given.vs) < 2 or len(set(given.vs)) < len(given.vs):
            raise ValueError('"vs" holds two or more different values; one value, or null for none, is "v"')
        return given.vs
    if given.v is UNSET:
        raise ValueError('an ok get has a "v"; null is "not found"')
    return () if given.v is None else (given.v,)
