"""The failure detector: timeouts and states from answered and missed calls."""

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


def miss(detector: FailureDetector, now: float, refused: bool = False) -> PeerChanged | None:
    return detector.missed(A, now, refused, "no answer")


def test_unknown_peer_is_alive_with_the_timeout_of_strangers() -> None:
    detector = FailureDetector(TIMING)
    assert detector.state(A) == "alive"
    assert not detector.is_dead(A)
    assert detector.timeout(A) == 0.5
    assert detector.srtt(A) is None
    assert detector.peers(0.0) == []


def test_one_miss_makes_suspect_and_three_misses_dead() -> None:
    detector = FailureDetector(TIMING)
    assert states(*(miss(detector, t) for t in (1, 2, 3, 4))) == ["suspect", None, "dead", None]
    assert detector.is_dead(A)
    assert detector.since(A) == 3


def test_answer_resets_the_count_of_misses() -> None:
    detector = FailureDetector(TIMING)
    miss(detector, 1)
    miss(detector, 2)
    assert states(detector.answered(A, 3, 0.01)) == ["alive"]
    assert states(miss(detector, 4), miss(detector, 5)) == ["suspect", None]
    assert not detector.is_dead(A)


def test_two_refused_connections_in_a_row_make_dead() -> None:
    detector = FailureDetector(TIMING)
    assert states(miss(detector, 1, True), miss(detector, 2, True)) == ["suspect", "dead"]


def test_refusals_around_a_timeout_are_not_in_a_row() -> None:
    detector = FailureDetector(Timing(dead_misses=5))
    assert states(*(miss(detector, t, t % 2 == 1) for t in (1, 2, 3))) == ["suspect", None, None]


def test_dead_peer_that_calls_is_alive() -> None:
    detector = FailureDetector(TIMING)
    for t in (1, 2, 3):
        miss(detector, t)
    assert detector.heard_from(A, 4) == PeerChanged(A, "alive", "heard from")
    assert detector.heard_from(A, 5) is None
    assert detector.since(A) == 4


def test_peer_that_left_is_alive_again_only_when_it_calls() -> None:
    detector = FailureDetector(TIMING)
    assert states(detector.left(A, 1), detector.left(A, 1)) == ["left", None]
    assert detector.is_dead(A)
    assert detector.answered(A, 1.5, 0.01) is None
    assert miss(detector, 1.6) is None
    assert detector.state(A) == "left"
    assert states(detector.heard_from(A, 2)) == ["alive"]


def test_peer_that_left_is_forgotten_after_a_while() -> None:
    detector = FailureDetector(TIMING)
    detector.left(A, 1)
    detector.heard_from("b:1", 100)
    assert detector.state(A) == "alive"
    assert not detector.is_dead(A)
    assert states(miss(detector, 101)) == ["suspect"]


def test_peer_dead_for_long_is_suspect_and_dies_of_one_miss() -> None:
    detector = FailureDetector(TIMING)
    for t in (1, 2, 3):
        miss(detector, t)
    detector.heard_from("b:1", 62)
    assert detector.is_dead(A)
    detector.heard_from("b:1", 63)
    assert detector.state(A) == "suspect", "after 60 s a lookup may probe the peer again"
    assert states(miss(detector, 64)) == ["dead"]
    detector.heard_from("b:1", 200)
    assert states(miss(detector, 201, refused=True)) == ["dead"]


def test_paused_peer_does_not_die_before_down_out_s() -> None:
    detector = FailureDetector(TIMING)
    assert states(detector.paused(A, 1)) == ["paused"]
    assert [miss(detector, t, True) for t in range(2, 20)] == [None] * 18
    assert detector.state(A) == "paused"
    assert not detector.is_dead(A)
    assert states(miss(detector, 1 + TIMING.down_out_s)) == ["dead"]


def test_paused_peer_that_answers_is_alive() -> None:
    detector = FailureDetector(TIMING)
    detector.paused(A, 1)
    miss(detector, 2)
    assert states(detector.answered(A, 3, None)) == ["alive"]
    assert states(miss(detector, 4)) == ["suspect"]


def test_round_trip_beyond_the_largest_timeout_is_no_sample() -> None:
    """Such a round trip means that the process was suspended during the call."""
    detector = FailureDetector(TIMING)
    detector.answered(A, 1.0, 0.2)
    detector.answered(A, 30.0, 20.0)
    assert detector.srtt(A) == 0.2
    detector.answered(A, 31.0, TIMING.timeout_cap_s)
    assert detector.srtt(A) == pytest.approx(0.2 + (TIMING.timeout_cap_s - 0.2) / 8)


