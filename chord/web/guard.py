"""The checks of every request before the application sees it, and the headers of every reply."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chord.web.failures import HttpFailure
from chord.web.replies import HEADERS

READING: Final = ("GET", "HEAD")


class Guard:
    """An ASGI application that refuses requests of other origins, and passes all others to the dashboard.

    A page of another site can make a browser send requests here. `Host` shows a name that the attacker's DNS resolves
    to this machine, and `Origin` the site of the page. A form cannot send `X-Chord`.

    Args:
        app: the application that gets the accepted requests.
        host: the host on which the server listens. Requests may also name an IP address or localhost.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app = app
        self._host = host.lower()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an ASGI request on and add headers to its response, or refuse it with 403."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS:
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._require_same_origin(scope["method"], Headers(scope=scope))
        except HttpFailure as failure:
            await failure.reply()(scope, receive, guarded)
        else:
            await self._app(scope, receive, guarded)

    def _require_same_origin(self, method: str, headers: Headers) -> None:
        host = headers.get("host", "")
        name = _parts(f"//{host}").hostname or ""
        if not (name in ("localhost", self._host) or _is_address(name)):
            hint = "Open the page by its IP address, or give the name to --listen"
            raise HttpFailure(403, "bad_host", f"this server is not called {host!r}", hint)
        origin = headers.get("origin")
        if origin is not None and _parts(origin).netloc.lower() != host.lower():
            raise HttpFailure(403, "bad_origin", f"the page of {origin} may not use this server", "Open the page at /")
        if method not in READING and headers.get("x-chord") != "1":
            raise HttpFailure(403, "no_header", "a change needs the header X-Chord", "Send the header X-Chord: 1")


def _parts(url: str) -> SplitResult:
    """Return the parts of a URL; empty parts if it is broken, such as `http://[`."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
