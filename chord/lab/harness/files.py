"""Files that are there whole or not at all, however a run ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield where to write a file; it takes its place when the block ends, and what was there before is gone only then.

    If the block is left by an exception, whichever, nothing new remains.

    Raises: OSError: it cannot be written; `filename` is that of the file itself.
    """
    part = path.with_name(f".part-{path.name}")  # the name's end stays: whoever draws goes by it
    try:
        yield part
        part.replace(path)
    except OSError as error:
        if error.filename == str(part):
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        part.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write a text file (UTF-8), whole or not at all."""
    with whole(path) as part:
        part.write_text(text, encoding="utf-8")
