"""The endpoints that ask the ring to do something: lookups, keys, and faults of a demonstration."""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64decode
from binascii import Error as BadBase64
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response

from chord.client.api import AsyncClientApi
from chord.client.results import Found, Stored
from chord.errors import ChordError, InvalidRequest
from chord.ids import Contact, Point
from chord.store.versions import decode_context
from chord.views.common import Json, context_json, value_json, vnode_json
from chord.views.dashboard import moment_json, present_nodes
from chord.views.records import get_json, inspection_json, put_json
from chord.views.trace import lookup_json, replicas_json
from chord.web.failures import HttpFailure
from chord.web.replies import json_reply
from chord.web.source import LiveRing, StateOrigin
from chord.wire.messages import KEY_BYTES_MAX, VALUE_BYTES_MAX, Mode, Route

BODY_BYTES_MAX: Final = 2 * VALUE_BYTES_MAX
"""The largest body of a request with JSON. Base64 makes a value a third longer."""

ChaosAction: TypeAlias = Literal["kill", "start", "freeze", "thaw", "join", "leave", "partition", "heal"]
Chaos: TypeAlias = Callable[[ChaosAction, list[str], list[str]], Awaitable[list[list[str]]]]
"""The control of a demonstration: does something to nodes, by name or address, and returns their names in groups.

It also gets the addresses of all nodes that may be in the ring.
"""

FAULTS: Final[Mapping[str, str]] = MappingProxyType({
    "kill": "kill", "freeze": "stop", "thaw": "wake", "partition": "partition", "heal": "heal"
})  # fmt: skip
"""The actions that are faults, with their names in recordings."""

WITHOUT_NODE: Final = ("join", "partition", "heal")
"""The actions that are not about one given node."""

SIDE_MAX: Final = 1024
"""The largest number of nodes that an order names."""

NAME_MAX: Final = 255
"""The largest number of characters in the name or address of a node in an order."""

NodeName: TypeAlias = Annotated[str, msgspec.Meta(max_length=NAME_MAX)]

T = TypeVar("T")


