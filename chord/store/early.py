"""Early puts: versions that a coordinator sends before it has stored them.

Otherwise a version is durable at its coordinator before another node learns its dot, the name of the write. So the
coordinator's clock always knows which dots it has used. An early put gives that up. In its place, the store *lends* the
actor of the key to the put. `Storage.minted` then names no actor until the store gets the actor back with the put's
record, or gives it up.

A store on disk may lose the record, or forget that it has lent the actor. So it gives up all actors that may have been
lent. It does that at an opening after an unclean end, and after a transaction that the disk refused. A mark on the disk
tells an unclean end from a clean one. The mark is durable before the first early put, and an orderly close removes it.
An actor with an even key epoch is never lent, and stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from chord.store.versions import ACTOR_BYTES, INCARNATION_BYTES, is_lendable

EARLY_NOTE: Final = b"\0early"
"""The name of the note with the mark.

The value `MARK` says that actors may be lent. After an orderly close the value is the last key epoch of the actors that
were given up together, 8 bytes. Without such actors there is no note.
"""

MARK: Final = b""


class UndecidedPuts:
    """The keys of a node with an early put under way, and the writes that wait for it.

    Such a put is undecided until the coordinator has stored it, or has given its actor up.

    Attributes:
        keys: for each such key, the callbacks of the waiting writes. Read it only.
    """

    def __init__(self) -> None:
        self.keys: dict[bytes, list[Callable[[], object]]] = {}

    def begin(self, key: bytes) -> list[Callable[[], object]]:
        """Note that a put of a key is undecided; no other put of the key may be. Return its callbacks."""
        callbacks = self.keys[key] = []
        return callbacks

    def wait(self, key: bytes, callback: Callable[[], object]) -> None:
        """Call back when the put of a key is decided. Another one may be undecided by then."""
        self.keys[key].append(callback)

    def end(self, key: bytes) -> None:
        """Note that the put of a key is decided, and call the waiting writes back."""
        for callback in self.keys.pop(key, ()):
            callback()


class LentActors:
    """The actors that a store on disk has lent, or has given up together.

    Args:
        mark: the value of `EARLY_NOTE` at the opening of the store; None without the note.
        is_damaged: whether the opening found a damaged note, which may be the mark.
        key_epoch: the last key epoch that the store had given out by then.

    Attributes:
        keys: the keys with a lent actor.
        is_marked: whether the mark is durable, so that an actor may be lent.
        given_up: the last key epoch of the actors that were given up together.
    """

    def __init__(self, mark: bytes | None, is_damaged: bool, key_epoch: int) -> None:
        self.keys: set[bytes] = set()
        self.is_marked = False
        self.given_up = key_epoch if mark == MARK or is_damaged else int.from_bytes(mark or b"", "big")

    def usable(self, key: bytes, actor: bytes | None) -> bytes | None:
        """Return the actor of a key if the store may mint under it now, and otherwise None."""
        if actor is None or key in self.keys or (self.given_up and self._is_given_up(actor)):
            return None
        return actor

    def _is_given_up(self, actor: bytes) -> bool:
        epoch = int.from_bytes(actor[INCARNATION_BYTES:ACTOR_BYTES], "big")
        return is_lendable(actor) and epoch <= self.given_up

    def give_up_all(self, key_epoch: int) -> None:
        """Give up all actors up to a key epoch that may have been lent; none if none was ever lent since the opening.

        The store calls this when it has lost changes that it had made visible.
        """
        if self.is_marked:
            self.given_up = key_epoch

    @property
    def at_the_end(self) -> bytes | None:
        """The value of `EARLY_NOTE` for an orderly close; None removes the note."""
        return self.given_up.to_bytes(8, "big") if self.given_up else None
