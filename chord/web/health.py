"""What `chord node --http` serves: health and metrics of one node, without pages, keys and addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from chord.node import Node
from chord.node.probe import readiness
from chord.web.exposition import metrics_reply
from chord.web.listening import serve_app
from chord.web.prometheus import node_metrics

if TYPE_CHECKING:
    from socket import socket

TURNED_WITHIN_S: Final = 5.0
"""The node counts as alive if its event loop has turned within this time, in seconds."""

BEAT_S: Final = 1.0


class Heartbeat:
    """Measures whether the event loop of this process still runs tasks.

    Args:
        now_s: returns the time, in seconds.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._turned_s = now_s()

    async def run(self) -> None:
        """Note the time once per second, until cancelled. A blocked event loop delays these notes.

        Concurrency: checkpoints.
        """
        while True:
            self._turned_s = self._now_s()
            await trio.sleep(BEAT_S)

    @property
    def age_s(self) -> float:
        """The time since the last note of `run`, in seconds."""
        return self._now_s() - self._turned_s


class HealthEndpoints:
    """The HTTP endpoints for health and metrics of one node.

    Args:
        node: the node. It need not run yet.
        heartbeat: the heartbeat of its event loop.
    """

    def __init__(self, node: Node, heartbeat: Heartbeat) -> None:
        self._node = node
        self._heartbeat = heartbeat

    async def livez(self, request: Request) -> Response:
        """Return 200 if the event loop ran a task within the last 5 s, otherwise 503.

        A supervisor may restart the process after a 503. The query parameter `verbose` adds the measured time to a 200.
        """
        age_s = self._heartbeat.age_s
        text = f"the event loop turned {age_s:.1f} s ago"
        return _report([("loop", age_s <= TURNED_WITHIN_S, text)], is_verbose="verbose" in request.query_params)

    async def readyz(self, request: Request) -> Response:
        """Return 200 if the node is ready to serve requests, otherwise 503 with the reasons.

        A load balancer leaves out a node that returns 503. The query parameter `verbose` adds every condition to a 200.
        """
        return _report(readiness(self._node), is_verbose="verbose" in request.query_params)

    async def metrics(self, request: Request) -> Response:
        """Return the metrics of the node as Prometheus text, or as OpenMetrics if the header `Accept` names that."""
        return metrics_reply(node_metrics(self._node), request.headers.get("accept", ""))


def health_app(node: Node, heartbeat: Heartbeat) -> Starlette:
    """Return the ASGI application with the paths /livez, /readyz and /metrics of one node."""
    health = HealthEndpoints(node, heartbeat)
    return Starlette(routes=[
        Route("/livez", health.livez), Route("/readyz", health.readyz), Route("/metrics", health.metrics)
    ])  # fmt: skip


async def serve_health(node: Node, listener: socket) -> None:
    """Serve /livez, /readyz and /metrics of a node until cancelled.

    Args:
        node: the node. It need not run yet.
        listener: the listening socket.

    Concurrency: checkpoints.
    """
    heartbeat = Heartbeat(trio.current_time)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(heartbeat.run)
        await serve_app(health_app(node, heartbeat), listener, node.config.limits.http_connections_max)


def _report(conditions: Sequence[tuple[str, bool, str]], *, is_verbose: bool) -> Response:
    """Return a reply with one line for each condition; unless verbose, only for those that fail."""
    holds = all(is_met for _, is_met, _ in conditions)
    lines = [
        f"[{'+' if is_met else '-'}] {name}: {text}" for name, is_met, text in conditions if is_verbose or not is_met
    ]
    text = "\n".join(lines) if lines else "ok"
    return PlainTextResponse(f"{text}\n", 200 if holds else 503, {"cache-control": "no-store"})
