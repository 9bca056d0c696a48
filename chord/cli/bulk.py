"""`load` and `scan`: many records as lines of text, streamed in and out."""

from __future__ import annotations

import base64
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from chord.cli.data import sloppy_option, ttl_option, w_option
from chord.cli.failures import INTERRUPTED, OK, QUORUM, USAGE, explain
from chord.cli.inputs import LINE_BYTES_MAX, STDIN, file_failure, lines_limited, stdin_to_read
from chord.cli.output import Failure, Out, counted, json_text
from chord.cli.plain import can_write
from chord.cli.target import Target, ring_options, statuses
from chord.client.batch import IN_FLIGHT, IN_FLIGHT_MAX, pair_bytes, pair_key
from chord.client.blocking import Client
from chord.client.results import BatchResult, Pair, Stored, to_key, to_value
from chord.errors import ChordError, IndefiniteError
from chord.views.records import load_json, pair_json
from chord.views.ring import count_keys
from chord.wire.batch import cut

F = TypeVar("F", bound=Callable[..., Any])

FAILURES_SHOWN = 5
FAILURES_KEPT = 10_000
IN_VAIN_MAX = 64  # give up after this many failed keys in a row
BATCH_BYTES_MAX = 4 << 20


class Tally:
    """Counts the results of writing many keys, and keeps the first failures.

    Attributes:
        stored, failed: the numbers of keys that were written, and that failed.
        unknown: the number of failed keys that may be written nevertheless.
        under_way: the number of keys in the batch that is being written.
        is_interrupted: whether Ctrl-C ended the writing.
        failures: the first `FAILURES_KEPT` failed keys, each with its error.
    """

    def __init__(self) -> None:
        self.stored = self.failed = 0
        self.unknown = 0
        self.under_way = 0
        self.is_interrupted = False
        self.failures: list[tuple[str | bytes, ChordError]] = []
        self._in_vain = 0

    @property
    def tried(self) -> int:
        """The number of keys that were written or failed."""
        return self.stored + self.failed

    @property
    def is_given_up(self) -> bool:
        """Whether to stop, because the ring takes no writes.

        This is so if at least `IN_VAIN_MAX` keys in a row failed with a retryable or indefinite error, in whole
        batches.
        """
        return self._in_vain >= IN_VAIN_MAX

    def add(self, result: BatchResult[str | bytes, Stored] | BatchResult[bytes, Stored]) -> None:
        """Count the keys and errors of one batch, which has ended."""
        errors = list(result.errors.items())
        self.under_way = 0
        self.stored += len(result.ok)
        self.failed += len(errors)
        self.unknown += sum(isinstance(error, IndefiniteError) for _, error in errors)
        self.failures += errors[: FAILURES_KEPT - len(self.failures)]
        waited = sum(error.is_retryable or isinstance(error, IndefiniteError) for _, error in errors)
        self._in_vain = self._in_vain + len(result) if waited == len(result) else 0

    @property
    def is_complete(self) -> bool:
        """Whether every key was tried. The value is valid once all batches have ended."""
        return not (self.is_given_up or self.is_interrupted)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """End the `with` block without an error at Ctrl-C, and set `is_interrupted`."""
        try:
            yield
        except KeyboardInterrupt:
            self.is_interrupted = True

    def interrupted(self, done: str) -> str:
        """Return a sentence on an interrupted command: the number of written keys, and of keys that may be written.

        `done` is the participle for a written key: "stored" or "merged".
        """
        more = f"; {self.under_way} more may be" if self.under_way else ""
        return f"interrupted: {counted(self.stored, 'key')} {'is' if self.stored == 1 else 'are'} {done}{more}"

    def check(self, out: Out, entry: str, total: int | None, done: str, hint: str = "") -> None:
        """Print the first failures and end the command; do nothing if no key failed.

        Args:
            out: the output of the command.
            entry: the address of the entry node, for hints.
            total: the number of keys to write; None: unknown.
            done: the participle for a written key: "stored" or "merged".
            hint: a text to print before the hint of the error.

        Raises:
            Failure: a key failed. The exit code is that of the first failed key.
        """
        if not self.failures:
            return
        for key, error in self.failures[:FAILURES_SHOWN]:
            shown = key if isinstance(key, str) else key.decode(errors="backslashreplace")
            not_done = f"not known to be {done}" if isinstance(error, IndefiniteError) else f"not {done}"
            out.note(f"{not_done}: {shown!r}: {error.message}")
        worst = explain(self.failures[0][1], entry)
        rest = "; the rest was not tried" if self.is_given_up and self.tried != total else ""
        were = "was" if self.failed == 1 else "were"
        not_done = f"{were} not {done}"
        if self.unknown:
            may_be = f" ({self.unknown} may be)" if self.unknown < self.failed else ""
            not_done = f"{'is' if self.failed == 1 else 'are'} not known to be {done}{may_be}"
        message = f"{self.failed} of {counted(self.tried, 'key')} {not_done}{rest}"
        raise Failure(message, f"{hint} {worst.hint}".lstrip(), worst.exit_code, worst.code)


