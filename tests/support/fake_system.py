"""A system in files for the tests of the comparison, correct or with faults that the comparison must find.

    python fake_system.py node|client DIRECTORY FAULT

Its path has only `benchmarks.others`, as for the clients of real systems.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.others import program

FAULTS = ("none", "loses", "confuses", "refuses", "ends", "silent")


class Files:
    """A store with a file for each key, and a fault.

    `loses`: every third put is acknowledged and dropped. `confuses`: all values are equal. `refuses`: every put fails.
    `ends`: the process ends early.
    """

    def __init__(self, directory: Path, fault: str) -> None:
        self._directory = directory
        self._fault = fault
        self._puts = 0

    async def put(self, key: str, value: bytes) -> None:
        """Write a file."""
        self._puts += 1
        if self._fault == "refuses":
            raise OSError("no")
        if self._fault == "ends" and key.startswith("key"):
            os._exit(3)
        if not (self._fault == "loses" and self._puts % 3 == 0):
            (self._directory / key).write_bytes(b"x" * 100 if self._fault == "confuses" else value)

    async def get(self, key: str) -> bytes | None:
        """Read a file."""
        path = self._directory / key
        return path.read_bytes() if path.exists() else None


async def node(arguments: list[str]) -> None:
    """Do nothing until standard input ends; with `silent`, never report that the system is ready."""
    if arguments[1] == "silent":
        sys.stdin.read()
    await program.until_input_ends(address=arguments[0])


async def client(arguments: list[str]) -> None:
    """Answer batches."""
    await program.serve_on_asyncio(Files(Path(arguments[0]), arguments[1]))


if __name__ == "__main__":
    program.main({"node": node, "client": client})
