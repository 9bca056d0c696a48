"""What it costs two replicas to find out where they differ.

Two stores in memory hold the same records. Equal, then with one record that differs, they exchange an arc of all of
them; every message goes through the codec and is counted. Then one of them is emptied and filled again from the other.

Bars: 200 bytes for an equal pair, 100 KiB for one record that differs. Exit code 1 when one is missed. With --json, one
JSON object per line, the bars included.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from chord.config import Limits
from chord.data.storage import Batch
from chord.ids import Arc, Point
from tests.replicas import Side, Wire, pair

TOP = Point((1 << 160) - 1)
ARCS = {"all": Arc(TOP, TOP), "cut": Arc(Point(1 << 150), Point((1 << 150) - 1))}
PLAIN = Limits(repair_bytes_s=1 << 40)  # what it costs, not what it is paced to
BARS = {"equal": 200, "one differs": 100 * 1024}


def report(name: str, wire: Wire, began: float, is_json: bool) -> bool:
    """Print what an exchange cost. Returns whether it missed its bar."""
    bar = BARS.get(name.partition(",")[0])
    took_ms = 1000 * (time.perf_counter() - began)
    line = {"case": name, "calls": len(wire.calls), "bytes": wire.bytes, "bar_bytes": bar, "ms": round(took_ms, 2)}
    if is_json:
        print(json.dumps(line))
    else:
        bound = "" if bar is None else f" (at most {bar:,})"
        print(f"{name:24} {len(wire.calls):6,} calls {wire.bytes:12,} bytes{bound}  {took_ms:10,.1f} ms")
    wire.calls.clear()
    wire.bytes = 0
    return bar is not None and line["bytes"] > bar


async def measure(records: int, is_json: bool) -> int:
    """Run all cases. Returns how many bars were missed."""
    a, b, wire = pair(limits=PLAIN)
    began = time.perf_counter()
    for number in range(records):
        b.store(a.put(b"user:%08d" % number, b"x" * 20))
    missed = report(f"store {2 * records:,} records", wire, began, is_json)

    async def exchange(name: str, side: Side, other: Side, arc: Arc) -> None:
        nonlocal missed
        began = time.perf_counter()
        outcome = await side.exchange.with_partner(other.contact, arc)
        assert outcome.is_equal
        missed += report(name, wire, began, is_json)

    for name, arc in ARCS.items():
        await exchange(f"equal, {name}, first", a, b, arc)
        await exchange(f"equal, {name}", a, b, arc)
        b.put(b"user:%08d" % (records // 2), b"newer")
        await exchange(f"one differs, {name}", a, b, arc)
    for number in range(0, records, max(1, records // 1000)):
        b.put(b"user:%08d" % number, b"newer")
    await exchange("1,000 differ", a, b, ARCS["all"])
    a.storage.apply(Batch(removals=[record.key for record in b.storage.scan(ARCS["all"])]))
    await exchange("filled from empty", a, b, ARCS["all"])
    return int(missed)


def main() -> int:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000, help="records on each side")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    options = parser.parse_args()
    return 1 if trio.run(measure, options.records, options.json) else 0


if __name__ == "__main__":
    sys.exit(main())
