"""`debug bundle`: the data of a bug report in one file, without keys and values."""

from __future__ import annotations

import io
import json
import os
import platform
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import click

import chord
from chord.cli.check import examine
from chord.cli.failures import OK
from chord.cli.inputs import file_failure
from chord.cli.output import Failure, counted
from chord.cli.settings import settings_of
from chord.cli.target import Target, ring_options, statuses
from chord.cli.transfers import Watcher
from chord.client.blocking import Client
from chord.config import PROTOCOL_VERSION
from chord.errors import ChordError
from chord.views.check import verdict_json
from chord.views.common import Json, failure_json, names_of
from chord.views.nodes import bundle_json, config_json, status_json, version_json
from chord.views.ring import fingers_json, members_json, ring_json
from chord.views.transfers import transfers_json
from chord.wire.cbor import IS_COMPILED

PRIVATE = 0o600


@click.group("debug", no_args_is_help=False)
def debug_command() -> None:
    """Collect data for a bug report."""


@debug_command.command("bundle")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@ring_options()
def bundle_command(target: Target, file: Path) -> int:
    """Write the data of a bug report to FILE, a .tar.gz archive.

    The archive has JSON files: the versions, the platform, the configuration that `chord node` would use here, and the
    ring as its nodes report it. It has addresses, names of nodes and paths, but no keys and no values. Read it before
    you publish it.

    A part that cannot be read is replaced by its error. The archive is also written if no node answers.
    """
    parts: dict[str, Json] = {"about": _about(), "config": _or_error(lambda: config_json(settings_of({}, _file())))}
    ring = _or_error(lambda: _ring(target))
    parts |= ring if "status" in ring else {"ring": ring}
    failed = [name for name, part in parts.items() if "error" in part]
    content = _archive(parts)
    try:
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE), "wb") as sink:
            sink.write(content)
    except OSError as error:
        raise file_failure(str(file), error, "write", "Name another file") from None
    out = target.out
    if out.as_json:
        out.json(bundle_json(str(file), len(content), parts, failed))
    else:
        out.line(f"{file}: {', '.join(parts)}")
    for name in failed:
        out.note(f"{name}: {parts[name]['error']['message']}")
    if not failed:
        out.note(f"{counted(len(parts), 'part')} without keys and values; read them before you publish them")
    return OK


def _about() -> Json:
    return {
        **version_json(chord.__version__, PROTOCOL_VERSION, sys.version, is_compiled=IS_COMPILED),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "encoding": sys.stdout.encoding,
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _file() -> Path | None:
    name = os.environ.get("CHORD_CONFIG")
    return Path(name) if name else None


def _or_error(read: Callable[[], Json]) -> Json:
    """Return a part of the bundle, or the error with which reading it failed."""
    try:
        return read()
    except Failure as failure:
        return {"error": failure_json(failure.code, failure.message, failure.hint)}
    except ChordError as error:
        return {"error": failure_json(error.word, error.message, "")}


def _ring(target: Target) -> Json:
    """Return the views of the ring, by the names of their files."""
    with target.connect() as client:
        crawl = client.members()
        nodes, circle = statuses(crawl), client.circle
        names = names_of(nodes)
        entry = next((node for node in nodes if node.address == client.entry), nodes[0])
        moves = Watcher().look(nodes, time.monotonic())
        vnodes = [vnode for node in nodes for vnode in node.vnodes]
        return {
            "status": status_json(circle, nodes, crawl.errors),
            "members": members_json(circle, nodes, crawl.errors, entry),
            "ring": ring_json(circle, nodes),
            "fingers": {"vnodes": [fingers_json(circle, vnode, names) for vnode in vnodes]},
            "transfers": transfers_json(circle, moves, names),
            "check": _or_error(lambda: _check(client)),
        }


def _check(client: Client) -> Json:
    return verdict_json(examine(client))


def _archive(parts: Mapping[str, Json]) -> bytes:
    """Return a .tar.gz archive with one JSON file for each part."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, part in parts.items():
            text = json.dumps(part, indent=1).encode()
            member = tarfile.TarInfo(f"chord-debug/{name}.json")
            member.size, member.mtime, member.mode = len(text), int(time.time()), PRIVATE
            tar.addfile(member, io.BytesIO(text))
    return archive.getvalue()
