"""Files written atomically: complete or not at all, however the run ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Replace a file atomically: yield a path for the new content.

    The new file replaces `path` when the block ends. If an exception leaves the block, `path` keeps its old content and
    no new file remains.

    Raises:
        OSError: the file cannot be written; `filename` is `path`.
    """
    part = path.with_name(f".part-{path.name}")  # keep the suffix: Matplotlib derives the format from it
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
    """Write a text file (UTF-8) atomically, in place of an existing one.

    Raises:
        OSError: the file cannot be written.
    """
    with whole(path) as part:
        part.write_text(text, encoding="utf-8")
