"""How commands print: data on stdout, everything else on stderr.

Data is a table on a terminal, tab-separated text in a pipe, or JSON. Every command prints through one `Out`.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from chord.cli.plain import as_written, cell, is_unicode
from chord.ids import Circle
from chord.views.common import Json, failure_json

if TYPE_CHECKING:
    from chord.cli.folding import Block

HOST = "127.0.0.1"
DEFAULT_NODE = f"{HOST}:9000"
PROGRESS_EVERY_S = 0.1
BAR_WIDTH = 20
TABLE_COLUMNS = 400
DECIMAL_BITS_MAX = 16  # ids of circles with at most this many bits are decimal
INDENT = "  "  # of a continued line
CHARACTER_WIDTH_MAX = 2  # columns
CLEAR = "\r\x1b[K"
HOME_AND_CLEAR = "\x1b[H\x1b[J"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_BAR = {"█", *_EIGHTHS[1:]}


class Failure(Exception):
    """The error with which a command ends.

    Args:
        message: what failed and why, in words.
        hint: the next step for the user, in words.
        exit_code: the exit code of the command.
        code: the short name of the error in JSON.

    Attributes:
        message, hint, exit_code, code: as above.
        keys: the keys that a scan could show only in part, as JSON objects.
        also: further failures of the same command.
    """

    keys: tuple[Json, ...] = ()
    also: tuple[Failure, ...] = ()

    def __init__(self, message: str, hint: str, exit_code: int, code: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
        self.code = code


class Out:
    """The output of one command.

    Attributes:
        as_json: whether to print JSON on stdout instead of text.
        as_table: whether to print aligned tables instead of tab-separated text. Default: if stdout is a terminal.
            `CHORD_OUTPUT=table` or `tsv` overrides the default.
        is_live: whether stderr is a terminal, on which progress may be drawn.
    """

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.as_table = not as_json and is_table(sys.stdout)
        self.is_live = sys.stderr.isatty()
        self._clear = ""  # the escape sequence that erases the progress line

    def line(self, text: str = "") -> None:
        """Print a line of data on stdout.

        If `as_table`, control characters are escaped, so that data cannot steer the terminal. On a terminal, the line
        takes the place of a progress line.
        """
        if self._clear and sys.stdout.isatty():
            sys.stderr.write(self._clear)
            sys.stderr.flush()
            self._clear = ""
        print(printable(text) if self.as_table else text, file=sys.stdout)

    def sentence(self, text: str) -> None:
        """Print a text for people on stdout. If `as_table`, it is broken into lines as wide as the terminal."""
        self.line(_in_lines(printable(text), sys.stdout) if self.as_table else text)

    def id(self, circle: Circle, point: int) -> str:
        """Return an id as text: shortened if `as_table`, otherwise complete."""
        return short_id(circle, point) if self.as_table else full_id(circle, point)

    def redraw(self) -> None:
        """Clear the terminal and move the cursor to its top."""
        print(HOME_AND_CLEAR, file=sys.stdout)

    def flush(self) -> None:
        """Write out the text that stdout buffers."""
        sys.stdout.flush()

    def raw(self, data: bytes) -> None:
        """Write bytes to stdout unchanged. A line end follows only on a terminal."""
        sys.stdout.flush()
        sys.stdout.buffer.write(data + (b"\n" if sys.stdout.isatty() else b""))
        sys.stdout.buffer.flush()

    def json(self, value: Any) -> None:
        """Print a value as JSON on one line of stdout."""
        print(json_text(value, sys.stdout), file=sys.stdout, flush=True)

    def note(self, text: str) -> None:
        """Print a message that is not data on stderr. On a terminal, it is broken into lines as wide as that."""
        shown = printable(text)
        print(self._clear + (_in_lines(shown, sys.stderr) if self.is_live else shown), file=sys.stderr, flush=True)

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, plain: Sequence[str] = (),
        spare: Sequence[str] = (), is_aside: bool = False,
    ) -> None:
        """Print rows under headings: aligned if `as_table`, otherwise separated by tabs.

        An aligned table that is wider than the terminal is folded.

        Args:
            columns: the headings. A heading that begins with > aligns its column to the right.
            rows: the cells of each row, one for each heading.
            plain: the headings of columns, such as bars, that only an aligned table has.
            spare: the headings of columns that an aligned table may leave out to fit the terminal. The first is left
                out first.
            is_aside: print on stderr, because stdout has other data.
        """
        file = sys.stderr if is_aside else sys.stdout
        heads = [column.removeprefix(">") for column in columns]
        if not (is_table(file) if is_aside else self.as_table):
            keep = [i for i, heading in enumerate(heads) if heading not in plain]
            for row in (heads, *rows):
                print("\t".join(cell(_one_line(row[i]), file) for i in keep), file=file)
            return
        from chord.cli.folding import Wide, fold

        @functools.cache
        def rows_at(scale: float) -> list[list[str]]:
            return [[as_written(cell(_one_line(scaled(text, scale)), file), file) for text in row] for row in rows]

        for number, block in enumerate(fold(Wide(heads, rows_at, plain, spare), width_of(file))):
            if number:
                print(file=file)
            _print_block(block, columns, file)

    @contextmanager
    def progress(
        self, what: str, total: int | None = None, *, lines_every_s: float = math.inf
    ) -> Iterator[Callable[..., None]]:
        """Show the progress of long work on stderr; yield the function that updates it to the `with` block.

        The function takes the amount of work done so far and, optionally, the name of the current step.

        Args:
            what: the name of the work or of its units.
            total: the amount of work; None: unknown. If it is known, an update that names a step also shows an estimate
                of the time left.
            lines_every_s: without a terminal, print a line of progress at most once in this many seconds; default:
                never.
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
            # CLEAR erases one row of the terminal, so the text must not wrap.
            sys.stderr.write(CLEAR + text[: width_of(sys.stderr) - 1])
            sys.stderr.flush()

        try:
            yield show
        finally:
            sys.stderr.write(self._clear)
            sys.stderr.flush()
            self._clear = ""

    def failure(self, failure: Failure) -> None:
        """Print an error on stderr: what failed, why, and the next step. If `as_json`, it is a JSON object."""
        if self.as_json:
            print(json_text({"error": _failure_json(failure)}, sys.stderr), file=sys.stderr)
            return
        for each in (failure, *failure.also):
            text = each.message.rstrip(".")
            self.note(f"error: {text}{'' if text.endswith('?') else '.'} {each.hint}".rstrip())


