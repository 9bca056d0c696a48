"""Persist the node's state in node.json, and notice if the node's files are gone."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import trio

from chord.events import StepFailed
from chord.node import restart
from chord.node.persisted import to_keep
from chord.ring.context import NodeContext
from chord.store.identity import FILE_NAME, LOCK_NAME, IdentityStore, Kept
from chord.store.sqlite_file import FILE_NAME as RECORDS
from chord.wire.messages import Address


class OpenFiles:
    """The files that a node has open in its data directory.

    Each must stay in its place: if a file was removed or moved away, a later start does not find the writes to it.
    """

    def __init__(self, directory: str) -> None:
        self._paths = (Path(directory) / LOCK_NAME, Path(directory) / RECORDS)
        self._known: dict[Path, tuple[int, int]] = {}
        self._threads = trio.CapacityLimiter(1)  # a disk that hangs blocks one thread only
        self._missing()

    async def missing(self) -> Path | None:
        """Return the first file that is missing or was replaced; None if all are in place.

        Concurrency: checkpoints. If it is cancelled, its thread continues, and the next call waits for that thread.
        """
        return await trio.to_thread.run_sync(self._missing, abandon_on_cancel=True, limiter=self._threads)

    def _missing(self) -> Path | None:
        for path in self._paths:
            try:
                found = os.stat(path)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
                    return path
                continue  # the disk fails: the next write reports it
            this = (found.st_dev, found.st_ino)
            if self._known.setdefault(path, this) != this:
                return path
        return None


class Saver:
    """Writes the node's state to node.json, and knows for how long that has failed.

    Args:
        host: the node context.
        identity: reads and writes the file.
        is_gone: called if the data directory is gone, and the records with it.

    Attributes:
        last: the persisted state at the start; None if the node is new, or before `find`.
        known: the addresses of other nodes in the last state that was written.
    """

    __slots__ = ("_host", "_identity", "_is_gone", "_is_reported", "_reason", "_unsaved_since", "known", "last")

    def __init__(self, host: NodeContext, identity: IdentityStore, is_gone: Callable[[], None]) -> None:
        self._host = host
        self._identity = identity
        self._is_gone = is_gone
        self.last: Kept | None = None
        self.known: tuple[Address, ...] = ()
        self._unsaved_since: float | None = None
        self._reason = ""
        self._is_reported = False

    async def find(self) -> Kept | None:
        """Open the store, and return the persisted state; see `restart.find`."""
        self.last = await restart.find(self._identity, self._host)
        self.known = () if self.last is None else self.last.known
        return self.last

    def close(self) -> None:
        """Release the lock on the data directory, so that another node can use it."""
        self._identity.close()

    async def save(self, *, has_left: bool = False) -> bool:
        """Write the node's present state durably.

        A failure is an event, and the next save retries.

        Args:
            has_left: whether the node has handed everything over and left the ring.

        Returns:
            Whether node.json now holds the state.

        Concurrency: checkpoints. If it is cancelled, the system may still be writing; the next save waits for that.
        """
        kept = to_keep(self._host, self.last, has_left=has_left)
        if kept is self.last:  # no vnode has got further than its persisted state
            return True
        if self._unsaved_since is None:
            self._unsaved_since, self._reason = trio.current_time(), "it takes too long"
        try:
            await self._identity.save(kept)
        except OSError as error:
            self._reason = str(error.strerror)
            self._host.counters["identity_unsaved"] += 1
            self._host.tell([StepFailed(next(iter(self._host.vnodes)), "save_identity", self._reason)])
            if error.errno == errno.ENOENT:  # the directory is gone, and the records with it
                self._is_gone()
            return False
        self.known = kept.known
        self._unsaved_since, self._is_reported = None, False
        self._host.health.clear(FILE_NAME)
        return True

    def trouble(self) -> str:
        """Return a warning if node.json could not be written for `unsaved_s`.

        Otherwise the result is "".
        """
        unsaved_s = self._unsaved_s()
        if unsaved_s < self._host.timing.unsaved_s:
            return ""
        return f"{FILE_NAME} could not be written for {unsaved_s:.0f} s ({self._reason.lower()})"

    def look(self) -> None:
        """Report once, as a health problem, that node.json cannot be written.

        The report comes after `unsaved_s` seconds of failures.
        """
        if not self._is_reported and (why := self.trouble()):
            self._is_reported = True
            self._host.health.report(FILE_NAME, why)

    def _unsaved_s(self) -> float:
        return 0.0 if self._unsaved_since is None else trio.current_time() - self._unsaved_since
