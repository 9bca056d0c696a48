"""put, get, del, load, scan: records in and out."""

from __future__ import annotations

import base64
import binascii
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import click

from chord.blocking import Ring
from chord.cli.failures import CONFLICT, OK, QUORUM, USAGE, explain
from chord.cli.output import Failure
from chord.cli.shapes import (
    Json,
    context_json,
    error_json,
    get_json,
    key_json,
    names_of,
    pair_json,
    vnode_json,
)
from chord.cli.target import Target, descriptions, ring_options
from chord.errors import ChordError, NotFound
from chord.values import Pair, Stored, to_key, to_value

FAILURES_SHOWN = 5


@click.command("put")
@click.argument("key")
@click.argument("value")
@click.option("--context", metavar="TEXT", help="From a `get --json`: replace exactly what was seen there.")
@ring_options()
def put_command(target: Target, key: str, value: str, context: str | None) -> int:
    """Store VALUE under KEY; with - the value is read from stdin."""
    raw_key = to_key(os.fsencode(key))
    raw_value = sys.stdin.buffer.read() if value == "-" else os.fsencode(value)
    with target.connect() as ring:
        _report(target, ring, ring.put(raw_key, to_value(raw_value), context=_context(context)))
    return OK


@click.command("del")
@click.argument("key")
@click.option("--context", metavar="TEXT", help="From a `get --json`: delete exactly what was seen there.")
@ring_options()
def del_command(target: Target, key: str, context: str | None) -> int:
    """Delete KEY; no error where nothing is there."""
    raw_key = to_key(os.fsencode(key))
    with target.connect() as ring:
        _report(target, ring, ring.delete(raw_key, context=_context(context)))
    return OK


@click.command("get")
@click.argument("key")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the value to a file.")
@ring_options()
def get_command(target: Target, key: str, output: Path | None) -> int:
    """Print the value of KEY.

    Concurrent values are all printed, one per line, with exit code 7; settle them with a put.
    """
    raw_key = to_key(os.fsencode(key))
    out = target.out
    with target.connect() as ring:
        try:
            found = ring.get(raw_key)
        except NotFound as error:
            if out.as_json:
                out.json(get_json(raw_key, None))
            raise explain(NotFound(f"no value is stored under {key!r}"), ring.entry) from error
    if output is not None and not found.siblings:
        try:
            output.write_bytes(found.value)
        except OSError as error:
            raise _file_failure(str(output), error) from None
    if out.as_json:
        out.json(get_json(raw_key, found))
    elif found.siblings:
        for value in found.values:
            out.raw(value if sys.stdout.isatty() else value + b"\n")
    elif output is None:
        out.raw(found.value)
    if found.siblings:
        hint = "Settle them: chord put KEY VALUE --context, with the context of: chord get KEY --json"
        raise Failure(f"{key!r} has {len(found.values)} concurrent values", hint, CONFLICT, "siblings")
    return OK


@click.command("load")
@click.argument("file")
@click.option("--in-flight", type=click.IntRange(1, 128), default=64, show_default=True, help="Puts at the same time.")
@ring_options()
def load_command(target: Target, file: str, in_flight: int) -> int:
    """Store what FILE holds (- is stdin), line by line.

    A line is a JSON object {"key", "value"} (key_b64, value_b64 for bytes that are not text), or a key and a value
    with a tab between them, or one word that is both. Later lines win. --timeout counts for each batch.
    """
    out = target.out
    pairs = list(_read_pairs(file))
    began = time.monotonic()
    with target.connect() as ring, out.progress(f"load {file}", len(pairs)) as show:
        failures = ring.put_many(pairs, in_flight=in_flight, on_progress=show)
    seconds = time.monotonic() - began
    stored = len(pairs) - len(failures)
    if out.as_json:
        listed: list[Json] = [{**key_json(to_key(k)), "error": error_json(e)} for k, e in failures]
        out.json({"stored": stored, "failed": len(failures), "seconds": round(seconds, 3), "failures": listed})
    else:
        out.line(f"stored {stored} of {len(pairs)} in {seconds:.1f} s")
    if failures:
        for key, error in failures[:FAILURES_SHOWN]:
            out.note(f"not stored: {key!r}: {error.message}")
        worst = explain(failures[0][1], target.nodes[0])
        raise Failure(f"{len(failures)} of {len(pairs)} keys were not stored", worst.hint, worst.exit_code, worst.code)
    return OK


