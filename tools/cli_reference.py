"""Write docs/reference/cli.md from the commands themselves. A test holds the file against them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from chord.cli import COMMANDS, cli

WIDE: dict[str, Any] = {"terminal_width": 100, "max_content_width": 100}
TARGET = Path(__file__).resolve().parents[1] / "docs" / "reference" / "cli.md"

HEAD = """\
# The command line

Generated from the code by `tools/cli_reference.py`; change it there.

Data goes to stdout, everything else to stderr. On a terminal it is a table, in a pipe tab-separated text
(`CHORD_OUTPUT=table` or `tsv` overrules that), with `--json` one object (schemas: `chord/cli/schemas`). NODE is,
in this order, a name, HOST:PORT, 0xHEX or a decimal id; or an id as tables shorten it (8f3a…c21d, or its beginning).

| exit code | means | after a write |
|---|---|---|
| 0 | done. `node` also ends with it after SIGTERM and Ctrl-C, and `up` after SIGTERM, once they were ready | it is \
stored |
| 1 | a bug here or in a node; or `node` itself ended because its disk failed or its data \
directory was removed | it may have happened |
| 2 | usage: wrong arguments, a file that cannot be read or written, a node that refuses to start as \
configured. Also what the ring refuses as asked: `--w` or `--r` above its N, a put of a key that too many nodes have \
coordinated | nothing happened |
| 3 | the key is not there, for sure | |
| 4 | no node could be reached, what listens there is none, or the connection broke after the request was \
sent | it may have happened, if it broke after sending |
| 5 | not done in time; also where a node went on saying *try again* (busy, overloaded, not ready) until \
the time was up | it may have happened |
| 6 | too few replicas answered or could be asked, or nodes that are down may have the key | it may have happened |
| 6 | the disk of the node that owns the key is full or has failed (`writes_refused`) | nothing happened |
| 6 | the only copy of a record is damaged; a scan or a backup lacks damaged records (`record_damaged`) | |
| 6 | a scan or a backup shows only some values of a key, because one reply cannot hold all (`record_too_large`) | |
| 7 | conflict: concurrent values where one was asked for; or a put into a record with too many values, which needs a \
context that covers some | nothing happened |
| 8 | check failed: the ring is not Ideal, a node is degraded, copies are damaged, or a get may fail | |
| 130 | interrupted; `up` always says so after Ctrl-C, `node` if it was not ready yet | it may have happened |
| 143 | ended by SIGTERM; `up` and `node` if they were not ready yet | it may have happened |

`load` and `restore` go on after a key that failed, as long as others succeed, and end with the code of the first
failure. Input has limits: a value on stdin 1 MiB, a line of `load` 6 MiB, a context 16 KiB, a configuration 1 MiB.
Where a terminal or a pipe has no Unicode, characters are replaced: `~` for `…`, `*` for `●`, `x` for `✗`, `#` for bars.

With `--json`, an error is `{"error": {"code", "message", "hint"}}` on stderr. `code` tells apart
what shares an exit code. `record_too_large` adds `keys`, its first 256 keys. A scan or a backup that lacks records for
several reasons adds `also`, its other errors.

| variable | means |
|---|---|
| `CHORD_NODE` | the default of `--node`; several with spaces between them |
| `CHORD_TIMEOUT` | the default of `--timeout`, in seconds |
| `CHORD_OUTPUT` | `table` or `tsv`: how data is printed, whatever stdout is |
| `CHORD_DEBUG` | if set, a bug is shown with its traceback |
| `CHORD_CONFIG` | the configuration file of `chord node` |
| `CHORD_LISTEN`, `CHORD_JOIN`, … | the other options of `chord node`, but for `--json` |

Completion of commands and options in your shell, for as long as it runs; put the line into its start-up file to keep
it. Of bash, version 4.4 or newer is needed.

```text
bash   eval "$(_CHORD_COMPLETE=bash_source chord)"
zsh    eval "$(_CHORD_COMPLETE=zsh_source chord)"
fish   _CHORD_COMPLETE=fish_source chord | source
```
"""


def reference() -> str:
    """Return the page."""
    context = click.Context(cli, info_name="chord", **{**cli.context_settings, **WIDE})
    parts = [HEAD, f"## chord\n\n```text\n{cli.get_help(context)}\n```\n"]
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        parts += _described(command, name, context, "##")
    return "\n".join(parts)


def _described(command: click.Command, name: str, parent: click.Context, level: str) -> list[str]:
    """Return what a command says of itself, and then what its subcommands say, if it has any."""
    inner = click.Context(command, info_name=name, parent=parent, **WIDE)
    parts = [f"{level} {inner.command_path}\n\n```text\n{command.get_help(inner)}\n```\n"]
    if isinstance(command, click.Group):
        for subcommand, found in command.commands.items():
            parts += _described(found, subcommand, inner, level + "#")
    return parts


if __name__ == "__main__":
    TARGET.write_text(reference())
