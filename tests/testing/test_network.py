"""The in-memory network: one conformance suite with TCP, and the faults that only it can inject."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, check_half_closeable_stream

from chord.errors import PeerUnreachable
from chord.net.transport import TcpTransport, Transport
from chord.testing import MemoryNetwork, MemoryTransport, Stuck, VirtualClock, exponential, lossy, run, uniform
from chord.testing.network import BACKLOG_MAX
from tests.support.clocks import on_loopback
from tests.support.ports import Ports

Pair = tuple[trio.abc.HalfCloseableStream, trio.abc.HalfCloseableStream]


async def pair_over(dialler: Transport, acceptor: Transport, address: str) -> Pair:
    """Open a stream and return its dialled and its accepted end."""
    listener = await acceptor.open_listener(address)
    dialled = await dialler.open_stream(listener.address)
    accepted = await listener.accept()
    await listener.aclose()
    return dialled, accepted


async def clog(stream: trio.abc.HalfCloseableStream) -> None:
    """Send until the stream takes no more bytes."""
    with trio.move_on_after(0.2):
        while True:
            await stream.send_all(bytes(1 << 16))


# -- TCP and memory ----------------------------------------------------------------------------------


class Place:
    """The environment of a test: a transport for each side, and an address for the listener."""

    def __init__(self, name: str, ports: Ports) -> None:
        self.name = name
        self.dialler: Transport = TcpTransport()
        self.acceptor: Transport = TcpTransport()
        self.address = "127.0.0.1:0"
        self.held = ports.address()
        if name == "memory":
            network = MemoryNetwork(1)
            self.dialler, self.acceptor = network.transport("a"), network.transport("b")
            self.address, self.held = "b:0", "b:7"

    async def pair(self) -> Pair:
        return await pair_over(self.dialler, self.acceptor, self.address)


def everywhere(test: Callable[[Place], Awaitable[None]]) -> Callable[[str, Ports], None]:
    """Run a test of the suite on TCP, and in memory on virtual time and under Trio's mock clock."""

    @pytest.mark.parametrize("where", ["tcp", "memory", "memory-mockclock"])
    def on(where: str, ports: Ports) -> None:
        if where == "tcp":
            on_loopback(test)(Place("tcp", ports))
        elif where == "memory":
            run(test, Place("memory", ports))
        else:
            trio.run(test, Place("memory", ports), clock=MockClock(autojump_threshold=0))

    on.__doc__ = test.__doc__
    return on


@everywhere
async def test_streams_pass_the_checks_of_trio(place: Place) -> None:
    async def clogged() -> Pair:
        pair = await place.pair()
        for end in pair:
            await clog(end)
        return pair

    # A TCP window opens only after many reads, and Trio's check of clogged streams does not wait for that.
    await check_half_closeable_stream(place.pair, clogged if place.name == "memory" else None)


@everywhere
async def test_listener_at_port_0_has_the_address_of_a_free_port(place: Place) -> None:
    one = await place.acceptor.open_listener(place.address)
    two = await place.acceptor.open_listener(place.address)
    assert one.address != two.address
    assert not one.address.endswith(":0")
    stream = await place.dialler.open_stream(two.address)
    accepted = await two.accept()
    await stream.send_all(b"x")
    assert await accepted.receive_some() == b"x"
    for thing in (one, two, stream, accepted):
        await thing.aclose()


@everywhere
async def test_listener_at_a_used_address_is_an_os_error(place: Place) -> None:
    listener = await place.acceptor.open_listener(place.held)
    with pytest.raises(OSError):
        await place.acceptor.open_listener(listener.address)
    await listener.aclose()
    again = await place.acceptor.open_listener(listener.address)
    await again.aclose()


@everywhere
async def test_dial_of_an_address_without_a_listener_is_refused(place: Place) -> None:
    listener = await place.acceptor.open_listener(place.held)
    await listener.aclose()
    with pytest.raises(PeerUnreachable, match="refused"):
        await place.dialler.open_stream(listener.address)


@everywhere
async def test_close_of_a_listener_wakes_its_accept(place: Place) -> None:
    listener = await place.acceptor.open_listener(place.address)

    async def accept() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await listener.accept()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        await trio.sleep(0.01)
        await listener.aclose()


