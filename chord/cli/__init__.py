"""The `chord` command line: one module per family of commands.

A command's module is imported when the command runs. This module and those of one-shot commands do not import Trio: the
commands use the blocking client. Only `bench` measures with the Trio client, which it imports while it runs.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, TextIO

import click

import chord
from chord.cli import plain
from chord.cli.failures import INTERNAL, INTERRUPTED, OK, TERMINATED, USAGE, NotAnnounced, Terminated, explain
from chord.cli.output import DEFAULT_NODE, Failure, Out
from chord.errors import ChordError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("up", "Run N local peers, one process each, until Ctrl-C."),
    "node": ("node", "Run one peer in the foreground."),
    "put": ("data", "Store a value under a key."),
    "get": ("data", "Print the value of a key."),
    "del": ("data", "Delete a key."),
    "load": ("bulk", "Store many keys from a file."),
    "scan": ("bulk", "Print every key and value."),
    "backup": ("backup", "Write every record, with its versions, to a file."),
    "restore": ("backup", "Merge the records of a backup into the ring."),
    "quarantine": ("quarantine", "List, drop or merge values in quarantine."),
    "lookup": ("lookup", "Find a key's owner, hop by hop."),
    "status": ("ring", "Show every node: state, share of the circle, keys."),
    "top": ("top", "Show the verdict, the circle, the nodes and the events, continuously."),
    "members": ("ring", "Show the members of the ring and the nodes that are unreachable."),
    "ring": ("ring", "Show every vnode in ring order, its neighbours and its arc."),
    "fingers": ("ring", "Show a node's finger table."),
    "check": ("check", "Check the ring's invariants; exit 8 if one is broken."),
    "transfers": ("transfers", "Show transfers of records between nodes: progress, rate, time left."),
    "dashboard": ("dashboard", "Serve a web page about the ring."),
    "plan": ("plan", "Estimate the effects of a join or a leave, without doing it."),
    "bench": ("bench", "Measure the ring, in ms and in round trips; delete the test keys."),
    "sim": ("sim", "Simulate rings on virtual time, with faults and checks."),
    "lab": ("lab", "Compare sharding schemes, and study rings of a million nodes."),
    "gallery": ("gallery", "Run, prove and draw the algorithms of the exam notes."),
    "check-history": ("history", "Check a recorded history of operations; exit 8 if it is wrong."),
    "leave": ("control", "Make a node hand over its keys and leave."),
    "kill": ("control", "Send a signal to a local node's process, to see the ring heal."),
    "forget": ("control", "Give up an unreachable node that will never return."),
    "debug": ("debug", "Collect data for a bug report, without keys and values."),
    "config": ("show_config", "Show the configuration of a node, with the origin of each value."),
    "completion": ("completion", "Print a script that completes commands in a shell."),
    "version": ("control", "Print the version."),
}


SERVICES = (["node"], ["up"], ["dashboard"])
CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


class _SeenEnough(Exception):
    """The reader of the output closed it, as `head` does."""


class _Errors(io.FileIO):
    """The raw file behind stderr. It drops text that cannot be written.

    The exit code still tells the result.
    """

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


class _Lazy(click.Group):
    """A group that imports a command's module on the first use of the command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"chord.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        assert isinstance(command, click.Command)
        return command

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _seen_enough():  # click prints --help and --version here
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> object:
        with _seen_enough():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@contextmanager
def _seen_enough() -> Iterator[None]:
    """Turn a `BrokenPipeError` of the block into `_SeenEnough`.

    click itself would end with exit code 1.
    """
    try:
        yield
    except BrokenPipeError:
        raise _SeenEnough from None


@click.command(
    cls=_Lazy,
    name="chord",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Try it: chord up -n 8, and in another terminal: chord put user:42 Ada; chord lookup user:42 --trace",
)
@click.version_option(chord.__version__, message="chord %(version)s")
def cli() -> None:
    """A Chord ring you can run, watch and break."""
    wish = os.environ.get("CHORD_OUTPUT", "")
    if wish not in ("", "table", "tsv"):
        raise Failure(f'invalid CHORD_OUTPUT "{wish}": expected "table" or "tsv"', "Or unset it", USAGE, "usage")


def main() -> None:
    """Run the command in `sys.argv`, and exit the process with its exit code."""
    _replace_closed_streams(is_service=sys.argv[1:2] in SERVICES)
    errors = io.BufferedWriter(_Errors(sys.stderr.fileno(), "w", closefd=False))
    sys.stderr = io.TextIOWrapper(errors, sys.stderr.encoding, sys.stderr.errors, line_buffering=True)
    # A script starts `chord up &` with SIGINT ignored, but kill -INT must end it. `chord.__main__` sets SIG_DFL.
    if sys.argv[1:2] == ["up"] or signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = run(sys.argv[1:])
    # While Python exits, it searches all objects for cycles. In a short command this takes longer than the work.
    gc.freeze()
    sys.exit(code)


