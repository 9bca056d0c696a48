"""A client or a node of another system as a program of its own: JSON lines on standard input and output.

It runs in that system's environment, so it imports nothing but the standard library, the loop, and that system. Its
first line says that it is ready; a client then answers each line with one batch. Both end when their standard input
does, so that no process is left behind when the runner is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.others.loop import Client, Engine, OnAsyncio, OnTrio, run_batch

LINE_BYTES_MAX = 1 << 24


def say(**what: Any) -> None:
    """Write one line to the runner."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def answer(engine: Engine, client: Client, line: bytes) -> None:
    """Run the batch of a line, and write its result."""
    asked = json.loads(line)
    batch = await run_batch(
        engine,
        client,
        asked["op"],
        asked["keys"],
        concurrency=asked["concurrency"],
        seconds=asked["seconds"],
        deadline_s=asked["deadline_s"],
        value_bytes=asked["value_bytes"],
    )
    say(**batch.as_json())


async def serve_on_asyncio(client: Client) -> None:
    """Say that the client is ready, then answer until standard input ends."""
    reader = await _standard_input()
    say(ready=True)
    while line := await reader.readline():
        await answer(OnAsyncio(), client, line)


async def serve_on_trio(client: Client) -> None:
    """The same on Trio."""
    import trio

    say(ready=True)
    waiting = bytearray()
    async with trio.lowlevel.FdStream(os.dup(0)) as stream:
        async for data in stream:
            waiting += data
            while (end := waiting.find(b"\n")) >= 0:
                line = bytes(waiting[:end])
                del waiting[: end + 1]
                await answer(OnTrio(), client, line)


async def until_input_ends(**ready: Any) -> None:
    """Send the ready line of a node on asyncio, and return when the runner is gone."""
    reader = await _standard_input()
    say(ready=True, **ready)
    while await reader.readline():
        pass


async def until_input_ends_on_trio(**ready: Any) -> None:
    """The same on Trio."""
    import trio

    say(ready=True, **ready)
    async with trio.lowlevel.FdStream(os.dup(0)) as stream:
        async for _ in stream:
            pass


def main(roles: dict[str, Callable[[list[str]], Awaitable[None]]], run: Callable[..., Any] | None = None) -> None:
    """Run the role named by the first argument with the others."""
    role, *arguments = sys.argv[1:]
    if run is None:
        asyncio.run(roles[role](arguments))  # type: ignore[arg-type]  # asyncio wants a coroutine, which it is
    else:
        run(roles[role], arguments)
    os._exit(0)  # libraries leave threads and transports behind; the runner waits for the process, not for them


async def _standard_input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    pipe = os.fdopen(os.dup(0), "rb")
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader
