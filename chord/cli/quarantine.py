"""`quarantine`: list, drop or merge values that are hidden from readers.

No node can say whether such a value was deleted while its node was away.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import click

from chord.cli.bulk import lost_failure, lost_owners
from chord.cli.data import parse_context, w_option
from chord.cli.failures import CONFLICT, NOT_FOUND, OK, USAGE
from chord.cli.output import Failure, counted
from chord.cli.target import Target, ring_options, statuses
from chord.client.results import Quarantined, QuarantinedValue, to_key
from chord.errors import InvalidRequest, NotFound, VersionConflict
from chord.store.versions import decode_context
from chord.views.records import decided_json, quarantined_json
from chord.wire.messages import Status

VALUE_CHARS = 40
COLUMNS = ("key", ">values", ">bytes", "written", "origin")
CONTEXT_HINT = 'Take it from the "context" of: chord quarantine list KEY --json'

context_option = click.option(
    "--context", metavar="TEXT", help='Decide only about the listed values: the "context" of `list --json`, or @FILE. '
    "Default: all values in quarantine now."
)


@click.group("quarantine", no_args_is_help=False)
def quarantine_command() -> None:
    """List, drop or merge values in quarantine.

    A node that was away for long may bring back a value when the other nodes no longer know whether it was deleted
    meanwhile. Such a value is in quarantine. Readers do not see it, and all replicas keep it until you decide.
    """


@quarantine_command.command("list", short_help="Show the values in quarantine.")
@click.argument("key", required=False)
@ring_options()
def list_command(target: Target, key: str | None) -> int:
    """Show the values in quarantine: all values of KEY, or the number for each key.

    The origin is the node that took the write. If no node of the ring has its store now, the origin is the store's name
    in hexadecimal. --json prints one line for each key. --timeout applies to each page.

    Exit code 6 means that keys or values are missing. Nodes that may hold more are down, the only copies are damaged,
    or one reply cannot hold all values of a key.
    """
    if key is not None:
        return _list_values(target, to_key(os.fsencode(key)))
    out = target.out
    rows: list[list[str]] = []
    keys = 0
    with target.connect() as client:
        nodes = statuses(client.members())
        stores, total = _stores(nodes), sum(node.quarantined for node in nodes)
        try:
            with out.progress("quarantine, keys", total or None) as show:
                for found in client.scan_quarantine():
                    keys += 1
                    if out.as_json:
                        out.json(quarantined_json(found, stores))
                    else:
                        rows.append(_row(found, stores))
                    show(keys)
        finally:  # after an error, show the keys that were found before
            if rows:
                out.table(COLUMNS, rows)
        lost = lost_owners(client)
    if out.as_table:
        out.note(f"{counted(keys, 'key')}; see the values of one: chord quarantine list KEY" if keys else
                 "nothing is in quarantine")
    if lost:
        raise lost_failure(lost)
    return OK


def _list_values(target: Target, key: bytes) -> int:
    out = target.out
    with target.connect() as client:
        found = client.get_quarantine(key)
        if not found.values:
            raise _none(key)
        stores = _stores(statuses(client.members()))
    if out.as_json:
        out.json(quarantined_json(found, stores))
    else:
        rows = [
            [_shown(one, cut=out.as_table), str(len(one.value or b"")), _time(one.written_ms), _origin(one, stores)]
            for one in found.values
        ]
        out.table(["value", ">bytes", "written", "origin"], rows)
    if found.left:
        out.note(f"{counted(found.left, 'more value')} had no room here; decide about these first")
    return OK


@quarantine_command.command("drop", short_help="Discard a key's values in quarantine.")
@click.argument("key")
@context_option
@w_option
@ring_options()
def drop_command(target: Target, key: str, context: str | None, w: int | None) -> int:
    """Discard the values of KEY in quarantine, on all replicas and permanently."""
    return _decide(target, key, context, w, merge=False)


@quarantine_command.command("merge", short_help="Bring a key's values in quarantine back.")
@click.argument("key")
@context_option
@w_option
@ring_options()
def merge_command(target: Target, key: str, context: str | None, w: int | None) -> int:
    """Bring the values of KEY in quarantine back, beside its current values.

    If the key then has several values, settle them like any concurrent values. Exit code 7 if the key has no room for
    all of them. The values without room stay in quarantine.
    """
    return _decide(target, key, context, w, merge=True)


def _decide(target: Target, key: str, context: str | None, w: int | None, *, merge: bool) -> int:
    out, raw = target.out, to_key(os.fsencode(key))
    names = None if context is None else _checked(parse_context(context, CONTEXT_HINT))
    with target.connect() as client:
        try:
            decide = client.merge_quarantine if merge else client.drop_quarantine
            decided = decide(raw, context=names, w=w)
        except NotFound:
            raise _none(raw) from None
    if out.as_json:
        out.json(decided_json(decided, merge=merge))
    else:
        done = "merged" if merge else "dropped"
        out.line(f"{done} {counted(decided.values, 'value')} of {_named(raw)}, on {counted(decided.w, 'node')}")
    if merge and decided.left and context is None:
        hint = "Settle it: chord get KEY --all --context FILE, chord put KEY VALUE --context @FILE; then merge again"
        stay = "value stays" if decided.left == 1 else "values stay"
        what = f"{decided.left} {stay} in quarantine: {_named(raw)} has no room for more"
        raise Failure(what, hint, CONFLICT, VersionConflict.word)
    if decided.left:
        out.note(f"{counted(decided.left, 'other value')} of the key in quarantine: chord quarantine list KEY")
    return OK


def _checked(context: bytes) -> bytes:
    try:
        decode_context(context)
    except InvalidRequest:
        raise Failure("invalid context: it cannot be decoded", CONTEXT_HINT, USAGE, "usage") from None
    return context


def _none(key: bytes) -> Failure:
    hint = "List all: chord quarantine list"
    return Failure(f"no value of {_named(key)} is in quarantine", hint, NOT_FOUND, NotFound.word)


def _stores(nodes: Iterable[Status]) -> dict[bytes, str]:
    return {node.incarnation: node.name for node in nodes}


def _row(found: Quarantined, stores: Mapping[bytes, str]) -> list[str]:
    origins = dict.fromkeys(_origin(one, stores) for one in found.values)
    size = sum(len(one.value or b"") for one in found.values)
    latest = max(one.written_ms for one in found.values)
    return [_text(found.key), str(len(found.values) + found.left), str(size), _time(latest), ", ".join(origins)]


def _origin(one: QuarantinedValue, stores: Mapping[bytes, str]) -> str:
    return stores.get(one.store, one.store.hex())


def _shown(one: QuarantinedValue, *, cut: bool) -> str:
    if one.value is None:
        return "(deleted)"
    text = _text(one.value)
    if cut and len(text) > VALUE_CHARS:
        text = f"{text[: VALUE_CHARS - 1]}…"
    is_over = 0 < one.expires_ms <= 1000 * time.time()
    return f"{text} (expired)" if is_over else text


def _time(ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"
    except (ValueError, OverflowError, OSError):  # the clock of that node was far off
        return f"{ms} ms"


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


def _named(key: bytes) -> str:
    return repr(_text(key))
