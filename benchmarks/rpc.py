"""Compare `chord.rpc` with the limits of its stack.

    python -m benchmarks.rpc [--seconds S] [--rounds N] [--json]

A second process runs four servers on loopback. This process calls them in turn, so that a slow moment of the machine
affects all of them. Each call is a `Get` with a reply of 100 bytes of value. The servers are:

- raw: the fastest echo of as many bytes that can be written on Trio. It has no codec, and it bypasses Trio's streams:
  it waits with `wait_readable`, and calls `os.read` and `os.write`. It is the limit for one call at a time.
- stream: the same echo through Trio's `SocketStream`, as most programs would write it. It shows what bypassing saves.
- tuned: a plain RPC with a codec of its own choice, the fastest strict one (`benchmarks/plain_rpc.py`). It lacks the
  limits, deadlines and errors of a node. It is the limit for many calls at a time.
- rpc: the complete `chord.rpc`.

Bars (required figures): with one call at a time, rpc has at least 0.55 of the rate of raw. With 64 calls in flight, it
has at least 0.70 of the rate of tuned. The second bar means something only if tuned has 5 times the rate of raw, which
is another bar. A ratio is the median of the ratios within a round. The exit code is 1 if a bar is missed. With --json
the output is one JSON object per line, bars included.

With one call at a time, both processes share one processor, if the system supports that. On two processors, the figure
would mostly be the time in which an idle processor wakes up. With 64 in flight, each process has its own processor, if
there are two.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import trio

from benchmarks.bars import Rows, bar, positive, run_parts
from benchmarks.plain_rpc import READ_BYTES, Answer, Call, Connection, Writer
from chord.config import Limits
from chord.events import ignore
from chord.ids import Circle, Point
from chord.net.calls import Caller
from chord.net.transport import TcpTransport
from chord.rpc import Rpc
from chord.wire.codec import Codec
from chord.wire.messages import Contact, Get, GetReply, Hello, Reply, Request

CIRCLE = Circle(160)
CODEC = Codec(CIRCLE)
VNODE = CIRCLE.hash(b"127.0.0.1:9000")
QUESTION = Get(b"user:42")
ANSWER = GetReply((b"v" * 100,), b"c" * 24, Contact(VNODE, "127.0.0.1:9000"))
OWNER = VNODE.to_bytes(CIRCLE.width, "big") + b"127.0.0.1:9000"
ECHO_BYTES = len(CODEC.encode_reply(1000, ANSWER))
IN_FLIGHT = 64
PERCENTILES = (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))
RAW_SHARE_MIN, TUNED_SHARE_MIN = 0.55, 0.70
TUNED_OVER_RAW_MIN = 5.0

MakeCall = Callable[[], Awaitable[Any]]


# -- the server process -----------------------------------------------------------------------


async def serve_raw(stream: trio.SocketStream) -> None:
    """Serve the raw echo: send all received bytes back."""
    fd = stream.socket.fileno()
    while True:
        await trio.lowlevel.wait_readable(fd)
        data = os.read(fd, READ_BYTES)
        if not data:
            return
        os.write(fd, data)


async def serve_stream(stream: trio.SocketStream) -> None:
    """Serve the echo through Trio's stream: send all received bytes back."""
    async for data in stream:
        await stream.send_all(data)


async def serve_tuned(stream: trio.SocketStream) -> None:
    """Serve the plain RPC, always with the same value."""

    def on_call(call: Call, _: Connection) -> Answer:
        return Answer(call.call_id, ANSWER.values[0], ANSWER.context, OWNER)

    await Connection(stream, Writer()).serve(on_call)


def answer(vnode: Point | None, request: Request, caller: Caller) -> Reply:
    """Answer a call of the rpc server, always with the same value."""
    return ANSWER


def make_rpc(role: str, address: str) -> Rpc:
    """Return an `Rpc` with a minimal handshake.

    Args:
        role: "node" or "client".
        address: the address in the handshake.
    """

    def hello(stream: Any) -> Hello:
        return Hello(1, 1, role, stream, bits=CIRCLE.bits, address=address)  # type: ignore[arg-type]

    return Rpc(TcpTransport(), circle=CIRCLE, limits=Limits(), hello=hello, on_hello=lambda _: None, observe=ignore)


