"""`backup` and `restore`: every record with its clock, to a file and back."""

from __future__ import annotations

import errno
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import click

from chord.cli.backup_file import Backup, Damaged, Header, Source, Writer, records, verify
from chord.cli.bulk import BATCH_BYTES_MAX, Tally, in_flight_option, key_count, lost_failure, lost_owners
from chord.cli.data import w_option
from chord.cli.failures import INTERRUPTED, OK, USAGE, explain
from chord.cli.inputs import file_failure
from chord.cli.output import Failure, Out, byte_size, counted
from chord.cli.target import Target, ring_options
from chord.client.batch import record_key
from chord.client.blocking import Client
from chord.client.results import Stored
from chord.errors import CutMissing, OwnerDown, RecordDamaged, RecordTooLarge
from chord.store.fsync import sync, sync_directory
from chord.views.records import backup_json, restore_json
from chord.wire.batch import cut
from chord.wire.messages import wire_bytes


@click.command("backup")
@click.argument("file")
@click.option("--node-only", is_flag=True, help="Write only the records in the arcs of the "
              "entry node. The backups of all nodes together cover the ring.")
@click.option("--consistent", is_flag=True, help="Back up a consistent cut of all nodes.")
@ring_options()
def backup_command(target: Target, file: str, node_only: bool, consistent: bool) -> int:
    """Write every record of the ring, with its clock, to FILE (- is stdout).

    `restore` reads FILE. FILE appears at the end. If the command fails before, it does not, and an older FILE stays. A
    backup is not a snapshot: it may contain writes that happened while it ran. --timeout applies to each page.

    With --consistent, every node copies its records at one consistent moment, and FILE has these copies. If it contains
    a write of a client, it contains each write that this client had made or read before.
    A value that had replaced such a write counts, too. A write that was acknowledged before the command began is in
    FILE. A newer consistent backup ends an older one.

    Exit code 6 means that records are missing. Nodes that may hold more are down, the only copies are damaged, or one
    reply cannot hold all values of a key. With --consistent, it also means that members did not copy their records, or
    dropped the copy early; the error names them. FILE has the other records.
    """
    if node_only and consistent:
        raise click.UsageError("give either --node-only or --consistent, not both: a cut is of all nodes")
    out = target.out
    began = time.monotonic()
    with target.connect() as client, _written(file, target.out) as sink:
        of = client.status().address if node_only else None
        writer = Writer(sink, _header(client, of, consistent=consistent))
        with out.progress(f"backup {file}", key_count(client) if out.is_live and of is None else None) as show:
            missing, without_cut = _write_all(client, of, writer, show, consistent=consistent)
        writer.finish(is_complete=missing is None)
        size = writer.bytes if file != "-" else None
    seconds = time.monotonic() - began
    if size is not None and out.as_json:
        out.json(backup_json(
            file, writer.count, size, is_complete=missing is None, damaged=writer.damaged, cut=writer.cut,
            consistent=consistent, without_cut=without_cut, seconds=seconds,
        ))  # fmt: skip
    elif size is not None:
        out.line(f"{counted(writer.count, 'record')}, {byte_size(size)}, in {seconds:.1f} s: {file}")
    if missing is not None:
        raise missing
    return OK


def _write_all(
    client: Client, of: str | None, writer: Writer, show: Callable[[int], object], *, consistent: bool
) -> tuple[Failure | None, tuple[str, ...]]:
    """Write every record that can be read.

    Args:
        client: the source of the records.
        of: the address of a node, to write only the records of its arcs; None: all records.
        writer: gets the records, and in `damaged` and `cut` the numbers of missing and of incomplete records.
        show: callback for the number of records written so far.
        consistent: whether to write the records of a consistent cut.

    Returns:
        The failure to report if records are missing or incomplete; None if the backup is complete. Then the addresses
            of the members without a cut.
    """
    without_cut: tuple[str, ...] = ()
    try:
        for record in client.export(of=of, consistent=consistent):
            writer.add(record)
            show(writer.count)
    except (OwnerDown, CutMissing, RecordDamaged, RecordTooLarge) as error:
        for reason in (error, *error.also):
            if isinstance(reason, RecordDamaged):
                writer.damaged = reason.records
            elif isinstance(reason, RecordTooLarge):
                writer.cut = reason.records
            elif isinstance(reason, CutMissing):
                without_cut = reason.addresses
        return explain(error, client.entry), without_cut
    lost = lost_owners(client) if of is None else []
    return lost_failure(lost) if lost else None, without_cut


