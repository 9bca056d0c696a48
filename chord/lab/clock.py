"""The lab's clock: how long something takes. The one place in the lab that knows what time it is."""

from __future__ import annotations

import time
from collections.abc import Callable


def fastest_s(work: Callable[[], object], times: int) -> float:
    """Return how long the work takes, in seconds: the best of several times, as others disturb and nobody helps."""
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best