class LookupOrder(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a lookup request, as JSON.

    Attributes:
        key, key_b64, id: the key as UTF-8 text, the key in base64, or a point in decimal; exactly one of them.
        from_: the performer of the lookup: the name or the address of a node, or the id of a vnode; default: the entry
            node.
        mode: iterative: the performer asks every hop itself. recursive: each hop passes the lookup on. successor:
            iterative, along successors only.
        route: classic: by fingers and successor lists. fast: by remembered owners first. full: by the membership list
            first, then as fast.
    """

    key: str | None = None
    key_b64: str | None = None
    id: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    mode: Mode = "iterative"
    route: Route = "classic"


class PutOrder(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a put request, as JSON.

    Attributes:
        value, value_b64: the value, as UTF-8 text or in base64; exactly one of them.
        context: the context of an earlier read, in base64. The put replaces the values of that read only. None: the
            key's only value, if it has one.
        ttl_s: the lifetime of the value, in seconds; None: until it is replaced or deleted.
    """

    value: str | None = None
    value_b64: str | None = None
    context: str | None = None
    ttl_s: Annotated[float, msgspec.Meta(gt=0)] | None = None


class ChaosOrder(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request to the chaos endpoint, as JSON.

    Attributes:
        do: kill, start, freeze or thaw a node's process, let the node leave the ring, or start a new node ("join").
            Split the network in two ("partition"), or end the split ("heal").
        node: the name or the address of the node; "" for "join", "partition" and "heal".
        nodes: for "partition", the nodes on one side, by name or address. All others are on the other side.
    """

    do: ChaosAction
    node: NodeName = ""
    nodes: Annotated[list[NodeName], msgspec.Meta(max_length=SIDE_MAX)] = msgspec.field(default_factory=list)


class ActionEndpoints:
    """The HTTP endpoints that ask a living ring to do something.

    Each method returns a JSON response. It raises `HttpFailure` for a wrong request and `ChordError` for an error of
    the ring; `caught` in app.py answers both.

    Args:
        origin: the ring. With a recording, no request succeeds.
        may_write: whether requests may put and delete keys. Otherwise these fail with 403.
        chaos: does an action to a process of a demonstration; None: no demonstration, and requests for faults fail with
            403.
    """

    def __init__(self, origin: StateOrigin, *, may_write: bool, chaos: Chaos | None) -> None:
        self._origin = origin
        self._may_write = may_write
        self._chaos = chaos

    async def lookup(self, request: Request) -> Response:
        """Answer a `LookupOrder` with the owner of the key or point, and the path to it."""
        order = await _order(request, LookupOrder)
        return self._reply(await self._look_up(order, order.mode, order.route))

    async def compare(self, request: Request) -> Response:
        """Answer a `LookupOrder` with three lookups: by the routes classic and fast, and along successors only.

        The `mode` and `route` of the order are ignored.
        """
        order = await _order(request, LookupOrder)
        ways: tuple[tuple[Mode, Route], ...] = (
            ("iterative", "classic"), ("iterative", "fast"), ("successor", "classic")
        )  # fmt: skip
        return self._reply({"lookups": [await self._look_up(order, mode, route) for mode, route in ways]})

    async def get(self, request: Request) -> Response:
        """Answer with the values of the key that the path names in base64.

        The query parameter `inspect` asks for the copy at each member of the replica set instead.

        Raises:
            HttpFailure: 404: the key has no value, without `inspect`; 400: the path names no key.
        """
        client, key = self._client(), _key(request)
        if "inspect" in request.query_params:
            inspection = await client.inspect(key)
            return self._reply(inspection_json(client.circle, inspection, self._names()))
        began_s = trio.current_time()
        found = await client.get(key, None, replicas=True)
        if found is None:
            raise HttpFailure(404, "not_found", "no value is stored under this key", "Store one: PUT")
        took_ms = 1000 * (trio.current_time() - began_s)
        trace = replicas_json(client.circle, found.owner, found.replicas, took_ms, self._names())
        return self._reply(get_json(key, found, trace, quarantined=found.quarantined))

    async def put(self, request: Request) -> Response:
        """Store the value of a `PutOrder` under the key that the path names in base64.

        Raises:
            HttpFailure: 409: the key has values that the context does not cover, or several values and no context was
                given. 403: this dashboard may not write.
        """
        self._require_write()
        client, key = self._client(), _key(request)
        order = await _order(request, PutOrder)
        value = _one_of(order.value, order.value_b64, "value")
        context = await self._require_context(client, key, order.context)
        try:
            began_s = trio.current_time()
            stored = await client.put(key, value, context=context, ttl_s=order.ttl_s, replicas=True)
        except InvalidRequest as error:
            raise HttpFailure(400, error.word, error.message) from None
        return self._stored(client, stored, began_s)

    async def delete(self, request: Request) -> Response:
        """Delete the key that the path names in base64.

        The query parameter `context` has the context of a read, in base64. Without it, all present values are deleted.

        Raises:
            HttpFailure: 409: the key has values that the given context does not cover. 403: this dashboard may not
                write.
        """
        self._require_write()
        client, key, text = self._client(), _key(request), request.query_params.get("context")
        context = None if text is None else await self._require_context(client, key, text)
        began_s = trio.current_time()
        return self._stored(client, await client.delete(key, context=context, replicas=True), began_s)

    async def chaos(self, request: Request) -> Response:
        """Carry out a `ChaosOrder` on a demonstration, and answer with the names of its nodes.

        A fault enters the history.

        Raises:
            HttpFailure: 403: this is no demonstration. 409: the action is not possible now.
        """
        if self._chaos is None:
            raise HttpFailure(403, "no_demo", "this is no demonstration", "Start one: chord up --web --demo")
        order = await _order(request, ChaosOrder)
        is_split = order.do == "partition"
        if bool(order.nodes) != is_split or bool(order.node) == (order.do in WITHOUT_NODE):
            hint = "partition takes nodes, a list of names; heal and join take none; all others take node, one name"
            raise HttpFailure(400, "invalid", f"invalid nodes for {order.do!r}", hint)
        nodes = order.nodes if is_split else [order.node] if order.node else []
        groups = await self._chaos(order.do, nodes, present_nodes(self._origin.at().model))
        if order.do in FAULTS and isinstance(self._origin, LiveRing):
            fault = {"do": FAULTS[order.do], "groups": groups}
            self._origin.aggregator.history.add(self._origin.now_s, "f", fault)
        node = groups[0][0] if len(groups) == 1 else ""
        return self._reply({"do": order.do, "node": node, "groups": groups})

    # -- inside -----------------------------------------------------------------------------------

    def _reply(self, content: Json) -> Response:
        return json_reply({**moment_json(self._origin.at().moment), **content})

    def _client(self) -> AsyncClientApi:
        if not isinstance(self._origin, LiveRing):
            raise HttpFailure(409, "not_live", "this is a recording, not a living ring", "Start chord dashboard --node")
        if self._origin.client is None:
            raise HttpFailure(503, "unreachable", "no node of the ring has answered yet", "Start one: chord up")
        return self._origin.client

    def _require_write(self) -> None:
        if not self._may_write:
            raise HttpFailure(403, "read_only", "this dashboard does not write", "Start it with --write")

    def _names(self) -> dict[str, str]:
        nodes = self._origin.at().model.nodes
        return {a: str(fields.get("name") or a) for a, fields in nodes.items() if fields.get("state") != "unreachable"}

    async def _look_up(self, order: LookupOrder, mode: Mode, route: Route) -> Json:
        client = self._client()
        if sum(one is not None for one in (order.key, order.key_b64, order.id)) != 1:
            raise HttpFailure(400, "invalid", "expected one of key, key_b64 and id", "Send exactly one of them")
        key = None if order.id is not None else _one_of(order.key, order.key_b64, "key")
        point = None if order.id is None else _point(order.id, client.circle.size)
        trace = await client.lookup(key, key_id=point, mode=mode, route=route, from_=self._start(order.from_))
        return lookup_json(client.circle, trace, self._names(), key)

    def _start(self, word: str | None) -> Contact | str | None:
        """Return the vnode or the address that a word names."""
        if word is None:
            return None
        model = self._origin.at().model
        if word in model.vnodes:
            return Contact(Point(int(word)), str(model.vnodes[word]["node"]))
        found = [a for a, fields in model.nodes.items() if word in (a, fields.get("name"))]
        if len(found) != 1:
            raise HttpFailure(404, "no_such_node", f"no node or vnode is called {word!r}", "See /api/v1/ring")
        return found[0]

    async def _require_context(self, client: AsyncClientApi, key: bytes, text: str | None) -> bytes | None:
        """Return a context in base64 as bytes, if it covers all present values.

        A put without a context may replace a single value, because its user saw that value. It may not silently replace
        concurrent values.
        """
        context = None if text is None else _from_base64(text, "context")
        found = await client.get(key, None)
        if found is None:
            return context
        if context is None and found.siblings:
            raise _conflict(found, f"the key has {found.counted}")
        if context is not None and not _covers(context, found.context):
            raise _conflict(found, "the key has changed since it was read")
        return context

    def _stored(self, client: AsyncClientApi, stored: Stored, began_s: float) -> Response:
        names, took_ms = self._names(), 1000 * (trio.current_time() - began_s)
        trace = replicas_json(client.circle, stored.owner, stored.replicas, took_ms, names)
        return self._reply(put_json(stored, vnode_json(client.circle, stored.owner, names), trace))


async def body_of(request: Request, bytes_max: int) -> bytes:
    """Return the body of a request.

    Raises:
        HttpFailure: 413: it is longer than `bytes_max`.
    """
    parts: list[bytes] = []
    room = bytes_max
    async with aclosing(request.stream()) as stream:
        async for part in stream:
            room -= len(part)
            if room < 0:
                raise HttpFailure(413, "too_large", f"the body is longer than {bytes_max} bytes", "Send less")
            parts.append(part)
    return b"".join(parts)


async def _order(request: Request, kind: type[T]) -> T:
    """Return the body of a request as an object.

    Raises:
        HttpFailure: 400: it is no such object.
    """
    body = await body_of(request, BODY_BYTES_MAX)
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise HttpFailure(400, "invalid", f"invalid body: {error}", "See /api/v1/openapi.json") from None


def _key(request: Request) -> bytes:
    """Return the key in the path, which is in the base64 of URLs, with or without padding."""
    text = request.path_params["b64"]
    try:
        key = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (BadBase64, ValueError):
        key = b""
    if not 0 < len(key) <= KEY_BYTES_MAX:
        hint = f"A key has 1 to {KEY_BYTES_MAX} bytes, in base64 with - and _"
        raise HttpFailure(400, "invalid", f"invalid key {text[:40]!r}", hint)
    return key


def _one_of(text: str | None, b64: str | None, name: str) -> bytes:
    """Return the bytes that a request gives as text or in base64."""
    if (text is None) == (b64 is None):
        raise HttpFailure(400, "invalid", f"expected one of {name} and {name}_b64", "Send exactly one of them")
    return text.encode() if text is not None else _from_base64(b64 or "", f"{name}_b64")


def _from_base64(text: str, name: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (BadBase64, ValueError):
        raise HttpFailure(400, "invalid", f"{name} is not base64", "Send it as an earlier reply had it") from None


def _point(text: str, size: int) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 49 or int(text) >= size:
        raise HttpFailure(400, "invalid", f"invalid id {text[:60]!r}", f"A point is a number below {size}, in decimal")
    return int(text)


def _covers(context: bytes, present: bytes) -> bool:
    """Return whether a context covers all values of another one."""
    try:
        given = decode_context(context)
    except ChordError as error:
        raise HttpFailure(400, error.word, error.message, "Send it as an earlier reply had it") from None
    return all(given.get(actor, 0) >= count for actor, count in decode_context(present).items())


def _conflict(found: Found, text: str) -> HttpFailure:
    """Return the failure of a put that would replace values that its user has not seen."""
    siblings = [
        {"value": value_json(value), "written_ms": written_ms}
        for value, written_ms in zip(found.values, found.written_ms or [None] * len(found.values), strict=True)
    ]
    hint = "Merge the values, and put the result with this context"
    present = {"siblings": siblings, "context": context_json(found.context), "left": found.left}
    return HttpFailure(409, "version_conflict", text, hint, present)
