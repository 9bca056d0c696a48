"""A static ring with chord's RPC, as a lower bound: its members never change.

    python -m benchmarks.others.static_ring node COPIES
    python -m benchmarks.others.static_ring client HOST:PORT… COPIES

Every client knows all members. The transport, the RPC and the messages are those of chord. A sorted list gives the
owner of a key, and a dictionary holds the values. With three copies a put is acknowledged when one other node has
stored it, and a get asks one other node for its copy. The ring has no versions, maintenance, limits or failures. They
are the whole difference between a ring of real nodes and this ring.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from benchmarks.others import program
from chord.config import Limits
from chord.errors import ChordError
from chord.events import ignore
from chord.ids import Circle, Point
from chord.net.calls import Answer, Caller
from chord.net.steps import Driver, Steps
from chord.net.transport import TcpTransport
from chord.rpc import Rpc
from chord.wire.messages import Contact, Get, GetReply, Hello, Put, Reply, Request, Written

if TYPE_CHECKING:
    from benchmarks.others.processes import Group
    from benchmarks.others.system import Home

READY_S = 60.0
DEADLINE_S = 10.0
NO_OWNER = Contact(Point(0), "static:1")
SETTINGS = "all addresses are known to everybody from the beginning; values in a dictionary"


class Places:
    """The nodes of the static ring in order, to find those of a key.

    Args:
        addresses: the addresses of all nodes.
        copies: the number of nodes that keep a key.
    """

    def __init__(self, addresses: list[str], copies: int) -> None:
        self.circle = Circle(160)
        self.copies = copies
        placed = sorted((self.circle.hash(address.encode()), address) for address in addresses)
        self._ring = [Contact(point, address) for point, address in placed]
        self._ids = [contact.id for contact in self._ring]

    def of(self, key: bytes) -> list[Contact]:
        """Return the nodes that keep a key, the owner first."""
        first = bisect_left(self._ids, self.circle.hash(key))
        return [self._ring[(first + place) % len(self._ring)] for place in range(self.copies)]


class Node:
    """A node of the static ring, with its values in a dictionary.

    A request that names no vnode comes from a client, and the node is the key's owner. A request that names a vnode
    comes from the owner, and is for a copy.
    """

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc
        self._values: dict[bytes, bytes] = {}
        self.places: Places | None = None

    def handle(self, vnode: Point | None, request: Request, caller: Caller) -> Answer:
        """Answer a `Get` or a `Put` from a client or from an owner.

        As the owner, the node also asks other nodes, and waits for the first reply.
        """
        assert self.places is not None
        assert isinstance(request, (Get, Put))
        answer: Reply
        if isinstance(request, Put):
            self._values[request.key] = request.value or b""
            answer = Written(b"", NO_OWNER)
        else:
            answer = GetReply((self._values.get(request.key, b""),), b"", NO_OWNER)
        others = self.places.of(request.key)[1:]
        if vnode is not None or not others:
            return answer
        if isinstance(request, Get):
            others = others[:1]
        return self._ask(request, others, answer)

    def _ask(self, request: Request, others: list[Contact], answer: Reply) -> Steps[Reply]:
        yield _First(self._rpc, others, request)
        return answer


class _First(NamedTuple):
    """An effect for the driver: ask several nodes, and resume with the first reply."""

    rpc: Rpc
    others: list[Contact]
    request: Request

    def begin(self, driver: Driver[Any], /) -> None:
        """Send the requests; resume the operation when the first reply arrives."""
        replies: list[Reply | ChordError] = []

        def on_reply(reply: Reply | ChordError) -> None:
            replies.append(reply)
            if len(replies) == 1:
                driver.resume(reply)

        for other in self.others:
            self.rpc.begin(other, self.request, on_reply, deadline=trio.current_time() + DEADLINE_S)


class Outside:
    """A benchmark client that knows all members of the static ring."""

    def __init__(self, rpc: Rpc, places: Places) -> None:
        self._rpc = rpc
        self._places = places
        self._puts = 0

    async def put(self, key: str, value: bytes) -> None:
        """Put a value; return when its owner has acknowledged it."""
        self._puts += 1
        op_id = self._puts.to_bytes(16, "big")
        owner = self._places.of(key.encode())[0]
        request = Put(key.encode(), value, op_id)
        await self._rpc.call(owner.address, request, deadline=trio.current_time() + DEADLINE_S)

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key from its owner; empty if the key has no value."""
        owner = self._places.of(key.encode())[0]
        reply = await self._rpc.call(owner.address, Get(key.encode()), deadline=trio.current_time() + DEADLINE_S)
        assert isinstance(reply, GetReply)
        return reply.values[0]


def _rpc(role: str, address: list[str]) -> Rpc:
    circle = Circle(160)

    def hello(stream: Any) -> Hello:
        return Hello(1, 1, role, stream, bits=circle.bits, address=address[0])  # type: ignore[arg-type]

    return Rpc(TcpTransport(), circle=circle, limits=Limits(), hello=hello, on_hello=lambda _: None, observe=ignore)


async def node(arguments: list[str]) -> None:
    """Run a node of the static ring until standard input ends.

    It prints its address, and reads a line with the addresses of all nodes.

    Args:
        arguments: the number of copies.
    """
    (copies,) = arguments
    address = [""]  # known when the node listens, and not needed before
    rpc = _rpc("node", address)
    one = Node(rpc)
    rpc.serve(one.handle)
    async with trio.open_nursery() as nursery:
        address[0] = await nursery.start(rpc.run, "127.0.0.1:0")
        program.say(address=address[0])
        waiting = b""
        async with trio.lowlevel.FdStream(os.dup(0)) as stream:
            async for data in stream:
                waiting += data
                if waiting.endswith(b"\n"):
                    one.places = Places(json.loads(waiting)["addresses"], int(copies))
                    waiting = b""
                    program.say(ready=True)
        nursery.cancel_scope.cancel()


async def client(arguments: list[str]) -> None:
    """Run a client that makes the operations requested on standard input.

    Args:
        arguments: the addresses of all nodes, then the number of copies.
    """
    *addresses, copies = arguments
    rpc = _rpc("client", [""])
    async with trio.open_nursery() as nursery:
        await nursery.start(rpc.run, None)
        await program.serve_on_trio(Outside(rpc, Places(addresses, int(copies))))
        nursery.cancel_scope.cancel()


def start(group: Group, home: Home, nodes: int, *, copies: int) -> list[str]:
    """Start the nodes, tell each the addresses of all, and return the addresses."""
    started = [group.node(home.program("static_ring", "node", str(copies))) for _ in range(nodes)]
    addresses = [process.read(READY_S)["address"] for process in started]
    for process in started:
        process.ask(READY_S, addresses=addresses)
    return addresses


if __name__ == "__main__":
    program.main({"node": node, "client": client}, trio.run)
