"""The `chord` command. One file per family of commands; a command's module is loaded when it is run.

Nothing here or in the modules of one-shot commands imports Trio: they use the blocking client.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

import click

from chord.cli.failures import INTERNAL, INTERRUPTED, OK, USAGE, explain
from chord.cli.output import DEFAULT_NODE, Failure, Out
from chord.errors import ChordError

COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("up", "Run N local peers, one process each, until Ctrl-C."),
    "node": ("node", "Run one peer in the foreground."),
    "put": ("data", "Store a value under a key."),
    "get": ("data", "Print the value of a key."),
    "del": ("data", "Delete a key."),
    "load": ("data", "Store many keys from a file."),
    "scan": ("data", "Print every key and value."),
    "lookup": ("lookup", "Find a key's owner, hop by hop."),
    "status": ("ring", "Show every node: state, share of the circle, keys."),
    "members": ("ring", "Show who belongs to the ring and who is silent."),
    "ring": ("ring", "Show the circle: every vnode, its neighbours, its arc."),
    "fingers": ("ring", "Show a node's finger table."),
    "check": ("check", "Check the ring's invariants; exit 8 when broken."),
    "sim": ("sim", "Simulate rings on virtual time, with faults, and check them."),
    "check-history": ("history", "Check a recorded history; exit 8 where no store could have told it."),
    "leave": ("control", "Make a node hand over its keys and leave."),
    "kill": ("control", "Kill a local node's process, to see the ring heal."),
    "version": ("control", "Print the version."),
}


class _SeenEnough(Exception):
    """Whoever reads our output has closed it, as `head` does."""


class _Lazy(click.Group):
    """A group that imports a command's module only when that command is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"chord.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _SeenEnough from None  # click itself would make it exit code 1

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(
    cls=_Lazy,
    name="chord",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Try it: chord up -n 8, and in another terminal: chord put user:42 Ada; chord lookup user:42 --trace",
)
def cli() -> None:
    """A Chord ring you can run, watch and break."""


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run(sys.argv[1:]))


def run(args: Sequence[str]) -> int:
    """Run a command; every way it can end becomes an exit code, and every error words on stderr."""
    out = Out(as_json="--json" in args)
    try:
        result = cli.main(list(args), prog_name="chord", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else OK
    except Failure as failure:
        out.failure(failure)
        return failure.exit_code
    except ChordError as error:
        explained = explain(error, DEFAULT_NODE)
        out.failure(explained)
        return explained.exit_code
    except click.ClickException as error:
        context: click.Context | None = getattr(error, "ctx", None)
        where = context.command_path if context is not None else "chord"
        out.failure(Failure(error.format_message(), f"See: {where} --help", USAGE, "usage"))
        return USAGE
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except (_SeenEnough, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still in the buffer
        return OK
    except Exception as error:
        if os.environ.get("CHORD_DEBUG"):
            traceback.print_exc()
        hint = "This is a bug. CHORD_DEBUG=1 shows where"
        out.failure(Failure(f"{type(error).__name__}: {error}", hint, INTERNAL, "internal"))
        return INTERNAL