@click.command("restore")
@click.argument("file")
@click.option("--dry-run", is_flag=True, help="Only check that FILE is undamaged and not cut short.")
@click.option("--bring-back", is_flag=True, help="Write values that were deleted or replaced since as new values.")
@in_flight_option("Number of merges at the same time.")
@w_option
@ring_options()
def restore_command(
    target: Target, file: str, dry_run: bool, bring_back: bool, in_flight: int, w: int | None
) -> int:
    """Merge the records of a backup into the ring (- is stdin).

    FILE is read completely first. If it is damaged or cut short, nothing is changed. Records are merged by version, so
    values that were deleted or replaced since the backup stay so; the command counts them. Repeating a restore changes
    nothing. --bring-back writes such values as new ones, beside the current values of the key. Values that were in
    quarantine when the backup was made are in quarantine again. --timeout applies to each batch.

    Records of another ring are neither older nor newer than those of this ring. If both rings have a key, their values
    stay side by side, even if they are equal.
    """
    out = target.out
    began = time.monotonic()
    tally, was = Tally(), Past()
    with _opened(file) as source:
        with out.progress(f"checking {file}, records") as show:
            backup = _verified(source, file, show)
        total = backup.trailer.records
        if not backup.trailer.complete:
            out.note(f"{file} is incomplete: some keys could not be read, and it lacks them or some of their values")
        if not dry_run:
            source.seek(0)
            with tally.interruptible(), target.connect() as client, out.progress(f"restore {file}", total) as show:
                _explain_ring(out, client, backup)
                for batch in cut(records(source), wire_bytes, in_flight, BATCH_BYTES_MAX, record_key):
                    tally.under_way = len(batch)
                    result = client.import_many(batch, in_flight=in_flight, w=w, bring_back=bring_back)
                    tally.add(result)
                    for stored in result.ok.values():
                        was.add(stored)
                    show(tally.tried)
                    if tally.is_given_up:
                        break
    seconds = time.monotonic() - began
    if out.as_json:
        out.json(restore_json(
            file, total, tally.stored, tally.failures, failed=tally.failed, dead=was.dead,
            brought_back=was.brought_back, quarantined=was.quarantined, is_complete=tally.is_complete, seconds=seconds,
        ))  # fmt: skip
    elif dry_run:
        sound = "complete" if backup.trailer.complete else "sound but incomplete"
        out.line(f"{file} is {sound}: {counted(total, 'record')} of {backup.header.written}")
    else:
        out.line(f"merged {tally.stored} of {counted(total, 'record')} in {seconds:.1f} s")
        was.tell(out, is_brought_back=bring_back)
    if tally.is_interrupted:
        out.note(tally.interrupted("merged"))
        return INTERRUPTED
    tally.check(out, target.nodes[0], total, "merged", "Repair that, then restore again; it does no harm.")
    return OK


class Past:
    """Counts of a restore: the values of the backup that the ring had already deleted or replaced.

    Attributes:
        dead: the number of such values that stay deleted or replaced.
        brought_back: the number of such values that were written as new ones.
        quarantined: the number of values that the restored keys have in quarantine now.
    """

    def __init__(self) -> None:
        self.dead = 0
        self.brought_back = 0
        self.quarantined = 0

    def add(self, stored: Stored) -> None:
        """Add the counts of one record that was merged into the ring."""
        self.dead += stored.dead
        self.brought_back += stored.brought_back
        self.quarantined += stored.quarantined

    def tell(self, out: Out, *, is_brought_back: bool) -> None:
        """Print those counts that are not zero, as sentences.

        `is_brought_back` says whether the user gave --bring-back.
        """
        if self.brought_back:
            out.line(f"brought back {counted(self.brought_back, 'value')} that had been deleted or replaced")
        if self.dead and is_brought_back:
            out.note(f"{counted(self.dead, 'value')} had no room beside the values of their keys. Settle these keys "
                     "(chord get KEY --all --context FILE, chord put KEY VALUE --context @FILE), then restore again")
        elif self.dead:
            were = "value was" if self.dead == 1 else "values were"
            out.note(f"{self.dead} {were} deleted or replaced since the backup, and not restored. To write them beside "
                     "the current values: chord restore FILE --bring-back")
        if self.quarantined:
            out.note(f"{counted(self.quarantined, 'value')} of these keys in quarantine: see chord quarantine list")


