"""Inspection: the copy of a key at each member of its replica set."""

from __future__ import annotations

import trio

from chord import testing
from chord.views.common import names_of
from chord.views.records import inspection_json
from tests.support.rings import virtual
from tests.support.schemas import check_shape


@virtual
async def test_inspection_shows_each_copy_or_why_not() -> None:
    async with testing.open_ring(5, seed=1) as ring:
        client = ring[0]
        await client.put("key", b"old", no_context=True)
        await client.put("key", b"new", no_context=True, ttl_s=900)
        found = await client.inspect("key")
        assert len(found.copies) == 3
        assert len({copy.version for copy in found.copies}) == 1
        for copy in found.copies:
            assert copy.reason == ""
            assert copy.is_in_sync
            assert sorted(v.value or b"" for v in copy.versions) == [b"new", b"old"]
            assert [bool(v.expires_ms) for v in copy.versions if v.value == b"new"] == [True]
        names = names_of([await node.status() for node in ring.nodes])
        check_shape("inspection", inspection_json(client.config.ring.circle, found, names))

        behind = next(n for n in ring.nodes if n.address == found.copies[1].member.address)
        for node in ring.nodes:
            if node is not behind:
                ring.network.cut(behind.name, node.name)
        entry = next(n for n in ring.nodes if n is not behind)
        lost = (await entry.inspect("key")).copies[1]
        assert lost.reason
        assert not lost.versions
        await trio.sleep(10)
        unasked = next(c for c in (await entry.inspect("key")).copies if c.member == found.copies[1].member)
        assert unasked.reason.startswith("not asked")


@virtual
async def test_inspection_of_a_deleted_and_an_absent_key() -> None:
    async with testing.open_ring(3, seed=1) as ring:
        await ring[0].put("gone", b"v")
        await ring[0].delete("gone")
        gone = await ring[1].inspect("gone")
        assert [[v.value for v in copy.versions] for copy in gone.copies] == [[None]] * 3
        shape = inspection_json(ring[0].config.ring.circle, gone, {})
        check_shape("inspection", shape)
        assert all(copy["tombstone"] and not copy["values"] for copy in shape["copies"])
        absent = await ring[1].inspect(b"\xff")
        assert [(copy.version, copy.versions, copy.reason) for copy in absent.copies] == [(b"", (), "")] * 3
        check_shape("inspection", inspection_json(ring[0].config.ring.circle, absent, {}))
