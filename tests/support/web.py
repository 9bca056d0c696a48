"""A client that calls a web application directly, without a socket."""

from __future__ import annotations

import json
from typing import Any

import trio
from starlette.types import ASGIApp, Message

HOST = "127.0.0.1:9080"


class Answer:
    """The reply to a request."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class WebClient:
    """Requests to an application, with the headers that the page sends."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.request("GET", path, **headers)

    async def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """Send a request; names of headers have _ for -."""
        sent: list[Message] = []
        body_left = [body]

        async def receive() -> Message:
            if body_left:
                return {"type": "http.request", "body": body_left.pop(), "more_body": False}
            await trio.sleep_forever()
            raise AssertionError

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(scope_of(method, path, **headers), receive, send)
        start = sent[0]
        head = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], head, b"".join(message.get("body", b"") for message in sent[1:]))


def scope_of(method: str, path: str, **headers: str) -> dict[str, Any]:
    """Return the scope of a request."""
    path, _, query = path.partition("?")
    all_headers = {"host": HOST, **({"x_chord": "1"} if method != "GET" else {}), **headers}
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(n.replace("_", "-").encode(), v.encode()) for n, v in all_headers.items() if v],
        "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 9080),
    }  # fmt: skip


async def events_of(app: ASGIApp, count: int, **headers: str) -> list[tuple[str, str | None, Any]]:
    """Read the first messages of the event stream: the name, the id and the content of each."""
    found: list[tuple[str, str | None, Any]] = []
    ended = trio.Event()

    async def receive() -> Message:
        await ended.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        for block in message.get("body", b"").decode().split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
            if "event" in lines:
                found.append((lines["event"], lines.get("id"), json.loads(lines["data"])))
        if len(found) >= count:
            ended.set()

    await app(scope_of("GET", "/api/v1/events", **headers), receive, send)
    return found
