"""Make files and directory entries durable, on Linux and on macOS.

`os.fsync` has different meanings on these systems. A new name is durable only after a sync of its directory.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

_UNKNOWN = {errno.ENOTSUP, errno.EINVAL, errno.ENOTTY}
"""Errors of a file system without `F_FULLFSYNC`, such as a network file system."""


def sync(descriptor: int) -> None:
    """Make a file or a directory durable.

    On macOS, `fsync` leaves the data in the drive's cache. `F_FULLFSYNC` empties that cache, if the file system
    supports it.

    Raises:
        OSError: the file or directory may not be durable.
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
    """Sync a directory, so that new file names in it survive a crash.

    Raises:
        OSError: the names may not be durable.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path, mode: int = 0o777) -> None:
    """Create a directory and its missing parents, and make their names durable.

    `mode` has the permissions of the directory itself, if this call creates it. Parents get the default permissions.

    Raises:
        OSError: the directory cannot be created, or its name may not be durable.
    """
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(mode=mode, parents=True, exist_ok=True)
    for path in missing:
        sync_directory(path.parent)
