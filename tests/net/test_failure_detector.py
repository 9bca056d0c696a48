"""From answered and missed calls to timeouts and alive / suspect / dead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chord.config import PRESETS, Timing
from chord.events import PeerChanged
from chord.net.failure_detector import FailureDetector

A = "a:1"
TIMING = Timing(timeout_floor_s=0.1, timeout_stranger_s=0.5, timeout_cap_s=2.0, suspect_misses=1, dead_misses=3)


def states(*changes: PeerChanged | None) -> list[str | None]:
    return [None if change is None else change.state for change in changes]


def miss(suspicion: FailureDetector, now: float, refused: bool = False) -> PeerChanged | None:
    return suspicion.missed(A, now, refused, "no answer")


def test_a_stranger_is_alive_and_gets_the_strangers_timeout() -> None:
    suspicion = FailureDetector(TIMING)
    assert suspicion.state(A) == "alive"
    assert not suspicion.is_dead(A)
    assert suspicion.timeout(A) == 0.5
    assert suspicion.srtt(A) is None
    assert suspicion.peers(0.0) == []


def test_one_miss_makes_suspect_and_three_in_a_row_dead() -> None:
    suspicion = FailureDetector(TIMING)
    assert states(*(miss(suspicion, t) for t in (1, 2, 3, 4))) == ["suspect", None, "dead", None]
    assert suspicion.is_dead(A)
    assert suspicion.since(A) == 3


def test_an_answer_in_between_starts_the_count_again() -> None:
    suspicion = FailureDetector(TIMING)
    miss(suspicion, 1)
    miss(suspicion, 2)
    assert states(suspicion.answered(A, 3, 0.01)) == ["alive"]
    assert states(miss(suspicion, 4), miss(suspicion, 5)) == ["suspect", None]
    assert not suspicion.is_dead(A)


def test_two_refused_connections_in_a_row_are_death() -> None:
    suspicion = FailureDetector(TIMING)
    assert states(miss(suspicion, 1, True), miss(suspicion, 2, True)) == ["suspect", "dead"]


def test_refusals_with_silence_in_between_are_not_in_a_row() -> None:
    suspicion = FailureDetector(Timing(dead_misses=5))
    assert states(*(miss(suspicion, t, t % 2 == 1) for t in (1, 2, 3))) == ["suspect", None, None]


def test_any_sign_of_life_brings_the_dead_back() -> None:
    suspicion = FailureDetector(TIMING)
    for t in (1, 2, 3):
        miss(suspicion, t)
    assert suspicion.heard_from(A, 4) == PeerChanged(A, "alive", "heard from")
    assert suspicion.heard_from(A, 5) is None
    assert suspicion.since(A) == 4


def test_one_that_left_stays_away_though_it_still_answers_and_is_back_when_it_calls() -> None:
    suspicion = FailureDetector(TIMING)
    assert states(suspicion.left(A, 1), suspicion.left(A, 1)) == ["left", None]
    assert suspicion.is_dead(A)
    assert suspicion.answered(A, 1.5, 0.01) is None
    assert miss(suspicion, 1.6) is None
    assert suspicion.state(A) == "left"
    assert states(suspicion.heard_from(A, 2)) == ["alive"]


def test_one_that_left_is_a_stranger_after_a_while() -> None:
    suspicion = FailureDetector(TIMING)
    suspicion.left(A, 1)
    suspicion.heard_from("b:1", 100)
    assert suspicion.state(A) == "alive"
    assert not suspicion.is_dead(A)
    assert states(miss(suspicion, 101)) == ["suspect"]


def test_one_long_dead_may_be_probed_again_and_dies_of_one_miss() -> None:
    suspicion = FailureDetector(TIMING)
    for t in (1, 2, 3):
        miss(suspicion, t)
    suspicion.heard_from("b:1", 62)
    assert suspicion.is_dead(A)
    suspicion.heard_from("b:1", 63)
    assert suspicion.state(A) == "suspect", "60 s later hearsay of its return is worth a probe"
    assert states(miss(suspicion, 64)) == ["dead"]
    suspicion.heard_from("b:1", 200)
    assert states(miss(suspicion, 201, refused=True)) == ["dead"]


def test_a_paused_peer_is_routed_around_and_does_not_die_before_down_out() -> None:
    suspicion = FailureDetector(TIMING)
    assert states(suspicion.paused(A, 1)) == ["paused"]
    assert [miss(suspicion, t, True) for t in range(2, 20)] == [None] * 18
    assert suspicion.state(A) == "paused"
    assert not suspicion.is_dead(A)
    assert states(miss(suspicion, 1 + TIMING.down_out_s)) == ["dead"]


def test_a_paused_peer_that_answers_is_alive() -> None:
    suspicion = FailureDetector(TIMING)
    suspicion.paused(A, 1)
    miss(suspicion, 2)
    assert states(suspicion.answered(A, 3, None)) == ["alive"]
    assert states(miss(suspicion, 4)) == ["suspect"]


def test_round_trip_beyond_the_largest_timeout_is_no_sample() -> None:
    """The process was stopped while the call was under way."""
    suspicion = FailureDetector(TIMING)
    suspicion.answered(A, 1.0, 0.2)
    suspicion.answered(A, 30.0, 20.0)
    assert suspicion.srtt(A) == 0.2
    suspicion.answered(A, 31.0, TIMING.timeout_cap_s)
    assert suspicion.srtt(A) == pytest.approx(0.2 + (TIMING.timeout_cap_s - 0.2) / 8)


def test_the_timeout_is_srtt_and_four_deviations_within_floor_and_cap() -> None:
    suspicion = FailureDetector(TIMING)
    suspicion.answered(A, 0, 0.2)
    assert suspicion.timeout(A) == pytest.approx(0.2 + 4 * 0.1), "RFC 6298: the first deviation is half the first time"
    suspicion.answered(A, 1, 0.4)
    srtt, rttvar = 0.2 + 0.2 / 8, 0.1 + (0.2 - 0.1) / 4
    assert suspicion.srtt(A) == pytest.approx(srtt)
    assert suspicion.timeout(A) == pytest.approx(srtt + 4 * rttvar)
    for t in range(100):
        suspicion.answered(A, t, 0.001)
    assert suspicion.timeout(A) == 0.1
    for t in range(100):
        suspicion.answered(A, t, 0.5 + t % 2)
    assert suspicion.timeout(A) == 2.0


def test_a_patient_answer_says_nothing_about_the_round_trip() -> None:
    suspicion = FailureDetector(TIMING)
    suspicion.answered(A, 0, None)
    assert suspicion.srtt(A) is None
    assert suspicion.timeout(A) == 0.5


def test_the_timeout_doubles_with_each_miss_up_to_a_strangers() -> None:
    suspicion = FailureDetector(TIMING)
    suspicion.answered(A, 0, 0.001)
    timeouts = [suspicion.timeout(A)]
    for t in (1, 2, 3, 4):
        miss(suspicion, t)
        timeouts.append(suspicion.timeout(A))
    assert timeouts == [0.1, 0.2, 0.4, 0.5, 0.5]
    suspicion.heard_from(A, 5)
    assert suspicion.timeout(A) == 0.5, "it lives, but answers may take longer than we thought"
    suspicion.answered(A, 6, 0.001)
    assert suspicion.timeout(A) == 0.1


@pytest.mark.parametrize("preset", ["local", "lan", "wan"])
def test_death_takes_no_longer_than_a_strangers_timeouts(preset: str) -> None:
    timing = PRESETS[preset]
    suspicion = FailureDetector(timing)
    suspicion.answered(A, 0, 0.001)
    spent = 0.0
    while not suspicion.is_dead(A):
        spent += suspicion.timeout(A)
        miss(suspicion, spent)
    assert spent <= timing.dead_misses * timing.timeout_stranger_s


def test_the_oldest_is_forgotten_beyond_the_maximum() -> None:
    suspicion = FailureDetector(TIMING, peers_max=3)
    for number in range(3):
        suspicion.answered(f"n{number}:1", number, 0.01)
    suspicion.heard_from("n0:1", 10)
    suspicion.heard_from("n9:1", 11)
    assert [peer.address for peer in suspicion.peers(12)] == ["n0:1", "n2:1", "n9:1"]
    assert suspicion.srtt("n1:1") is None
    assert suspicion.check() == []


def test_peers_as_status_shows_them() -> None:
    suspicion = FailureDetector(TIMING)
    suspicion.answered("b:1", 1, 0.25)
    miss(suspicion, 2)
    first, second = suspicion.peers(3.5)
    assert (first.address, first.state, first.rtt_ms, first.since_ms) == (A, "suspect", None, 1500)
    assert (second.address, second.state, second.rtt_ms, second.since_ms) == ("b:1", "alive", 250.0, 2500)


ACTIONS = ["answered", "missed", "refused", "left", "paused", "heard", "wait"]


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from(["a:1", "b:1", "c:1"])), max_size=60))
def test_every_change_is_told_exactly_once(steps: list[tuple[str, str]]) -> None:
    suspicion = FailureDetector(TIMING, peers_max=2)
    now = 0.0
    for action, address in steps:
        now += 40.0 if action == "wait" else 0.1
        before = suspicion.state(address)
        if action == "answered":
            change = suspicion.answered(address, now, 0.01)
        elif action in ("missed", "refused"):
            change = suspicion.missed(address, now, action == "refused", "no answer")
        elif action == "left":
            change = suspicion.left(address, now)
        elif action == "paused":
            change = suspicion.paused(address, now)
        else:
            change = suspicion.heard_from(address, now)
        assert suspicion.check() == []
        assert TIMING.timeout_floor_s <= suspicion.timeout(address) <= TIMING.timeout_cap_s
        if change is not None:
            assert (change.address, change.state) == (address, suspicion.state(address))
        elif before != suspicion.state(address):
            assert (before, suspicion.state(address)) in {("dead", "suspect"), ("left", "alive")}, "only time did it"