def _failure_json(failure: Failure) -> Json:
    also = [_failure_json(each) for each in failure.also]
    return failure_json(failure.code, failure.message, failure.hint, failure.keys, also)


def bar(share: float) -> str:
    """Return a share, 0 to 1, as a bar of block characters, for a table."""
    return _bar_of(round(max(0.0, min(1.0, share)) * BAR_WIDTH * 8))


def scaled(text: str, scale: float) -> str:
    """Shorten a bar by a factor from 0 to 1. Any other text is returned unchanged."""
    if scale == 1 or not text or not set(text) <= _BAR:
        return text
    return _bar_of(round(scale * (8 * text.count("█") + _EIGHTHS.find(text[-1], 1))))


def _bar_of(eighths: int) -> str:
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def percent(share: float) -> str:
    """Return a share, 0 to 1, as a percentage, such as 12.5 %."""
    return f"{100 * share:.1f} %"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, such as 1 key or 2 keys; `plural` is an irregular plural of the noun."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def byte_size(count: float) -> str:
    """Return a number of bytes as text for people: 812 B, 3.4 KiB, 1.2 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def duration(seconds: float) -> str:
    """Return a number of seconds as text for people: 12 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def clock(at_ms: int) -> str:
    """Return a time in Unix ms as the local time of day, HH:MM:SS."""
    return time.strftime("%H:%M:%S", time.localtime(at_ms / 1000))