async def serve() -> None:
    """Run the servers until standard input ends.

    They first print their addresses. For each line on standard input, they print their processor time so far, in
    seconds.
    """
    rpc = make_rpc("node", "server")
    rpc.serve(answer)
    async with trio.open_nursery() as nursery:
        addresses = []
        for handler in (serve_raw, serve_stream, serve_tuned):
            listeners = await nursery.start(trio.serve_tcp, handler, 0)
            addresses.append(f"127.0.0.1:{listeners[0].socket.getsockname()[1]}")
        addresses.append(await nursery.start(rpc.run, "127.0.0.1:0"))
        print(json.dumps(addresses), flush=True)
        async for _ in trio.lowlevel.FdStream(os.dup(0)):
            print(time.process_time(), flush=True)
        nursery.cancel_scope.cancel()


# -- the client process -----------------------------------------------------------------------


def raw_call(stream: trio.SocketStream) -> MakeCall:
    """Return a function that sends bytes to the raw echo and waits for them."""
    payload, fd = b"r" * ECHO_BYTES, stream.socket.fileno()

    async def call() -> None:
        os.write(fd, payload)
        left = ECHO_BYTES
        while left:
            await trio.lowlevel.wait_readable(fd)
            left -= len(os.read(fd, READ_BYTES))

    return call


def stream_call(stream: trio.SocketStream) -> MakeCall:
    """Return a function that does the same through Trio's stream."""
    payload = b"r" * ECHO_BYTES

    async def call() -> None:
        await stream.send_all(payload)
        left = ECHO_BYTES
        while left:
            left -= len(await stream.receive_some(READ_BYTES))

    return call


class Measurement(NamedTuple):
    """The figures of one server (raw, stream, tuned or rpc) in one round.

    Attributes:
        ops_per_s: calls per second.
        cpu_us_per_op: processor time of both processes per call, in µs.
        latencies: in seconds.
        concurrency: the number of calls in flight.
    """

    ops_per_s: float
    cpu_us_per_op: float
    latencies: list[float]
    concurrency: int

    @property
    def rate(self) -> float:
        """The rate that ratios use: calls in flight, divided by the median latency.

        On a busy machine a process waits for its turn, and calls per second would include these waits.
        """
        return self.concurrency / statistics.median(self.latencies)


async def measure(call: MakeCall, concurrency: int, seconds: float, server_cpu: Callable[[], float]) -> Measurement:
    """Measure calls that `concurrency` tasks make as fast as possible.

    Args:
        call: makes one call.
        seconds: the duration.
        server_cpu: returns the processor time of the servers, in seconds.
    """
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def worker() -> None:
        before = time.perf_counter()
        while before < end:
            await call()
            now = time.perf_counter()
            latencies.append(now - before)
            before = now

    cpu, started = time.process_time() + server_cpu(), time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(concurrency):
            nursery.start_soon(worker)
    took = time.perf_counter() - started
    cpu = time.process_time() + server_cpu() - cpu
    return Measurement(len(latencies) / took, cpu / len(latencies) * 1e6, latencies, concurrency)


Results = dict[tuple[str, int], list[Measurement]]