def run(args: Sequence[str]) -> int:
    """Run a command, print its errors on stderr, and return its exit code.

    Args:
        args: the words after `chord`. Without any, the help is printed.
    """
    plain.adapt_streams()
    out = Out(as_json="--json" in args)
    try:
        result = cli.main(list(args) or ["--help"], prog_name="chord", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else OK
    except Failure as failure:
        out.failure(failure)
        return failure.exit_code
    except ChordError as error:
        explained = explain(error, DEFAULT_NODE, _command_of(args))
        out.failure(explained)
        return explained.exit_code
    except click.ClickException as error:
        out.failure(_misused(error, args))
        return USAGE
    except (KeyboardInterrupt, click.Abort):
        if list(args[:1]) == ["up"]:  # later, `up` itself reports how its peers ended
            out.note("interrupted before any peer was started")
        return INTERRUPTED
    except Terminated:
        return TERMINATED
    except (_SeenEnough, BrokenPipeError):
        _drop_output()
        return OK
    except NotAnnounced as error:
        return _unwritten(out, str(error), "Keep the reader of stdout open, or redirect stdout to /dev/null")
    except OSError as error:
        if error.errno == errno.EBADF and not _is_writable(sys.stdout):
            return _unwritten(out, "stdout is closed", "Redirect stdout to a file or to /dev/null")
        if error.errno not in CANNOT_WRITE:
            return _failed(out, error)
        return _unwritten(out, str(error.strerror).lower(), "Write to a disk with room")
    except Exception as error:
        return _failed(out, error)


def _command_of(args: Sequence[str]) -> str:
    """Return the command that the arguments name, such as `chord lab compare`."""
    names: list[str] = ["chord"]
    command: click.Command = cli
    for word in args:
        found = command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
        if found is None:
            break
        names.append(word)
        command = found
    return " ".join(names)


def _misused(error: click.ClickException, args: Sequence[str]) -> Failure:
    """Return the failure for wrong arguments, with a hint at the most likely mistake."""
    context: click.Context | None = getattr(error, "ctx", None)
    where = context.command_path if context is not None else _command_of(args)
    message, hint = error.format_message(), f"See: {where} --help"
    command = context.command if context is not None else None
    arguments = _arguments_of(command)
    if isinstance(error, click.NoSuchOption) and not error.possibilities and arguments:
        words = " ".join(arguments)
        hint = f"To pass a value that begins with -, write -- before it: {where} -- {words}. {hint}"
    elif isinstance(error, click.NoSuchOption) and context is not None and isinstance(command, click.Group):
        hint = _place_of(error.option_name, command, context, args) or hint
    elif context is not None and isinstance(command, click.Group) and message.startswith("No such command"):
        from difflib import get_close_matches  # only a mistyped command needs it

        what, word, _ = message.split("'", 2)
        near = get_close_matches(word, command.list_commands(context), 1)
        message = f"{what}{word!r}." + (f" Did you mean {near[0]}?" if near else "")
    return Failure(message, hint, USAGE, "usage")


def _place_of(option: str, group: click.Group, context: click.Context, args: Sequence[str]) -> str:
    """Return a hint if an option stands before its command, otherwise ""."""
    for name in args:
        command = group.get_command(context, name)
        if command is not None and any(option in parameter.opts for parameter in command.params):
            line = " ".join([context.command_path, name, *_arguments_of(command), option])
            return f"Write the option after the command: {line}. See: {context.command_path} {name} --help"
    return ""


def _arguments_of(command: click.Command | None) -> list[str]:
    """Return the arguments of a command as its help names them, without brackets."""
    found = [] if command is None else [one for one in command.params if isinstance(one, click.Argument)]
    return [one.human_readable_name for one in found]


def _failed(out: Out, error: Exception) -> int:
    if os.environ.get("CHORD_DEBUG"):
        sys.excepthook(type(error), error, error.__traceback__)
    hint = "This is a bug. Run it with CHORD_DEBUG=1 for the traceback"
    out.failure(Failure(f"{type(error).__name__}: {error}", hint, INTERNAL, "internal"))
    return INTERNAL


def _unwritten(out: Out, why: str, hint: str) -> int:
    _drop_output()
    out.failure(Failure(f"cannot write the output ({why})", hint, USAGE, "output"))
    return USAGE


def _is_writable(stream: TextIO) -> bool:
    return fcntl.fcntl(stream, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY


def _drop_output() -> None:
    """Redirect stdout to the null device.

    At exit Python flushes the buffer of stdout, and that write would fail again.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _replace_closed_streams(*, is_service: bool) -> None:
    """Open the null device for each standard stream that is closed (`>&-`).

    Otherwise the first connection would get the free file number, and printed text would go there. The null device is
    opened in the wrong direction: stdin only for writing, stdout only for reading. So reading a closed stdin fails, and
    so does printing to a closed stdout. A service goes on without a reader, so its stdout accepts and drops text.
    """
    ways = (os.O_WRONLY, os.O_RDWR if is_service else os.O_RDONLY, os.O_RDWR)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, ways[number])
            if null != number:
                os.dup2(null, number)
                os.close(null)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
