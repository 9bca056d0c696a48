"""The lab's clock. No other module of the lab reads the time."""

from __future__ import annotations

import time
from collections.abc import Callable


def fastest_s(work: Callable[[], object], times: int) -> float:
    """Return the time of the fastest of several runs of `work`, in seconds.

    The minimum is taken because other processes can only slow a run down.

    Args:
        work: called without arguments; its result is ignored.
        times: number of runs, at least 1.
    """
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best
