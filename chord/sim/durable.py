"""What a node keeps on a simulated disk: its records, and who it is.

`DiskStorage` keeps its records in memory and every change in a log (`record_log.py`). When the log has outgrown the
records, they are written anew beside it, synced, and take its name. The same happens at every opening: after it nothing
that can be read is in doubt, even if the process before died of a failed sync and the system still showed its writes.

A change is visible at once and durable later, and nobody else is shown what is not durable (see `Storage`). So the
actor under which a dot was minted can stand in the log beside its record: a crash takes back both, or neither. The
number of the opening, durable before anything is minted, is the upper half of every key epoch, so that none is used
twice whatever a crash takes back.

A sync that fails ends it all, as in `data/sqlite.py`: `failed` is set, every commit is refused, the node has to stop.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import trio

from chord.data.digest import Digests
from chord.data.storage import Batch
from chord.errors import ConfigError, RemoteFailure, WritesRefused
from chord.identity import FILE_NAME, Kept, decode_kept, encode_kept
from chord.ids import Arc, Circle, Point
from chord.messages import Record
from chord.sim import record_log
from chord.sim.disk import Disk, Mount
from chord.sim.record_log import BESIDE_NAME, LOG_NAME, LOG_VERSION, Entry, Header, pack
from chord.sim.watched import WatchedStorage

COMPACT_FROM_BYTES = 1 << 16
EPOCH_BITS = 32
"""Key epochs of one opening; the bits above them count the openings."""


class DiskStorage:
    """Records on a disk. Satisfies `chord.data.storage.Storage`.

    Opening it takes no virtual time: a process does that before it answers anybody. Where there is no room for it,
    the store can be read, and every commit tries again.

    Args:
        circle: of the ring; a log of another circle is refused.
        disk: what is on it from before is kept.
        rng: draws the incarnation of an empty store.

    Attributes:
        cut_bytes: of the log, behind the last whole entry, that were dropped at the opening.
        compactions: how often the log was written anew since.
        failed: set when a sync failed. From then on every commit is refused.
        is_instant: it is not.

    Raises:
        ConfigError: there is a log, and it is damaged where no crash can have torn it, or belongs to another ring.
    """

    is_instant = False

    def __init__(self, circle: Circle, disk: Disk, rng: random.Random) -> None:
        self._circle = circle
        self._files: Mount = disk.mount()
        self.failed = trio.Event()
        self.cut_bytes = 0
        self.compactions = 0
        self._failure: OSError | None = None  # of a sync
        self._is_name_durable = False
        self._compact_from_bytes = COMPACT_FROM_BYTES
        self._written = 1  # batches, of which the first is all that was on the disk
        self._durable = 0  # of these
        self._changed: dict[bytes, list[tuple[int, Record | None]]] = {}  # since all was durable: batch, and record
        self._syncing = trio.Lock()
        self._watchers: tuple[Callable[[Record, bool], object], Callable[[Record], object]] | None = None
        self._index, self._opening = self._load(rng)
        with suppress(OSError):
            self._open_log()

    def watch(self, on_put: Callable[[Record, bool], object], on_drop: Callable[[Record], object]) -> None:
        """From now on tell of every change (see `WatchedStorage.watch`)."""
        self._watchers = on_put, on_drop
        self._index.watch(on_put, on_drop)

    async def open(self) -> None:
        """It is open. Does not checkpoint."""

    async def close(self) -> None:
        """Nothing to let go of. Does not checkpoint."""

    async def set_aside(self, incarnation: bytes) -> None:
        """Begin anew with an empty log; nothing may be under way.

        Raises:
            ConfigError: the disk takes no writes.
        """
        old = self._index
        self._index = WatchedStorage(self._circle, incarnation)
        if self._watchers is not None:
            self._index.watch(*self._watchers)
        try:
            self._open_log()
        except OSError as error:
            self._index = old
            raise ConfigError(f"cannot set {LOG_NAME} aside: {error.strerror}") from error

    # -- reading --------------------------------------------------------------------------------

    @property
    def counters(self) -> dict[str, int]:
        """How often the log was synced is the disk's to tell."""
        return {}

    @property
    def incarnation(self) -> bytes:
        """Eight random bytes, made with the empty store."""
        return self._index.incarnation

    @property
    def digests(self) -> Digests:
        """The tree of sums over all visible records."""
        return self._index.digests

    def is_damaged(self, key: bytes) -> bool:
        """Whether what was held of a key was found damaged, and nothing has taken its place since."""
        return self._index.is_damaged(key)

    def damaged(self, arc: Arc) -> list[Point]:
        """Return the points of the records of an arc that are damaged, and nothing has taken their place since."""
        return self._index.damaged(arc)

    @property
    def refusal(self) -> str:
        """Nothing is ever said of it: whoever asks is told by the next change."""
        return ""

    @property
    def bad_records(self) -> int:
        """How many records were found damaged; they count as missing. A damaged log is refused."""
        return self._index.bad_records

    @property
    def sibling_keys(self) -> int:
        """How many records hold more than one version."""
        return self._index.sibling_keys

    def is_durable(self, key: bytes) -> bool:
        """Whether what `get` returns for a key is durable."""
        return key not in self._changed or self._changed[key][-1][0] <= self._durable

    def durable(self, key: bytes) -> Record | None:
        """Return the record of a key as it would be found after a crash that takes all it can."""
        if key not in self._changed:
            return self.get(key)
        return next(record for batch, record in reversed(self._changed[key]) if batch <= self._durable)

    def heads(self, arc: Arc, *, after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and digest of each record, as `scan` would yield the records."""
        return self._index.heads(arc, after=after)

    @property
    def value_bytes(self) -> int:
        """Bytes of all stored values."""
        return self._index.value_bytes

    def get(self, key: bytes) -> Record | None:
        """Return the record stored under a key, or None; it may not be durable yet."""
        return self._index.get(key)

    def minted(self, key: bytes) -> bytes | None:
        """Return the actor under which this store minted a dot of a key it has held ever since, or None."""
        return self._index.minted(key)

    def scan(self, arc: Arc, *, after: bytes | None = None) -> Iterator[Record]:
        """Yield the records of an arc clockwise from its start; with `after`, those behind that key."""
        return self._index.scan(arc, after=after)

    def count(self, arc: Arc) -> int:
        """Return the number of records in an arc."""
        return self._index.count(arc)

    def __len__(self) -> int:
        return len(self._index)

    def next_key_epoch(self) -> int:
        """Return a number this store has never returned before, in this process or one before it.

        Raises:
            WritesRefused: definite; the opening is not durable, and may have no number of its own.
        """
        self._require_open()
        return self._opening << EPOCH_BITS | self._index.next_key_epoch()

    # -- writing --------------------------------------------------------------------------------

    def stage(self, batch: Batch) -> bool:
        """Make all changes of the batch visible, and leave them to the next who syncs; see `Storage.stage`.

        Raises:
            WritesRefused: definite; the disk is full or has failed.
        """
        if batch.puts or batch.removals:
            self._write(batch)
        return self._durable >= self._written

    async def commit(self, batch: Batch) -> None:
        """Make all changes of the batch: visible before this first waits, durable when it returns.

        Commits that wait at the same time share one sync. An empty batch waits for what is visible to be durable.

        Raises:
            WritesRefused: definite; the disk is full or has failed, and nothing was changed.
            RemoteFailure: indefinite; the sync failed. The changes stay visible, and may be gone after a crash.

        Concurrency: checkpoints unless there is nothing to wait for; cancelled, the changes may or may not last.
        """
        self.stage(batch)
        await self._make_durable(self._written)

    def _write(self, batch: Batch) -> None:
        self._require_open()
        if self._failure is not None:
            raise WritesRefused(f"no writes are taken since a sync failed: {self._failure.strerror}")
        with _refusing():
            self._files.append(LOG_NAME, pack(Entry(batch.puts, batch.removals, batch.minted)))
        self._written += 1
        for key in (*(record.key for record in batch.puts), *batch.removals):
            self._changed.setdefault(key, [(0, self.get(key))])
        self._index.apply(batch)
        for key in (*(record.key for record in batch.puts), *batch.removals):
            self._changed[key].append((self._written, self.get(key)))

    def _require_open(self) -> None:
        if not self._durable:
            with _refusing():
                self._open_log()

    async def _make_durable(self, upto: int) -> None:
        """Wait until so many batches are durable; one of those who wait syncs for all."""
        while self._durable < upto:
            async with self._syncing:
                if self._failure is not None:
                    raise RemoteFailure(f"not known to be durable: {self._failure.strerror}")
                if self._durable < upto:
                    await self._sync()

    async def _sync(self) -> None:
        written = self._written
        try:
            if not self._durable:
                self._open_log()
            if self._files.size(LOG_NAME) >= self._compact_from_bytes:
                await self._compact()
            await self._files.sync(LOG_NAME)
            if not self._is_name_durable:
                await self._files.sync_directory()
                self._is_name_durable = True
        except OSError as error:
            if self._durable:  # an opening writes everything anew; but what was synced in vain stays in doubt
                self._failure = error
                self.failed.set()
            raise RemoteFailure(f"not known to be durable: {error.strerror}") from error
        self._durable = written
        if self._written == written:
            self._changed.clear()

    # -- the log --------------------------------------------------------------------------------

    def _load(self, rng: random.Random) -> tuple[WatchedStorage, int]:
        """Return what the log says, and the number of this opening."""
        try:
            log = self._files.read(LOG_NAME)
        except FileNotFoundError:
            return WatchedStorage(self._circle, rng.randbytes(8)), 1
        index, opening, end = record_log.load(self._circle, log)
        self.cut_bytes = len(log) - end
        return index, opening + 1

    def _open_log(self) -> None:
        """Begin this opening: write everything anew and make it durable.

        Raises:
            OSError: it is not; nothing was changed that matters.
        """
        self._write_beside()
        self._files.sync_now(BESIDE_NAME)
        self._files.rename(BESIDE_NAME, LOG_NAME)
        self._files.sync_directory_now()
        self._is_name_durable = True
        self._durable = self._written

    async def _compact(self) -> None:
        """Put a log of the present records in place of the log, where there is room for both."""
        position = self._files.size(LOG_NAME)
        try:
            self._write_beside()
            await self._files.sync(BESIDE_NAME)  # before it takes the name: half a log must never have it
            self._files.append(BESIDE_NAME, self._files.read(LOG_NAME)[position:])  # what was committed meanwhile
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self._compact_from_bytes = 2 * position
            with suppress(FileNotFoundError):
                self._files.remove(BESIDE_NAME)
        else:
            self._files.rename(BESIDE_NAME, LOG_NAME)
            self._is_name_durable = False
            self.compactions += 1

    def _write_beside(self) -> None:
        start = self._circle.point(0)
        header = Header(LOG_VERSION, self._circle.bits, self.incarnation, self._opening, len(self._index))
        log = pack(header) + b"".join(map(self._pack_record, self._index.scan(Arc(start, start))))
        self._files.write(BESIDE_NAME, log)
        self._compact_from_bytes = max(COMPACT_FROM_BYTES, 2 * len(log))

    def _pack_record(self, record: Record) -> bytes:
        actor = self._index.minted(record.key)
        return pack(Entry((record,), (), {} if actor is None else {record.key: actor}))


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WritesRefused(f"no writes are taken: {error.strerror}") from error


class DiskIdentity:
    """A node's identity on a disk, which one node at a time may use. Satisfies `chord.identity.IdentityStore`.

    Raises:
        ConfigError: another node is running on that disk.
    """

    def __init__(self, disk: Disk) -> None:
        self._files: Mount = disk.mount()
        self._last: bytes | None = None
        self._saving = trio.Lock()
        if not self._files.lock(FILE_NAME):
            raise ConfigError("another node is running on that disk")

    def load(self) -> Kept | None:
        """Return what was kept, None at the first start.

        Raises:
            ConfigError: the file is there and cannot be read.
        """
        try:
            return decode_kept(self._files.read(FILE_NAME), FILE_NAME)
        except FileNotFoundError:
            return None

    async def save(self, kept: Kept) -> None:
        """Write the file anew where it differs: beside, sync, rename, sync of the directory.

        Raises:
            OSError: it could not be written, or not made durable; the next time it is written whatever it is.

        Concurrency: checkpoints; cancelled, either the old or the new file is there.
        """
        content, beside = encode_kept(kept), f"{FILE_NAME}.new"
        async with self._saving:  # one file beside, one writer
            if content == self._last:
                return
            self._last = None
            self._files.write(beside, content)
            await self._files.sync(beside)
            self._files.rename(beside, FILE_NAME)
            await self._files.sync_directory()
            self._last = content

    def close(self) -> None:
        """Let another node use the disk."""
        self._files.unlock()
