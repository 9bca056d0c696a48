"""A node with answers from the test, over real sockets and the real codec, for tests of clients."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import msgspec

from chord.errors import ChordError, InvalidRequest
from chord.ids import Arc, Circle, Point
from chord.wire.batch import items_of, pack
from chord.wire.codec import GOODBYE, Codec, FrameKind, Frames, decode_hello, encode_hello, encode_refusal
from chord.wire.messages import (
    ActorClock,
    GetMany,
    GetStatus,
    Hello,
    PutMany,
    Record,
    Reply,
    Request,
    Scan,
    ScanReply,
    Version,
)
from tests.support.ports import HOST, Ports
from tests.support.statuses import statuses

SILENCE = None
"""Answer nothing."""
HANG_UP = "hang up"
"""Close the connection instead of an answer."""
GO_AWAY = "go away"
"""Send a goodbye and leave this call unanswered, so that the connection takes no further call."""

REFUSED = "refused"
"""As the answer to an item of a batch: refuse the whole frame."""


class Heard(NamedTuple):
    """A call that the fake node received."""

    vnode: Point | None
    request: Request
    stream: str
    connection: int


Answer = Reply | ChordError | bytes | str | None


class FakeNode:
    """A listener on loopback that answers each call with the result of `answer`.

    The result is a reply, an error, raw bytes or a fault. For a batch `answer` is called for each item; a fault or raw
    bytes are then the answer to the whole batch.
    """

    on_silence: Callable[[], None] = staticmethod(lambda: None)
    """A function for each call that will never be answered."""

    def __init__(
        self,
        answer: Callable[[Heard], Answer],
        *,
        bits: int = 8,
        ring: bytes | None = b"R" * 16,
        refusal: ChordError | None = None,
        versions: tuple[int, int] = (1, 1),
        features: int = 0,
    ) -> None:
        self.answer = answer
        self.heard: list[Heard] = []
        self.connections = 0
        self._refusal = refusal
        self._codec = Codec(Circle(bits))
        lowest, highest = versions
        self._hello = Hello(
            lowest, highest, "node", "control", "chord", bits, successors=8, replicas=1, ring=ring, features=features
        )
        self._ports = Ports()  # no other process gets the port while the node is dead
        port = self._ports.one()
        self._listener = socket.create_server((HOST, port))
        self._open: list[socket.socket] = []
        self.address = f"{HOST}:{port}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def requests(self, kind: type[Request]) -> list[Request]:
        """Return the received requests of this type, in order."""
        return [heard.request for heard in self.heard if isinstance(heard.request, kind)]

    def close(self) -> None:
        """End, and release the port."""
        self.die()
        self._ports.close()

    def die(self) -> None:
        """Close the listener and all connections, and keep the port until `close`."""
        with suppress(OSError):  # closed already
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with suppress(OSError):  # gone already
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection, self.connections), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        frames = Frames(1 << 22)
        stream = ""
        try:
            while data := connection.recv(1 << 16):
                for kind, body in frames.feed(data):
                    if kind is FrameKind.HELLO:
                        hello = decode_hello(body)
                        stream = hello.stream
                        assert hello.role == "client"
                        mine = msgspec.structs.replace(self._hello, stream=stream)
                        refusal = self._refusal
                        connection.sendall(encode_hello(mine) if refusal is None else encode_refusal(refusal))
                    elif kind is FrameKind.CALL:
                        call = self._codec.decode_call(body)
                        assert isinstance(call.request, Request), call.request
                        heard = Heard(call.vnode, call.request, stream, number)
                        self._reply(connection, call.call_id, self._hear(heard))
        except OSError:
            pass  # the client or the test has closed the connection

    def _hear(self, heard: Heard) -> Answer:
        self.heard.append(heard)
        if not isinstance(heard.request, (GetMany, PutMany)):
            return self.answer(heard)
        outcomes: list[Reply | ChordError] = []
        for item in items_of(heard.request):
            self.heard.append(heard._replace(request=item))
            answer = self.answer(self.heard[-1])
            if answer == REFUSED:
                return InvalidRequest("one of the items is none")
            if not isinstance(answer, (Reply, ChordError)):
                return answer
            outcomes.append(answer)
        return pack(heard.request, outcomes)

    def _reply(self, connection: socket.socket, call_id: int, answer: Answer) -> None:
        if isinstance(answer, Reply):
            connection.sendall(self._codec.encode_reply(call_id, answer))
        elif isinstance(answer, ChordError):
            connection.sendall(self._codec.encode_error(call_id, answer))
        elif isinstance(answer, bytes):
            connection.sendall(answer)
        elif answer == HANG_UP:
            connection.shutdown(socket.SHUT_RDWR)
        else:
            if answer == GO_AWAY:
                connection.sendall(GOODBYE)
            self.on_silence()


@contextmanager
def fake_node(answer: Callable[[Heard], Answer], **options: object) -> Iterator[FakeNode]:
    """Run a `FakeNode` for the length of a `with` block."""
    node = FakeNode(answer, **options)  # type: ignore[arg-type]
    try:
        yield node
    finally:
        node.close()


class ScannedRing:
    """Owners with their records. The ring answers a scan as the owner of the next point does."""

    def __init__(self, owners: list[int], keys: list[bytes], page: int = 3) -> None:
        self.circle = Circle(8)
        self.owners = sorted(owners)
        self.keys = keys
        self.page = page

    def __call__(self, heard: Heard) -> Answer:
        request = heard.request
        if isinstance(request, GetStatus):
            return statuses()[0]
        assert isinstance(request, Scan)
        point = self.circle.point(request.after + 1)
        owner = next((o for o in self.owners if o >= point), self.owners[0])
        arc = Arc(request.after, Point(owner))
        keys = sorted(
            (k for k in self.keys if self.circle.hash(k) in arc),
            key=lambda k: (self.circle.distance(request.after, self.circle.hash(k)) or 256, k),
        )
        if request.after_key is not None:
            keys = keys[keys.index(request.after_key) + 1 :]
        records = tuple(Record(k, (ActorClock(b"A" * 16, 1, (Version(b"v:" + k, b"O" * 16, 0),)),)) for k in keys)
        more = len(records) > self.page
        return ScanReply(records[: self.page], Point(owner), records[self.page - 1].key if more else None)