def in_flight_option(help_text: str) -> Callable[[F], F]:
    """Return a decorator that gives a command the option `--in-flight`: the number of keys in a batch."""
    return click.option("--in-flight", type=click.IntRange(1, IN_FLIGHT_MAX), default=IN_FLIGHT, show_default=True,
                        help=help_text)


@click.command("load")
@click.argument("file")
@click.option("--words", "is_words", is_flag=True,
              help="Take each line, whatever it contains, as both key and value.")
@in_flight_option("Number of puts at the same time.")
@w_option
@sloppy_option
@ttl_option
@ring_options()
def load_command(
    target: Target, file: str, is_words: bool, in_flight: int, w: int | None, sloppy: bool, ttl_s: float | None
) -> int:
    """Store the records of FILE (- is stdin), one per line.

    A line is a JSON object {"key", "value"}, or a key and a value with a tab between them, or one word that is both. In
    JSON, bytes that are not UTF-8 go under key_b64 and value_b64. A line without a tab is refused if it contains a
    space, a comma or a semicolon. --words takes such a line as one word. If several lines have the same key, the last
    line wins, even if `scan` printed them as concurrent values.

    If any line of a file is invalid, nothing is stored. A pipe is read only once, so the batches before the invalid
    line are stored. --timeout applies to each batch. Loading stops when the ring stores none of 64 or more keys in a
    row. Ctrl-C stops it with exit code 130, and `load` prints the number of stored keys.
    """
    out = target.out
    total = _count(file, is_words)
    tally = Tally()
    began = time.monotonic()
    with tally.interruptible(), target.connect() as client, out.progress(f"load {file}", total) as show:
        pairs = _counted(_read_pairs(file, is_words), tally)
        for batch in cut(pairs, pair_bytes, in_flight, BATCH_BYTES_MAX, pair_key):
            tally.under_way = len(batch)
            tally.add(client.put_many(batch, in_flight=in_flight, w=w, sloppy=sloppy, ttl_s=ttl_s))
            show(tally.tried)
            if tally.is_given_up:
                break
    seconds = time.monotonic() - began
    if out.as_json:
        out.json(load_json(
            tally.stored, tally.failures, failed=tally.failed, is_complete=tally.is_complete, seconds=seconds
        ))
    else:
        of = total if total is not None else tally.tried
        out.line(f"stored {tally.stored} of {of} in {seconds:.1f} s")
    if tally.is_interrupted:
        out.note(tally.interrupted("stored"))
        return INTERRUPTED
    tally.check(out, target.nodes[0], total, "stored")
    return OK


@click.command("scan")
@ring_options()
def scan_command(target: Target) -> int:
    """Print every key and value, clockwise from point 0.

    A line is a key, a tab and a value, and `load` reads it back. With --json, or if `load` could not read such a line
    back, it is a JSON object. A key with concurrent values has a line for each. --timeout applies to each page.

    Exit code 6 means that records are missing. Nodes that may hold more are down, the only copies are damaged, or one
    reply cannot hold all values of a key.
    """
    out = target.out
    count = 0
    with target.connect() as client, out.progress("scan", key_count(client) if out.is_live else None) as show:
        for pair in client.scan():
            for line in _scan_lines(pair, out.as_json):
                out.line(line)
            count += 1
            show(count)
        lost = lost_owners(client)
    if out.as_table:
        out.note(counted(count, "key"))
    if lost:
        raise lost_failure(lost)
    return OK


def key_count(client: Client) -> int:
    """Return the number of keys in the ring as its nodes report it. It is approximate, for a progress bar."""
    return count_keys(statuses(client.members()))


def lost_owners(client: Client) -> list[str]:
    """Return the addresses of dead nodes from which other nodes took arcs over without the records.

    Only a ring with one copy of each record gives any: a ring with more copies itself knows whether it has every
    record.
    """
    nodes = [node for node in statuses(client.members()) if node.replicas == 1]
    arcs = [arc for node in nodes for vnode in node.vnodes for arc in vnode.arcs]
    return sorted({arc.peer.address for arc in arcs if arc.state == "taken_over" and arc.peer is not None})


