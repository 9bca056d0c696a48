"""OpenDHT: a Kademlia DHT in C++ over UDP, through its Python binding.

python -m benchmarks.others.opendht node|client [HOST:PORT]       in its own environment
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from benchmarks.others import program

if TYPE_CHECKING:
    from benchmarks.others.processes import Group
    from benchmarks.others.system import Home

READY_S = 60.0
UNLIMITED = 1_000_000_000
NETWORK = 4711

ACKNOWLEDGED_BY = "the search for the 8 nearest nodes is done and at least one of them has announced the value"
SETTINGS = (
    "8 copies (not configurable); its limits on requests per second and address, made for the open internet, are "
    "lifted: all nodes share one address here; a get ends with the first value, not when all nodes have answered"
)


class Member:
    """A benchmark client that is a member of the DHT, by the library's asyncio API."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    async def put(self, key: str, value: bytes) -> None:
        """Put a value; raise an error if the library reports a failure."""
        from opendht import InfoHash, Value

        if not await self._runner.put(InfoHash.get(key), Value(value)):
            raise RuntimeError("the put failed")

    async def get(self, key: str) -> bytes | None:
        """Return the first value found for a key; None if there is no value."""
        from opendht import InfoHash

        found = await self._runner.getFirst(InfoHash.get(key))
        return None if found is None else bytes(found.data)


async def join(entries: list[str]) -> tuple[Any, int]:
    """Start a member on a free port, and tell it the addresses of other members.

    Args:
        entries: addresses of other members; empty for the first one.

    Returns:
        the library's runner object, and its port.
    """
    from opendht import DhtConfig
    from opendht.aio import DhtRunner

    config = DhtConfig()
    config.setRateLimit(UNLIMITED, UNLIMITED)
    config.setNetwork(NETWORK)
    config.setPeerDiscovery(False, False)
    runner = DhtRunner(config=config)
    runner.run(port=0, ipv4="127.0.0.1")
    for entry in entries:
        host, _, port = entry.partition(":")
        runner.bootstrap(host, port)
    return runner, int(runner.getBound().getPort())


async def node(entries: list[str]) -> None:
    """Run a node of the DHT until standard input ends.

    Args:
        entries: addresses of other members; empty for the first one.
    """
    _, port = await join(entries)
    await program.until_input_ends(address=f"127.0.0.1:{port}")


async def client(entries: list[str]) -> None:
    """Run a client that makes the operations requested on standard input.

    Args:
        entries: addresses of members.
    """
    runner, _ = await join(entries)
    await asyncio.sleep(2)
    await program.serve_on_asyncio(Member(runner))


def start(group: Group, home: Home, nodes: int) -> list[str]:
    """Start the nodes one by one, and return the addresses of three."""
    addresses: list[str] = []
    for _ in range(nodes):
        process = group.node(home.program("opendht", "node", *addresses[:3]))
        addresses.append(process.read(READY_S)["address"])
    return addresses[:3]


if __name__ == "__main__":
    program.main({"node": node, "client": client})
