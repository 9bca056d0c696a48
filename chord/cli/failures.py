"""Error messages, hints and exit codes: one table for all errors."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click

from chord import errors
from chord.cli.output import Failure
from chord.views.common import key_json

OK, INTERNAL, USAGE, NOT_FOUND, UNREACHABLE, TIMEOUT, QUORUM, CONFLICT, CHECK_FAILED = range(9)
INTERRUPTED, TERMINATED = 130, 143


class Terminated(BaseException):
    """SIGTERM has arrived. The command cleans up, and then exits with code 143."""


class NotAnnounced(Exception):
    """A node or dashboard cannot print its ready line. The message says why, in words."""


@contextmanager
def announcing() -> Iterator[None]:
    """Turn an `OSError` of the `with` block, which prints the ready line, into `NotAnnounced`.

    The caller can then tell it from any other `OSError` of a node or dashboard.
    """
    try:
        yield
    except OSError as error:
        raise NotAnnounced(str(error.strerror).lower()) from None


@contextmanager
def orderly_end() -> Iterator[None]:
    """Raise `Terminated` in the `with` block when SIGTERM arrives, so that the block can clean up.

    It then leaves no processes and no partial files behind. Only the main thread can handle signals. In any other
    thread the block runs unchanged.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the command is ending already
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

_START = "Is a peer running there? Start one: chord node --listen {entry}"
_NO_SUCH_HOST = "Check the name; a node is named HOST:PORT, like 127.0.0.1:9000"
_LATER = "The ring may be busy or healing; try again, or look at it: chord check"
_TAKEN = "Another program may have that port, or the node hangs. Check what listens there, or name another: {option}"
_OUT_OF_SERVICE = (
    "Give that node the missing resource (a disk that answers, or as in: prlimit --nofile=1024 --pid PID); or ask "
    "another: {option}"
)
_FEWER = "See which nodes are down or refuse writes: chord status, chord members; or ask for fewer: --r, --w"
_SETTLE = (
    "Settle each key: chord get KEY --all --context FILE, chord put KEY VALUE --context @FILE. Or decide about its "
    "quarantine: chord quarantine list KEY. Then run this again"
)
_TABLE: tuple[tuple[type[errors.ChordError], int, str], ...] = (
    (errors.NotFound, NOT_FOUND, "List the stored keys: chord scan"),
    (errors.PeerUnreachable, UNREACHABLE, _START),
    (errors.PeerLost, UNREACHABLE, _START),
    (errors.OwnerDown, QUORUM, "Bring it back; forget each node that never returns: chord forget NODE"),
    (errors.CutMissing, QUORUM, "See which members are down: chord members. Then repeat the command"),
    (errors.RecordDamaged, QUORUM, "Restore them from a backup: chord restore FILE; or write them again"),
    (errors.RecordTooLarge, QUORUM, _SETTLE),
    (errors.QuorumFailed, QUORUM, _FEWER),
    (errors.TooFewReplicas, QUORUM, _FEWER),
    (errors.WritesRefused, QUORUM, "Make room on the disk of that node, at least 4 MiB (free_bytes_min); it then takes "
     "writes again by itself"),
    (errors.ClocksDiffer, QUORUM, "Set the clocks right: chord status names the nodes. Or put the value without --ttl"),
    (errors.VersionConflict, CONFLICT, "The context comes from: chord get KEY --all --context FILE"),
    (errors.DeadlineExceeded, TIMEOUT, "Give it longer: --timeout S. " + _LATER),
    (errors.InvalidRequest, USAGE, "See: {command} --help"),
    (errors.ConfigError, USAGE, "See: {command} --help"),
    (errors.OtherRing, USAGE, "Name nodes of one ring"),
    (errors.DuplicateId, USAGE, "Let that node leave; or start this one at another address, or with another "
     "--id and an empty data directory"),
    (errors.UnknownVnode, USAGE, "See the members: chord members"),
    (errors.RemoteFailure, INTERNAL, "See the log of that node"),
    (errors.MalformedMessage, UNREACHABLE, "Check what listens there, or name another node: {option} HOST:PORT"),
    (errors.UnknownRequest, INTERNAL, "Use the same version of chord on both sides"),
)


def command_path() -> str:
    """Return the words of the running command, such as `chord put`; "chord" if none runs."""
    running = click.get_current_context(silent=True)
    return "chord" if running is None else running.command_path


def end_of_peer(code: int, command: str) -> str:
    """Return in words how the process of a peer ended, and how to start it again.

    Args:
        code: its exit code, or -N if signal N ended it.
        command: the command that starts the peer with its data directory; "" if it has none, so that it leaves.
    """
    again = f". To start it again: {command}" if command else ""
    if code == OK:
        return f"has stopped{again}" if command else "has left"
    if code in (TERMINATED, -signal.SIGTERM):  # a peer that is ready obeys SIGTERM, and ends with 0
        return "has stopped before it was in the ring"
    how = f"signal {-code}" if code < 0 else f"exit {code}"
    return f"died ({how}){again or '; it is not restarted'}"


def explain(error: errors.ChordError, entry: str, command: str = "", option: str = "--node") -> Failure:
    """Return an error of the ring as a `Failure`, with a hint and an exit code.

    Args:
        error: the error. The errors in its `also` become the failures in `also`.
        entry: the address of the entry node, for the hint.
        command: the command for the hint, such as `chord put`; "": the running command.
        option: the option that names the entry node, for the hint.
    """
    failure = _explained(error)
    failure.hint = failure.hint.format(entry=entry, command=command or command_path(), option=option)
    failure.also = tuple(explain(other, entry, command, option) for other in error.also)
    if isinstance(error, errors.RecordTooLarge):
        failure.keys = tuple(map(key_json, error.keys))
    return failure


def _explained(error: errors.ChordError) -> Failure:
    """Return an error as a `Failure` with the hint of the table, to be formatted."""
    if isinstance(error, errors.PeerUnreachable) and error.is_own:
        return Failure(error.message, "Raise the limit, for example: ulimit -n 1024", UNREACHABLE, error.word)
    if isinstance(error, errors.PeerUnreachable) and error.is_unknown:
        return Failure(error.message, _NO_SUCH_HOST, UNREACHABLE, error.word)
    if isinstance(error, errors.PeerUnreachable) and error.is_taken:
        return Failure(error.message, _TAKEN, UNREACHABLE, error.word)
    if isinstance(error, errors.PeerUnreachable) and error.is_answer:
        return Failure(error.message, _OUT_OF_SERVICE, UNREACHABLE, error.word)
    for kind, exit_code, hint in _TABLE:
        if isinstance(error, kind):
            return Failure(error.message, hint, exit_code, error.word)
    if error.is_retryable:  # it was retried until the deadline
        return Failure(error.message, _LATER, TIMEOUT, error.word)
    return Failure(error.message, "This is a bug; please report it", INTERNAL, error.word)
