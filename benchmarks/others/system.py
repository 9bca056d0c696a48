"""What the runner must know of a system. Each file of a system has one or more of these and the programs they start."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.others.loop import VALUE_BYTES
from benchmarks.others.processes import Group


@dataclass(frozen=True)
class Home:
    """Where a system is installed.

    Attributes:
        python: the interpreter of its environment.
        root: what its Debian packages unpacked to, or None.
        version: of what was installed.
    """

    python: str
    root: Path | None
    version: str

    def program(self, module: str, *arguments: str) -> list[str]:
        """The command that runs a module of this package in that environment."""
        return [self.python, "-m", f"benchmarks.others.{module}", *arguments]


@dataclass(frozen=True)
class System:
    """A system that can be measured.

    Attributes:
        name: as in the results.
        acknowledged_by: what it means when a put is acknowledged, in words.
        settings: what was set, and why.
        start: starts so many nodes and returns what its clients want to be told, once the ring is whole.
        client: the module whose `client` role is the client.
        pip: what pip installs, with exact versions; the first one's version is the system's.
        debian: packages that are unpacked, not installed; the first one's version is the system's.
        sizes: so many nodes and no others; empty: as many as are asked for.
        is_bar: the bars of the comparison are about it.
        is_python: the bar on memory is about it.
        client_arguments: what its clients are told besides.
        value_bytes: how long the values are.
        hops: from what `start` returned, the calls so far that nodes made to find an owner; None: not known.
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
    """The home of what needs no other environment than this one."""
    return Home(sys.executable, None, version)
