"""The web application of the dashboard: the page, the HTTP interface, the event stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from chord.errors import ChordError
from chord.views.dashboard import node_detail_json, ring_check_json, ring_state_json
from chord.web.failures import HttpFailure, explained
from chord.web.guard import Guard
from chord.web.hub import EventHub
from chord.web.replies import json_reply
from chord.web.source import StateOrigin

STATIC: Final = Path(__file__).parent / "static"
MEDIA_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
    ".chordlog": "application/x-ndjson",
    ".gz": "application/gzip",
    ".txt": "text/plain; charset=utf-8",
}
PREFIX: Final = "/api/v1"

Endpoint = Callable[[Request], Awaitable[Response]]


class Dashboard:
    """The endpoints of the dashboard.

    Args:
        origin: the states to show.
        hub: the readers of the event stream.
    """

    def __init__(self, origin: StateOrigin, hub: EventHub) -> None:
        self.origin = origin
        self.hub = hub

    async def ring(self, request: Request) -> Response:
        """Return the state: nodes and vnodes."""
        state = self.origin.at(_time(request, "at"))
        return json_reply(ring_state_json(state.model, self.origin.shape, state.moment, state.seen_ms))

    async def node(self, request: Request) -> Response:
        """Return one node."""
        state = self.origin.at(_time(request, "at"))
        name = request.path_params["name"]
        found = [a for a, fields in state.model.nodes.items() if name in (a, fields.get("name"))]
        if len(found) != 1:
            code = "ambiguous_node" if found else "no_such_node"
            text = f"{len(found)} nodes are called {name!r}" if found else f"no node is called {name!r}"
            raise HttpFailure(404, code, text, "Name a node by its address, as in /nodes/127.0.0.1:9000")
        (address,) = found
        seen_ms = state.seen_ms.get(address)
        return json_reply(node_detail_json(state.model, self.origin.shape, address, state.moment, seen_ms))

    async def check(self, request: Request) -> Response:
        """Return the verdict on the state."""
        state = self.origin.at(_time(request, "at"))
        return json_reply(ring_check_json(state.model, self.origin.shape, state.moment))

    async def events(self, request: Request) -> Response:
        """Return the event stream."""
        text = request.headers.get("last-event-id", "")
        return EventStream(self.hub, int(text) if text.isdecimal() and len(text) < 18 else None)


class EventStream(Response):
    """A reply that sends the messages of a reader until it disconnects.

    Args:
        hub: the readers.
        last_id: the number of the last message that this reader has.
    """

    def __init__(self, hub: EventHub, last_id: int | None) -> None:
        self._hub = hub
        self._last_id = last_id
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send messages until the reader disconnects or its queue is full."""
        reader = self._hub.join(self._last_id)

        async def until_disconnected() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            reader.scope.cancel()

        try:
            with reader.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(until_disconnected)
                    headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
                    await send({"type": "http.response.start", "status": 200, "headers": headers})
                    async for message in reader.messages:
                        await send({"type": "http.response.body", "body": message, "more_body": True})
        finally:
            self._hub.leave(reader)


async def page(request: Request) -> Response:
    """Return a file of the page."""
    path = (STATIC / (request.path_params["path"] or "index.html")).resolve()
    if not path.is_relative_to(STATIC) or not path.is_file():
        raise HttpFailure(404, "not_found", f"there is no {request.url.path}", "The page is at /")
    media_type = MEDIA_TYPES.get(path.suffix, "application/octet-stream")
    return Response(path.read_bytes(), media_type=media_type)


def make_app(dashboard: Dashboard, host: str) -> ASGIApp:
    """Return the application.

    Args:
        dashboard: the endpoints.
        host: the host that the server listens on, which requests may name.
    """
    routes = [
        Route(f"{PREFIX}/ring", caught(dashboard.ring)),
        Route(f"{PREFIX}/nodes/{{name}}", caught(dashboard.node)),
        Route(f"{PREFIX}/check", caught(dashboard.check)),
        Route(f"{PREFIX}/events", caught(dashboard.events)),
        Route("/{path:path}", caught(page)),
    ]
    return Guard(Starlette(routes=routes), host)


def caught(endpoint: Endpoint) -> Endpoint:
    """Return an endpoint that answers an expected error with its JSON object."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except HttpFailure as failure:
            return failure.reply()
        except ChordError as error:
            return explained(error).reply()

    return answer


def _time(request: Request, name: str) -> int | None:
    """Return a parameter with a time in Unix ms."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 15:
        hint = "Leave it out for the latest state"
        raise HttpFailure(400, "invalid", f"invalid {name} {text!r}: expected Unix ms", hint)
    return int(text)
