"""One-way delay: the time of a call on its way, and the rest of its budget."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from chord.errors import DeadlineExceeded
from chord.net.one_way_delay import JITTER_S, WINDOW_S, OneWayDelay
from chord.testing import MemoryNetwork
from chord.wire.messages import Get
from tests.support.rings import virtual
from tests.support.rpc import Peer, pair, running

OPENED_AT = 1000.0


def late(delay: OneWayDelay, sent_s: float, read_s: float, offset_s: float = 0.0) -> float:
    """Return the delay of a call, with times since the sender opened the stream.

    The receiver opened it `offset_s` later.
    """
    return round(delay.late_s(int(1000 * sent_s), OPENED_AT + read_s - offset_s), 3)


def test_call_with_jitter_is_not_late() -> None:
    delay = OneWayDelay(OPENED_AT)
    assert [late(delay, i, i + 0.02 + JITTER_S * (i % 3) / 4) for i in range(100)] == [0.0] * 100


@pytest.mark.parametrize("stall_s", [0.5, 8.0, 3 * WINDOW_S])
def test_call_behind_a_stall_is_late_by_the_rest_of_it(stall_s: float) -> None:
    delay = OneWayDelay(OPENED_AT)
    for i in range(5):
        assert late(delay, i, i + 0.001) == 0
    waited = [late(delay, 5 + i / 10, 5 + stall_s) for i in range(4)]
    assert waited == pytest.approx([stall_s - i / 10 for i in range(4)], abs=0.002)
    assert late(delay, 5 + stall_s, 5 + stall_s) == 0


def test_first_call_may_be_late() -> None:
    assert late(OneWayDelay(OPENED_AT), 0.0, 4.0) == 4.0


def test_drift_of_clocks_makes_no_call_late() -> None:
    for drift in (1.0002, 0.9998):
        delay = OneWayDelay(OPENED_AT)
        assert [late(delay, i, drift * i) for i in range(0, 86_400, 7)] == [0.0] * len(range(0, 86_400, 7))


def test_stalled_handshake_makes_calls_late_for_two_windows() -> None:
    """The receiver opened the stream seconds after the sender, or before."""
    after, before = OneWayDelay(OPENED_AT), OneWayDelay(OPENED_AT)
    steps = [i * WINDOW_S / 4 for i in range(20)]
    assert [late(after, s, s, 3.0) for s in steps] == [0.0] * 20
    assert [late(before, s, s, -3.0) for s in steps][8:] == [0.0] * 12


# -- over a connection ----------------------------------------------------------------------------


class Worker(Peer):
    """A peer that takes a second for each `Get`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.begun: list[bytes] = []

    async def _later(self, key: bytes, seconds: float) -> Any:
        self.begun.append(key)
        return await super()._later(key, seconds)


async def read_late(within_s: float, stalled_s: float) -> tuple[Worker, float]:
    """Send a call to a frozen host; return the host and the time of sending."""
    network = MemoryNetwork()
    a, b = Peer(network.transport("a"), "a:1"), Worker(network.transport("b"), "b:1")
    async with running(a, b):
        await a.ping(b)
        network.freeze("b")
        sent_at = trio.current_time()
        with pytest.raises(DeadlineExceeded):
            await a.get(b, "slow 1", within_s)
        await trio.sleep_until(sent_at + stalled_s)
        network.unfreeze("b")
        await trio.sleep(within_s)
        assert any(isinstance(request, Get) for _, request, _ in b.asked), "the host has read the call"
    return b, sent_at


@virtual
async def test_call_read_after_its_deadline_is_not_executed() -> None:
    host, _ = await read_late(2.0, 3.0)
    assert host.begun == []


@virtual
async def test_planted_no_one_way_delay_executes_a_late_call() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OneWayDelay, "late_s", lambda *_: 0.0)
        host, _ = await read_late(2.0, 3.0)
    assert host.begun == [b"slow 1"]


@virtual
async def test_handler_of_a_delayed_call_gets_the_rest_of_the_budget() -> None:
    network = MemoryNetwork()
    a, b = pair(network)
    async with running(a, b):
        await a.ping(b)
        network.freeze("b")
        sent_at = trio.current_time()
        async with trio.open_nursery() as nursery:

            async def thaw() -> None:
                await trio.sleep(3.0)
                network.unfreeze("b")

            nursery.start_soon(thaw)
            with pytest.raises(DeadlineExceeded):
                await a.get(b, "never", 5.0)
        await trio.sleep(5.0)
        assert [at - sent_at for at in b.cancelled_at] == pytest.approx([5.0], abs=0.01)
