"""The public names: all there, documented, typed, and loaded only when used."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from types import ModuleType
from typing import Any, get_args, get_origin, get_overloads, get_type_hints

import pytest

import chord
from chord.client.session import TIMEOUT_S
from tools import unasync


@pytest.mark.parametrize("name", chord.__all__)
def test_public_name_exists_and_is_documented(name: str) -> None:
    value = getattr(chord, name)
    is_alias = get_origin(value) is not None  # an alias has its text behind the definition
    if name != "__version__" and not is_alias:
        assert inspect.getdoc(value), f"chord.{name} has no docstring"
    assert name in dir(chord)


def test_star_import_gives_exactly_the_public_names() -> None:
    space: dict[str, object] = {}
    exec("from chord import *", space)
    assert set(space) - {"__builtins__"} == set(chord.__all__)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = chord.nonsense  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("use", "spared"),
    [
        ("chord", "msgspec"), ("chord.errors", "msgspec"), ("chord.connect", "trio"), ("chord.Found", "trio"),
        ("chord.open_asyncio_client", "trio"), ("chord.connect", "asyncio"), ("chord.open_client", "asyncio"),
        ("chord.Status", "trio"), ("chord.Limits", "trio"),
    ],
)  # fmt: skip
def test_import_loads_only_what_it_uses(use: str, spared: str) -> None:
    code = f"import sys, chord; {use}; sys.exit({spared!r} in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_node_and_clients_have_one_interface() -> None:
    shared = (
        "put", "get", "delete", "put_many", "get_many", "scan", "export", "import_", "import_many", "lookup", "status",
        "members", "remove_node", "scan_quarantine", "get_quarantine", "drop_quarantine", "merge_quarantine",
    )
    for name in shared:
        shapes = {
            tuple((p.name, p.kind, p.annotation) for p in inspect.signature(getattr(kind, name)).parameters.values())
            for kind in (chord.Client, chord.AsyncClient, chord.AsyncioClient, chord.Node)
        }
        assert len(shapes) == 1, f"{name}: {shapes}"


def test_asynchronous_clients_have_the_same_methods() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(chord.AsyncioClient) - public(chord.AsyncClient) == {"close"}
    assert public(chord.AsyncClient) <= public(chord.AsyncioClient)


def test_blocking_twin_of_the_api_is_current() -> None:
    source, twin = (path.read_text(encoding="utf-8") for path in (unasync.SOURCE, unasync.TWIN))
    assert unasync.blocking(source) == twin, "run: python tools/unasync.py"
    assert not re.search(r"\b(async|await|asynchronous|Trio|coroutine|checkpoint)", twin, re.IGNORECASE)


def test_blocking_twin_of_a_changed_api_differs() -> None:
    changed = unasync.SOURCE.read_text(encoding="utf-8").replace("Read a key.", "Read one key.")
    assert unasync.blocking(changed) != unasync.TWIN.read_text(encoding="utf-8")


def test_limits_of_time_have_one_name_and_default() -> None:
    for entry in (chord.connect, chord.open_client, chord.open_asyncio_client):
        assert inspect.signature(entry).parameters["timeout_s"].default == TIMEOUT_S
    for kind in (chord.Client, chord.AsyncClient, chord.AsyncioClient, chord.Node):
        first = (inspect.getdoc(kind) or "").split("\n\n")[1]
        assert "`timeout_s`" in first, kind
        assert "5 seconds by default" in " ".join(first.split()), kind


CREATED_BY_FUNCTIONS = {"Client", "AsyncClient", "AsyncioClient", "TestRing", "MemoryTransport"}
"""Classes with constructors that users do not call."""
SEAMS = {
    "FaultyNetwork.connector", "FaultyNetwork.passage", "MemoryNetwork.connector", "MemoryNetwork.passage",
    "MemoryTransport.open_listener", "MemoryTransport.open_stream", "TestRing.identity", "TestRing.vnodes",
    "VirtualClock.attach",
}  # fmt: skip
"""Members of `chord.testing` for networks, nodes and the simulator of this project."""
OTHERS = {
    "Any", "AsyncGenerator", "AsyncIterator", "Awaitable", "BaseException", "Callable", "ChordError", "Counter", "D",
    "Exception", "Generator", "Iterable", "Iterator", "K", "Literal", "Mapping", "None", "Random", "Sequence", "T",
    "TaskStatus", "TracebackType", "Ts",
}  # fmt: skip
"""Names in signatures that other packages define, type variables, and errors, which are in `chord.errors`."""


def signatures(home: ModuleType, name: str) -> Iterator[tuple[str, inspect.Signature]]:
    """Yield the public signatures of a public name: of a function, or of the members of a class."""
    found = getattr(home, name)
    if inspect.isfunction(found):
        yield name, inspect.signature(found)
    elif inspect.isclass(found) and found.__module__.startswith(("chord.client", "chord.node", "chord.testing")):
        for member in dir(found):
            value = inspect.getattr_static(found, member)
            value = value.fget if isinstance(value, property) else value
            is_shown = not member.startswith("_") or (member == "__init__" and name not in CREATED_BY_FUNCTIONS)
            if inspect.isfunction(value) and is_shown and f"{name}.{member}" not in SEAMS:
                for shape in get_overloads(value) or [value]:
                    yield f"{name}.{member}", inspect.signature(shape)


def names_in(signature: inspect.Signature) -> set[str]:
    """Return the names of types in a signature."""
    parts = [signature.return_annotation, *(p.annotation for p in signature.parameters.values())]
    return {name for part in parts if isinstance(part, str) for name in re.findall(r"\b[A-Z]\w*", part)}


@pytest.mark.parametrize("home", [chord, chord.testing])
def test_types_in_public_signatures_are_exported(home: ModuleType) -> None:
    for name in home.__all__:
        for where, signature in signatures(home, name):
            missing = names_in(signature) - {*chord.__all__, *home.__all__} - OTHERS
            assert not missing, f"{where} names {missing}"


def test_signature_with_a_type_that_is_not_exported_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(kind: Secret) -> None:  # type: ignore[name-defined]  # noqa: F821
        """Take a type of an internal module."""

    monkeypatch.setattr(chord, "connect", planted)
    ((_, signature),) = signatures(chord, "connect")
    assert names_in(signature) - set(chord.__all__) - OTHERS == {"Secret"}


def test_flags_in_public_signatures_are_imperatives() -> None:
    for home in (chord, chord.testing):
        for name in home.__all__:
            for where, signature in signatures(home, name):
                facts = [flag for flag in signature.parameters if flag.startswith(("is_", "has_"))]
                assert not facts, f"{where} takes {facts}"


def classes_in(annotation: Any) -> Iterator[type]:
    """Yield the classes of this project in a resolved annotation."""
    if inspect.isclass(annotation) and annotation.__module__.startswith("chord."):
        yield annotation
    for part in get_args(annotation):
        yield from classes_in(part)


@pytest.mark.parametrize("name", chord.__all__)
def test_types_of_fields_of_public_structs_are_exported(name: str) -> None:
    found = getattr(chord, name)
    if inspect.isclass(found) and (hasattr(found, "__struct_fields__") or hasattr(found, "_fields")):
        for field, annotation in get_type_hints(found).items():
            missing = {one.__name__ for one in classes_in(annotation)} - set(chord.__all__)
            assert not missing, f"{name}.{field} is of type {missing}"


def test_export_is_the_object_of_its_module() -> None:
    for name, home in chord._HOME.items():
        assert getattr(chord, name) is getattr(importlib.import_module(home), name)


def test_package_is_typed() -> None:
    assert (files("chord") / "py.typed").is_file()


def test_public_module_has_a_docstring() -> None:
    parts = ("blocking", "sockets", "operations", "results", "asyncio_client")
    for name in ("cli", "client", *(f"client.{part}" for part in parts), "testing", "__main__"):
        assert importlib.import_module(f"chord.{name}").__doc__
