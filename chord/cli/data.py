"""`put`, `get` and `del`: write, read and delete one record."""

from __future__ import annotations

import binascii
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from chord.cli.failures import CONFLICT, OK, USAGE, explain
from chord.cli.inputs import CONTEXT_TEXT_BYTES_MAX, STDIN, file_failure, read_file, read_limited, stdin_to_read
from chord.cli.numbers import Seconds
from chord.cli.output import Failure, Out, counted
from chord.cli.target import Target, ring_options, statuses
from chord.client.blocking import Client
from chord.client.results import Found, Stored, last_writer_wins, to_key, to_value
from chord.errors import NotFound
from chord.ids import Circle
from chord.views.common import Json, context_json, name_of, names_known, vnode_json
from chord.views.records import get_json, inspection_json, put_json
from chord.wire.messages import REPLICAS_MAX, VALUE_BYTES_MAX

SHOWN_BYTES = 32  # of a value in a table

F = TypeVar("F", bound=Callable[..., Any])

CONTEXT_HINT = (
    'Take it from: chord get KEY --context FILE, or the "context" of: chord get KEY --json. '
    "To replace nothing: chord put --no-context"
)
CONTEXT_HELP = "{what} exactly the values that a `get` saw. Its context as text, or @FILE to read it from a file."


def quorum_option(letter: str, help_text: str) -> Callable[[F], F]:
    """Return a decorator that gives a command the option `--r` or `--w`, a number of replicas.

    Args:
        letter: "r" or "w".
        help_text: the help of the option, without its default.
    """
    return click.option(f"--{letter}", type=click.IntRange(1, REPLICAS_MAX), metavar=letter.upper(),
                        help=f"{help_text}  [default: a majority]")


w_option = quorum_option("w", "Acknowledge the write once it is durable on this many nodes.")
sloppy_option = click.option("--no-sloppy", "sloppy", is_flag=True, flag_value=False, default=True,
                             help="Count only replicas towards W, not stand-ins for unreachable replicas.")
ttl_option = click.option("--ttl", "ttl_s", type=Seconds(min=0, min_open=True), metavar="SECONDS",
                          help="Let the value expire after this many seconds.")
trace_option = click.option("--trace", "with_trace", is_flag=True, help="Show what each replica did.")


@click.command("put")
@click.argument("key")
@click.argument("value")
@click.option("--context", metavar="TEXT", help=CONTEXT_HELP.format(what="Replace"))
@click.option("--no-context", is_flag=True, help="Replace nothing: existing values stay beside the new one.")
@w_option
@sloppy_option
@ttl_option
@trace_option
@ring_options()
def put_command(
    target: Target, key: str, value: str, context: str | None, no_context: bool, w: int | None, sloppy: bool,
    ttl_s: float | None, with_trace: bool,
) -> int:
    """Store VALUE under KEY; with - the value is read from stdin.

    The write replaces the values that a majority of the replicas holds at that moment. Use --context or --no-context to
    change that.
    """
    if no_context and context is not None:
        raise click.UsageError("--no-context replaces nothing, so it takes no --context; give one of them")
    raw_key, covers = to_key(os.fsencode(key)), None if context is None else parse_context(context, CONTEXT_HINT)
    raw_value = to_value(_read_stdin() if value == STDIN else os.fsencode(value))
    with target.connect() as client:
        began = time.monotonic()
        stored = client.put(
            raw_key, raw_value, context=covers, no_context=no_context, w=w, sloppy=sloppy, ttl_s=ttl_s,
            replicas=with_trace,
        )
        _report(target, client, stored, 1000 * (time.monotonic() - began), with_trace)
    return OK


@click.command("del")
@click.argument("key")
@click.option("--context", metavar="TEXT", help=CONTEXT_HELP.format(what="Delete"))
@w_option
@sloppy_option
@trace_option
@ring_options()
def del_command(
    target: Target, key: str, context: str | None, w: int | None, sloppy: bool, with_trace: bool
) -> int:
    """Delete KEY. A key without a value is no error.

    The delete replaces the values that a majority of the replicas holds at that moment. Use --context to change that.
    """
    raw_key, covers = to_key(os.fsencode(key)), None if context is None else parse_context(context, CONTEXT_HINT)
    with target.connect() as client:
        began = time.monotonic()
        stored = client.delete(raw_key, context=covers, w=w, sloppy=sloppy, replicas=with_trace)
        _report(target, client, stored, 1000 * (time.monotonic() - began), with_trace)
    return OK


