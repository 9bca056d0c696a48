"""The network of a demonstration: its peers can be split into two sides, which then refuse each other's frames.

The peers are real nodes over TCP. Only those of `chord up --web --demo` use this network. It takes the place of
`connect_by_tcp` in the world of a node, and all else of the node is as always. The connections of clients, such as the
dashboard, are never refused.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Sequence

import trio

from chord.cli.output import HOST
from chord.config import NodeConfig
from chord.errors import PeerUnreachable
from chord.events import Emit
from chord.net.transport import Listener, TcpPipe, TcpTransport
from chord.node.world import connect_by_tcp
from chord.rpc import Rpc
from chord.wire.cuts import CutNumber
from chord.wire.hello import HelloPolicy

PORTS = 1 << 16


class Sides:
    """The side of the split on which each peer is, in memory that the parent shares with its peers.

    Make it before the peers are forked. The parent writes, and the peers read.
    """

    def __init__(self) -> None:
        self._side_of_port = mmap.mmap(-1, PORTS)  # anonymous and shared; 0 is no side

    @property
    def is_split(self) -> bool:
        """Whether there are two sides."""
        return self._side_of_port.find(b"\1") >= 0

    def split(self, first: Iterable[str], second: Iterable[str]) -> None:
        """Put peers on two sides, by address.

        Peers of a side reach only each other.
        """
        self.heal()
        for side, addresses in ((1, first), (2, second)):
            for address in addresses:
                self._side_of_port[_port(address)] = side

    def heal(self) -> None:
        """End the split: all peers reach each other again."""
        self._side_of_port[:] = bytes(PORTS)

    def place(self, address: str) -> None:
        """Put a new peer on the second side, if there is a split."""
        if self.is_split:
            self._side_of_port[_port(address)] = 2

    def are_apart(self, one: str, other: str) -> bool:
        """Return whether two addresses are on different sides.

        An address of no peer is on neither.
        """
        sides = {self._side_of_port[_port(address)] for address in (one, other)}
        return sides == {1, 2}

    def near(self, own: str, addresses: Sequence[str]) -> tuple[str, ...]:
        """Return the addresses that a peer may reach.

        If it may reach none, return all.
        """
        return tuple(address for address in addresses if not self.are_apart(own, address)) or tuple(addresses)

    def connect(self, config: NodeConfig, hello_policy: HelloPolicy, observe: Emit, cuts: CutNumber) -> Rpc:
        """Return a peer's RPC, which refuses the other side; see `Connect`."""
        return connect_by_tcp(
            config, hello_policy, observe, cuts, lambda tcp: SplitTransport(tcp, config.listen, self)
        )


def _port(address: str) -> int:
    """Return the port of a peer on this machine.

    The port of any other address is 0, which no peer has.
    """
    host, _, port = address.rpartition(":")
    return int(port) if host == HOST else 0


class SplitTransport:
    """TCP that refuses the other side of a split. See `Transport`.

    A node opens no connection to a peer on the other side. A connection from before the split breaks at its next
    frame, whichever way that goes.

    Args:
        tcp: opens the streams and listeners.
        own: the address of this peer.
        sides: the sides of all peers.
    """

    def __init__(self, tcp: TcpTransport, own: str, sides: Sides) -> None:
        self._tcp = tcp
        self._own = own
        self._sides = sides

    async def open_stream(self, address: str) -> SplitStream:
        """Connect to an address, HOST:PORT.

        Raises:
            PeerUnreachable: the peer is on the other side, or TCP cannot connect.
        """
        if self._sides.are_apart(self._own, address):
            raise PeerUnreachable(f"{address}: the demonstration has split the network")
        stream = await self._tcp.open_stream(address)
        return SplitStream(stream, lambda: self._sides.are_apart(self._own, address))

    async def open_listener(self, address: str) -> Listener:
        """Listen at an address, and accept all.

        The peer that dials guards the connection.
        """
        return await self._tcp.open_listener(address)

    def shortage(self) -> str:
        """Return which resource for streams ran out in the last ten seconds.

        It is a sentence; "" means none.
        """
        return self._tcp.shortage()


class SplitStream(trio.abc.HalfCloseableStream):
    """A TCP stream to a peer that breaks at its first bytes after a split.

    Args:
        stream: the stream of TCP.
        is_cut: returns whether the peer is on the other side.
    """

    def __init__(self, stream: trio.SocketStream, is_cut: Callable[[], bool]) -> None:
        self._stream = stream
        self._pipe = TcpPipe(stream)
        self._is_cut = is_cut

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Wait for bytes, and return at most `max_bytes` of them.

        The result is empty if the peer has closed the stream.

        Raises:
            trio.BrokenResourceError: the connection is broken, or the peer is on the other side.
        """
        found = await (self._stream.receive_some() if max_bytes is None else self._pipe.receive_some(max_bytes))
        self._require_whole()
        return found

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write bytes, and wait until the operating system has taken all of them.

        Raises:
            trio.BrokenResourceError: the connection is broken, or the peer is on the other side.
        """
        self._require_whole()
        await self._stream.send_all(data)

    def send_nowait(self, data: bytes) -> int:
        """Write as many bytes as the operating system takes now.

        Returns their number; 0 on an error.
        """
        return 0 if self._is_cut() else self._pipe.send_nowait(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until a write may take bytes."""
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """Tell the peer that no more bytes follow."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def _require_whole(self) -> None:
        if self._is_cut():
            raise trio.BrokenResourceError("the demonstration has split the network")

