"""Quorum reads by the client: one round, and the owner coordinates if the copies or the partners differ."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import msgspec
import pytest
import trio

from chord.client import quorum_read
from chord.client.operations import Operations
from chord.client.quorum_read import PARTNER_S
from chord.client.routing import LEFT_ALONE_FIRST
from chord.client.session import ClientCall, ClientOperation, ClientSession, MakeCalls, Outcome
from chord.config import PRESETS
from chord.errors import Busy, ChordError, DeadlineExceeded, NotFound, NotOwner, PeerUnreachable, UnknownVnode
from chord.ids import Circle
from chord.node import Node
from chord.replication.anti_entropy import AntiEntropy
from chord.replication.read import QuorumReads, Reading
from chord.testing.rings import open_ring
from chord.wire.messages import Contact, Get, GetReply, ReadDigest, ReadDigestReply
from tests.mutants.mutant import Edit
from tests.support.quorum import clockwise, ring_in_sync, until, until_in_sync, write
from tests.support.rings import only, virtual

CIRCLE = Circle(160)
KEY = b"user:42"
OWNER = Contact(CIRCLE.point(CIRCLE.hash(KEY) + 1), "owner:1")
PARTNER = Contact(CIRCLE.point(CIRCLE.hash(KEY) + 2), "partner:1")
COPY = b"c" * 16

Reply = Callable[[ClientCall], Outcome]


class Nodes:
    """Three nodes without a network: an entry node, the owner of the key and its partner.

    Attributes:
        replies: how a node answers; by address.
        calls: the calls of the client, in order.
    """

    def __init__(self, member: str | None = None) -> None:
        session = ClientSession(("entry:1",), rng=random.Random(1), circle=CIRCLE, arcs_max=16, member=member)
        self.core = Operations(session)
        self.calls: list[ClientCall] = []
        self.replies: dict[str, Reply] = {
            "entry:1": lambda call: GetReply((b"v",), b"context", OWNER, 2, 2, partners=(PARTNER,)),
            "owner:1": self.own_copy,
            "partner:1": lambda call: ReadDigestReply(COPY),
        }

    @staticmethod
    def own_copy(call: ClientCall) -> Outcome:
        """Answer as an owner that agrees with the client's partners."""
        assert isinstance(call.request, Get)
        if call.request.partners == (PARTNER.id,):
            return GetReply((b"v",), b"context", None, 1, 2, copy=COPY)
        return GetReply((b"v",), b"context", OWNER if call.request.with_owner else None, 2, 2, partners=(PARTNER,))

    def get(self, **wishes: Any) -> Any:
        """Read the key."""
        return self.run(self.core.get(KEY, **wishes))

    def run(self, operation: ClientOperation[Any]) -> Any:
        """Carry an operation out; it pauses for no time."""
        effect = next(operation)
        try:
            while True:
                if isinstance(effect, MakeCalls):
                    self.calls += effect.calls
                    effect = operation.send(tuple(self.replies[call.address](call) for call in effect.calls))
                else:
                    effect = operation.send(None)
        except StopIteration as stop:
            return stop.value

    def asked(self) -> list[str]:
        """Return the addresses that were asked since the last call of this method."""
        addresses, self.calls = [call.address for call in self.calls], []
        return addresses


@pytest.fixture(name="nodes")
def nodes_of_a_test() -> Nodes:
    """Return nodes after a read that taught the client the owner and its partner."""
    return nodes_after_a_read()


def nodes_after_a_read(member: str | None = None) -> Nodes:
    """Return nodes after a read that taught the client, or a node, the owner and its partner."""
    found = Nodes(member)
    found.get()
    assert found.asked() == ["entry:1"]
    return found


def test_second_get_asks_owner_and_partner_at_once(nodes: Nodes) -> None:
    found = nodes.get()
    owner, partner = nodes.calls
    assert (found.value, found.owner, found.r, found.r_needed) == (b"v", OWNER, 2, 2)
    assert [(line.contact, line.outcome) for line in found.replicas] == [(OWNER, "ok"), (PARTNER, "ok")]
    assert owner == ClientCall(OWNER, Get(KEY, 0, (PARTNER.id,), with_owner=False))
    assert partner == ClientCall(PARTNER, ReadDigest(KEY, OWNER.id), PARTNER_S)


