"""The web application of the dashboard: the page, the HTTP interface, the event stream."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final, TypeAlias

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from chord.errors import ChordError
from chord.web.actions import ActionEndpoints
from chord.web.exposition import Family, metrics_reply
from chord.web.failures import HttpFailure, explained
from chord.web.guard import Guard
from chord.web.hub import EventHub, EventReader
from chord.web.library import LibraryEndpoints
from chord.web.openapi import ENDPOINTS, PREFIX, openapi_json
from chord.web.queries import QueryEndpoints
from chord.web.replies import json_reply

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

PAGE_FILE: Final = re.compile(r"([a-zA-Z0-9_-][a-zA-Z0-9._-]*/)*[a-zA-Z0-9_-][a-zA-Z0-9._-]*")
"""The names of files of the page. A part of a path does not begin with a dot."""

HELP: Final = f"See {PREFIX}/openapi.json"

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


def make_app(
    queries: QueryEndpoints,
    actions: ActionEndpoints,
    library: LibraryEndpoints,
    hub: EventHub,
    host: str,
    metrics: Callable[[], Iterable[Family]] | None = None,
) -> ASGIApp:
    """Return the ASGI application of the dashboard, behind a `Guard`.

    Args:
        queries: the endpoints that show the ring.
        actions: the endpoints that ask the ring to do something.
        library: the endpoints of the gallery and of the lab.
        hub: the event stream, which a request may join as a reader.
        host: the host on which the server listens. Requests must name it, an IP address or localhost.
        metrics: returns the Prometheus metrics that /metrics shows; None: there is no /metrics.
    """

    async def events(request: Request) -> Response:
        text = request.headers.get("last-event-id", "")
        return EventStream(hub, hub.join(int(text) if text.isdecimal() and len(text) < 18 else None))

    async def openapi(request: Request) -> Response:
        return json_reply(openapi_json())

    async def show_metrics(request: Request) -> Response:
        return metrics_reply(metrics() if metrics else (), request.headers.get("accept", ""))

    found: dict[str, Endpoint] = {"events": events, "openapi": openapi}
    for part in (queries, actions, library):
        found |= {endpoint.name: getattr(part, endpoint.name) for endpoint in ENDPOINTS if hasattr(part, endpoint.name)}
    routes = [
        Route(PREFIX + endpoint.path, caught(found[endpoint.name]), methods=[endpoint.method]) for endpoint in ENDPOINTS
    ]
    handlers = {HTTPException: refused, Exception: failed}
    if metrics is not None:
        routes.append(Route("/metrics", show_metrics))
    routes.append(Route("/{path:path}", caught(page)))
    return Guard(Starlette(routes=routes, exception_handlers=handlers), host)


async def refused(request: Request, error: Exception) -> Response:
    """Return the JSON error for a request that no route takes, such as one with another method."""
    assert isinstance(error, HTTPException)
    text = f"{request.method} {request.url.path}: {error.detail}"
    return HttpFailure(error.status_code, "refused", text, HELP).reply()


async def failed(request: Request, error: Exception) -> Response:
    """Return the JSON error with status 500 for an unexpected exception. The server logs the traceback."""
    text = f"{request.method} {request.url.path} failed: {type(error).__name__}"
    return HttpFailure(500, "internal", text, "This is a bug. The log of the dashboard has the traceback").reply()


def caught(endpoint: Endpoint) -> Endpoint:
    """Wrap an endpoint: an `HttpFailure` or a `ChordError` becomes a response with its status and JSON error."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except HttpFailure as failure:
            return failure.reply()
        except ChordError as error:
            return explained(error).reply()

    return answer


class EventStream(Response):
    """A response that sends the event stream to one reader until that reader disconnects.

    Args:
        hub: removes the reader at the end.
        reader: the queue of messages to send.
    """

    def __init__(self, hub: EventHub, reader: EventReader) -> None:
        self._hub = hub
        self._reader = reader
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send messages until the reader disconnects or its queue is full."""
        reader = self._reader

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
    """Return a static file of the dashboard's page; index.html for the path /.

    Raises:
        HttpFailure: 404: there is no such file.
    """
    name = request.path_params["path"] or "index.html"
    path = STATIC / name
    if not PAGE_FILE.fullmatch(name) or not path.is_file():
        raise HttpFailure(404, "not_found", f"there is no {request.url.path}", "The page is at /")
    media_type = MEDIA_TYPES.get(path.suffix, "application/octet-stream")
    return Response(path.read_bytes(), media_type=media_type)
