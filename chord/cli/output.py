"""How commands speak: data on stdout, everything else on stderr; tables on a terminal, tabs in a pipe, or JSON.

Every command gets one `Out` and prints through it alone.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TextIO

from chord.cli.folding import GAP, Block, fold
from chord.cli.plain import cell, is_unicode
from chord.ids import Circle

DEFAULT_NODE = "127.0.0.1:9000"
PROGRESS_EVERY_S = 0.1
BAR_WIDTH = 20
TABLE_COLUMNS = 400
DECIMAL_BITS_MAX = 16  # on circles this small ids are written in decimal
CLEAR = "\r\x1b[K"
HOME_AND_CLEAR = "\x1b[H\x1b[J"
_EIGHTHS = " ▏▎▍▌▋▊▉"


class Failure(Exception):
    """A command cannot do what it was asked: what and why, what to do about it, and the exit code.

    Attributes:
        keys: the keys that a scan could not show whole, as they stand in JSON.
        also: other failures of the same command.
    """

    keys: tuple[dict[str, Any], ...] = ()
    also: tuple[Failure, ...] = ()

    def __init__(self, message: str, hint: str, exit_code: int, code: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
        self.code = code


class Column(NamedTuple):
    """A column of a table: its heading and which side it leans to."""

    title: str
    justify: Literal["left", "right"] = "left"


class Out:
    """Where a command's words go.

    Attributes:
        as_json: one JSON object on stdout instead of text.
        as_table: tables for people; else tab-separated text. `CHORD_OUTPUT=table` or `tsv` overrules the guess.
    """

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.as_table = not as_json and is_table(sys.stdout)
        self.is_live = sys.stderr.isatty()  # whether progress may be drawn
        self._clear = ""  # what takes the progress off the screen

    def line(self, text: str = "") -> None:
        """Print a line of data; for people, without what would steer their terminal."""
        print(printable(text) if self.as_table else text, file=sys.stdout)

    def id(self, circle: Circle, point: int) -> str:
        """Return an id: shortened for people, whole in a pipe."""
        return short_id(circle, point) if self.as_table else full_id(circle, point)

    def redraw(self) -> None:
        """Begin again at the top of the terminal."""
        print(HOME_AND_CLEAR, file=sys.stdout)

    def flush(self) -> None:
        """See that what was printed is seen."""
        sys.stdout.flush()

    def raw(self, data: bytes) -> None:
        """Write bytes as they are; end the line only for a reader at a terminal."""
        sys.stdout.flush()
        sys.stdout.buffer.write(data + (b"\n" if sys.stdout.isatty() else b""))
        sys.stdout.buffer.flush()

    def json(self, value: Any) -> None:
        """Print one JSON object on one line."""
        print(json_text(value, sys.stdout), file=sys.stdout, flush=True)

    def note(self, text: str) -> None:
        """Tell the user something that is not data."""
        print(self._clear + printable(text), file=sys.stderr, flush=True)

    def table(
        self, columns: Sequence[Column], rows: Sequence[Sequence[str]], *, plain: Sequence[str] = (),
        is_aside: bool = False, is_folded: bool = False,
    ) -> None:
        """Print rows under headings: aligned on a terminal, else with tabs.

        Args:
            plain: titles of columns that only people get (bars and the like).
            is_aside: to stderr, where stdout belongs to the data.
            is_folded: in several blocks where it is wider than the terminal.
        """
        file = sys.stderr if is_aside else sys.stdout
        if not (is_table(file) if is_aside else self.as_table):
            keep = [i for i, column in enumerate(columns) if column.title not in plain]
            for row in ([c.title for c in columns], *rows):
                print("\t".join(cell(_one_line(row[i]), file) for i in keep), file=file)
            return
        heads = [column.title for column in columns]
        blocks = fold(heads, rows, self.width) if is_folded else [Block(list(range(len(heads))), heads)]
        for number, block in enumerate(blocks):
            if number:
                print(file=file)
            _print_block(block, columns, rows, file)

    @property
    def width(self) -> int:
        """Of the terminal, in characters; where there is none, wider than any."""
        return shutil.get_terminal_size((TABLE_COLUMNS, 0)).columns

    @contextmanager
    def progress(
        self, what: str, total: int | None = None, *, lines_every_s: float = math.inf
    ) -> Iterator[Callable[..., None]]:
        """Show how far long work has come, on a terminal; yields a function to tell it, and what is being done.

        Args:
            total: how much there is to do; then it is also guessed how long that will take.
            lines_every_s: where there is no terminal, a line of it on stderr so often.
        """
        began = time.monotonic()
        last = [0.0 if self.is_live else began]

        def show(done: int, doing: str = "") -> None:
            now = time.monotonic()
            if now - last[0] < (PROGRESS_EVERY_S if self.is_live else lines_every_s):
                return
            last[0] = now
            left = time_left(now - began, done, total) if doing else ""
            if not self.is_live:
                of = f"/{total}" if total else ""
                self.note("  ".join(part for part in (f"{what} {done}{of}", left, doing) if part))
                return
            of = f"/{total}  {bar(done / total):<{BAR_WIDTH}}" if total else ""
            text = "  ".join(part for part in (f"{what}  {done}{of}", left, doing) if part)
            self._clear = CLEAR
            # Of a line that goes on in the next one only the rest would be cleared.
            sys.stderr.write(CLEAR + text[: shutil.get_terminal_size().columns - 1])
            sys.stderr.flush()

        try:
            yield show
        finally:
            sys.stderr.write(self._clear)
            sys.stderr.flush()
            self._clear = ""

    def failure(self, failure: Failure) -> None:
        """Print an error: what, why, and what to do."""
        if self.as_json:
            print(json_text({"error": _failure_json(failure)}, sys.stderr), file=sys.stderr)
            return
        for each in (failure, *failure.also):
            text = each.message.rstrip(".")
            self.note(f"error: {text}{'' if text.endswith('?') else '.'} {each.hint}".rstrip())


def _failure_json(failure: Failure) -> dict[str, Any]:
    shape: dict[str, Any] = {"code": failure.code, "message": failure.message, "hint": failure.hint}
    if failure.keys:
        shape["keys"] = list(failure.keys)
    if failure.also:
        shape["also"] = [_failure_json(each) for each in failure.also]
    return shape


def bar(share: float, width: int = BAR_WIDTH) -> str:
    """Return a share of 1 as a bar of block characters."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def percent(share: float) -> str:
    """Return a share of 1 as text."""
    return f"{100 * share:.1f} %"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number and what it counts: 1 key, 2 keys."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def byte_size(count: float) -> str:
    """Return so many bytes as people read them: 812 B, 3.4 KiB, 1.2 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def duration(seconds: float) -> str:
    """Return so many seconds as people read them: 12 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def time_left(elapsed_s: float, done: int, total: int | None) -> str:
    """Return a guess at how long the rest will take, if it is like what is done; nothing while there is no telling."""
    return f"about {duration(elapsed_s * (total - done) / done)} left" if total and 0 < done < total else ""


