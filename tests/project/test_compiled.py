"""The optional compiled build: its list of modules. No test compiles, because that takes minutes: `make wheels`."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_compiled_modules_exist_and_are_sorted() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    modules = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]
    assert [name for name in modules if not (ROOT / name).is_file()] == []
    assert modules == sorted(set(modules))
    assert "chord/wire/cbor.py" in modules, "`chord version` looks at this module"
