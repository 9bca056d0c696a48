"""The description of a system, by which the runner starts and measures it.

The file of a system has its descriptions, and the programs of its nodes and clients.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.others.loop import VALUE_BYTES
from benchmarks.others.processes import Group


@dataclass(frozen=True)
class Home:
    """The place at which a compared system is installed.

    Attributes:
        python: the interpreter of its environment.
        root: the directory of its unpacked Debian packages, or None.
        version: the installed version.
    """

    python: str
    root: Path | None
    version: str

    def program(self, module: str, *arguments: str) -> list[str]:
        """Return the command that runs a module of this package for the system.

        The module runs in the system's environment.

        Args:
            module: name of the module, such as "redis".
            arguments: the arguments of the program.
        """
        return [self.python, "-m", f"benchmarks.others.{module}", *arguments]


@dataclass(frozen=True)
class System:
    """A system that the runner can measure.

    Attributes:
        name: the name in the results.
        acknowledged_by: the meaning of an acknowledged put, in words.
        settings: the settings, with reasons.
        start: a function that starts the nodes, waits for the ring, and returns the arguments for its clients: most
            often addresses.
        client: the module with the `client` role.
        pip: the packages for pip, with exact versions; the first version is the system's.
        debian: the packages that are unpacked, not installed; the first version is the system's.
        sizes: the only numbers of nodes; empty: any number.
        is_bar: whether the bars (pass criteria) of the comparison apply to it.
        is_python: whether the bar on memory applies to it.
        client_arguments: further arguments of its clients.
        value_bytes: the length of the values.
        hops: a function of the result of `start`; it returns the calls of nodes to find owners so far. None: unknown.
    """

    name: str
    acknowledged_by: str
    settings: str
    start: Callable[[Group, Home, int], list[str]]
    client: str
    pip: tuple[str, ...] = ()
    debian: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    is_bar: bool = False
    is_python: bool = False
    client_arguments: tuple[str, ...] = ()
    value_bytes: int = VALUE_BYTES
    hops: Callable[[Sequence[str]], int] | None = None


def here(version: str) -> Home:
    """Return the place of a system that runs in this project's own environment."""
    return Home(sys.executable, None, version)
