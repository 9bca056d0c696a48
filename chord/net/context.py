"""What all connections of one `Rpc` share: the handler, the limits, the counters, and two tasks.

One task wakes for every deadline (`Alarm`), one writes what is to leave soon. Connections have only their reader: an
idle task costs kilobytes, and a node has many connections.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from chord.config import Limits
from chord.errors import NotReady
from chord.events import Observer
from chord.ids import Point
from chord.net.calls import Caller, Handler, Stats
from chord.net.timers import Alarm
from chord.wire.messages import Reply, Request

if TYPE_CHECKING:
    from chord.net.connection import Link


class Shared:
    """What all connections of one `Rpc` have in common.

    Attributes:
        calls_in_work, bytes_in_work: requests whose handler is waiting for something, and their size.
        client_calls_in_work, client_bytes_in_work: those among them that clients ask for, themselves or through nodes.
        partial_bytes: what there is of frames that have begun and not ended.
        running: the connections that finished their handshake; a dict, because its order is always the same.
        start_task: runs an async function in a task that ends with the `Rpc`.
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
        self.client_calls_in_work = 0
        self.client_bytes_in_work = 0
        self.partial_bytes = 0
        self.running: dict[Link, None] = {}
        self.start_task: Callable[..., None] = _no_tasks
        self.settled = trio.lowlevel.ParkingLot()
        self._soon: list[Callable[[], None]] = []
        self._resting: trio.lowlevel.Task | None = None

    def count_work(self, calls: int, size: int, *, is_for_client: bool) -> None:
        """So many more calls are in work, of that size."""
        self.calls_in_work += calls
        self.bytes_in_work += size
        if is_for_client:
            self.client_calls_in_work += calls
            self.client_bytes_in_work += size

    def hold(self, change: int) -> None:
        """So much more is held of unfinished frames; beyond the limit the oldest of them goes, clients' first."""
        self.partial_bytes += change
        while self.partial_bytes > self.limits.partial_bytes_max:
            holding = [link for link in self.running if link.partial_bytes]
            min(holding, key=lambda link: (link.address != "", link.frame_due)).cut_partial()

    def soon(self, do: Callable[[], None]) -> None:
        """Let something be done in the next pass of the scheduler."""
        self._soon.append(do)
        if self._resting is not None:
            trio.lowlevel.reschedule(self._resting)
            self._resting = None

    async def run(self) -> None:
        """Do what is to be done soon, until cancelled: one task for all connections."""
        while True:
            todo, self._soon = self._soon, []
            for do in todo:
                do()
            if not self._soon:
                self._resting = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._disturb)

    def _disturb(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self._resting = None
        return trio.lowlevel.Abort.SUCCEEDED


def _nobody_home(vnode: Point | None, request: Request, caller: Caller) -> Reply:
    raise NotReady("nobody answers calls here")


def _no_tasks(task: Callable[..., Awaitable[object]], *args: object, name: str | None = None) -> None:
    raise RuntimeError("the calls layer is not running")
