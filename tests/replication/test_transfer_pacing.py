"""Pacing of transfers: large pages, two at a time, on an idle node; small pages and rests while it serves."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import trio

from chord import testing
from chord.node import Node
from chord.replication import transfer_source
from chord.replication.transfer_source import PAGES_AT_ONCE, Outbound, TransferSender
from chord.ring.context import PAGE_RECORDS_IDLE, PAGE_RECORDS_SERVING, REST_FACTOR, NodeContext
from chord.store.storage import Batch
from chord.testing import MemoryNetwork, uniform
from chord.wire.messages import ActorClock, Record, Version
from tests.support.rings import get

RECORDS = 4000
DELAY_S = 0.002  # one-way delay, so that a page takes some time


class Seen(NamedTuple):
    """A handover: lengths of pages, most pages on their way at once, rests as multiples of the work."""

    lengths: list[int]
    at_once: int
    rests_s: list[float]


def made(number: int) -> Record:
    version = Version(b"value", b"%016d" % number, 1)
    return Record(b"key-%d" % number, (ActorClock(b"0123456789abcdef", 1, (version,)),))


def hand_over(*, is_served: bool) -> Seen:
    """Let a node join a node with many records, and observe the transfer."""
    lengths: list[int] = []
    rests_s: list[float] = []
    flying = at_once = 0
    send, give_way = TransferSender._send, NodeContext.give_way

    async def watched_send(
        sender: TransferSender, outbound: Outbound, page: tuple[Record, ...], seen: transfer_source.SeenEntries
    ) -> None:
        nonlocal flying, at_once
        flying += bool(page)
        at_once = max(at_once, flying)
        lengths.extend([len(page)] if page else [])
        await send(sender, outbound, page, seen)
        flying -= bool(page)

    async def watched_rest(host: NodeContext, since: float) -> None:
        began = trio.current_time()
        await give_way(host, since)
        rests_s.append((trio.current_time() - began) / max(began - since, DELAY_S))

    async def ask(node: Node) -> None:
        while True:
            await get(node, b"key-1")
            await trio.sleep(DELAY_S / 4)

    async def main() -> None:
        network = MemoryNetwork(1, delay=uniform(DELAY_S, DELAY_S))
        async with testing.open_ring(1, seed=1, network=network) as ring, trio.open_nursery() as nursery:
            await ring[0]._host.storage.commit(Batch(puts=[made(number) for number in range(RECORDS)]))
            if is_served:
                nursery.start_soon(ask, ring[0])
                await trio.sleep(0.1)
            await (await ring.start()).ready()
            nursery.cancel_scope.cancel()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransferSender, "_send", watched_send)
        patch.setattr(NodeContext, "give_way", watched_rest)
        testing.run(main, seed=1)
    assert sum(lengths) > RECORDS / 10
    return Seen(lengths, at_once, rests_s)


def test_transfer_sends_large_pages_two_at_a_time_if_idle() -> None:
    seen = hand_over(is_served=False)
    assert max(seen.lengths) == PAGE_RECORDS_IDLE
    assert seen.at_once == PAGES_AT_ONCE
    assert max(seen.rests_s) < 1


def gives_way(seen: Seen) -> bool:
    """Return whether pages are small and rests long, apart from the very first pages."""
    is_small = max(seen.lengths[PAGES_AT_ONCE:]) <= PAGE_RECORDS_SERVING
    return is_small and sorted(seen.rests_s)[len(seen.rests_s) // 2] >= REST_FACTOR - 0.1


@pytest.mark.slow
def test_transfer_sends_small_pages_and_rests_while_serving() -> None:
    assert gives_way(hand_over(is_served=True))


def test_planted_transfer_that_ignores_its_clients_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeContext, "is_serving", lambda host: False)
    assert not gives_way(hand_over(is_served=True))


def test_planted_transfer_without_rests_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chord.ring.context.REST_FACTOR", 0)
    assert not gives_way(hand_over(is_served=True))
