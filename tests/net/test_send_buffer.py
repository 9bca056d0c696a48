"""The send buffer of a connection, on a pipe with limited room."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from chord.events import ignore
from chord.net.context import RpcContext
from chord.net.send_buffer import SendBuffer
from chord.wire.cuts import CutNumber
from tests.support.rings import virtual
from tests.support.rpc import limits


class Narrow:
    """A pipe that takes `room` bytes without waiting; `send_all` takes a second."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.writes: list[bytes] = []
        self.is_broken = False

    async def receive_some(self, max_bytes: int) -> bytes:
        await trio.sleep_forever()
        raise AssertionError

    def send_nowait(self, data: bytes) -> int:
        sent = 0 if self.is_broken else min(self.room, len(data))
        self.room -= sent
        if sent:
            self.writes.append(data[:sent])
        return sent

    async def send_all(self, data: bytes) -> None:
        await trio.sleep(1)
        if self.is_broken:
            raise trio.BrokenResourceError
        self.writes.append(data)


class Box:
    """A send buffer with its pipe and its owner; `said` has the calls of the owner so far."""

    def __init__(self, room: int) -> None:
        self.pipe = Narrow(room)
        self.shared = RpcContext(limits(), ignore, None, CutNumber())
        self.said: list[str] = []
        self.send_buffer = SendBuffer(self.pipe, "control", self.shared, self)

    def on_emptied(self) -> None:
        self.said.append("emptied")

    def on_broken(self) -> None:
        self.said.append("broken")


@asynccontextmanager
async def box(room: int) -> AsyncIterator[Box]:
    made = Box(room)
    async with trio.open_nursery() as nursery:
        made.shared.tasks.open(nursery)
        nursery.start_soon(made.shared.run)
        await trio.sleep(0.1)
        yield made
        nursery.cancel_scope.cancel()


@virtual
async def test_frames_of_one_pass_leave_in_one_write() -> None:
    async with box(1000) as made:
        for frame in (b"a", b"b", b"c"):
            made.send_buffer.post(frame)
            made.send_buffer.flush_soon()
        assert not made.pipe.writes
        await trio.sleep(0.1)
        assert (made.pipe.writes, made.said) == ([b"abc"], ["emptied"])
        made.send_buffer.post(b"d")
        made.send_buffer.flush()
        assert (made.pipe.writes[-1], made.send_buffer.buffered, made.shared.stats.bytes_sent) == (b"d", 0, 4)


@virtual
async def test_bytes_beyond_the_room_are_written_in_order_by_a_task() -> None:
    async with box(3) as made:
        made.send_buffer.post(b"abcde")
        made.send_buffer.flush()
        assert made.send_buffer.buffered == 2
        made.pipe.room = 1000
        await trio.sleep(0.5)
        made.send_buffer.post(b"fg")
        made.send_buffer.flush()  # must keep the order
        made.send_buffer.flush_soon()
        await trio.sleep(0.1)
        assert (made.pipe.writes, made.said) == ([b"abc"], [])
        await made.send_buffer.wait_until_empty()
        assert (b"".join(made.pipe.writes), made.send_buffer.buffered) == (b"abcdefg", 0)
        await trio.sleep(0.1)
        assert made.said == ["emptied"]
        made.send_buffer.post(b"h")
        made.send_buffer.flush()
        assert made.pipe.writes[-1] == b"h"


@virtual
async def test_closed_buffer_writes_nothing() -> None:
    # By then the descriptor may be another connection's.
    async with box(1000) as made:
        made.send_buffer.post(b"soon")
        made.send_buffer.flush_soon()
        made.send_buffer.close()
        made.send_buffer.post(b"now")
        made.send_buffer.flush()
        await trio.sleep(10)
        assert not made.pipe.writes
    async with box(0) as made:
        made.send_buffer.post(b"patiently")
        made.send_buffer.flush()
        await trio.sleep(0.5)
        made.send_buffer.close()
        await trio.sleep(10)
        assert not made.pipe.writes


@virtual
async def test_writing_task_reports_a_broken_pipe() -> None:
    async with box(1000) as made:
        made.pipe.is_broken = True
        made.send_buffer.post(b"a")
        made.send_buffer.flush()
        await trio.sleep(10)
        assert made.said == ["broken"]
