"""The state that a node persists for its next start, and its restoration.

`store/identity.py` writes the file. `node/restart.py` decides whether its content still applies.
"""

from __future__ import annotations

import itertools

import msgspec

from chord.ids import Arc, Point
from chord.membership.join import LastTime
from chord.ring.context import NodeContext
from chord.ring.ownership import Mark, Ownership
from chord.ring.vnode import Vnode
from chord.store.identity import IDENTITY_VERSION, Kept, KeptVnode
from chord.wire.messages import Contact


def _arc_to_keep(own: Ownership) -> tuple[Point | None, tuple[Contact, ...]]:
    """Return the start of the arc to persist, and the vnodes at and before that point.

    A part that is being switched to another vnode counts as given away. The start is None if no arc is left.
    """
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
        marks=tuple((t.arc.start, t.arc.end, t.dead.id, t.dead.address) for t in own.marks),
        before=before,
        unreachable=tuple(contact for contact, _ in vnode.preference_list.unreachable()),
        in_sync=tuple((owner, arc.start, arc.end) for owner, arc in vnode.preference_list.ever_in_sync()),
    )


def to_keep(host: NodeContext, last: Kept | None, *, has_left: bool) -> Kept:
    """Return the state to persist for the next start.

    Args:
        host: the node context.
        last: the persisted state at this start, or None. It still applies to vnodes that have not rejoined yet.
        has_left: whether the node has handed everything over and left the ring.
    """
    own, ring_id = list(host.vnodes.values()), host.hello_policy.ring_id
    vnodes = tuple(_vnode_to_keep(vnode) for vnode in own)
    before = (contact for vnode in vnodes for contact in vnode.before)  # a joiner with an arc may be in no list
    known = tuple(dict.fromkeys(c.address for c in (*host.contacts(), *before) if c.address != host.address))
    if last is None and not all(vnode.ring.is_member for vnode in own):
        known = tuple(dict.fromkeys((*known, *host.config.join)))  # a node configured to join never founds a ring
    ring = None if ring_id is None else ring_id.hex()
    incarnation = host.storage.incarnation.hex()
    ring_constants = host.constants
    passive = host.peers.passive.remembered()
    down = dict.fromkeys((*(mark.dead.id for vnode in own for mark in vnode.ownership.marks), *(c.id for c in passive)))
    left, owned = host.peers.goodbyes.to_keep(down, host.wall_now_ms(), host.peers.now())
    now = Kept(
        version=IDENTITY_VERSION,
        bits=ring_constants.bits,
        ring=ring,
        address=host.address,
        vnodes=vnodes,
        known=known,
        has_left=has_left,
        incarnation=incarnation,
        passive=passive,
        successors=ring_constants.successors,
        replicas=ring_constants.replicas,
        cluster=ring_constants.cluster,
        left=tuple(vnode for vnode, _ in left),
        forgotten=tuple({pair: None for vnode in own for pair in vnode.preference_list.forgotten_addresses()}),
        left_ms=tuple(at for _, at in left),
        owned_ms=owned,
    )
    return now if last is None else _still_kept(last, now, own)


def _still_kept(last: Kept, now: Kept, vnodes: list[Vnode]) -> Kept:
    """Return the state to persist while a node rejoins.

    It is the earlier state, except for vnodes that have got further. If this start ends before the node is a member,
    the node must not lose its memory of the ring.

    Args:
        last: the persisted state at this start.
        now: the present state.
        vnodes: the vnodes, in the order of both states.
    """
    if all(vnode.ring.is_member for vnode in vnodes):
        return now
    if not any(vnode.ring.is_member or vnode.ownership.epoch for vnode in vnodes):
        return last
    merged = []
    for vnode, old, new in zip(vnodes, last.vnodes, now.vnodes, strict=True):
        if vnode.ring.is_member:
            merged.append(new)
        elif vnode.ownership.epoch:  # it got an arc, and may have lost it again; its pointers are still missing
            merged.append(msgspec.structs.replace(new, predecessor=old.predecessor, successors=old.successors))
        else:  # the arcs in sync are those of the former store: a new store has none
            is_same = last.incarnation == now.incarnation
            merged.append(msgspec.structs.replace(old, in_sync=old.in_sync if is_same else ()))
    known = tuple(dict.fromkeys((*now.known, *last.known)))
    return msgspec.structs.replace(now, vnodes=tuple(merged), known=known)


def recall(kept: Kept, host: NodeContext) -> None:
    """Restore from the persisted state which nodes are down, left or forgotten.

    If the store is still the one from before the restart, also restore in which arcs each vnode was in sync.
    """
    times = zip(kept.left, itertools.chain(kept.left_ms, itertools.repeat(0)), strict=False)
    said = tuple((vnode, at) for vnode, at in times if vnode not in host.vnodes)
    host.peers.goodbyes.recall(said, kept.owned_ms, host.wall_now_ms(), host.peers.now())
    for address, living in kept.forgotten:
        for own in host.vnodes.values():
            now, forgotten_max = host.peers.now(), host.limits.forgotten_max
            own.preference_list.forget(address, now, frozenset(living), forgotten_max=forgotten_max)
    for contact in kept.passive:
        host.peers.passive.add(contact, host.peers.now())
    for vnode in kept.vnodes:
        for contact in vnode.unreachable:
            host.vnodes[vnode.id].preference_list.became_unreachable(contact, host.peers.now())
    if kept.incarnation != host.storage.incarnation.hex():
        return  # the store is new: the records of the last run are lost
    for vnode in kept.vnodes:  # other nodes may have written since: only a comparison puts it in sync again
        for owner, start, end in vnode.in_sync:
            host.vnodes[vnode.id].preference_list.note_was_in_sync(owner, Arc(start, end))


def last_time(kept: KeptVnode, host: NodeContext) -> LastTime:
    """Return the place of a vnode in the ring before the restart.

    The marks are parts of the arc with an owner that was down. They count from now, because the persisted state does
    not say how long those owners were down. Vnodes of this node get its present address.
    """

    def where(contact: Contact) -> Contact:
        vnode = host.vnodes.get(contact.id)
        return contact if vnode is None else vnode.me

    marks = tuple(
        Mark(Arc(start, end), where(Contact(dead, address)), host.peers.now())
        for start, end, dead, address in kept.marks
    )
    return LastTime(
        None if kept.predecessor is None else where(kept.predecessor),
        tuple(where(contact) for contact in kept.successors),
        kept.owned_from,
        kept.epoch,
        marks,
        tuple(where(contact) for contact in kept.before),
    )