@click.command("get")
@click.argument("key")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write the value to a file instead of "
              "stdout. If there are several values, write and print none.")
@click.option("--all", "wants_all", is_flag=True, help="Print all concurrent values with exit code 0.")
@click.option("--last-writer", is_flag=True, help="Print only the concurrent value that was written last by the clocks "
              "of the nodes. The others are ignored silently.")
@click.option("--context", "context_file", type=click.Path(dir_okay=False), metavar="FILE",
              help="Write the context of this read to a file, for `put --context @FILE`.")
@quorum_option("r", "Number of replicas that must answer.")
@click.option("--local", is_flag=True, help="Let the contacted node answer from its own copy. The value may be old.")
@trace_option
@click.option("--inspect", "wants_copies", is_flag=True, help="Show the copy of each replica in place of the value.")
@ring_options()
def get_command(
    target: Target, key: str, output: str | None, wants_all: bool, last_writer: bool, context_file: str | None,
    r: int | None, local: bool, with_trace: bool, wants_copies: bool,
) -> int:
    """Print the value of KEY.

    If the key has concurrent values, all are printed, one per line, and the exit code is 7. --all makes it 0. To settle
    the values, put the value that replaces them, with the context of this read.
    """
    if wants_all and (last_writer or output is not None):
        raise click.UsageError("--all prints every value, so it takes neither --last-writer nor --output")
    raw_key, out = to_key(os.fsencode(key)), target.out
    if wants_copies:
        if wants_all or last_writer or with_trace or output or context_file or r or local:
            raise click.UsageError("--inspect shows copies in place of the value, so it takes no other option of get")
        return _show_copies(target, raw_key)
    if local and (r or with_trace):
        raise click.UsageError("--local reads one copy, so it takes neither --r nor --trace")
    with target.connect() as client:
        began = time.monotonic()
        try:
            resolve = last_writer_wins if last_writer else None
            found = client.get(raw_key, r=r, resolve=resolve, replicas=with_trace, local=local)
        except NotFound as error:
            if context_file is not None:
                _write(context_file, b"")  # the context of an earlier read would pass for this one's
            if out.as_json:
                out.json(get_json(raw_key, None, quarantined=error.quarantined))
            else:
                note_quarantined(out, error.quarantined)
            raise explain(NotFound(f"no value is stored under {key!r}"), client.entry) from error
        duration_ms = 1000 * (time.monotonic() - began)
        circle, names = client.circle, _names(client, found) if with_trace else {}
    if context_file is not None:
        _write(context_file, (context_json(found.context) + "\n").encode())
    if output is not None and not found.siblings:
        _write(output, found.value)
    if out.as_json:
        trace = _trace_json(circle, found, duration_ms, names) if with_trace else None
        out.json(get_json(raw_key, found, trace, quarantined=found.quarantined))
    elif found.siblings or wants_all:
        for value in found.values if output is None else ():
            out.raw(value if sys.stdout.isatty() else value + b"\n")
    elif output is None:
        out.raw(found.value)
    if with_trace and not out.as_json:
        _print_trace(out, circle, found, names, duration_ms)
    if not out.as_json:
        note_quarantined(out, found.quarantined)
        if found.is_local:
            out.note(f"{found.owner.address} read its own copy, so the value may be old")
        if found.left and wants_all:
            out.note(f"{found.counted}. Settle those shown, and the next get shows more")
    if found.siblings and not wants_all:
        hint = "Settle them: chord get KEY --all --context FILE, then chord put KEY VALUE --context @FILE"
        raise Failure(f"{key!r} has {found.counted}", hint, CONFLICT, "siblings")
    return OK


