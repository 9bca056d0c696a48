"""A Chord ring you can run, watch and break: a peer-to-peer key-value store on Trio.

    chord.open_node(listen=…, join=[…])    a peer inside your Trio program        (chord/embedded.py)
    chord.open_client("127.0.0.1:9000")    talk to a ring from Trio               (chord/client.py)
    chord.connect("127.0.0.1:9000")        talk to a ring from blocking code      (chord/blocking.py)
    chord.testing.ring(16, seed=7)         a whole ring on virtual time           (chord/testing/)
    chord.errors                           everything that can be raised          (chord/errors.py)

The house, from the ground up; imports point strictly downward:

    values       errors  ids  events  messages/  config
    algorithms   arcs  finger  ring  ownership  suspicion  cbor  wire  greeting  invariants  values  bulk
                 parcels  history/
                 data/versions (with superseded, quarantine, restore)  data/digest  data/view
    seams        alarm  transport  calls  identity  data/storage  data/sqlite (with its file and rows)
    calls        rpc (with its rpc_* parts)  links  periodic  peers
    protocols    host  earlier  vnode  route  lookup  stabilize  bounds  self_lookup  membership  resume
    on records   data/records  data/replicate (with quorum, quorum_reads, fan, reading, writing)
                 data/batches (with gather)  data/repair
                 data/exchange  data/copies  data/sending  data/transfer  data/misplaced  data/reap (with prune)
    assembly     vnode_parts  dispatch  farewell  maintenance  describe  remember  interface  node  embedded
                 asking (with short_cuts, asking_many)  operations  client  blocking (with links_pool)  testing/
    shells       cli/
    beyond       experiments/  sim/  lab/ (with `chord[lab]`: schemes/  rings of a million nodes  experiments/)

Names are loaded when they are first used, so that nothing pays for Trio before it needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chord import errors, testing
    from chord.blocking import Ring, connect
    from chord.client import Client, open_client
    from chord.config import NodeConfig, RingConstants
    from chord.embedded import open_node
    from chord.node import Node
    from chord.values import Decided, Found, Quarantined, QuarantinedValue, Stored, last_writer_wins

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
    "Client": "chord.client",
    "Decided": "chord.values",
    "Found": "chord.values",
    "Node": "chord.node",
    "NodeConfig": "chord.config",
    "Quarantined": "chord.values",
    "QuarantinedValue": "chord.values",
    "Ring": "chord.blocking",
    "RingConstants": "chord.config",
    "Stored": "chord.values",
    "connect": "chord.blocking",
    "last_writer_wins": "chord.values",
    "open_client": "chord.client",
    "open_node": "chord.embedded",
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
