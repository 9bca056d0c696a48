"""Replies of the HTTP interface, and the headers that each of them has."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.responses import Response

CSP: Final = "; ".join((
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "frame-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'self'",
))
"""The page loads from this origin only. Inline scripts and styles do not run."""

HEADERS: Final = (
    ("content-security-policy", CSP),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-cache"),
)
"""The headers of every reply."""


def json_reply(content: Any, status: int = 200) -> Response:
    """Return an HTTP response with `content` as JSON."""
    return Response(msgspec.json.encode(content), status, media_type="application/json")