def _show_copies(target: Target, key: bytes) -> int:
    out = target.out
    with target.connect() as client:
        found, circle = client.inspect(key), client.circle
        addresses = dict.fromkeys(copy.member.address for copy in found.copies)
        names = names_known(statuses(client.members(only=list(addresses))))
    if out.as_json:
        out.json(inspection_json(circle, found, names))
        return OK
    rows = []
    for copy in found.copies:
        held = " ".join("tombstone" if one.value is None else _shown(one.value) for one in copy.versions) or "absent"
        expires = [str(one.expires_ms) for one in copy.versions if one.expires_ms]
        sync = "yes" if copy.is_in_sync else "no"
        known = [copy.version.hex() or "-", "damaged" if copy.is_damaged else held, " ".join(expires) or "-", sync]
        rows.append([
            name_of(copy.member, names), out.id(circle, copy.member.id),
            *(["-", copy.reason, "-", "-"] if copy.reason else known),
        ])
    out.table(["replica", "id", "version", "copy", "expires (ms)", "in sync"], rows)
    return OK


def _shown(value: bytes) -> str:
    """Return the beginning of a value for a cell of a table."""
    text = value[:SHOWN_BYTES].decode(errors="backslashreplace")
    return repr(text) + ("…" if len(value) > SHOWN_BYTES else "")


def _report(target: Target, client: Client, stored: Stored, duration_ms: float, with_trace: bool) -> None:
    """Report a write: warnings on stderr, the rest only with --json or --trace.

    `duration_ms` is the time that the write took, and `with_trace` says whether --trace was given.
    """
    out = target.out
    if stored.beside and not out.as_json:
        out.note(f"concurrent values beside it: {stored.beside}; see them all: chord get KEY --all")
    if stored.is_under_replicated:
        nodes = counted(stored.w, "node")
        out.note(f"stored on {nodes} only: the ring has fewer nodes than its write quorum of {stored.quorum}")
    if not out.as_json and not with_trace:
        return
    circle, names = client.circle, _names(client, stored)
    if out.as_json:
        trace = _trace_json(circle, stored, duration_ms, names) if with_trace else None
        out.json(put_json(stored, vnode_json(circle, stored.owner, names), trace))
    else:
        _print_trace(out, circle, stored, names, duration_ms)


def _print_trace(out: Out, circle: Circle, result: Found | Stored, names: dict[str, str], duration_ms: float) -> None:
    from chord.cli.trace import print_replicas  # most commands print no trace, and start faster without the module

    print_replicas(out, circle, result, names, duration_ms)


def _trace_json(circle: Circle, result: Found | Stored, duration_ms: float, names: dict[str, str]) -> Json:
    from chord.views.trace import replicas_json

    return replicas_json(circle, result.owner, result.replicas, duration_ms, names)


def _names(client: Client, result: Found | Stored) -> dict[str, str]:
    contacts = [result.owner, *(line.contact for line in result.replicas)]
    return names_known(statuses(client.members(only=list(dict.fromkeys(c.address for c in contacts)))))


def parse_context(text: str, hint: str) -> bytes:
    """Return the context that an option gives: as base64 text, or as @FILE, a file with that text.

    Args:
        text: the text of the option.
        hint: the next step that the error about a wrong text names.

    Raises:
        Failure: exit 2: the context is empty or is not base64, or the file cannot be read.
    """
    if text.startswith("@"):
        content = read_file(text[1:], CONTEXT_TEXT_BYTES_MAX, f"the context in {text[1:]}")
        text = content.decode("ascii", errors="replace")
    if not text.strip():  # an empty context would replace nothing
        raise Failure("the context is empty", hint, USAGE, "usage")
    try:
        return binascii.a2b_base64(text.strip(), strict_mode=True)
    except (binascii.Error, ValueError):
        raise Failure("invalid context: expected base64", hint, USAGE, "usage") from None


def note_quarantined(out: Out, count: int) -> None:
    """Print the number of a key's values in quarantine on stderr; nothing if it is 0."""
    if count:
        values = "value of the key is" if count == 1 else "values of the key are"
        out.note(f"{count} {values} in quarantine, and hidden from readers: chord quarantine list KEY")


def _read_stdin() -> bytes:
    with stdin_to_read() as source:
        return read_limited(source, VALUE_BYTES_MAX, "the value on stdin")


def _write(name: str, content: bytes) -> None:
    try:
        with open(name, "wb") as file:
            file.write(content)
    except OSError as error:
        raise file_failure(name, error) from None
