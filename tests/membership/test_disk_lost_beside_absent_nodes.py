"""A node takes over from two absent nodes and loses its disk. The absent nodes alone hold acknowledged writes then."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
import trio

from chord import testing
from chord.config import RingConstants
from chord.errors import ChordError
from chord.ids import Arc
from chord.node import Node
from chord.replication.anti_entropy import AntiEntropy
from chord.ring.takeover import Takeover
from chord.ring.vnode import Vnode
from chord.sim.cluster import cluster
from chord.sim.disk import flash
from chord.wire.messages import Done, Forget, Get, GetReply
from tests.support.quorum import clockwise, timing, until_in_sync, write
from tests.support.rings import patiently

KEY = b"on two absent nodes"
DOWN_OUT_S = 60.0
NODES = 20
"""The taker asks N + r nodes behind its replicas. None of these knows the absent nodes in a ring of this size."""


async def answers_of(nodes: list[Node], key: bytes, for_s: float) -> Counter[str]:
    """Ask some nodes for a key again and again; count the answers by kind."""
    said: Counter[str] = Counter()
    ends = trio.current_time() + for_s
    while trio.current_time() < ends:
        for node in nodes:
            try:
                with trio.fail_after(1):
                    reply = await node._host.peers.call(node.address, Get(key), GetReply)
                said["found" if reply.values else "denied"] += 1
            except (ChordError, trio.TooSlowError) as error:
                said[type(error).__name__] += 1
        await trio.sleep(0.5)
    return said


async def denials_beside_absent_nodes(
    absent_s: float, *, is_forgotten: bool, replicas: int = 3, asked_s: float = 20.0
) -> int:
    """Lose a taker's disk while the N - 1 former owners of its arc are absent; return how often their key is denied.

    An assertion fails if the key is not found when the absent nodes are back.

    Args:
        absent_s: how long the former owners have been absent when the taker dies.
        is_forgotten: whether the taker does not return, and an operator forgets it. Otherwise it returns with an empty
            disk.
        replicas: N.
        asked_s: for how long nodes are asked for the key.
    """
    constants = RingConstants(successors=4, replicas=replicas)
    async with cluster(seed=1, ring=constants, timing=timing(down_out_s=DOWN_OUT_S), sync_delay=flash) as machines:
        await machines.place(NODES)
        await until_in_sync(machines)
        nodes = clockwise(machines, KEY)
        absent, taker, behind = nodes[: replicas - 1], nodes[replicas - 1], nodes[replicas]
        await write(behind, KEY, b"v")
        await trio.sleep(1)
        for node in absent:
            await machines.kill(node)
        await trio.sleep(absent_s)
        await machines.kill(taker)
        machines.wipe(taker.name)
        await trio.sleep(10)
        if is_forgotten:
            for node in machines.nodes:
                await node._host.peers.call(node.address, Forget(taker.address), Done)
            asked = behind
        else:
            asked = await machines.start(name=taker.name, join=[nodes[-1]])
            await asked.ready()
        said = await answers_of([asked, behind], KEY, asked_s)
        for node in absent:
            await (await machines.start(name=node.name, join=())).ready()
        call = asked._host.peers.call
        reply = await patiently(lambda: call(asked.address, Get(KEY), GetReply), within_s=30)
        assert reply.values == (b"v",)
    return said["denied"]


@pytest.mark.parametrize(
    ("replicas", "is_forgotten", "absent_s"),
    [
        pytest.param(2, False, 15.0, marks=pytest.mark.slow),
        (3, False, 15.0),
        pytest.param(3, True, 15.0, marks=pytest.mark.slow),
        pytest.param(3, False, DOWN_OUT_S + 15.0, marks=pytest.mark.slow),
    ],
)
def test_new_owner_denies_no_key_of_absent_nodes(replicas: int, is_forgotten: bool, absent_s: float) -> None:
    run = partial(denials_beside_absent_nodes, absent_s, is_forgotten=is_forgotten, replicas=replicas)
    assert testing.run(run, seed="absent") == 0


@pytest.mark.slow
def test_new_owner_after_down_out_denies_no_key_of_absent_nodes() -> None:
    """The owner's arc has not grown for `down_out_s`, and it must still know the absent nodes."""
    run = partial(denials_beside_absent_nodes, 15.0, is_forgotten=False, asked_s=2 * DOWN_OUT_S)
    assert testing.run(run, seed="absent") == 0


@pytest.mark.slow
def test_planted_owner_that_knows_no_absent_nodes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant all bugs: the owner asks only the nodes behind it, and no other node tells it of a down vnode."""
    pull = AntiEntropy._pull_from_behind

    async def pull_with_gaps(self: AntiEntropy, arc: Arc, *, is_gap_allowed: bool = True) -> bool:
        return await pull(self, arc)

    monkeypatch.setattr(AntiEntropy, "_pull_from_behind", pull_with_gaps)
    monkeypatch.setattr(Takeover, "_remember_before", lambda self, predecessor, reply: None)
    monkeypatch.setattr(Vnode, "learn_passive", lambda self, contacts: None)
    assert testing.run(partial(denials_beside_absent_nodes, 15.0, is_forgotten=False), seed="absent") > 0


@pytest.mark.slow
def test_planted_owner_without_news_of_its_predecessor_denies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Takeover, "_remember_before", lambda self, predecessor, reply: None)
    monkeypatch.setattr(Vnode, "learn_passive", lambda self, contacts: None)
    run = partial(denials_beside_absent_nodes, 15.0, is_forgotten=False, asked_s=2 * DOWN_OUT_S)
    assert testing.run(run, seed="absent") > 0
