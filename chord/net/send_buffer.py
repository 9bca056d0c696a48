"""Send buffer of a connection: frames that the system has not taken yet.

Callers post frames at any time and do not wait until the frames leave. A flush tries to write at once, as far as the
operating system takes bytes without waiting. That saves a pass of the scheduler, and on a healthy connection it is all
that happens. A task writes the rest.
"""

from __future__ import annotations

import math
from typing import Final, Protocol

import trio

from chord.errors import InvalidRequest, UseBulk
from chord.net.context import RpcContext
from chord.net.transport import Pipe
from chord.wire.codec import PREFIX_BYTES
from chord.wire.messages import StreamName

WRITE_BYTES: Final = 64 * 1024
"""Largest write of the background task, in bytes. Each write must finish within `stuck_s`."""


class BufferOwner(Protocol):
    """The owner of a send buffer, normally a connection."""

    def on_emptied(self) -> None:
        """The operating system has taken all bytes. `flush_and_tell`, `flush_soon` and the writer call it."""

    def on_broken(self) -> None:
        """The writer has found that the connection is broken."""


class SendBuffer:
    """The send buffer of one connection: frames that the operating system has not taken yet.

    To post a frame is to add it to the buffer. If the operating system does not take all bytes at once, a background
    task, the *writer*, writes the rest.

    Args:
        pipe: takes the bytes.
        name: the kind of stream, which decides the largest frame.
        shared: the state that all connections of this node share.
        owner: learns when the buffer is empty, and when the writer finds that the connection is broken.

    Attributes:
        buffered: the number of bytes that were posted and that the operating system has not taken yet.
        bytes_max: callers should add nothing while more bytes than this are buffered.
        stuck_due: the time by which the present write of the writer must end, on Trio's clock; infinity without one.
    """

    __slots__ = (
        "_body_bytes_max",
        "_frames",
        "_is_closed",
        "_is_flushed_soon",
        "_name",
        "_owner",
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
        shared: RpcContext,
        owner: BufferOwner,
    ) -> None:
        self.buffered = 0
        self.bytes_max = shared.limits.buffer_bytes_max
        self.stuck_due = math.inf
        self._pipe = pipe
        self._name = name
        limits = shared.limits
        self._body_bytes_max = limits.bulk_from_bytes if name == "control" else limits.frame_bulk_bytes_max
        self._shared = shared
        self._stats = shared.stats
        self._owner = owner
        self._frames: list[bytes] = []
        self._is_flushed_soon = False
        self._is_closed = False
        self._writing: trio.CancelScope | None = None  # of the task, if one is writing
        self._shrunk: trio.lowlevel.ParkingLot | None = None  # made when the first task waits

    @property
    def is_overflowing(self) -> bool:
        """Whether even refusals pile up, because the peer keeps calling and never reads.

        The limit is twice `bytes_max`, and one more frame of the largest size.
        """
        return self.buffered > 2 * self.bytes_max + self._shared.limits.frame_bulk_bytes_max

    def post(self, frame: bytes) -> None:
        """Add the frame of a call or a reply to the buffer. It leaves with the next `flush` or `flush_soon`.

        Raises:
            UseBulk: the frame is too large for this control stream, but may fit the bulk stream.
            InvalidRequest: the frame is too large for this bulk stream.
        """
        if len(frame) - PREFIX_BYTES > self._body_bytes_max:
            if self._name == "control":
                raise UseBulk
            limit = PREFIX_BYTES + self._body_bytes_max
            raise InvalidRequest(f"message of {len(frame)} bytes; the limit is {limit}")
        self._frames.append(frame)
        self.buffered += len(frame)

    def post_small(self, frame: bytes) -> None:
        """Add the frame of an error or a goodbye to the buffer; no limit applies to these small frames."""
        self._frames.append(frame)
        self.buffered += len(frame)

    def flush(self) -> None:
        """Write as much of the buffer as the operating system takes now; a background task writes the rest.

        `on_emptied` is not called, unless that task writes.
        """
        if self._frames and self._writing is None and not self._is_closed:
            data = b"".join(self._frames)
            self._frames.clear()
            sent = self._pipe.send_nowait(data)
            self.buffered -= sent
            self._stats.bytes_sent += sent
            if sent < len(data):
                self._frames.append(data[sent:])
                self._writing = trio.CancelScope()  # frames that are posted from now on wait for the task
                self._shared.tasks.start(self._write_rest, self._writing, name="write")

    def flush_and_tell(self) -> None:
        """Do as `flush`; if the operating system took all bytes, call the owner's `on_emptied`.

        In that case the tasks that wait for room in the buffer also wake.
        """
        self.flush()
        if not self._frames and self._writing is None:
            if self._shrunk is not None:
                self._unpark()
            self._owner.on_emptied()

    def flush_soon(self) -> None:
        """Do as `flush_and_tell` in the next pass of Trio's scheduler, with all frames added until then."""
        if not self._is_flushed_soon:
            self._is_flushed_soon = True
            self._shared.soon(self._flush_late)

    async def wait_for_room(self) -> None:
        """Wait until at most `bytes_max` bytes are buffered, or the buffer is closed."""
        while self.buffered > self.bytes_max and not self._is_closed:
            await self._park()

    async def wait_until_empty(self) -> None:
        """Wait until the operating system has taken all bytes, or the buffer is closed."""
        while self.buffered and not self._is_closed:
            await self._park()

    def close(self) -> None:
        """Stop writing, and wake the tasks that wait for the buffer, because the connection is over."""
        self._is_closed = True
        if self._writing is not None:
            self._writing.cancel()
        self._unpark()

    # -- inside ---------------------------------------------------------------------------------

    def _flush_late(self) -> None:
        self._is_flushed_soon = False
        self.flush_and_tell()

    async def _write_rest(self, scope: trio.CancelScope) -> None:
        """Write everything in pieces, each under its own deadline.

        So a slow peer is not taken for a peer that reads nothing.
        """
        with scope:
            try:
                while self._frames:
                    data = b"".join(self._frames)
                    self._frames.clear()
                    for start in range(0, len(data), WRITE_BYTES):
                        await self._write_piece(data[start : start + WRITE_BYTES])
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._owner.on_broken()
                return
            self.stuck_due = math.inf
            self._writing = None
            self._owner.on_emptied()

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