def test_timeout_is_srtt_plus_four_deviations_within_bounds() -> None:
    detector = FailureDetector(TIMING)
    detector.answered(A, 0, 0.2)
    assert detector.timeout(A) == pytest.approx(0.2 + 4 * 0.1), "the first deviation, by RFC 6298"
    detector.answered(A, 1, 0.4)
    srtt, rttvar = 0.2 + 0.2 / 8, 0.1 + (0.2 - 0.1) / 4
    assert detector.srtt(A) == pytest.approx(srtt)
    assert detector.timeout(A) == pytest.approx(srtt + 4 * rttvar)
    for t in range(100):
        detector.answered(A, t, 0.001)
    assert detector.timeout(A) == 0.1
    for t in range(100):
        detector.answered(A, t, 0.5 + t % 2)
    assert detector.timeout(A) == 2.0


def test_answer_without_a_round_trip_time_changes_no_timeout() -> None:
    detector = FailureDetector(TIMING)
    detector.answered(A, 0, None)
    assert detector.srtt(A) is None
    assert detector.timeout(A) == 0.5


def test_timeout_doubles_with_each_miss_up_to_a_limit() -> None:
    detector = FailureDetector(TIMING)
    detector.answered(A, 0, 0.001)
    timeouts = [detector.timeout(A)]
    for t in (1, 2, 3, 4):
        miss(detector, t)
        timeouts.append(detector.timeout(A))
    assert timeouts == [0.1, 0.2, 0.4, 0.5, 0.5]
    detector.heard_from(A, 5)
    assert detector.timeout(A) == 0.5, "the peer is alive, but its answers may take longer"
    detector.answered(A, 6, 0.001)
    assert detector.timeout(A) == 0.1


@pytest.mark.parametrize("preset", ["local", "lan", "wan"])
def test_detection_of_a_death_takes_at_most_three_timeouts(preset: str) -> None:
    timing = PRESETS[preset]
    detector = FailureDetector(timing)
    detector.answered(A, 0, 0.001)
    spent = 0.0
    while not detector.is_dead(A):
        spent += detector.timeout(A)
        miss(detector, spent)
    assert spent <= timing.dead_misses * timing.timeout_stranger_s


def test_detector_beyond_peers_max_forgets_the_oldest() -> None:
    detector = FailureDetector(TIMING, peers_max=3)
    for number in range(3):
        detector.answered(f"n{number}:1", number, 0.01)
    detector.heard_from("n0:1", 10)
    detector.heard_from("n9:1", 11)
    assert [peer.address for peer in detector.peers(12)] == ["n0:1", "n2:1", "n9:1"]
    assert detector.srtt("n1:1") is None
    assert detector.check() == []


def test_peers_lists_states_and_times_for_status() -> None:
    detector = FailureDetector(TIMING)
    detector.answered("b:1", 1, 0.25)
    miss(detector, 2)
    first, second = detector.peers(3.5)
    assert (first.address, first.state, first.rtt_ms, first.since_ms) == (A, "suspect", None, 1500)
    assert (second.address, second.state, second.rtt_ms, second.since_ms) == ("b:1", "alive", 250.0, 2500)


ACTIONS = ["answered", "missed", "refused", "left", "paused", "heard", "wait"]


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from(["a:1", "b:1", "c:1"])), max_size=60))
def test_detector_reports_every_change_once(steps: list[tuple[str, str]]) -> None:
    detector = FailureDetector(TIMING, peers_max=2)
    now = 0.0
    for action, address in steps:
        now += 40.0 if action == "wait" else 0.1
        before = detector.state(address)
        if action == "answered":
            change = detector.answered(address, now, 0.01)
        elif action in ("missed", "refused"):
            change = detector.missed(address, now, action == "refused", "no answer")
        elif action == "left":
            change = detector.left(address, now)
        elif action == "paused":
            change = detector.paused(address, now)
        else:
            change = detector.heard_from(address, now)
        assert detector.check() == []
        assert TIMING.timeout_floor_s <= detector.timeout(address) <= TIMING.timeout_cap_s
        if change is not None:
            assert (change.address, change.state) == (address, detector.state(address))
        elif before != detector.state(address):
            assert (before, detector.state(address)) in {("dead", "suspect"), ("left", "alive")}, "changed by time"
