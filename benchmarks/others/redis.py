"""Redis, as a reference: one server in C, in memory, no copies.

python -m benchmarks.others.redis client HOST:PORT
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from benchmarks.others import program

if TYPE_CHECKING:
    from benchmarks.others.processes import Group
    from benchmarks.others.system import Home

ACKNOWLEDGED_BY = "the one server has it in memory"
SETTINGS = "one server, nothing written to disk (--save '' --appendonly no), a connection for each operation in flight"


class Connections:
    """A benchmark client with as many connections as operations in flight.

    Idle connections are reused.
    """

    def __init__(self, host: str, port: int) -> None:
        self._at = (host, port)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def put(self, key: str, value: bytes) -> None:
        """Put a value by SET; raise an error if the server does not answer OK."""
        if await self._call(b"SET", key.encode(), value) != b"OK":
            raise RuntimeError("SET was not answered with OK")

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key by GET; None if the key has no value."""
        return await self._call(b"GET", key.encode())

    async def _call(self, *words: bytes) -> bytes | None:
        """Send a Redis command and return its reply.

        A connection is reused only after a whole reply.

        Args:
            words: the command and its arguments.
        """
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(*self._at)
        try:
            writer.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))
            answer = await self._answer(reader)
        except BaseException:
            writer.close()
            raise
        self._idle.append((reader, writer))
        return answer

    async def _answer(self, reader: asyncio.StreamReader) -> bytes | None:
        line = await reader.readuntil(b"\r\n")
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            return None if rest == b"-1" else (await reader.readexactly(int(rest) + 2))[:-2]
        if kind == b"+":
            return rest
        raise RuntimeError(line.decode(errors="replace").strip())


async def client(entries: list[str]) -> None:
    """Run a client that makes the operations requested on standard input.

    Args:
        entries: the address of the server.
    """
    host, _, port = entries[0].partition(":")
    await program.serve_on_asyncio(Connections(host, int(port)))


def start(group: Group, home: Home, nodes: int) -> list[str]:
    """Start the server on a free port, wait until it listens, and return its address."""
    from benchmarks.others.processes import free_port, until_it_listens

    assert home.root is not None
    libraries = os.pathsep.join(str(path) for path in sorted(home.root.glob("usr/lib/*-linux-gnu*")))
    port = free_port()
    server = group.node(
        [str(home.root / "usr/bin/redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", "",
         "--appendonly", "no", "--dir", str(group.directory), "--logfile", str(group.directory / "redis.log")],
        {"LD_LIBRARY_PATH": libraries},
    )  # fmt: skip
    until_it_listens(server, port)
    return [f"127.0.0.1:{port}"]


if __name__ == "__main__":
    program.main({"client": client})
