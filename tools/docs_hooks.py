"""Generate tables and adapt docstrings for the documentation site.

No plugin of MkDocs does this. MkDocs loads this file as a hook. A line `<!-- table: NAME -->` in a page becomes the
table of that name, made from the code. griffe reads the docstrings for mkdocstrings, and loads `HouseStyle`.
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
    """Replace the table marks in a page by their tables; MkDocs calls this per page."""
    return MARK.sub(lambda mark: TABLES[mark[1]](), markdown)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as a Markdown table."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in (heads, *rows)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]])


# -- errors ---------------------------------------------------------------------------------------


def errors_table(base: type[errors.ChordError]) -> str:
    """Return a Markdown table of all errors of one kind.

    Args:
        base: the kind: `DefiniteError` or `IndefiniteError`.
    """
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
    """Return whether clients retry a request that failed with an error of this class.

    The text is "yes", "no", or a number of times.
    """
    if not ClientSession.is_worth_retrying(kind(), 0):
        return "no"
    return "yes" if ClientSession.is_worth_retrying(kind(), REMOTE_FAILURES_MAX) else f"{REMOTE_FAILURES_MAX - 1} times"


# -- configuration --------------------------------------------------------------------------------


def keys_table(struct: type[msgspec.Struct], keys: Sequence[str]) -> str:
    """Return a Markdown table of configuration keys, with their flags and variables.

    Args:
        struct: the class of the configuration that has the keys.
        keys: the keys to list.
    """
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
    """Return a Markdown table of all periods and timeouts, with a column per preset."""
    means = meanings(Timing)
    rows = [[f"`{key}`", *(_default(preset, key) for preset in PRESETS.values()), means[key]] for key in means]
    return table(["key", *PRESETS, "meaning"], rows)


def limits_table() -> str:
    """Return a Markdown table of all limits, with types and defaults."""
    rows = [[f"`{key}`", _type(Limits, key), _default(Limits(), key), text] for key, text in meanings(Limits).items()]
    return table(["key", "type", "default", "meaning"], rows)


def meanings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return the description of each field of a struct, from its docstring.

    Raises:
        LookupError: a field has no description, or the order differs from that of the fields.
    """
    sections = griffe.Docstring(str(struct.__doc__)).parse("google", warnings=False)
    found = next(section for section in sections if isinstance(section, griffe.DocstringSectionAttributes))
    texts = {str(field.name): " ".join(field.description.split()) for field in found.value}
    if tuple(texts) != struct.__struct_fields__:
        raise LookupError(f"the docstring of {struct.__name__} does not list its fields in order")
    return texts


def _type(struct: type[msgspec.Struct], key: str) -> str:
    """Return the type of a configuration key in TOML's terms, such as "integer"."""
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
    """An extension of griffe that adapts this project's docstrings to its parser.

    griffe calls its methods for each object that it reads.
    """

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Give each name of `first, second: text` a line, as griffe's parser expects."""
        if obj.docstring is not None:
            obj.docstring.value = one_name_per_line(obj.docstring.value)

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Show the context manager that a function with `@asynccontextmanager` returns."""
        is_manager = any("asynccontextmanager" in str(decorator.value) for decorator in func.decorators)
        if is_manager and isinstance(func.returns, griffe.ExprSubscript):
            func.returns.left = griffe.ExprName("AbstractAsyncContextManager")
            func.labels.discard("async")


def one_name_per_line(docstring: str) -> str:
    """Split each entry `first, second: text` of a docstring into one entry per name.

    All names get the shared text.
    """

    def split(entry: re.Match[str]) -> str:
        return "\n".join(f"{entry[1]}{name}: {entry[3]}" for name in entry[2].split(", "))

    return SHARED.sub(split, docstring)
