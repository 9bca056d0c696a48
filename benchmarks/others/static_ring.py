"""A static ring on a plain RPC, as a lower bound: its members never change.

    python -m benchmarks.others.static_ring node COPIES
    python -m benchmarks.others.static_ring client HOST:PORT… COPIES

Every client knows all members. The RPC is the fastest that can be written on Trio (`benchmarks/plain_rpc.py`). A sorted
list gives the owner of a key, and a dictionary holds the values. With three copies a put is acknowledged when one other
node has stored it, and a get asks one other node for its copy. The ring has no versions, maintenance, limits or
failures. They, and those of the RPC, are the whole difference between a ring of real nodes and this ring.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_left
from functools import partial
from typing import TYPE_CHECKING

import trio

from benchmarks.others import program
from benchmarks.plain_rpc import Answer, Call, Connection, Writer
from chord.ids import Circle

if TYPE_CHECKING:
    from benchmarks.others.processes import Group
    from benchmarks.others.system import Home

READY_S = 60.0
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
        self._ring = [address for _, address in placed]
        self._ids = [point for point, _ in placed]

    def of(self, key: bytes) -> list[str]:
        """Return the addresses of the nodes that keep a key, the owner first."""
        first = bisect_left(self._ids, self.circle.hash(key))
        return [self._ring[(first + place) % len(self._ring)] for place in range(self.copies)]


class Links:
    """The connections of a process to all nodes of the ring."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self._links: dict[str, Connection] = {}

    def __getitem__(self, address: str) -> Connection:
        return self._links[address]

    async def run(self, addresses: list[str], *, task_status: trio.TaskStatus[None]) -> None:
        """Connect to each address, and wake callers until all nodes have closed."""
        async with trio.open_nursery() as nursery:
            for address in addresses:
                host, port = address.split(":")
                link = Connection(await trio.open_tcp_stream(host, int(port)), self.writer)
                nursery.start_soon(link.read_answers)
                self._links[address] = link
            nursery.start_soon(self.writer.run)
            task_status.started()


class Node:
    """A node of the static ring, with its values in a dictionary.

    A call for a copy comes from the owner. Any other call comes from a client, and the node is the key's owner.
    """

    def __init__(self, links: Links) -> None:
        self._links = links
        self._values: dict[bytes, bytes] = {}
        self.places: Places | None = None

    def handle(self, call: Call, connection: Connection) -> Answer | None:
        """Answer a get or a put of a client or of an owner.

        As the owner, the node also asks other nodes, and answers after the first reply.
        """
        assert self.places is not None
        if call.value is None:
            answer = Answer(call.call_id, self._values.get(call.key, b""))
        else:
            self._values[call.key] = call.value
            answer = Answer(call.call_id, b"")
        others = [] if call.is_copy else self.places.of(call.key)[1:]
        if not others:
            return answer
        waiting = [answer]

        def on_answer(_: Answer) -> None:
            if waiting:
                connection.answer(waiting.pop())

        for other in others if call.value is not None else others[:1]:
            self._links[other].begin(call.key, call.value, on_answer, is_copy=True)
        return None


class Outside:
    """A benchmark client that knows all members of the static ring."""

    def __init__(self, links: Links, places: Places) -> None:
        self._links = links
        self._places = places

    async def put(self, key: str, value: bytes) -> None:
        """Put a value; return when its owner has acknowledged it."""
        raw = key.encode()
        await self._links[self._places.of(raw)[0]].call(raw, value)

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key from its owner; empty if the key has no value."""
        raw = key.encode()
        return (await self._links[self._places.of(raw)[0]].call(raw)).value


async def node(arguments: list[str]) -> None:
    """Run a node of the static ring until standard input ends.

    It prints its address, and reads a line with the addresses of all nodes.

    Args:
        arguments: the number of copies.
    """
    (copies,) = arguments
    links = Links(Writer())
    one = Node(links)

    async def serve(stream: trio.SocketStream) -> None:
        await Connection(stream, links.writer).serve(one.handle)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        program.say(address=f"127.0.0.1:{listeners[0].socket.getsockname()[1]}")
        waiting = b""
        async with trio.lowlevel.FdStream(os.dup(0)) as stream:
            async for data in stream:
                waiting += data
                if waiting.endswith(b"\n"):
                    addresses = json.loads(waiting)["addresses"]
                    one.places = Places(addresses, int(copies))
                    await nursery.start(links.run, addresses)
                    waiting = b""
                    program.say(ready=True)
        nursery.cancel_scope.cancel()


async def client(arguments: list[str]) -> None:
    """Run a client that makes the operations requested on standard input.

    Args:
        arguments: the addresses of all nodes, then the number of copies.
    """
    *addresses, copies = arguments
    links = Links(Writer())
    async with trio.open_nursery() as nursery:
        await nursery.start(links.run, addresses)
        await program.serve_on_trio(Outside(links, Places(addresses, int(copies))))
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