@pytest.mark.parametrize("digest", [b"", b"d" * 16, COPY + b"v"], ids=["no copy", "another copy", "another reap log"])
def test_different_copies_are_left_to_the_owner(nodes: Nodes, digest: bytes) -> None:
    nodes.replies["partner:1"] = lambda call: ReadDigestReply(digest)
    assert nodes.get().value == b"v"
    assert nodes.asked() == ["owner:1", "partner:1", "owner:1"]
    nodes.get()
    assert nodes.asked()[:2] == ["owner:1", "partner:1"], "a difference says nothing about the next read"


@pytest.mark.parametrize("error", [Busy("not in sync"), PeerUnreachable("gone"), DeadlineExceeded("late")])
def test_failing_partner_is_left_alone_longer_each_time(nodes: Nodes, error: ChordError) -> None:
    nodes.replies["partner:1"] = lambda call: error
    spans, since = [], 0
    for _ in range(4 * LEFT_ALONE_FIRST):
        assert nodes.get().value == b"v"
        since += 1
        if "partner:1" in nodes.asked():
            spans.append(since)
            since = 0
    assert len(spans) <= 3
    assert spans[1] >= LEFT_ALONE_FIRST - 1


def test_owner_that_would_ask_others_coordinates(nodes: Nodes) -> None:
    other = Contact(CIRCLE.point(PARTNER.id + 1), "other:1")
    nodes.replies["owner:1"] = lambda call: GetReply((b"v",), b"context", None, 2, 2, partners=(other,))
    nodes.replies["other:1"] = lambda call: ReadDigestReply(COPY)
    assert nodes.get().value == b"v"
    assert nodes.asked() == ["owner:1", "partner:1"]
    nodes.get()
    assert nodes.asked() == ["owner:1", "other:1"], "the reply named the right partner"


@pytest.mark.parametrize("error", [NotOwner("moved"), UnknownVnode("gone"), PeerUnreachable("refused")])
def test_wrong_owner_is_forgotten(nodes: Nodes, error: ChordError) -> None:
    nodes.replies["owner:1"] = lambda call: error
    assert nodes.get().value == b"v"
    assert nodes.asked() == ["owner:1", "partner:1", "entry:1"]


def test_absent_key_is_denied_by_the_owner_alone(nodes: Nodes) -> None:
    nodes.replies["owner:1"] = lambda call: GetReply((), b"", None, 2, 2)
    with pytest.raises(NotFound):
        nodes.get()
    assert nodes.asked() == ["owner:1", "partner:1"], "a reply without a copy is the result of a coordinated read"


@pytest.mark.parametrize("wishes", [{"r": 1}, {"r": 2}, {"replicas": True}], ids=str)
def test_explicit_r_and_replicas_are_left_to_the_owner(nodes: Nodes, wishes: dict[str, Any]) -> None:
    nodes.get(**wishes)
    assert nodes.asked() == ["owner:1"]


def test_digest_of_an_earlier_read_completes_no_later_read(nodes: Nodes) -> None:
    nodes.get()
    nodes.asked()
    nodes.replies["partner:1"] = lambda call: ReadDigestReply(b"d" * 16)
    nodes.get()
    assert nodes.asked() == ["owner:1", "partner:1", "owner:1"]


def test_silent_partner_is_left_alone_if_the_owner_coordinates(nodes: Nodes) -> None:
    nodes.replies["owner:1"] = lambda call: GetReply((b"v",), b"context", None, 2, 2)
    nodes.replies["partner:1"] = lambda call: DeadlineExceeded("late")
    for _ in range(LEFT_ALONE_FIRST):
        nodes.get()
    assert nodes.asked().count("partner:1") == 1


def test_half_without_values_denies_nothing(nodes: Nodes) -> None:
    nodes.replies["owner:1"] = lambda call: GetReply((), b"", None, 1, 2, copy=COPY)
    with pytest.raises(NotFound):
        nodes.get()
    assert nodes.asked() == ["owner:1", "partner:1", "owner:1"]


def test_failures_at_the_same_time_count_once() -> None:
    routing = nodes_after_a_read().core.session.owner_routing
    for _ in range(20):
        routing.note_partners(OWNER, have_answered=False)
    for _ in range(LEFT_ALONE_FIRST):
        assert not routing.quorum_of(CIRCLE, KEY, is_counted=True)[1]
    assert routing.quorum_of(CIRCLE, KEY, is_counted=True)[1]


def test_node_asks_partners_again_after_a_failure() -> None:
    node = nodes_after_a_read("reader:1")
    node.replies["partner:1"] = lambda call: Busy("not in sync")
    for _ in range(2 * LEFT_ALONE_FIRST):
        node.get()
    assert node.asked().count("partner:1") == 2


# -- with nodes ------------------------------------------------------------------------------------------


