"""What the generated reference pages share: docstrings taken apart, signatures, and tables in Markdown."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from chord.config import PRESETS

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"
SECTIONS = ("Args", "Attributes", "Returns", "Raises")
LEADS = ("Bounds", "Cancelling", "Concurrency", "Deadlines", "Errors")
LINE_CHARS_MAX = 110
_ENTRY = re.compile(r"(\w+(?:, \w+)*): (.*)")


class Entry(NamedTuple):
    """What a section says of a name, or of several at once."""

    names: tuple[str, ...]
    text: str


class Docstring(NamedTuple):
    """A docstring: its paragraphs, the entries of its sections, and what is returned."""

    prose: tuple[str, ...]
    sections: dict[str, tuple[Entry, ...]]
    returns: str

    def of(self, name: str) -> str:
        """Return what `Attributes` says of a name.

        Raises:
            KeyError: nothing.
        """
        return {each: entry.text for entry in self.sections["Attributes"] for each in entry.names}[name]


def parsed(text: str | None) -> Docstring:
    """Take a docstring apart."""
    prose: list[list[str]] = [[]]
    found: dict[str, list[str]] = {}
    section: list[str] | None = None
    for line in inspect.cleandoc(text or "").splitlines():
        if line.removesuffix(":") in SECTIONS and line.endswith(":"):
            section = found.setdefault(line[:-1], [])
            prose.append([])
        elif section is not None and (not line or line.startswith(" ")):
            section += [line.removeprefix("    ")] if line else []
        else:
            section = None
            prose += [] if line else [[]]
            prose[-1] += [line] if line else []
    paragraphs = tuple(" ".join(lines) for lines in prose if lines)
    returns = " ".join(line.strip() for line in found.pop("Returns", ()))
    return Docstring(paragraphs, {name: _entries(lines) for name, lines in found.items()}, returns)


def _entries(lines: Sequence[str]) -> tuple[Entry, ...]:
    whole: list[str] = []
    for line in lines:
        if line.startswith(" "):
            whole[-1] += " " + line.strip()
        else:
            whole.append(line)
    found = []
    for line in whole:
        match = _ENTRY.fullmatch(line)
        if match is None:
            raise ValueError(f"{line!r} is not a name and what is said of it")
        found.append(Entry(tuple(match[1].split(", ")), match[2]))
    return tuple(found)


def rendered(text: str | None) -> list[str]:
    """Return a docstring as parts of a page: what it is, its arguments, errors; last what holds beside others."""
    doc = parsed(text)
    last = [led(paragraph) for paragraph in doc.prose if paragraph.startswith("Concurrency: ")]
    parts = [text for text in map(led, doc.prose) if text not in last]
    for title, entries in doc.sections.items():
        label = {"Args": "Arguments", "Raises": "Errors"}.get(title, title)
        lines = [f"- {', '.join(f'`{name}`' for name in entry.names)}: {entry.text}" for entry in entries]
        if title == "Raises" and doc.returns:
            parts.append(f"**Returns:** {doc.returns}")
        parts.append("\n".join([f"**{label}**", "", *lines]))
    if doc.returns and "Raises" not in doc.sections:
        parts.append(f"**Returns:** {doc.returns}")
    return [*parts, *last]


def led(paragraph: str) -> str:
    """Return a paragraph; the word that says what it is about, if it begins with one, in bold."""
    return re.sub(rf"^({'|'.join(LEADS)}): ", r"**\1:** ", paragraph)


def said_of(module: ModuleType, name: str) -> str:
    """Return the string that stands behind the definition of a name, such as a type alias.

    Raises:
        LookupError: there is none.
    """
    body = ast.parse(inspect.getsource(module)).body
    for node, following in pairwise(body):
        is_it = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name
        if is_it and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            return inspect.cleandoc(str(following.value.value))
    raise LookupError(f"{module.__name__} says nothing of {name}")


def signature(name: str, function: Callable[..., Any]) -> str:
    """Return how a function is called: on one line if it fits, else one argument a line."""
    found = inspect.signature(function)
    parts: list[str] = []
    kinds = {parameter.kind for parameter in found.parameters.values()}
    for parameter in found.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts and parameter.VAR_POSITIONAL not in kinds:
            parts.append("*")
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
        parts.append(f"{star}{parameter.name}: {parameter.annotation}{default}")
    result = str(found.return_annotation)
    if inspect.isasyncgenfunction(inspect.unwrap(function)) and not inspect.isasyncgenfunction(function):
        result = result.replace("AsyncIterator", "AbstractAsyncContextManager")
    line = f"{name}({', '.join(parts)}) -> {result}"
    if len(line) <= LINE_CHARS_MAX:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f") -> {result}"])


def _default(value: object) -> str:
    if inspect.isfunction(value):
        return "…" if value.__name__ == "<lambda>" else value.__name__
    return next((f"PRESETS[{name!r}]" for name, timing in PRESETS.items() if timing is value), repr(value))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in (heads, *rows)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]])


def page(*parts: str) -> str:
    """Return a page of these parts."""
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"
