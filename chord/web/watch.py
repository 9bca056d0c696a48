"""The task of the aggregator: sends its polls to the nodes, and hands it the replies."""

from __future__ import annotations

import trio

from chord.client.api import AsyncClientApi
from chord.errors import ChordError, OtherRing
from chord.web.aggregator import Aggregator, Poll
from chord.wire.messages import Describe, DescribeReply, GetEventsReply


async def watch(aggregator: Aggregator, client: AsyncClientApi) -> None:
    """Poll the nodes of a ring until cancelled, or until only nodes of another ring answer.

    Args:
        aggregator: the schedule of the polls. Its state and history are current between checkpoints.
        client: a client of the ring, with a time limit of more than `EVENTS_WAIT_MS`.

    Concurrency: checkpoints.
    """
    changed = trio.Event()

    async def ask(poll: Poll) -> None:
        try:
            reply: DescribeReply | GetEventsReply
            if isinstance(poll.request, Describe):
                reply = await client.watch(poll.request, poll.address)
            else:
                reply = await client.watch(poll.request, poll.address)
        except ChordError as error:
            aggregator.on_error(poll, error, trio.current_time())
            if isinstance(error, OtherRing) and aggregator.is_lost:
                nursery.cancel_scope.cancel()  # the client knows the former ring
        else:
            aggregator.on_reply(poll, reply, trio.current_time())
        changed.set()

    async with trio.open_nursery() as nursery:
        while True:
            changed = trio.Event()
            for poll in aggregator.due(trio.current_time()):
                nursery.start_soon(ask, poll)
            with trio.move_on_at(aggregator.next_due_s()):
                await changed.wait()