async def read_half(node: Node, coordinator: Node, *partners: Node) -> GetReply:
    """Read the key as a client that asks the partners itself."""
    request = Get(KEY, 0, tuple(only(partner).id for partner in partners), with_owner=False)
    return await node._host.peers.call(only(coordinator).me, request, GetReply)


@virtual
async def test_equal_copies_are_read_in_one_round() -> None:
    async with ring_in_sync(6, 9) as ring:
        await write(ring[0], KEY, b"v", w=3)
        owner, partner, *others = clockwise(ring, KEY)
        reader = others[-1]
        await reader.get(KEY)
        forwarded, began = reader._host.counters["forwarded"], trio.current_time()
        assert (await reader.get(KEY)).value == b"v"
        one_round_s = trio.current_time() - began
        began = trio.current_time()
        await reader.get(KEY, replicas=True)
        assert one_round_s < trio.current_time() - began
        assert reader._host.counters["forwarded"] == forwarded + 1, "only the read that lists the replicas"
        assert owner._host.counters["gets"] == 3
        assert partner._host.counters["gets"] == 0


@virtual
async def test_partner_with_another_copy_makes_the_owner_repair() -> None:
    async with ring_in_sync(6, 9) as ring:
        await write(ring[0], KEY, b"old", w=3)
        owner, partner, _, *others = clockwise(ring, KEY)
        reader = others[-1]
        await reader.get(KEY)
        ring.network.block(partner.name, owner.name)
        ring.network.block(owner.name, partner.name)
        await write(owner, KEY, b"new", w=2)
        ring.network.heal()
        assert (await reader.get(KEY)).value == b"new"
        await until(lambda: partner._host.storage.get(KEY) == owner._host.storage.get(KEY), within_s=1)


@virtual
async def test_read_digest_is_refused_by_all_but_replicas_in_sync() -> None:
    async with ring_in_sync(6, 9) as ring:
        await write(ring[0], KEY, b"v", w=3)
        owner, partner, *_ = clockwise(ring, KEY)
        request = ReadDigest(KEY, only(owner).id)
        digest = await owner._host.peers.call(only(partner).me, request, ReadDigestReply)
        assert digest.copy
        with pytest.raises(Busy, match="no replica beside that owner"):
            await partner._host.peers.call(only(owner).me, request, ReadDigestReply)
        with pytest.raises(Busy, match="no replica beside that owner"):
            await owner._host.peers.call(only(partner).me, ReadDigest(KEY, only(partner).id), ReadDigestReply)
        only(partner).preference_list.keep_in_sync([])
        with pytest.raises(Busy, match="not in sync"):
            await owner._host.peers.call(only(partner).me, request, ReadDigestReply)


@virtual
async def test_owner_reads_its_own_copy_only_beside_its_own_partners() -> None:
    async with ring_in_sync(6, 9) as ring:
        await write(ring[0], KEY, b"v", w=3)
        owner, partner, _, other, *_ = clockwise(ring, KEY)
        own = await read_half(other, owner, partner)
        assert (own.copy != b"", own.partners, own.values) == (True, (), (b"v",))
        whole = await read_half(partner, owner, other)
        assert (whole.copy, whole.r, whole.partners) == (b"", 2, (only(partner).me,))


@virtual
async def test_stand_in_coordinates_every_read() -> None:
    async with ring_in_sync(6, 9) as ring:
        await write(ring[0], KEY, b"v", w=3)
        owner, partner, second, other, *_ = clockwise(ring, KEY)
        ring.network.freeze(owner.name)
        await trio.sleep(2)
        with mock.patch.object(AntiEntropy, "in_sync_among", lambda self, contacts, point: contacts):
            reply = await read_half(other, partner, second)
        assert (reply.copy, reply.r) == (b"", 2)


@virtual
async def test_owner_that_is_out_of_sync_coordinates() -> None:
    async with ring_in_sync(6, 9) as ring:
        await write(ring[0], KEY, b"v", w=3)
        owner, partner, _, other, *_ = clockwise(ring, KEY)
        only(owner).preference_list.keep_in_sync([])
        assert (await read_half(other, owner, partner)).copy == b""


@virtual
async def test_deleted_key_is_never_read_from_two_copies() -> None:
    async with ring_in_sync(6, 9) as ring:
        await write(ring[0], KEY, b"v", w=3)
        await write(ring[0], KEY, None, w=3)
        owner, partner, _, other, *_ = clockwise(ring, KEY)
        assert (await read_half(other, owner, partner)).copy == b""


