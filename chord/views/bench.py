"""The measurements of `bench`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from chord.views.common import Json


class BenchRow(NamedTuple):
    """The measurement of one operation, with the fields of its JSON object in order."""

    op: str
    quorum: int | None  # the R or W of the operation; None if it has none
    at_once: int  # the number of concurrent operations
    ops: int  # the number of successes
    per_s: float  # successes per second
    p50_ms: float | None  # the median time; None if no operation succeeded
    p99_ms: float | None
    p999_ms: float | None
    round_trips: float | None  # the median time in round trips
    round_trips_max: float | None  # the bound; None if none applies
    verdict: str | None  # PASS, FAIL, or None without a bound
    errors: int  # the number of failures
    error_codes: Mapping[str, int]  # the number of failures, by the word of the error


class BenchResult(NamedTuple):
    """A measurement of a ring; its fields are those of the JSON object, in this order."""

    nodes: int  # the number of nodes that answer
    unreachable: Sequence[str]  # the addresses of known nodes that do not answer
    replicas: int  # the number of copies of each key
    on_disk: bool  # whether any node has a data directory
    keys: int  # the number of keys
    value_bytes: int  # the size of a value
    seconds: float | None  # the duration of each row, or None if `ops` limits it
    ops: int | None  # the number of operations of each row, or None if `seconds` limits it
    rows: Sequence[BenchRow]
    verdict: str | None  # PASS, FAIL, or None if interrupted. An unreachable node is a FAIL, too
    interrupted: bool
    left_behind: int  # the number of test keys that could not be deleted


def bench_json(result: BenchResult) -> Json:
    """Return a measurement with all its rows."""
    return {**result._asdict(), "rows": [row._asdict() for row in result.rows]}
