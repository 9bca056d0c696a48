"""The published JSON shapes, for checks of outputs."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012


@cache
def all_schemas() -> dict[str, Any]:
    """Return every schema in the package by its name."""
    found = [f for f in (files("chord") / "views" / "schemas").iterdir() if f.name.endswith(".json")]
    return {f.name.removesuffix(".json"): json.loads(f.read_text()) for f in found}


@cache
def validator(name: str) -> Draft202012Validator:
    """Return the validator of a shape; shapes refer to each other by file name."""
    registry: Registry[Any] = Registry().with_resources(
        (schema["$id"], Resource(schema, specification=DRAFT202012)) for schema in all_schemas().values()
    )
    return Draft202012Validator(all_schemas()[name], registry=registry)


def check_shape(name: str, value: Any) -> None:
    """Fail if a value does not have the shape."""
    errors = [f"{error.json_path}: {error.message}" for error in validator(name).iter_errors(value)]
    assert not errors, f"not of the shape {name}: {errors}"