@virtual
async def test_partner_of_an_unreachable_owner_refuses() -> None:
    async with ring_in_sync(6, 9) as ring:
        await write(ring[0], KEY, b"v", w=3)
        owner, partner, _, other, *_ = clockwise(ring, KEY)
        ring.network.freeze(owner.name)
        await trio.sleep(2)
        with pytest.raises(Busy, match="no replica beside that owner"):
            await other._host.peers.call(only(partner).me, ReadDigest(KEY, only(owner).id), ReadDigestReply)


@virtual
async def test_reader_that_gives_up_early_suspects_no_partner() -> None:
    async with ring_in_sync(6, 9) as ring:
        await write(ring[0], KEY, b"v", w=3)
        _, partner, *_, reader = clockwise(ring, KEY)
        await reader.get(KEY)
        for _ in range(3):
            with trio.move_on_after(0.0002):
                await reader.get(KEY)
        await trio.sleep(1)
        assert reader._host.peers.failure_detector.state(partner.address) == "alive"


@pytest.mark.slow
@virtual
async def test_partners_of_every_arc_answer_in_a_ring_with_vnodes() -> None:
    timing = msgspec.structs.replace(PRESETS["local"], anti_entropy_s=10.0)
    async with open_ring(5, seed=3, vnodes=3, successors=8, replicas=5, timing=timing) as ring:
        await until_in_sync(ring)
        # In sync is another vnode of the same node, until the next comparison.
        await trio.sleep(1.5 * timing.anti_entropy_s)
        asked = 0
        for node in ring.nodes:
            for parts in node._parts.values():
                owns = parts.vnode.ownership.is_owner
                key = next(key for key in map(b"%d".__mod__, range(9999)) if owns(CIRCLE.hash(key)))
                for partner in parts.reads.partners(parts.reads._quorum.target(key), 3):
                    await node._host.peers.call(partner, ReadDigest(key, parts.vnode.id), ReadDigestReply)
                    asked += 1
        assert asked == 2 * 3 * 5


def test_copies_under_different_reap_logs_are_different() -> None:
    assert Reading(KEY, b"one").copy_id(b"digest") != Reading(KEY, b"two").copy_id(b"digest")


# -- planted bugs ----------------------------------------------------------------------------------------

PLANTED: dict[str, tuple[Edit, Callable[[], object]]] = {
    "an owner ignores the partners of a read": (
        Edit(
            QuorumReads._is_with,
            "return request.partners == tuple(partner.id for partner in self.partners(target, needed))",
            "return True",
        ),
        test_owner_reads_its_own_copy_only_beside_its_own_partners,
    ),
    "a stand-in answers as the owner": (
        Edit(QuorumReads._is_with, "or not self._vnode.ownership.is_owner(target.point)", ""),
        test_stand_in_coordinates_every_read,
    ),
    "a partner that took over answers": (
        Edit(
            QuorumReads.read_digest,
            "if owner is None or verdicts & {\"owned\", \"giving\"} or self._host.peers.is_doubtful(owner):",
            "if owner is None:",
        ),
        test_partner_of_an_unreachable_owner_refuses,
    ),
    "an owner out of sync answers": (
        Edit(QuorumReads._read_own, "if not self._is_in_sync(point, key):", "if False:"),
        test_owner_that_is_out_of_sync_coordinates,
    ),
    "a partner out of sync answers": (
        Edit(QuorumReads.read_digest, "if not self._is_in_sync(point, request.key):", "if False:"),
        test_read_digest_is_refused_by_all_but_replicas_in_sync,
    ),
    "applied entries of the reap log do not count": (
        Edit(Reading.copy_id, "digest + self.seen", "digest"),
        test_copies_under_different_reap_logs_are_different,
    ),
    "equal tombstones answer a read": (
        Edit(QuorumReads._read_own, "if not self._live(record):", "if record is None:"),
        test_deleted_key_is_never_read_from_two_copies,
    ),
    "an old digest completes a read": (
        Edit(
            quorum_read.quorum_read,
            "session.owner_routing.learn(",
            "digests = session.__dict__.setdefault('digests', {}).setdefault((key, owner), digests)\n"
            "    session.owner_routing.learn(",
        ),
        lambda: test_digest_of_an_earlier_read_completes_no_later_read(nodes_after_a_read()),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_of_quorum_reads_is_caught(name: str) -> None:
    edit, test = PLANTED[name]
    with ExitStack() as stack:
        edit.plant(stack)
        with pytest.raises((AssertionError, pytest.fail.Exception, BaseExceptionGroup)):
            test()
