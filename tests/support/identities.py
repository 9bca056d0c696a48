"""A persisted state for tests, and changed copies of it."""

from __future__ import annotations

from typing import Any

import msgspec

from chord.ids import Point
from chord.store.identity import Kept, KeptVnode
from chord.wire.messages import Contact

VNODE = KeptVnode(
    id=Point(7),
    owned_from=Point(3),
    epoch=12,
    predecessor=Contact(Point(3), "a:1"),
    successors=(Contact(Point(2**159), "b:1"), Contact(Point(11), "c:1")),
    marks=((Point(1), Point(2), Point(2), "d:1"),),
    before=(Contact(Point(3), "a:1"),),
    unreachable=(),
    in_sync=((Point(7), Point(3), Point(7)),),
)
KEPT = Kept(
    version=1,
    bits=160,
    ring="00" * 16,
    address="n:1",
    vnodes=(VNODE,),
    known=("a:1", "b:1"),
    has_left=False,
    incarnation="0a" * 8,
    passive=(),
    successors=8,
    replicas=3,
    cluster="chord",
    left=(),
    forgotten=(),
)


def changed(**fields: Any) -> Kept:
    """Return the persisted state with other values of some fields."""
    return msgspec.structs.replace(KEPT, **fields)