def _print_block(block: Block, columns: Sequence[Column], rows: Sequence[Sequence[str]], file: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    for at, heading in zip(block.columns, block.headings, strict=True):
        table.add_column(heading, justify=columns[at].justify, no_wrap=True, vertical="bottom")
    for row in rows:
        table.add_row(*(cell(_one_line(row[at]), file) for at in block.columns))
    # Wider than any terminal: a narrow one wraps lines, which is better than cells cut short.
    Console(highlight=False, markup=False, emoji=False, width=TABLE_COLUMNS, file=file).print(table)


def is_table(stream: TextIO) -> bool:
    """Whether a stream gets tables for people."""
    wish = os.environ.get("CHORD_OUTPUT", "")
    return wish == "table" or (wish != "tsv" and stream.isatty())


def printable(text: str) -> str:
    """Return a text with what is no character to look at written out: names and keys come from anybody."""
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() or c in "\t\n" else c.encode("unicode_escape").decode() for c in text])


def short_id(circle: Circle, point: int) -> str:
    """Return an id as people read it: decimal on toy circles, else the ends of its hexadecimal form."""
    text = full_id(circle, point)
    return f"{text[:4]}…{text[-4:]}" if len(text) > 10 else text


def full_id(circle: Circle, point: int) -> str:
    """Return an id whole: decimal on toy circles, else hexadecimal."""
    return str(int(point)) if circle.bits <= DECIMAL_BITS_MAX else circle.hex(point)


def json_text(value: Any, stream: TextIO) -> str:
    """Return JSON as people read it best; what is no character to look at is escaped, which says the same.

    So is what a stream cannot write.
    """
    text = json.dumps(value, ensure_ascii=not is_unicode(stream))
    return text if text.isprintable() else "".join([c if c.isprintable() else json.dumps(c)[1:-1] for c in text])


def _one_line(text: str) -> str:
    return printable(text.replace("\t", " ").replace("\n", " "))
