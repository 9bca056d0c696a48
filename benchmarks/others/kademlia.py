"""bmuller/kademlia: a Kademlia DHT on asyncio and UDP.

python -m benchmarks.others.kademlia node|client [HOST:PORT]      in its own environment
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.others import program
from benchmarks.others.loop import Client

if TYPE_CHECKING:
    from benchmarks.others.processes import Group
    from benchmarks.others.system import Home

COPIES = 4
"""Its k: how many nodes a value is stored on, and the width of its routing table. With 3, gets on 64 nodes lose
their way now and then; 8 and its default, 20, make puts slower."""

READY_S = 60.0
SETTLE_S = 0.2

ACKNOWLEDGED_BY = f"at least one of the {COPIES} nearest nodes found has it in memory"
SETTINGS = (
    f"k = {COPIES} (copies, and width of the routing table; its default of 20 is slower), alpha = 3 (its default); "
    "the client is a member, as the library has it, and keeps no values, so that a get asks the network"
)


class KeepsNothing:
    """A node storage that drops every value, for members that are clients.

    With a real storage, some gets of a client would read its own memory instead of the network.
    """

    def __setitem__(self, key: bytes, value: Any) -> None:
        pass

    def __getitem__(self, key: bytes) -> Any:
        raise KeyError(key)

    def get(self, key: bytes, default: Any = None) -> Any:
        """Return the default, because no value is kept."""
        return default

    def iter_older_than(self, seconds_old: float) -> Iterator[Any]:
        """Return no items, because no value is kept."""
        return iter(())

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Member:
    """A benchmark client that is a member of the DHT."""

    def __init__(self, server: Any) -> None:
        self._server = server

    async def put(self, key: str, value: bytes) -> None:
        """Put a value; raise an error if no node has stored it."""
        if not await self._server.set(key, value):
            raise RuntimeError("no node has stored it")

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key; None if the DHT has no value."""
        found: bytes | None = await self._server.get(key)
        return found


async def join(entries: list[str], storage: Any) -> tuple[Any, int]:
    """Start a member on a free port, and join it to the DHT.

    Args:
        entries: addresses of other members; empty for the first one.
        storage: the storage of the member; None: the library's own.

    Returns:
        the library's server object, and its port.
    """
    from kademlia.network import Server

    logging.disable(logging.CRITICAL)
    server = Server(ksize=COPIES, storage=storage)
    await server.listen(0, interface="127.0.0.1")
    port: int = server.transport.get_extra_info("sockname")[1]
    if entries:
        await server.bootstrap([(host, int(at)) for host, _, at in (entry.partition(":") for entry in entries)])
    return server, port


async def node(entries: list[str]) -> None:
    """Run a node of the DHT until standard input ends.

    Args:
        entries: addresses of other members; empty for the first one.
    """
    _, port = await join(entries, None)
    await program.until_input_ends(address=f"127.0.0.1:{port}")


async def client(entries: list[str]) -> None:
    """Run a client that makes the operations requested on standard input.

    Args:
        entries: addresses of members.
    """
    server, _ = await join(entries, KeepsNothing())
    await asyncio.sleep(SETTLE_S)
    member: Client = Member(server)
    await program.serve_on_asyncio(member)


def start(group: Group, home: Home, nodes: int) -> list[str]:
    """Start the nodes one by one, and return the addresses of three.

    Each node joins through the first ones.
    """
    addresses: list[str] = []
    for _ in range(nodes):
        process = group.node(home.program("kademlia", "node", *addresses[:3]))
        addresses.append(process.read(READY_S)["address"])
    return addresses[:3]


if __name__ == "__main__":
    program.main({"node": node, "client": client})
