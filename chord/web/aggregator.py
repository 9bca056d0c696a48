"""The aggregator without I/O: which node to ask next, and the state and history of the replies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from math import inf
from typing import Final, Literal, NamedTuple, TypeAlias

from chord.errors import ChordError, Overloaded, PeerLost, PeerUnreachable
from chord.observe.model import PARTS, RingModel, RingShape, event_fields
from chord.views.dashboard import GONE
from chord.web.history import KEPT_S, RingHistory
from chord.web.validation import event_fault, status_fault
from chord.wire.messages import Describe, DescribeReply, GetEvents, GetEventsReply, Status

POLL_S: Final = 1.0
"""The least time between two polls of one kind at one node, in seconds."""

VERDICT_S: Final = 0.1
"""The same time after events with a new verdict on a peer, in seconds. A suspect peer is often dead soon."""

NODES_IN_FULL_MAX: Final = 64
"""The largest number of nodes that are all polled once per `POLL_S`. More nodes are polled in turn."""

CALLS_PER_S_MAX: Final = 100
"""The largest number of calls per second in a ring of more nodes."""

EVENTS_WAIT_MS: Final = 4000
"""The time that a node holds a long poll, in ms. It is shorter than the default time limit of a client."""

LOOKUPS_PER_S_MAX: Final = 10
"""The largest number of lookups of all nodes that enter the history per second."""

RETRY_S_MAX: Final = 8.0
"""The longest pause between two attempts at a node that does not answer, in seconds."""

MISSES_OF_A_STRANGER_MAX: Final = 3
"""The number of attempts at a node that never answered. A status that names it leads to further attempts."""

FAULTS_MAX: Final = 256
"""The number of faults in replies that enter the history only once."""

PollKind: TypeAlias = Literal["describe", "events"]


class Poll(NamedTuple):
    """A request of the aggregator to one node. Its result goes to `on_reply` or `on_error`.

    Attributes:
        address: the address of the node.
        request: `Describe` asks for its status, `GetEvents` for its new events.
        sent_s: the time when `due` returned it, in seconds on the clock of the caller.
        number: identifies the poll. A result counts only if its node has no poll of this kind with a higher number.
    """

    address: str
    request: Describe | GetEvents
    sent_s: float
    number: int

    @property
    def kind(self) -> PollKind:
        """The kind of the request: "describe" or "events". A node has at most one poll of each kind."""
        return "describe" if isinstance(self.request, Describe) else "events"


class _Polled:
    """The record of one node.

    Attributes:
        version: the version of the status in the model, or b"".
        after: the number of its latest event; `began_ms` names the process that counted it.
        described_s: the time of its last description; None if there was none.
        lost_s: the time since which it does not answer; None if it does.
        misses: the number of descriptions in a row without an answer.
        may_wait: whether it takes long polls.
        polls: the number of its poll of each kind, which waits or is under way.
    """

    def __init__(self) -> None:
        self.version = b""
        self.after = 0
        self.began_ms = 0
        self.described_s: float | None = None
        self.lost_s: float | None = None
        self.misses = 0
        self.may_wait = True
        self.polls: dict[PollKind, int] = {}


class Aggregator:
    """The schedule of the polls of a ring, and the state and history that the replies give.

    It has no clock and sends nothing: the caller passes the time to each method, and sends the polls.

    Args:
        entries: the addresses of the first nodes. Their replies name all others.
        now_s: the time, in seconds on the clock of the caller.

    Attributes:
        model: the latest state of the ring.
        shape: the constants of the ring; None until a node has answered.
        history: the changes and events of the last 15 minutes.
        dropped: the number of events that nodes had dropped from their logs before a poll could fetch them.
    """

    def __init__(self, entries: Iterable[str], now_s: float) -> None:
        self.model = RingModel()
        self.shape: RingShape | None = None
        self.history = RingHistory(self.model, now_s)
        self.dropped = 0
        self._entries = set(entries)
        self._nodes: dict[str, _Polled] = {}
        self._queue: list[tuple[float, int, str, PollKind]] = []
        self._pushed = 0
        self._faults: deque[tuple[str, str]] = deque(maxlen=FAULTS_MAX)
        self._free_s = self._lookup_due_s = now_s
        for address in sorted(self._entries):
            self._add(address, now_s)

    # -- the schedule -----------------------------------------------------------------------------

    def restart(self, now_s: float) -> None:
        """Make the polls of all nodes due now, because the caller has a new client.

        Results of earlier polls are ignored.
        """
        for address in self._nodes:
            self._push(now_s, address, "describe")
            self._push(now_s, address, "events")

    def due(self, now_s: float) -> list[Poll]:
        """Return the polls to send now. The caller must pass the result of each to `on_reply` or `on_error`."""
        polls = []
        while self.next_due_s() <= now_s:
            _, number, address, kind = heappop(self._queue)
            node = self._nodes.get(address)
            if node is None or node.polls[kind] != number:
                continue  # the node was given up meanwhile
            self._free_s = max(self._free_s, now_s) + 1 / CALLS_PER_S_MAX
            if kind == "describe":
                request: Describe | GetEvents = Describe(PARTS, node.version)
            else:
                request = GetEvents(node.after, EVENTS_WAIT_MS if node.may_wait and not self._is_large else 0)
            polls.append(Poll(address, request, now_s, number))
        return polls

    def next_due_s(self) -> float:
        """Return the time at which `due` has polls next, in seconds; infinity if it waits for results of all."""
        first_s = self._queue[0][0] if self._queue else inf
        return max(first_s, self._free_s) if self._is_large else first_s

    def described_s(self, address: str) -> float | None:
        """Return the time of a node's last status reply, in seconds; None if it never sent one."""
        node = self._nodes.get(address)
        return None if node is None else node.described_s

    def given_up(self) -> set[str]:
        """Return the addresses of the nodes that a living node takes for dead."""
        living = (fields for fields in self.model.nodes.values() if fields.get("state") not in GONE)
        return {a for fields in living for a, verdict in fields["suspects"].items() if verdict["state"] == "dead"}

    @property
    def oldest_s(self) -> float:
        """The oldest time of a last status reply among the nodes that answer, in seconds; infinity if none answers."""
        nodes = (node for node in self._nodes.values() if node.lost_s is None)
        return min((node.described_s for node in nodes if node.described_s is not None), default=inf)

    @property
    def is_lost(self) -> bool:
        """Whether none of the known nodes answers."""
        return all(node.lost_s is not None for node in self._nodes.values())

    @property
    def _is_large(self) -> bool:
        return len(self._nodes) > NODES_IN_FULL_MAX

    # -- results ----------------------------------------------------------------------------------

    def on_reply(self, poll: Poll, reply: DescribeReply | GetEventsReply, now_s: float) -> None:
        """Put a reply into the state and the history, and schedule the next poll of its kind.

        A status that `status_fault` refuses counts as no answer. A reply to a poll that no longer counts is ignored.
        """
        node = self._asked(poll)
        if node is None:
            return
        if isinstance(reply, DescribeReply):
            fault = status_fault(reply.status, self._bits_beside(node)) if reply.status is not None else ""
            if fault:
                self.on_fault(poll.address, fault, now_s)
                self._on_miss(node, poll, now_s)
                return
            if reply.status is not None and reply.status.address != poll.address:
                self._rename(poll.address, reply.status.address, now_s)
                return
            self._on_status(node, reply, now_s)
            self._push(max(now_s, poll.sent_s + POLL_S), poll.address, "describe")
        else:
            is_complete = self._on_events(node, poll.address, reply, now_s)
            pause_s = VERDICT_S if any(event.kind == "PeerChanged" for event in reply.events) else POLL_S
            self._push(max(now_s, poll.sent_s + pause_s) if is_complete else now_s, poll.address, "events")

    def on_error(self, poll: Poll, error: ChordError, now_s: float) -> None:
        """Note that a poll ended in an error, and schedule the next attempt.

        A node without an answer to `Describe` becomes unreachable in the state. If its connection ends, as after a
        kill, that request is due at once.
        """
        node = self._asked(poll)
        if node is None:
            return
        if poll.kind == "events":
            node.may_wait = node.may_wait and not isinstance(error, Overloaded)
            pause_s = POLL_S if node.lost_s is None else RETRY_S_MAX
            self._push(max(now_s, poll.sent_s + pause_s), poll.address, "events")
            if node.lost_s is None and isinstance(error, PeerLost | PeerUnreachable):
                self._push(now_s, poll.address, "describe")
        else:
            self._on_miss(node, poll, now_s)

    def on_fault(self, address: str, why: str, now_s: float) -> None:
        """Note in the history that a node sent an invalid reply, as an event of the kind `ReplyRefused`.

        Args:
            address: the node.
            why: the fault of the reply, in words. The same fault of a node is noted only once.
            now_s: the time, in seconds.
        """
        if (address, why) not in self._faults:
            self._faults.append((address, why))
            fields = {"seq": 0, "node": address, "kind": "ReplyRefused", "fields": {"why": why}, "age_ms": 0}
            self.history.add(now_s, "e", fields)

    def _bits_beside(self, node: _Polled) -> int | None:
        """Return the width of the circle, as other nodes than one report it."""
        others = (one for one in self._nodes.values() if one is not node and one.lost_s is None)
        return self.shape.bits if self.shape and any(one.described_s is not None for one in others) else None

    def _on_miss(self, node: _Polled, poll: Poll, now_s: float) -> None:
        node.misses += 1
        node.version = b""  # its next status counts as news, also if nothing changed
        if node.lost_s is None:
            node.lost_s = now_s
        if self._is_over(poll.address, node, now_s):
            del self._nodes[poll.address]
            self.history.change(now_s, self.model.remove(poll.address))
            return
        self.history.change(now_s, self.model.lose(poll.address, "unreachable"))
        pause_s = min(RETRY_S_MAX, POLL_S * 2 ** (node.misses - 1))
        self._push(max(now_s, poll.sent_s + pause_s), poll.address, "describe")

    def _is_over(self, address: str, node: _Polled, now_s: float) -> bool:
        """Return whether to give up a node that does not answer.

        It has left, or never answered, or has been lost for the length of the history. An entry stays while no node
        answers.
        """
        if address in self._entries and self.is_lost:
            return False
        if node.described_s is None and node.misses >= MISSES_OF_A_STRANGER_MAX:
            return True
        has_left = self.model.nodes.get(address, {}).get("state") == "left" or any(
            other["suspects"].get(address, {}).get("state") == "left" for other in self.model.nodes.values()
        )
        return has_left or (node.lost_s is not None and now_s - node.lost_s >= KEPT_S)

    def _on_status(self, node: _Polled, reply: DescribeReply, now_s: float) -> None:
        node.described_s, node.lost_s, node.misses, node.version = now_s, None, 0, reply.version
        if reply.status is not None:
            self.shape = RingShape(reply.status.bits, reply.status.successors, reply.status.replicas)
            self.history.change(now_s, self.model.describe(reply.status))
            for address in _named_in(reply.status):
                self._add(address, now_s)

    def _on_events(self, node: _Polled, address: str, reply: GetEventsReply, now_s: float) -> bool:
        """Take over the valid events, and return whether the reply is about the process that the request meant."""
        is_restarted = node.after > 0 and reply.began_ms != node.began_ms
        node.began_ms = reply.began_ms
        if is_restarted:  # its numbers began again, so it may have left out the first ones
            node.after = 0
            return False
        self.dropped += reply.dropped
        for event in reply.events:
            node.after = event.seq
            fault = event_fault(event, self.shape.bits if self.shape else None)
            if fault:
                self.on_fault(address, fault, now_s)
                continue
            if event.kind == "LookupDone":
                if now_s < self._lookup_due_s:
                    continue
                self._lookup_due_s = now_s + 1 / LOOKUPS_PER_S_MAX
            age_ms = max(0, reply.mono_ms - event.mono_ms)
            self.history.add(now_s, "e", {**event_fields(event), "age_ms": age_ms})
            self.history.change(now_s, self.model.on_event(event))
        return True

    # -- inside -----------------------------------------------------------------------------------

    def _asked(self, poll: Poll) -> _Polled | None:
        """Return the node of a poll; None if it was given up meanwhile."""
        node = self._nodes.get(poll.address)
        return node if node is not None and node.polls[poll.kind] == poll.number else None

    def _rename(self, entry: str, address: str, now_s: float) -> None:
        """Poll a node at the address that it advertises, and not at the one by which the user knows it."""
        del self._nodes[entry]
        self._entries.add(address)
        self._add(address, now_s)

    def _add(self, address: str, now_s: float) -> None:
        if address not in self._nodes:
            self._nodes[address] = _Polled()
            self._push(now_s, address, "describe")
            self._push(now_s, address, "events")

    def _push(self, due_s: float, address: str, kind: PollKind) -> None:
        self._pushed += 1
        self._nodes[address].polls[kind] = self._pushed
        heappush(self._queue, (due_s, self._pushed, address, kind))


def _named_in(status: Status) -> Iterable[str]:
    """Yield the addresses of the nodes that a node takes for living."""
    ended = {peer.address for peer in status.peers if peer.state in ("dead", "left")}
    yield from (peer.address for peer in status.peers if peer.address not in ended)
    yield from (contact.address for contact in status.known if contact.address not in ended)
    for vnode in status.vnodes:
        yield from (contact.address for contact in vnode.successors if contact.address not in ended)
