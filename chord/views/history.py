"""The report on a recorded history of operations."""

from __future__ import annotations

from collections import Counter

import msgspec

from chord.verify.history.check import HistoryReport
from chord.verify.history.format import encode
from chord.verify.history.register import Step
from chord.views.common import Json

VERDICTS = ("ok", "violation", "partial", "undecided")


def report_json(report: HistoryReport) -> Json:
    """Return the report on a history of operations as JSON.

    Each violation lists its operations in the fields of the history file, with the number of their line and a reason.
    """
    return {
        "model": report.model,
        "operations": report.operations,
        "keys": report.keys,
        "verdict": report.verdict,
        "checkers": [
            {"checker": checker, **{verdict: counts[verdict] for verdict in VERDICTS}}
            for checker, counts in counts_of(report).items()
        ],
        "violations": [
            {"checker": f.checker, "key": f.key, "text": f.text, "operations": [_step(s) for s in f.steps]}
            for f in report.findings
        ],
        "undecided": report.undecided,
    }


def counts_of(report: HistoryReport) -> dict[str, Counter[str]]:
    """Return, by the name of each checker, how many keys got each verdict."""
    counts: dict[str, Counter[str]] = {}
    for result in report.results:
        counts.setdefault(result.checker, Counter())[result.verdict] += 1
    return counts


def _step(step: Step) -> Json:
    fields: Json = msgspec.json.decode(encode(step.operation))
    return {"line": step.operation.line, **fields, "why": step.why}
