"""backup, restore: every record with its clock into a file, and back."""

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
from chord.client.blocking import Ring
from chord.client.bulk import batches, record_key
from chord.client.results import Stored
from chord.errors import OwnerDown, RecordDamaged, RecordTooLarge
from chord.wire.messages import wire_bytes


@click.command("backup")
@click.argument("file")
@click.option("--node-only", is_flag=True, help="Only the keys the entry node answers for; those of all nodes together "
              "are the ring's.")
@ring_options()
def backup_command(target: Target, file: str, node_only: bool) -> int:
    """Write every record of the ring into FILE (- is stdout), with its clock, for `restore`.

    FILE appears when it is whole. Not a snapshot: what is written meanwhile may be in it. --timeout counts for each
    page. Exit code 6 if records are missing from it: nodes that may hold more are down, the only copies are damaged, or
    the values of a key exceed what one reply holds.
    """
    out = target.out
    began = time.monotonic()
    with target.connect() as ring, _written(file, target.out) as sink:
        of = ring.describe().address if node_only else None
        writer = Writer(sink, _header(ring, of))
        with out.progress(f"backup {file}", key_count(ring) if out.is_live and of is None else None) as show:
            missing = _write_all(ring, of, writer, show)
        writer.finish(is_complete=missing is None)
        size = writer.bytes if file != "-" else None
    seconds = time.monotonic() - began
    if size is not None and out.as_json:
        out.json({"file": file, "records": writer.count, "bytes": size, "complete": missing is None,
                  "damaged": writer.damaged, "cut": writer.cut, "seconds": round(seconds, 3)})
    elif size is not None:
        out.line(f"{counted(writer.count, 'record')}, {byte_size(size)}, in {seconds:.1f} s: {file}")
    if missing is not None:
        raise missing
    return OK


def _write_all(ring: Ring, of: str | None, writer: Writer, show: Callable[[int], object]) -> Failure | None:
    """Write what can be read. Return what to say of the records that are missing, or of which only a part was read."""
    has_copies = ring.describe().replicas > 1
    try:
        for record in ring.records(of=of):
            writer.add(record)
            show(writer.count)
    except (OwnerDown, RecordDamaged, RecordTooLarge) as error:
        if isinstance(error, OwnerDown) and not has_copies:
            raise
        for reason in (error, *error.also):
            if isinstance(reason, RecordDamaged):
                writer.damaged = reason.records
            elif isinstance(reason, RecordTooLarge):
                writer.cut = reason.records
        return explain(error, ring.entry)
    lost = lost_owners(ring) if of is None else []
    return lost_failure(lost) if lost else None


@click.command("restore")
@click.argument("file")
@click.option("--dry-run", is_flag=True, help="Only see whether FILE is whole.")
@click.option("--bring-back", is_flag=True, help="Also write anew what was deleted or replaced since the backup.")
@in_flight_option("Merges at one time.")
@w_option
@ring_options()
def restore_command(
    target: Target, file: str, dry_run: bool, bring_back: bool, in_flight: int, w: int | None
) -> int:
    """Merge the records of a backup into the ring (- is stdin).

    FILE is read whole first: one that is damaged or cut short is refused, and nothing is changed. Records are merged
    by version: what was deleted or replaced since stays so, and is counted; doing it again changes nothing. With
    --bring-back such a value is written as a new one, beside the values that the key has now. Values that were in
    quarantine when the backup was made are in quarantine again. Records of another ring are neither older nor newer
    than those here: if both have a key, the values stay side by side, even equal ones. --timeout counts for each batch.
    """
    out = target.out
    began = time.monotonic()
    tally, was = Tally(), Past()
    with _opened(file) as source:
        with out.progress(f"checking {file}, records") as show:
            backup = _verified(source, file, show)
        total = backup.trailer.records
        if not backup.trailer.complete:
            out.note(f"{file} was written while some keys could not be read; it lacks them, or some of their values")
        if not dry_run:
            source.seek(0)
            with tally.interruptible(), target.connect() as ring, out.progress(f"restore {file}", total) as show:
                _explain_ring(out, ring, backup)
                for batch in batches(records(source), in_flight, BATCH_BYTES_MAX, wire_bytes, record_key):
                    tally.under_way = len(batch)
                    failures = ring.merge_many(
                        batch, in_flight=in_flight, w=w, bring_back=bring_back, on_stored=was.add
                    )
                    tally.add(len(batch), failures)
                    show(tally.tried)
                    if tally.is_given_up:
                        break
    seconds = time.monotonic() - began
    if out.as_json:
        out.json({"file": file, "records": total, "merged": tally.stored, "failed": tally.failed, "dead": was.dead,
                  "brought_back": was.brought_back, "quarantined": was.quarantined, "complete": tally.is_complete,
                  "seconds": round(seconds, 3), "failures": tally.failures_json()})
    elif dry_run:
        out.line(f"{file} is whole: {counted(total, 'record')} of {backup.header.written}")
    else:
        out.line(f"merged {tally.stored} of {counted(total, 'record')} in {seconds:.1f} s")
        was.tell(out, is_brought_back=bring_back)
    if tally.is_interrupted:
        out.note(tally.interrupted("merged"))
        return INTERRUPTED
    tally.check(out, target.nodes[0], total, "merged", "Do it again once that is mended; it does no harm.")
    return OK


