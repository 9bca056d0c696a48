"""Chord: a peer-to-peer key-value store on Trio, to run, watch and break.

    chord.connect("127.0.0.1:9000")        a client for blocking code             (chord/client/blocking.py)
    chord.open_client("127.0.0.1:9000")    a client for a Trio program            (chord/client/async_client.py)
    chord.open_asyncio_client(…)           a client for an asyncio program        (chord/client/asyncio_client.py)
    chord.open_node(listen=…, join=[…])    a node inside a Trio program           (chord/node/__init__.py)
    chord.testing.open_ring(16, seed=7)    a whole ring in memory                 (chord/testing/)
    chord.errors                           all errors of the package              (chord/errors.py)

The packages are numbered by layer. Each imports only its own layer and layers with smaller numbers:

     0  errors  ids  events  config    the shared vocabulary
     1  wire/                          messages, CBOR, frames, the client's side of a stream
     2  verify/                        invariants of a ring; histories of operations and their checkers
     3  store/                         versions, Merkle trees, storage, a node's identity
     4  net/  rpc                      connections, calls between nodes, steps, the failure detector
     5  ring/  finger  stabilize       pointers, ownership, preference lists, lookups
     6  replication/                   coordinator, replicas, anti-entropy, handoff, transfers, garbage collection
     7  membership/                    join, leave and rejoin of a vnode
     8  client/                        the clients: blocking, on Trio and on asyncio
     9  node/                          the node: services, dispatcher, maintenance, restart, shutdown
    10  views/                         the JSON shapes that users see, and their schemas
    11  testing/                       rings in memory on virtual time
    12  sim/                           the simulator: seeds, faults, the oracle
    13  lab/                           sharding schemes, experiments, figures of the papers
    14  cli/                           the `chord` command

docs/explanation/how-a-node-works.md walks through them. Public names are loaded when they are first used, so blocking
and asyncio code does not load Trio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chord import errors, testing
    from chord.client.async_client import AsyncClient, open_client
    from chord.client.asyncio_client import AsyncioClient, open_asyncio_client
    from chord.client.blocking import Client, connect
    from chord.client.inspection import Copy, Inspection
    from chord.client.results import (
        BatchResult,
        Decided,
        Found,
        Pair,
        Quarantined,
        QuarantinedValue,
        Resolver,
        Stored,
        last_writer_wins,
    )
    from chord.config import Limits, NodeConfig, Preset, RingConstants, Timing
    from chord.events import Emitted, Event, Observer
    from chord.ids import Circle, Contact, NodeState, PeerState, Point
    from chord.net.transport import Listener, Stream, Transport
    from chord.node import Node, open_node
    from chord.wire.messages import (
        ActorClock,
        Density,
        DensityReply,
        Describe,
        DescribeReply,
        EventInfo,
        FingerRun,
        GetEvents,
        GetEventsReply,
        GetMetrics,
        GetMetricsReply,
        HistogramInfo,
        HopTrace,
        HotKey,
        Mode,
        OwnedArc,
        PeerInfo,
        Record,
        ReplicaLine,
        ReplicaState,
        Reply,
        Route,
        Sample,
        SampleReply,
        Status,
        Trace,
        TrafficInfo,
        TransferInfo,
        Version,
        Via,
        VnodeInfo,
        WatchRequest,
    )

__version__ = "0.1.0"

__all__ = [
    "ActorClock",
    "AsyncClient",
    "AsyncioClient",
    "BatchResult",
    "Circle",
    "Client",
    "Contact",
    "Copy",
    "Decided",
    "Density",
    "DensityReply",
    "Describe",
    "DescribeReply",
    "Emitted",
    "Event",
    "EventInfo",
    "FingerRun",
    "Found",
    "GetEvents",
    "GetEventsReply",
    "GetMetrics",
    "GetMetricsReply",
    "HistogramInfo",
    "HopTrace",
    "HotKey",
    "Inspection",
    "Limits",
    "Listener",
    "Mode",
    "Node",
    "NodeConfig",
    "NodeState",
    "Observer",
    "OwnedArc",
    "Pair",
    "PeerInfo",
    "PeerState",
    "Point",
    "Preset",
    "Quarantined",
    "QuarantinedValue",
    "Record",
    "ReplicaLine",
    "ReplicaState",
    "Reply",
    "Resolver",
    "RingConstants",
    "Route",
    "Sample",
    "SampleReply",
    "Status",
    "Stored",
    "Stream",
    "Timing",
    "Trace",
    "TrafficInfo",
    "TransferInfo",
    "Transport",
    "Version",
    "Via",
    "VnodeInfo",
    "WatchRequest",
    "__version__",
    "connect",
    "errors",
    "last_writer_wins",
    "open_asyncio_client",
    "open_client",
    "open_node",
    "testing",
]

_HOME = {
    "ActorClock": "chord.wire.messages",
    "AsyncClient": "chord.client.async_client",
    "AsyncioClient": "chord.client.asyncio_client",
    "BatchResult": "chord.client.results",
    "Circle": "chord.ids",
    "Client": "chord.client.blocking",
    "Contact": "chord.ids",
    "Copy": "chord.client.inspection",
    "Decided": "chord.client.results",
    "Density": "chord.wire.messages",
    "DensityReply": "chord.wire.messages",
    "Describe": "chord.wire.messages",
    "DescribeReply": "chord.wire.messages",
    "Emitted": "chord.events",
    "Event": "chord.events",
    "EventInfo": "chord.wire.messages",
    "FingerRun": "chord.wire.messages",
    "Found": "chord.client.results",
    "GetEvents": "chord.wire.messages",
    "GetEventsReply": "chord.wire.messages",
    "GetMetrics": "chord.wire.messages",
    "GetMetricsReply": "chord.wire.messages",
    "HistogramInfo": "chord.wire.messages",
    "HopTrace": "chord.wire.messages",
    "HotKey": "chord.wire.messages",
    "Inspection": "chord.client.inspection",
    "Limits": "chord.config",
    "Listener": "chord.net.transport",
    "Mode": "chord.wire.messages",
    "Node": "chord.node",
    "NodeConfig": "chord.config",
    "NodeState": "chord.ids",
    "Observer": "chord.events",
    "OwnedArc": "chord.wire.messages",
    "Pair": "chord.client.results",
    "PeerInfo": "chord.wire.messages",
    "PeerState": "chord.ids",
    "Point": "chord.ids",
    "Preset": "chord.config",
    "Quarantined": "chord.client.results",
    "QuarantinedValue": "chord.client.results",
    "Record": "chord.wire.messages",
    "ReplicaLine": "chord.wire.messages",
    "ReplicaState": "chord.wire.messages",
    "Reply": "chord.wire.messages",
    "Resolver": "chord.client.results",
    "RingConstants": "chord.config",
    "Route": "chord.wire.messages",
    "Sample": "chord.wire.messages",
    "SampleReply": "chord.wire.messages",
    "Status": "chord.wire.messages",
    "Stored": "chord.client.results",
    "Stream": "chord.net.transport",
    "Timing": "chord.config",
    "Trace": "chord.wire.messages",
    "TrafficInfo": "chord.wire.messages",
    "TransferInfo": "chord.wire.messages",
    "Transport": "chord.net.transport",
    "Version": "chord.wire.messages",
    "Via": "chord.wire.messages",
    "VnodeInfo": "chord.wire.messages",
    "WatchRequest": "chord.wire.messages",
    "connect": "chord.client.blocking",
    "last_writer_wins": "chord.client.results",
    "open_asyncio_client": "chord.client.asyncio_client",
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
