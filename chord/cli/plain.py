"""Output for terminals and pipes that lack characters: what ASCII or Latin-1 writes in place of … ● ✗ █ → ½."""

from __future__ import annotations

import codecs
import sys
from typing import Final, TextIO

ERRORS: Final = "chord.plain"
"""The name of the error handler that replaces characters an encoding lacks."""

_CELLS: Final = {"…": "~", "●": "*", "○": "o", "✗": "x", "█": "#", "→": ">", "·": "*", "−": "-", "–": "-"} | {
    part: "#" if part in "▋▊▉" else "-" for part in "▏▎▍▌▋▊▉"
}
"""One character for one: columns of a table stay aligned."""

_WORDS: Final = {"…": "...", "→": "->", "½": "1/2", "—": "-"}
"""In prose a replacement may be longer."""


def adapt_streams() -> None:
    """Let stdout and stderr replace what their encoding lacks; no command ends in a UnicodeEncodeError."""
    for stream in (sys.stdout, sys.stderr):
        if not is_unicode(stream) and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=ERRORS)


def is_unicode(stream: TextIO) -> bool:
    """Whether a stream can write every character."""
    try:
        return codecs.lookup(stream.encoding or "ascii").name.startswith("utf")
    except LookupError:
        return False


def cell(text: str, stream: TextIO) -> str:
    """Return a table cell as a stream can write it, of the same width where that is possible."""
    if text.isascii() or is_unicode(stream):
        return text
    return "".join(_CELLS.get(c, c) if not _has(c, stream) else c for c in text)


def can_write(text: str, stream: TextIO) -> bool:
    """Whether a stream writes a text as it is."""
    return text.isascii() or is_unicode(stream) or all(_has(c, stream) for c in text)


def _has(character: str, stream: TextIO) -> bool:
    try:
        character.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _replace(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    words = [_WORDS.get(c) or _CELLS.get(c) or c.encode("unicode_escape").decode() for c in lacking]
    return "".join(words), error.end


codecs.register_error(ERRORS, _replace)
