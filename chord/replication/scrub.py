"""The scrub: read and check every record of a store within a given time.

Without it, damage may stay unnoticed. A replica answers comparisons from digests, and may not read a record for months
while the other copies are lost. A damaged record leaves the digests, so the next comparison repairs it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import trio

from chord.errors import Overloaded, WritesRefused
from chord.events import RecordsDamaged
from chord.ring.context import NodeContext
from chord.store.storage import SCRUB_NOTE, Batch

STEPS: Final = 1000
"""Approximate number of steps in which the scrub reads a whole store."""
SLACK: Final = 1.25
"""Factor by which each step reads more than needed, because steps may be late and the store may grow meanwhile."""
CHUNK_BYTES: Final = 64 * 1024
"""Bytes that are read before other tasks may run. That takes less than a millisecond."""


class Scrub:
    """Reads and checks all records of a node's store, some at every call of `step`."""

    def __init__(self, host: NodeContext) -> None:
        self._host = host

    @property
    def period_s(self) -> float:
        """The time between two steps, in seconds."""
        return self._host.timing.scrub_s / STEPS

    async def step(self) -> None:
        """Read and check the next records: about 1/`STEPS` of the store.

        The rate is at most `scrub_bytes_s` bytes per second.

        Concurrency: checkpoints; after a cancellation the next step continues at the same place.
        """
        storage, rate = self._host.storage, self._host.limits.scrub_bytes_s
        before = storage.bad_records
        due = int(SLACK * storage.scrub_bytes / STEPS) + 1
        while due > 0:
            read, is_end = storage.scrub(min(due, CHUNK_BYTES))
            due = 0 if is_end else due - read
            await trio.sleep(read / rate)
        if storage.bad_records > before:
            self._host.tell([RecordsDamaged(self._host.address, storage.bad_records - before)])
        if storage.scrubbed != storage.note(SCRUB_NOTE):
            with suppress(WritesRefused, Overloaded):
                storage.stage(Batch(notes={SCRUB_NOTE: storage.scrubbed}))
