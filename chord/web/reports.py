"""The reports of the lab: which ones a folder has, and each as an HTML page of its own."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

from chord.views.common import Json

BYTES_MAX: Final = 8 << 20
"""The largest report, and the largest picture in one."""

NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*\.md")
PICTURE: Final = re.compile(r"!\[([^\]]*)\]\(([A-Za-z0-9_-][A-Za-z0-9._-]*\.svg)\)")
WORDS: Final = (
    (re.compile(r"`([^`]+)`"), r"<code>\1</code>"),
    (re.compile(r"\*\*([^*]+)\*\*"), r"<b>\1</b>"),
    (re.compile(r"\*([^*]+)\*"), r"<i>\1</i>"),
    (re.compile(r"\[([^\]]+)\]\([^)]*\)"), r"\1"),  # the page's list has the other reports
)
STYLE: Final = (Path(__file__).parent / "static" / "report.css").read_text(encoding="utf-8")


def reports_in(folder: Path) -> list[Json]:
    """Return the name, title and time of each report in a folder, the newest first.

    Reports with a name that begins with "report" come before all others.
    """
    found = [path for path in folder.glob("*.md") if NAME.fullmatch(path.name) and path.is_file()]
    found.sort(key=lambda path: (not path.name.startswith("report"), -path.stat().st_mtime, path.name))
    return [
        {"name": path.name, "title": _title(path), "written_ms": int(1000 * path.stat().st_mtime)} for path in found
    ]


def report_html(folder: Path, name: str) -> str | None:
    """Return a Markdown report of a folder as an HTML page with its pictures inside.

    None means that the folder has no report of this name, or that it is longer than 8 MiB.
    """
    path = folder / name
    if not NAME.fullmatch(name) or not path.is_file() or path.stat().st_size > BYTES_MAX:
        return None
    text = path.read_text(encoding="utf-8", errors="replace")
    body = "\n".join(_blocks(folder, text.split("\n")))
    head = f'<meta charset="utf-8"><title>{escape(_title(path))}</title><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en">{head}{body}</html>'


def _title(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline(400).removeprefix("# ").strip() or path.name


def _blocks(folder: Path, lines: list[str]) -> Iterator[str]:
    """Yield the blocks of a text in the Markdown that the lab writes."""
    at = 0
    while at < len(lines):
        line = lines[at]
        rows = _run(lines, at, "|" if line.startswith("|") else "    " if line.startswith("    ") else "- ")
        picture = PICTURE.fullmatch(line.strip())
        if line.startswith("#"):
            level = min(3, len(line) - len(line.lstrip("#")))
            yield f"<h{level}>{_words(line.lstrip('# '))}</h{level}>"
        elif picture is not None:
            yield _picture(folder, picture[2], picture[1])
        elif rows and line.startswith("|"):
            yield f"<table>{_row(rows[0], 'th')}{''.join(_row(row, 'td') for row in rows[2:])}</table>"
        elif rows and line.startswith("    "):
            yield f"<pre>{escape(chr(10).join(row[4:] for row in rows))}</pre>"
        elif rows:
            yield f"<ul>{''.join(f'<li>{_words(row[2:])}</li>' for row in rows)}</ul>"
        elif line.strip():
            yield f"<p>{_words(line)}</p>"
        at += max(1, len(rows))


def _run(lines: list[str], at: int, start: str) -> list[str]:
    """Return the lines from a place on that begin with a text."""
    end = at
    while end < len(lines) and lines[end].startswith(start):
        end += 1
    return lines[at:end]


def _row(line: str, tag: str) -> str:
    cells = line.strip().strip("|").split("|")
    return f"<tr>{''.join(f'<{tag}>{_words(cell.strip())}</{tag}>' for cell in cells)}</tr>"


def _picture(folder: Path, name: str, text: str) -> str:
    path = folder / name
    if not path.is_file() or path.stat().st_size > BYTES_MAX:
        return f"<p>{escape(name)} is missing.</p>"
    return f'<img alt="{escape(text)}" src="data:image/svg+xml;base64,{b64encode(path.read_bytes()).decode()}">'


def _words(text: str) -> str:
    text = escape(text)
    for pattern, by in WORDS:
        text = pattern.sub(by, text)
    return text
