"""A node as it describes itself: to others, and to its own next life."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

import chord
from chord.data.misplaced import Misplaced
from chord.dispatch import Parts
from chord.host import Host
from chord.identity import ALIVE_STAMP_MS, IDENTITY_VERSION, STAMPS_A_GRACE, Kept, KeptVnode
from chord.ids import Arc, Point
from chord.membership import LastTime
from chord.messages import LIST_ENTRIES_MAX, Contact, Description, TransferInfo, VnodeInfo
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
        **host.storage.counters,
        "calls_made": host.peers.calls_made,
        "bytes_sent": me.bytes_sent,
        "bytes_received": me.bytes_received,
    }
    for name in ("keys_sent", "keys_received", "keys_brought_home", "gets", "puts", "forwarded"):
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
        misplaced=misplaced.on_their_way(),
        vnodes=tuple(_vnode(p, host) for p in parts.values())[:LIST_ENTRIES_MAX],
        peers=tuple(host.peers.suspicion.peers(now))[:LIST_ENTRIES_MAX],
        known=known_contacts(host, parts)[:LIST_ENTRIES_MAX],
        counters=tuple(sorted(counters.items()))[:LIST_ENTRIES_MAX],
        timing=tuple((field, float(getattr(host.timing, field))) for field in host.timing.__struct_fields__),
        hints=misplaced.hints,
        under_replicated=sum(_under_replicated(p, host) for p in parts.values()),
        sibling_keys=host.storage.sibling_keys,
        clock_skew_ms=host.skew_ms,
        transfers=tuple(_transfers(parts, misplaced))[:LIST_ENTRIES_MAX],
        sets=tuple(state for p in parts.values() for state in p.repair.states())[:LIST_ENTRIES_MAX],
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
        downs=tuple(contact for contact, _ in vnode.view.downs()),
        settled=tuple((owner, arc.start, arc.end) for owner, arc in vnode.view.settled_arcs().items()),
    )


def to_keep(host: Host, parts: dict[Point, Parts], ring_id: bytes | None, last: Kept | None, *, has_left: bool) -> Kept:
    """Return what the node wants to remember after a restart.

    Args:
        last: what it was started with; of a vnode that is not back in the ring yet, that still counts.
    """
    vnodes = tuple(_vnode_to_keep(p.vnode) for p in parts.values())
    known = tuple(dict.fromkeys(c.address for c in known_contacts(host, parts)))
    if last is None and not all(p.vnode.ring.is_member for p in parts.values()):
        known = tuple(dict.fromkeys((*known, *host.config.join)))  # told to join, it never founds a ring of its own
    ring = None if ring_id is None else ring_id.hex()
    stamp_ms = max(1, min(ALIVE_STAMP_MS, int(1000 * host.timing.grace_s / STAMPS_A_GRACE)))
    alive_ms = host.wall_now_ms() // stamp_ms * stamp_ms
    incarnation = host.storage.incarnation.hex()
    bits = host.constants.bits
    now = Kept(
        version=IDENTITY_VERSION,
        bits=bits,
        ring=ring,
        address=host.address,
        vnodes=vnodes,
        known=known,
        has_left=has_left,
        incarnation=incarnation,
        alive_ms=alive_ms,
        silent=tuple(host.peers.passive.contacts()),
    )
    return now if last is None else _still_kept(last, now, [p.vnode for p in parts.values()])


def _still_kept(last: Kept, now: Kept, vnodes: list[Vnode]) -> Kept:
    """Return what to keep while a node comes back: what was kept last time, except where a vnode has got further.

    A start that ends before the node is a member must not cost it its memory of the ring. Nor does it count as being
    alive: how long the node was away is reckoned from when it last took part.
    """
    if all(vnode.ring.is_member for vnode in vnodes):
        return now
    if not any(vnode.ring.is_member or vnode.ownership.epoch for vnode in vnodes):
        return last
    merged = []
    for vnode, old, new in zip(vnodes, last.vnodes, now.vnodes, strict=True):
        if vnode.ring.is_member:
            merged.append(new)
        elif vnode.ownership.epoch:  # an arc has come, and may be gone again; the pointers are still missing
            merged.append(msgspec.structs.replace(new, predecessor=old.predecessor, successors=old.successors))
        else:  # of other records than those that are here now nothing was settled
            settled = old.settled if last.incarnation == now.incarnation else ()
            merged.append(msgspec.structs.replace(old, settled=settled))
    known = tuple(dict.fromkeys((*now.known, *last.known)))
    return msgspec.structs.replace(now, vnodes=tuple(merged), known=known)


def recall(kept: Kept, host: Host) -> None:
    """Remember what counts from the first moment: who is silent, and of which arcs everything was held."""
    for contact in kept.silent:
        host.peers.passive.add(contact, host.peers.now())
    for vnode in kept.vnodes:
        for contact in vnode.downs:
            host.vnodes[vnode.id].view.fell_silent(contact, host.peers.now())
    if kept.incarnation != host.storage.incarnation.hex():
        return  # the disk was lost, and with it what was held
    for vnode in kept.vnodes:
        for owner, start, end in vnode.settled:
            host.vnodes[vnode.id].view.settled(owner, Arc(start, end))


def last_time(kept: KeptVnode, now: float) -> LastTime:
    """Return what one vnode remembers. Marks count from now: how long the dead were down before is not known."""
    taken = tuple(Taken(Arc(start, end), Contact(dead, address), now) for start, end, dead, address in kept.taken)
    return LastTime(kept.predecessor, kept.successors, kept.owned_from, kept.epoch, taken, kept.before)


def _transfers(parts: dict[Point, Parts], misplaced: Misplaced) -> Iterator[TransferInfo]:
    for p in parts.values():
        yield from p.mover.transfers()
        if p.repair.transfer is not None:
            yield p.repair.transfer
    if misplaced.transfer is not None:
        yield misplaced.transfer


def _under_replicated(parts: Parts, host: Host) -> int:
    """Return how many keys of a vnode's arc have a replica that is silent or not level yet."""
    if host.constants.replicas == 1:
        return 0
    return sum(
        host.storage.count(Arc(state.arc_start, state.arc_end))
        for state in parts.repair.states()
        if state.silent or state.pending
    )


def _vnode(parts: Parts, host: Host) -> VnodeInfo:
    arc = parts.vnode.ownership.arc
    return parts.vnode.describe(0 if arc is None else host.storage.count(arc))
