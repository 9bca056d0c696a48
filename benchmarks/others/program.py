"""A client or a node of a compared system as a program that speaks JSON lines.

The runner (`python -m benchmarks.others`) starts it in that system's environment. It therefore imports nothing but the
standard library, the loop, and that system. Its first line on standard output says that it is ready. A client then
answers each line on standard input with the result of one batch of operations. Both end when their standard input does,
so that no process is left behind when the runner is killed.
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
    """Write one JSON line to standard output, for the process that measures.

    Args:
        what: the fields of the object.
    """
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def answer(engine: Engine, client: Client, line: bytes) -> None:
    """Run the batch of operations that the runner asks for, and write its result.

    Args:
        engine: the asynchronous framework.
        client: makes the operations.
        line: the runner's request, in JSON.
    """
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
    """Run a client on asyncio: say that it is ready, then make the requested batches.

    The requests are lines of standard input. The function returns when it ends.
    """
    reader = await _standard_input()
    say(ready=True)
    while line := await reader.readline():
        await answer(OnAsyncio(), client, line)


async def serve_on_trio(client: Client) -> None:
    """Run a client on Trio: say that it is ready, then make the requested batches.

    The requests are lines of standard input. The function returns when it ends.
    """
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
    """Say that a node on asyncio is ready, and wait until standard input ends.

    Args:
        ready: the fields of the ready line, such as the node's address.
    """
    reader = await _standard_input()
    say(ready=True, **ready)
    while await reader.readline():
        pass


async def until_input_ends_on_trio(**ready: Any) -> None:
    """Say that a node on Trio is ready, and wait until standard input ends.

    Args:
        ready: the fields of the ready line, such as the node's address.
    """
    import trio

    say(ready=True, **ready)
    async with trio.lowlevel.FdStream(os.dup(0)) as stream:
        async for _ in stream:
            pass


def main(roles: dict[str, Callable[[list[str]], Awaitable[None]]], run: Callable[..., Any] | None = None) -> None:
    """Run the role that the first command-line argument names, and end the process.

    Args:
        roles: the functions of the roles, by name. A function gets the remaining arguments.
        run: runs an asynchronous function; None: asyncio.
    """
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
