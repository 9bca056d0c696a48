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
    """Return all bytes of a source; the error names the source as `what`.

    Raises:
        Failure: exit 2: the source has more than `limit` bytes.
    """
    content = source.read(limit + 1)
    if len(content) > limit:
        raise too_long(what, limit)
    return content


def lines_limited(source: BinaryIO, limit: int, name: str) -> Iterator[bytes]:
    """Yield the lines of a source, each with its line end.

    Raises:
        Failure: exit 2: a line has more than `limit` bytes, without its end.
    """
    number = 0
    while line := source.readline(limit + 2):
        number += 1
        if len(line.rstrip(b"\r\n")) > limit:
            raise too_long(f"line {number} of {name}", limit)
        yield line


def too_long(what: str, limit: int) -> Failure:
    """Return the failure for an input that is longer than its limit."""
    return Failure(f"{what} is too long; at most {byte_size(limit)} are read", "Give a shorter one", USAGE, "too_long")


def read_file(name: str, limit: int, what: str) -> bytes:
    """Return the bytes of a file; the error for a longer one names it as `what`.

    Raises:
        Failure: exit 2: the file cannot be read, or has more bytes than `limit`.
    """
    try:
        with open(name, "rb") as source:
            return read_limited(source, limit, what)
    except OSError as error:
        raise file_failure(name, error) from None


@contextmanager
def stdin_to_read() -> Iterator[BinaryIO]:
    """Give stdin as bytes for the block.

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

    `what` is the verb for the message, such as open or read, and `hint` the next step.
    """
    return Failure(f"cannot {what} {name} ({str(error.strerror).lower()})", hint, USAGE, "file")
