"""A Trio service with a node of the ring inside it, so that it needs no database.

Two instances of a guest book share all names: python examples/embedded_node.py
"""

from __future__ import annotations

from functools import partial

import trio

import chord
from chord.errors import NotFound


class GuestBook:
    """Answers a name with the number of its visits, at any instance."""

    def __init__(self, node: chord.Node) -> None:
        self.node = node

    async def visits(self, name: str) -> int:
        try:
            return int((await self.node.get(f"guest:{name}")).value)
        except NotFound:
            return 0

    async def serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            async for data in stream:
                name = data.decode()
                count = await self.visits(name) + 1
                await self.node.put(f"guest:{name}", str(count))
                await stream.send_all(f"welcome {name}, visit {count}".encode())


async def visit(listener: trio.SocketListener, name: str) -> None:
    async with await trio.open_tcp_stream(*listener.socket.getsockname()) as stream:
        await stream.send_all(name.encode())
        print((await stream.receive_some()).decode())


async def main() -> None:
    """Run two instances, and visit both."""
    async with (
        chord.open_node(preset="local") as first,
        chord.open_node(preset="local", join=[first.address]) as second,
        trio.open_nursery() as nursery,
    ):
        (here,) = await nursery.start(partial(trio.serve_tcp, GuestBook(first).serve, 0, host="127.0.0.1"))
        (there,) = await nursery.start(partial(trio.serve_tcp, GuestBook(second).serve, 0, host="127.0.0.1"))
        await visit(here, "Ada")
        await visit(there, "Ada")
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
