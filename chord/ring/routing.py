"""Routing: the way to a key's predecessor, hop by hop, and its cost.

Each hop goes strictly clockwise and never past the key. A hop names the vnodes that it would ask next. From a dead end
the lookup steps back.

Source: Stoica et al. 2001, section 4.3-4.4 and Fig. 4; iterative and recursive styles, ToN 2003, section 6.
"""

from __future__ import annotations

import math
from typing import TypeVar

import msgspec
import trio

from chord.errors import NO_REPLY, ChordError, IndefiniteError, LookupFailed
from chord.ids import Point, between
from chord.ring.context import NodeContext
from chord.wire.messages import (
    Candidate,
    Contact,
    FindNext,
    FindNextReply,
    Forward,
    ForwardReply,
    HopTrace,
    Mode,
    Reply,
    Route,
    Via,
)

R = TypeVar("R", bound=Reply)

TRIED_MAX = 256
NOT_ASKED = "not asked"
"""How a hop's outcome begins if its vnode was not asked: it was known to be dead."""


class Path:
    """A lookup in progress: the vnodes asked, the cost, and the current position.

    Attributes:
        key: the point looked up.
        start: the vnode where the lookup begins.
        mode: iterative (this node asks each hop), recursive (each hop asks the next) or successor (O(N)).
        route: classic, fast or full: which nodes are tried first, and when the lookup stops (`Lookups.find`).
        began: when the lookup began, in seconds on the event loop's clock.
        hops: the start, then every vnode asked in this attempt; dead ends included.
        earlier: the hops of attempts before this one.
        candidates: once routed, the key's successor and the vnodes after it, best first. Before that, a probable owner
            or nothing.
        predecessor: once routed, the last live hop; before, the start.
        tried: ids of vnodes that were dead, replied with an error, or knew no next hop.
        timeouts: how many hops did not reply, in all attempts and in the delivery.
        calls: calls to other nodes. A node's calls to itself are free.
        restarts: how often the lookup started again.
        doubt: why it is unknown whether a write took effect, or None. While it is set, no refusal can prove that the
            write did not.
        refusal: the last error reply that a retry may change; None so far.
        spacings: mean gaps between vnodes in the asked lists, as shares of the circle. The inverse of their mean
            estimates the number of vnodes.
        cached_owner: a cached owner before the key, or None. It is asked once, instead of a candidate that is farther
            from the key.
    """

    def __init__(self, key: Point, start: Contact, mode: Mode, route: Route, now: float) -> None:
        self.key = key
        self.start = start
        self.mode: Mode = mode
        self.route: Route = route
        self.began = now
        self.hops: list[HopTrace] = []
        self.earlier: tuple[HopTrace, ...] = ()
        self.candidates: tuple[Candidate, ...] = ()
        self.predecessor = start
        self.tried: dict[Point, None] = {}
        self.timeouts = 0
        self.calls = 0
        self.restarts = 0
        self.doubt: IndefiniteError | None = None
        self.refusal: ChordError | None = None
        self.spacings: list[float] = []
        self.cached_owner: Candidate | None = None

    @property
    def ms(self) -> float:
        """The time since the lookup began, in milliseconds."""
        return 1000 * (trio.current_time() - self.began)

    @property
    def path_length(self) -> int:
        """Live forwarding hops from the start to the key's predecessor."""
        return max(0, sum(1 for hop in self.hops if hop.outcome == "ok") - 1)

    @property
    def nodes_estimate(self) -> int:
        """The number of vnodes in the ring, as estimated from the lists on the way.

        The value is 1 if no list was seen.
        """
        return max(1, round(len(self.spacings) / sum(self.spacings))) if self.spacings else 1

    @property
    def route_now(self) -> Route:
        """The route of the next attempt: after a failure always classic.

        Only the node that looks up has a membership list to ask, so the hops of a full lookup are those of a fast one.
        Only the key's predecessor knows which node stands in for the owner. A list that happens to reach the key may
        end there.
        """
        return "classic" if self.restarts else "fast" if self.route == "full" else self.route

    def restart(self) -> None:
        """Begin a new attempt at the start vnode. The hops and timeouts of failed attempts still count as costs."""
        self.restarts += 1
        self.forget_hops()
        self.candidates, self.predecessor, self.tried = (), self.start, {}

    def forget_hops(self) -> None:
        """Begin a new list of hops; `shown` still reports the dead hops of the old one."""
        self.earlier += tuple(self.hops)
        self.hops = []

    def shown(self) -> tuple[HopTrace, ...]:
        """Return the hops of the last attempt, and the dead hops of earlier attempts.

        Each dead hop stands behind the hop that led to it. A vnode that failed to reply several times has one line,
        which says how often.
        """
        if not self.earlier:
            return tuple(self.hops)
        first = {hop.contact: hop.at_ms for hop in reversed(self.earlier) if not hop.is_dead}
        shown: list[HopTrace] = []
        for hop in self.hops:
            at_ms = hop.at_ms if hop.is_dead else min(hop.at_ms, first.get(hop.contact, hop.at_ms))
            shown.append(msgspec.structs.replace(hop, at_ms=at_ms))
        attempts: dict[Contact, list[HopTrace]] = {}
        for hop in (*self.earlier, *self.hops):
            if hop.is_dead and not hop.outcome.startswith(NOT_ASKED):
                attempts.setdefault(hop.contact, []).append(hop)
        dead = {hop.contact for hop in shown if hop.is_dead}
        before: Contact | None = None
        for hop in self.earlier:
            if not hop.is_dead:
                before = hop.contact
            elif hop.contact not in dead:
                dead.add(hop.contact)
                shown.insert(_behind(shown, before), hop)
        return tuple(_with_attempts(hop, attempts.get(hop.contact, [])) for hop in shown)


