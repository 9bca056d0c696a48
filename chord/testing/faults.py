"""Faults between hosts: cuts, one-way blocks, partitions, frozen and lost hosts.

The network of byte streams and the network of whole messages share these faults.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from chord.node.world import Connect

Passage: TypeAlias = Literal["open", "stalled", "cut"]


class Faults:
    """The present faults of a network, by host or by pair of hosts.

    Attributes:
        rules: by source and target, the passage of cut and blocked directions.
        islands: by host, its group in the present partition. Hosts without an entry form one more group.
        between_islands: the passage between two groups.
        frozen: the hosts that are frozen.
        down: the hosts that vanished without a reset.
    """

    def __init__(self) -> None:
        self.rules: dict[tuple[str, str], Passage] = {}
        self.islands: dict[str, int] = {}
        self.between_islands: Passage = "stalled"
        self.frozen: dict[str, bool] = {}
        self.down: dict[str, bool] = {}  # vanished without a reset

    @property
    def any(self) -> bool:
        """Whether there is any fault."""
        return bool(self.rules or self.islands or self.frozen or self.down)

    def passage(self, source: str, target: str) -> Passage:
        """Return whether traffic from one host to another passes ("open"), is "stalled" or is "cut".

        If several faults apply, a cut has precedence.
        """
        rule = self.rules.get((source, target), "open")
        if rule == "cut":
            return rule
        is_apart = self.islands.get(source, -1) != self.islands.get(target, -1)
        if is_apart and self.between_islands == "cut":
            return "cut"
        if source in self.frozen or target in self.frozen or source in self.down or target in self.down:
            return "stalled"
        return "stalled" if is_apart else rule


def ignore_fault(what: str, groups: tuple[tuple[str, ...], ...]) -> None:
    """Do nothing with a fault; the default callback."""


class FaultyNetwork(ABC):
    """A network with faults that a test injects.

    Subclasses define the effect of a change of faults on traffic under way.

    Args:
        on_fault: callback for each fault and its end: the name of the method, and the groups of hosts.
    """

    def __init__(self, on_fault: Callable[[str, tuple[tuple[str, ...], ...]], object] = ignore_fault) -> None:
        self._faults = Faults()
        self._on_fault = on_fault

    @abstractmethod
    def _connector(self, host: str) -> Connect:
        """Return the `World.connect` of a new node: it connects the node to this network.

        If the host has crashed, this restarts it.
        """

    @abstractmethod
    def crash(self, host: str, *, silently: bool = False) -> None:
        """End the process of a host, as kill -9 does.

        Args:
            host: the name of the host.
            silently: the machine vanishes with the process; peers see no reset.
        """

    def cut(self, a: str, b: str) -> None:
        """Reset all streams between two hosts, and refuse new ones in both directions."""
        self._faults.rules[a, b] = self._faults.rules[b, a] = "cut"
        self._on_fault("cut", ((a,), (b,)))
        self._after_change()

    def block(self, source: str, target: str) -> None:
        """Stall all traffic from one host to another, without an error.

        New connections stall as well. Streams deliver the traffic after `unblock`. A network of whole messages loses
        it.
        """
        self._faults.rules[source, target] = "stalled"
        self._on_fault("block", ((source,), (target,)))

    def unblock(self, source: str, target: str) -> None:
        """Lift a block, or one direction of a cut."""
        self._faults.rules.pop((source, target), None)
        self._on_fault("unblock", ((source,), (target,)))
        self._after_change()

    def partition(self, *groups: Iterable[str], reset: bool = False) -> None:
        """Separate groups of hosts. The hosts that are not named form one more group.

        An earlier partition no longer counts.

        Args:
            groups: the names of the hosts in each group.
            reset: reset the streams between groups and refuse new ones; default: stall both.
        """
        apart = tuple(tuple(group) for group in groups)
        self._faults.islands = {host: number for number, group in enumerate(apart) for host in group}
        self._faults.between_islands = "cut" if reset else "stalled"
        self._on_fault("partition", apart)
        self._after_change()

    def heal(self) -> None:
        """Lift every cut, block and partition; frozen and vanished hosts stay so."""
        self._faults.rules.clear()
        self._faults.islands.clear()
        self._on_fault("heal", ())
        self._after_change()

    def freeze(self, host: str) -> None:
        """Let no traffic in or out of a host, as if its process were stopped (SIGSTOP)."""
        self._faults.frozen[host] = True
        self._on_fault("freeze", ((host,),))

    def unfreeze(self, host: str) -> None:
        """Unfreeze a host.

        Streams now deliver the traffic that it missed. A network of whole messages has lost it.
        """
        self._faults.frozen.pop(host, None)
        self._on_fault("unfreeze", ((host,),))
        self._after_change()

    def stop(self, host: str) -> None:  # noqa: B027
        """Note that a host's process was stopped; by default, nothing to do.

        Arrivals wait in the buffers of the host.
        """

    def wake(self, host: str) -> None:  # noqa: B027
        """Note that the process of a stopped host runs again; by default, nothing to do."""

    def _passage(self, source: str, target: str) -> Passage:
        """Return whether traffic from one host to another passes, stalls or is cut."""
        return self._faults.passage(source, target) if self._faults.any else "open"

    @abstractmethod
    def _after_change(self) -> None:
        """Apply a change of faults to all traffic under way."""
