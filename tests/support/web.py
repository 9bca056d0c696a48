"""A client that calls a web application directly, without a socket."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import trio
from starlette.types import ASGIApp, Message

from chord.web.actions import ActionEndpoints
from chord.web.aggregator import Aggregator
from chord.web.app import make_app
from chord.web.exposition import Family
from chord.web.hub import EventHub
from chord.web.library import LibraryEndpoints
from chord.web.queries import QueryEndpoints
from chord.web.sampling import RingMeter
from chord.web.source import LiveRing, StateOrigin
from chord.wire.messages import DescribeReply, Status

HOST = "127.0.0.1:9080"
NOW_MS = 1_800_000_000_000


class Ring:
    """A ring with nodes that answered once, at 100 s.

    Attributes:
        origin: the ring, as the dashboard shows it.
        now_s: the time.
    """

    def __init__(self, nodes: list[Status], age_s: float = 0.0) -> None:
        self.now_s = 100.0
        aggregator = Aggregator([nodes[0].address], self.now_s)
        self.origin = LiveRing(aggregator, lambda: self.now_s, NOW_MS)
        known = {status.address: status for status in nodes}
        for _ in range(3):
            for poll in aggregator.due(self.now_s):
                if poll.kind == "describe":
                    aggregator.on_reply(poll, DescribeReply(b"1", NOW_MS, known[poll.address]), self.now_s)
        self.now_s += age_s


def app_of(
    origin: StateOrigin,
    hub: EventHub | None = None,
    meter: RingMeter | None = None,
    metrics: Callable[[], Iterable[Family]] | None = None,
    reports: Path = Path("nowhere"),
    **options: Any,
) -> ASGIApp:
    """Return the application of a ring or a recording; options as for `ActionEndpoints`."""
    hub = hub or EventHub(origin)
    if meter is None and isinstance(origin, LiveRing):
        meter = RingMeter(origin, hub)
    actions = ActionEndpoints(origin, **{"may_write": False, "chaos": None, **options})
    library = LibraryEndpoints(reports)
    return make_app(QueryEndpoints(origin, meter), actions, library, hub, "127.0.0.1", metrics)


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
    """Requests to an application, with the headers that the page sends.

    Attributes:
        sent: the messages of the last reply.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.sent: list[Message] = []

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.request("GET", path, b"", **headers)

    async def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """Send a request; names of headers have _ for -."""
        self.sent = []
        body_left = [body]

        async def receive() -> Message:
            if body_left:
                return {"type": "http.request", "body": body_left.pop(), "more_body": False}
            await trio.sleep_forever()
            raise AssertionError

        async def send(message: Message) -> None:
            self.sent.append(message)

        await self._app(scope_of(method, path, **headers), receive, send)
        return self.last

    @property
    def last(self) -> Answer:
        """The last reply."""
        start, *rest = self.sent
        head = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], head, b"".join(message.get("body", b"") for message in rest))


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


def messages_in(text: bytes) -> list[tuple[str, str | None, Any]]:
    """Return the messages of an event stream: the name, the id and the content of each."""
    found = []
    for block in text.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "event" in lines:
            found.append((lines["event"], lines.get("id"), json.loads(lines["data"])))
    return found


async def events_of(
    app: ASGIApp, count: int, is_stalled: bool = False, **headers: str
) -> list[tuple[str, str | None, Any]]:
    """Read the first messages of the event stream; if stalled, take nothing after the start."""
    found: list[tuple[str, str | None, Any]] = []
    ended = trio.Event()

    async def receive() -> Message:
        await ended.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if is_stalled and "body" in message:
            await trio.sleep_forever()
        found.extend(messages_in(message.get("body", b"")))
        if len(found) >= count:
            ended.set()

    await app(scope_of("GET", "/api/v1/events", **headers), receive, send)
    return found
