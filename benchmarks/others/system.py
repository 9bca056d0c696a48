"""The description of a system for the runner. The file of a system has descriptions and their programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.others.loop import VALUE_BYTES
from benchmarks.others.processes import Group


@dataclass(frozen=True)
class Home:
    """The place of an installed system.

    Attributes:
        python: the interpreter of its environment.
        root: the directory of its unpacked Debian packages, or None.
        version: the installed version.
    """

    python: str
    root: Path | None
    version: str

    def program(self, module: str, *arguments: str) -> list[str]:
        """Return the command that runs a module of this package in that environment."""
        return [self.python, "-m", f"benchmarks.others.{module}", *arguments]


@dataclass(frozen=True)
class System:
    """A system that can be measured.

    Attributes:
        name: the name in the results.
        acknowledged_by: the meaning of an acknowledged put, in words.
        settings: the settings, with reasons.
        start: a function that starts the nodes, waits for the ring, and returns the entries for its clients.
        client: the module with the `client` role.
        pip: the packages for pip, with exact versions; the first version is the system's.
        debian: the packages that are unpacked, not installed; the first version is the system's.
        sizes: the only numbers of nodes; empty: any number.
        is_bar: whether the bars of the comparison apply to it.
        is_python: whether the bar on memory applies to it.
        client_arguments: further arguments of its clients.
        value_bytes: the length of the values.
        hops: a function of the entries; it returns the calls of nodes to find owners so far. None: unknown.
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
    """Return the place of a system that needs no other environment."""
    return Home(sys.executable, None, version)
