"""Calls over streams: in both directions, concurrent, with deadlines, and their choice of connection."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio

from chord.errors import (
    DeadlineExceeded,
    InvalidRequest,
    LookupFailed,
    NotFound,
    NotReady,
    OtherRing,
    PeerLost,
    PeerUnreachable,
    RemoteFailure,
)
from chord.events import ConnectionClosed, ConnectionOpened, HandlerFailed
from chord.ids import Circle, Point
from chord.net.calls import Caller
from chord.testing import MemoryNetwork, run
from chord.wire.codec import GOODBYE, FrameKind
from chord.wire.messages import Contact, Get, Lookup, Ping, PingReply, Put, Scan
from tests.support.rpc import CIRCLE, MIB, OWNER, Peer, Raw, limits, outcome, pair, running, virtual

# -- calls and answers -------------------------------------------------------------------------


@virtual
async def test_one_connection_carries_calls_in_both_directions() -> None:
    a, b = pair(MemoryNetwork())
    async with running(a, b):
        assert await a.get(b, "echo 1") == b"echo 1"
        assert await b.get(a, "echo 2") == b"echo 2"
        assert (a.rpc.open_connections, b.rpc.open_connections) == (1, 1)
        assert a.seen(ConnectionOpened) == [ConnectionOpened("b:1", "control", True)]
        assert b.seen(ConnectionOpened) == [ConnectionOpened("a:1", "control", False)]


@virtual
async def test_handler_gets_the_vnode_and_the_caller() -> None:
    network = MemoryNetwork()
    a, b = pair(network)
    client = Peer(network.transport("c"))
    async with running(a, b, client):
        await a.ping(Contact(Point(5), "b:1"))
        await a.ping("b:1")
        await client.ping("b:1")
    assert b.asked == [(Point(5), Ping(), Caller("a:1")), (None, Ping(), Caller("a:1")), (None, Ping(), Caller(""))]


@virtual
async def test_concurrent_calls_get_their_own_answers() -> None:
    a, b = pair(MemoryNetwork(delay=lambda rng, *_: rng.uniform(0.001, 0.05)))
    answers: list[bytes] = []

    async def ask(peer: Peer, other: Peer, key: str) -> None:
        assert await peer.get(other, key) == key.encode()
        answers.append(key.encode())

    async with running(a, b), trio.open_nursery() as nursery:
        for i in range(100):
            nursery.start_soon(ask, a, b, f"echo {i}")
            nursery.start_soon(ask, b, a, f"slow {(i * 37 % 100) / 100} {i}")
    assert len(answers) == 200
    assert answers != sorted(answers)


@virtual
async def test_error_arrives_with_all_its_fields() -> None:
    a, b = pair(MemoryNetwork())
    async with running(a, b):
        with pytest.raises(NotFound, match="no such key") as caught:
            await a.get(b, "no")
        assert (caught.value.peer, caught.value.after_ms) == (OWNER, 12)


@virtual
async def test_bug_in_a_handler_is_reported_and_the_node_continues() -> None:
    a, b = pair(MemoryNetwork())
    async with running(a, b):
        for key, name in (("bug", "ZeroDivisionError"), ("late bug", "KeyError")):
            with pytest.raises(RemoteFailure, match=f"Get failed: {name}"):
                await a.get(b, key)
            failed = b.seen(HandlerFailed)[-1]
            assert failed.where == "Get"
            assert name in failed.traceback
            assert "support/rpc.py" in failed.traceback
        assert await a.get(b, "echo") == b"echo"
        assert a.rpc.open_connections == 1


@pytest.mark.parametrize(
    ("raised", "received"),
    [(PeerUnreachable, LookupFailed), (PeerLost, RemoteFailure), (DeadlineExceeded, RemoteFailure)],
)
@pytest.mark.parametrize("is_late", [False, True])
def test_failure_of_a_third_node_is_not_that_of_the_peer(raised: Any, received: Any, is_late: bool) -> None:
    async def main() -> None:
        a, b = pair(MemoryNetwork())

        async def late() -> Any:
            await trio.sleep(0.01)
            raise raised("c:1 is unreachable")

        def handle(*_: Any) -> Any:
            if is_late:
                return late()
            raise raised("c:1 is unreachable")

        b.rpc.serve(handle)
        async with running(a, b):
            with pytest.raises(received, match="c:1 is unreachable"):
                await a.ping(b)

    run(main)


@virtual
async def test_call_to_a_node_without_a_handler_is_not_ready() -> None:
    network = MemoryNetwork()
    a, b = pair(network)
    b.rpc = type(b.rpc)(
        network.transport("b"), circle=CIRCLE, limits=limits(), hello=b.hello, on_hello=lambda _: None, observe=print
    )
    async with running(a, b):
        with pytest.raises(NotReady):
            await a.ping(b)


@virtual
async def test_reply_of_another_type_keeps_the_connection() -> None:
    a, b = pair(MemoryNetwork())
    b.rpc.serve(lambda *_: PingReply())
    async with running(a, b):
        with pytest.raises(Exception, match="GetReply"):
            await a.get(b, "echo")
        assert isinstance(await a.ping(b), PingReply)


@virtual
async def test_stats_count_calls_and_bytes() -> None:
    a, b = pair(MemoryNetwork())
    async with running(a, b):
        for i in range(5):
            await a.get(b, f"echo {i}")
        await b.ping(a)
        assert (a.rpc.stats.calls_sent, a.rpc.stats.calls_received) == (5, 1)
        assert (b.rpc.stats.calls_sent, b.rpc.stats.calls_received) == (1, 5)
        assert a.rpc.stats.bytes_sent == b.rpc.stats.bytes_received > 100


# -- deadlines and cancelling --------------------------------------------------------------------


@virtual
async def test_call_ends_at_its_deadline_and_ignores_a_late_answer() -> None:
    a, b = pair(MemoryNetwork())
    ended: list[tuple[str, float]] = []

    async def ask(within: float) -> None:
        with pytest.raises(DeadlineExceeded, match="no answer from b:1 within"):
            await a.get(b, "slow 3", within)
        ended.append(("late", trio.current_time()))

    async with running(a, b):
        await a.ping(b)
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            for within in (2.0, 0.5, 1.0, 0.5, 1.5):
                nursery.start_soon(ask, within)
        assert [round(at - start, 3) for _, at in ended] == [0.5, 0.5, 1.0, 1.5, 2.0]
        await trio.sleep(5)
        assert await a.get(b, "echo") == b"echo"
        assert a.rpc.open_connections == 1


@virtual
async def test_call_past_its_deadline_is_not_sent() -> None:
    a, b = pair(MemoryNetwork())
    async with running(a, b):
        await a.ping(b)
        with pytest.raises(DeadlineExceeded):
            await a.ping(b, -1.0)
        assert len(b.asked) == 1


@virtual
async def test_handler_ends_with_the_budget_of_its_call() -> None:
    a, b = pair(MemoryNetwork())
    async with running(a, b):
        await a.ping(b)
        start = trio.current_time()
        with pytest.raises(DeadlineExceeded):
            await a.get(b, "never", 1.0)
        await trio.sleep(0.1)
        assert [round(at - start, 2) for at in b.cancelled_at] == [1.0]


@virtual
async def test_enclosing_deadline_limits_the_budget_of_patient_calls() -> None:
    a, b = pair(MemoryNetwork())
    waits: list[float] = []

    async def wait() -> Any:
        waits.append(trio.current_effective_deadline() - trio.current_time())
        await trio.sleep_forever()

    b.rpc.serve(lambda vnode, request, caller: PingReply() if isinstance(request, Ping) else wait())
    async with running(a, b):
        await a.ping(b)
        for request, deadline in ((Get(b"k"), math.inf), (Lookup(Point(1)), trio.current_time() + 60)):
            with trio.move_on_after(2), trio.move_on_after(9):
                await a.rpc.call("b:1", request, deadline=deadline)
        with trio.move_on_after(7), pytest.raises(DeadlineExceeded):
            await a.rpc.call("b:1", Get(b"k"), deadline=trio.current_time() + 4)
    assert [round(left) for left in waits] == [2, 2, 4]


@virtual
async def test_call_without_a_deadline_may_take_an_hour() -> None:
    a, b = pair(MemoryNetwork())
    async with running(a, b):
        assert await a.rpc.call("b:1", Get(b"slow 3600"), deadline=math.inf)


@virtual
async def test_cancelled_call_leaves_no_state() -> None:
    a, b = pair(MemoryNetwork())
    async with running(a, b):
        await a.ping(b)
        for _ in range(20):
            with trio.move_on_after(0.0003) as scope:  # after the request is sent, before the answer arrives
                await a.get(b, "echo")
            assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(a.get, b, "slow 1")
            await trio.sleep(0.5)
            nursery.cancel_scope.cancel()
        await trio.sleep(2)
        assert await a.get(b, "echo") == b"echo"
        assert not a.rpc._links["b:1", "control"]._calls.waiting


# -- two streams -----------------------------------------------------------------------------------


@virtual
async def test_large_reply_opens_and_uses_the_bulk_stream() -> None:
    a, b = pair(MemoryNetwork())
    async with running(a, b):
        assert len(await a.get(b, f"big {MIB}")) == MIB
        assert [event.stream for event in a.seen(ConnectionOpened)] == ["control", "bulk"]
        assert await a.get(b, "big 16000") == bytes(16000)
        assert await b.get(a, f"big {MIB}") == bytes(MIB)
        assert a.rpc.open_connections == 2


@virtual
async def test_large_and_bulk_requests_use_the_bulk_stream() -> None:
    a, b = pair(MemoryNetwork())
    b.gate.set()
    async with running(a, b):
        soon = trio.current_time() + 60
        await a.rpc.call("b:1", Put(b"k", bytes(MIB), bytes(16)), deadline=soon)
        assert a.rpc.open_connections == 2
    a, b = pair(MemoryNetwork())
    async with running(a, b):
        with pytest.raises(RemoteFailure):  # these peers have no handler for scans
            await a.rpc.call("b:1", Scan(Point(1)), deadline=trio.current_time() + 5)
        assert [event.stream for event in a.seen(ConnectionOpened)] == ["bulk"]


@virtual
async def test_frame_beyond_the_bulk_limit_is_refused() -> None:
    a, b = pair(MemoryNetwork(), limits=limits(frame_bulk_bytes_max=100_000, record_bytes_max=1000))
    async with running(a, b):
        with pytest.raises(InvalidRequest, match="limit"):
            await a.rpc.call("b:1", Put(b"k", bytes(100_000), bytes(16)), deadline=math.inf)
        assert not b.asked
        with pytest.raises(InvalidRequest, match="limit"):
            await a.get(b, "big 100000")
        assert await a.get(b, "big 90000") == bytes(90_000)
        assert not b.seen(HandlerFailed)


@virtual
async def test_large_value_does_not_delay_a_ping() -> None:
    a, b = pair(MemoryNetwork(window_bytes=4096))
    async with running(a, b):
        await a.get(b, "big 20000")
        arrived: list[float] = []

        async def fetch() -> None:
            await a.get(b, f"big {MIB}", 60)
            arrived.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            await trio.sleep(0.01)
            for _ in range(20):
                before = trio.current_time()
                await a.ping(b)
                assert trio.current_time() - before < 0.003
            assert not arrived


# -- choice of connection --------------------------------------------------------------------------


@virtual
async def test_concurrent_callers_share_one_dial() -> None:
    a, b = pair(MemoryNetwork())
    async with running(a, b), trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(a.ping, b)
    assert len(a.seen(ConnectionOpened)) == 1


@virtual
async def test_cancelled_caller_does_not_end_the_dial_of_others() -> None:
    a, b = pair(MemoryNetwork(delay=lambda *_: 0.1))
    async with running(a, b), trio.open_nursery() as nursery:
        with trio.move_on_after(0.05):
            nursery.start_soon(a.ping, b)
            await a.ping(b)
    assert len(b.asked) == 1


@virtual
async def test_failed_dial_fails_all_waiting_callers() -> None:
    network = MemoryNetwork()
    a, _ = pair(network)
    outcomes: list[Any] = []
    async with running(a):
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(outcome, a.ping("b:1"), outcomes)
        assert [type(error) for error in outcomes] == [PeerUnreachable] * 5
        assert all("refused" in error.message for error in outcomes)
        assert len({id(error) for error in outcomes}) == 5
        with pytest.raises(PeerUnreachable, match="no such host"):
            await a.ping("nowhere:1")


@virtual
async def test_dial_beyond_its_deadline_is_unreachable() -> None:
    network = MemoryNetwork()
    a, b = pair(network)
    async with running(a, b):
        network.block("a", "b")
        start = trio.current_time()
        with pytest.raises(PeerUnreachable, match="no connection within the deadline"):
            await a.ping(b, 1.0)
        assert trio.current_time() - start == pytest.approx(1.0)
        with pytest.raises(PeerUnreachable, match="no connection within 5 s"):
            await a.ping(b, 60.0)
        assert trio.current_time() - start == pytest.approx(5.0)
        network.heal()
        await a.ping(b)


@pytest.mark.parametrize("seed", range(12))
def test_crossing_dials_keep_the_one_of_the_lower_address(seed: int) -> None:
    async def main() -> None:
        a, b = pair(MemoryNetwork(seed))
        async with running(a, b):
            for _ in range(3):
                async with trio.open_nursery() as nursery:
                    for _ in range(5):
                        nursery.start_soon(a.get, b, "echo")
                        nursery.start_soon(b.get, a, "echo")
                        nursery.start_soon(a.get, b, "slow 0.05")
                        nursery.start_soon(b.get, a, "slow 0.05")
            await trio.sleep(1)
            assert (a.rpc.open_connections, b.rpc.open_connections) == (1, 1)
            assert a.rpc._links["b:1", "control"].is_dialled
            assert not b.rpc._links["a:1", "control"].is_dialled
            assert {event.reason for event in a.seen(ConnectionClosed)} <= {"drained", "closed by the peer"}
        assert len(a.asked) == len(b.asked) == 30

    run(main, seed=seed)


@virtual
async def test_node_under_two_names_has_one_connection() -> None:
    class Names:
        """A network with a second name for b."""

        def __init__(self, network: MemoryNetwork) -> None:
            self.inner = network.transport("a")
            self.open_listener = self.inner.open_listener

        async def open_stream(self, address: str) -> Any:
            return await self.inner.open_stream(address.replace("alias", "b"))

    network = MemoryNetwork()
    a, b = Peer(Names(network), "a:1"), Peer(network.transport("b"), "b:1")
    async with running(a, b):
        await a.ping("alias:1")
        await a.ping("b:1")
        assert a.rpc.open_connections == 1
    a, b = Peer(Names(network), "a:2"), Peer(network.transport("b"), "b:2")
    async with running(a, b):
        await a.ping("b:2")
        await a.ping("alias:2")
        for _ in range(10):
            await a.ping("b:2")
            await a.ping("alias:2")
            await b.ping("a:2")
        await trio.sleep(1)
        assert a.rpc.open_connections == 1
        assert len(a.seen(ConnectionOpened)) == 2


@virtual
async def test_node_may_call_itself() -> None:
    a, _ = pair(MemoryNetwork())
    async with running(a):
        for _ in range(3):
            assert await a.get(a, "echo") == b"echo"
        assert len(a.seen(ConnectionOpened)) == 2  # both ends


@virtual
async def test_broken_connection_loses_its_calls_and_is_dialled_again() -> None:
    network = MemoryNetwork()
    a, b = pair(network)
    outcomes: list[Any] = []
    async with running(a) as nursery:
        await nursery.start(b.run)
        async with trio.open_nursery() as asking:
            for _ in range(3):
                asking.start_soon(outcome, a.get(b, "never", 60), outcomes)
            await trio.sleep(1)
            b.scope.cancel()
        assert [type(error) for error in outcomes] == [PeerLost] * 3
        assert "closed by the peer" in outcomes[0].message
        with pytest.raises(PeerUnreachable, match="refused"):
            await a.ping("b:1")
        again = Peer(network.transport("b"), "b:1")
        await nursery.start(again.run)
        assert await a.get("b:1", "echo") == b"echo"


@virtual
async def test_reset_loses_the_calls_of_a_connection() -> None:
    network = MemoryNetwork()
    a, b = pair(network)
    outcomes: list[Any] = []
    async with running(a, b), trio.open_nursery() as nursery:
        nursery.start_soon(outcome, a.get(b, "never", 60), outcomes)
        await trio.sleep(1)
        network.cut("a", "b")
    assert isinstance(outcomes[0], PeerLost)


@virtual
async def test_call_uses_the_newer_connection_of_a_restarted_peer() -> None:
    network = MemoryNetwork()
    a, b = pair(network)
    async with running(a) as nursery:
        await nursery.start(b.run)
        await a.ping(b)
        await trio.sleep(10)
        b.scope.cancel()
        network.crash("b", silently=True)  # its streams seem open
        again = Peer(network.transport("b"), "b:1")
        await nursery.start(again.run)
        await again.ping(a)
        assert await a.get("b:1", "echo") == b"echo"
        assert again.asked


@virtual
async def test_call_before_or_after_the_run_is_unreachable() -> None:
    a, b = pair(MemoryNetwork())
    with pytest.raises(PeerUnreachable, match="not running"):
        await a.ping("b:1")
    async with running(a, b):
        await a.ping(b)
    with pytest.raises(PeerUnreachable, match="not running"):
        await a.ping("b:1")


# -- clients -----------------------------------------------------------------------------------------


@virtual
async def test_client_learns_the_circle_from_its_first_node() -> None:
    network = MemoryNetwork()
    wide, narrow = Peer(network.transport("w"), "w:1"), Peer(network.transport("n"), "n:1", circle=Circle(8))
    client = Peer(network.transport("c"), circle=None)
    assert client.rpc.circle is None
    async with running(wide, narrow, client):
        assert await client.get(Contact(Point(80), "n:1"), "echo") == b"echo"
        assert client.rpc.circle == Circle(8)
        assert narrow.asked[0][0] == 80
        with pytest.raises(OtherRing, match="ids have 8 bits here and 160 there"):
            await client.ping("w:1")


@virtual
async def test_node_keeps_no_connection_for_calls_to_a_client() -> None:
    network = MemoryNetwork()
    node, client = Peer(network.transport("n"), "n:1"), Peer(network.transport("c"))
    async with running(node, client):
        await client.ping(node)
        assert not node.rpc._links
        assert node.rpc.open_connections == 1


# -- closing -----------------------------------------------------------------------------------------


@virtual
async def test_idle_connection_is_closed_and_dialled_again() -> None:
    a, b = pair(MemoryNetwork(), limits=limits(idle_s=10.0))
    async with running(a, b):
        await a.ping(b)
        await trio.sleep(9)
        assert a.rpc.open_connections == 1
        await trio.sleep(12)
        assert (a.rpc.open_connections, b.rpc.open_connections) == (0, 0)
        await a.ping(b)
        await a.get(b, "slow 30", 60)  # a waiting call keeps the connection
        assert len(a.seen(ConnectionOpened)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_close_of_an_idle_connection_loses_no_call(seed: int) -> None:
    async def main() -> None:
        a, b = pair(MemoryNetwork(seed), limits=limits(idle_s=1.0))
        async with running(a, b):
            for i in range(40):  # calls at the moment when the connection is about to close
                asker, asked = (a, b) if i % 2 else (b, a)
                assert await asker.get(asked, "echo") == b"echo"
                await trio.sleep(0.9985 + (i % 7) * 0.0005 if i % 3 else 1.9985 + (i % 7) * 0.0005)
            assert len(a.seen(ConnectionOpened)) > 3

    run(main, seed=seed)


@virtual
async def test_connection_after_a_goodbye_closes_without_pending_calls() -> None:
    network = MemoryNetwork()
    a, _ = pair(network)
    async with running(a):
        raw = await Raw.dial(network.transport("r"), a, role="node", address="r:1", bits=160)
        async with trio.open_nursery() as nursery:
            outcomes: list[Any] = []
            nursery.start_soon(outcome, a.get("r:1", "k"), outcomes)
            assert (await raw.receive())[0] is FrameKind.CALL
            await raw.send(GOODBYE)
            assert (await raw.receive())[0] is FrameKind.CAST
            with pytest.raises(PeerUnreachable, match=r"refused|no such host"):
                await a.ping("r:1")  # new calls do not use this stream
            assert a.rpc.open_connections == 1
            nursery.cancel_scope.cancel()
        await trio.sleep(30)
        assert a.rpc.open_connections == 0


@virtual
async def test_stopping_node_refuses_connections_and_ends_its_work() -> None:
    network = MemoryNetwork()
    a, b = pair(network)
    outcomes: list[Any] = []
    async with running(a, b), trio.open_nursery() as nursery:
        nursery.start_soon(outcome, a.get(b, "slow 2 x"), outcomes)
        await trio.sleep(0.5)
        b.rpc.stop_accepting()
        await trio.sleep(0.1)
        other = Peer(network.transport("c"))
        await nursery.start(other.run)
        with pytest.raises(PeerUnreachable, match="refused"):
            await other.ping("b:1")
        other.scope.cancel()
        assert not outcomes
        await b.rpc.drain()
        assert trio.current_time() > 2
        b.scope.cancel()
    assert outcomes == [b"slow 2 x"]


# -- floods, determinism -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_nodes_that_flood_each_other_do_not_deadlock(seed: int) -> None:
    async def main() -> None:
        a, b = pair(MemoryNetwork(seed, window_bytes=4096))
        answers: list[Any] = []
        async with running(a, b), trio.open_nursery() as nursery:
            for i in range(150):
                size = 100 * (i % 150)
                nursery.start_soon(outcome, a.get(b, f"big {size}", 600), answers)
                nursery.start_soon(outcome, b.get(a, f"big {size}", 600), answers)
        assert sorted(map(len, answers)) == sorted(100 * (i % 150) for i in range(150) for _ in "ab")

    run(main, seed=seed)


def test_equal_seeds_make_equal_histories() -> None:
    def history(seed: int) -> str:
        async def main() -> str:
            network = MemoryNetwork(seed, trace=True)
            a, b = pair(network, limits=limits(idle_s=1.0))
            async with running(a, b):
                for _ in range(3):
                    async with trio.open_nursery() as nursery:
                        for i in range(20):
                            nursery.start_soon(a.get, b, f"slow {i / 100}")
                            nursery.start_soon(b.get, a, f"big {i * 1000}")
                    await trio.sleep(2.5)
            return network.digest()

        return run(main, seed=seed)

    assert history(1) == history(1)
    assert history(1) != history(2)
