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
    """The error with which a request ends.

    Args:
        status: the HTTP status.
        code: the word that names the error.
        text: what failed and why.
        hint: the next step for the user.
        also: further fields of the reply, beside `error`.
    """

    def __init__(self, status: int, code: str, text: str, hint: str = "", also: Json | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.shape = {"error": failure_json(code, text, hint), **(also or {})}

    def reply(self) -> Response:
        """Return the reply."""
        return json_reply(self.shape, self.status)


def explained(error: errors.ChordError) -> HttpFailure:
    """Return the failure for an error of the ring."""
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 503)
    hint = "" if status < 500 else "The ring may be busy or healing. Try again, or see the check"
    return HttpFailure(status, error.word, error.message, hint)


def number_of(request: Request, name: str, low: int = 0, high: int = 10**15) -> int | None:
    """Return a parameter of a request that is a whole number; None if it is not given.

    Raises:
        HttpFailure: 400: it is no whole number from `low` to `high`.
    """
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 15 and low <= int(text) <= high):
        hint = f"Give a whole number from {low} to {high}, or leave it out"
        raise HttpFailure(400, "invalid", f"invalid {name} {text[:40]!r}", hint)
    return int(text)
