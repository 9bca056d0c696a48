"""The world of a node: the network, the disk, the clock and the randomness that it uses.

A node touches the outside only through these seams. `World.real` has those of a process. `chord.testing` and the
simulator supply others.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from chord.config import NodeConfig
from chord.events import Emit, Observer, ignore
from chord.net.calls import CallsService
from chord.net.transport import TcpTransport, Transport
from chord.node import restart
from chord.rpc import Rpc
from chord.store.identity import FileIdentity, IdentityStore, MemoryIdentity
from chord.store.storage import Storage
from chord.wire.cuts import CutNumber
from chord.wire.hello import HelloPolicy

Connect: TypeAlias = Callable[[NodeConfig, HelloPolicy, Emit, CutNumber], CallsService]
"""Returns the RPC of a node. The hello policy decides which peers it accepts. All messages carry the cut number."""


class World(NamedTuple):
    """The network, store, clock and randomness that one node uses.

    Tests and the simulator supply others than those of a real process.

    Attributes:
        connect: makes the node's calls to other nodes.
        storage: holds the records.
        identity: keeps the state for the next start.
        wall_now_ms: returns the wall clock, in ms since 1970.
        rng: the source of random numbers.
        observe: receives every event.
    """

    connect: Connect
    storage: Storage
    identity: IdentityStore
    wall_now_ms: Callable[[], int]
    rng: random.Random
    observe: Observer

    @classmethod
    def real(cls, config: NodeConfig, observe: Observer = ignore) -> World:
        """Return the network, store, clock and randomness of a real process.

        These are TCP, the data directory or memory, and the system's clock and randomness.

        Args:
            config: the node's configuration.
            observe: receives every event. It must not raise, and must return quickly.

        Raises:
            ConfigError: the data directory cannot be used, or another node runs on it.
        """
        identity = FileIdentity(config.data_dir) if config.data_dir else MemoryIdentity()
        rng = random.Random(secrets.randbits(128))
        storage = restart.storage(config, rng.randbytes(8))
        return cls(connect_by_tcp, storage, identity, wall_now_ms, rng, observe)


def wall_now_ms() -> int:
    """Return the system's wall clock, in ms since 1970."""
    return time.time_ns() // 1_000_000


def stream_of(rng: random.Random) -> random.Random:
    """Return a new source of random numbers, with a seed drawn from another source."""
    return random.Random(rng.getrandbits(128))


def connect_by_tcp(
    config: NodeConfig,
    hello_policy: HelloPolicy,
    observe: Emit,
    cuts: CutNumber,
    wrap: Callable[[TcpTransport], Transport] = lambda tcp: tcp,
) -> Rpc:
    """Return the RPC of a node over TCP; see `Connect`. `wrap` may put another transport around that of TCP."""
    transport = TcpTransport(config.limits.lookups_max)
    rpc = connect_over(wrap(transport), config, hello_policy, observe, cuts)
    transport.on_shortage.append(rpc.make_room)
    return rpc


def connect_over(
    transport: Transport, config: NodeConfig, hello_policy: HelloPolicy, observe: Emit, cuts: CutNumber
) -> Rpc:
    """Return the RPC of a node over byte streams; see `Connect`."""
    return Rpc(
        transport,
        circle=config.ring.circle,
        limits=config.limits,
        hello=hello_policy.hello,
        on_hello=hello_policy.on_hello,
        observe=observe,
        cuts=cuts,
    )