class Past:
    """What became of the values of a backup that the ring no longer has.

    Attributes:
        dead: how many were deleted or replaced since, and stay so.
        brought_back: how many were written anew.
        quarantined: how many values of these keys are in quarantine now.
    """

    def __init__(self) -> None:
        self.dead = self.brought_back = self.quarantined = 0

    def add(self, stored: Stored) -> None:
        """Count a record that was merged."""
        self.dead += stored.dead
        self.brought_back += stored.brought_back
        self.quarantined += stored.quarantined

    def tell(self, out: Out, *, is_brought_back: bool) -> None:
        """Say it to people; nothing if there is nothing to say."""
        if self.brought_back:
            out.line(f"brought back {counted(self.brought_back, 'value')} that had been deleted or replaced")
        if self.dead and is_brought_back:
            out.note(f"{counted(self.dead, 'value')} had no room beside the values of their keys: settle these keys "
                     "(chord get KEY --all --context FILE, chord put KEY VALUE --context @FILE), and do it again")
        elif self.dead:
            were = "value was" if self.dead == 1 else "values were"
            out.note(f"{self.dead} {were} deleted or replaced since the backup, and not restored. To write them beside "
                     "the values of today: chord restore FILE --bring-back")
        if self.quarantined:
            out.note(f"{counted(self.quarantined, 'value')} of these keys in quarantine: see chord quarantine list")


def _header(ring: Ring, of: str | None) -> Header:
    node = ring.describe()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    ring_id = None if node.ring is None else node.ring.hex()
    return Header(ring_id, node.cluster, node.bits, node.replicas, now, of)


def _explain_ring(out: Out, ring: Ring, backup: Backup) -> None:
    here = ring.describe().ring
    if here is not None and here.hex() != backup.header.ring:
        out.note("the backup is of another ring; its records are merged into this one")


@contextmanager
def _written(file: str, out: Out) -> Iterator[BinaryIO]:
    """Open a file to write that appears under its name when it is whole and durable; - is stdout.

    What is no regular file, such as a pipe or a device, is written to as it is. A link is followed.
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
    except OSError as error:  # symbolic links that lead in a circle, or a directory that may not be searched
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
        # Only for who writes it: it holds everything the ring does.
        sink = os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except OSError as error:
        raise file_failure(file, error) from None
    try:
        with sink:
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
        os.replace(beside, path)
        _sync_directory(path.parent)
    except OSError as error:
        raise file_failure(file, error, "write") from None
    finally:
        with suppress(FileNotFoundError):
            beside.unlink()


def _sync_directory(path: Path) -> None:
    """Make the new name durable, too."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class _Aside:
    """A pipe that is read twice: the first reading copies each line aside, and stops at the first bad one."""

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
        """Go back to a line that was read before."""
        self._pipe = None
        return self._aside.seek(offset)


@contextmanager
def _opened(file: str) -> Iterator[Source]:
    """Open a file that is read twice; what comes from a pipe is kept aside for that."""
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
        hint = "Nothing was changed. Take another backup"
        raise Failure(f"{file} is not a whole backup: {error}", hint, USAGE, "damaged") from None
