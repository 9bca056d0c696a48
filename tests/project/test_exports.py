"""The public names: all there, documented, typed, and loaded only when used."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
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
        "put", "get", "delete", "put_many", "get_many", "delete_many", "scan", "export", "import_", "import_many",
        "lookup", "status", "members", "remove_node", "scan_quarantine", "get_quarantine", "drop_quarantine",
        "merge_quarantine",
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


CREATED_BY_FUNCTIONS = {"Client", "AsyncClient", "AsyncioClient", "Node", "TestRing", "MemoryTransport"}
"""Classes with constructors that users do not call."""
OTHERS = {
    "Any", "AsyncGenerator", "AsyncIterator", "Awaitable", "BaseException", "Callable", "ChordError", "ClassVar",
    "Counter", "D", "Exception", "Generator", "Iterable", "Iterator", "K", "Literal", "Mapping", "None",
    "Random", "Sequence", "T",
    "TaskStatus", "TracebackType", "Ts",
}  # fmt: skip
"""Names in signatures that other packages define, type variables, and errors, which are in `chord.errors`."""


def is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("chord", "tests")


def is_struct(kind: type) -> bool:
    return hasattr(kind, "__struct_fields__") or hasattr(kind, "_fields")


def signatures(home: ModuleType, name: str) -> Iterator[tuple[str, inspect.Signature]]:
    """Yield the public signatures of a public name: of a function, or of the members of a class."""
    found = getattr(home, name)
    if inspect.isfunction(found):
        yield name, inspect.signature(found)
    elif inspect.isclass(found):
        for member in dir(found):
            value = inspect.getattr_static(found, member)
            value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            is_shown = not member.startswith("_") or (member == "__init__" and name not in CREATED_BY_FUNCTIONS)
            if inspect.isfunction(value) and is_shown and is_ours(value):
                for shape in get_overloads(value) or [value]:
                    yield f"{name}.{member}", inspect.signature(shape)


@functools.cache
def attributes(kind: type) -> dict[str, str]:
    """Return the public attributes of a class with the texts of their types; "" if the source does not name it.

    They are the annotations of the class, and all that its methods assign to `self`.
    """
    found: dict[str, str] = {}
    for base in filter(is_ours, kind.__mro__):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for statement in tree.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                found.setdefault(statement.target.id, ast.unparse(statement.annotation))
            elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                for name, annotation in assigned(statement):
                    found[name] = found.get(name) or annotation
    return {name: annotation for name, annotation in found.items() if not name.startswith("_")}


def assigned(method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, str]]:
    """Yield each attribute that a method assigns to `self`, and the text of its type.

    The type is that of the annotation, of the assigned argument, or the called class.
    """
    arguments = [*method.args.args, *method.args.kwonlyargs]
    types = {one.arg: ast.unparse(one.annotation) for one in arguments if one.annotation is not None}
    for node in ast.walk(method):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        annotation = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
        if isinstance(node.value, ast.Name):
            annotation = annotation or types.get(node.value.id, "")
        elif isinstance(node.value, ast.Call):
            annotation = annotation or ast.unparse(node.value.func)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                yield target.attr, annotation


def documented(kind: type) -> set[str]:
    """Return the attributes that the docstrings of a class and of its bases list."""
    texts = (inspect.cleandoc(base.__doc__ or "") for base in kind.__mro__ if is_ours(base))
    lists = (text.partition("\nAttributes:\n")[2].partition("\n\n")[0] for text in texts)
    heads = (head for found in lists for head in re.findall(r"^    ([\w, ]+):", found, re.MULTILINE))
    return {name for head in heads for name in head.split(", ")}


def names_in(part: object) -> set[str]:
    """Return the names of types in a signature or in the text of a type."""
    if isinstance(part, inspect.Signature):
        every = [part.return_annotation, *(p.annotation for p in part.parameters.values())]
        return set().union(*map(names_in, every))
    return set(re.findall(r"\b[A-Z]\w*", part)) if isinstance(part, str) else set()


def not_exported(home: ModuleType) -> list[str]:
    """Return the types that public signatures and attributes of a module name, and that it does not export."""
    wrong = []
    for name in home.__all__:
        found = getattr(home, name)
        parts: list[tuple[str, object]] = list(signatures(home, name))
        if inspect.isclass(found) and is_ours(found) and not is_struct(found):  # another test resolves their fields
            parts += ((f"{name}.{member}", text) for member, text in attributes(found).items())
        for where, part in parts:
            missing = names_in(part) - {*chord.__all__, *home.__all__} - OTHERS
            wrong += [f"{where} names {one}" for one in sorted(missing)]
        if get_origin(found) is not None:
            exported = {*chord.__all__, *home.__all__}
            wrong += [f"{name} names {one.__name__}" for one in classes_in(found) if one.__name__ not in exported]
    return wrong


def not_documented(home: ModuleType) -> list[str]:
    """Return the public attributes that the docstring of their class does not list; those of values need no list."""
    wrong = []
    for name in home.__all__:
        found = getattr(home, name)
        if inspect.isclass(found) and is_ours(found) and not is_struct(found):
            wrong += [f"{name}.{one}" for one in attributes(found) if one not in documented(found)]
    return wrong


@pytest.mark.parametrize("home", [chord, chord.testing])
def test_types_in_public_signatures_are_exported(home: ModuleType) -> None:
    assert not_exported(home) == []


@pytest.mark.parametrize("home", [chord, chord.testing])
def test_public_attributes_are_documented(home: ModuleType) -> None:
    assert not_documented(home) == []


class Secret:
    """A type that no module exports."""


class Planted:
    """A class with machinery in the open.

    Attributes:
        shown: of a type that is not exported.
    """

    annotated: list[Secret]

    def __init__(self, given: Secret) -> None:
        self.shown = given
        self.made = self._kept = Secret()
        self.number = 1


def planted(on_end: Callable[[int, dict[str, list[Secret]]], None]) -> None:
    """Take a callback, with an argument of a type that is not exported."""


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("connect", planted, ["connect names Secret"]),
        ("Client", Planted, ["Client.annotated names Secret", "Client.shown names Secret", "Client.made names Secret"]),
        ("Observer", Callable[[list[Secret]], None], ["Observer names Secret"]),
    ],
)
def test_type_that_is_not_exported_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object, found: list[str]
) -> None:
    monkeypatch.setattr(chord, name, value)
    assert not_exported(chord) == found


def test_attribute_that_is_not_documented_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chord, "Client", Planted)
    assert not_documented(chord) == ["Client.annotated", "Client.made", "Client.number"]


def test_flags_in_public_signatures_are_imperatives() -> None:
    for home in (chord, chord.testing):
        for name in home.__all__:
            for where, signature in signatures(home, name):
                facts = [flag for flag in signature.parameters if flag.startswith(("is_", "has_"))]
                assert not facts, f"{where} takes {facts}"


def classes_in(annotation: Any) -> Iterator[type]:
    """Yield the classes of this project in a resolved annotation, also in the arguments of a `Callable`."""
    if inspect.isclass(annotation) and is_ours(annotation):
        yield annotation
    for part in annotation if isinstance(annotation, list) else get_args(annotation):
        yield from classes_in(part)


@pytest.mark.parametrize("name", chord.__all__)
def test_types_of_fields_of_public_structs_are_exported(name: str) -> None:
    found = getattr(chord, name)
    if inspect.isclass(found) and is_struct(found):
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