def time_left(elapsed_s: float, done: int, total: int | None) -> str:
    """Return a text that estimates the time left, such as "about 12 s left"; "" if no estimate is possible.

    The estimate assumes the average speed so far.

    Args:
        elapsed_s: the time since the work began, in seconds.
        done: the amount of work done.
        total: the amount of all work; None: unknown.
    """
    return f"about {duration(elapsed_s * (total - done) / done)} left" if total and 0 < done < total else ""


def _print_block(block: Block, columns: Sequence[str], file: TextIO) -> None:
    from chord.cli.folding import GAP, line_width

    widths = [max(map(line_width, column)) for column in zip(block.headings, *block.rows, strict=True)]
    bold = ("\x1b[1m", "\x1b[0m") if file.isatty() and os.environ.get("TERM") != "dumb" else ("", "")
    for number, row in enumerate([block.headings, *block.rows]):
        cells = [text.split("\n") for text in row]
        height = max(map(len, cells))
        for line in range(height):
            texts = []
            for at, width, parts in zip(block.columns, widths, cells, strict=True):
                skipped = height - len(parts) if number == 0 else 0  # short headings stand above their columns
                text = parts[line - skipped] if skipped <= line < skipped + len(parts) else ""
                room = " " * (width - line_width(text))
                texts.append(room + text if columns[at].startswith(">") else text + room)
            shown = (" " * GAP).join(texts).rstrip()
            print(shown if number else bold[0] + shown + bold[1], file=file)


def width_of(stream: TextIO) -> int:
    """Return the width of a stream's terminal, in columns.

    The variable `COLUMNS` overrides it. Without a terminal it is `TABLE_COLUMNS`.
    """
    with suppress(ValueError):
        if (columns := int(os.environ.get("COLUMNS", ""))) > 0:
            return columns
    with suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns or TABLE_COLUMNS
    return TABLE_COLUMNS


def _in_lines(text: str, stream: TextIO) -> str:
    """Return a text in lines as wide as the terminal; continued lines are indented."""
    width = width_of(stream)
    lines = as_written(text, stream).split("\n")
    if all(CHARACTER_WIDTH_MAX * len(line) <= width for line in lines):
        return "\n".join(lines)
    from chord.cli.folding import line_width, wrap

    found: list[str] = []
    for line in lines:
        if line_width(line) <= width:
            found.append(line)
            continue
        first, *others = wrap(line, width - len(INDENT)).split("\n")
        found += [first.rstrip(), *(INDENT + other.strip() for other in others)]
    return "\n".join(found)


def is_table(stream: TextIO) -> bool:
    """Return whether tables on a stream are aligned.

    The variable `CHORD_OUTPUT` decides: "table" or "tsv". If it is unset, only a terminal gets aligned tables.
    """
    wish = os.environ.get("CHORD_OUTPUT", "")
    return wish == "table" or (wish != "tsv" and stream.isatty())


def printable(text: str) -> str:
    """Return a text with unprintable characters escaped, except tabs and line ends.

    Names and keys come from other users and could steer the terminal.
    """
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() or c in "\t\n" else c.encode("unicode_escape").decode() for c in text])


def short_id(circle: Circle, point: int) -> str:
    """Return an id as text, shortened to its first and last four digits (8f3a…c21d) if it has over ten."""
    text = full_id(circle, point)
    return f"{text[:4]}…{text[-4:]}" if len(text) > 10 else text


def full_id(circle: Circle, point: int) -> str:
    """Return a complete id as text: decimal if the circle has up to 16 bits, otherwise hexadecimal."""
    return str(int(point)) if circle.bits <= DECIMAL_BITS_MAX else circle.hex(point)


def json_text(value: Any, stream: TextIO) -> str:
    """Return a value as JSON text that is safe to print on a stream.

    Characters that are unprintable, or that the stream cannot write, are escaped. The JSON value stays the same.
    """
    import json

    text = json.dumps(value, ensure_ascii=not is_unicode(stream))
    return text if text.isprintable() else "".join([c if c.isprintable() else json.dumps(c)[1:-1] for c in text])


def _one_line(text: str) -> str:
    return printable(text.replace("\t", " ").replace("\n", " "))
