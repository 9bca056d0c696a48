"""The writing half of a connection: frames are posted by anyone at any time, and nobody waits for them to leave.

A flush tries to write at once, as far as the system takes it without waiting; that saves a pass of the
scheduler and is all that happens on a healthy connection. What is left over gets a task.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import trio

from chord.errors import InvalidRequest, UseBulk
from chord.net.context import Shared
from chord.net.transport import Pipe
from chord.wire.codec import PREFIX_BYTES
from chord.wire.messages import StreamName

WRITE_BYTES: Final = 64 * 1024
"""One write of the task; it must get through within `stuck_s`."""


class Outbox:
    """Frames on their way to one peer.

    Args:
        emptied: called when everything is handed to the system, after a `flush_soon` or by the task.
        broken: called when the task finds that the peer is gone.

    Attributes:
        buffered: bytes posted and not yet taken by the system.
        bytes_max: when more than this is buffered, nothing should be added.
        stuck_due: when the write at hand is overdue.
    """

    __slots__ = (
        "_broken",
        "_emptied",
        "_frame_bytes_max",
        "_frames",
        "_is_closed",
        "_is_flushed_soon",
        "_name",
        "_pipe",
        "_shared",
        "_shrunk",
        "_stats",
        "_writing",
        "buffered",
        "bytes_max",
        "stuck_due",
    )

    def __init__(
        self,
        pipe: Pipe,
        name: StreamName,
        shared: Shared,
        emptied: Callable[[], None],
        broken: Callable[[], None],
    ) -> None:
        self.buffered = 0
        self.bytes_max = shared.limits.buffer_bytes_max
        self.stuck_due = math.inf
        self._pipe = pipe
        self._name = name
        self._frame_bytes_max = PREFIX_BYTES + (
            shared.limits.bulk_from_bytes if name == "control" else shared.limits.frame_bulk_bytes_max
        )
        self._shared = shared
        self._stats = shared.stats
        self._emptied = emptied
        self._broken = broken
        self._frames: list[bytes] = []
        self._is_flushed_soon = False
        self._is_closed = False
        self._writing: trio.CancelScope | None = None  # of the task, where there is one
        self._shrunk: trio.lowlevel.ParkingLot | None = None  # made for the first who waits

    @property
    def is_overflowing(self) -> bool:
        """Whether even refusals have piled up, from a peer that asks and asks and does not read."""
        return self.buffered > 2 * self.bytes_max + self._shared.limits.frame_bulk_bytes_max

    def post(self, frame: bytes) -> None:
        """Add a call or a reply. It leaves with the next `flush` or `flush_soon`.

        Raises:
            UseBulk: it is too large for this stream, but may go by the other one.
            InvalidRequest: it fits neither.
        """
        if len(frame) > self._frame_bytes_max:
            if self._name == "control":
                raise UseBulk
            raise InvalidRequest(f"message of {len(frame)} bytes; the limit is {self._frame_bytes_max}")
        self._frames.append(frame)
        self.buffered += len(frame)

    def post_small(self, frame: bytes) -> None:
        """Add an error or a goodbye, for which there is always room."""
        self._frames.append(frame)
        self.buffered += len(frame)

    def flush(self) -> None:
        """Write what waits now, as far as that goes without waiting; the rest is left to a task."""
        if self._frames and self._writing is None and not self._is_closed:
            data = b"".join(self._frames)
            self._frames.clear()
            sent = self._pipe.send_nowait(data)
            self.buffered -= sent
            self._stats.bytes_sent += sent
            if sent < len(data):
                self._frames.append(data[sent:])
                self._writing = trio.CancelScope()  # what is posted meanwhile comes after
                self._shared.start_task(self._write_rest, self._writing, name="write")

    def flush_and_tell(self) -> None:
        """Write what waits now, and tell those who wait for that."""
        self.flush()
        if not self._frames and self._writing is None:
            self._unpark()
            self._emptied()

    def flush_soon(self) -> None:
        """Write in the next pass of the scheduler, together with all that is posted until then."""
        if not self._is_flushed_soon:
            self._is_flushed_soon = True
            self._shared.soon(self._flush_late)

    async def wait_for_room(self) -> None:
        """Wait until the peer has taken enough for more to be added, or the box is closed."""
        while self.buffered > self.bytes_max and not self._is_closed:
            await self._park()

    async def wait_until_empty(self) -> None:
        """Wait until everything is handed to the system, or the box is closed."""
        while self.buffered and not self._is_closed:
            await self._park()

    def close(self) -> None:
        """The connection is over: whoever waits here need not."""
        self._is_closed = True
        if self._writing is not None:
            self._writing.cancel()
        self._unpark()

    # -- inside ---------------------------------------------------------------------------------

    def _flush_late(self) -> None:
        self._is_flushed_soon = False
        self.flush_and_tell()

    async def _write_rest(self, scope: trio.CancelScope) -> None:
        """Write all there is, in pieces, each under its own deadline: a slow peer is not one that takes nothing."""
        with scope:
            try:
                while self._frames:
                    data = b"".join(self._frames)
                    self._frames.clear()
                    for start in range(0, len(data), WRITE_BYTES):
                        await self._write_piece(data[start : start + WRITE_BYTES])
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._broken()
                return
            self.stuck_due = math.inf
            self._writing = None
            self._emptied()

    async def _write_piece(self, piece: bytes) -> None:
        self.stuck_due = trio.current_time() + self._shared.limits.stuck_s
        self._shared.alarm.by(self.stuck_due)
        await self._pipe.send_all(piece)
        self.buffered -= len(piece)
        self._stats.bytes_sent += len(piece)
        self._unpark()

    async def _park(self) -> None:
        if self._shrunk is None:
            self._shrunk = trio.lowlevel.ParkingLot()
        await self._shrunk.park()

    def _unpark(self) -> None:
        if self._shrunk is not None:
            self._shrunk.unpark_all()
