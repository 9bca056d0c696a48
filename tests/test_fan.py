"""Who is asked when: the first at once, one more for each that fails or is late, and nobody once enough is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from worlds import virtual

from chord import testing
from chord.errors import ChordError, NotReady, PeerLost
from chord.ids import Point
from chord.net.timers import Timers
from chord.replication.fanout import Fan, Told
from chord.wire.messages import Contact

A, B, C, D = (Contact(Point(number), f"{number}:1") for number in range(4))
TIMEOUT_S = 0.5


class Questions:
    """A fan with nobody behind it: whoever is asked answers when the test says so."""

    def __init__(self, *spare: Contact) -> None:
        suspicion = SimpleNamespace(timeout=lambda address: TIMEOUT_S)
        self.host: Any = SimpleNamespace(is_ending=False, timers=Timers(), peers=SimpleNamespace(suspicion=suspicion))
        self.asked: dict[Contact, Told] = {}
        self.over: list[ChordError | None] = []
        self.needed = 2
        self.heard = 0
        self.fan = Fan(self.host, self.asked.__setitem__, spare)

    def begin(self, *first: Contact) -> None:
        self.fan.begin(lambda: self.heard >= self.needed, first, self.over.append)

    def answer(self, contact: Contact) -> None:
        self.heard += 1
        self.asked[contact](None)


@virtual
async def test_one_more_is_asked_for_each_that_fails_until_there_is_nobody() -> None:
    questions = Questions(C)
    questions.begin(A, B)
    assert list(questions.asked) == [A, B]
    questions.asked[A](PeerLost("gone"))
    assert list(questions.asked) == [A, B, C]
    questions.asked[B](PeerLost("gone"))
    assert not questions.over
    questions.asked[C](PeerLost("gone"))
    assert questions.over == [None]
    assert list(questions.fan.failures) == [A, B, C]


@virtual
async def test_who_is_late_is_listened_to_after_it_is_over() -> None:
    questions = Questions()
    questions.begin(A, B, C)
    questions.answer(C)
    questions.answer(A)
    assert questions.over == [None]
    assert list(questions.fan.waiting) == [B]
    questions.answer(B)
    assert questions.over == [None], "once"


@pytest.mark.parametrize("is_planted", [False, True])
def test_one_more_is_asked_when_those_who_are_waited_for_are_late(
    is_planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_planted:
        monkeypatch.setattr(Timers, "set", lambda self, do, when: None)

    async def main() -> None:
        questions = Questions(C, D)
        questions.begin(A, B)
        timers = questions.host.timers
        await trio.sleep(TIMEOUT_S)
        timers.sweep(trio.current_time())
        assert (C in questions.asked) is not is_planted
        await trio.sleep(TIMEOUT_S)
        timers.sweep(trio.current_time())
        assert (D in questions.asked) is not is_planted
        questions.answer(A)
        questions.answer(B)
        assert timers.sweep(trio.current_time() + 60) == float("inf"), "it is called off"

    testing.run(main)


@virtual
async def test_who_answers_at_once_leaves_nothing_to_wait_for() -> None:
    questions = Questions(B, C)
    questions.fan = Fan(questions.host, lambda contact, told: told(PeerLost("refused")), (B, C))
    questions.begin(A)
    assert questions.over == [None]
    assert list(questions.fan.failures) == [A, B, C]
    assert questions.host.timers.sweep(60.0) == float("inf")


@virtual
async def test_a_node_that_is_ending_asks_nobody() -> None:
    questions = Questions(B)
    questions.host.is_ending = True
    questions.begin(A)
    assert isinstance(questions.over[0], NotReady)
    assert not questions.asked
