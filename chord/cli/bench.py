"""`bench`: measure a ring, in milliseconds and in round trips."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from chord.cli.data import quorum_option
from chord.cli.failures import CHECK_FAILED, INTERRUPTED, OK, TIMEOUT, USAGE, explain
from chord.cli.numbers import Seconds
from chord.cli.output import Failure, Out, counted
from chord.cli.target import Target, ring_options, statuses, unreachable_nodes
from chord.errors import ChordError, DeadlineExceeded, unwrapped
from chord.views.bench import BenchResult, BenchRow, bench_json
from chord.wire.messages import VALUE_BYTES_MAX, Status

if TYPE_CHECKING:
    from chord.cli.bench_run import Bench, BenchPlan, Measured

COLUMNS = (
    "what", ">at once", ">ops/s", ">p50 ms", ">p99 ms", ">p99.9 ms", ">round trips", ">at most", "verdict", ">errors",
)
KEYS_MIN = 32  # the number of requests at once, so that no two use one key
SECONDS_MAX, OPS_MAX = 3600.0, 1_000_000


class BenchPreset(NamedTuple):
    """The size of a measurement.

    Attributes:
        keys: the number of keys.
        seconds: the duration of each line of the report, in seconds.
    """

    keys: int
    seconds: float


PRESETS = {"s": BenchPreset(100, 1.0), "m": BenchPreset(1000, 5.0), "l": BenchPreset(10_000, 20.0)}


@click.command("bench")
@click.option("--preset", type=click.Choice(list(PRESETS)), default="s", show_default=True,
              help="s: 100 keys, 1 s for each line; m: 1000 keys, 5 s; l: 10000 keys, 20 s.")
@click.option("--seconds", type=Seconds(0.05, SECONDS_MAX), metavar="S", help="Seconds for each line of the report.")
@click.option("--ops", type=click.IntRange(1, OPS_MAX), metavar="COUNT",
              help="Number of operations for each line, instead of a duration.")
@click.option("--keys", type=click.IntRange(KEYS_MIN, 100_000), metavar="COUNT", help="Number of keys.")
@click.option("--bytes", "value_bytes", type=click.IntRange(0, VALUE_BYTES_MAX), default=100, show_default=True,
              metavar="BYTES", help="Size of a value.")
@quorum_option("r", "Read quorum of the gets.")
@quorum_option("w", "Write quorum of the puts.")
@click.option("--strict", is_flag=True, help="Exit with code 8 if the verdict is FAIL.")
@ring_options()
def bench_command(
    target: Target, preset: str, seconds: float | None, ops: int | None, keys: int | None, value_bytes: int,
    r: int | None, w: int | None, strict: bool,
) -> int:
    """Measure ping, get, put and lookup, one at a time and 32 at once.

    The keys of the measurement begin with chord-bench/. They are deleted at the end, also after Ctrl-C. "Round trips"
    is the median time, divided by that of a ping to the same nodes in the same run.

    Bounds apply to one operation at a time. A healthy ring meets them on any machine, and a ring that misses one is
    sick. A lookup may take 12 round trips, and a get 8 with R = 1 and 12 with R = 2. With W = 2 a put may take 25, but
    20 with the context of an earlier read. On nodes with data directories a put also waits for disks, and has no bound.
    The verdict is also FAIL if an operation failed or a node of the ring does not answer.
    """
    if seconds is not None and ops is not None:
        raise click.UsageError("give either --seconds or --ops, not both")
    with target.connect() as client:
        crawl = client.members()
    nodes, unreachable = statuses(crawl), sorted(unreachable_nodes(crawl))
    kept = _replicas(nodes, r, w)
    majority = kept // 2 + 1
    size = PRESETS[preset]
    from chord.cli.bench_run import BenchPlan

    plan = BenchPlan(keys or size.keys, seconds or size.seconds, ops, value_bytes, r or majority, w or majority)
    bench = _run(target, plan)
    has_disks = any(node.has_data_dir for node in nodes)
    measured = [one for one in bench.measured if one.took_s or one.failed or not bench.is_interrupted]
    rows = [_row(one, bench.measured[0], has_disks) for one in measured]
    verdict: str | None = "FAIL" if unreachable or any(row.verdict == "FAIL" or row.errors for row in rows) else "PASS"
    if bench.is_interrupted:
        verdict = None  # a part of a measurement has no verdict
    if target.out.as_json:
        target.out.json(bench_json(BenchResult(
            len(nodes), unreachable, kept, has_disks, plan.keys, plan.value_bytes, None if ops else plan.seconds, ops,
            rows, verdict, bench.is_interrupted, len(bench.left_behind),
        )))  # fmt: skip
    else:
        what = verdict or f"interrupted; {len(rows)} of {len(bench.measured)} lines were measured in part, no verdict"
        _print(target.out, rows, f"{what}: {counted(len(nodes), 'node')}, N={kept}, values of {plan.value_bytes} bytes")
    for address in unreachable if not target.out.as_json else ():
        target.out.note(f"{address} does not answer, so the ring is not healthy: chord check")
    if bench.left_behind:
        name, error = bench.left_behind[0]
        why = explain(error, target.nodes[0])
        left = counted(len(bench.left_behind), "key")
        message = f"{left} could not be deleted again ({name.decode()}, …: {error.message})"
        raise Failure(message, f"Delete them: chord del KEY. {why.hint}", why.exit_code, why.code)
    if bench.is_interrupted:
        return INTERRUPTED
    return CHECK_FAILED if strict and verdict == "FAIL" else OK


def _replicas(nodes: list[Status], r: int | None, w: int | None) -> int:
    """Return the number of replicas: N, or the number of nodes if that is smaller.

    Raises:
        Failure: exit 2: `r` or `w` is larger than this number.
    """
    kept = max((node.replicas for node in nodes), default=1)
    for name, asked in (("--r", r), ("--w", w)):
        if asked is not None and asked > min(kept, len(nodes)):
            least = min(kept, len(nodes))
            raise Failure(f"{name} {asked} is more than can answer", f"There are {least} replicas", USAGE, "usage")
    return min(kept, len(nodes))


def _run(target: Target, plan: BenchPlan) -> Bench:
    """Run the measurement.

    The first Ctrl-C ends the measurement, but not the clean-up. The second ends both.

    Raises:
        Failure: no node answers, or the keys cannot be stored.
    """
    import trio

    from chord.cli.bench_run import TURNS, Bench, operations

    lines = len(operations(plan)) * (TURNS if plan.ops is None else min(TURNS, plan.ops))
    with target.out.progress("bench, turns", lines) as show:
        bench = Bench(plan, show)

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                await nursery.start(_heed_signals, bench, target.out)
                await bench.run(target.nodes, target.timeout_s)
                nursery.cancel_scope.cancel()

        try:
            with unwrapped():
                trio.run(main)
        except ChordError as error:
            raise explain(error, target.nodes[0]) from error
        except trio.TooSlowError as error:
            what = "the keys could not be stored in time"
            raise Failure(what, "Give it longer: --timeout S", TIMEOUT, DeadlineExceeded.word) from error
    return bench


async def _heed_signals(bench: Bench, out: Out, *, task_status: Any) -> None:
    import trio

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            if bench.is_interrupted:
                raise KeyboardInterrupt
            bench.interrupt()
            out.note("interrupted; deleting the test keys")


def _row(measured: Measured, ping: Measured, has_disks: bool) -> BenchRow:
    """Return a line of the report.

    Args:
        measured: the operation of the line.
        ping: the measurement of one ping at a time; its median is one round trip.
        has_disks: whether any node has a data directory. If so, puts have no bound.
    """
    operation = measured.operation
    one, median = ping.percentile_ms(0.5), measured.percentile_ms(0.5)
    trips = median / one if one and median is not None and operation.at_once == 1 else None
    is_put = operation.name.startswith("put")
    bound = None if is_put and has_disks else operation.round_trips_max
    # Other load on the machines stretches single operations at random. So the bound applies to the first quartile of
    # the operations, and the round trip is the third quartile of the pings.
    fast, trip = measured.percentile_ms(0.25), ping.percentile_ms(0.75)
    is_met = bound is None or (fast is not None and trip is not None and fast <= bound * trip)
    was_tried = bool(measured.took_s or measured.failed)
    verdict = None if bound is None or not was_tried else "PASS" if is_met else "FAIL"
    return BenchRow(
        operation.name, operation.quorum or None, operation.at_once, len(measured.took_s), round(measured.per_s, 1),
        _round(median), _round(measured.percentile_ms(0.99)), _round(measured.percentile_ms(0.999)), _round(trips),
        bound, verdict, measured.failed, measured.errors,
    )  # fmt: skip


def _round(number: float | None) -> float | None:
    return None if number is None else round(number, 3)


def _print(out: Out, rows: list[BenchRow], summary: str) -> None:
    lines = []
    for row in rows:
        letter = {"get": "R", "put": "W"}.get(row.op.split(",")[0])
        what = row.op if letter is None else f"{row.op}, {letter}={row.quorum}"
        numbers = [row.p50_ms, row.p99_ms, row.p999_ms, row.round_trips, row.round_trips_max]
        shown = ["-" if number is None else f"{number:.2f}" for number in numbers]
        per_s, verdict_of = f"{row.per_s:.0f}", row.verdict or "-"
        lines.append([what, str(row.at_once), per_s, *shown, verdict_of, str(row.errors)])
    if lines:
        out.table(COLUMNS, lines, spare=[] if any(row.errors for row in rows) else ["errors"])
    for row in rows:
        for word, count in row.error_codes.items():
            out.note(f"{row.op}, {row.at_once} at once: {count} times {word}")
    out.note(summary)