def place(server_pid: int, client: int, server: int) -> None:
    """Bind this process and the server process to one processor each.

    Args:
        client: the processor of this process.
        server: the processor of the server process.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {client})
        os.sched_setaffinity(server_pid, {server})


async def ask(
    addresses: list[str], server_pid: int, server_cpu: Callable[[], float], seconds: float, rounds: int
) -> Results:
    """Measure the servers in turn, `rounds` times.

    Args:
        addresses: the servers: raw, stream, tuned, rpc.
        server_pid: the process of all servers.
        server_cpu: returns their processor time, in seconds.
        seconds: the duration of one measurement.

    Returns:
        the measurements by server and number of calls in flight.
    """
    processors = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    raw_address, stream_address, tuned_address, rpc_address = addresses
    transport = TcpTransport()
    rpc = make_rpc("client", "")
    results: Results = {}
    async with trio.open_nursery() as nursery:
        await nursery.start(rpc.run, None)
        writer = Writer()
        tuned = Connection(await transport.open_stream(tuned_address), writer)
        nursery.start_soon(tuned.read_answers)
        nursery.start_soon(writer.run)
        to = Contact(VNODE, rpc_address)

        async def ask_tuned() -> None:
            await tuned.call(QUESTION.key)

        plan: list[tuple[str, int, MakeCall]] = [
            ("raw", 1, raw_call(await transport.open_stream(raw_address))),
            ("stream", 1, stream_call(await transport.open_stream(stream_address))),
            ("tuned", 1, ask_tuned),
            ("rpc", 1, lambda: rpc.call(to, QUESTION, deadline=trio.current_time() + 5)),
            ("tuned", IN_FLIGHT, ask_tuned),
            ("rpc", IN_FLIGHT, lambda: rpc.call(to, QUESTION, deadline=trio.current_time() + 5)),
        ]
        for number in range(rounds + 1):
            for system, concurrency, call in plan:
                place(server_pid, processors[0], processors[0 if concurrency == 1 else -1])
                one = await measure(call, concurrency, seconds if number else 0.1, server_cpu)
                if number:  # the first round only warms up
                    results.setdefault((system, concurrency), []).append(one)
        nursery.cancel_scope.cancel()
    return results


# -- the verdict ------------------------------------------------------------------------------


def rows(results: Results) -> Rows:
    """Return one row per server and number of calls in flight.

    A row has medians over the rounds, and percentiles over all calls.
    """
    out = []
    for (system, concurrency), rounds in results.items():
        ranked = sorted(latency for one in rounds for latency in one.latencies)
        cut = {name: ranked[int(len(ranked) * share)] * 1e3 for name, share in PERCENTILES}
        out.append(
            {
                "system": system,
                "nodes": 2,
                "op": "get 100 B" if system in ("tuned", "rpc") else f"echo {ECHO_BYTES} B",
                "concurrency": concurrency,
                "ops_per_s": round(statistics.median(one.ops_per_s for one in rounds)),
                **{f"{name}_ms": round(value, 4) for name, value in cut.items()},
                "errors": 0,
                "cpu_us_per_op": round(statistics.median(one.cpu_us_per_op for one in rounds), 1),
            }
        )
    return out


def bars(results: Results) -> Rows:
    """Return the bars: the ratios of rates, rpc over raw and rpc over tuned.

    The ratio to the echo through a stream has no bar.
    """

    def ratio(above: tuple[str, int], below: tuple[str, int]) -> float:
        return statistics.median(a.rate / b.rate for a, b in zip(results[above], results[below], strict=True))

    sequential = ratio(("rpc", 1), ("raw", 1))
    through_stream = ratio(("rpc", 1), ("stream", 1))
    pipelined = ratio(("rpc", IN_FLIGHT), ("tuned", IN_FLIGHT))
    tuned = ratio(("tuned", IN_FLIGHT), ("raw", 1))
    return [
        {"op": "rpc / stream, one call at a time", "ratio": round(through_stream, 3)},
        bar("rpc / raw, one call at a time", sequential, at_least=RAW_SHARE_MIN),
        bar(f"rpc / tuned, {IN_FLIGHT} in flight", pipelined, at_least=TUNED_SHARE_MIN),
        bar(f"tuned, {IN_FLIGHT} in flight / raw, one call at a time: whether tuned is a limit", tuned,
            at_least=TUNED_OVER_RAW_MIN),
    ]  # fmt: skip


def calls(args: argparse.Namespace) -> Rows:
    """Start the servers in another process, measure them, and return the rows."""
    command = [sys.executable, "-m", "benchmarks.rpc", "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        stdin, stdout = server.stdin, server.stdout

        def server_cpu() -> float:
            stdin.write("\n")
            return float(stdout.readline())

        results = trio.run(ask, json.loads(stdout.readline()), server.pid, server_cpu, args.seconds, args.rounds)
        stdin.close()
    return [*rows(results), *bars(results)]


def main() -> int:
    """Run the benchmark, or with `--serve` its servers."""
    if sys.argv[1:] == ["--serve"]:
        trio.run(serve)
        return 0
    return run_parts(
        __doc__,
        {"calls": calls},
        {"flag": "--seconds", "type": float, "default": 0.5, "help": "seconds per system and round (default 0.5)"},
        {"flag": "--rounds", "type": positive, "default": 7, "help": "turns of each system (default 7)"},
    )


if __name__ == "__main__":
    sys.exit(main())
