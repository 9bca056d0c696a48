"""A disk watchdog: a failed disk ends the node, a hanging disk pauses it.

A hanging disk reports no error: a transaction is under way and does not end. Meanwhile the node would answer pings and
stay the owner of its arc, and every write there would wait. So the node tells its neighbours that it pauses, answers
every call as unreachable, and makes no calls. When the disk answers in time, the node takes part again, like a process
that was stopped. Otherwise it ends as after a failed sync.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from chord.errors import WritesRefused
from chord.node.shutdown import Shutdown
from chord.ring.context import NodeContext

LOOKS = 4
"""Number of checks within `disk_stall_s`."""


class DiskWatch:
    """The watchdog of one node with a store that can fail.

    Args:
        host: the node context.
        shutdown: tells the neighbours that the node pauses.
        woke: callback when the disk answers again.
    """

    def __init__(self, host: NodeContext, shutdown: Shutdown, woke: Callable[[], None]) -> None:
        self._host = host
        self._shutdown = shutdown
        self._woke = woke

    async def run(self, failed: trio.Event) -> WritesRefused:
        """Watch the disk until the node must end, and return the reason.

        While a transaction takes longer than `disk_stall_s`, the node pauses. After `disk_stop_s`, the node must end.

        Args:
            failed: the store's event for a failed disk.
        """
        timing = self._host.timing
        while True:
            with trio.move_on_after(timing.disk_stall_s / LOOKS):
                await failed.wait()
                return WritesRefused(f"the disk of {self._name} failed, and the node stopped as if it had crashed")
            stalled_s = self._stalled_s()
            if stalled_s >= timing.disk_stop_s:
                text = f"the disk of {self._name} has not answered for {stalled_s:.0f} s"
                return WritesRefused(f"{text}, and the node stopped as if it had crashed")
            if stalled_s >= timing.disk_stall_s:
                await self._pause(stalled_s)
            elif self._host.is_stalled:
                self._go_on()

    @property
    def _name(self) -> str:
        """The node's configured name, otherwise its address, which is known only later."""
        return self._host.config.name or self._host.address

    def _stalled_s(self) -> float:
        """Return for how many seconds the transaction under way has run; 0 without one."""
        since = self._host.storage.busy_since
        return 0.0 if since is None else trio.current_time() - since

    async def _pause(self, stalled_s: float) -> None:
        """Stop serving while the disk hangs, and tell the neighbours at every check.

        A step that was under way may have called a peer meanwhile, so once is not enough.
        """
        if not self._host.is_stalled:
            self._host.is_stalled = True
            self._host.health.report("disk", f"the disk has not answered for {stalled_s:.0f} s")
        await self._shutdown.say(self._shutdown.neighbours(), has_left=False)

    def _go_on(self) -> None:
        """Take part again when the disk answers, as after a suspension of the process."""
        self._woke()
        self._host.is_stalled = False
        self._host.health.clear("disk")
