"""A store in memory that reports its puts and removals to a checker."""

from __future__ import annotations

from collections.abc import Callable

from chord.store.storage import Batch, MemoryStorage
from chord.wire.messages import Record


class WatchedStorage(MemoryStorage):
    """A store in memory that reports changes. Satisfies `chord.store.storage.Storage`."""

    _on_put: Callable[[Record, bool], object] | None = None
    _on_drop: Callable[[Record], object] | None = None

    def watch(self, on_put: Callable[[Record, bool], object], on_drop: Callable[[Record], object]) -> None:
        """Report every change from now on.

        Args:
            on_put: callback for every record put, with whether its newest version was minted by this store.
            on_drop: callback for every record, just before its removal.
        """
        self._on_put, self._on_drop = on_put, on_drop

    def apply(self, batch: Batch) -> None:
        """Make all changes of the batch, and report them."""
        if self._on_drop is not None:
            for record in [self.get(key) for key in batch.removals]:
                if record is not None:
                    self._on_drop(record)
        super().apply(batch)
        if self._on_put is not None:
            for record in batch.puts:
                self._on_put(record, record.key in batch.minted)