def lost_failure(lost: list[str]) -> Failure:
    """Return the failure of a scan that lacks the records of the nodes at these addresses. The exit code is 6."""
    what = f"the only copy of some keys is on {', '.join(lost)}, which is down"
    return Failure(what, "Start it again, then repeat the command", QUORUM, "owner_down")


def _scan_lines(pair: Pair, as_json: bool) -> Iterator[str]:
    for value in pair.values:
        if not as_json:
            try:
                key_text, value_text = pair.key.decode(), value.decode()
            except UnicodeDecodeError:
                pass
            else:
                if not key_text.startswith("{") and not set(key_text + value_text) & set("\t\r\n") and (
                    can_write(key_text + value_text, sys.stdout)
                ):
                    yield f"{key_text}\t{value_text}"
                    continue
        yield json_text(pair_json(pair.key, value), sys.stdout)


def _counted(pairs: Iterator[tuple[bytes, bytes]], tally: Tally) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pairs; add the number of stored keys to the error of an invalid line."""
    try:
        yield from pairs
    except Failure as failure:
        if failure.code == "file" and not tally.stored:  # no line was read
            raise
        were = f"{counted(tally.stored, 'key')} {'was' if tally.stored == 1 else 'were'}"
        hint = f"{failure.hint}. {were} stored before that line"
        raise Failure(failure.message, hint, failure.exit_code, failure.code) from None


# -- reading lines ------------------------------------------------------------------------------


def _count(file: str, is_words: bool) -> int | None:
    """Return the number of pairs in a file, after checking every line.

    Returns:
        None for stdin and for other input that can be read only once. Such input is not read here.

    Raises:
        Failure: exit 2: the file cannot be read, or a line is invalid.
    """
    try:
        if file == STDIN or not stat.S_ISREG(os.stat(file).st_mode):
            return None
    except OSError as error:
        raise file_failure(file, error) from None
    try:
        return sum(1 for _ in _read_pairs(file, is_words))
    except Failure as failure:
        hint = f"{failure.hint}. Nothing of the file is stored"
        raise Failure(failure.message, hint, failure.exit_code, failure.code) from None


def _read_pairs(file: str, is_words: bool) -> Iterator[tuple[bytes, bytes]]:
    if file == STDIN:
        with stdin_to_read() as source:
            yield from _parse(lines_limited(source, LINE_BYTES_MAX, "stdin"), "stdin", is_words)
        return
    try:
        with open(file, "rb") as source:
            yield from _parse(lines_limited(source, LINE_BYTES_MAX, file), file, is_words)
    except OSError as error:
        raise file_failure(file, error) from None


def _parse(lines: Iterable[bytes], name: str, is_words: bool) -> Iterator[tuple[bytes, bytes]]:
    for number, line in enumerate(lines, 1):
        text = line.rstrip(b"\r\n")
        if not text:
            continue
        try:
            pair = (text, text) if is_words else _parse_line(text)
            yield to_key(pair[0]), to_value(pair[1])
        except (ValueError, RecursionError, ChordError) as error:
            raise _line_failure(name, number, error) from None


def _parse_line(text: bytes) -> tuple[bytes, bytes]:
    if text.startswith(b"{"):
        entry = json.loads(text)
        return _field(entry, "key"), _field(entry, "value")
    key, tab, value = text.partition(b"\t")
    if not tab and any(comma in text for comma in (b",", b";")):
        raise ValueError("it looks like CSV, which `load` does not read")
    if not tab and b" " in text:
        raise ValueError("it has a space but no tab; a pair has a tab, and a word has no space")
    return (key, value) if tab else (text, text)


def _field(entry: dict[str, Any], name: str) -> bytes:
    if name in entry and f"{name}_b64" in entry:
        raise ValueError(f'it has "{name}" and "{name}_b64"; expected one of them')
    if isinstance(entry.get(name), str):
        return str(entry[name]).encode()
    if isinstance(entry.get(f"{name}_b64"), str):
        return base64.b64decode(entry[f"{name}_b64"], validate=True)
    raise ValueError(f'it has no string "{name}" and no "{name}_b64"')


def _line_failure(name: str, number: int, error: Exception) -> Failure:
    why = getattr(error, "message", None) or str(error)
    hint = 'A line is {"key": …, "value": …}, or KEY TAB VALUE, or one word; words with spaces or commas: --words'
    return Failure(f"{name}, line {number}: {why}", hint, USAGE, "bad_line")
