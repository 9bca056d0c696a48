"""`config show`: the configuration with which `chord node` would start here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from chord.cli.failures import OK
from chord.cli.node import checked_flags, node_options
from chord.cli.output import Out
from chord.cli.settings import settings_of
from chord.cli.target import json_option
from chord.views.nodes import config_json


@click.group("config", no_args_is_help=False)
def config_command() -> None:
    """Show the configuration of a node."""


@config_command.command("show")
@click.option("--origin", "with_origin", is_flag=True, help="Also show the origin of each value.")
@node_options
@json_option
def show_command(
    out: Out, with_origin: bool, join: tuple[str, ...], id_: int | None, file: Path | None, **flags: Any
) -> int:
    """Show the configuration with which `chord node` would start here.

    Takes the options of chord node, reads the same variables and the same file, and starts nothing. With --origin each
    value has its origin: option, environment, file, preset or default. --json always has the origins.
    """
    settings = settings_of(checked_flags(join=join, id=id_, **flags), file)
    if out.as_json:
        out.json(config_json(settings))
        return OK
    rows = [
        [one.key, _text(one.value), one.origin + (f" {one.source}" if one.source else "")][: 2 + with_origin]
        for one in settings
    ]
    out.table(["key", "value", "origin"][: 2 + with_origin], rows)
    return OK


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(value) or "-"
    return "-" if value is None else str(value)
