"""The results of benchmarks: rows of figures, and bars with their verdicts.

A row is an object for JSON. A bar is a row that says whether a figure meets its bound.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]
"""Figures by name. A row with `bar` is a verdict: `value`, `at_most` or `at_least`, and `verdict`, PASS or FAIL."""

Rows: TypeAlias = list[Row]


def bar(text: str, value: float, *, at_most: float | None = None, at_least: float | None = None) -> Row:
    """Return the row that says whether a figure meets its bound.

    Args:
        text: the name of the bar.
        value: the measured figure.
        at_most: the largest figure that meets the bar.
        at_least: the smallest figure that meets the bar.
    """
    is_met = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
    bound = {"at_most": at_most} if at_most is not None else {"at_least": at_least}
    return {"bar": text, "value": round(value, 3), **bound, "verdict": "PASS" if is_met else "FAIL"}


def percentile(latencies: Sequence[float], share: float) -> float:
    """Return a percentile of latencies, in milliseconds.

    Args:
        latencies: the latencies, in seconds.
        share: the share of latencies below the result, 0.0 to 1.0.
    """
    return round(1000 * sorted(latencies)[min(len(latencies) - 1, int(len(latencies) * share))], 3)


def report(rows: Rows, *, as_json: bool) -> None:
    """Print the rows of a benchmark: tables of figures, then the bars.

    Args:
        as_json: print one JSON object per line instead, in the given order.
    """
    if as_json:
        for row in rows:
            print(json.dumps(row))
        sys.stdout.flush()
        return
    head: list[str] = []
    for row in [row for row in rows if "bar" not in row]:
        cells = {name: _shown(value) for name, value in row.items()}
        if list(cells) != head:
            head = list(cells)
            print("\n" + "  ".join(f"{name:>12}" for name in head))
        print("  ".join(f"{cells[name]:>{max(12, len(name))}}" for name in head))
    print()
    for row in [row for row in rows if "bar" in row]:
        print(verdict_line(row))
    sys.stdout.flush()


def verdict_line(row: Row) -> str:
    """Return a line of text for a bar: verdict, value, bound and name."""
    bound = f"at most {row['at_most']:,g}" if "at_most" in row else f"at least {row['at_least']:,g}"
    return f"{row['verdict']}  {row['value']:12,.2f} ({bound})  {row['bar']}"


def positive(text: str) -> int:
    """Parse a command-line option as an integer of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not 1 or more")
    return number


def missed(rows: Rows) -> int:
    """Return the exit code of a benchmark: 1 if a bar was missed, otherwise 0."""
    return int(any(row.get("verdict") == "FAIL" for row in rows))


def run_parts(doc: str | None, parts: dict[str, Callable[[argparse.Namespace], Rows]], *options: Row) -> int:
    """Run the parts of a benchmark that the command line chooses; print their rows.

    Args:
        doc: the docstring of the file; its first line describes the command.
        parts: the functions that measure the parts, by name.
        options: for each further option, the keyword arguments of `add_argument`, and its name as `flag`.

    Returns:
        The exit code: 1 if a bar was missed.
    """
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    parser.add_argument("--only", default=",".join(parts), help="names of parts (default: all)")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of tables")
    for option in options:
        parser.add_argument(option.pop("flag"), **option)
    args = parser.parse_args()
    names = args.only.split(",")
    if unknown := [name for name in names if name not in parts]:
        parser.error(f"unknown part {unknown[0]}: expected {', '.join(parts)}")
    rows: Rows = []
    for name in names:
        found = parts[name](args)
        report(found, as_json=args.json)
        rows += found
    return missed(rows)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
