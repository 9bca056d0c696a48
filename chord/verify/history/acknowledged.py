"""Checks the promise of an eventually consistent store for one key.

Such a store may return an old value, or several values at once. It promises two properties that a history can show:

1. The store invents nothing. Every value that is read was written by a put or cas that had begun and is not known to
   have failed.
2. The store does not deny an acknowledged write. A read that begins after the end of such a write finds a value. The
   exception is a delete of the key that had begun by the end of the read. The values that a delete covers depend on
   contexts that are not in a history. So any delete is an excuse.

Expiry is an excuse, too, but it is not in a history. So do not record operations with a time to live.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from chord.verify.history.format import HistoryValue, Name, Operation, shown
from chord.verify.history.register import Finding, RegisterResult, Step


def check_acknowledged(key: Name, operations: Sequence[Operation]) -> RegisterResult:
    """Check one key: no acknowledged write was denied, and no value was invented.

    Only gets with status ok are judged. A put or cas (compare-and-set) with status ok is denied if a get that began
    after its end finds nothing. A delete that had begun by the end of the get is an excuse. A value is invented if no
    put or cas that had begun by the end of the get wrote it.

    A put or cas with status unknown explains its value, but no get has to find it. A delete with status unknown is an
    excuse, too. Operations with status fail explain and excuse nothing.
    """
    findings: list[Finding] = []
    first_writes: dict[HistoryValue, Operation] = {}
    failed: dict[HistoryValue, Operation] = {}
    for operation in operations:
        if operation.new is not None:
            into = failed if operation.status == "fail" else first_writes
            if operation.new not in into or operation.start_s < into[operation.new].start_s:
                into[operation.new] = operation
    acknowledged = [o for o in operations if o.new is not None and o.status == "ok"]
    first_kept = min(acknowledged, key=lambda o: o.latest_s, default=None)
    deleted_s = min((o.start_s for o in operations if o.kind == "del" and o.status != "fail"), default=inf)
    for read in operations:
        if read.kind != "get" or read.status != "ok":
            continue
        for value in read.found:
            write = first_writes.get(value)
            if write is None:
                text = f"{shown(value)} was seen, but no operation that can have happened wrote it"
                steps = [Step(failed[value], f"failed, and line {read.line} saw it")] if value in failed else []
                findings.append(Finding("acknowledged", key, text, (Step(read, ""), *steps)))
            elif read.latest_s < write.start_s:
                early = Step(read, f"ended before line {write.line} began")
                steps = [early, Step(write, f"wrote what line {read.line} read")]
                findings.append(Finding("acknowledged", key, "a value was read before it was written", tuple(steps)))
        if not read.found and first_kept and first_kept.latest_s < read.start_s and deleted_s > read.latest_s:
            steps = [Step(first_kept, f"ended, acknowledged, before line {read.line} began"), Step(read, "")]
            text = "an acknowledged write was denied, and no delete had begun"
            findings.append(Finding("acknowledged", key, text, tuple(steps)))
    return RegisterResult("acknowledged", key, len(operations), "violation" if findings else "ok", tuple(findings))