@everywhere
async def test_bytes_arrive_whole_and_in_order(place: Place) -> None:
    dialled, accepted = await place.pair()
    sent = bytes(range(256)) * 2048
    received = bytearray()

    async def send() -> None:
        for start in range(0, len(sent), 70_000):
            await dialled.send_all(sent[start : start + 70_000])
        await dialled.send_eof()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        while data := await accepted.receive_some(10_000):
            assert len(data) <= 10_000
            received += data
    assert bytes(received) == sent
    await accepted.send_all(b"the other way is open")
    assert await dialled.receive_some() == b"the other way is open"
    await dialled.aclose()
    await accepted.aclose()


@everywhere
async def test_send_waits_for_a_peer_that_does_not_read(place: Place) -> None:
    dialled, accepted = await place.pair()
    with trio.move_on_after(0.2) as scope:
        await dialled.send_all(bytes(64 << 20))
    assert scope.cancelled_caught
    await dialled.aclose()
    await accepted.aclose()


@everywhere
async def test_bytes_sent_before_a_close_arrive(place: Place) -> None:
    dialled, accepted = await place.pair()
    await dialled.send_all(b"goodbye")
    await dialled.aclose()
    assert await accepted.receive_some() == b"goodbye"
    assert await accepted.receive_some() == b""
    await accepted.aclose()


# -- only in memory ------------------------------------------------------------------------------------


