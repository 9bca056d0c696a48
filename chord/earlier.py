"""What a node finds of its life before: who it was, and its records. Do they belong together, and do they still count?

Identity and records are two files, and people move and lose files. Records without an identity are refused, for nobody
can say whose they are. An identity without its records is kept: it is a node that lost its disk, and its replicas
bring the records back.

A node that was away for longer than the grace period may hold records whose deletion everybody else has forgotten by
now. So if it finds its ring running, it sets its store aside and begins anew, under its old ids. If all were away,
nobody has forgotten anything, and the records count.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

import msgspec

from chord.config import NodeConfig, RingConstants
from chord.data.sqlite import SqliteStorage
from chord.data.storage import MemoryStorage, Storage
from chord.errors import ConfigError
from chord.events import StoreBegun
from chord.host import Host
from chord.identity import FILE_NAME, IdentityStore, Kept
from chord.ids import vnode_id
from chord.messages import Address

Keep: TypeAlias = Callable[[Kept], Awaitable[None]]
"""Writes down what a restart must know."""


def storage(config: NodeConfig, incarnation: bytes) -> Storage:
    """Return where a node keeps its records: in its data directory, if it has one."""
    if config.data_dir is None:
        return MemoryStorage(config.ring.circle, incarnation)
    staged_bytes_max = config.limits.staged_bytes_max
    return SqliteStorage(config.ring.circle, config.data_dir, incarnation, staged_bytes_max=staged_bytes_max)


async def find(identity: IdentityStore, host: Host) -> Kept | None:
    """Open the store and return what was kept of the identity; None: the node is new.

    Raises:
        ConfigError: what is there cannot be read, does not belong together, or belongs to another configuration.
    """
    kept, config = identity.load(), host.config
    if kept is not None and not kept.has_left:
        if kept.bits != config.ring.bits:
            raise ConfigError(f"the data directory belongs to a ring of {kept.bits} bits, not {config.ring.bits}")
        if kept.ring is not None:  # who was refused by its first ring may come again with that ring's constants
            _check_ring(kept, config.ring)
        if config.id is not None and [v.id for v in kept.vnodes] != [config.id]:
            raise ConfigError(f"the data directory belongs to vnode {kept.vnodes[0].id}, not {config.id}")
        # On a toy ring some vnodes of a node fall on one point.
        wanted = {vnode_id(config.ring.circle, kept.address, i) for i in range(config.vnodes)}
        if config.vnodes > 1 and len(wanted) != len(kept.vnodes):
            raise ConfigError(f"the data directory belongs to a node with {len(kept.vnodes)} vnodes, not {len(wanted)}")
    await host.storage.open()
    if kept is None:
        if config.data_dir is not None and len(host.storage):
            raise ConfigError(
                f"{config.data_dir} has records but no {FILE_NAME} that says whose they are; "
                "put it back, or move the records away to start as a new node"
            )
        return None
    if kept.has_left:
        await _begin_anew(host, "left")
        return None
    if kept.incarnation not in (None, host.storage.incarnation.hex()):
        host.tell([StoreBegun("lost")])
    host.greeter.ring_id = kept.ring_id
    return kept


def _check_ring(kept: Kept, ring: RingConstants) -> None:
    """Refuse other constants than last time: where all nodes are started with them, no other node could tell."""
    for name in ("successors", "replicas", "cluster"):
        before, now = getattr(kept, name), getattr(ring, name)
        if before not in (None, now):
            raise ConfigError(
                f"the data directory belongs to a ring with {name} = {before}, not {now}; start it with that. "
                "The constants of a ring are for ever: to change them, restore a backup into a new ring"
            )


def whom_to_ask(kept: Kept | None, host: Host, *, is_told: bool) -> tuple[Address, ...]:
    """Return which other nodes it knew last time; none, where it is new, or was the only one.

    Args:
        is_told: the node has somebody else to ask. Where it never got into a ring, only these count.

    Raises:
        ConfigError: it was in a ring with others, and nobody knows with whom: it must not found one of its own.
    """
    if kept is None or (kept.ring is None and is_told):
        return ()
    known = tuple(address for address in kept.known if address != host.address)
    if kept.ring is not None and not known and not is_told and kept.vnodes[0].owned_from is None:
        where = host.config.data_dir or "what was kept"
        raise ConfigError(
            f"{where} belongs to ring {kept.ring}, and {FILE_NAME} names no other node of it; "
            "name one that runs: --join HOST:PORT"
        )
    return known


async def give_up_if_outdated(kept: Kept, host: Host, keep: Keep, *, is_first: bool) -> bool:
    """Set the store aside, where the node was away for too long. To be called once its ring is found running.

    Args:
        keep: is to write down what is to be kept from then on: what is stored next is of this life, and a start that
            ends before the node is a member must not have the one after it set that aside, too.
        is_first: of the node's vnodes: what the next ones find in the store is of this life.
    Returns:
        Whether it was.

    Raises:
        ConfigError: it could not be done.
    """
    away_ms = host.wall_now_ms() - kept.alive_ms
    if not is_first or not kept.alive_ms or away_ms <= 1000 * host.timing.grace_s:
        return False
    await _begin_anew(host, "away")
    vnodes = tuple(msgspec.structs.replace(vnode, settled=()) for vnode in kept.vnodes)
    incarnation = host.storage.incarnation.hex()
    alive_ms = host.wall_now_ms()
    await keep(msgspec.structs.replace(kept, alive_ms=alive_ms, incarnation=incarnation, vnodes=vnodes))
    return True


async def _begin_anew(host: Host, why: Literal["left", "away"]) -> None:
    await host.storage.set_aside(host.rng.randbytes(8))
    host.greeter.introduce(host.address, host.storage.incarnation, host.vnodes)
    for vnode in host.vnodes.values():
        vnode.view.keep_settled([])  # what it held of any arc is set aside: it may deny nothing on the strength of it
    host.tell([StoreBegun(why)])
