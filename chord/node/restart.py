"""Restart recovery: check the identity and the records in the data directory.

Identity and records are two files, and operators move and lose files. Records without an identity are refused, because
no node can say which node they belong to. An identity without records is accepted: it is a node that lost its disk, and
its replicas restore the records.

The length of the absence does not matter. The records count, and the reap logs of the other nodes show which of them
are dead (`store/reap_log.py`).
"""

from __future__ import annotations

import os
from pathlib import Path

from chord.config import NodeConfig, RingConstants
from chord.errors import ChordError, ConfigError
from chord.events import StoreBegun
from chord.ids import vnode_id
from chord.ring.context import NodeContext
from chord.store.identity import FILE_NAME, IdentityStore, Kept, read_kept
from chord.store.sqlite import SqliteStorage
from chord.store.sqlite_file import FILE_NAME as RECORDS
from chord.store.storage import MemoryStorage, Storage
from chord.wire.messages import Address

_CONSTANT = (
    "start the node with that value. A ring keeps its constants; to change them, restore a backup into a new ring"
)


def storage(config: NodeConfig, incarnation: bytes) -> Storage:
    """Return the store of a node: in its data directory, or in memory without one.

    Args:
        config: the node's configuration.
        incarnation: eight random bytes that name the store if it is new.
    """
    if config.data_dir is None:
        return MemoryStorage(config.ring.circle, incarnation)
    path, limits = Path(config.data_dir) / RECORDS, config.limits

    def require_there() -> None:
        """Raise `OSError` if the file is gone.

        Writes to a removed file succeed, but no later start finds them.
        """
        os.stat(path)

    return SqliteStorage(
        config.ring.circle,
        config.data_dir,
        incarnation,
        require_there,
        staged_bytes_max=limits.staged_bytes_max,
        free_bytes_min=limits.free_bytes_min,
    )


async def refuse_address_of_another(advertise: str | None, host: NodeContext) -> None:
    """Refuse to start if another node answers at the advertised address.

    If no node answers, the address may still be right: in some networks only other nodes can reach it. Before an owner
    gives this node an arc, the owner opens a connection to the address.

    Raises:
        ConfigError: another node answers.
    """
    if advertise is None:
        return
    try:
        hello = await host.peers.reach(host.address)
    except ChordError:
        return
    if hello is not None and hello.incarnation != host.storage.incarnation:
        other = "another node" if hello.address == host.address else hello.address
        raise ConfigError(
            f"cannot advertise {host.address}: {other} answers there; "
            "advertise an address at which others reach this node"
        )


async def find(identity: IdentityStore, host: NodeContext) -> Kept | None:
    """Open the store, and return the persisted state.

    Returns:
        None if the node is new, or had left its ring.

    Raises:
        ConfigError: the files cannot be read, do not belong together, or belong to another configuration.
    """
    kept, config = identity.load(), host.config
    require_same(kept, config)
    await host.storage.open()
    if kept is None and config.data_dir is not None and len(host.storage):
        raise ConfigError(
            f"{config.data_dir} has records but no {FILE_NAME} to name their node; "
            "put it back, or move the records away to start as a new node"
        )
    if host.storage.damaged_notes:
        await host.storage.commit(host.reap_log.mended())
    if kept is None or kept.has_left:
        return None
    if kept.incarnation != host.storage.incarnation.hex():
        has_others = config.ring.replicas > 1 and any(address != kept.address for address in kept.known)
        host.tell([StoreBegun("lost" if has_others else "lost for good")])
    host.hello_policy.ring_id = kept.ring_id
    return kept


def require_same(kept: Kept | None, config: NodeConfig) -> None:
    """Check that a configuration fits the persisted state.

    A node that is new, or had left its ring, fits any configuration.

    Raises:
        ConfigError: the data directory belongs to another ring, or to a node with other vnode ids.
    """
    if kept is None or kept.has_left:
        return
    where = f"the data directory {config.data_dir}" if config.data_dir is not None else "what was kept"
    if kept.bits != config.ring.bits:
        raise ConfigError(f"{where} belongs to a ring of {kept.bits} bits, not {config.ring.bits}; {_CONSTANT}")
    if kept.ring is not None:  # a node that was never in a ring may start again with other constants
        _check_ring(kept, config.ring, where)
    if config.id is not None and [v.id for v in kept.vnodes] != [config.id]:
        raise ConfigError(f"{where} belongs to vnode {kept.vnodes[0].id}, not {config.id}")
    # On a small circle several vnodes of a node may have the same id.
    wanted = {vnode_id(config.ring.circle, kept.address, i) for i in range(config.vnodes)}
    if config.vnodes > 1 and len(wanted) != len(kept.vnodes):
        raise ConfigError(f"{where} belongs to a node with {len(kept.vnodes)} vnodes, not {len(wanted)}")


def require_same_on_disk(config: NodeConfig) -> None:
    """Check a configuration against its data directory, without creating anything.

    Raises:
        ConfigError: see `require_same`; or the identity file cannot be read.
    """
    if config.data_dir is not None:
        require_same(read_kept(Path(config.data_dir) / FILE_NAME), config)


def _check_ring(kept: Kept, ring: RingConstants, where: str) -> None:
    """Refuse ring constants that differ from the persisted ones.

    If every node restarted with the new constants, no peer would notice the mismatch.
    """
    for name in ("successors", "replicas", "cluster"):
        before, now = getattr(kept, name), getattr(ring, name)
        if before != now:
            raise ConfigError(f"{where} belongs to a ring with {name} = {before}, not {now}; {_CONSTANT}")


def nodes_to_ask(kept: Kept | None, host: NodeContext, *, has_join: bool) -> tuple[Address, ...]:
    """Return the persisted addresses of other nodes, through which a node rejoins.

    The result is empty if the node is new or was alone. Another node may listen at this node's former address now, so
    that address is included.

    Args:
        kept: the persisted state; None if the node is new.
        host: the node context.
        has_join: whether the operator named a node to join. Then the persisted addresses do not count for a node that
            never got into a ring.

    Raises:
        ConfigError: the node was in a ring with others, and no address of them is known. It must not found a ring of
            its own.
    """
    if kept is None or (kept.ring is None and has_join):
        return ()
    known = tuple(address for address in kept.known if address != host.address)
    if kept.known and kept.address not in (host.address, *known):
        known = (*known, kept.address)
    if kept.ring is not None and not known and not has_join and kept.vnodes[0].owned_from is None:
        where = host.config.data_dir or "what was kept"
        raise ConfigError(
            f"{where} belongs to ring {kept.ring}, and {FILE_NAME} names no other node of it; "
            "name one that runs: --join HOST:PORT"
        )
    return known
