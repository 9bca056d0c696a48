"""The measurements of `bench`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from chord.views.common import Json


class BenchRow(NamedTuple):
    """The measurement of one operation, with the fields of its JSON object in order.

    Attributes:
        op: the operation, such as "put".
        quorum: the R or W of the operation; None if it has none.
        at_once: the number of concurrent operations.
        ops: the number of operations that succeeded.
        per_s: successful operations per second.
        p50_ms, p99_ms, p999_ms: the median, the 99 % and the 99.9 % quantile of their times, in ms; None without a
            success.
        round_trips: the median time as a multiple of the round-trip time; None without a success, and for concurrent
            operations.
        round_trips_max: the largest number of round trips with which the row passes; None if no bound applies.
        verdict: "PASS" or "FAIL"; None without a bound.
        errors: the number of operations that failed.
        error_codes: the number of failures, by the word of the error.
    """

    op: str
    quorum: int | None
    at_once: int
    ops: int
    per_s: float
    p50_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    round_trips: float | None
    round_trips_max: float | None
    verdict: str | None
    errors: int
    error_codes: Mapping[str, int]


class BenchResult(NamedTuple):
    """A measurement of a ring, with the fields of its JSON object in order.

    Attributes:
        nodes: the number of nodes that answer.
        unreachable: the addresses of known nodes that do not answer.
        replicas: the number of copies of each key, N.
        on_disk: whether any node has a data directory.
        keys: the number of keys that the operations use.
        value_bytes: the size of each value.
        seconds: the duration of each row; None if `ops` limits it.
        ops: the number of operations of each row; None if `seconds` limits it.
        rows: the measurement of each operation.
        verdict: "PASS" or "FAIL"; None if interrupted. With an unreachable node it is "FAIL".
        interrupted: whether the user ended the measurement early.
        left_behind: the number of test keys that could not be deleted.
    """

    nodes: int
    unreachable: Sequence[str]
    replicas: int
    on_disk: bool
    keys: int
    value_bytes: int
    seconds: float | None
    ops: int | None
    rows: Sequence[BenchRow]
    verdict: str | None
    interrupted: bool
    left_behind: int


def bench_json(result: BenchResult) -> Json:
    """Return a measurement as JSON, with all its rows."""
    return {**result._asdict(), "rows": [row._asdict() for row in result.rows]}
