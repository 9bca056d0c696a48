"""Errors of the HTTP interface: the status, and the same JSON object as that of the command line."""

from __future__ import annotations

from typing import Final

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

    Attributes:
        status: the HTTP status.
        shape: the JSON object, without the outer `error`.
    """

    def __init__(self, status: int, code: str, text: str, hint: str = "", **also: Json) -> None:
        super().__init__(text)
        self.status = status
        self.shape = failure_json(code, text, hint)
        self.also = also

    def reply(self) -> Response:
        """Return the reply."""
        return json_reply({"error": self.shape, **self.also}, self.status)


def explained(error: errors.ChordError) -> HttpFailure:
    """Return the failure for an error of the ring."""
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 503)
    hint = "" if status < 500 else "The ring may be busy or healing. Try again, or see the check"
    return HttpFailure(status, error.word, error.message, hint)
