"""Clients that get and put all the while something else is measured, in a process of their own.

In the process that watches the ring they would wait for its interpreter lock, and that would be measured.
As a program, `python -m benchmarks.foreground KEYS ADDRESS…`, it goes on until its standard input ends; then it prints
what it saw as JSON.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from types import TracebackType

CLIENTS = 4
PAUSE_S = 0.01  # between two operations of a client
PUT_EVERY = 4  # the others are gets
VALUE = b"v" * 100


class Foreground:
    """So many clients, from the start of the block to its end; then what they saw is known.

    Attributes:
        latencies: of each operation when it ended, on this machine's `time.perf_counter`, and how long it took, in s.
        errors: their words.
    """

    def __init__(self, addresses: list[str], keys: int) -> None:
        self._command = [sys.executable, "-m", "benchmarks.foreground", str(keys), *addresses]
        self.latencies: list[tuple[float, float]] = []
        self.errors: list[str] = []

    def __enter__(self) -> Foreground:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        said, _ = self._process.communicate()
        if kind is None:
            found = json.loads(said)
            self.latencies = [(at, took) for at, took in found["latencies"]]
            self.errors = found["errors"]

    def between(self, began: float, ended: float) -> list[float]:
        """How long everything took that ended between two moments."""
        return [took for at, took in self.latencies if began <= at < ended]


def main() -> None:
    """Get and put until nobody wants to know any more."""
    import trio

    import chord as library
    from chord.errors import ChordError

    keys, addresses = int(sys.argv[1]), sys.argv[2:]
    latencies: list[tuple[float, float]] = []
    errors: list[str] = []

    async def client(number: int) -> None:
        async with library.open_client(addresses[number % len(addresses)]) as ring:
            for turn in itertools.count():
                key = f"key-{(turn * CLIENTS + number) * 7919 % keys}"
                before = time.perf_counter()
                try:
                    await (ring.get(key) if turn % PUT_EVERY else ring.put(key, VALUE, w=2))
                except ChordError as error:
                    errors.append(error.word)
                now = time.perf_counter()
                latencies.append((now, now - before))
                await trio.sleep(PAUSE_S)

    async def clients() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(CLIENTS):
                nursery.start_soon(client, number)
            await trio.lowlevel.wait_readable(sys.stdin)
            nursery.cancel_scope.cancel()

    trio.run(clients)
    print(json.dumps({"latencies": latencies, "errors": errors}))


if __name__ == "__main__":
    main()
