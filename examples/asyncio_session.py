"""A session with a ring from an asyncio program.

Start a ring with `chord up -n 8`. Then run `python examples/asyncio_session.py 127.0.0.1:9000` in another terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

import chord

NO_TIME_S = 0.0001  # no node answers within this time


async def main(address: str) -> None:
    """Write, read, share one client among tasks, and cancel an operation."""
    async with chord.open_asyncio_client(address, timeout_s=5.0) as client:
        await client.put("user:42", "Ada")
        print("user:42 is", (await client.get("user:42")).text)
        print("user:43 is", "there" if await client.contains("user:43") else "not there")

        # Any number of tasks share the client and its connections.
        stored = await asyncio.gather(*(client.put(f"word:{i}", str(i)) for i in range(100)))
        print(len(stored), "tasks stored", len({one.key for one in stored}), "keys")

        # Close a scan that ends early.
        async with contextlib.aclosing(client.scan()) as pairs:
            words = [pair.key async for pair in pairs if pair.key.startswith(b"word:")]
        print("scanned", len(words), "keys")

        # A timeout cancels the operation. The client stays usable.
        try:
            async with asyncio.timeout(NO_TIME_S):
                await client.get("user:42")
        except TimeoutError:
            print("no answer in time")
        await client.delete("user:42")


if __name__ == "__main__":
    asyncio.run(main(*(sys.argv[1:] or ["127.0.0.1:9000"])))
