"""A store in memory that reports its puts and removals to a checker."""

from __future__ import annotations

from collections.abc import Callable

from chord.ids import Circle
from chord.store.storage import Batch, MemoryStorage
from chord.wire.messages import Record


class WatchedStorage(MemoryStorage):
    """A store in memory that reports changes. Satisfies `chord.store.storage.Storage`.

    Args:
        circle, incarnation: as for `MemoryStorage`.
        on_put: callback for every record, just after its put. The flag says whether this store minted its newest
            version.
        on_drop: callback for every record, just before its removal.
        on_lend: callback for the record of every early put, just before it is sent.
    """

    def __init__(
        self,
        circle: Circle,
        incarnation: bytes,
        on_put: Callable[[Record, bool], object],
        on_drop: Callable[[Record], object],
        on_lend: Callable[[Record], object] = lambda record: None,
    ) -> None:
        super().__init__(circle, incarnation)
        self._on_put, self._on_drop, self._on_lend = on_put, on_drop, on_lend

    def lend_actor(self, key: bytes, record: Record) -> None:
        """Report the record of an early put, and forget the key's actor."""
        self._on_lend(record)
        super().lend_actor(key, record)

    def apply(self, batch: Batch) -> None:
        """Report the removals of a batch, make all its changes, and report its puts."""
        for record in [self.get(key) for key in batch.removals]:
            if record is not None:
                self._on_drop(record)
        super().apply(batch)
        for record in batch.puts:
            self._on_put(record, record.key in batch.minted)
