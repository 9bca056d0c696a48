"""The network at message level: the same rings, the same protocol, no streams."""

from __future__ import annotations

import gc
import math

import pytest
import trio

from chord import testing
from chord.config import RingConstants
from chord.errors import DeadlineExceeded, PeerLost, PeerUnreachable
from chord.events import Emitted
from chord.sim.cluster import cluster
from chord.sim.messages import MessageNetwork
from chord.wire.messages import Contact, Ping, PingReply
from tests.support.rings import get, only, put


@pytest.mark.slow
def test_ring_on_messages_survives_joins_leaves_and_crashes() -> None:
    async def main() -> None:
        async with testing.open_ring(24, seed=1, network=MessageNetwork(1)) as ring:
            for number in range(40):
                await put(ring[number % 24], b"key-%d" % number, b"v")
            await ring[5].leave()
            await (await ring.start()).ready()
            await ring.converged()
            for number in range(40):
                assert await get(ring[0], b"key-%d" % number) == (b"v",)
            await ring.kill(ring[7])
            await ring.kill(ring[9], silently=True)
            await ring.converged()
            assert not ring.violations()

    testing.run(main)


def test_caller_gets_the_error_of_each_fault() -> None:
    async def main() -> None:
        network = MessageNetwork(2)
        async with testing.open_ring(3, seed=2, network=network) as ring:
            calls = network.at_host("n0")
            other = only(ring[1]).me
            assert calls is not None

            async def ping(to: Contact | str, within_s: float = 1.0) -> object:
                return await calls.call(to, Ping(), deadline=trio.current_time() + within_s)

            assert isinstance(await ping(other), PingReply)
            with pytest.raises(PeerUnreachable, match="refused"):
                await ping("nowhere:1")
            network.block("n0", "n1")
            began = trio.current_time()
            with pytest.raises(DeadlineExceeded):
                await ping(other, 0.25)
            assert math.isclose(trio.current_time() - began, 0.25, abs_tol=0.001)
            network.heal()
            network.cut("n0", "n1")
            with pytest.raises(PeerUnreachable, match="no route"):
                await ping(other)
            network.heal()
            with trio.move_on_after(0.0001) as scope:
                await ping(other)
            assert scope.cancelled_caught, "a cancelled call leaves nothing behind"
            assert isinstance(await ping(other), PingReply)

    testing.run(main)


def test_call_in_progress_is_lost_when_its_host_crashes() -> None:
    async def main() -> None:
        network = MessageNetwork(3)
        caller, target = network.calls("a"), network.calls("b")

        async def never() -> PingReply:
            await trio.sleep_forever()
            return PingReply()

        target.serve(lambda vnode, request, who: never())
        async with trio.open_nursery() as nursery:
            await nursery.start(target.run, "b:1")

            async def crash() -> None:
                await trio.sleep(0.1)
                network.crash("b")

            nursery.start_soon(crash)
            with pytest.raises(PeerLost):
                await caller.call("b:1", Ping(), deadline=math.inf)
            nursery.cancel_scope.cancel()

    testing.run(main)


def test_call_in_progress_is_lost_when_its_hosts_are_cut() -> None:
    async def main() -> None:
        network = MessageNetwork(3)
        caller, target = network.calls("a"), network.calls("b")

        async def cut_and_reply() -> PingReply:
            await trio.sleep(0.1)
            network.cut("a", "b")
            return PingReply()

        target.serve(lambda vnode, request, who: cut_and_reply())
        async with trio.open_nursery() as nursery:
            await nursery.start(target.run, "b:1")
            with pytest.raises(PeerLost):
                await caller.call("b:1", Ping(), deadline=math.inf)
            nursery.cancel_scope.cancel()

    testing.run(main)


@pytest.mark.slow
def test_same_seed_gives_the_same_history() -> None:
    def history(seed: int) -> list[str]:
        seen: list[str] = []

        def note(emitted: Emitted) -> None:
            event = emitted.event
            seen.append(f"{trio.current_time()} {event}")

        async def main() -> None:
            async with testing.open_ring(12, seed=seed, network=MessageNetwork(seed), observe=note) as ring:
                await ring.kill(ring[3])
                await ring.converged()

        testing.run(main, seed=seed)
        return seen

    assert history(4) == history(4)
    assert history(4) != history(5)


def test_node_keeps_three_nurseries_alive() -> None:
    """A reference to a task status keeps the nursery of `Nursery.start` alive: a tenth of a node's memory."""

    async def nurseries(nodes: int) -> int:
        async with cluster(seed=1, network=MessageNetwork(1), ring=RingConstants(replicas=1)) as machines:
            await machines.place(nodes)
            gc.collect()
            return sum(isinstance(one, trio.Nursery) for one in gc.get_objects())

    few, many = (testing.run(nurseries, nodes, seed=1) for nodes in (4, 14))
    assert (many - few) / 10 == 3
