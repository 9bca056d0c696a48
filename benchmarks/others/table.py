"""The results of the comparison: rows of figures, bars (pass criteria), Markdown."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain

from benchmarks.others.loop import percentile
from benchmarks.others.system import System
from benchmarks.others.turns import Measured, Outcome

AHEAD_MIN = 1.0
RATE_AT_32_MIN = {"kademlia": 5.0, "opendht": 3.0}
MANY = 32
QUANTITIES = ("rate", "p50", "p99", "p99.9", "success", "CPU")


@dataclass(frozen=True)
class Row:
    """The figures of one system, ring size, operation and number in flight.

    The fields are those of the JSON lines. Rates, CPU and memory are medians over the rounds. Percentiles are over all
    operations of all rounds, failed ones included. Errors are summed. `hops_mean` is the mean number of calls on the
    way to the owner, per operation; None if it is unknown.
    """

    system: str
    nodes: int
    op: str
    concurrency: int
    ops_per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    errors: int
    hops_mean: float | None
    cpu_us_per_op: float
    rss_mb_per_node: float
    acknowledged_by: str
    version: str


@dataclass(frozen=True)
class Bar:
    """A pass criterion: how much better chord must be than another system.

    `value` is how many times better chord is. For the quantity "success", it is the share of failed operations of the
    other system, less ours. `verdict` is PASS, FAIL, or NOT MEASURED if the other system gave no figures.
    """

    bar: str
    peer: str
    nodes: int
    op: str
    concurrency: int
    quantity: str
    value: float | None
    at_least: float
    verdict: str


def rows_of(measured: Iterable[Measured], systems: Sequence[System], versions: dict[str, str]) -> list[Row]:
    """Combine the rounds of each measurement into a row.

    The rows are in the order of ring sizes, operations, numbers in flight and systems.

    Args:
        versions: the version of each system, by name.
    """
    by_key: dict[tuple[str, int, str, int], list[Measured]] = {}
    for one in measured:
        by_key.setdefault(one.key, []).append(one)
    places = {system.name: (place, system) for place, system in enumerate(systems)}

    def order(key: tuple[str, int, str, int]) -> tuple[int, str, int, int]:
        system, nodes, op, concurrency = key
        return nodes, op, concurrency, places[system][0]

    rows = []
    for key in sorted(by_key, key=order):
        rounds = by_key[key]
        ranked = sorted(chain.from_iterable(one.latencies_s for one in rounds))
        hops = [one.hops for one in rounds if one.hops is not None]
        rows.append(
            Row(
                *key,
                ops_per_s=round(statistics.median(one.ops_per_s for one in rounds), 1),
                p50_ms=round(1e3 * percentile(ranked, 0.5), 3),
                p99_ms=round(1e3 * percentile(ranked, 0.99), 3),
                p999_ms=round(1e3 * percentile(ranked, 0.999), 3),
                errors=sum(one.errors for one in rounds),
                hops_mean=round(statistics.mean(hops), 3) if hops else None,
                cpu_us_per_op=round(statistics.median(one.cpu_us_per_op for one in rounds), 1),
                rss_mb_per_node=round(statistics.median(one.rss_mb_per_node for one in rounds), 1),
                acknowledged_by=places[key[0]][1].acknowledged_by,
                version=versions[key[0]],
            )
        )
    return rows


def failed_share(measured: Iterable[Measured], key: tuple[str, int, str, int]) -> float:
    """Return the share of the operations that failed, over all rounds.

    Args:
        key: system, nodes, operation, operations in flight.
    """
    rounds = [one for one in measured if one.key == key]
    return sum(one.errors for one in rounds) / max(1, sum(len(one.latencies_s) for one in rounds))


def better(ours: Row, theirs: Row) -> dict[str, float]:
    """Return how many times better chord is than another system, by quantity.

    Success is not among the quantities.
    """
    return {
        "rate": ours.ops_per_s / max(theirs.ops_per_s, 1e-9),
        "p50": theirs.p50_ms / max(ours.p50_ms, 1e-9),
        "p99": theirs.p99_ms / max(ours.p99_ms, 1e-9),
        "p99.9": theirs.p999_ms / max(ours.p999_ms, 1e-9),
        "CPU": theirs.cpu_us_per_op / max(ours.cpu_us_per_op, 1e-9),
    }


def bars_of(
    outcome: Outcome, rows: Sequence[Row], systems: Sequence[System], sizes: Sequence[int], ours: str
) -> list[Bar]:
    """Compare our rows with those of every system that the bars apply to.

    Args:
        outcome: the measurements of all rounds.
        rows: the figures of all systems.
        systems: all systems of the run.
        sizes: the ring sizes.
        ours: the name of our system.
    """
    found = {(row.system, row.nodes, row.op, row.concurrency): row for row in rows}
    points = [(nodes, op, many) for nodes in sizes for op in ("put", "get") for many in (1, MANY)]
    bars = []
    for system in (system for system in systems if system.is_bar):
        for nodes, op, many in points:
            mine, other = found.get((ours, nodes, op, many)), found.get((system.name, nodes, op, many))
            ratios = better(mine, other) if mine and other else {}
            asked = {name: AHEAD_MIN for name in QUANTITIES if name != "success"}
            if many == MANY and system.name in RATE_AT_32_MIN:
                asked["rate"] = RATE_AT_32_MIN[system.name]
            for quantity, at_least in asked.items():
                value = ratios.get(quantity)
                is_more = at_least == AHEAD_MIN
                bars.append(_bar(system.name, nodes, op, many, quantity, value, at_least, is_more=is_more))
            less = None
            if mine and other:
                less = _difference(outcome, (system.name, nodes, op, many), (ours, nodes, op, many))
            bars.append(_bar(system.name, nodes, op, many, "success", less, 0.0))
        if system.is_python:
            bars += [_memory(found, system.name, nodes, ours) for nodes in sizes]
    return bars


def _difference(outcome: Outcome, other: tuple[str, int, str, int], mine: tuple[str, int, str, int]) -> float:
    """Return the other system's share of failed operations, less ours.

    Args:
        other: the key of the other system's measurement.
        mine: the key of ours.
    """
    return failed_share(outcome.measured, other) - failed_share(outcome.measured, mine)


def _memory(found: dict[tuple[str, int, str, int], Row], peer: str, nodes: int, ours: str) -> Bar:
    """Return the bar on memory: another system's memory per node over ours.

    It is that after the gets of all rounds with many in flight, when most records are stored.
    """
    mine, other = found.get((ours, nodes, "get", MANY)), found.get((peer, nodes, "get", MANY))
    ratio = other.rss_mb_per_node / mine.rss_mb_per_node if mine and other else None
    return _bar(peer, nodes, "any", MANY, "memory", ratio, AHEAD_MIN)


def _bar(
    peer: str,
    nodes: int,
    op: str,
    many: int,
    quantity: str,
    value: float | None,
    at_least: float,
    *,
    is_more: bool = False,
) -> Bar:
    """Return a bar with its verdict on a value.

    Args:
        peer: the other system.
        many: the number of operations in flight.
        value: how many times better chord is; None: not measured.
        at_least: the smallest value that meets the bar.
        is_more: whether the value must be above `at_least`, not equal.
    """
    text = f"{quantity} of {op}, {many} in flight, {nodes} nodes, against {peer}"
    is_met = value is not None and (value > at_least if is_more else value >= at_least)
    verdict = "NOT MEASURED" if value is None else "PASS" if is_met else "FAIL"
    return Bar(text, peer, nodes, op, many, quantity, None if value is None else round(value, 4), at_least, verdict)


# -- for people -------------------------------------------------------------------------------------


def json_lines(things: Iterable[Row | Bar]) -> str:
    """Return rows or bars as JSON lines: one object per line."""
    return "".join(json.dumps(asdict(thing)) + "\n" for thing in things)


def rounds_lines(measured: Iterable[Measured]) -> str:
    """Return the results of every single round as JSON lines.

    There is an object for each batch, in the order of measurement.
    """
    return "".join(
        json.dumps(
            dict(zip(("system", "nodes", "op", "concurrency"), one.key, strict=True))
            | {"ops": len(one.latencies_s), "errors": one.errors, "ops_per_s": round(one.ops_per_s, 1)}
            | {"cpu_us_per_op": round(one.cpu_us_per_op, 1), "why": one.why}
        )
        + "\n"
        for one in measured
    )


def number(value: float) -> str:
    """Format a number with three significant digits, or as an integer from 100 on."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def markdown_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns."""
    table = [list(head), *(list(line) for line in lines)]
    widths = [max(len(line[i]) for line in table) for i in range(len(head))]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in table]
    shown = ["| " + " | ".join(line) + " |" for line in padded]
    return "\n".join([shown[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *shown[1:]]) + "\n"


def measurements(rows: Sequence[Row], ours: str) -> str:
    """Return a Markdown table of all rows.

    Each row of another system also has the ratio of our rate to its rate.

    Args:
        ours: the name of our system.
    """
    rate = {(row.nodes, row.op, row.concurrency): row.ops_per_s for row in rows if row.system == ours}

    def ratio(row: Row) -> str:
        mine = rate.get((row.nodes, row.op, row.concurrency))
        return "" if mine is None or row.system == ours else "×" + number(mine / max(row.ops_per_s, 1e-9))

    head = ("nodes", "op", "in flight", "system", "ops/s", f"rate of {ours}", "p50 ms", "p99 ms", "p99.9 ms", "failed",
            "hops", "CPU µs/op", "MB/node")  # fmt: skip
    return markdown_table(
        head,
        [
            (str(row.nodes), row.op, str(row.concurrency), row.system, number(row.ops_per_s), ratio(row),
             number(row.p50_ms), number(row.p99_ms), number(row.p999_ms), str(row.errors),
             "" if row.hops_mean is None else number(row.hops_mean), number(row.cpu_us_per_op),
             number(row.rss_mb_per_node))
            for row in rows
        ],
    )  # fmt: skip


def verdicts(bars: Sequence[Bar]) -> str:
    """Return a Markdown table of the bars.

    There is a line for each other system, ring size, operation and number in flight. A missed bar is beside its value.
    """
    points = list(dict.fromkeys((bar.peer, bar.nodes, bar.op, bar.concurrency) for bar in bars))
    lines = []
    for point in points:
        mine = {bar.quantity: bar for bar in bars if (bar.peer, bar.nodes, bar.op, bar.concurrency) == point}
        states = {bar.verdict for bar in mine.values()}
        verdict = "FAIL" if "FAIL" in states else "NOT MEASURED" if "NOT MEASURED" in states else "PASS"
        cells = [_cell(mine.get(quantity)) for quantity in (*QUANTITIES, "memory")]
        lines.append((*map(str, point), *cells, verdict))
    return markdown_table(("against", "nodes", "op", "in flight", *QUANTITIES, "memory", "verdict"), lines)


def _cell(bar: Bar | None) -> str:
    """Return a bar as the text of a table cell: the value, and a missed bound."""
    if bar is None or bar.value is None:
        return ""
    if bar.quantity == "success":
        text = "same" if bar.value == 0 else f"{100 * bar.value:+.2g} %"
    else:
        text = f"×{number(bar.value)}"
    missed = f" (bar: {'no more failures' if bar.quantity == 'success' else f'×{bar.at_least:g}'})"
    return text + (missed if bar.verdict == "FAIL" else "")


def left_out(outcome: Outcome) -> list[str]:
    """Return a line for each system that was left out, with the reason."""
    return [
        f"{name}{f' with {nodes} nodes' if nodes else ''}: {why}" for (name, nodes), why in outcome.left_out.items()
    ]
