"""Write docs/reference/api.md from signatures and docstrings. A test holds the file against them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from docstrings import REFERENCE, page, parsed, rendered, said_of, signature, table

import chord
import chord.testing
from chord import ids
from chord.client import results
from chord.client.api import PATIENCE_S, AsyncRing
from chord.client.blocking import TIMEOUT_S
from chord.wire import messages

TARGET = REFERENCE / "api.md"

HEAD = f"""
# The Python API

Generated from the code by `tools/api_reference.py`; change the docstrings.

Three ways into a ring, with the same operations:

| your program | it has | operations | an operation ends within |
|---|---|---|---|
| blocks, without Trio | `with chord.connect("HOST:PORT") as ring` | methods | `timeout_s`, {TIMEOUT_S:g} s |
| runs on Trio | `async with chord.open_client("HOST:PORT") as ring` | coroutines | the caller's cancel scopes, \
else {PATIENCE_S:g} s |
| is a member of the ring itself | `async with chord.open_node(join=["HOST:PORT"]) as node` | coroutines | \
the caller's cancel scopes, else {PATIENCE_S:g} s |

Errors are classes of `chord.errors`, each definite or indefinite: [errors](errors.md). What `chord.NodeConfig` and
`chord.RingConstants` hold: [configuration](configuration.md). How to: [store data](../how-to/store-data.md), [test with
a ring](../how-to/test-with-a-ring.md).
"""

OPERATIONS = """
## Operations

Methods of `Ring`, as shown. Of `Client` and `Node` they are coroutines with the same arguments (`await ring.get(…)`);
`scan`, `records` and `scan_quarantine` are asynchronous iterators there.
"""

RESULTS = """
## What comes back

Frozen structs, and named tuples; further fields may come with later versions. A `Point` is a number, 0 to 2^`bits` - 1;
what ends in `_ms` is in milliseconds. An `Outcome` is one of these, or an error.
"""

TESTING = """
## chord.testing

A world in memory, for tests of your own: [how to](../how-to/test-with-a-ring.md).
"""

OF_MESSAGES = (
    ids.Contact,
    messages.ReplicaLine,
    messages.Trace,
    messages.HopTrace,
    messages.Description,
    messages.VnodeInfo,
    messages.PeerInfo,
    messages.Record,
)
"""The messages that operations return as they are, or parts of them."""

OF_VALUES = (chord.Found, chord.Stored, results.Pair, chord.Quarantined, chord.QuarantinedValue, chord.Decided)


def reference() -> str:
    """Return the page.

    Raises:
        LookupError: a public name is missing on it.
    """
    shared = [name for name in _public(AsyncRing) if hasattr(chord.Ring, name)]
    text = page(
        HEAD,
        "## Into a ring",
        *(part for name in ("connect", "open_client", "open_node") for part in _function(f"chord.{name}")),
        OPERATIONS,
        *(part for name in shared for part in _member(chord.Ring, name, name)),
        "## Ring",
        *_class(chord.Ring, without=shared),
        "## Client",
        *_class(chord.Client),
        "## Client and Node: AsyncRing",
        *_class(AsyncRing, without=shared),
        "## Node",
        *_class(chord.Node),
        RESULTS,
        *(part for struct in (*OF_VALUES, *OF_MESSAGES) for part in _struct(struct)),
        "## Resolvers",
        f"`{_alias('Resolver')}`",
        said_of(results, "Resolver").replace("\n", " "),
        *_function("chord.last_writer_wins"),
        TESTING,
        *_function("chord.testing.run"),
        *_function("chord.testing.ring"),
        table(["name", "what it is"], list(_others())),
    )
    missing = [name for name in chord.__all__ if not name.startswith("_") and f"chord.{name}" not in text]
    missing = [name for name in missing if f"## {name}" not in text]
    if missing:
        raise LookupError(f"public names that are not on the page: {', '.join(missing)}")
    return text


def _public(owner: type) -> list[str]:
    """Return the names a class defines itself."""
    return [name for name in vars(owner) if not name.startswith("_")]


def _function(path: str) -> list[str]:
    module, _, name = path.rpartition(".")
    function = getattr({"chord": chord, "chord.testing": chord.testing}[module], name)
    return [f"### {path}", _code(signature(path, function)), *rendered(function.__doc__)]


def _class(owner: type, without: Sequence[str] = ()) -> list[str]:
    """Return what a class says of itself, and then its members."""
    parts = rendered(owner.__doc__)
    for name in _public(owner):
        if name not in without:
            parts += _member(owner, name, f"{owner.__name__}.{name}")
    return parts


def _member(owner: type, name: str, title: str) -> list[str]:
    """Return a method or a property of a class."""
    found = inspect.getattr_static(owner, name)
    if isinstance(found, property):
        assert found.fget is not None
        result = inspect.signature(found.fget).return_annotation
        return [f"### {title}", _code(f"{name}: {result}"), *rendered(_doc(found))]
    if not inspect.isfunction(found):
        raise LookupError(f"{owner.__name__}.{name} is neither a method nor a property")
    kind = "async " if inspect.iscoroutinefunction(found) else ""
    return [f"### {title}", _code(kind + signature(name, found)), *rendered(_doc(found))]


def _doc(found: Any) -> str:
    text = inspect.getdoc(found)
    if not text:
        raise LookupError(f"{found} says nothing of itself")
    return text


def _struct(struct: Any) -> list[str]:
    """Return a struct or a named tuple: each field with its type, and with what the docstring says of it."""
    doc = parsed(struct.__doc__)
    module = re.sub(r"^(chord\.wire\.messages)\..*", r"\1", struct.__module__)
    home = "chord" if struct.__name__ in chord.__all__ else module
    title = f"### {home}.{struct.__name__}"
    types = get_type_hints(struct)
    fields = struct.__struct_fields__ if issubclass(struct, msgspec.Struct) else struct._fields
    if "Attributes" in doc.sections:
        rows = [[f"`{name}`", f"`{_type(types[name])}`", doc.of(name)] for name in fields]
        parts = [title, *doc.prose, table(["field", "type", "means"], rows)]
    else:
        parts = [title, *doc.prose, _code("\n".join(f"{name}: {_type(types[name])}" for name in fields))]
    for name in _public(struct):
        if isinstance(inspect.getattr_static(struct, name), property):
            parts += _member(struct, name, f"{home}.{struct.__name__}.{name}")
    return parts


def _type(found: Any) -> str:
    """Return a type as one writes it, without the bounds of a message."""
    if found is type(None) or found is ...:
        return "None" if found is not ... else "..."
    inner, origin = get_args(found), get_origin(found)
    if origin is Literal:
        return ", ".join(map(repr, inner)).join(("Literal[", "]"))
    if origin in (Union, UnionType):
        return " | ".join(map(_type, inner))
    return f"{origin.__name__}[{', '.join(map(_type, inner))}]" if inner and origin else str(found.__name__)


def _alias(name: str) -> str:
    shown = str(getattr(results, name)).replace("collections.abc.", "").replace("chord.client.results.", "")
    return f"{name} = {shown}"


def _others() -> Iterator[list[str]]:
    for name in chord.testing.__all__:
        if name not in ("run", "ring"):
            yield [f"`chord.testing.{name}`", parsed(getattr(chord.testing, name).__doc__).prose[0]]


def _code(text: str) -> str:
    return f"```text\n{text}\n```"


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
