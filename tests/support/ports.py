"""Ports of loopback that a test reserves while it uses their numbers.

Otherwise a closed port may go to another test at any moment. Then a dial that must be refused is answered, and a
server cannot listen again at its port.
"""

from __future__ import annotations

import atexit
import os
import socket
from types import TracebackType

HOST = "127.0.0.1"
ROW_FIRST, ROW_LAST = 20_000, 32_000
"""Rows of ports come from below the range of ports that the system assigns."""


class Ports:
    """Bound ports without a listener.

    A dial to such a port is refused. The system does not assign it, and no other `Ports` can hold it. A server with
    SO_REUSEADDR, such as every chord node and `socket.create_server`, may still listen there repeatedly. The end of
    the block releases all ports.
    """

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def __enter__(self) -> Ports:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Release all ports."""
        while self._held:
            self._held.pop().close()

    def one(self) -> int:
        """Hold one more port and return it."""
        return self._hold(0)

    def address(self) -> str:
        """Hold one more port and return its address, HOST:PORT."""
        return f"{HOST}:{self.one()}"

    def row(self, count: int) -> int:
        """Hold `count` ports in a row and return the first."""
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
            held.bind((HOST, port))  # without SO_REUSEADDR, so that no other socket has the port
        except OSError:
            held.close()
            raise
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # from now on a server may share it
        self._held.append(held)
        return int(held.getsockname()[1])


_FOR_LIFE = Ports()
atexit.register(_FOR_LIFE.close)
UNUSED = _FOR_LIFE.address()
"""An address without a listener until this process ends."""
