"""Test support: whole rings, a network with faults and virtual time, in memory.

It is for this project's tests and for tests of users.

- `chord.testing.open_ring(16, seed=7)`: a ring of real nodes, an async context manager.
- `chord.testing.run(fn, seed=7)`: virtual time; the same seed gives the same run.
- `chord.testing.MemoryNetwork(seed=7)`: hosts and streams with delays, cuts, partitions, crashes.
"""

from __future__ import annotations

from chord.testing.faults import FaultyNetwork
from chord.testing.network import Delay, MemoryNetwork, MemoryTransport, exponential, lossy, uniform
from chord.testing.rings import NotConverged, TestRing, open_ring
from chord.testing.runner import Stuck, VirtualClock, run
from chord.verify.invariants import Member, Violation

__all__ = [
    "Delay",
    "FaultyNetwork",
    "Member",
    "MemoryNetwork",
    "MemoryTransport",
    "NotConverged",
    "Stuck",
    "TestRing",
    "Violation",
    "VirtualClock",
    "exponential",
    "lossy",
    "open_ring",
    "run",
    "uniform",
]
