"""Faults of a peer's machine: a small disk, and a wrong wall clock."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")

CALL = """
import pickle, sys
sys.path.insert(0, sys.argv[1])
function, argument = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(pickle.dumps(function(argument)))
"""
RIGHT = "+0"
HOLD = 'mount -t tmpfs -o size={size} chord "$0" && echo mounted && exec cat'


class SmallDisk:
    """A file system in memory, in its own mount namespace, which any user may make.

    It lasts until the end of the block, also if the peer on it ends.

    Args:
        directory: the mount point for the peer; created if it is missing.
        size: in bytes.

    Attributes:
        directory: the mount point for the peer.
        program: the prefix of a command that shall see the file system.
        seen: the same directory, as this process sees it.

    Raises:
        OSError: this machine does not allow mounts.
    """

    def __init__(self, directory: Path, size: int) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        command = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", HOLD.format(size=size))
        self._holder = subprocess.Popen(
            (*command, str(directory)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._holder.stdout is not None
        if not self._holder.stdout.readline():
            self.close()
            raise OSError("cannot mount")
        target = f"--target={self._holder.pid}"
        self.program = ("nsenter", target, "--user", "--mount", "--preserve-credentials", "--")
        self.seen = Path(f"/proc/{self._holder.pid}/root{directory}")

    def __enter__(self) -> SmallDisk:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Release the file system. A running peer keeps it."""
        self._holder.communicate()

    def run(self, function: Callable[[Path], T], argument: Path) -> T:
        """Call a function of a module of this directory in a process that sees the disk, and return its result."""
        program = (*self.program, sys.executable, "-c", CALL, str(Path(__file__).parents[2]))
        call = pickle.dumps((function, argument))
        result: T = pickle.loads(subprocess.run(program, input=call, stdout=subprocess.PIPE, check=True).stdout)
        return result

    def fill(self) -> None:
        """Write until there is no room left."""
        with suppress(OSError), (self.seen / "ballast").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass

    def leave(self, size: int) -> None:
        """Make room for this many bytes on a full disk."""
        with (self.seen / "ballast").open("r+b") as file:
            file.truncate(file.seek(0, os.SEEK_END) - size)

    def empty(self) -> None:
        """Make room again."""
        (self.seen / "ballast").unlink()


class WrongClock:
    """The wall clock of one process, under libfaketime. Its monotonic clock stays right: it measures time.

    Args:
        file: the file with the offset, which the process reads repeatedly.
        offset: the error of the clock: `+3d`, `-1h`.
    """

    LIBRARY_S = 1
    """The seconds after which the process reads its file again."""

    def __init__(self, file: Path, offset: str = RIGHT) -> None:
        self._file = file
        self.set(offset)

    def set(self, offset: str) -> None:
        """Let the clock step, also in a running process."""
        beside = self._file.with_suffix(".new")
        beside.write_text(f"{offset}\n")
        os.replace(beside, self._file)

    def program(self, program: Sequence[str]) -> tuple[str, ...]:
        """Return a command that runs another one under this clock, in the same process."""
        variables = {
            "LD_PRELOAD": faketime(),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": str(self.LIBRARY_S),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",  # as older versions call it
        }
        return ("env", *(f"{name}={value}" for name, value in variables.items()), *program)


def faketime() -> str:
    """Return the library that `faketime` preloads, or "" if it is not installed."""
    try:
        command = ("faketime", "-f", RIGHT, "printenv", "LD_PRELOAD")
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def forget_clock(pid: int) -> None:
    """Remove the shared memory that libfaketime leaves behind after a killed process."""
    for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
        Path("/dev/shm", name).unlink(missing_ok=True)
