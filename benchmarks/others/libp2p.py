"""py-libp2p's kad-dht: a Kademlia DHT on Trio, over TCP.

    python -m benchmarks.others.libp2p node|client [MULTIADDR]        in its own environment

Its connections are encrypted and multiplexed.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.others import program

if TYPE_CHECKING:
    from benchmarks.others.processes import Group
    from benchmarks.others.system import Home

READY_S = 120.0
ADDRESS_S = 24 * 3600
NAMESPACE = "bench"
AT_ONCE = 8

ACKNOWLEDGED_BY = "the search for the 20 nearest nodes is done and each was asked to store it; how many did is not said"
SETTINGS = (
    "up to 20 copies (not configurable); the clients are in client mode, store nothing and read what another client "
    "put; a get ends with the first valid record (quorum = 1); keys carry a namespace, as the library demands"
)


class Member:
    """A benchmark client that is a member of the DHT in client mode."""

    def __init__(self, dht: Any) -> None:
        self._dht = dht

    async def put(self, key: str, value: bytes) -> None:
        """Put a value; return when the library has stored it."""
        await self._dht.put_value(f"/{NAMESPACE}/{key}", value)

    async def get(self, key: str) -> bytes | None:
        """Return the first valid record of a key; None if the DHT has no record."""
        found: bytes | None = await self._dht.get_value(f"/{NAMESPACE}/{key}", quorum=1)
        return found


class AnyValue:
    """A validator of records that accepts every value.

    Each key is written once, so it selects the first of several values.
    """

    def validate(self, key: str, value: bytes) -> None:
        """Accept every value: an invalid one would raise an error."""

    def select(self, key: str, values: list[bytes]) -> int:
        """Return the index of the value to use: always the first one."""
        return 0


@asynccontextmanager
async def joined(entries: list[str], mode: str) -> AsyncIterator[tuple[Any, Any]]:
    """Run a member of the DHT, connected to other members, until the block ends.

    Args:
        entries: addresses of other members; empty for the first one.
        mode: the library's mode, "SERVER" or "CLIENT".

    Yields:
        the library's host and DHT objects.
    """
    from libp2p import new_host
    from libp2p.crypto.secp256k1 import create_new_key_pair
    from libp2p.kad_dht.kad_dht import DHTMode, KadDHT
    from libp2p.records.validator import NamespacedValidator
    from libp2p.tools.anyio_service import background_trio_service
    from libp2p.tools.utils import info_from_p2p_addr
    from multiaddr import Multiaddr

    logging.disable(logging.CRITICAL)
    host = new_host(key_pair=create_new_key_pair(secrets.token_bytes(32)))
    async with host.run(listen_addrs=[Multiaddr("/ip4/127.0.0.1/tcp/0")]):
        validator = NamespacedValidator({NAMESPACE: AnyValue()})
        dht = KadDHT(host, DHTMode[mode], validator=validator, validator_changed=True)
        for entry in entries:
            info = info_from_p2p_addr(Multiaddr(entry))
            host.get_peerstore().add_addrs(info.peer_id, info.addrs, ADDRESS_S)
            await host.connect(info)
            await dht.routing_table.add_peer(info)
        async with background_trio_service(dht):
            if entries:
                await dht.peer_routing.find_closest_peers_network(host.get_id().to_bytes())
            yield host, dht


async def node(entries: list[str]) -> None:
    """Run a node of the DHT until standard input ends.

    Args:
        entries: addresses of other members; empty for the first one.
    """
    async with joined(entries, "SERVER") as (host, _):
        await program.until_input_ends_on_trio(address=str(host.get_addrs()[0]))


async def client(entries: list[str]) -> None:
    """Run a client that makes the operations requested on standard input.

    Args:
        entries: addresses of members.
    """
    async with joined(entries, "CLIENT") as (_, dht):
        await program.serve_on_trio(Member(dht))


def start(group: Group, home: Home, nodes: int) -> list[str]:
    """Start the nodes, a few at a time, and return the addresses of three.

    Each node takes a second to load.
    """
    addresses: list[str] = []
    while len(addresses) < nodes:
        count = 1 if not addresses else min(AT_ONCE, nodes - len(addresses))
        starting = [group.node(home.program("libp2p", "node", *addresses[:3])) for _ in range(count)]
        addresses += [process.read(READY_S)["address"] for process in starting]
    return addresses[:3]


def run(role: Any, arguments: list[str]) -> None:
    """Run a role of this program on Trio.

    Args:
        role: the asynchronous function of the role.
        arguments: its arguments from the command line.
    """
    import trio

    trio.run(role, arguments)


if __name__ == "__main__":
    program.main({"node": node, "client": client}, run)
