"""The observer of a run: counts events, and checks the ring after pointer changes.

The invariants of `chord.verify.invariants` are checked, and three statements about steps. First, the set of principals
shrinks only by the failure of a principal. No step of the protocol makes a node forget a member. Second, no point has
two owners, unless a node died a moment ago. Third, once no node joins or leaves, the rank error never grows
(`chord.verify.invariants.rank_error`).

Situations beyond the proof are not held against the ring. While a partition or a stop longer than any timeout lasts,
and until the ring has healed, there may be two rings. Successor lists must still be in order (`go_outside`).
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from chord import events
from chord.events import Emitted, Event, Observer, ignore
from chord.ids import Arc, Point
from chord.testing.rings import TestRing
from chord.verify import invariants
from chord.verify.invariants import Member, Snapshot

# No steps of the protocol: consequences, and changes of nodes and connections.
QUIET = (
    events.FingerChanged,
    events.PeerChanged,
    events.NodeStateChanged,
    events.ConnectionOpened,
    events.ConnectionClosed,
    events.TransferStarted,
    events.RecordsReceived,
    events.RecordsDropped,
)
# Steps that change no pointer: a snapshot that was right before is right after.
POINTLESS = (
    events.StepDone,
    events.StepAborted,
    events.StepFailed,
    events.SplitFound,
    events.ArcGained,
    events.ArcLost,
    events.TransferEnded,
)
DETAILS = ("how", "outcome", "step", "reason")
RECENT = 12
QUOTED_S = 0.25
"""Longest time that an answer is in transit, in seconds, without loss and jitter.

Hiccups are included.
"""
EVERY_STEP_MAX = 64
"""Largest number of nodes at which every change is checked.

In a ring with n nodes more than that, one change in n is checked.
"""


class Violated(AssertionError):
    """An error that a checker of a run found, with its time and the last events."""


def name_of(event: Event) -> str:
    """Return an event's type with its kind, if it has one: "ArcGained taken_over"."""
    name = type(event).__name__
    if isinstance(event, events.PeerChanged):
        return f"{name} {event.state}"
    if isinstance(event, events.ConnectionClosed | events.ConnectionRefused):
        return name  # their reasons are sentences, not kinds
    for detail in DETAILS:
        if detail in event.__struct_fields__:
            return f"{name} {getattr(event, detail)}"
    return name


def _adopted(event: Event) -> int | None:
    """Return the id of the vnode that an event makes the head of a list, or None."""
    if isinstance(event, events.SuccessorAdopted):
        return event.new.id
    return event.successor.id if isinstance(event, events.RingJoined) else None


