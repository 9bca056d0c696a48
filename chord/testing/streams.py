"""Streams in memory: two ends, two pipes, bounded windows, closing and resetting.

A pipe is one direction: items fly, arrive in order, and wait to be read. The network decides when they arrive, and the
pipe handles the arrival.
"""

from __future__ import annotations

from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from chord.testing.network import MemoryNetwork

READ_BYTES = 1 << 16


class Signal(Enum):
    """Items on a pipe that are not bytes: the end of the bytes, a close, a reset."""

    EOF = b"eof"  # no more bytes this way
    CLOSE = b"close"  # the sending end does not read any more, either
    RESET = b"reset"  # the sending end is gone; both directions are broken


class MemoryPipe:
    """One direction of a connection: the items on their way, and the bytes that wait to be read.

    Attributes:
        source: the host of the writing end.
        target: the host of the reading end.
        flying: items that have not arrived yet, as (time of arrival in seconds, item), in order.
        unread: number of bytes sent and not yet read, flying ones included; bounded by the window.
        is_finished: the end of the bytes was sent.
        is_ended: the end of the bytes arrived.
        is_broken: the connection was reset, and its traffic is lost.
        is_deaf: the reading end is closed, as far as the writing end knows.
    """

    __slots__ = (
        "_arrived",
        "_connection",
        "_network",
        "_window",
        "flying",
        "is_broken",
        "is_deaf",
        "is_ended",
        "is_finished",
        "last_due",
        "reader",
        "source",
        "target",
        "unread",
        "writer",
    )

    def __init__(
        self, network: MemoryNetwork, connection: MemoryConnection, source: str, target: str, window: int
    ) -> None:
        self._network = network
        self._connection = connection
        self.source = source
        self.target = target
        self._window = window
        self.flying: list[tuple[float, bytes | Signal]] = []  # lists: an empty deque takes ten times the memory
        self._arrived: list[bytes] = []
        self.unread = 0
        self.last_due = 0.0
        self.is_finished = False  # EOF was sent
        self.is_ended = False  # EOF arrived
        self.is_broken = False
        self.is_deaf = False
        self.reader: trio.lowlevel.Task | None = None
        self.writer: trio.lowlevel.Task | None = None

    @property
    def room(self) -> int:
        """Number of bytes that may be sent at once: the free part of the window."""
        return self._window - self.unread

    def send(self, item: bytes | Signal) -> None:
        """Send bytes or a signal to the reading end. The caller makes sure that bytes fit in `room`."""
        if isinstance(item, bytes):
            self.unread += len(item)
            assert self.unread <= self._window
        self._network._send(self, item)

    def arrive(self, now: float) -> None:
        """Deliver the items that are due at `now`, in seconds."""
        flying = self.flying
        while flying and flying[0][0] <= now:
            _, item = flying.pop(0)
            self._network._on_arrived(self, item, now)
            if isinstance(item, bytes):
                self._arrived.append(item)
            elif item is Signal.EOF:
                self.is_ended = True
            elif item is Signal.CLOSE:
                back = self._connection.other(self)
                back.is_deaf = True
                back.wake_writer()
            else:
                self._connection.reset()
                return
        self.wake_reader()

    def take(self, max_bytes: int) -> bytes:
        """Remove and return up to `max_bytes` that have arrived; the writer gains room.

        Call it only if `has_arrived`.
        """
        arrived = self._arrived
        data = arrived.pop(0)
        while arrived and len(data) + len(arrived[0]) <= max_bytes:
            data += arrived.pop(0)
        if len(data) > max_bytes:
            arrived.insert(0, data[max_bytes:])
            data = data[:max_bytes]
        self.unread -= len(data)
        self.wake_writer()
        return data

    @property
    def has_arrived(self) -> bool:
        """Whether there are bytes to read."""
        return bool(self._arrived)

    def break_off(self) -> None:
        """Break the pipe: drop all traffic under way, and wake reader and writer."""
        self.is_broken = True
        self.flying.clear()
        self._arrived.clear()
        self.wake_reader()
        self.wake_writer()

    async def wait_to_write(self) -> None:
        """Wait until `wake_writer` is called. The caller then checks again for room and errors."""
        self.writer = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._forget_writer)

    # A cancelled task is forgotten at once: a reset before it runs must not wake it a second time.

    def forget_reader(self, _: object) -> trio.lowlevel.Abort:
        """Stop the wait of a reading task that was cancelled; Trio calls this.

        The pipe no longer wakes the task.
        """
        self.reader = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _forget_writer(self, _: object) -> trio.lowlevel.Abort:
        self.writer = None
        return trio.lowlevel.Abort.SUCCEEDED

    def wake_reader(self) -> None:
        """Wake the task that waits to read, if there is one."""
        if self.reader is not None:
            trio.lowlevel.reschedule(self.reader)
            self.reader = None

    def wake_writer(self) -> None:
        """Wake the task that waits for room to write, if there is one."""
        if self.writer is not None:
            trio.lowlevel.reschedule(self.writer)
            self.writer = None

    def check(self) -> list[str]:
        """Return the violated invariants of the pipe, in words; empty if none."""
        held = sum(map(len, self._arrived)) + sum(len(item) for _, item in self.flying if isinstance(item, bytes))
        if not self.is_broken and held != self.unread:
            return [f"{self.source} to {self.target}: {held} bytes under way, {self.unread} counted"]
        if any(a[0] > b[0] for a, b in pairwise(self.flying)):
            return [f"{self.source} to {self.target}: out of order"]
        return []


