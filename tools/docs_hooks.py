"""Tables and docstrings of the documentation site that no plugin makes.

MkDocs loads this file as a hook. A line `<!-- table: NAME -->` in a page becomes the table of that name, made from the
code. griffe reads the docstrings for mkdocstrings, and loads `HouseStyle`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, get_args, get_origin

import click
import griffe
import msgspec

from chord import errors
from chord.cli import failures
from chord.cli.node import node_command
from chord.cli.settings import KEYS, RING_KEYS, VARIABLES
from chord.client.session import REMOTE_FAILURES_MAX, ClientSession
from chord.config import PRESETS, Limits, NodeConfig, RingConstants, Timing

MARK: Final = re.compile(r"^<!-- table: (\w+) -->$", re.MULTILINE)
SHARED: Final = re.compile(r"^( +)(\w+(?:, \w+)+): (.+(?:\n\1 +.+)*)$", re.MULTILINE)
TYPES: Final = {str: "string", int: "integer", float: "number"}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the tables into a page. MkDocs calls this function for each page."""
    return MARK.sub(lambda mark: TABLES[mark[1]](), markdown)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in (heads, *rows)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]])


# -- errors ---------------------------------------------------------------------------------------


def errors_table(base: type[errors.ChordError]) -> str:
    """Return the table of the errors of a kind: definite or indefinite."""
    rows = [
        [
            f"`{kind.__name__}`",
            f"`{kind.word}`",
            str(kind.code),
            str(failures.explain(kind(), "").exit_code),
            _retries(kind),
            str(kind.__doc__).split("\n")[0],
        ]
        for kind in errors.BY_CODE.values()
        if issubclass(kind, base)
    ]
    return table(["class", "code", "number", "exit", "retried", "meaning"], rows)


def _retries(kind: type[errors.ChordError]) -> str:
    """Return how often clients retry a request that failed with an error."""
    if not ClientSession.is_worth_retrying(kind(), 0):
        return "no"
    return "yes" if ClientSession.is_worth_retrying(kind(), REMOTE_FAILURES_MAX) else f"{REMOTE_FAILURES_MAX - 1} times"


# -- configuration --------------------------------------------------------------------------------


def keys_table(struct: type[msgspec.Struct], keys: Sequence[str]) -> str:
    """Return the table of keys that have a flag and a variable."""
    options = {option.name: option.opts[0] for option in node_command.params if isinstance(option, click.Option)}
    means = meanings(struct)
    rows = [
        [
            f"`{key}`",
            f"`{options[key if key in options else f'{key}_']}`",
            f"`{VARIABLES[key]}`",
            _type(struct, key),
            _default(struct(), key),
            means[key],
        ]
        for key in keys
    ]
    return table(["key", "flag", "variable", "type", "default", "meaning"], rows)


def timing_table() -> str:
    """Return the table of periods and timeouts, with a column for each preset."""
    means = meanings(Timing)
    rows = [[f"`{key}`", *(_default(preset, key) for preset in PRESETS.values()), means[key]] for key in means]
    return table(["key", *PRESETS, "meaning"], rows)


def limits_table() -> str:
    """Return the table of limits."""
    rows = [[f"`{key}`", _type(Limits, key), _default(Limits(), key), text] for key, text in meanings(Limits).items()]
    return table(["key", "type", "default", "meaning"], rows)


def meanings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return the text of each field in the docstring of a struct.

    Raises:
        LookupError: a field has no text, or the order differs from that of the fields.
    """
    sections = griffe.Docstring(str(struct.__doc__)).parse("google", warnings=False)
    found = next(section for section in sections if isinstance(section, griffe.DocstringSectionAttributes))
    texts = {str(field.name): " ".join(field.description.split()) for field in found.value}
    if tuple(texts) != struct.__struct_fields__:
        raise LookupError(f"the docstring of {struct.__name__} does not list its fields in order")
    return texts


def _type(struct: type[msgspec.Struct], key: str) -> str:
    """Return TOML's name for the type of a field."""
    found = next(field.type for field in msgspec.structs.fields(struct) if field.name == key)
    if get_origin(found) is Literal:
        return ", ".join(f'`"{value}"`' for value in get_args(found))
    if get_origin(found) is tuple:
        return f"list of {TYPES[get_args(found)[0]]}s"
    return TYPES[next(part for part in (*get_args(found), found) if part in TYPES)]


def _default(values: msgspec.Struct, key: str) -> str:
    value = getattr(values, key)
    if value is None:
        return "none"
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if "bytes" in key and value % size == 0:
            return f"{value} ({value // size} {unit})"
    return f"{value:g}" if isinstance(value, float) else str(value)


TABLES: Final[dict[str, Callable[[], str]]] = {
    "definite": lambda: errors_table(errors.DefiniteError),
    "indefinite": lambda: errors_table(errors.IndefiniteError),
    "node": lambda: keys_table(NodeConfig, [key for key in KEYS if key not in RING_KEYS]),
    "ring": lambda: keys_table(RingConstants, RING_KEYS),
    "timing": timing_table,
    "limits": limits_table,
}


# -- docstrings -----------------------------------------------------------------------------------


class HouseStyle(griffe.Extension):
    """An extension that adapts the docstrings to griffe, which calls it per object."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Split `first, second: text` in a docstring, because griffe expects one name per line."""
        if obj.docstring is not None:
            obj.docstring.value = one_name_per_line(obj.docstring.value)

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Show that a function with `@asynccontextmanager` returns a context manager."""
        is_manager = any("asynccontextmanager" in str(decorator.value) for decorator in func.decorators)
        if is_manager and isinstance(func.returns, griffe.ExprSubscript):
            func.returns.left = griffe.ExprName("AbstractAsyncContextManager")
            func.labels.discard("async")


def one_name_per_line(docstring: str) -> str:
    """Return a docstring in which each name has a line of its own, with the shared text."""

    def split(entry: re.Match[str]) -> str:
        return "\n".join(f"{entry[1]}{name}: {entry[3]}" for name in entry[2].split(", "))

    return SHARED.sub(split, docstring)