class Watch:
    """The observer of every node of one ring.

    Args:
        label: the start of each complaint.
        successors: r of the ring.
        mourning_s: seconds after a death in which an arc may have two owners.
        is_atomic: whether no answer takes twice as long as another. Only then is abort-if-observed exact (see
            `chord.stabilize`).
        on_event: callback for every event, after the checks.
        on_broken: callback for the first violation.
        on_late: callback for the adoption of a vnode that died after it answered; to the proof an answer takes no time.

    Attributes:
        counts: number of events by `name_of`, and of checks and actions by their names.
        steps: number of events that were protocol steps.
        checks: number of snapshots that were checked.
        broken: the first violation; None: there was none yet.
        excused: ids of vnodes that were down for a moment. If other nodes notice that late, no step is at fault.
    """

    def __init__(
        self,
        label: str,
        successors: int,
        *,
        mourning_s: float = math.inf,
        is_atomic: bool = True,
        on_event: Observer = ignore,
        on_broken: Callable[[], object] = lambda: None,
        on_late: Callable[[], object] = lambda: None,
    ) -> None:
        self.label = label
        self._r = successors
        self._mourning_s = mourning_s
        self._is_atomic = is_atomic
        self.counts: Counter[str] = Counter()
        self.steps = 0
        self.checks = 0
        self.broken: Violated | None = None
        self.excused: set[int] = set()
        self._on_event = on_event
        self._on_broken = on_broken
        self._on_late = on_late
        self._ring: TestRing | None = None
        self._recent: deque[tuple[float, Event]] = deque(maxlen=RECENT)
        self._principals: set[int] = set()
        self._gone: dict[int, tuple[Member, float]] = {}
        self._last: Snapshot = {}
        self._rank_error: int | None = None
        self._is_outside = False
        self._last_death_s = -math.inf
        self._skipped = 0

    # -- observing ------------------------------------------------------------------------------

    @contextmanager
    def over(self, ring: TestRing) -> Iterator[None]:
        """Check a ring after each event of its nodes, for the length of the block."""
        self._ring = ring
        try:
            yield
        finally:
            self._ring = None

    def __call__(self, emitted: Emitted) -> None:
        """Count an event; inside `over`, also check the ring, then call `on_event`."""
        event = emitted.event
        self.counts[name_of(event)] += 1
        if self._ring is None:
            return
        if not isinstance(event, QUIET):
            self.steps += 1
            self._recent.append((trio.current_time(), event))
            if isinstance(event, events.ArcGained) and event.how == "resumed":
                self.note_death()  # its absence ends only now
            if isinstance(event, events.ArcGained | events.ArcLost):
                self._check_owners()
            adopted = _adopted(event)
            if adopted in self._gone or (adopted in self._last and adopted not in self._ring.snapshot()):
                self._on_late()  # it died after its answer: a while ago, or since the last check
            if not isinstance(event, POINTLESS):
                self.check()
        elif isinstance(event, events.NodeStateChanged):
            self.check()
        self._on_event(emitted)

    # -- changes of mode ------------------------------------------------------------------------

    def note_death(self) -> None:
        """Record that a node crashed, or was unreachable for long enough to count as dead.

        For `mourning_s` seconds from now on, two owners of a point are no violation.
        """
        self._last_death_s = trio.current_time()

    def go_outside(self) -> None:
        """Record that events from now on are outside the assumptions of the proof.

        Until `come_back`, owners, principals and most invariants are not checked. Reasons are a partition, a long stop,
        a false alarm, or a theme other than *mixed*.
        """
        self._is_outside = True

    def come_back(self) -> None:
        """Record that the ring has healed: all statements hold again, measured from here."""
        self._is_outside = False
        self.excused.clear()
        self.note_death()
        self.start_over()

    def calm_down(self) -> None:
        """Record that no node joins or leaves any more: from now on a growing rank error is a violation."""
        assert self._ring is not None
        self._rank_error = invariants.rank_error(self._ring.snapshot())

    def start_over(self) -> None:
        """Take the ring as it is now as the baseline of all later checks.

        Call it after pointers were set by hand, or after the ring healed.
        """
        assert self._ring is not None
        self._last, self._gone = self._ring.snapshot(), {}
        self._principals = invariants.principals(self._last)

    def complain(self, text: str) -> None:
        """Record a violation, described by `text`, and call `on_broken`. Calls after the first one do nothing."""
        if self.broken is None:
            recent = "\n".join(f"  {at:10.4f}  {event}" for at, event in self._recent)
            self.broken = Violated(f"{self.label} at {trio.current_time():.4f} s: {text}\nafter\n{recent}")
            self._on_broken()

    def raise_if_broken(self) -> None:
        """Raise the first violation, if there was one.

        Raises:
            Violated: there was a violation; the message has its time and the last events.
        """
        if self.broken is not None:
            raise self.broken

    # -- checks ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Check the ring, if its pointers have changed since the last check.

        With more than 64 nodes, only some calls do so. Outside of `over`, and after the first violation, the call does
        nothing.
        """
        ring = self._ring
        if ring is None or self.broken is not None or self._is_left_out(len(ring)):
            return
        snapshot = ring.snapshot()
        if snapshot == self._last:
            return
        gone = {point: (self._last[point], trio.current_time()) for point in self._last if point not in snapshot}
        self._gone.update(gone)
        self._last = snapshot
        self.checks += 1
        self.counts["checked lists only" if self._is_outside else "checked invariants"] += 1
        if self._is_outside:
            wrong = invariants.no_duplicates(snapshot) + invariants.ordered_successor_list(snapshot)
        else:
            wrong = invariants.violations(snapshot, self._r)
        if wrong:
            leaving = self._leaving()  # other nodes no longer rely on the lists of leaving ones
            wrong = [v for v in wrong if not v.nodes or not leaving.issuperset(v.nodes)]
        if wrong:
            self.complain("; ".join(f"{v.invariant}: {v.text}" for v in wrong[:4]))
        if not self._is_outside:
            self._check_principals(snapshot)
        if self._rank_error is not None:
            error = invariants.rank_error(snapshot)
            if error > self._rank_error:
                self.complain(f"Progress: the rank error grew from {self._rank_error} to {error} in a calm ring")
            self._rank_error = error

    def check_state(self) -> None:
        """Check each node's own state: sizes in bounds, lists and tables consistent.

        Each error is a complaint.
        """
        assert self._ring is not None
        for node in self._ring.nodes:
            limits = node.config.limits
            wrong = node._host.peers.failure_detector.check()
            wrong += [line for v in node._host.vnodes.values() for line in v.ring.check()]
            remembered = len(tuple(node._host.peers.passive.contacts()))
            if remembered > limits.passive_max:
                wrong.append(f"{remembered} unreachable contacts are remembered, at most {limits.passive_max} may be")
            for line in wrong:
                self.complain(f"Bounds: {node.name}: {line}")

    def _is_left_out(self, members: int) -> bool:
        self._skipped += 1
        if members > EVERY_STEP_MAX and self._skipped < members - EVERY_STEP_MAX:
            return True
        self._skipped = 0
        return False

    def _check_principals(self, snapshot: Snapshot) -> None:
        self.counts["checked principals"] += self._is_atomic
        now = invariants.principals({**self._still_quoted(), **snapshot})
        may_go = self.excused | self._leaving()
        lost = [p for p in self._principals - now if p in snapshot and p not in may_go]
        if lost and self._is_atomic:
            names = ", ".join(snapshot[p].address for p in sorted(lost))
            self.complain(f"PrincipalsPersist: {names} is alive and a list skips it now")
        self._principals = now

    def _leaving(self) -> set[int]:
        assert self._ring is not None
        return {point for node in self._ring.nodes if node._host.is_leaving for point in node._host.vnodes}

    def _still_quoted(self) -> Snapshot:
        """Return the members that died so recently that their answers may still arrive."""
        since = trio.current_time() - QUOTED_S
        self._gone = {point: gone for point, gone in self._gone.items() if gone[1] >= since}
        return {point: member for point, (member, _) in self._gone.items()}

    def _check_owners(self) -> None:
        """Check that no point has two owners, unless a node died a moment ago."""
        if self._is_outside or trio.current_time() - self._last_death_s < self._mourning_s:
            return
        assert self._ring is not None
        self.counts["checked owners"] += 1
        owned: dict[Point, list[Arc]] = {}
        for node in self._ring.nodes:  # a joining node may own an arc already
            for vnode in node._host.vnodes.values():
                arc, giving = vnode.ownership.arc, vnode.ownership.giving
                if arc is not None and giving is not None:
                    arc = None if giving.arc.end == arc.end else Arc(giving.arc.end, arc.end)
                owned[vnode.id] = [] if arc is None else [arc]
        circle = self._ring[0]._host.circle
        twice = [v for v in invariants.ownership(owned, circle) if v.nodes]
        if twice:
            self.complain(f"OwnedOnce: {twice[0].text}")
