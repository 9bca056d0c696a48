"""The observer of a swarm: counts what happens, and checks the invariants after every change of a pointer.

Beyond the invariants of `chord.invariants` two statements about steps are checked. The set of
principals shrinks only by a failure, and then only by the one that failed: no step of the protocol
makes anybody forget a member. And once nobody comes or goes, the rank error never grows.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import trio

from chord import events, invariants
from chord.events import Event
from chord.ids import Arc, Point
from chord.invariants import Snapshot
from chord.messages import Contact
from chord.ring import RingState
from chord.testing.rings import MemoryRing

# No steps of the protocol: consequences, and the weather.
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
# Steps that change no pointer; whatever held before holds after them.
POINTLESS = (events.StepAborted, events.StepFailed, events.SplitFound, events.ArcGained, events.ArcLost)
POINTLESS += (events.TransferEnded,)
DETAILS = ("how", "outcome", "step", "reason", "session")
RECENT = 12


class Violated(AssertionError):
    """Something that must never be was; the message says what, when, after what, and how to see it again."""


def name_of(event: Event) -> str:
    """Return an event's type with the detail that tells its kinds apart: "ArcGained taken_over"."""
    name = type(event).__name__
    if isinstance(event, events.PeerChanged):
        return f"{name} {event.state}"
    if isinstance(event, events.ConnectionClosed | events.ConnectionRefused):
        return name  # their reasons are sentences
    for detail in DETAILS:
        if detail in event.__struct_fields__:
            return f"{name} {getattr(event, detail)}"
    return name


class Watch:
    """Observes every node of one ring.

    Attributes:
        counts: how often each kind of event happened.
        steps: how many of them were steps of the protocol.
        broken: the first thing that went wrong.
        excused: ids that were down for a moment: that the others notice it late is no fault of a step.
        is_exclusive: no two may own one arc, not even for a moment. True only while nobody dies.
        on_event: called with every event, after the checks.
        on_broken: called when the first thing goes wrong.
    """

    def __init__(self, label: str, successors: int) -> None:
        self.label = label
        self._r = successors
        self.counts: Counter[str] = Counter()
        self.steps = 0
        self.broken: Violated | None = None
        self.excused: set[int] = set()
        self.is_exclusive = False
        self.on_event: Callable[[Event], None] = lambda event: None
        self.on_broken: Callable[[], None] = lambda: None
        self._ring: MemoryRing | None = None
        self._recent: deque[str] = deque(maxlen=RECENT)
        self._principals: set[int] = set()
        self._last: Snapshot | None = None
        self._rank_error: int | None = None

    # -- observing ------------------------------------------------------------------------------

    @contextmanager
    def over(self, ring: MemoryRing) -> Iterator[None]:
        """Check a ring for the length of the block, lists that are copied without an event included."""
        original = RingState.adopt_list
        watch = self

        def adopt_list(state: RingState, head: Contact, its_successors: Iterable[Contact]) -> list[Event]:
            before = state.successors
            happened = original(state, head, its_successors)
            if state.successors != before:
                watch.counts["ListCopied"] += 1
                watch._recent.append(f"{trio.current_time():.4f} {state.me.address} copied the list of {head.address}")
                watch.check()
            return happened

        RingState.adopt_list = adopt_list  # type: ignore[method-assign]
        self._ring = ring
        try:
            yield
        finally:
            self._ring = None
            RingState.adopt_list = original  # type: ignore[method-assign]

    def __call__(self, event: Event) -> None:
        """Observe."""
        self.counts[name_of(event)] += 1
        if self._ring is None:
            return
        if not isinstance(event, QUIET):
            self.steps += 1
            self._recent.append(f"{trio.current_time():.4f} {event}")
            if isinstance(event, events.ArcGained | events.ArcLost) and self.is_exclusive:
                self._check_owners()
            if not isinstance(event, POINTLESS):
                self.check()
        elif isinstance(event, events.NodeStateChanged):
            self.check()
        self.on_event(event)

    def calm_down(self) -> None:
        """From now on nobody comes or goes and the dead are forgotten: the rank error may only shrink."""
        assert self._ring is not None
        self._rank_error = invariants.rank_error(self._ring.snapshot())

    def start_over(self) -> None:
        """Pointers were set by hand: what holds from now on is measured from here."""
        assert self._ring is not None
        self._principals = invariants.principals(self._ring.snapshot())

    def complain(self, text: str) -> None:
        """Record what went wrong; only the first counts."""
        if self.broken is None:
            recent = "\n  ".join(self._recent)
            self.broken = Violated(f"{self.label} at {trio.current_time():.4f} s: {text}\nafter\n  {recent}")
            self.on_broken()

    def raise_if_broken(self) -> None:
        """Raise the first thing that went wrong, if anything did."""
        if self.broken is not None:
            raise self.broken

    # -- checks ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Check the ring as it is now."""
        ring = self._ring
        if ring is None or self.broken is not None:
            return
        snapshot = ring.snapshot()
        if snapshot == self._last:
            return
        self._last = snapshot
        wrong = invariants.violations(snapshot, self._r)
        if wrong:
            self.complain("; ".join(f"{v.invariant}: {v.text}" for v in wrong[:4]))
        self._check_principals(snapshot)
        if self._rank_error is not None:
            error = invariants.rank_error(snapshot)
            if error > self._rank_error:
                self.complain(f"Progress: the rank error grew from {self._rank_error} to {error} in a calm ring")
            self._rank_error = error

    def _check_principals(self, snapshot: Snapshot) -> None:
        now = invariants.principals(snapshot)
        lost = [p for p in self._principals - now if p in snapshot and p not in self.excused]
        if lost:
            names = ", ".join(snapshot[p].address for p in sorted(lost))
            self.complain(f"PrincipalsPersist: {names} is alive and somebody's list skips it now")
        self._principals = now

    def _check_owners(self) -> None:
        assert self._ring is not None
        owned: dict[Point, list[Arc]] = {}
        for node in self._ring.nodes:  # who is only joining may own already
            for vnode in node.host.vnodes.values():
                arc, giving = vnode.ownership.arc, vnode.ownership.giving
                if arc is not None and giving is not None:
                    arc = None if giving.arc.end == arc.end else Arc(giving.arc.end, arc.end)
                owned[vnode.id] = [] if arc is None else [arc]
        circle = next(iter(self._ring.vnodes().values())).host.circle
        twice = [v for v in invariants.ownership(owned, circle) if v.nodes]
        if twice:
            self.complain(f"OwnedOnce: {twice[0].text}")
