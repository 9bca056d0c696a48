"""A plain RPC on Trio, as fast as the stack allows: the limit that `chord.rpc` is compared with.

The codec is the fastest strict one, typed MessagePack of msgspec. A request is handled in the reader of its connection.
All answers to one read leave with one write, and so do all calls of one pass of the scheduler. The reader wakes the
callers. There are no limits, deadlines, errors or reconnects, and no buffer for a peer that does not read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec
import trio
from outcome import Value

READ_BYTES: Final = 64 * 1024
FLUSH_FRAMES: Final = 16  # frames of a read after which answers leave, so that the other side can begin meanwhile
HEAD_BYTES: Final = 4


class Call(msgspec.Struct, array_like=True, gc=False):
    """A request: put a value, or get the value of the key.

    Attributes:
        call_id: names the call on its connection.
        is_copy: whether the request comes from the owner of the key, and is for a copy.
    """

    call_id: int
    key: bytes
    value: bytes | None = None
    is_copy: bool = False


class Answer(msgspec.Struct, array_like=True, gc=False):
    """The answer to a call, with as many bytes as a `GetReply` has if `context` and `owner` are given."""

    call_id: int
    value: bytes
    context: bytes = b""
    owner: bytes = b""


OnAnswer: TypeAlias = Callable[[Answer], object]
Handler: TypeAlias = "Callable[[Call, Connection], Answer | None]"
"""Returns the answer to a call, or None if it will pass the answer to `Connection.answer`."""

_encode = msgspec.msgpack.Encoder().encode
_decode_call = msgspec.msgpack.Decoder(Call).decode
_decode_answer = msgspec.msgpack.Decoder(Answer).decode


class Writer:
    """Sends the frames of all connections of a process, once per pass of the scheduler."""

    def __init__(self) -> None:
        self.waiting: list[Connection] = []
        self._task: trio.lowlevel.Task | None = None

    def wake(self) -> None:
        """Let `run` flush the waiting connections in the next pass."""
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    def flush(self) -> None:
        """Write all waiting frames now."""
        for connection in self.waiting:
            connection.flush()
        self.waiting.clear()

    async def run(self) -> None:
        """Flush whenever `wake` was called, forever."""
        while True:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.SUCCEEDED)
            self.flush()


class Connection:
    """One end of a connection. The end that connects makes calls, and the other end answers them.

    Args:
        stream: the connected stream.
        writer: the writer of the process. Its `run` must be running if tasks make calls.
    """

    def __init__(self, stream: trio.SocketStream, writer: Writer) -> None:
        self._stream = stream  # keeps the file descriptor open
        self._fd = stream.socket.fileno()
        self._writer = writer
        self._out: list[bytes] = []
        self._pending: dict[int, OnAnswer] = {}
        self._last_id = 0

    def begin(self, key: bytes, value: bytes | None, on_answer: OnAnswer, *, is_copy: bool = False) -> int:
        """Make a call, and return its id. `Writer.flush` sends it."""
        self._last_id += 1
        self._pending[self._last_id] = on_answer
        self._send(_encode(Call(self._last_id, key, value, is_copy)))
        return self._last_id

    async def call(self, key: bytes, value: bytes | None = None) -> Answer:
        """Make a call, and wait for its answer.

        If no other call is pending, its frame leaves at once. Otherwise it leaves with the frames of other tasks.
        """
        task, is_alone = trio.lowlevel.current_task(), not self._pending
        call_id = self.begin(key, value, lambda answer: trio.lowlevel.reschedule(task, Value(answer)))
        if is_alone:
            self._writer.flush()
        else:
            self._writer.wake()

        def give_up(_: object) -> trio.lowlevel.Abort:
            del self._pending[call_id]
            return trio.lowlevel.Abort.SUCCEEDED

        answer: Answer = await trio.lowlevel.wait_task_rescheduled(give_up)
        return answer

    def answer(self, answer: Answer) -> None:
        """Answer a call. `Writer.flush` sends it."""
        self._send(_encode(answer))

    def flush(self) -> None:
        """Write the frames of this connection with one system call.

        Raises:
            RuntimeError: the other end does not read.
        """
        data = b"".join(self._out)
        self._out.clear()
        if os.write(self._fd, data) < len(data):
            raise RuntimeError("the other end does not read; this RPC cannot wait for it")

    async def serve(self, handler: Handler) -> None:
        """Answer calls until the other end closes."""

        def take(frame: bytes) -> None:
            answer = handler(_decode_call(frame), self)
            if answer is not None:
                self._send(_encode(answer))

        await self._read(take)

    async def read_answers(self) -> None:
        """Wake the callers of this end until the other end closes."""

        def take(frame: bytes) -> None:
            answer = _decode_answer(frame)
            on_answer = self._pending.pop(answer.call_id, None)
            if on_answer is not None:
                on_answer(answer)

        await self._read(take)

    def _send(self, body: bytes) -> None:
        if not self._out:
            self._writer.waiting.append(self)
        self._out += (len(body).to_bytes(HEAD_BYTES, "big"), body)

    async def _read(self, take: Callable[[bytes], None]) -> None:
        rest = b""
        while True:
            await trio.lowlevel.wait_readable(self._fd)
            read = os.read(self._fd, READ_BYTES)
            if not read:
                return
            data = rest + read
            at = frames = 0
            while len(data) - at >= HEAD_BYTES:
                end = at + HEAD_BYTES + int.from_bytes(data[at : at + HEAD_BYTES], "big")
                if end > len(data):
                    break
                take(data[at + HEAD_BYTES : end])
                at, frames = end, frames + 1
                if frames % FLUSH_FRAMES == 0:
                    self._writer.flush()
            rest = data[at:]
            self._writer.flush()
