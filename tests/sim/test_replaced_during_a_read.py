"""How the oracle judges a write with two versions if a later write replaces one of them during a scan or a read.

A put without a context was tried twice. The first attempt is only on a node that died. The second one was acknowledged,
and later writes replaced it. No write has replaced the first attempt, so the model still requires the put.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest
import trio

from chord import testing
from chord.config import PRESETS
from chord.node import Node
from chord.sim.key_model import KeyModel
from chord.sim.oracle import Oracle
from chord.store import versions
from chord.store.storage import Batch
from chord.testing.rings import TestRing
from chord.wire.messages import ActorClock, Record, Version

KEY = b"k"
ACTOR, DEAD_ACTOR = bytes(15) + b"\1", bytes(15) + b"\2"
FIXED = msgspec.structs.replace(PRESETS["local"], period_growth_max=1)


class Writes:
    """Acknowledged writes of a key. Each replaces the one before it on all nodes of a ring."""

    def __init__(self, ring: TestRing, oracle: Oracle) -> None:
        self._ring = ring
        self._count = 0
        self.model = oracle.models[KEY] = KeyModel(KEY, ring[0]._host.circle.hash(KEY))
        self.owner = next(node for node in ring.nodes if node._host.owner_of(self.model.point) is not None)

    def put_in_two_attempts(self) -> None:
        """Make the put with two versions; no node that lives has the first one."""
        op = self.model.begin("no context")
        self.model.sent(op, b"1" * 16)
        first = Record(KEY, (ActorClock(DEAD_ACTOR, 1, (Version(op.value, op.op_id, 1),)),))
        self.model.saw(first, "dead", is_own=True)
        self._store(op.value, op.op_id, self._ring.nodes)
        op.w = 2
        self.model.acknowledged(op, versions.encode_context({ACTOR: 1}), "client", self.owner.name)

    def write(self, at: float, *, is_delete: bool = False, is_at_owner: bool = True) -> None:
        """Let a put or a delete be acknowledged at a virtual second."""
        op = self.model.begin("put", is_delete=is_delete)
        self.model.sent(op, b"%d" % op.number * 16)
        self._store(op.value, op.op_id, [node for node in self._ring.nodes if is_at_owner or node is not self.owner])
        op.w = 2
        self.model.acknowledged(op, versions.encode_context({ACTOR: self._count}), "client", self.owner.name, at)

    def _store(self, value: bytes | None, op_id: bytes, nodes: list[Node]) -> None:
        self._count += 1
        record = Record(KEY, (ActorClock(ACTOR, self._count, (Version(value, op_id, 1),)),))
        self.model.saw(record, self.owner.name, is_own=True)
        for node in nodes:
            node._host.storage.apply(Batch(puts=(record,)))


Step = Callable[[Writes, float], None]


def put(writes: Writes, at: float) -> None:
    writes.write(at)


def delete(writes: Writes, at: float) -> None:
    writes.write(at, is_delete=True)


def put_beside_the_owner(writes: Writes, at: float) -> None:
    writes.write(at, is_at_owner=False)


def judged(
    earlier: tuple[Step, ...], during: tuple[Step, ...], values: tuple[bytes, ...], *, is_read: bool
) -> list[str]:
    """Return the complaints about a scan, or about a read, that shows these values.

    Args:
        earlier: the writes before it, after the put in two attempts.
        during: the writes between its start and its end.
        values: the values that it shows; a read shows none.
        is_read: whether to judge a read with the answer "not found".
    """

    async def main() -> list[str]:
        async with testing.open_ring(3, seed=1, timing=FIXED) as ring:
            complaints: list[str] = []
            oracle = Oracle(ring, ring[0]._host.constants, Counter(), complaints.append)
            oracle.disturb()
            writes = Writes(ring, oracle)
            writes.put_in_two_attempts()
            for step in earlier:
                step(writes, trio.current_time() / 2)
            before_scan, before = oracle.before_scan(), oracle.before(writes.model, None)
            assert before_scan.calm is not None
            assert before.at > 0
            for step in during:
                step(writes, before.at)
            if is_read:
                oracle.denied(writes.owner, writes.model, before)
            else:
                oracle.scanned(writes.owner, {KEY: values} if values else {}, before_scan)
            return complaints

    return testing.run(main)


def value(number: int) -> bytes:
    return b"%s/%d" % (KEY, number)


def test_scan_may_show_a_value_replaced_meanwhile() -> None:
    assert judged((put,), (put,), (value(2),), is_read=False) == []


def test_scan_may_show_a_value_written_and_replaced_meanwhile() -> None:
    assert judged((), (put, put), (value(2),), is_read=False) == []


@pytest.mark.parametrize("is_read", [False, True], ids=["scan", "read"])
def test_delete_replaced_meanwhile_excuses_no_value(is_read: bool) -> None:
    assert judged((), (delete, put), (), is_read=is_read) == []


@pytest.mark.parametrize(("first", "values"), [(put, (value(2),)), (delete, ())], ids=["put", "delete"])
def test_scan_may_show_the_state_of_an_owner_that_is_behind(first: Step, values: tuple[bytes, ...]) -> None:
    assert judged((first, put_beside_the_owner), (), values, is_read=False) == []


@pytest.mark.parametrize("during", [(), (put,), (put, put)], ids=["quiet", "one put", "two puts"])
def test_scan_without_values_is_caught_despite_puts(during: tuple[Step, ...]) -> None:
    (text,) = judged((put,), during, (), is_read=False)
    assert "denies b'k' in a scan, which was acknowledged: no context 1" in text


@pytest.mark.parametrize("is_read", [False, True], ids=["scan", "read"])
def test_delete_replaced_before_excuses_nothing(is_read: bool) -> None:
    assert any("acknowledged: no context 1" in text for text in judged((delete, put), (), (), is_read=is_read))


def test_scan_with_a_value_replaced_before_is_caught() -> None:
    complaints = judged((put, put), (), (value(2),), is_read=False)
    assert any("put 2 under b'k' in a scan, which is old" in text for text in complaints)
    assert any("denies b'k' in a scan, which was acknowledged: no context 1" in text for text in complaints)
