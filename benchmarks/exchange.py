"""Measure the cost of a replica sync: a comparison of two stores and its repair.

Two stores in memory hold the same records. They sync an arc while they are equal, and while one record differs. Every
message goes through the codec and is counted. Then one store is emptied, and filled again from the other.

Bars (required figures): 200 bytes for an equal pair, and 100 KiB if one record differs. The exit code is 1 if a bar is
missed. With --json the output is one JSON object per line, bars included.
"""

from __future__ import annotations

import sys
import time

import trio

from benchmarks.bars import Rows, bar, positive, run_parts
from chord.config import Limits
from chord.ids import Arc, Point
from chord.store.storage import Batch
from tests.support.replica_pair import Wire, pair

TOP = Point((1 << 160) - 1)
ARCS = {"all": Arc(TOP, TOP), "cut": Arc(Point(1 << 150), Point((1 << 150) - 1))}
PLAIN = Limits(repair_bytes_s=1 << 40)  # practically without a limit of the rate
BARS = {"equal": 200, "one differs": 100 * 1024}


class Count:
    """The recorded costs of syncs that run one after the other.

    Attributes:
        rows: a row of figures per sync.
        bars: the verdicts on the bytes of the syncs.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._began = time.perf_counter()
        self.rows: Rows = []
        self.bars: Rows = []

    def done(self, name: str) -> None:
        """Record the calls, bytes and time since the last call of `done`.

        Args:
            name: the name of the sync that just ended.
        """
        wire, now = self._wire, time.perf_counter()
        took_ms = round(1000 * (now - self._began), 2)
        self.rows.append({"op": name, "calls": len(wire.calls), "bytes": wire.bytes, "ms": took_ms})
        most = BARS.get(name.partition(",")[0])
        if most is not None:
            self.bars.append(bar(f"bytes, {name}", wire.bytes, at_most=most))
        wire.calls.clear()
        wire.bytes = 0
        self._began = time.perf_counter()


async def measure(records: int) -> Rows:
    """Measure the syncs of two stores that are equal, differ, or are empty.

    Args:
        records: number of records in each store.
    """
    a, b, wire = pair(limits=PLAIN)
    count = Count(wire)
    for number in range(records):
        b.store(a.put(b"user:%08d" % number, b"x" * 20))
    count.done(f"store {2 * records:,} records")

    async def exchange(name: str, arc: Arc) -> None:
        outcome = await a.replica_sync.with_partner(b.contact, arc)
        assert outcome.is_equal
        count.done(name)

    for name, arc in ARCS.items():
        await exchange(f"equal, {name}, first", arc)
        await exchange(f"equal, {name}", arc)
        b.put(b"user:%08d" % (records // 2), b"newer")
        await exchange(f"one differs, {name}", arc)
    for number in range(0, records, max(1, records // 1000)):
        b.put(b"user:%08d" % number, b"newer")
    await exchange("1,000 differ", ARCS["all"])
    a.storage.apply(Batch(removals=[record.key for record in b.storage.scan(ARCS["all"])]))
    await exchange("filled from empty", ARCS["all"])
    return [*count.rows, *count.bars]


if __name__ == "__main__":
    sys.exit(
        run_parts(
            __doc__,
            {"pair": lambda args: trio.run(measure, args.records)},
            {"flag": "--records", "type": positive, "default": 1_000_000, "help": "per side (default 1 million)"},
        )
    )