def in_memory(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test on virtual time."""

    def on() -> None:
        run(test)

    on.__doc__ = test.__doc__
    return on


@asynccontextmanager
async def two_hosts(**options: object) -> AsyncIterator[tuple[MemoryNetwork, MemoryTransport, MemoryTransport, Pair]]:
    network = MemoryNetwork(1, **options)  # type: ignore[arg-type]
    a, b = network.transport("a"), network.transport("b")
    pair = await pair_over(a, b, "b:1")
    yield network, a, b, pair
    assert network.check() == []
    for end in pair:
        await trio.aclose_forcefully(end)


@in_memory
async def test_window_bounds_the_bytes_under_way() -> None:
    async with two_hosts(window_bytes=4096) as (_, _, _, (dialled, accepted)):
        with trio.move_on_after(1) as scope:
            await dialled.send_all(bytes(4096))
            await dialled.send_all(b"x")
        assert scope.cancelled_caught
        assert len(await accepted.receive_some()) == 4096
        await dialled.send_all(b"y")


@in_memory
async def test_message_arrives_after_its_delay_on_the_quantum() -> None:
    async with two_hosts(delay=uniform(0.010, 0.020), quantum_s=0.001) as (_, _, _, (dialled, accepted)):
        for _ in range(20):
            began = trio.current_time()
            await dialled.send_all(b"x")
            assert trio.current_time() == began
            await accepted.receive_some()
            now = trio.current_time()
            assert 0.010 <= now - began <= 0.021
            assert abs(now * 1000 - round(now * 1000)) < 1e-6


@in_memory
async def test_messages_arrive_in_the_order_of_sending() -> None:
    async with two_hosts(delay=lossy(exponential(0.05), 0.3)) as (_, _, _, (dialled, accepted)):
        for number in range(100):
            await dialled.send_all(bytes([number]))
        received = b""
        while len(received) < 100:
            received += await accepted.receive_some()
        assert received == bytes(range(100))


@in_memory
async def test_cut_breaks_sends_and_reads_until_it_heals() -> None:
    async with two_hosts() as (network, a, b, (dialled, accepted)):
        listener = await b.open_listener("b:1")
        await dialled.send_all(b"lost")
        network.cut("a", "b")
        for end in (dialled, accepted):
            with pytest.raises(trio.BrokenResourceError):
                await end.send_all(b"x")
            with pytest.raises(trio.BrokenResourceError):
                await end.receive_some()
        with pytest.raises(PeerUnreachable, match="no route"):
            await a.open_stream("b:1")
        network.heal()
        stream = await a.open_stream("b:1")
        await trio.aclose_forcefully(stream)
        await listener.aclose()


@in_memory
async def test_cut_wakes_waiting_sends_and_reads() -> None:
    async with two_hosts(window_bytes=4096) as (network, _, _, (dialled, _accepted)):

        async def send() -> None:
            with pytest.raises(trio.BrokenResourceError):
                await dialled.send_all(bytes(5000))

        async def receive() -> None:
            with pytest.raises(trio.BrokenResourceError):
                await dialled.receive_some()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            nursery.start_soon(receive)
            await trio.sleep(1)
            network.cut("a", "b")


@in_memory
async def test_block_stalls_one_direction_and_delivers_when_lifted() -> None:
    async with two_hosts() as (network, a, _, (dialled, accepted)):
        network.block("a", "b")
        await dialled.send_all(b"one ")
        await trio.sleep(1)
        await dialled.send_all(b"two")
        await accepted.send_all(b"the other way")
        assert await dialled.receive_some() == b"the other way"
        with trio.move_on_after(5) as scope:
            await accepted.receive_some()
        assert scope.cancelled_caught
        with trio.move_on_after(5) as scope:
            await a.open_stream("b:1")
        assert scope.cancelled_caught, "dials stall, too, until the caller's deadline"
        network.unblock("a", "b")
        await trio.sleep(1)
        assert await accepted.receive_some() == b"one two"


@in_memory
async def test_stalled_dial_continues_after_a_heal() -> None:
    network = MemoryNetwork(1)
    a, b = network.transport("a"), network.transport("b")
    listener = await b.open_listener("b:1")
    network.partition(["a"], ["b"])

    async def heal_soon() -> None:
        await trio.sleep(3)
        network.heal()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(heal_soon)
        stream = await a.open_stream("b:1")
        assert trio.current_time() > 3
        await trio.aclose_forcefully(stream)
    await listener.aclose()


@pytest.mark.parametrize("is_cut", [False, True])
def test_partition_separates_only_its_groups(is_cut: bool) -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        hosts = {name: network.transport(name) for name in "abcd"}
        inside = await pair_over(hosts["a"], hosts["b"], "b:1")
        across = await pair_over(hosts["a"], hosts["c"], "c:1")
        unnamed = await pair_over(hosts["c"], hosts["d"], "d:1")
        network.partition(["a", "b"], reset=is_cut)
        for one, other in (inside, unnamed):
            await one.send_all(b"x")
            assert await other.receive_some() == b"x"
        one, other = across
        if is_cut:
            with pytest.raises(trio.BrokenResourceError):
                await one.send_all(b"x")
        else:
            await one.send_all(b"x")
            with trio.move_on_after(10) as scope:
                await other.receive_some()
            assert scope.cancelled_caught
            network.heal()
            assert await other.receive_some() == b"x"

    run(main)


@in_memory
async def test_frozen_host_receives_everything_afterwards() -> None:
    async with two_hosts() as (network, _, _, (dialled, accepted)):
        await accepted.send_all(b"before")
        network.freeze("b")
        await dialled.send_all(b"x")
        with trio.move_on_after(60) as scope:
            await dialled.receive_some()
        assert scope.cancelled_caught, "the bytes that it sent just before are held up, too"
        network.heal()
        network.unfreeze("b")
        assert await accepted.receive_some() == b"x"
        assert await dialled.receive_some() == b"before"


@in_memory
async def test_crash_delivers_sent_bytes_then_resets_and_refuses() -> None:
    async with two_hosts() as (network, a, b, (dialled, accepted)):
        await b.open_listener("b:2")
        await accepted.send_all(b"last words")
        network.crash("b")
        with pytest.raises(trio.BrokenResourceError):
            await accepted.send_all(b"clean-up after death")
        with pytest.raises(PeerUnreachable, match="crashed"):
            await b.open_stream("a:1")
        with pytest.raises(OSError):
            await b.open_listener("b:3")
        assert await dialled.receive_some() == b"last words"
        with pytest.raises(trio.BrokenResourceError):
            await dialled.receive_some()
        with pytest.raises(trio.BrokenResourceError):
            await dialled.send_all(b"x")
        with pytest.raises(PeerUnreachable, match="refused"):
            await a.open_stream("b:2")
        again = network.transport("b")
        listener = await again.open_listener("b:2")
        stream = await a.open_stream("b:2")
        await trio.aclose_forcefully(stream)
        await listener.aclose()


@in_memory
async def test_silent_crash_leaves_half_open_streams_until_a_return() -> None:
    async with two_hosts() as (network, a, _, (dialled, accepted)):
        network.crash("b", silently=True)
        await dialled.send_all(b"into the void")
        for wait in (dialled.receive_some, lambda: a.open_stream("b:1")):
            with trio.move_on_after(10) as scope:
                await wait()
            assert scope.cancelled_caught
        with pytest.raises(trio.BrokenResourceError):
            await accepted.receive_some()
        network.transport("b")
        with pytest.raises(trio.BrokenResourceError):
            await dialled.receive_some()
        with pytest.raises(PeerUnreachable, match="refused"):
            await a.open_stream("b:1")


@in_memory
async def test_dial_beyond_the_backlog_is_refused() -> None:
    network = MemoryNetwork(1)
    a, b = network.transport("a"), network.transport("b")
    listener = await b.open_listener("b:1")
    streams = [await a.open_stream("b:1") for _ in range(BACKLOG_MAX)]
    with pytest.raises(PeerUnreachable, match="refused"):
        await a.open_stream("b:1")
    await listener.aclose()
    with pytest.raises(trio.BrokenResourceError):
        await streams[0].receive_some()
    assert network.connections == 0


@in_memory
async def test_dial_of_an_unknown_host_names_the_reason() -> None:
    network = MemoryNetwork(1)
    with pytest.raises(PeerUnreachable, match="no such host"):
        await network.transport("a").open_stream("nowhere:1")


@in_memory
async def test_cancelled_dial_leaves_no_connection() -> None:
    network = MemoryNetwork(1, delay=uniform(1, 1))
    a, b = network.transport("a"), network.transport("b")
    listener = await b.open_listener("b:1")
    with trio.move_on_after(1.5) as scope:
        await a.open_stream("b:1")
    assert scope.cancelled_caught
    assert network.connections == 0
    accepted = await listener.accept()
    with pytest.raises(trio.BrokenResourceError):
        await accepted.receive_some()


@in_memory
async def test_closed_streams_do_not_count_as_connections() -> None:
    async with two_hosts() as (network, _, _, pair):
        assert network.connections == 1
        for end in pair:
            await end.aclose()
        assert network.connections == 0


@in_memory
async def test_check_finds_a_planted_miscount() -> None:
    network = MemoryNetwork(1)
    connection = network._connect("a", "b")
    connection.pipes[0].unread = 5
    assert network.check() == ["a to b: 0 bytes under way, 5 counted"]
    connection.pipes[0].unread = 0
    connection.pipes[0].flying.extend([(2.0, b""), (1.0, b"")])
    assert network.check() == ["a to b: out of order"]


@in_memory
async def test_hosts_that_send_before_they_read_deadlock() -> None:
    """The network has real back-pressure, so hosts that read only after sending deadlock."""
    async with two_hosts(window_bytes=4096) as (_, _, _, (dialled, accepted)):

        async def send_then_read(end: trio.abc.HalfCloseableStream) -> None:
            await end.send_all(bytes(10_000))
            await end.receive_some()

        with trio.move_on_after(60) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send_then_read, dialled)
                nursery.start_soon(send_then_read, accepted)
        assert scope.cancelled_caught


def test_run_with_only_waiting_tasks_raises_stuck() -> None:
    async def wait_for_each_other() -> None:
        event = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(event.wait)
            nursery.start_soon(event.wait)

    with pytest.raises(Stuck):
        run(wait_for_each_other)


def test_error_of_the_virtual_clock_ends_the_run_and_its_tasks() -> None:
    """An error in Trio's scheduler would leave all tasks unfinished, with warnings when they are collected."""
    ended: list[str] = []

    class Failing:
        def next_due(self) -> float:
            return 1.0

        def advance(self, now: float) -> None:
            raise ZeroDivisionError("planted")

    async def wait(name: str) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(name)

    async def main() -> None:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, VirtualClock)
        clock._attach(Failing())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, "a")
            nursery.start_soon(wait, "b")

    with pytest.raises(ZeroDivisionError, match="planted"):
        run(main)
    assert sorted(ended) == ["a", "b"]
