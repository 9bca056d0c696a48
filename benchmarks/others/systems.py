"""All compared systems, in the order of the tables."""

from __future__ import annotations

from benchmarks.others import chord_ring, etcd, kademlia, libp2p, opendht, redis
from benchmarks.others.system import System

OURS = "chord"

SYSTEMS = (
    System(
        OURS,
        acknowledged_by=f"{chord_ring.WRITE_QUORUM} of {chord_ring.COPIES} replicas have it in memory",
        settings=f"{chord_ring.SETTINGS}; records in memory",
        start=chord_ring.start_in_memory,
        client="chord_ring",
        hops=chord_ring.hops,
    ),
    System(
        "chord-sqlite",
        acknowledged_by=f"{chord_ring.WRITE_QUORUM} of {chord_ring.COPIES} replicas have it on disk (SQLite, fsync)",
        settings=f"{chord_ring.SETTINGS}; records in SQLite, every commit synced",
        start=chord_ring.start_on_disk,
        client="chord_ring",
        hops=chord_ring.hops,
    ),
    System(
        "kademlia",
        acknowledged_by=kademlia.ACKNOWLEDGED_BY,
        settings=kademlia.SETTINGS,
        start=kademlia.start,
        client="kademlia",
        pip=("kademlia==2.2.3", "rpcudp==5.0.1", "u-msgpack-python==2.8.0"),
        is_bar=True,
        is_python=True,
    ),
    System(
        "libp2p",
        acknowledged_by=libp2p.ACKNOWLEDGED_BY,
        settings=libp2p.SETTINGS,
        start=libp2p.start,
        client="libp2p",
        pip=("libp2p==0.8.1", "trio==0.35.0", "multiaddr==0.2.0"),
        is_bar=True,
        is_python=True,
    ),
    System(
        "opendht",
        acknowledged_by=opendht.ACKNOWLEDGED_BY,
        settings=opendht.SETTINGS,
        start=opendht.start,
        client="opendht",
        pip=("opendht==4.4.2",),
        is_bar=True,
    ),
    System(
        "redis",
        acknowledged_by=redis.ACKNOWLEDGED_BY,
        settings=redis.SETTINGS,
        start=redis.start,
        client="redis",
        debian=("redis-server",),
        sizes=(1,),
    ),
    System(
        "etcd",
        acknowledged_by=etcd.ACKNOWLEDGED_BY,
        settings=etcd.SETTINGS,
        start=etcd.start,
        client="etcd",
        pip=("grpcio==1.85.1",),
        debian=("etcd-server",),
        sizes=(3,),
    ),
)

NAMES = tuple(system.name for system in SYSTEMS)
