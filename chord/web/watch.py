"""The task of the aggregator: sends its polls to the nodes, and hands it the replies."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

import trio

from chord.client.api import AsyncClientApi
from chord.client.async_client import open_client
from chord.errors import ChordError, DeadlineExceeded, OtherRing
from chord.net.transport import Transport
from chord.web.aggregator import POLL_S, Aggregator, Poll
from chord.web.source import LiveRing
from chord.wire.messages import Describe, DescribeReply, GetEventsReply

RETRY_S: Final = 1.0
"""The time between two clients, in seconds."""

GIVE_UP_S: Final = 0.1
"""The least time between two searches for late nodes that others take for dead, in seconds."""


async def watch_ring(origin: LiveRing, nodes: Sequence[str], transport: Transport | None = None) -> None:
    """Open a client as soon as a node answers, and poll the ring with it, until cancelled.

    If the client finds only nodes of another ring, a new client follows.

    Args:
        origin: the living ring. The polls update its state and history, and its `client` becomes the latest client.
        nodes: the addresses of entry nodes. None of them needs to answer yet.
        transport: the network; None: TCP.

    Concurrency: checkpoints.
    """
    while True:
        try:
            async with open_client(*nodes, transport=transport) as client:
                origin.client = client
                await watch(origin.aggregator, client)
        except ChordError:
            pass  # the states of the nodes show that none answers
        await trio.sleep(RETRY_S)


async def watch(aggregator: Aggregator, client: AsyncClientApi) -> None:
    """Poll the nodes of a ring with one client until cancelled, or until only nodes of another ring answer.

    A node that another one takes for dead has `POLL_S` to send its status, and then counts as unreachable. The status
    of a frozen node would otherwise contradict the others, as long as the client waits.

    Args:
        aggregator: says which polls are due, and gets their results.
        client: a client of the ring. Its time limit must exceed `EVENTS_WAIT_MS`.

    Concurrency: checkpoints.
    """
    changed = trio.Event()
    described: dict[Poll, trio.CancelScope] = {}
    look_s = trio.current_time()
    aggregator.restart(look_s)

    async def ask(poll: Poll) -> None:
        try:
            reply: DescribeReply | GetEventsReply
            if isinstance(poll.request, Describe):
                reply = await describe(poll, poll.request)
            else:
                reply = await client.watch(poll.request, poll.address)
        except ChordError as error:
            aggregator.on_error(poll, error, trio.current_time())
            if isinstance(error, OtherRing) and aggregator.is_lost:
                nursery.cancel_scope.cancel()  # the client knows the former ring
        else:
            aggregator.on_reply(poll, reply, trio.current_time())
        changed.set()

    async def describe(poll: Poll, request: Describe) -> DescribeReply:
        described[poll] = trio.CancelScope()
        try:
            with described[poll]:
                return await client.watch(request, poll.address)
        finally:
            del described[poll]
        raise DeadlineExceeded(f"{poll.address}: no status after {POLL_S:g} s, and another node takes it for dead")

    async with trio.open_nursery() as nursery:
        while True:
            changed = trio.Event()
            now_s = trio.current_time()
            for poll in aggregator.due(now_s):
                nursery.start_soon(ask, poll)
            late = [poll for poll in described if now_s - poll.sent_s >= POLL_S]
            if late and now_s >= look_s:
                look_s, given_up = now_s + GIVE_UP_S, aggregator.given_up()
                for poll in late:
                    if poll.address in given_up:
                        described[poll].cancel()
            with trio.move_on_at(min(aggregator.next_due_s(), look_s if late else inf)):
                await changed.wait()
