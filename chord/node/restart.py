"""What a node finds of its life before: who it was, and its records. Do they belong together?

Identity and records are two files, and people move and lose files. Records without an identity are refused, for nobody
can say whose they are. An identity without its records is kept: it is a node that lost its disk, and its replicas
bring the records back.

How long the node was away does not matter. Its records count, and the reap logs of the others show which of them do
not (`store/reap_log.py`).
"""

from __future__ import annotations

import os
from pathlib import Path

from chord.config import NodeConfig, RingConstants
from chord.errors import ConfigError
from chord.events import StoreBegun
from chord.ids import vnode_id
from chord.ring.context import Host
from chord.store.identity import FILE_NAME, IdentityStore, Kept, read_kept
from chord.store.sqlite import SqliteStorage
from chord.store.sqlite_file import FILE_NAME as RECORDS
from chord.store.storage import MemoryStorage, Storage
from chord.wire.messages import Address

_CONSTANT = (
    "start the node with that value. A ring keeps its constants; to change them, restore a backup into a new ring"
)


def storage(config: NodeConfig, incarnation: bytes) -> Storage:
    """Return where a node keeps its records: in its data directory, if it has one."""
    if config.data_dir is None:
        return MemoryStorage(config.ring.circle, incarnation)
    path, staged_bytes_max = Path(config.data_dir) / RECORDS, config.limits.staged_bytes_max

    def require_there() -> None:
        """A removed file goes on taking what is written; nobody will find it again."""
        os.stat(path)

    return SqliteStorage(
        config.ring.circle, config.data_dir, incarnation, require_there, staged_bytes_max=staged_bytes_max
    )


async def find(identity: IdentityStore, host: Host) -> Kept | None:
    """Open the store and return what was kept of the identity; None: the node is new.

    Raises:
        ConfigError: what is there cannot be read, does not belong together, or belongs to another configuration.
    """
    kept, config = identity.load(), host.config
    require_same(kept, config)
    await host.storage.open()
    if kept is None and config.data_dir is not None and len(host.storage):
        raise ConfigError(
            f"{config.data_dir} has records but no {FILE_NAME} that says whose they are; "
            "put it back, or move the records away to start as a new node"
        )
    if host.storage.damaged_notes:
        await host.storage.commit(host.reap_log.mended())
    if kept is None or kept.has_left:
        return None
    if kept.incarnation not in (None, host.storage.incarnation.hex()):
        has_others = config.ring.replicas > 1 and any(address != kept.address for address in kept.known)
        host.tell([StoreBegun("lost" if has_others else "lost for good")])
    host.greeter.ring_id = kept.ring_id
    return kept


def require_same(kept: Kept | None, config: NodeConfig) -> None:
    """Check that a configuration fits the kept identity.

    Raises:
        ConfigError: the data directory belongs to another ring, or to a node with other points.
    """
    if kept is None or kept.has_left:
        return
    where = f"the data directory {config.data_dir}" if config.data_dir is not None else "what was kept"
    if kept.bits != config.ring.bits:
        raise ConfigError(f"{where} belongs to a ring of {kept.bits} bits, not {config.ring.bits}; {_CONSTANT}")
    if kept.ring is not None:  # a node that its first ring refused may return with that ring's constants
        _check_ring(kept, config.ring, where)
    if config.id is not None and [v.id for v in kept.vnodes] != [config.id]:
        raise ConfigError(f"{where} belongs to vnode {kept.vnodes[0].id}, not {config.id}")
    # On a toy ring some vnodes of a node fall on one point.
    wanted = {vnode_id(config.ring.circle, kept.address, i) for i in range(config.vnodes)}
    if config.vnodes > 1 and len(wanted) != len(kept.vnodes):
        raise ConfigError(f"{where} belongs to a node with {len(kept.vnodes)} vnodes, not {len(wanted)}")


def require_same_on_disk(config: NodeConfig) -> None:
    """Check a configuration against its data directory, and create nothing.

    Raises:
        ConfigError: see `require_same`; or the identity file cannot be read.
    """
    if config.data_dir is not None:
        require_same(read_kept(Path(config.data_dir) / FILE_NAME), config)


def _check_ring(kept: Kept, ring: RingConstants, where: str) -> None:
    """Refuse other constants than last time: where all nodes are started with them, no other node could tell."""
    for name in ("successors", "replicas", "cluster"):
        before, now = getattr(kept, name), getattr(ring, name)
        if before not in (None, now):
            raise ConfigError(f"{where} belongs to a ring with {name} = {before}, not {now}; {_CONSTANT}")


def whom_to_ask(kept: Kept | None, host: Host, *, is_told: bool) -> tuple[Address, ...]:
    """Return which other nodes it knew last time; none, where it is new, or was the only one.

    At the address that was its own another node may listen now.

    Args:
        is_told: the node has somebody else to ask. Where it never got into a ring, only these count.

    Raises:
        ConfigError: it was in a ring with others, and nobody knows with whom: it must not found one of its own.
    """
    if kept is None or (kept.ring is None and is_told):
        return ()
    known = tuple(address for address in kept.known if address != host.address)
    if kept.known and kept.address not in (host.address, *known):
        known = (*known, kept.address)
    if kept.ring is not None and not known and not is_told and kept.vnodes[0].owned_from is None:
        where = host.config.data_dir or "what was kept"
        raise ConfigError(
            f"{where} belongs to ring {kept.ring}, and {FILE_NAME} names no other node of it; "
            "name one that runs: --join HOST:PORT"
        )
    return known
