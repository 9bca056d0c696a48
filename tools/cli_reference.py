"""Write docs/reference/cli.md from the commands themselves. A test holds the file against them."""

from __future__ import annotations

from pathlib import Path

import click

from chord.cli import COMMANDS, cli

TARGET = Path(__file__).resolve().parents[1] / "docs" / "reference" / "cli.md"

HEAD = """\
# The command line

Generated from the code by `tools/cli_reference.py`; change it there.

Data goes to stdout, everything else to stderr. On a terminal it is a table, in a pipe tab-separated text
(`CHORD_OUTPUT=table` or `tsv` overrules that), with `--json` one object, whose schemas are in `chord/schemas`. NODE is,
in this order, a name, HOST:PORT, 0xHEX or a decimal id; or an id as tables shorten it (8f3a…c21d, or its beginning).

| exit code | means |
|---|---|
| 0 | done |
| 1 | internal: a bug here or in a node |
| 2 | usage: wrong arguments, a file that cannot be read or written, or a node that refuses to start as configured |
| 3 | the key is not there, for sure |
| 4 | no node could be reached, or what listens there is none |
| 5 | not done in time |
| 6 | too few replicas answered, or all that may have the key are down; a write may have happened |
| 7 | conflict: concurrent values where one was asked for |
| 8 | check failed |
| 130 | interrupted |
| 143 | ended by SIGTERM |

With `--json`, an error is `{"error": {"code", "message", "hint"}}` on stderr.
"""


def reference() -> str:
    """Return the page."""
    parts = [HEAD]
    for name in COMMANDS:
        context = click.Context(cli, info_name="chord")
        command = cli.get_command(context, name)
        assert command is not None
        parts += _described(command, name, context, "##")
    return "\n".join(parts)


def _described(command: click.Command, name: str, parent: click.Context, level: str) -> list[str]:
    """Return what a command says of itself, and then what its subcommands say, if it has any."""
    inner = click.Context(command, info_name=name, parent=parent, terminal_width=100, max_content_width=100)
    parts = [f"{level} {inner.command_path}\n\n```text\n{command.get_help(inner)}\n```\n"]
    if isinstance(command, click.Group):
        for subcommand, found in command.commands.items():
            parts += _described(found, subcommand, inner, level + "#")
    return parts


if __name__ == "__main__":
    TARGET.write_text(reference())
