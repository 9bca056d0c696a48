"""The public names: all there, documented, typed, and loaded only when used."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from importlib.resources import files

import pytest

import chord
from chord.client.api import AsyncRing


@pytest.mark.parametrize("name", chord.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(chord, name)
    if name != "__version__":
        assert inspect.getdoc(value), f"chord.{name} has no docstring"
    assert name in dir(chord)


def test_star_import_gives_exactly_the_public_names() -> None:
    space: dict[str, object] = {}
    exec("from chord import *", space)
    assert set(space) - {"__builtins__"} == set(chord.__all__)


def test_names_that_are_not_there_say_so() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = chord.nonsense  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("use", "spared"),
    [("chord", "msgspec"), ("chord.errors", "msgspec"), ("chord.connect", "trio"), ("chord.Found", "trio")],
)
def test_nothing_pays_for_what_it_does_not_use(use: str, spared: str) -> None:
    code = f"import sys, chord; {use}; sys.exit({spared!r} in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_node_and_clients_have_one_interface() -> None:
    shared = (
        "put", "get", "delete", "put_many", "get_many", "scan", "records", "merge", "merge_many", "lookup", "describe",
        "members", "forget", "scan_quarantine", "get_quarantine", "drop_quarantine", "merge_quarantine",
    )
    for name in shared:
        shapes = {
            tuple((p.name, p.kind, p.annotation) for p in inspect.signature(getattr(kind, name)).parameters.values())
            for kind in (chord.Ring, chord.Client, chord.Node)
        }
        assert len(shapes) == 1, f"{name}: {shapes}"


def test_both_forms_of_an_operation_are_described_in_the_same_words() -> None:
    shared = [name for name in vars(AsyncRing) if not name.startswith("_") and hasattr(chord.Ring, name)]
    for name in shared:
        assert inspect.getdoc(getattr(chord.Ring, name)) == inspect.getdoc(getattr(AsyncRing, name)), name
    assert inspect.getdoc(chord.Ring.leave) == inspect.getdoc(chord.Client.leave)


def test_the_package_is_typed() -> None:
    assert (files("chord") / "py.typed").is_file()


def test_every_module_says_what_it_is() -> None:
    parts = ("blocking", "sockets", "operations", "results")
    for name in ("cli", "client", *(f"client.{part}" for part in parts), "testing", "__main__"):
        assert importlib.import_module(f"chord.{name}").__doc__
