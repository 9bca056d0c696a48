"""Clients of every kind, for tests that all of them must pass: blocking, on Trio, on asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

import chord
from chord.config import Limits
from chord.errors import NotFound
from chord.ids import Point
from chord.wire.messages import Contact, Get, GetReply, GetStatus, Put, Written
from tests.support.clocks import Skipping
from tests.support.fake_node import Answer, Heard
from tests.support.on_asyncio import AsyncioBridge, BridgedBlock
from tests.support.ports import UNUSED
from tests.support.real_rings import HANG_S
from tests.support.statuses import statuses

OWNER = Contact(Point(7), UNUSED)
PATIENT = Limits(handshake_s=HANG_S, frame_s=HANG_S, stuck_s=HANG_S)

Open = Callable[..., AbstractAsyncContextManager[Any]]
"""A function that opens a client: `open_client(*addresses, timeout_s=…)`."""


class Awaited:
    """A blocking client that can be awaited, so that one test serves all clients. The fakes run in threads."""

    def __init__(self, client: chord.Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            return found(*args, **kwargs)

        return call

    async def scan(self) -> AsyncIterator[Any]:
        for pair in self._client.scan():
            yield pair

    async def export(self, **of: Any) -> AsyncIterator[Any]:
        for record in self._client.export(**of):
            yield record


def opener(kind: str, monkeypatch: pytest.MonkeyPatch, clock: Skipping | None) -> Open:
    """Return a function that opens clients of a kind.

    Args:
        clock: the clients' clock; None for the system's.
    """

    @asynccontextmanager
    async def blocking(*addresses: str, timeout_s: float = HANG_S) -> AsyncIterator[Any]:
        with chord.connect(*addresses, timeout_s=timeout_s) as client:
            yield Awaited(client)

    @asynccontextmanager
    async def on_trio(*addresses: str, timeout_s: float = HANG_S) -> AsyncIterator[Any]:
        async with chord.open_client(*addresses, timeout_s=timeout_s, limits=PATIENT) as client:
            yield client

    @asynccontextmanager
    async def on_asyncio(*addresses: str, timeout_s: float = HANG_S) -> AsyncIterator[Any]:
        with AsyncioBridge(clock) as bridge:
            block = chord.open_asyncio_client(*addresses, timeout_s=timeout_s, limits=PATIENT)
            async with BridgedBlock(bridge, block) as client:
                yield client

    return {"blocking": blocking, "trio": on_trio, "asyncio": on_asyncio}[kind]


class Store:
    """The answers of a node with records in a dictionary; it gives the answers in `script` first."""

    def __init__(self, *script: Answer) -> None:
        self.script = list(script)
        self.values: dict[bytes, bytes] = {}

    def __call__(self, heard: Heard) -> Answer:
        request = heard.request
        if isinstance(request, GetStatus):
            return statuses()[0]
        if self.script:
            return self.script.pop(0)
        if isinstance(request, Put):
            if request.value is None:
                self.values.pop(request.key, None)
            else:
                self.values[request.key] = request.value
            return Written(b"after", OWNER)
        assert isinstance(request, Get)
        if request.key not in self.values:
            return NotFound()
        return GetReply((self.values[request.key],), b"seen", OWNER)
