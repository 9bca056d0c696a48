"""The JSON schemas of the package: valid, closed, and one for every command that prints JSON."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator, ValidationError

from chord.events import Event
from chord.ids import Circle, Point
from chord.views.common import key_json, names_of, vnode_json
from chord.views.records import get_json, pair_json
from chord.views.ring import fingers_json, ring_json
from chord.views.trace import lookup_json
from chord.web.openapi import ENDPOINTS
from tests.support.schemas import all_schemas, check_shape, validator
from tests.support.statuses import contact, statuses, worked_trace

CIRCLE = Circle(8)
NAMES = names_of(statuses())

SHAPE_OF_COMMAND = {
    "up": "up", "node": "node", "put": "put", "get": "get", "del": "put", "load": "load", "scan": "scan",
    "lookup": "lookup", "status": "status", "top": "top", "members": "members", "ring": "ring", "fingers": "fingers",
    "check": "check", "check-history": "check-history", "leave": "leave", "kill": "kill", "version": "version",
    "quarantine list": "quarantine", "quarantine drop": "quarantine-decision",
    "quarantine merge": "quarantine-decision",
    "backup": "backup", "restore": "restore", "transfers": "transfers", "forget": "forget",
    "dashboard": "dashboard", "bench": "bench", "plan join": "plan", "plan leave": "plan",
    "sim run": "sim-run", "sim replay": "sim-event", "sim paper": "sim-paper", "sim figure": "lookup",
    "lab compare": "lab", "lab vnodes": "lab", "lab movement": "lab", "lab jump": "lab", "lab strategies": "lab",
    "lab ring": "lab", "lab all": "lab", "config show": "config",
    "debug bundle": "bundle", "gallery list": "gallery-list", "gallery run": "gallery-run",
    "gallery prove": "gallery-proof", "gallery needs": "gallery-needs", "gallery step": "gallery-step",
}


def test_every_command_with_json_has_a_schema() -> None:
    from chord.cli import COMMANDS
    from chord.cli.debug import debug_command
    from chord.cli.gallery import gallery_command
    from chord.cli.lab import lab_command
    from chord.cli.plan import plan_command
    from chord.cli.quarantine import quarantine_command
    from chord.cli.show_config import config_command
    from chord.cli.sim import sim_command

    groups = (
        sim_command, plan_command, lab_command, quarantine_command, config_command, debug_command, gallery_command,
    )  # fmt: skip
    in_group = {f"{group.name} {name}" for group in groups for name in group.commands}
    alone = set(COMMANDS) - {group.name for group in groups} - {"completion"}
    assert set(SHAPE_OF_COMMAND) == alone | in_group
    parts = {"vnode", "error", "lookups", "replicas", "gallery-event", "inspection"}
    parts |= {name for endpoint in ENDPOINTS for name in (endpoint.shape, endpoint.order) if name} | {"api-conflict"}
    assert set(SHAPE_OF_COMMAND.values()) | parts == set(all_schemas())


@pytest.mark.parametrize("name", sorted(all_schemas()))
def test_schema_is_valid_and_closed(name: str) -> None:
    schema = all_schemas()[name]
    Draft202012Validator.check_schema(schema)
    assert schema["title"]
    assert schema["description"]
    assert schema["$id"].endswith(f"/{name}.json")
    for part in _objects(schema):
        assert part["additionalProperties"] is not True, "a typo in a shape must not pass"


def test_schema_rejects_planted_faults() -> None:
    good = lookup_json(CIRCLE, worked_trace(), NAMES, None)
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


def test_json_of_the_worked_example_matches_its_schemas() -> None:
    shape = lookup_json(CIRCLE, worked_trace(dead=True), NAMES, b"\xff")
    check_shape("lookup", shape)
    assert [hop["outcome"] for hop in shape["hops"]] == ["ok", "no answer in 500 ms; suspect", "ok"]
    check_shape("ring", ring_json(CIRCLE, statuses()))
    check_shape("fingers", fingers_json(CIRCLE, statuses()[2].vnodes[0], NAMES))
    check_shape("get", get_json(b"k", None))
    check_shape("scan", pair_json(b"\xff", b"text"))
    assert key_json("é".encode()) == {"key": "é"}


def test_id_of_160_bits_survives_json() -> None:
    """JavaScript's numbers have 53 bits; ids have 160."""
    circle = Circle(160)
    vnode = vnode_json(circle, msgspec.structs.replace(contact(10), id=Point((1 << 160) - 1)), {})
    check_shape("vnode", vnode)
    assert json.loads(json.dumps(vnode))["id"] == str((1 << 160) - 1)
    assert len(vnode["id_hex"]) == 40


def test_event_log_has_a_schema_for_every_event() -> None:
    kinds = {kind.__name__: kind for kind in subclasses(Event) if not kind.__subclasses__()}
    shapes = {shape["properties"]["event"]["const"]: shape for shape in all_schemas()["sim-event"]["oneOf"]}
    assert shapes.keys() == {*kinds, "Died"}
    for name, kind in kinds.items():
        assert set(shapes[name]["properties"]) == {"t", "node", "event", *kind.__struct_fields__}, name
        assert set(shapes[name]["required"]) == set(shapes[name]["properties"])


def subclasses(kind: type[Event]) -> list[type[Event]]:
    """Return all subclasses of an event that the package defines."""
    direct = [one for one in kind.__subclasses__() if one.__module__ == "chord.events"]
    return [*direct, *(inner for one in direct for inner in subclasses(one))]


def _objects(schema: Any) -> list[dict[str, Any]]:
    if isinstance(schema, list):
        return [found for item in schema for found in _objects(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" else []
    return own + [found for item in schema.values() for found in _objects(item)]
