"""Input of commands: stdin and files, as bytes, up to a named limit.

A command reads one byte more than the limit, so it refuses a longer input before that fills the memory.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

from chord.cli.failures import USAGE
from chord.cli.output import Failure, byte_size
from chord.wire.messages import CONTEXT_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX

STDIN: Final = "-"

CONTEXT_TEXT_BYTES_MAX: Final = 2 * CONTEXT_BYTES_MAX
"""A context takes four bytes of base64 for three; the rest is room for line ends."""

LINE_BYTES_MAX: Final = 6 * (KEY_BYTES_MAX + VALUE_BYTES_MAX) + 256
"""The longest line of `load`: JSON that writes each byte of the largest key and value as \\u0000."""

CONFIG_BYTES_MAX: Final = 1 << 20


def read_limited(source: BinaryIO, limit: int, what: str) -> bytes:
    """Return all bytes of an open file.

    Args:
        source: the file.
        limit: the largest number of bytes.
        what: the name of the file or value, for the error.

    Raises:
        Failure: exit 2: there are more than `limit` bytes.
    """
    content = source.read(limit + 1)
    if len(content) > limit:
        raise too_long(what, limit)
    return content


def lines_limited(source: BinaryIO, limit: int, name: str) -> Iterator[bytes]:
    """Yield the lines of an open file, each with its line end.

    Args:
        source: the file.
        limit: the largest number of bytes in a line, without its end.
        name: the name of the file, for the error.

    Raises:
        Failure: exit 2: a line is longer.
    """
    number = 0
    while line := source.readline(limit + 2):
        number += 1
        if len(line.rstrip(b"\r\n")) > limit:
            raise too_long(f"line {number} of {name}", limit)
        yield line


def too_long(what: str, limit: int) -> Failure:
    """Return the failure, with exit 2, for the input `what`, which has more than `limit` bytes."""
    return Failure(f"{what} is too long; at most {byte_size(limit)} are read", "Give a shorter one", USAGE, "too_long")


def read_file(name: str, limit: int, what: str) -> bytes:
    """Return the bytes of a file.

    Args:
        name: the path of the file.
        limit: the largest number of bytes.
        what: how the error about a longer file names it.

    Raises:
        Failure: exit 2: the file cannot be read, or has more than `limit` bytes.
    """
    try:
        with open(name, "rb") as source:
            return read_limited(source, limit, what)
    except OSError as error:
        raise file_failure(name, error) from None


@contextmanager
def stdin_to_read() -> Iterator[BinaryIO]:
    """Yield stdin as a binary file to the `with` block.

    Raises:
        Failure: exit 2: the block could not read stdin. A closed stdin is an error, not an empty file.
    """
    try:
        yield sys.stdin.buffer
    except OSError as error:
        if error.errno != errno.EBADF:
            raise file_failure("stdin", error, "read") from None
        raise Failure("stdin is closed", "Pipe the input into the command", USAGE, "file") from None


def file_failure(
    name: str, error: OSError, what: str = "open", hint: str = "Name a file that can be read or written"
) -> Failure:
    """Return the failure, with exit 2, for a file that cannot be used.

    Args:
        name: the path of the file.
        error: the reason.
        what: the verb of the message, such as "open" or "read".
        hint: the next step for the user.
    """
    return Failure(f"cannot {what} {name} ({str(error.strerror).lower()})", hint, USAGE, "file")
