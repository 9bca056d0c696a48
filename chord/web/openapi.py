"""The endpoints of the HTTP interface, and their description in OpenAPI, made from the schemas of `chord.views`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import chord
from chord.views.common import Json

PREFIX: Final = "/api/v1"
AT: Final = {"at": "the time of the state, in Unix ms; default: the latest"}
RECORDING: Final = {"recording": "the id of an uploaded recording; default: that which the dashboard shows"}
SPAN: Final = {"from": "the beginning, in Unix ms; default: 15 minutes ago", "to": "the end, in Unix ms; default: now"}
CONTEXT: Final = {"context": "the context of a read, in base64"}
LENS: Final = {
    "bins": "the number of parts of the circle to count in, 1 to 1024, in place of vnodes and nodes",
    "from": "a point, in decimal: show only the vnodes after it, also with bins",
    "to": "the point at which the shown vnodes end",
}
BINS: Final = {"bins": "the number of parts of the circle, a divisor of 256; default: 256"}

RUN: Final = {
    "nodes": "the number of processes; default: 3, or with steps the smallest",
    "seed": "the seed of delays and asks; default: 0",
    "variant": "a bug or a printed form: return the shortest run that breaks a law",
    "steps": "the chosen steps, separated by commas, each by its place in choices; may be empty",
}


class Endpoint(NamedTuple):
    """An endpoint of the HTTP interface.

    Attributes:
        method: the HTTP method.
        path: the path, without the prefix /api/v1.
        name: the name of the Python method that answers it.
        summary: what the response contains, in words.
        shape: the name of the JSON schema of the response; "": the response is no JSON.
        order: the name of the JSON schema of the request body; "": the request has no body.
        query: the query parameters, each with its description.
    """

    method: str
    path: str
    name: str
    summary: str
    shape: str = ""
    order: str = ""
    query: Mapping[str, str] = MappingProxyType({})


ENDPOINTS: Final = (
    Endpoint("GET", "/ring", "ring", "The nodes and vnodes of a state", "api-ring",
             query={**AT, **RECORDING, **LENS}),
    Endpoint("GET", "/nodes/{name}", "node", "One node of a state", "api-node",
             query={**AT, **RECORDING, "peers": "also ask it for round trips, replica sets, counters, periods"}),
    Endpoint("GET", "/check", "check", "The verdict on a state", "api-check", query={**AT, **RECORDING}),
    Endpoint("GET", "/events", "events", "The stream of states and events (text/event-stream)"),
    Endpoint("POST", "/lookup", "lookup", "The owner of a key or a point, and the path", "api-lookup",
             "api-order-lookup"),
    Endpoint("POST", "/lookup/compare", "compare", "The same lookup by three routes", "api-lookups",
             "api-order-lookup"),
    Endpoint("GET", "/keys/{b64}", "get", "The values of a key, or with `inspect` each copy", "api-key",
             query={"inspect": "return each copy"}),
    Endpoint("PUT", "/keys/{b64}", "put", "Store a value", "api-stored", "api-order-put"),
    Endpoint("DELETE", "/keys/{b64}", "delete", "Delete a key", "api-stored", query=CONTEXT),
    Endpoint("GET", "/heat", "heat", "The distribution of keys and requests", "api-heat",
             query={**BINS, "window": "the seconds in which requests are counted, 1 to 60; default: 60"}),
    Endpoint("GET", "/requests", "requests", "The requests in each part of the circle", "api-requests",
             query={"bins": "the number of parts of the circle, 1 to 1024; default: 256"}),
    Endpoint("GET", "/transfers", "transfers", "The transfers in progress", "api-transfers"),
    Endpoint("GET", "/history", "history", "A keyframe, and the lines after it", "api-history",
             query={**SPAN, **RECORDING}),
    Endpoint("GET", "/recording", "download", "A part of the history as a .chordlog", query={**SPAN, **RECORDING}),
    Endpoint("POST", "/recording", "upload", "Keep a .chordlog in memory, to play it", "api-recording"),
    Endpoint("GET", "/metrics.json", "metrics", "The metrics of the last 15 minutes", "api-metrics"),
    Endpoint("POST", "/chaos", "chaos", "A fault in a demonstration", "api-chaos", "api-order-chaos"),
    Endpoint("GET", "/gallery", "gallery", "The algorithms of the gallery", "gallery-list"),
    Endpoint("GET", "/gallery/{name}", "gallery_run", "A run of an algorithm, as a space-time diagram",
             "api-gallery-run", query=RUN),
    Endpoint("GET", "/lab", "reports", "The reports of the lab", "api-lab"),
    Endpoint("GET", "/lab/{name}", "report", "A report of the lab (text/html)"),
    Endpoint("GET", "/openapi.json", "openapi", "This description", "api-openapi"),
)  # fmt: skip
"""All endpoints."""

JSON: Final = "application/json"


def openapi_json() -> Json:
    """Return the OpenAPI description of the HTTP interface, with all schemas that it refers to."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "chord dashboard", "version": chord.__version__},
        "servers": [{"url": PREFIX}],
        "paths": {path: _path(path) for path in dict.fromkeys(endpoint.path for endpoint in ENDPOINTS)},
        "components": {"schemas": _schemas()},
    }


def _path(path: str) -> Json:
    return {endpoint.method.lower(): _operation(endpoint) for endpoint in ENDPOINTS if endpoint.path == path}


def _operation(endpoint: Endpoint) -> Json:
    names = [part[1:-1] for part in endpoint.path.split("/") if part.startswith("{")]
    text: Json = {"type": "string"}
    shape: Json = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": text} for name in names),
            *({"name": n, "in": "query", "description": d, "schema": text} for n, d in endpoint.query.items()),
        ],
        "responses": {
            "200": {"description": endpoint.summary, "content": _content(endpoint.shape)} if endpoint.shape
            else {"description": endpoint.summary},
            "default": {"description": "An error", "content": _content("error")},
        },
    }  # fmt: skip
    if endpoint.method not in ("GET", "HEAD"):
        header = {"name": "X-Chord", "in": "header", "required": True, "schema": {"const": "1"}}
        shape["parameters"].append(header)
    if endpoint.name in ("put", "delete"):
        shape["responses"]["409"] = {"description": "Concurrent values", "content": _content("api-conflict")}
    if endpoint.order:
        shape["requestBody"] = {"required": True, "content": _content(endpoint.order)}
    return shape


def _content(shape: str) -> Json:
    return {JSON: {"schema": {"$ref": f"#/components/schemas/{shape}"}}}


def _schemas() -> Json:
    """Return the schemas of all answers and bodies, and those to which they refer."""
    todo = ["error", "api-conflict", *(name for e in ENDPOINTS for name in (e.shape, e.order) if name)]
    found: Json = {}
    while todo:
        name = todo.pop()
        if name not in found:
            schema = json.loads((files("chord") / "views" / "schemas" / f"{name}.json").read_text(encoding="utf-8"))
            found[name] = _rewritten(schema, name, todo)
    return dict(sorted(found.items()))


def _rewritten(schema: Any, name: str, todo: list[str]) -> Any:
    """Return a schema with its references to other files as references to components."""
    if isinstance(schema, list):
        return [_rewritten(one, name, todo) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _rewritten(one, name, todo) for key, one in schema.items() if key not in ("$schema", "$id")}
    target = schema.get("$ref")
    if isinstance(target, str):
        file, _, inner = target.partition("#")
        other = file.removesuffix(".json") or name
        todo.append(other)
        found["$ref"] = f"#/components/schemas/{other}{inner}"
    return found
