"""Ports of loopback that a test holds for as long as it names them.

A port that a test has closed may be given to another test at any moment. What is to be refused is answered then, and
what is to listen there again cannot.
"""

from __future__ import annotations

import atexit
import os
import socket
from types import TracebackType

HOST = "127.0.0.1"
ROW_FIRST, ROW_LAST = 20_000, 32_000
"""Ports in a row come from below the range from which the system chooses ports by itself."""


class Ports:
    """Ports that are bound, and at which nobody listens.

    A dial to such a port is refused. The system gives it to nobody, and no other `Ports` can hold it. A server that
    sets SO_REUSEADDR, as every chord node and every `socket.create_server` does, may still listen there, end, and
    listen there again. The end of the block lets go of all of them.
    """

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def __enter__(self) -> Ports:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all ports."""
        while self._held:
            self._held.pop().close()

    def one(self) -> int:
        """Hold one more port and return it."""
        return self._hold(0)

    def address(self) -> str:
        """Hold one more port and return its address, HOST:PORT."""
        return f"{HOST}:{self.one()}"

    def row(self, count: int) -> int:
        """Hold that many ports in a row and return the first."""
        first = ROW_FIRST + os.getpid() % 100 * 100
        while True:
            before = len(self._held)
            try:
                for port in range(first, first + count):
                    self._hold(port)
                return first
            except OSError:
                for held in self._held[before:]:
                    held.close()
                del self._held[before:]
            first = first + count if first + 2 * count < ROW_LAST else ROW_FIRST

    def _hold(self, port: int) -> int:
        held = socket.socket()
        try:
            held.bind((HOST, port))  # without SO_REUSEADDR: it must be nobody else's
        except OSError:
            held.close()
            raise
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # from here on a server may share it
        self._held.append(held)
        return int(held.getsockname()[1])


_FOR_LIFE = Ports()
atexit.register(_FOR_LIFE.close)
NOBODY = _FOR_LIFE.address()
"""An address at which nobody listens as long as this process lives."""
