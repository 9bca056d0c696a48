"""The bytes of a ring's messages by kind: the gossip of the membership list, and the rest."""

from __future__ import annotations

import random
from collections import Counter
from typing import Literal, TypeAlias

from chord.errors import ChordError
from chord.ids import Circle, Point
from chord.wire.codec import Codec
from chord.wire.messages import CompareMembers, CompareMembersReply, Gossip, GossipReply, Reply, Request

ByteKind: TypeAlias = Literal["period", "news", "comparison", "ring"]
"""The frames of the exchanges without entries, their entries, the comparisons of lists, and all other messages."""

BUDGET_MS = 1000
WEIGHED_SHARE = 1 / 8
PAGE_ENTRIES = 100
"""A reply with at least this many entries belongs to a comparison: it is a part of a whole list."""


class GossipWeigher:
    """A counter of the bytes of messages, by kind.

    All messages of gossip are encoded, and a random sample of the others.

    Attributes:
        bytes: bytes of all messages so far, by kind. "period": the frames of exchanges without their entries. "news":
            these entries. "comparison": comparisons of whole membership lists. "ring": all other messages.
        entries: number of entries of the membership list in the messages of exchanges so far.
    """

    def __init__(self, circle: Circle) -> None:
        self._codec = Codec(circle)
        self._rng = random.Random("weigher")
        self.bytes: Counter[ByteKind] = Counter()
        self.entries = 0

    def clear(self) -> None:
        """Set all counts back to zero."""
        self.bytes.clear()
        self.entries = 0

    def __call__(self, what: Request | Reply | ChordError) -> int:
        """Count a message. Return 0 as its size, because the network's own sums per host are not used."""
        if isinstance(what, (CompareMembers, CompareMembersReply)):
            self.bytes["comparison"] += self._size(what)
        elif isinstance(what, Gossip | GossipReply):
            self._count_gossip(what)
        elif self._rng.random() < WEIGHED_SHARE:
            self.bytes["ring"] += round(self._size(what) / WEIGHED_SHARE)
        return 0

    def _count_gossip(self, what: Gossip | GossipReply) -> None:
        size = self._size(what)
        if (isinstance(what, Gossip) and what.wanted) or len(what.entries) >= PAGE_ENTRIES:
            self.bytes["comparison"] += size
            return
        empty = self._size(type(what)(entries=()) if isinstance(what, Gossip) else GossipReply(b"", ()))
        self.bytes["period"] += empty
        self.bytes["news"] += size - empty
        self.entries += len(what.entries)

    def _size(self, what: Request | Reply | ChordError) -> int:
        if isinstance(what, Request):
            return len(self._codec.encode_call(1 << 20, Point(0), BUDGET_MS, what, 1 << 40))
        if isinstance(what, Reply):
            return len(self._codec.encode_reply(1 << 20, what))
        return len(self._codec.encode_error(1 << 20, what))
