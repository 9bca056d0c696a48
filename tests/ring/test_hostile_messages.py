"""Valid but nonsensical messages from a member: no handler fails, no node ends, and the ring heals.

`test_codec` and `test_rpc_limits` test hostile bytes. Here every field is in its bounds and has a random
value. Points and keys may exist or not. Addresses may be those of members, of no host, or malformed.
"""

from __future__ import annotations

import random
import traceback
import types
import typing
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, get_args, get_origin

import msgspec
import pytest
import trio
from msgspec import Meta

from chord import testing
from chord.client.async_client import AsyncClient, open_client
from chord.config import PRESETS
from chord.errors import ChordError
from chord.ids import Point
from chord.net.calls import Answer, Caller, RequestHandler
from chord.node import Node
from chord.store import versions
from chord.testing.rings import TestRing
from chord.wire.codec import PREFIX_BYTES, codec_for
from chord.wire.messages import REQUESTS, Contact, Done, Forget, Leave, Pausing, Record, Reply, Request
from tests.support.rings import get, patiently, put, seeds

ADDRESSES = ("nobody:1", "nonsense", "a..b:1", "n0:0", "[::1]:9000", "n1:1 ", "x" * 255, "\x1b[2J:1", "ü:1")
"""Addresses besides those of members."""
KEYS = tuple(b"key-%d" % number for number in range(8))
NODES = 5
TIMING = msgspec.structs.replace(PRESETS["local"], down_out_s=5.0)
"""A node waits `down_out_s` for any vnode that another node calls unreachable."""
PLAIN: dict[type, Callable[[random.Random], object]] = {
    bool: lambda rng: rng.random() < 0.5,
    int: lambda rng: rng.choice([0, 1, 2, 3, 7, rng.randrange(4096), rng.randrange(1 << 62)]),
    float: lambda rng: rng.choice([0.0, 1.0, rng.random(), -rng.random() * 1e9, 1e300]),
    str: lambda rng: rng.choice(["", "ok", "\x00", "wörter"]),
    type(None): lambda _: None,
}


class Nonsense:
    """A source of random requests and replies about one ring."""

    def __init__(self, ring: TestRing, rng: random.Random) -> None:
        self._ring = ring
        self._rng = rng
        self._identities = [rng.randbytes(16) for _ in range(4)]
        self._codec = codec_for(ring[0]._host.circle)

    def request(self, kind: type[Request]) -> Request:
        """Return a request of this type as its receiver decodes it."""
        frame = self._codec.encode_call(1, None, 0, self._draw(kind), 0)
        read = self._codec.decode_call(frame[PREFIX_BYTES:]).request
        assert isinstance(read, Request), read
        return read

    def reply(self, kind: type[Reply]) -> Reply:
        """Return a reply of this type as its receiver decodes it."""
        return self._codec.decode_reply(self._codec.encode_reply(1, self._draw(kind))[PREFIX_BYTES:], kind)[1]

    def _draw(self, hint: Any) -> Any:
        rng, origin = self._rng, get_origin(hint)
        if hint is Point:
            return self._point()
        if hint is Contact:
            return Contact(self._point(), self._address())
        if hint in PLAIN:
            return PLAIN[hint](rng)
        if origin is typing.Annotated:
            return self._bounded(*get_args(hint))
        if origin is typing.Literal:
            return rng.choice(get_args(hint))
        if origin in (typing.Union, types.UnionType):
            return self._draw(rng.choice(get_args(hint)))
        if origin is tuple:
            return tuple(self._draw(get_args(hint)[0]) for _ in range(rng.choice([0, 1, 1, 2, 5])))
        return self._struct(hint)

    def _struct(self, kind: type[msgspec.Struct]) -> msgspec.Struct:
        hints = typing.get_type_hints(kind, include_extras=True)
        fields = {name: self._draw(hints[name]) for name in kind.__struct_fields__}
        if kind is Record:
            for name in ("clock", "quarantine"):
                fields[name] = tuple({entry.actor: entry for entry in fields[name]}.values())
        if "records" in fields and "seen" in fields and self._rng.random() < 0.7:
            fields["seen"] = ()  # with random `seen` fields nearly every record would be refused
        return kind(**fields)

    def _bounded(self, hint: Any, *metas: Meta) -> Any:
        rng = self._rng
        if hint in (int, float):
            least = next(meta.ge for meta in metas if meta.ge is not None)
            most = next(meta.lt - 1 if meta.le is None else meta.le for meta in metas if meta.le or meta.lt)
            return rng.choice([least, most, min(most, max(least, PLAIN[hint](rng)))])
        low = max((meta.min_length or 0 for meta in metas), default=0)
        high = min((meta.max_length for meta in metas if meta.max_length is not None), default=9)
        if hint is bytes:
            if low == high:
                return rng.choice(self._identities)[:high]
            return rng.choice(KEYS)[:high] if low else rng.randbytes(min(high, rng.choice([0, 1, 22, 44, 99])))
        if hint is str:
            return self._address() if low else PLAIN[str](rng)
        return self._draw(hint)[:high]

    def _point(self) -> Point:
        circle, rng = self._ring[0]._host.circle, self._rng
        at = rng.choice([*self._ring.nodes]).contact.id + rng.choice([-1, 0, 0, 1])
        return circle.point(rng.choice([at, at, rng.randrange(circle.size), 0, circle.size - 1, circle.hash(KEYS[0])]))

    def _address(self) -> str:
        return self._rng.choice([*ADDRESSES, *(node.address for node in self._ring.nodes)])


KINDS: Sequence[type[Request]] = [kind for kind in REQUESTS if kind not in (Leave, Forget, Pausing)]
"""All requests except those of operators, and `Pausing`, which a receiver must believe."""