def _header(client: Client, of: str | None, *, consistent: bool) -> Header:
    node = client.status()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    ring_id = None if node.ring is None else node.ring.hex()
    return Header(ring_id, node.cluster, node.bits, node.replicas, now, of, consistent)


def _explain_ring(out: Out, client: Client, backup: Backup) -> None:
    here = client.status().ring
    if here is not None and here.hex() != backup.header.ring:
        out.note("the backup is of another ring; its records are merged into this one")


@contextmanager
def _written(file: str, out: Out) -> Iterator[BinaryIO]:
    """Open a file for writing that appears when it is complete and durable.

    If the block raises, the file does not appear, and an older one stays. - is stdout. A pipe, a device or another
    special file is written to directly. A symbolic link is followed.

    Raises:
        Failure: exit 2: the file cannot be written.
    """
    if file == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(file)
    if not file or path.is_dir():
        raise file_failure(file or "''", IsADirectoryError(errno.EISDIR, "it names no file"), "write")
    try:
        mode = path.stat().st_mode
        is_special = not stat.S_ISREG(mode)
    except FileNotFoundError:
        mode, is_special = 0, False
    except OSError as error:  # a loop of symbolic links, or a directory without search permission
        raise file_failure(file, error) from None
    if is_special:
        if stat.S_ISFIFO(mode):
            out.note(f"{file} is a pipe: the backup starts when another program opens it to read")
        try:
            with open(path, "wb") as sink:
                yield sink
        except OSError as error:
            raise file_failure(file, error, "write") from None
        return
    path = path.resolve()
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # Readable by its user alone, because it holds all data of the ring.
        sink = os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except OSError as error:
        raise file_failure(file, error) from None
    try:
        with sink:
            yield sink
            sink.flush()
            sync(sink.fileno())
        os.replace(beside, path)
        sync_directory(path.parent)
    except OSError as error:
        raise file_failure(file, error, "write") from None
    finally:
        with suppress(FileNotFoundError):
            beside.unlink()


class _Aside:
    """A pipe that can be read twice.

    The first pass copies each line to a temporary file. After `seek`, lines come from that file.
    """

    def __init__(self, pipe: BinaryIO, aside: BinaryIO) -> None:
        self._pipe: BinaryIO | None = pipe
        self._aside = aside

    def readline(self, size: int, /) -> bytes:
        """Return the next line, or its first `size` bytes."""
        if self._pipe is None:
            return self._aside.readline(size)
        line = self._pipe.readline(size)
        self._aside.write(line)
        return line

    def seek(self, offset: int, /) -> int:
        """Switch to the temporary file, and go to a position in it."""
        self._pipe = None
        return self._aside.seek(offset)


@contextmanager
def _opened(file: str) -> Iterator[Source]:
    """Open a file, or stdin for -, that is read twice.

    A pipe is copied to a temporary file while it is read for the first time.
    """
    try:
        with open(0 if file == "-" else file, "rb", closefd=file != "-") as source:
            if source.seekable():
                yield source
                return
            with tempfile.TemporaryFile() as aside:
                yield _Aside(source, aside)
    except OSError as error:
        raise file_failure(file, error) from None


def _verified(source: Source, file: str, show: Callable[[int], None]) -> Backup:
    try:
        return verify(source, show)
    except Damaged as error:
        hint = "Nothing was changed. Use another backup"
        raise Failure(f"{file} is not a complete backup: {error}", hint, USAGE, "damaged") from None
