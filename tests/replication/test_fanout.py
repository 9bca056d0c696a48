"""Fan-out: when each node is asked, and when the fan-out is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from chord import testing
from chord.errors import ChordError, NotReady, PeerLost
from chord.ids import Point
from chord.net.steps import Driver, Steps
from chord.net.timers import Timers
from chord.replication.fanout import Fanout
from chord.wire.messages import Contact
from tests.support.rings import virtual

A, B, C, D = (Contact(Point(number), f"{number}:1") for number in range(4))
TIMEOUT_S = 0.5


class Reply:
    """An effect: the answer of one node, which comes when the test says so."""

    def __init__(self, asked: dict[Contact, Driver[Any]], contact: Contact) -> None:
        self._asked = asked
        self._contact = contact

    def begin(self, driver: Driver[Any], /) -> None:
        """Note that the node was asked."""
        self._asked[self._contact] = driver


class Questions:
    """A fan-out without a network: each node answers when the test says so."""

    def __init__(self, *spares: Contact) -> None:
        peers = SimpleNamespace(failure_detector=SimpleNamespace(timeout=lambda address: TIMEOUT_S))
        self.host: Any = SimpleNamespace(is_ending=False, timers=Timers(), peers=peers)
        self.asked: dict[Contact, Driver[Any]] = {}
        self.over: list[ChordError | None] = []
        self.needed = 2
        self.answered = 0
        self.fanout = Fanout(self.host, self.ask_one, spares)

    def ask_one(self, contact: Contact) -> Steps[None]:
        yield Reply(self.asked, contact)

    def begin(self, *first: Contact) -> None:
        def steps() -> Steps[None]:
            yield self.fanout.ask(first, until=lambda: self.answered >= self.needed)

        Driver(steps()).begin(self.over.append)

    def answer(self, contact: Contact) -> None:
        self.answered += 1
        self.asked[contact].resume()


@virtual
async def test_fanout_asks_a_spare_for_each_node_that_fails() -> None:
    questions = Questions(C)
    questions.begin(A, B)
    assert list(questions.asked) == [A, B]
    questions.asked[A].resume(PeerLost("gone"))
    assert list(questions.asked) == [A, B, C]
    questions.asked[B].resume(PeerLost("gone"))
    assert not questions.over
    questions.asked[C].resume(PeerLost("gone"))
    assert questions.over == [None]
    assert list(questions.fanout.failures) == [A, B, C]


@virtual
async def test_fanout_takes_late_answers_after_its_end() -> None:
    questions = Questions()
    questions.begin(A, B, C)
    questions.answer(C)
    questions.answer(A)
    assert questions.over == [None]
    assert list(questions.fanout.waiting) == [B]
    questions.answer(B)
    assert questions.over == [None], "once"


@pytest.mark.parametrize("is_planted", [False, True])
def test_fanout_asks_a_spare_when_nodes_are_late(
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
async def test_fanout_answered_at_once_leaves_no_timer() -> None:
    questions = Questions(B, C)

    def refuse(contact: Contact) -> Steps[None]:
        raise PeerLost("refused")
        yield

    questions.fanout = Fanout(questions.host, refuse, (B, C))
    questions.begin(A)
    assert questions.over == [None]
    assert list(questions.fanout.failures) == [A, B, C]
    assert questions.host.timers.sweep(60.0) == float("inf")


@virtual
async def test_fanout_of_an_ending_node_asks_no_node() -> None:
    questions = Questions(B)
    questions.host.is_ending = True
    questions.begin(A)
    assert isinstance(questions.over[0], NotReady)
    assert not questions.asked