class MemoryStream(trio.abc.HalfCloseableStream):
    """One end of a connection, as a Trio stream."""

    def __init__(self, connection: MemoryConnection, outgoing: MemoryPipe, incoming: MemoryPipe) -> None:
        self.connection = connection
        self.host = outgoing.source
        self.remote_host = outgoing.target
        self._out = outgoing
        self._in = incoming
        self._is_closed = False
        self._is_dead = False
        self._is_sending = False
        self._is_receiving = False

    @property
    def is_closed(self) -> bool:
        """Whether this end was closed, or its host crashed."""
        return self._is_closed or self._is_dead

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all bytes; wait for room in the window.

        Raises:
            trio.BusyResourceError: another task is sending.
            trio.ClosedResourceError: this end is closed, or `send_eof` was called.
            trio.BrokenResourceError: the connection was reset, the other end is closed, or this host crashed.
        """
        self._begin_sending()
        try:
            await trio.lowlevel.checkpoint()
            self._require_writable()
            out, start = self._out, 0
            while start < len(data):
                room = out.room
                if room > 0:
                    out.send(bytes(data[start : start + room]))
                    start += room
                else:
                    await out.wait_to_write()
                    self._require_writable()
        finally:
            self._is_sending = False

    def send_nowait(self, data: bytes) -> int:
        """Send as many bytes as there is room for, without waiting.

        Returns:
            The number of bytes sent; 0 if the stream is not writable. The next `send_all` raises the reason.
        """
        if self._is_sending or not self._is_writable():
            return 0
        sent = min(len(data), self._out.room)
        if sent > 0:
            self._out.send(data[:sent])
        return max(sent, 0)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room in the window; the errors are those of `send_all`."""
        self._begin_sending()
        try:
            await trio.lowlevel.checkpoint()
            self._require_writable()
            while self._out.room <= 0:
                await self._out.wait_to_write()
                self._require_writable()
        finally:
            self._is_sending = False

    async def send_eof(self) -> None:
        """Announce that no more bytes will come; later calls do nothing.

        Raises:
            trio.BusyResourceError: another task is sending.
            trio.ClosedResourceError: this end is closed.
        """
        self._begin_sending()
        try:
            await trio.lowlevel.checkpoint()
            if self._is_closed:
                raise trio.ClosedResourceError("this end is closed")
            if not self._out.is_finished and not self._out.is_broken and not self._is_dead:
                self._out.is_finished = True
                self._out.send(Signal.EOF)
        finally:
            self._is_sending = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return bytes that have arrived, or wait for some; b"" at the end.

        Args:
            max_bytes: most bytes to return, at least 1; default: `READ_BYTES`.

        Raises:
            trio.BusyResourceError: another task is receiving.
            trio.ClosedResourceError: this end is closed.
            trio.BrokenResourceError: the connection was reset, or this host crashed.
        """
        if max_bytes is None:
            max_bytes = READ_BYTES
        elif not isinstance(max_bytes, int):
            raise TypeError("max_bytes must be a number of bytes")
        if max_bytes < 1:
            raise ValueError("max_bytes must be at least 1")
        if self._is_receiving:
            raise trio.BusyResourceError("another task is receiving already")
        self._is_receiving = True
        incoming = self._in
        try:
            if self._is_readable():
                await trio.lowlevel.checkpoint()
            while not self._is_readable():
                incoming.reader = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(incoming.forget_reader)
            if self._is_closed:
                raise trio.ClosedResourceError("this end is closed")
            if incoming.is_broken or self._is_dead:
                raise trio.BrokenResourceError("the connection was reset")
            return incoming.take(max_bytes) if incoming.has_arrived else b""
        finally:
            self._is_receiving = False

    async def aclose(self) -> None:
        """Close this end. Bytes that were sent still arrive."""
        if not self._is_closed:
            self._is_closed = True
            if not self._out.is_broken and not self._is_dead:
                if not self._out.is_finished:
                    self._out.is_finished = True
                    self._out.send(Signal.EOF)
                self._out.send(Signal.CLOSE)
            self._wake()
            self.connection.on_closed()
        await trio.lowlevel.checkpoint()

    def die(self, *, silently: bool) -> None:
        """Make this end unusable, because its host crashed.

        Args:
            silently: do not reset the other end.
        """
        if self._is_dead or self._out.is_broken:
            return
        self._is_dead = True
        if not silently:
            self._out.send(Signal.RESET)
        self._wake()

    # -- inside ---------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._in.wake_reader()
        self._out.wake_writer()

    def _is_readable(self) -> bool:
        incoming = self._in
        return incoming.has_arrived or incoming.is_ended or incoming.is_broken or self._is_closed or self._is_dead

    def _begin_sending(self) -> None:
        if self._is_sending:
            raise trio.BusyResourceError("another task is sending already")
        self._is_sending = True

    def _is_writable(self) -> bool:
        out = self._out
        return not (self._is_closed or out.is_finished or out.is_broken or out.is_deaf or self._is_dead)

    def _require_writable(self) -> None:
        if self._is_closed or self._out.is_finished:
            raise trio.ClosedResourceError("this end is closed")
        if not self._is_writable():
            raise trio.BrokenResourceError("the connection was reset")


class MemoryConnection:
    """A connection of two hosts: two ends (streams), and the two pipes between them."""

    __slots__ = ("_network", "acceptor", "dialler", "id", "pipes")

    def __init__(self, network: MemoryNetwork, number: int, dialler: str, acceptor: str, window: int) -> None:
        self._network = network
        self.id = number
        forth = MemoryPipe(network, self, dialler, acceptor, window)
        back = MemoryPipe(network, self, acceptor, dialler, window)
        self.pipes = (forth, back)
        self.dialler = MemoryStream(self, forth, back)
        self.acceptor = MemoryStream(self, back, forth)

    def other(self, pipe: MemoryPipe) -> MemoryPipe:
        """Return the pipe of the opposite direction."""
        forth, back = self.pipes
        return back if pipe is forth else forth

    @property
    def ends(self) -> tuple[MemoryStream, MemoryStream]:
        """Both ends, the dialling end first."""
        return self.dialler, self.acceptor

    def reset(self) -> None:
        """Break both directions at once; traffic under way is lost."""
        for pipe in self.pipes:
            pipe.break_off()
        self._network._on_closed(self)

    def on_closed(self) -> None:
        """Remove the connection from the network if both ends are closed."""
        if self.dialler.is_closed and self.acceptor.is_closed:
            self._network._on_closed(self)

    def check(self) -> list[str]:
        """Return the violated invariants of both directions, a sentence for each; empty if none."""
        return [line for pipe in self.pipes for line in pipe.check()]
