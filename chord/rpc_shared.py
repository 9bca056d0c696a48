"""What all connections of one `Rpc` share: the handler, the limits, the counters, and one alarm for every deadline."""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from chord.calls import Caller, Handler, Stats
from chord.config import Limits
from chord.errors import NotReady
from chord.events import Observer
from chord.ids import Point
from chord.messages import Reply, Request


class Alarm:
    """One sleeping task for many deadlines: it wakes at the earliest, and whoever set them sees what is overdue.

    Attributes:
        at: when it wakes.
    """

    def __init__(self) -> None:
        self.at = math.inf
        self._nap = trio.CancelScope()

    def by(self, when: float) -> None:
        """Wake at this time at the latest."""
        if when < self.at:
            self.at = self._nap.deadline = when

    async def run(self, sweep: Callable[[float], float]) -> None:
        """Call `sweep(now)` whenever something is due; it returns when to look again."""
        while True:
            with trio.CancelScope(deadline=self.at) as self._nap:
                await trio.sleep_forever()
            self.at = math.inf
            due = sweep(trio.current_time())
            self.at = min(self.at, due)  # sweeping may have set it


class Shared:
    """What all connections of one `Rpc` have in common.

    Attributes:
        calls_in_work, bytes_in_work: requests whose handler is waiting for something, and their size.
        settled: whoever waits for calls and buffers to come to rest is parked here.
    """

    def __init__(self, limits: Limits, observe: Observer) -> None:
        self.limits = limits
        self.observe = observe
        self.alarm = Alarm()
        self.handler: Handler = _nobody_home
        self.stats = Stats()
        self.calls_in_work = 0
        self.bytes_in_work = 0
        self.settled = trio.lowlevel.ParkingLot()


def _nobody_home(vnode: Point | None, request: Request, caller: Caller) -> Reply:
    raise NotReady("nobody answers calls here")
