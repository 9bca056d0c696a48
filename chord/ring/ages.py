"""Marks and down vnodes on the wire: with ages in place of times.

Each says when the down vnode last owned an arc. Without that, a receiver that knows only an older goodbye of the vnode
would not wait for it.

Nodes hand such a sight on again and again. So a receiver dates it back by the time that the message may have taken.
Otherwise each copy of the sight would be a little younger, and in the end younger than a goodbye.
"""

from __future__ import annotations

from collections.abc import Iterable

from chord.ids import Arc
from chord.net.goodbyes import age_ms
from chord.net.peers import Peers
from chord.ring.ownership import Mark
from chord.wire.messages import Contact, MarkedArc, UnreachableVnode


def marks_to_others(marks: Iterable[Mark], peers: Peers) -> tuple[MarkedArc, ...]:
    """Return marks in the form that other nodes receive."""
    now = peers.now()
    return tuple(MarkedArc(*m.arc, m.dead, age_ms(now, m.since), _owned_ms(m.dead, peers)) for m in marks)


def marks_from_others(marked: Iterable[MarkedArc], peers: Peers, sent_at: float) -> tuple[Mark, ...]:
    """Return the marks that another node sent, and note when their down owners last owned an arc.

    `sent_at` is a time before the message was sent, in seconds on the event loop's clock; see `Peers.sent_before`.
    """
    now, found = peers.now(), []
    for part in marked:
        _note_owner(part.dead, part.owned_ms, peers, sent_at)
        found.append(Mark(Arc(part.start, part.end), part.dead, now - part.since_ms / 1000))
    return tuple(found)


def down_to_others(down: Iterable[tuple[Contact, float]], peers: Peers) -> tuple[UnreachableVnode, ...]:
    """Return down vnodes, each with the time since when, in the form that other nodes receive."""
    now = peers.now()
    return tuple(UnreachableVnode(c, age_ms(now, since), _owned_ms(c, peers)) for c, since in down)


def down_from_others(
    down: Iterable[UnreachableVnode], peers: Peers, sent_at: float
) -> list[tuple[Contact, float]]:
    """Return the down vnodes that another node sent, each with the time since when.

    Also note when they last owned an arc. `sent_at` is as in `marks_from_others`.
    """
    now, found = peers.now(), []
    for one in down:
        _note_owner(one.contact, one.owned_ms, peers, sent_at)
        found.append((one.contact, now - one.since_ms / 1000))
    return found


def _owned_ms(contact: Contact, peers: Peers) -> int | None:
    owned_at = peers.goodbyes.owned_at(contact.id)
    return None if owned_at is None else age_ms(peers.now(), owned_at) + 1  # rounded up


def _note_owner(contact: Contact, owned_ms: int | None, peers: Peers, sent_at: float) -> None:
    if owned_ms is not None:
        peers.goodbyes.owned(contact.id, sent_at - owned_ms / 1000)
