"""The schedule of the aggregator, and the state and history that replies give, without a network."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from msgspec.structs import replace

from chord.errors import Overloaded, PeerUnreachable
from chord.observe.model import RingChange, RingModel
from chord.web.aggregator import (
    CALLS_PER_S_MAX,
    EVENTS_WAIT_MS,
    NODES_IN_FULL_MAX,
    POLL_S,
    RETRY_S_MAX,
    VERDICT_S,
    Aggregator,
    Poll,
)
from chord.web.history import KEPT_S, RingHistory
from chord.wire.messages import DescribeReply, EventInfo, GetEventsReply, PeerInfo, Status
from tests.support.statuses import statuses

ANSWER_S = 0.001
IDS = (10, 42, 80, 120)


class World:
    """Nodes that answer at once, and the polls that they got.

    Attributes:
        statuses: the status of each node, by address. Other nodes do not answer.
        events: the number of events of each node.
    """

    def __init__(self, nodes: list[Status]) -> None:
        self.statuses = {node.address: node for node in nodes}
        self.events: Counter[str] = Counter()
        self.began_ms = 1
        self.polls: list[tuple[float, Poll]] = []
        self.aggregator = Aggregator([nodes[0].address], 0.0)
        self.now_s = 0.0

    def answer(self, poll: Poll) -> DescribeReply | GetEventsReply:
        status, now_ms = self.statuses[poll.address], int(1000 * self.now_s)
        if poll.kind == "describe":
            version = status.keys.to_bytes(8, "big")
            return DescribeReply(version, now_ms, None if poll.request.unless_version == version else status)  # type: ignore[union-attr]
        latest, after = self.events[poll.address], poll.request.after  # type: ignore[union-attr]
        fields = (("state", "ready"), ("address", poll.address))
        found = [
            EventInfo(seq, now_ms - 250, 0, poll.address, None, "NodeStateChanged", fields)
            for seq in range(after + 1, latest + 1)
        ]
        return GetEventsReply(tuple(found), latest, 0, self.began_ms, now_ms, now_ms)

    def run(self, until_s: float) -> None:
        """Answer every poll after a millisecond until a time."""
        while self.now_s < until_s:
            polls = self.aggregator.due(self.now_s)
            self.polls += [(self.now_s, poll) for poll in polls]
            self.now_s += ANSWER_S
            for poll in polls:
                if poll.address in self.statuses:
                    self.aggregator.on_reply(poll, self.answer(poll), self.now_s)
                else:
                    self.aggregator.on_error(poll, PeerUnreachable(poll.address), self.now_s)
            self.now_s = max(self.now_s, min(self.aggregator.next_due_s(), until_s))


def a_world(n: int) -> World:
    ids = tuple(range(1, n + 1))
    return World(statuses(ids, bits=16, addresses={p: f"n{p}:1" for p in ids}))


def test_small_ring_is_polled_once_per_second_and_node() -> None:
    world = a_world(NODES_IN_FULL_MAX)
    world.run(10.0)
    assert set(world.aggregator.model.nodes) == set(world.statuses)
    assert len(world.aggregator.model.vnodes) == NODES_IN_FULL_MAX
    times: dict[tuple[str, str], list[float]] = {}
    for at_s, poll in world.polls:
        times.setdefault((poll.address, poll.kind), []).append(at_s)
    for polled in times.values():
        assert all(later - earlier >= POLL_S - 1e-9 for earlier, later in pairwise(polled))
        assert len(polled) >= 9
    assert world.now_s - world.aggregator.oldest_s <= POLL_S + ANSWER_S


def test_large_ring_is_polled_in_turn_within_the_budget() -> None:
    world = a_world(NODES_IN_FULL_MAX + 86)
    world.run(20.0)
    assert len(world.aggregator.model.nodes) == NODES_IN_FULL_MAX + 86
    per_second = Counter(int(at_s) for at_s, _ in world.polls if at_s >= 2)
    assert max(per_second.values()) <= CALLS_PER_S_MAX + 1, "the borders of the seconds may cut a pause"
    assert min(per_second.values()) >= CALLS_PER_S_MAX - 2
    late = Counter(poll.address for at_s, poll in world.polls if at_s >= 8 and poll.kind == "describe")
    assert len(late) == NODES_IN_FULL_MAX + 86
    assert max(late.values()) - min(late.values()) <= 1
    assert all(poll.request.wait_ms == 0 for at_s, poll in world.polls if at_s >= 8 and poll.kind == "events")  # type: ignore[union-attr]


def test_node_that_does_not_answer_is_lost_and_found() -> None:
    world = World(statuses(IDS))
    world.run(2.0)
    lost = world.statuses.pop("127.0.0.1:9002")
    world.run(2.0 + POLL_S + ANSWER_S)
    assert world.aggregator.model.nodes[lost.address]["state"] == "unreachable"
    assert "80" in world.aggregator.model.vnodes, "its vnodes stay as they were last seen"
    world.run(60.0)
    polls = [(at_s, poll.kind) for at_s, poll in world.polls if poll.address == lost.address and at_s > 2]
    tried = [at_s for at_s, kind in polls if kind == "describe"]
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert [round(pause) for pause in pauses[:4]] == [1, 2, 4, 8]
    assert max(pauses) <= RETRY_S_MAX + ANSWER_S
    assert 1 < (world.aggregator.described_s(lost.address) or 0) < 3
    world.statuses[lost.address] = lost
    world.run(60.0 + RETRY_S_MAX + ANSWER_S)
    assert world.aggregator.model.nodes[lost.address]["state"] == lost.state, "the same status counts as news"


def test_lost_node_is_given_up_when_the_history_ends() -> None:
    world = World(statuses(IDS))
    world.run(2.0)
    lost = world.statuses.pop("127.0.0.1:9002")
    world.statuses = {
        address: replace(status, keys=99, vnodes=()) for address, status in world.statuses.items()
    }  # they no longer name it
    world.run(KEPT_S)
    assert lost.address in world.aggregator.model.nodes
    world.run(KEPT_S + 20.0)
    assert lost.address not in world.aggregator.model.nodes
    assert "80" not in world.aggregator.model.vnodes
    assert world.polls[-1][0] > KEPT_S + 18


def test_node_that_left_is_given_up_at_once() -> None:
    world = World(statuses(IDS))
    world.run(2.0)
    gone = world.statuses.pop("127.0.0.1:9003")
    world.aggregator.model.lose(gone.address, "left")
    world.run(2.0 + POLL_S + 2 * ANSWER_S)
    assert gone.address not in world.aggregator.model.nodes


def test_node_that_others_saw_leave_is_given_up() -> None:
    world = World(statuses(IDS))
    world.run(2.0)
    gone = world.statuses.pop("127.0.0.1:9003")
    verdict = PeerInfo(gone.address, "left", None, 5, "it said so")
    world.statuses = {a: replace(s, keys=99, peers=(verdict,)) for a, s in world.statuses.items()}
    world.run(20.0)
    assert gone.address not in world.aggregator.model.nodes


def test_entry_stays_while_no_node_answers() -> None:
    world = World(statuses(IDS))
    world.run(2.0)
    world.statuses = {}
    world.run(KEPT_S + 60.0)
    assert list(world.aggregator.model.nodes) == ["127.0.0.1:9000"]


def test_node_is_polled_at_the_address_that_it_advertises() -> None:
    aggregator, (status, *_) = Aggregator(["localhost:9000"], 0.0), statuses(IDS)
    describe, _ = aggregator.due(0.0)
    aggregator.on_reply(describe, DescribeReply(b"1", 0, status), 0.1)
    assert [poll.address for poll in aggregator.due(0.1)] == [status.address] * 2
    assert aggregator.due(9.0) == []


def test_result_of_a_poll_before_a_node_was_given_up_counts_no_more() -> None:
    world = World(statuses(IDS))
    world.run(2.0)
    poll = next(poll for _, poll in world.polls if poll.address == "127.0.0.1:9001" and poll.kind == "describe")
    reply = DescribeReply(b"x", 0, replace(world.statuses[poll.address], keys=12345))
    world.aggregator.on_reply(poll, reply, 2.0)
    world.aggregator.on_error(poll, PeerUnreachable(poll.address), 2.0)
    assert world.aggregator.model.nodes[poll.address]["keys"] != 12345
    assert world.aggregator.model.nodes[poll.address]["state"] != "unreachable"


def test_events_enter_the_history_with_their_age() -> None:
    world = World(statuses(IDS))
    world.run(1.5)
    world.events["127.0.0.1:9000"] = 3
    world.run(4.0)
    events = [one.line.content for one in world.aggregator.history.since(0) or [] if one.line.letter == "e"]
    assert [(event["seq"], event["age_ms"]) for event in events] == [(1, 250), (2, 250), (3, 250)]  # type: ignore[index]


def test_events_of_a_restarted_node_begin_again() -> None:
    world = World(statuses(IDS))
    world.events["127.0.0.1:9000"] = 2
    world.run(2.0)
    world.began_ms, world.events["127.0.0.1:9000"] = 2, 5
    world.run(4.0)
    events = [one.line.content for one in world.aggregator.history.since(0) or [] if one.line.letter == "e"]
    assert [event["seq"] for event in events] == [1, 2, 1, 2, 3, 4, 5]  # type: ignore[index]


def test_verdict_on_a_peer_brings_the_next_poll_of_events_soon() -> None:
    aggregator = Aggregator(["a:1"], 0.0)
    _, events = aggregator.due(0.0)
    fields = (("address", "b:1"), ("state", "suspect"), ("reason", "refused"))
    verdict = EventInfo(1, 0, 0, "a:1", None, "PeerChanged", fields)
    aggregator.on_reply(events, GetEventsReply((verdict,), 1, 0, 1, 0, 0), 0.05)
    assert aggregator.due(VERDICT_S - 0.01) == []
    (soon,) = aggregator.due(VERDICT_S)
    assert soon.kind == "events"
    aggregator.on_reply(soon, GetEventsReply((), 1, 0, 1, 0, 0), VERDICT_S + 0.05)
    assert aggregator.due(VERDICT_S + POLL_S - 0.01) == []


def test_end_of_the_events_of_a_node_makes_its_status_due() -> None:
    """A killed node ends its stream at once, and its next status would be due only after a while."""
    world = World(statuses(IDS))
    world.run(2.0)
    address, aggregator = "127.0.0.1:9001", world.aggregator
    polls = aggregator.due(4.0)
    for poll in polls:
        if poll.address != address:
            continue
        if poll.kind == "describe":
            aggregator.on_reply(poll, world.answer(poll), 4.0)
        else:
            aggregator.on_error(poll, PeerUnreachable(address), 4.1)
    assert [poll.kind for poll in aggregator.due(4.1) if poll.address == address] == ["describe"]


def test_node_with_too_many_watchers_gets_no_long_polls() -> None:
    aggregator = Aggregator(["a:1"], 0.0)
    describe, events = aggregator.due(0.0)
    assert events.request.wait_ms == EVENTS_WAIT_MS  # type: ignore[union-attr]
    assert aggregator.due(9.0) == [], "both polls are under way"
    aggregator.on_error(events, Overloaded("256 requests wait for events"), 0.1)
    (again,) = aggregator.due(POLL_S)
    assert (again.kind, again.request.wait_ms) == ("events", 0)  # type: ignore[union-attr]
    assert describe.kind == "describe"


# -- the history ----------------------------------------------------------------------------------


def a_history(seconds: int) -> tuple[RingModel, RingHistory, dict[int, dict[str, object]]]:
    """Return a history with one change per second, and the nodes after each."""
    model, states = RingModel(), {}
    history = RingHistory(model, 0.0)
    for now_s in range(1, seconds + 1):
        change = RingChange({f"n{now_s % 7}:1": {"keys": now_s}})
        model.apply(change)
        history.change(now_s, change)
        states[now_s] = dict(model.nodes)
    return model, history, states  # type: ignore[return-value]


def test_history_plays_every_moment_that_it_keeps() -> None:
    _, history, states = a_history(2000)
    for at_s in range(2000 - int(KEPT_S), 2001, 50):
        played = RingModel()
        for one in history.between(at_s, at_s):
            assert isinstance(one.line.content, RingChange)
            played.apply(one.line.content)
        assert played.nodes == states[at_s]
    (first, *_) = history.between(0, 2000)
    assert first.line.letter == "k"
    assert 2000 - KEPT_S - 120 < first.line.at_s <= 2000 - KEPT_S, "older lines are dropped"


def test_history_resumes_after_a_number_that_it_keeps() -> None:
    model, history, _ = a_history(2000)
    assert history.since(history.latest) == []
    assert history.since(history.latest + 1) is None
    assert history.since(5) is None
    resumed = history.since(history.latest - 20)
    assert resumed is not None
    assert {one.line.letter for one in resumed} == {"d"}
    assert resumed[-1].line.content == RingChange({"n5:1": model.nodes["n5:1"]})


def test_empty_change_is_no_line() -> None:
    history = RingHistory(RingModel(), 0.0)
    history.change(1.0, RingChange())
    assert history.latest == 1


def test_history_with_events_only_drops_old_lines() -> None:
    history = RingHistory(RingModel(), 0.0)
    for now_s in range(3000):
        history.add(now_s, "e", {"seq": now_s})
    assert 3000 - KEPT_S - 120 < history.first_s <= 3000 - KEPT_S
    assert len(history.between(0, 3000)) <= KEPT_S + 121
