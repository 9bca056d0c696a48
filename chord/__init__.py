"""A Chord ring you can run, watch and break: a peer-to-peer key-value store on Trio.

    chord.open_node(listen=…, join=[…])    a peer inside your Trio program        (chord/node/)
    chord.open_client("127.0.0.1:9000")    talk to a ring from Trio               (chord/client/async_client.py)
    chord.connect("127.0.0.1:9000")        talk to a ring from blocking code      (chord/client/blocking.py)
    chord.testing.ring(16, seed=7)         a whole ring on virtual time           (chord/testing/)
    chord.errors                           everything that can be raised          (chord/errors.py)

The packages, from the bottom up. A package imports only modules and packages above it in this list:

    errors  ids  events  config    the shared vocabulary
    wire/          what travels: messages, CBOR, frames, the first frame
    verify/        the invariants of a ring; histories of operations and their checkers
    store/         versions, Merkle trees, the storage seam, SQLite, a node's identity
    net/  rpc      connections, calls between nodes, the failure detector
    ring/  finger  stabilize       pointers, ownership, preference lists, lookups
    replication/   the coordinator, replicas, anti-entropy, handoff, transfers, garbage collection
    membership/    join, leave and rejoin of one vnode
    client/        the blocking client and the one on Trio
    node/          the node: its services, dispatcher, maintenance, restart and shutdown
    testing/       a ring in memory on virtual time
    sim/           the simulator: seeds, faults, the oracle
    lab/           sharding schemes, experiments, figures of the papers
    cli/           the `chord` command

Names are loaded when they are first used, so that nothing pays for Trio before it needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chord import errors, testing
    from chord.client.async_client import Client, open_client
    from chord.client.blocking import Ring, connect
    from chord.client.results import Decided, Found, Quarantined, QuarantinedValue, Stored, last_writer_wins
    from chord.config import NodeConfig, RingConstants
    from chord.node import Node, open_node

__version__ = "0.1.0"

__all__ = [
    "Client",
    "Decided",
    "Found",
    "Node",
    "NodeConfig",
    "Quarantined",
    "QuarantinedValue",
    "Ring",
    "RingConstants",
    "Stored",
    "__version__",
    "connect",
    "errors",
    "last_writer_wins",
    "open_client",
    "open_node",
    "testing",
]

_HOME = {
    "Client": "chord.client.async_client",
    "Decided": "chord.client.results",
    "Found": "chord.client.results",
    "Node": "chord.node",
    "NodeConfig": "chord.config",
    "Quarantined": "chord.client.results",
    "QuarantinedValue": "chord.client.results",
    "Ring": "chord.client.blocking",
    "RingConstants": "chord.config",
    "Stored": "chord.client.results",
    "connect": "chord.client.blocking",
    "last_writer_wins": "chord.client.results",
    "open_client": "chord.client.async_client",
    "open_node": "chord.node",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use (PEP 562)."""
    from importlib import import_module

    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in ("errors", "testing"):
        value = import_module(f"chord.{name}")
    else:
        raise AttributeError(f"module 'chord' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
