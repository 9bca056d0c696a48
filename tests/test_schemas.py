"""The JSON schemas published with the package: sound, closed, and one for everything that prints JSON."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from canned import described, worked_trace
from jsonschema import Draft202012Validator, ValidationError
from schemas import all_schemas, validator

from chord.cli.shapes import lookup_json, names_of
from chord.ids import Circle

SHAPE_OF_COMMAND = {
    "up": "up", "node": "node", "put": "put", "get": "get", "del": "put", "load": "load", "scan": "scan",
    "lookup": "lookup", "status": "status", "members": "members", "ring": "ring", "fingers": "fingers",
    "check": "check", "check-history": "check-history", "leave": "leave", "kill": "kill", "version": "version",
}


def test_every_command_has_a_shape() -> None:
    from chord.cli import COMMANDS

    assert set(SHAPE_OF_COMMAND) == set(COMMANDS)
    assert set(SHAPE_OF_COMMAND.values()) | {"vnode", "error", "lookups"} == set(all_schemas())


@pytest.mark.parametrize("name", sorted(all_schemas()))
def test_schemas_are_sound(name: str) -> None:
    schema = all_schemas()[name]
    Draft202012Validator.check_schema(schema)
    assert schema["title"]
    assert schema["description"]
    assert schema["$id"].endswith(f"/{name}.json")
    for part in _objects(schema):
        assert part["additionalProperties"] is not True, "a typo in a shape must not pass"


def test_a_schema_can_fail() -> None:
    good = lookup_json(Circle(8), worked_trace(), names_of(described()), None)
    check = validator("lookup")
    check.validate(good)
    for spoil in (
        lambda s: s.pop("owner"),
        lambda s: s.update(id=190),
        lambda s: s.update(extra=1),
        lambda s: s["hops"][0].pop("via"),
        lambda s: s["hops"][0]["via"].update(kind="magic"),
        lambda s: s["owner"].update(id_hex="C8"),
        lambda s: s.update(key_b64="AA=="),
    ):
        bad = copy.deepcopy(good)
        spoil(bad)
        with pytest.raises(ValidationError):
            check.validate(bad)


def _objects(schema: Any) -> list[dict[str, Any]]:
    if isinstance(schema, list):
        return [found for item in schema for found in _objects(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" else []
    return own + [found for item in schema.values() for found in _objects(item)]
