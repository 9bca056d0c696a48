"""Marks on the wire: with ages in place of times, and with the last sign of each down owner."""

from __future__ import annotations

from collections.abc import Iterable

from chord.ids import Arc
from chord.net.goodbyes import age_ms
from chord.net.peers import Peers
from chord.ring.ownership import Mark
from chord.wire.messages import MarkedArc


def to_others(marks: Iterable[Mark], peers: Peers) -> tuple[MarkedArc, ...]:
    """Return marks in the form that other nodes receive.

    Each mark says when its down owner last owned an arc. Without that, a receiver that knows only an older goodbye of
    the owner would drop the mark.
    """
    now, found = peers.now(), []
    for mark in marks:
        owned_at = peers.goodbyes.owned_at(mark.dead.id)
        owned_ms = None if owned_at is None else age_ms(now, owned_at)
        found.append(MarkedArc(*mark.arc, mark.dead, age_ms(now, mark.since), owned_ms))
    return tuple(found)


def from_others(marked: Iterable[MarkedArc], peers: Peers) -> tuple[Mark, ...]:
    """Return the marks that another node sent, and note when their down owners last owned an arc."""
    now, found = peers.now(), []
    for part in marked:
        if part.owned_ms is not None:
            peers.goodbyes.owned(part.dead.id, now - part.owned_ms / 1000)
        found.append(Mark(Arc(part.start, part.end), part.dead, now - part.since_ms / 1000))
    return tuple(found)
