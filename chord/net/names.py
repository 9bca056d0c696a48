"""Host name lookups: one thread for each name, and a limit on their number.

Callers that ask for the same name share one lookup. A resolver that does not answer holds its thread for half a minute,
and nothing can end that. So a caller that gives up abandons the thread. The next caller that asks for that name waits
for the same thread, and nothing else in the process waits for it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any, Final

import outcome
import trio

from chord.errors import PeerUnreachable

GIVEN_UP_MAX: Final = 1024
"""Largest number of host names that are remembered because all callers gave up waiting for them."""


class _Lookup:
    """One lookup under way, with any number of callers that wait for it."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.found: outcome.Maybe[list[Any]] | None = None
        self.waiting = 0


class Names:
    """Looks up host names.

    Args:
        lookups_max: largest number of lookups at the same time. Names for which all callers once gave up waiting take
            at most half of them. So repeated dials to these names leave room for other names.
        getaddrinfo: called in place of `socket.getaddrinfo`, for tests; None: `socket.getaddrinfo` itself.
    """

    def __init__(self, lookups_max: int, getaddrinfo: Callable[..., list[Any]] | None = None) -> None:
        self._max = lookups_max
        self._getaddrinfo = getaddrinfo
        self._under_way: dict[tuple[object, str], _Lookup] = {}
        self._given_up: dict[str, None] = {}

    async def look_up(self, host: str) -> list[str]:
        """Return the IP addresses of a host, in the order of the system's preference.

        Raises:
            PeerUnreachable: too many lookups are in progress.
            OSError: the resolver reported this error.

        Concurrency: checkpoints. If the caller is cancelled, the lookup goes on for the next caller.
        """
        token = trio.lowlevel.current_trio_token()  # a lookup of another run of Trio never ends in this run
        lookup = self._under_way.get((token, host))
        if lookup is None:
            self._require_room(host)
            lookup = self._under_way[token, host] = _Lookup()
            look = partial(self._getaddrinfo or socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
            trio.lowlevel.start_thread_soon(look, partial(self._deliver, token, host, lookup), name=f"look up {host}")
        lookup.waiting += 1
        try:
            await lookup.done.wait()
        finally:
            lookup.waiting -= 1
            if not lookup.waiting and lookup.found is None:
                self._give_up(host)
        assert lookup.found is not None
        if isinstance(lookup.found, outcome.Error):
            raise copy(lookup.found.error)  # one shared error would collect the tracebacks of all waiters
        return list(dict.fromkeys(str(target[0]) for *_, target in lookup.found.value))

    def _require_room(self, host: str) -> None:
        if len(self._under_way) >= self._max:
            raise PeerUnreachable(f"{host}: {self._max} host names are being looked up; that is the limit")
        if host in self._given_up:
            count = sum(name in self._given_up for _, name in self._under_way)
            if count >= max(1, self._max // 2):
                raise PeerUnreachable(f"{host}: {count} abandoned lookups of host names are still running")

    def _give_up(self, host: str) -> None:
        self._given_up[host] = None
        while len(self._given_up) > GIVEN_UP_MAX:
            del self._given_up[next(iter(self._given_up))]

    def _deliver(
        self, token: trio.lowlevel.TrioToken, host: str, lookup: _Lookup, found: outcome.Maybe[list[Any]]
    ) -> None:
        """Pass on the result of a lookup. This runs in the lookup's thread."""
        try:
            token.run_sync_soon(self._finish, token, host, lookup, found)
        except trio.RunFinishedError:
            with suppress(KeyError):
                del self._under_way[token, host]

    def _finish(
        self, token: trio.lowlevel.TrioToken, host: str, lookup: _Lookup, found: outcome.Maybe[list[Any]]
    ) -> None:
        del self._under_way[token, host]
        if lookup.waiting:
            self._given_up.pop(host, None)
        lookup.found = found
        lookup.done.set()
