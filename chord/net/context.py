"""State that all connections of an `Rpc` share: handler, limits, counters, tasks.

One task wakes for every deadline (`TimerTask`). The other task writes the frames that leave in the next pass of the
scheduler. A connection itself has only its reader task: an idle task costs kilobytes, and a node has many connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from chord.config import Limits
from chord.events import Emit
from chord.net.calls import RequestHandler, Stats, no_handler
from chord.net.tasks import Tasks
from chord.net.timers import TimerTask
from chord.observe.metrics import Meters
from chord.wire.cuts import CutNumber

if TYPE_CHECKING:
    from chord.net.connection import Connection


class RpcContext:
    """The state that all connections of one `Rpc` share.

    Attributes:
        limits: see `Limits`.
        observe: receives the events of the connections.
        alarm: wakes the task that ends overdue calls and connections.
        handler: answers the requests of all peers.
        stats: the numbers of calls and bytes since the start.
        meters: the calls, bytes and durations of each type of request; None for a client.
        cuts: the number of the newest cut that this side knows.
        calls_in_work: the number of received requests that are not answered yet. A request that its handler answers at
            once is never counted.
        bytes_in_work: the bytes of these requests.
        client_calls_in_work, client_bytes_in_work: the part of them that clients asked for, directly or through nodes.
        partial_bytes: the bytes received of unfinished frames, on all connections together.
        running: the connections that finished their handshake; a dict, because its order is deterministic.
        tasks: the tasks that end with the `Rpc`.
        idle: parks the tasks that wait until no call is in work and all buffers are empty.
    """

    def __init__(self, limits: Limits, observe: Emit, meters: Meters | None, cuts: CutNumber) -> None:
        self.limits = limits
        self.cuts = cuts
        self.observe = observe
        self.alarm = TimerTask()
        self.handler: RequestHandler = no_handler
        self.stats = Stats()
        self.meters = meters
        self.calls_in_work = 0
        self.bytes_in_work = 0
        self.client_calls_in_work = 0
        self.client_bytes_in_work = 0
        self.partial_bytes = 0
        self.running: dict[Connection, None] = {}
        self.tasks = Tasks("the calls layer")
        self.idle = trio.lowlevel.ParkingLot()
        self._soon: list[Callable[[], None]] = []
        self._resting: trio.lowlevel.Task | None = None

    def count_work(self, calls: int, size: int, *, is_for_client: bool) -> None:
        """Change the counts of received requests that are not answered yet.

        Args:
            calls: the number of requests to add; negative: to remove.
            size: their bytes; negative: to remove.
            is_for_client: whether a client asked for them, directly or through a node.
        """
        self.calls_in_work += calls
        self.bytes_in_work += size
        if is_for_client:
            self.client_calls_in_work += calls
            self.client_bytes_in_work += size

    def hold(self, change: int) -> None:
        """Change the number of bytes in unfinished frames; if it exceeds `partial_bytes_max`, cut connections.

        Connections are cut until the number is within the limit. The oldest unfinished frame goes first, but
        connections of clients are cut before those of nodes.

        Args:
            change: bytes to add; negative: to remove.
        """
        self.partial_bytes += change
        while self.partial_bytes > self.limits.partial_bytes_max:
            holding = [link for link in self.running if link.partial_bytes]
            min(holding, key=lambda link: (link.address != "", link.frame_due)).cut_partial()

    def soon(self, do: Callable[[], None]) -> None:
        """Run a function in the next pass of Trio's scheduler."""
        self._soon.append(do)
        if self._resting is not None:
            trio.lowlevel.reschedule(self._resting)
            self._resting = None

    async def run(self) -> None:
        """Run the functions that were given to `soon`, until cancelled."""
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
