"""A node as it describes itself: to others, and to its own next life."""

from __future__ import annotations

import os
from typing import NamedTuple

import chord
from chord.data.misplaced import Misplaced
from chord.dispatch import Parts
from chord.host import Host
from chord.identity import IDENTITY_VERSION, Kept, KeptVnode
from chord.ids import Arc, Point
from chord.membership import LastTime
from chord.messages import LIST_ENTRIES_MAX, Contact, Description, VnodeInfo
from chord.ownership import Ownership, Taken
from chord.vnode import Vnode


class Self(NamedTuple):
    """What only the node itself knows."""

    name: str
    state: str
    ring_id: bytes | None
    started_at: float
    has_data_dir: bool
    bytes_sent: int
    bytes_received: int


def describe(me: Self, host: Host, parts: dict[Point, Parts], misplaced: Misplaced) -> Description:
    """Return the description a `Describe` is answered with. Lists longer than a message may hold are cut."""
    now = host.peers.now()
    constants = host.constants
    counters = {
        **host.counters,
        "calls_made": host.peers.calls_made,
        "bytes_sent": me.bytes_sent,
        "bytes_received": me.bytes_received,
    }
    for name in ("keys_sent", "keys_received", "keys_dropped", "keys_brought_home", "gets", "puts", "forwarded"):
        counters.setdefault(name, 0)
    return Description(
        name=me.name,
        address=host.address,
        pid=os.getpid(),
        version=chord.__version__,
        preset=host.config.preset,
        ring=me.ring_id,
        cluster=constants.cluster,
        fingerprint=constants.fingerprint,
        bits=constants.bits,
        successors=constants.successors,
        replicas=constants.replicas,
        incarnation=host.storage.incarnation,
        state=me.state,
        uptime_ms=int(1000 * (now - me.started_at)),
        has_data_dir=me.has_data_dir,
        keys=len(host.storage),
        value_bytes=host.storage.value_bytes,
        misplaced=misplaced.count(),
        vnodes=tuple(_vnode(p, host) for p in parts.values())[:LIST_ENTRIES_MAX],
        peers=tuple(host.peers.suspicion.peers(now))[:LIST_ENTRIES_MAX],
        known=known_contacts(host, parts)[:LIST_ENTRIES_MAX],
        counters=tuple(sorted(counters.items()))[:LIST_ENTRIES_MAX],
        timing=tuple((field, float(getattr(host.timing, field))) for field in host.timing.__struct_fields__),
    )


def known_contacts(host: Host, parts: dict[Point, Parts]) -> tuple[Contact, ...]:
    """Return every contact of other nodes that this node could name: lists, fingers, passive list."""
    found: dict[tuple[int, str], Contact] = {}
    for p in parts.values():
        ring = p.vnode.ring
        named = [*ring.successors, *ring.predecessors, *p.vnode.fingers.contacts()]
        for contact in (*named, *([ring.predecessor] if ring.predecessor else []), *host.peers.passive.contacts()):
            if contact.address != host.address:
                found[contact.id, contact.address] = contact
    return tuple(found.values())


def _arc_to_keep(own: Ownership) -> tuple[Point | None, tuple[Contact, ...]]:
    """Return where the arc begins and who stands there; what is being switched counts as given."""
    if own.giving is None:
        return own.start, own.before
    end = own.giving.arc.end
    return (None, ()) if end == own.me.id else (end, (own.giving.to, *own.before))


def _vnode_to_keep(vnode: Vnode) -> KeptVnode:
    ring, own = vnode.ring, vnode.ownership
    start, before = _arc_to_keep(own)
    return KeptVnode(
        id=vnode.id,
        owned_from=start,
        epoch=own.epoch,
        predecessor=ring.predecessor,
        successors=ring.successors,
        taken=tuple((t.arc.start, t.arc.end, t.dead.id, t.dead.address) for t in own.taken),
        before=before,
    )


def to_keep(host: Host, parts: dict[Point, Parts], ring_id: bytes | None, *, has_left: bool) -> Kept:
    """Return what the node wants to remember after a restart."""
    vnodes = tuple(_vnode_to_keep(p.vnode) for p in parts.values())
    known = tuple(dict.fromkeys(c.address for c in known_contacts(host, parts)))
    ring = None if ring_id is None else ring_id.hex()
    return Kept(IDENTITY_VERSION, host.constants.bits, ring, host.address, vnodes, known, has_left)


def last_time(kept: KeptVnode, now: float) -> LastTime:
    """Return what one vnode remembers. Marks count from now: how long the dead were down before is not known."""
    taken = tuple(Taken(Arc(start, end), Contact(dead, address), now) for start, end, dead, address in kept.taken)
    return LastTime(kept.predecessor, kept.successors, kept.owned_from, kept.epoch, taken, kept.before)


def _vnode(parts: Parts, host: Host) -> VnodeInfo:
    arc = parts.vnode.ownership.arc
    return parts.vnode.describe(0 if arc is None else host.storage.count(arc))