@contextmanager
def lying(nodes: Sequence[Node], nonsense: Nonsense, rng: random.Random, share: float) -> Iterator[None]:
    """Let nodes answer nonsense to this share of the requests."""

    def handler(honest: RequestHandler) -> RequestHandler:
        def handle(vnode: Point | None, request: Request, caller: Caller) -> Answer:
            return nonsense.reply(request.reply) if rng.random() < share else honest(vnode, request, caller)

        return handle

    honest = {node: node._host.peers._handler for node in nodes}
    for node in nodes:
        node._host.peers.serve(handler(honest[node]))
    try:
        yield
    finally:
        for node in nodes:
            node._host.peers.serve(honest[node])


async def forget_invented_nodes(ring: TestRing) -> None:
    """Do as the operator of a ring that waits for nodes that do not exist: forget each of them at all nodes."""
    living = {node.address: tuple(node._host.vnodes) for node in ring.nodes}
    for address in (*living, *ADDRESSES):
        for node in ring.nodes:
            await node._host.peers.call(node.address, Forget(address, living.get(address, ())), Done)


async def still_serves(ring: TestRing) -> None:
    """Check that the ring heals, that all nodes are ready, and that each write can be read at another node.

    Nonsense also names nodes that do not exist. The operator must forget them before an absent key is denied.
    """
    await trio.sleep(2 * TIMING.down_out_s)
    await forget_invented_nodes(ring)
    await ring.converged()
    assert [node.state for node in ring.nodes] == ["ready"] * NODES
    for number, node in enumerate(ring.nodes):
        key = b"new-%d" % number
        await patiently(partial(put, node, key, b"w"), 10.0)
        assert await patiently(partial(get, ring[0], key), 10.0) == (b"w",)


def lives(seed: int, scene: Callable[[TestRing, Nonsense, random.Random], Awaitable[None]]) -> None:
    """Play a scene on a ring with records, and check that the ring serves afterwards.

    `HandlerFailed` ends a ring in memory.
    """

    async def main() -> None:
        rng = random.Random(seed)
        async with testing.open_ring(NODES, members="on", seed=seed, timing=TIMING) as ring:
            for key in KEYS:
                await patiently(partial(put, ring[0], key, b"v"))
            await scene(ring, Nonsense(ring, rng), rng)
            await still_serves(ring)

    testing.run(main, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(30))
def test_nonsense_requests_fail_no_handler_and_end_no_node(seed: int) -> None:
    async def scene(ring: TestRing, nonsense: Nonsense, rng: random.Random) -> None:
        kinds = [kind for kind in KINDS for _ in range(12)]
        rng.shuffle(kinds)
        for kind in kinds:
            request, target = nonsense.request(kind), rng.choice(ring.nodes)
            to = rng.choice([target.contact, target.address])
            with suppress(ChordError), trio.move_on_after(0.5):
                await rng.choice(ring.nodes)._host.peers.call(to, request, request.reply)
            if rng.random() < 0.1:
                await trio.sleep(rng.random())

    lives(seed, scene)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(30))
def test_nonsense_replies_fail_no_handler_and_end_no_node(seed: int) -> None:
    async def scene(ring: TestRing, nonsense: Nonsense, rng: random.Random) -> None:
        with lying(ring.nodes[-1:], nonsense, rng, 0.5):
            for number in range(60):
                node, key = rng.choice(ring.nodes), KEYS[number % len(KEYS)]
                with suppress(ChordError), trio.move_on_after(0.5):
                    await (put(node, key, b"%d" % number) if rng.random() < 0.5 else get(node, key))
                await trio.sleep(rng.random())

    lives(seed, scene)


@pytest.mark.slow
def test_planted_unsound_records_make_handlers_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record may also fail a background task of the node. So more than one seed may be needed."""
    monkeypatch.setattr(versions, "is_sound", lambda record: True)

    def fails(seed: int) -> bool:
        try:
            test_nonsense_requests_fail_no_handler_and_end_no_node(seed)
        except (AssertionError, ExceptionGroup, OverflowError) as error:
            text = "".join(traceback.format_exception(error))
            return " failed:" in text or "in _call_self" in text  # a node gets the errors of calls to itself
        return False

    assert any(fails(seed) for seed in range(8))


Ask = Callable[[AsyncClient, bytes], Awaitable[object]]


async def scanned(client: AsyncClient, _: bytes) -> None:
    async for _pair in client.scan():
        pass


ASKS: tuple[Ask, ...] = (
    lambda client, key: client.get(key),
    lambda client, key: client.get(key, r=1),
    lambda client, key: client.put(key, b"v"),
    lambda client, key: client.delete(key),
    lambda client, key: client.get_many([key, b"other"]),
    lambda client, key: client.put_many([(key, b"v"), (b"other", b"w")]),
    lambda client, key: client.lookup(key, mode="recursive"),
    lambda client, key: client.lookup(key),
    lambda client, _: client.status(),
    lambda client, _: client.members(),
    scanned,
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(30))
def test_client_raises_only_chord_errors_for_nonsense_replies(seed: int) -> None:
    async def scene(ring: TestRing, nonsense: Nonsense, rng: random.Random) -> None:
        async with open_client(*(n.address for n in ring.nodes), transport=ring.network.transport("client")) as client:
            with lying(ring.nodes, nonsense, rng, 0.3):
                for number in range(80):
                    with suppress(ChordError), trio.move_on_after(2.0):
                        await ASKS[number % len(ASKS)](client, rng.choice(KEYS))
            await client.put(b"after", b"v")
            assert (await client.get(b"after")).value == b"v"

    lives(seed, scene)
