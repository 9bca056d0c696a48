"""Bounds of records: each record stays readable, even after a split or a malformed request."""

from __future__ import annotations

import msgspec
import pytest
import trio

from chord.errors import ChordError, MalformedMessage
from chord.ids import Circle
from chord.node import Node
from chord.store import versions
from chord.wire.codec import PREFIX_BYTES, codec_for
from chord.wire.messages import SIBLINGS_MAX, TTL_MS_MAX, ActorClock, Put, Record, Version
from tests.support.quorum import KEY, clockwise, read, ring_in_sync, write
from tests.support.rings import virtual

WITHOUT_CONTEXT = 40  # on each side of the split; together they exceed one reply


def by(actor: bytes, count: int) -> ActorClock:
    versions_ = tuple(Version(b"v", b"%s%07d" % (actor, number) + bytes(8), 1) for number in range(count))
    return ActorClock(actor * 16, count, versions_)


@pytest.mark.parametrize(
    ("counts", "shown"), [((40, 24), 64), ((40, 25), 40), ((1, 64), 1), ((64,), 64), ((40, 40, 20), 60)]
)
def test_cut_keeps_as_many_siblings_as_a_reply_may_hold(counts: tuple[int, ...], shown: int) -> None:
    record = Record(KEY, tuple(by(b"%c" % (97 + place), count) for place, count in enumerate(counts)))
    cut = versions.cut(record, 1 << 20)
    assert len(versions.siblings(cut)) == shown <= SIBLINGS_MAX
    left = versions.discard(record, versions.context_of(cut))
    assert len(versions.siblings(left)) == sum(counts) - shown, "the context of a reply covers only the siblings in it"


@pytest.mark.slow
@virtual
async def test_siblings_beyond_one_reply_after_a_split_can_be_resolved() -> None:
    async with ring_in_sync(6, seed=3) as ring:
        order = clockwise(ring, KEY)
        sides = ([order[0], order[3], order[5]], [order[1], order[2], order[4]])
        ring.network.partition([node.name for node in sides[0]], [node.name for node in sides[1]])

        async def fill(node: Node) -> None:
            done = 0
            while done < WITHOUT_CONTEXT:
                try:
                    await write(node, KEY, b"%s/%d" % (node.name.encode(), done), context=b"")
                    done += 1
                except ChordError:
                    await trio.sleep(0.1)

        async with trio.open_nursery() as nursery:
            for side in sides:
                nursery.start_soon(fill, side[0])
        ring.network.heal()
        await ring.converged(300)
        await trio.sleep(60)
        seen: set[bytes] = set()
        while len((found := await read(order[4], KEY)).values) > 1:
            assert len(found.values) <= SIBLINGS_MAX
            seen.update(found.values)
            await write(order[4], KEY, b"settled", context=found.context)
        assert len(seen - {b"settled"}) == 2 * WITHOUT_CONTEXT, "each sibling was read before it was replaced"
        assert found.values == (b"settled",)


def test_put_with_a_ttl_beyond_ttl_ms_max_is_malformed() -> None:
    codec = codec_for(Circle(160))
    put = Put(KEY, b"v", b"o" * 16, ttl_ms=TTL_MS_MAX)
    for ttl_ms, is_taken in ((TTL_MS_MAX, True), (TTL_MS_MAX + 1, False), (1 << 62, False)):
        frame = codec.encode_call(1, None, 100, msgspec.structs.replace(put, ttl_ms=ttl_ms), 0)
        asked = codec.decode_call(frame[PREFIX_BYTES:]).request
        assert isinstance(asked, Put if is_taken else MalformedMessage)
