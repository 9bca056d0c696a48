"""Errors of the HTTP interface: the status, and the same JSON object as that of the command line."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from chord import errors
from chord.views.common import Json, failure_json
from chord.web.replies import json_reply

STATUSES: Final[tuple[tuple[type[errors.ChordError], int], ...]] = (
    (errors.NotFound, 404),
    (errors.UnknownVnode, 404),
    (errors.VersionConflict, 409),
    (errors.InvalidRequest, 400),
    (errors.ConfigError, 400),
    (errors.DeadlineExceeded, 504),
    (errors.RecordTooLarge, 413),
)
"""The statuses of errors of the ring. Any other error is a 503, because the ring may heal."""


class HttpFailure(Exception):
    """An error of the HTTP interface, which becomes the response to the request.

    Args:
        status: the HTTP status.
        code: a short name of the error for programs, such as "not_found".
        text: what failed and why, in words.
        hint: the next step for the user, in words; "": none.
        also: further fields of the JSON response, beside `error`.

    Attributes:
        status: the HTTP status.
        shape: the JSON object of the response.
    """

    def __init__(self, status: int, code: str, text: str, hint: str = "", also: Json | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.shape = {"error": failure_json(code, text, hint), **(also or {})}

    def reply(self) -> Response:
        """Return the response with this status and JSON object."""
        return json_reply(self.shape, self.status)


def explained(error: errors.ChordError) -> HttpFailure:
    """Return an error of the ring as an `HttpFailure`, with its HTTP status and, from status 500 on, a hint."""
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 503)
    hint = "" if status < 500 else "The ring may be busy or healing. Try again, or see the check"
    return HttpFailure(status, error.word, error.message, hint)


def number_of(request: Request, name: str, low: int = 0, high: int = 10**15) -> int | None:
    """Return a query parameter that is a whole number; None if it is not given.

    Args:
        request: the request.
        name: the name of the parameter.
        low, high: the smallest and the largest valid number.

    Raises:
        HttpFailure: 400: the parameter is no whole number from `low` to `high`.
    """
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 15 and low <= int(text) <= high):
        hint = f"Give a whole number from {low} to {high}, or leave it out"
        raise HttpFailure(400, "invalid", f"invalid {name} {text[:40]!r}", hint)
    return int(text)
