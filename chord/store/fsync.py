"""Making files and names durable: what `os.fsync` means on each system, and which directories need it."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

_UNKNOWN = {errno.ENOTSUP, errno.EINVAL, errno.ENOTTY}
"""How a file system says that it does not know `F_FULLFSYNC`, such as one on the network."""


def sync(descriptor: int) -> None:
    """Make a file or a directory durable.

    On macOS `fsync` leaves the data in the drive's cache; `F_FULLFSYNC` empties that, if the file system knows it.

    Raises:
        OSError: it may not be durable.
    """
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        try:
            fcntl.fcntl(descriptor, full)
        except OSError as error:
            if error.errno not in _UNKNOWN:
                raise
            os.fsync(descriptor)
    else:
        os.fsync(descriptor)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable.

    Raises:
        OSError: they may not be durable.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path, mode: int = 0o777) -> None:
    """Make a directory and its parents, if need be, and make the names of the new ones durable.

    Raises:
        OSError: there is none now, or its name may not be durable.
    """
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(mode=mode, parents=True, exist_ok=True)
    for path in missing:
        sync_directory(path.parent)
