"""Write docs/reference/api.md from signatures and docstrings. A test holds the file against them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from types import ModuleType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_overloads, get_type_hints

import msgspec
from docstrings import REFERENCE, page, parsed, rendered, said_of, signature, table

import chord
import chord.testing
from chord import config, events, ids
from chord.client import results, session
from chord.client.api import AsyncClientRing, AsyncRing
from chord.client.session import TIMEOUT_S
from chord.client.trio_driver import PATIENCE_S, TrioRing
from chord.wire.messages import base

TARGET = REFERENCE / "api.md"

HEAD = f"""
# The Python API

Generated from the code by `tools/api_reference.py`; change the docstrings.

Four ways into a ring, with the same operations:

| your program | it has | operations | an operation ends within |
|---|---|---|---|
| blocks, without Trio | `with chord.connect("HOST:PORT") as ring` | methods | `timeout_s`, {TIMEOUT_S:g} s |
| runs on Trio | `async with chord.open_client("HOST:PORT") as ring` | coroutines | the caller's cancel scopes, \
else {PATIENCE_S:g} s |
| runs on asyncio | `async with chord.open_asyncio_client("HOST:PORT") as ring` | coroutines | `timeout_s`, \
{TIMEOUT_S:g} s |
| is a member of the ring itself | `async with chord.open_node(join=["HOST:PORT"]) as node` | coroutines | \
the caller's cancel scopes, else {PATIENCE_S:g} s |

Errors are classes of `chord.errors`, each definite or indefinite: [errors](errors.md). What `chord.NodeConfig` and
`chord.RingConstants` hold: [configuration](configuration.md). How to: [store data](../how-to/store-data.md), [test with
a ring](../how-to/test-with-a-ring.md).
"""

WAYS = ("connect", "open_client", "open_asyncio_client", "open_node")

OPERATIONS = """
## Operations

Methods of `Ring`, as shown. Of `Client`, `AsyncioClient` and `Node` they are coroutines with the same arguments
(`await ring.get(…)`). There `scan`, `records` and `scan_quarantine` are asynchronous iterators.
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
    chord.Contact,
    chord.ReplicaLine,
    chord.Trace,
    chord.HopTrace,
    chord.Via,
    chord.Description,
    chord.VnodeInfo,
    chord.FingerRun,
    chord.OwnedArc,
    chord.PeerInfo,
    chord.ReplicaState,
    chord.TransferInfo,
    chord.Record,
    chord.ActorClock,
    chord.Version,
)
"""The messages that operations return as they are, or parts of them."""

OF_VALUES = (chord.Found, chord.Stored, chord.Pair, chord.Quarantined, chord.QuarantinedValue, chord.Decided)

ALIASES: dict[str, ModuleType] = {
    "Outcome": session,
    "Mode": base,
    "Route": base,
    "Preset": config,
    "NodeState": ids,
    "PeerState": ids,
    "Observer": events,
}
"""Type aliases, and the modules that define them."""

CLASSES = ("Point", "Circle", "Timing", "Limits", "Event", "Transport", "CallsService", "Storage", "IdentityStore")
"""Classes of arguments and properties that have no section of their own."""

TYPES = """
## Further types

Types that signatures name. [configuration](configuration.md) has the fields of `Timing` and `Limits`, and
`chord.events` the events.
"""


def reference() -> str:
    """Return the page.

    Raises:
        LookupError: a public name is missing on it.
    """
    shared = [name for name in _public(AsyncRing) if hasattr(chord.Ring, name)]
    text = page(
        HEAD,
        "## Into a ring",
        *(part for name in WAYS for part in _function(f"chord.{name}")),
        OPERATIONS,
        *(part for name in shared for part in _member(chord.Ring, name, name)),
        "## Ring",
        *_class(chord.Ring, without=shared),
        "## Client",
        *_class(chord.Client),
        "## AsyncioClient",
        *_class(chord.AsyncioClient),
        "## Client, AsyncioClient and Node: AsyncRing",
        *_class(AsyncRing, without=[*shared, *_public(TrioRing)]),
        "## Client and Node: TrioRing",
        *_class(TrioRing),
        "## Client and AsyncioClient: AsyncClientRing",
        *_class(AsyncClientRing, without=["leave"]),
        "## Node",
        *_class(chord.Node),
        RESULTS,
        *(part for struct in (*OF_VALUES, *OF_MESSAGES) for part in _struct(struct)),
        "## Resolvers",
        f"`Resolver = {_alias('Resolver')}`",
        said_of(results, "Resolver").replace("\n", " "),
        *_function("chord.last_writer_wins"),
        TYPES,
        table(["name", "type", "meaning"], list(_types())),
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
    shapes = get_overloads(found) or [found]
    return [f"### {title}", _code("\n".join(kind + signature(name, shape) for shape in shapes)), *rendered(_doc(found))]


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
    """Return the definition of a type alias."""
    return re.sub(r"\b(collections\.abc|typing|chord\.[a-z_.]+)\.(?=[A-Z])", "", str(getattr(chord, name)))


def _types() -> Iterator[list[str]]:
    for name, module in ALIASES.items():
        yield [f"`chord.{name}`", f"`{_alias(name)}`", said_of(module, name).replace("\n", " ")]
    for name in CLASSES:
        found = getattr(chord, name)
        yield [f"`chord.{name}`", f"`{found.__module__}.{name}`", parsed(found.__doc__).prose[0]]


def _others() -> Iterator[list[str]]:
    for name in chord.testing.__all__:
        if name not in ("run", "ring"):
            yield [f"`chord.testing.{name}`", parsed(getattr(chord.testing, name).__doc__).prose[0]]


def _code(text: str) -> str:
    return f"```text\n{text}\n```"


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
