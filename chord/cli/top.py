"""`top`: the verdict on a ring, its nodes and its events, continuously."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from chord.cli.failures import INTERRUPTED, TERMINATED, explain
from chord.cli.numbers import Seconds
from chord.cli.output import Out, clock
from chord.cli.target import Target, ring_options
from chord.errors import ChordError, unwrapped
from chord.views.common import Json
from chord.views.top import ROUTINE_KINDS

if TYPE_CHECKING:
    import trio

    from chord.net.transport import Transport

FIRST_S: Final = 0.5
"""The time before the first update, in seconds. Meanwhile the first answers arrive."""

RETRY_S: Final = 0.5

Show: TypeAlias = Callable[[Json], None]
"""Shows a summary (`top_json`) with the events since the last one."""


@click.command("top")
@click.option("--interval", "interval_s", type=Seconds(0.1, 3600), default=1.0, show_default=True, metavar="S",
              help="Seconds between two updates.")
@ring_options()
def top_command(target: Target, interval_s: float) -> int:
    """Show the state of a ring until Ctrl-C: verdict, circle, nodes, events.

    The verdict is healthy, healing (a part is not in its final state yet) or broken (an invariant does not hold). It is
    unknown if a missing node may break an invariant unseen, and lost if no node answers. The strip is the circle: a
    mark is a vnode, and a colour is an owner.

    Without a terminal, prints a line for each event and for each new verdict. With --json, prints an object for each
    update, with the events since the last one. --timeout limits the wait for the first answer.
    """
    import trio

    with unwrapped():
        if target.out.as_json:
            return trio.run(run_top, target, interval_s, target.out.json)
        if not (target.out.as_table and sys.stdout.isatty()):
            return trio.run(run_top, target, interval_s, lines_on(target.out))
        from chord.cli.top_screen import open_screen

        with open_screen() as show:
            return trio.run(run_top, target, interval_s, show)


def lines_on(out: Out) -> Show:
    """Return a function that takes a summary and prints its events and, if it has changed, its verdict as lines."""
    last = ""

    def show(state: Json) -> None:
        nonlocal last
        for event in state["events"]:
            if event["kind"] not in ROUTINE_KINDS:
                out.line(f"{clock(event['at_ms'])}  {event['text']}")
        if state["verdict"] != last:
            last = state["verdict"]
            out.line(f"{clock(state['at_ms'])}  {last}: {state['text']}")
        out.flush()

    return show


async def run_top(target: Target, interval_s: float, show: Show, transport: Transport | None = None) -> int:
    """Watch a ring until SIGINT or SIGTERM, and return the exit code: 130 or 143.

    Args:
        target: the entry nodes, and the time limit for the first answer.
        interval_s: the time between two updates, in seconds.
        show: called with each summary, as `top_json` returns it.
        transport: the network; None: TCP.

    Raises:
        Failure: exit 4: no node answered in time.

    Concurrency: checkpoints.
    """
    import trio

    codes: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_end_at_signal, nursery.cancel_scope, codes)
        await _reach(target, transport)
        await _update(target.nodes, interval_s, show, transport)
    return codes[0]


async def _end_at_signal(scope: trio.CancelScope, codes: list[int]) -> None:
    import trio

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            codes.append(INTERRUPTED if number == signal.SIGINT else TERMINATED)
            scope.cancel()
            return


async def _reach(target: Target, transport: Transport | None) -> None:
    """Wait until a node answers.

    Raises:
        Failure: no node answered before --timeout had passed.
    """
    import trio

    from chord.client.async_client import open_client

    deadline = trio.current_time() + target.timeout_s
    while True:
        try:
            async with open_client(*target.nodes, transport=transport):
                return
        except ChordError as error:
            if trio.current_time() + RETRY_S >= deadline:
                raise explain(error, target.nodes[0]) from error
            await trio.sleep(RETRY_S)


async def _update(nodes: tuple[str, ...], interval_s: float, show: Show, transport: Transport | None) -> None:
    """Poll the nodes, and show a summary after each interval, until cancelled."""
    import trio

    from chord.node.world import wall_now_ms
    from chord.views.top import top_json
    from chord.web.aggregator import Aggregator
    from chord.web.phrases import event_json
    from chord.web.source import LiveRing
    from chord.web.watch import watch_ring

    began_ms = wall_now_ms()
    ring = LiveRing(Aggregator(nodes, trio.current_time()), trio.current_time, began_ms)
    history, shown = ring.aggregator.history, 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch_ring, ring, nodes, transport)
        await trio.sleep(FIRST_S)
        while True:
            state = ring.at()
            lines = history.since(shown) or []
            shown = history.latest
            events = [
                event_json(state.model, one.line.content, ring.to_ms(one.line.at_s))
                for one in lines
                if one.line.letter == "e" and isinstance(one.line.content, dict)
            ]
            recent = sorted((one for one in events if one["at_ms"] >= began_ms), key=lambda one: one["at_ms"])
            show(top_json(state.model, ring.shape, state.moment, state.seen_ms, recent))
            await trio.sleep(interval_s)