def _with_attempts(hop: HopTrace, attempts: list[HopTrace]) -> HopTrace:
    """Return a hop's line, with the number of attempts if a dead hop had several."""
    if not hop.is_dead or len(attempts) < 2:
        return hop
    times = f"asked {len(attempts)} times, no answer until {attempts[-1].at_ms / 1000:.1f} s"
    return msgspec.structs.replace(hop, outcome=f"{attempts[-1].outcome}; {times}")


def _behind(hops: list[HopTrace], before: Contact | None) -> int:
    """Return the position of a dead hop in a trace.

    It stands behind the live hop that named it, and behind other dead hops that the same live hop named.
    """
    place = next((i + 1 for i, hop in enumerate(hops) if hop.contact == before), len(hops))
    while place < len(hops) and hops[place].is_dead:
        place += 1
    return place


class Router:
    """Routes the lookups of one node: finds the predecessor of a key.

    Lookups start at any of its vnodes, or come from another node. The router also makes the lines of traces.
    """

    __slots__ = ("_host", "_peers")

    def __init__(self, host: NodeContext) -> None:
        self._host = host
        self._peers = host.peers

    async def find_way(self, path: Path) -> None:
        """Route a lookup from its start to the key's predecessor, and set its candidates.

        The candidates are the key's successor and the vnodes behind it, as the predecessor names them.

        Raises:
            LookupFailed: the start does not answer, no vnode asked knows a next hop, or there were too many hops.
        """
        if path.mode == "recursive":
            await self._route_recursively(path)
        else:
            await self._route_iteratively(path)

    async def _route_recursively(self, path: Path) -> None:
        remaining = self.remaining(path.start, path.key)
        path.hops.append(HopTrace(path.start, Via("start"), remaining, None, path.ms))
        hops_max = self._hops_max(path)
        self.count_call(path, path.start)
        try:
            reply = await self._peers.call(path.start, Forward(path.key, path.route_now, int(hops_max)), ForwardReply)
        except ChordError as error:
            raise LookupFailed(error.message) from error
        path.hops.extend(reply.hops)
        path.calls += len(reply.hops)
        path.timeouts += sum(1 for hop in reply.hops if hop.is_dead)
        if reply.spacing > 0:
            path.spacings.append(reply.spacing)
        live = [hop.contact for hop in path.hops if hop.outcome == "ok"]
        path.predecessor, path.candidates = live[-1], reply.candidates

    async def _route_iteratively(self, path: Path) -> None:
        """Ask hop after hop; after a dead end, try its alternatives, then step back."""
        trail = [Candidate(path.start, Via("start"))]
        alternatives: list[Candidate] = []
        step = await self._ask(path, trail[0])
        if step is None:
            raise LookupFailed(f"the start {path.start.address} does not answer")
        while not step.final:
            if len(path.hops) > self._hops_max(path):
                raise LookupFailed(f"no owner within {len(path.hops)} hops")
            alternatives = [c for c in step.candidates if self._is_progress(path, trail[-1].contact, c.contact)]
            alternatives[:0] = self._nearer(path, alternatives[0].contact if alternatives else trail[-1].contact)
            after = await self._first_answer(path, trail, alternatives)
            if after is not None:
                step = after
                continue
            # No candidate replied: ask the same vnode for others, or go back one hop.
            again = await self._ask_again(path, trail)
            if again is None:
                raise LookupFailed(f"no vnode asked knows a next hop; {len(path.tried)} were tried")
            step = again
        path.predecessor, path.candidates = trail[-1].contact, step.candidates

    async def _first_answer(
        self, path: Path, trail: list[Candidate], candidates: list[Candidate]
    ) -> FindNextReply | None:
        for candidate in candidates:
            if self._peers.is_dead(candidate.contact):
                path.tried[candidate.contact.id] = None
                continue
            step = await self._ask(path, candidate)
            if step is not None:
                trail.append(candidate)
                return step
        return None

    async def _ask_again(self, path: Path, trail: list[Candidate]) -> FindNextReply | None:
        """Ask the last live hop again, without the vnodes already tried.

        If it knows no new candidate, ask the hop before it. Return None if no hop knows one.
        """
        while trail:
            asked = trail[-1]
            request = self._find_next(path)
            self.count_call(path, asked.contact)
            try:
                step = await self._peers.call(asked.contact, request, FindNextReply)
            except ChordError:
                step = FindNextReply(False, ())
            fresh = [c for c in step.candidates if step.final or self._is_progress(path, asked.contact, c.contact)]
            if fresh:
                return step
            path.tried[asked.contact.id] = None
            trail.pop()
        return None

    async def _ask(self, path: Path, candidate: Candidate) -> FindNextReply | None:
        """Ask one vnode for the next hop, and trace it; return None if the call fails."""
        request = self._find_next(path)
        sent = trio.current_time()
        self.count_call(path, candidate.contact)
        try:
            step = await self._peers.call(candidate.contact, request, FindNextReply)
        except ChordError as error:
            hop = self.hop(candidate, path.key, path.began, sent, error)
            path.hops.append(hop)
            path.timeouts += hop.is_dead
            path.tried[candidate.contact.id] = None
            return None
        path.hops.append(self.hop(candidate, path.key, path.began, sent, None))
        if step.spacing > 0:
            path.spacings.append(step.spacing)
        return step

    def _nearer(self, path: Path, best: Contact) -> list[Candidate]:
        """Take `path.cached_owner`; return it if it lies between `best` and the key.

        Otherwise the list is empty. Either way the path loses its cached owner, so it is used at most once.
        """
        known, path.cached_owner = path.cached_owner, None
        return [known] if known is not None and self._is_progress(path, best, known.contact) else []

    def _find_next(self, path: Path) -> FindNext:
        return FindNext(path.key, path.route_now, tuple(path.tried)[-TRIED_MAX:], path.mode == "successor")

    def _is_progress(self, path: Path, asked: Contact, candidate: Contact) -> bool:
        """Return whether a candidate is new and lies between the asked vnode and the key."""
        return candidate.id not in path.tried and between(asked.id, candidate.id, path.key)

    def _hops_max(self, path: Path) -> float:
        if path.mode == "successor":
            return 4096 - 1
        return 2 * math.log2(max(2, path.nodes_estimate)) + self._host.constants.successors + len(path.tried) + 8

    # -- recursive ------------------------------------------------------------------------------

    async def forward(self, request: Forward, me: Contact) -> ForwardReply:
        """Carry on a recursive lookup that reached one of this node's vnodes, `me`.

        Returns:
            The hops behind `me`, dead ones included, and the candidates for the key.

        Raises:
            LookupFailed: the lookup ran out of hops, or no candidate could carry it on.
            NotReady: `me` is not a member of the ring yet.
        """
        began = trio.current_time()
        step = await self._peers.call(me, FindNext(request.key, request.route), FindNextReply)
        if step.final:
            return ForwardReply((), step.candidates, 0.0, step.spacing)
        if request.hops_left == 0:
            raise LookupFailed("the recursive lookup ran out of hops")
        hops: list[HopTrace] = []
        for candidate in step.candidates:
            sent = trio.current_time()
            passed_on = Forward(request.key, request.route, request.hops_left - 1)
            try:
                rest = await self._pass_on(candidate.contact, passed_on)
            except (ChordError, trio.TooSlowError) as error:
                hops.append(self.hop(candidate, request.key, began, sent, error))
                continue
            hop = self.hop(candidate, request.key, began, sent, None)
            own_rtt = max(0.0, (hop.rtt_ms or 0.0) - rest.elapsed_ms)
            hops.append(HopTrace(hop.contact, hop.via, hop.remaining, own_rtt, hop.at_ms))
            elapsed = 1000 * (trio.current_time() - began)
            return ForwardReply((*hops, *rest.hops), rest.candidates, elapsed, (step.spacing + rest.spacing) / 2)
        raise LookupFailed(f"no next hop from {me.address}")

    async def _pass_on(self, to: Contact, request: Forward) -> ForwardReply:
        """Pass a recursive lookup on.

        Raises:
            ChordError: the next hop is dead, or knows no next hop.
            TooSlowError: a later hop took too long.
        """
        with trio.fail_after(self._host.timing.timeout_cap_s):
            return await self._peers.call_watched(to, request, ForwardReply)

    # -- the trace ------------------------------------------------------------------------------

    def count_call(self, path: Path, to: Contact) -> None:
        """Count a call of a lookup, unless it goes to this node itself."""
        path.calls += to.address != self._host.address

    def hop(
        self, candidate: Candidate, key: int, began: float, sent: float, error: ChordError | trio.TooSlowError | None
    ) -> HopTrace:
        """Return the trace line of a vnode that was asked.

        Args:
            candidate: the vnode, and how the lookup reached it.
            key: the point looked up.
            began: when the lookup began, in seconds.
            sent: when the vnode was asked, in seconds.
            error: why the vnode was no use, or None.
        """
        now = trio.current_time()
        is_dead = isinstance(error, (*NO_REPLY, trio.TooSlowError))
        outcome = "ok"
        if error is not None:
            reason = error.message if isinstance(error, ChordError) else "no answer in time"
            reason = reason.replace(f" from {candidate.contact.address}", "")  # the line names the address already
            state = self._peers.failure_detector.state(candidate.contact.address)
            outcome = f"{reason}; {state}" if is_dead else reason
        return HopTrace(
            contact=candidate.contact,
            via=candidate.via,
            remaining=self.remaining(candidate.contact, key),
            rtt_ms=None if is_dead or candidate.via.kind == "start" else 1000 * (now - sent),
            at_ms=1000 * (now - began),
            outcome=outcome[:1024],
            is_dead=is_dead,
        )

    def remaining(self, contact: Contact, key: int) -> float:
        """Return the clockwise distance from a vnode to the key, as a share of the circle."""
        circle = self._host.circle
        return circle.fraction(circle.distance(contact.id, key))
