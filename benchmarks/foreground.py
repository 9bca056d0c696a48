"""Foreground load: clients that get and put while a benchmark measures other work.

The clients run in their own process. In the process of the benchmark they would wait for its interpreter lock, and the
wait would count. The program `python -m benchmarks.foreground KEYS ADDRESS…` runs until its standard input ends. Then
it prints the latencies and errors as JSON.
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
PUT_EVERY = 4  # every fourth operation is a put, the others are gets
VALUE = b"v" * 100


class Foreground:
    """A context manager that runs clients in another process during its block.

    Afterwards the attributes are set.

    Attributes:
        latencies: for each operation, its end on this machine's `time.perf_counter`, and its latency in seconds.
        errors: the codes of the errors.
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
        """Return the latencies, in seconds, of operations that ended in a period.

        Args:
            began: start of the period on `time.perf_counter`, included.
            ended: end of the period, not included.
        """
        return [took for at, took in self.latencies if began <= at < ended]


def main() -> None:
    """Get and put in a loop until standard input ends; then print the results."""
    import trio

    import chord as library
    from chord.errors import ChordError

    keys, addresses = int(sys.argv[1]), sys.argv[2:]
    latencies: list[tuple[float, float]] = []
    errors: list[str] = []

    async def client(number: int) -> None:
        async with library.open_client(addresses[number % len(addresses)]) as client:
            for turn in itertools.count():
                key = f"key-{(turn * CLIENTS + number) * 7919 % keys}"
                before = time.perf_counter()
                try:
                    await (client.get(key) if turn % PUT_EVERY else client.put(key, VALUE, w=2))
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
