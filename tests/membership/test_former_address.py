"""A node that restarts at another address asks its former address, where a copy of it may run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

import chord
from chord.config import PRESETS, RingConstants
from chord.errors import Busy, ChordError, DuplicateId, OtherRing, UnknownVnode
from chord.ids import Point
from chord.membership.rejoin import Rejoin
from chord.ring.vnode import Vnode
from chord.wire.messages import Contact, Ping, PingReply
from tests.support.node_on_disk import node_on
from tests.support.ports import Ports
from tests.support.real_rings import HANG_S
from tests.support.rings import only, virtual

TIMING = PRESETS["local"]
FORMER, OTHER = "former:1", "other:1"
MEMBER = PingReply("member", has_met_quorum=True)
TIMEOUT_S = 0.5

Answer = Callable[[Contact | str], PingReply]


class Asked:
    """The calls of a node: each takes a given time, and `answer` gives its outcome."""

    def __init__(self, answer: Answer, rtt_s: float = 0.01) -> None:
        self._answer, self._rtt_s = answer, rtt_s
        self.failure_detector = SimpleNamespace(timeout=lambda address: TIMEOUT_S)

    async def call(self, to: Contact | str, request: Ping, expect: type[PingReply]) -> PingReply:
        await trio.sleep(self._rtt_s)
        return self._answer(to)


def rejoin(peers: Asked) -> Rejoin:
    host = SimpleNamespace(peers=peers, timing=TIMING, jitter=lambda wait_s: wait_s)
    vnode: Any = SimpleNamespace(id=Point(7), ring=None, host=host)
    return Rejoin(cast(Vnode, vnode), cast(Any, None))


async def states_of(peers: Asked, *addresses: str) -> dict[str, str]:
    return await rejoin(peers)._states_of(list(addresses), (), {}, FORMER)


def at_former(outcome: PingReply | ChordError, by_id: PingReply | ChordError = MEMBER) -> Answer:
    """Answer as a member at `OTHER`, and with these outcomes at `FORMER`."""

    def answer(to: Contact | str) -> PingReply:
        found = MEMBER if to == OTHER else by_id if isinstance(to, Contact) else outcome
        if isinstance(found, ChordError):
            raise found
        return found

    return answer


@virtual
async def test_foreign_ring_at_the_former_address_costs_no_wait() -> None:
    began = trio.current_time()
    assert await states_of(Asked(at_former(OtherRing("another ring"))), FORMER, OTHER) == {OTHER: "member"}
    assert trio.current_time() - began < TIMING.resume_s / 8


@virtual
async def test_foreign_ring_at_the_former_address_alone_ends_no_start() -> None:
    assert await states_of(Asked(at_former(OtherRing("another ring"))), FORMER) == {}


@virtual
async def test_foreign_ring_at_another_address_alone_ends_the_start() -> None:
    def answer(to: Contact | str) -> PingReply:
        raise OtherRing("another ring")

    with pytest.raises(OtherRing):
        await states_of(Asked(answer), OTHER)


@virtual
async def test_copy_at_a_far_former_address_is_found() -> None:
    """Both calls together take longer than the timeout of one."""
    with pytest.raises(DuplicateId):
        await states_of(Asked(at_former(MEMBER), rtt_s=0.6 * TIMEOUT_S), FORMER, OTHER)


@virtual
async def test_copy_that_is_busy_at_first_is_found() -> None:
    outcomes: list[ChordError] = [Busy("stalled"), Busy("stalled")]

    def answer(to: Contact | str) -> PingReply:
        if isinstance(to, Contact) and outcomes:
            raise outcomes.pop()
        return MEMBER

    with pytest.raises(DuplicateId):
        await states_of(Asked(answer), FORMER, OTHER)


@virtual
async def test_reply_of_a_busy_node_at_the_former_address_counts() -> None:
    found = await states_of(Asked(at_former(MEMBER, Busy("stalled"))), FORMER)
    assert found == {FORMER: "member"}


@virtual
async def test_other_node_at_the_former_address_is_a_member() -> None:
    began = trio.current_time()
    found = await states_of(Asked(at_former(MEMBER, UnknownVnode("no such vnode"))), FORMER, OTHER)
    assert found == {FORMER: "member", OTHER: "member"}
    assert trio.current_time() - began < TIMING.resume_s / 8


async def test_copy_in_any_state_is_refused_over_tcp(tmp_path: Path, ports: Ports) -> None:
    """The hello refuses it. Without connections only a member counts."""
    async with node_on(tmp_path / "original") as original:
        only(original).state = "resuming"
        shutil.copytree(tmp_path / "original", tmp_path / "copy")
        ring = RingConstants(bits=32)
        where: Any = {"listen": ports.address(), "data_dir": str(tmp_path / "copy"), "join": [original.address]}
        with trio.fail_after(HANG_S), pytest.raises(DuplicateId):
            async with chord.open_node(preset="local", ring=ring, **where):
                pass
        only(original).state = "member"