@click.command("scan")
@ring_options()
def scan_command(target: Target) -> int:
    """Print every key and value, clockwise from point 0; `load` reads it back.

    A key, a tab and the value; with --json, or where that would not be readable back, a JSON object. Exit code 6
    where the only copy of some keys is on a node that is down.
    """
    out = target.out
    count = 0
    with target.connect() as ring, out.progress("scan") as show:
        for pair in ring.scan():
            for line in _scan_lines(pair, out.as_json):
                out.line(line)
            count += 1
            show(count)
        lost = _lost_owners(ring)
    if out.as_table:
        out.note(f"{count} keys")
    if lost:
        hint = "Bring it back, and scan again"
        raise Failure(f"the only copy of some keys is on {', '.join(lost)}, which is down", hint, QUORUM, "owner_down")
    return OK


def _lost_owners(ring: Ring) -> list[str]:
    """Return the dead nodes whose arcs others answer for without having their records."""
    arcs = [arc for node in descriptions(ring.members()) for vnode in node.vnodes for arc in vnode.arcs]
    return sorted({arc.peer.address for arc in arcs if arc.state == "taken_over" and arc.peer is not None})


def _report(target: Target, ring: Ring, stored: Stored) -> None:
    if target.out.as_json:
        names = names_of(descriptions(ring.members(only=[stored.owner.address])))
        owner = vnode_json(ring.circle, stored.owner, names)
        target.out.json({**key_json(stored.key), "owner": owner, "context": context_json(stored.context), "w": 1})


def _context(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        hint = 'Take it from the "context" of: chord get KEY --json'
        raise Failure("that is not a context", hint, USAGE, "usage") from None


def _scan_lines(pair: Pair, as_json: bool) -> Iterator[str]:
    for value in pair.values:
        if not as_json:
            try:
                key_text, value_text = pair.key.decode(), value.decode()
            except UnicodeDecodeError:
                pass
            else:
                if not key_text.startswith("{") and not set(key_text + value_text) & set("\t\r\n"):
                    yield f"{key_text}\t{value_text}"
                    continue
        yield json.dumps(pair_json(pair.key, value), ensure_ascii=False)


def _read_pairs(file: str) -> Iterator[tuple[bytes, bytes]]:
    if file == "-":
        yield from _parse(sys.stdin.buffer, "stdin")
        return
    try:
        with open(file, "rb") as lines:
            yield from _parse(lines, file)
    except OSError as error:
        raise _file_failure(file, error) from None


def _parse(lines: IO[bytes] | Iterable[bytes], name: str) -> Iterator[tuple[bytes, bytes]]:
    for number, line in enumerate(lines, 1):
        text = line.rstrip(b"\r\n")
        if not text:
            continue
        try:
            pair = _parse_line(text)
            yield to_key(pair[0]), to_value(pair[1])
        except (ValueError, ChordError) as error:
            raise _line_failure(name, number, error) from None


def _parse_line(text: bytes) -> tuple[bytes, bytes]:
    if text.startswith(b"{"):
        entry = json.loads(text)
        return _field(entry, "key"), _field(entry, "value")
    key, tab, value = text.partition(b"\t")
    return (key, value) if tab else (text, text)


def _field(entry: dict[str, Any], name: str) -> bytes:
    if isinstance(entry.get(name), str):
        return str(entry[name]).encode()
    if isinstance(entry.get(f"{name}_b64"), str):
        return base64.b64decode(entry[f"{name}_b64"], validate=True)
    raise ValueError(f'there is no text "{name}" and no "{name}_b64"')


def _line_failure(name: str, number: int, error: Exception) -> Failure:
    why = getattr(error, "message", None) or str(error)
    hint = 'A line is {"key": …, "value": …}, or KEY TAB VALUE, or one word. Nothing was stored'
    return Failure(f"{name}, line {number}: {why}", hint, USAGE, "bad_line")


def _file_failure(name: str, error: OSError) -> Failure:
    why = str(error.strerror).lower()
    return Failure(f"cannot open {name} ({why})", "Name a file that can be read or written", USAGE, "file")
