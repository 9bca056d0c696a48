"""A store in memory that tells what is put in it and what is dropped from it, so that others can hold it to account."""

from __future__ import annotations

from collections.abc import Callable

from chord.store.storage import Batch, MemoryStorage
from chord.wire.messages import Record


class WatchedStorage(MemoryStorage):
    """Satisfies `chord.store.storage.Storage`."""

    _on_put: Callable[[Record, bool], object] | None = None
    _on_drop: Callable[[Record], object] | None = None

    def watch(self, on_put: Callable[[Record, bool], object], on_drop: Callable[[Record], object]) -> None:
        """From now on tell of every change.

        Args:
            on_put: told every record that was put, and whether its newest version is this store's own.
            on_drop: told every record that is removed, just before.
        """
        self._on_put, self._on_drop = on_put, on_drop

    def apply(self, batch: Batch) -> None:
        """Make all changes of the batch, and tell of them."""
        if self._on_drop is not None:
            for record in [self.get(key) for key in batch.removals]:
                if record is not None:
                    self._on_drop(record)
        super().apply(batch)
        if self._on_put is not None:
            for record in batch.puts:
                self._on_put(record, record.key in batch.minted)
