"""A watchdog on a node's disk: a disk that fails ends the node, a disk that hangs first takes it out of service.

A disk that hangs fails nothing: a transaction is under way, and its end does not come. Meanwhile the node would answer
pings and stay owner of its arc, and every write there would wait. So it tells its neighbours that it pauses, answers
every call as if nobody listened, and makes none. When the disk answers in time, the node takes part again, like a
process that was stopped. Otherwise it ends as after a failed sync.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from chord.errors import WritesRefused
from chord.node.shutdown import Farewell
from chord.ring.context import Host

LOOKS = 4
"""So often it looks within `disk_stall_s`."""


class DiskWatch:
    """The watchdog of one node, whose storage can fail.

    Args:
        woke: called when the disk answers again.
    """

    def __init__(self, host: Host, farewell: Farewell, woke: Callable[[], None]) -> None:
        self._host = host
        self._farewell = farewell
        self._woke = woke

    async def run(self, failed: trio.Event) -> WritesRefused:
        """Watch until the node has to end; return why.

        Args:
            failed: of the storage.
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
        """The name of the node for people; its address is not known from the beginning."""
        return self._host.config.name or self._host.address

    def _stalled_s(self) -> float:
        """Return for how long the transaction under way has run."""
        since = self._host.storage.busy_since
        return 0.0 if since is None else trio.current_time() - since

    async def _pause(self, stalled_s: float) -> None:
        """Serve nobody, and say so again and again: a step that was under way may have called a peer meanwhile."""
        if not self._host.is_stalled:
            self._host.is_stalled = True
            self._host.health.report("disk", f"the disk has not answered for {stalled_s:.0f} s")
        await self._farewell.say(self._farewell.neighbours(), has_left=False)

    def _go_on(self) -> None:
        """Take part again, as after a standstill of the process."""
        self._woke()
        self._host.is_stalled = False
        self._host.health.clear("disk")
