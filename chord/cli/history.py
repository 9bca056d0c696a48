"""`check-history`: check a recorded history of operations against a model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import IO, get_args

import click

from chord.cli.failures import CHECK_FAILED, OK, TIMEOUT, USAGE
from chord.cli.inputs import file_failure
from chord.cli.output import Failure, Out
from chord.cli.target import json_option
from chord.verify.history.check import HistoryReport, Model, check
from chord.verify.history.format import LINE_BYTES_MAX, BadHistory, Operation, read, shown
from chord.verify.history.register import Finding
from chord.verify.history.search import STEPS_MAX
from chord.views.history import VERDICTS, counts_of, report_json

VIOLATIONS_SHOWN_MAX = 20
EXIT_CODES = {"ok": OK, "violation": CHECK_FAILED, "undecided": TIMEOUT}


@click.command("check-history")
@click.argument("file")
@click.option("--model", type=click.Choice(get_args(Model)), default="linearizable", show_default=True,
              help="Model that the history must satisfy.")
@click.option("--max-steps", "steps_max", type=click.IntRange(min=1), default=STEPS_MAX, show_default=True, metavar="N",
              help="Number of states that the search may visit for each key.")
@json_option
def check_history_command(out: Out, file: str, model: Model, steps_max: int) -> int:
    """Check a recorded history: JSON lines from FILE (- is stdin), one per operation.

    linearizable: each key is a register, and every operation takes effect at one moment between its call and its
    answer. Two checkers examine each key: the happens-before graph and a search. This store promises less.

    acknowledged: the promise of this store. A read returns only values that were written, and does not deny an
    acknowledged write.

    Exit code 8 if the history violates the model; the operations involved are printed. Exit code 5 if the search gave
    up. docs/reference/history-format.md describes the format.
    """
    with out.progress(f"read {file}") as show:
        operations = _read(file, show)
    with out.progress("check", len(operations)) as show:
        report = check(operations, model, steps_max, show)
    if out.as_json:
        out.json(report_json(report))
    else:
        _print(out, report)
    return EXIT_CODES[report.verdict]


def _read(file: str, show: Callable[[int], None]) -> list[Operation]:
    name = "stdin" if file == "-" else file
    operations: list[Operation] = []
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else open(file, "rb") as lines:
            for operation in read(_lines(lines)):
                operations.append(operation)
                show(len(operations))
    except OSError as error:
        raise file_failure(name, error, "read", "Name a file that can be read") from None
    except BadHistory as error:
        hint = "A line is one operation: see docs/reference/history-format.md"
        raise Failure(f"{name}, line {error.line}: {error.why}", hint, USAGE, "bad_line") from None
    if not operations:
        raise Failure(f"there is no operation in {name}", "Name a file with one operation per line", USAGE, "empty")
    return operations


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield lines. A line that is too long is cut, so that the parser refuses it."""
    while line := file.readline(LINE_BYTES_MAX + 2):
        yield line.removesuffix(b"\n")


def _print(out: Out, report: HistoryReport) -> None:
    columns = ["checker", ">keys", ">operations", *(f">{verdict}" for verdict in VERDICTS)]
    sizes = [str(report.keys), str(report.operations)]
    out.table(columns, [[checker, *sizes, *(str(n[v]) for v in VERDICTS)] for checker, n in counts_of(report).items()])
    findings = report.findings
    for finding in findings[:VIOLATIONS_SHOWN_MAX]:
        _print_finding(out, finding)
    for key in report.undecided:
        out.line(f"undecided  key {shown(key)}: the search gave up; give it more --max-steps")
    if report.verdict == "ok":
        out.line(f"OK  {report.model}, each key on its own")
    out.flush()
    if len(findings) > VIOLATIONS_SHOWN_MAX:
        out.note(f"and {len(findings) - VIOLATIONS_SHOWN_MAX} more violations; --json lists them all")
    if findings and report.model == "linearizable":
        out.note("An eventually consistent store may do this. To check its promise: --model acknowledged")


def _print_finding(out: Out, finding: Finding) -> None:
    out.line(f"violation  {finding.checker}  key {shown(finding.key)}: {finding.text}")
    rows = [
        (f"line {o.line}", f"client {o.client}", str(o), f"[{_seconds(o.start_s)}, {_seconds(o.end_s)}]", why)
        for o, why in finding.steps
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)]
        out.line(f"  {'  '.join(cells)}".rstrip())


def _seconds(moment_s: float | None) -> str:
    return "…" if moment_s is None else f"{moment_s:.9f}".rstrip("0").rstrip(".")
