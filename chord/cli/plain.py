"""Output for terminals and pipes without Unicode.

The characters … ● ✗ █ → ½ are replaced by characters that ASCII or Latin-1 has.
"""

from __future__ import annotations

import codecs
import sys
from typing import Final, TextIO

ERRORS: Final = "chord.plain"
"""The name of the error handler that replaces characters an encoding lacks."""

_CELLS: Final = {"…": "~", "●": "*", "○": "o", "✗": "x", "█": "#", "→": ">", "·": "*", "−": "-", "–": "-"} | {
    part: "#" if part in "▋▊▉" else "-" for part in "▏▎▍▌▋▊▉"
}
"""Replacements in tables. Each is one character, so that the columns stay aligned."""

_WORDS: Final = {"…": "...", "→": "->", "½": "1/2", "—": "-"}
"""Replacements in prose. They may be longer."""


def adapt_streams() -> None:
    """Make stdout and stderr replace characters that their encodings lack, in place of raising an error."""
    for stream in (sys.stdout, sys.stderr):
        if not is_unicode(stream) and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=ERRORS)


def is_unicode(stream: TextIO) -> bool:
    """Return whether the encoding of a stream has every character."""
    try:
        return codecs.lookup(stream.encoding or "ascii").name.startswith("utf")
    except LookupError:
        return False


def cell(text: str, stream: TextIO) -> str:
    """Return a table cell with replacements of one character for characters that a stream cannot write.

    A character without a replacement stays as it is.
    """
    if text.isascii() or is_unicode(stream):
        return text
    return "".join(_CELLS.get(c, c) if not _has(c, stream) else c for c in text)


def as_written(text: str, stream: TextIO) -> str:
    """Return a text with replacements, of any length, for the characters that a stream cannot write."""
    if text.isascii() or is_unicode(stream):
        return text
    encoding = stream.encoding or "ascii"
    return text.encode(encoding, ERRORS).decode(encoding)


def can_write(text: str, stream: TextIO) -> bool:
    """Return whether the encoding of a stream has all characters of a text."""
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
