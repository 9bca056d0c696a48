"""What can go wrong between hosts: cuts, one-way blocks, partitions, frozen and vanished hosts.

One set of faults for both networks, the one of byte streams and the one of whole messages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Literal, TypeAlias, TypedDict

from chord.net.calls import CallsService
from chord.net.transport import Transport

Passage: TypeAlias = Literal["open", "stalled", "cut"]


class Seams(TypedDict, total=False):
    """The seam a network gives a node: byte streams to make calls over, or the calls themselves."""

    transport: Transport
    calls: CallsService


class Faults:
    """What is wrong with a network at the moment."""

    def __init__(self) -> None:
        self.rules: dict[tuple[str, str], Passage] = {}
        self.islands: dict[str, int] = {}
        self.between_islands: Passage = "stalled"
        self.frozen: dict[str, bool] = {}
        self.down: dict[str, bool] = {}  # silently

    @property
    def any(self) -> bool:
        """Whether anything is wrong at all."""
        return bool(self.rules or self.islands or self.frozen or self.down)

    def passage(self, source: str, target: str) -> Passage:
        """Return how things stand for what goes from one host to another."""
        rule = self.rules.get((source, target), "open")
        if rule == "cut":
            return rule
        is_apart = self.islands.get(source, -1) != self.islands.get(target, -1)
        if is_apart and self.between_islands == "cut":
            return "cut"
        if source in self.frozen or target in self.frozen or source in self.down or target in self.down:
            return "stalled"
        return "stalled" if is_apart else rule


class FaultyNetwork(ABC):
    """A network whose faults are injected by hand. A subclass says what a change means for what is under way.

    Attributes:
        faults: what is wrong at the moment.
    """

    def __init__(self) -> None:
        self.faults = Faults()

    @abstractmethod
    def seams(self, host: str) -> Seams:
        """Return what a node on a host is built with; after a crash, this is the host's restart."""

    @abstractmethod
    def crash(self, host: str, *, is_silent: bool = False) -> None:
        """End a host's process, as kill -9 does; silently, as if its machine went too."""

    def cut(self, a: str, b: str) -> None:
        """Reset all streams between two hosts and let none of them be opened."""
        self.faults.rules[a, b] = self.faults.rules[b, a] = "cut"
        self.after_change()

    def block(self, source: str, target: str) -> None:
        """Let nothing through one way, silently: it is delivered when the block is lifted. Dials stall as well."""
        self.faults.rules[source, target] = "stalled"

    def unblock(self, source: str, target: str) -> None:
        """Lift a block or one direction of a cut."""
        self.faults.rules.pop((source, target), None)
        self.after_change()

    def partition(self, *groups: Iterable[str], is_cut: bool = False) -> None:
        """Separate groups of hosts; those not named are one more group.

        Args:
            is_cut: reset the streams between groups and refuse to dial, instead of stalling both.
        """
        self.faults.islands = {host: number for number, group in enumerate(groups) for host in group}
        self.faults.between_islands = "cut" if is_cut else "stalled"
        self.after_change()

    def heal(self) -> None:
        """Lift every cut, block and partition. Frozen hosts stay frozen."""
        self.faults.rules.clear()
        self.faults.islands.clear()
        self.after_change()

    def freeze(self, host: str) -> None:
        """Let nothing in or out of a host, as if its process were stopped (SIGSTOP)."""
        self.faults.frozen[host] = True

    def unfreeze(self, host: str) -> None:
        """Let a frozen host go on; what it missed arrives now."""
        self.faults.frozen.pop(host, None)
        self.after_change()

    def stop(self, host: str) -> None:  # noqa: B027
        """The tasks of a host's process are stopped (see `stop_tasks`): what arrives waits in its buffers."""

    def wake(self, host: str) -> None:  # noqa: B027
        """The tasks of a stopped process go on."""

    def passage(self, source: str, target: str) -> Passage:
        """Return how things stand for what goes from one host to another."""
        return self.faults.passage(source, target) if self.faults.any else "open"

    @abstractmethod
    def after_change(self) -> None:
        """Faults came or went: look at everything under way again."""
