"""The way to a key: hop by hop, strictly clockwise, never past the key, to the key's predecessor; and its cost.

Who is asked names those it would ask next; a dead end is stepped back from.

Source: Stoica et al. 2001, section 4.3-4.4 and Fig. 4; iterative and recursive styles, ToN 2003, section 6.
"""

from __future__ import annotations

import math
from typing import TypeVar

import msgspec
import trio

from chord.errors import SILENCE, ChordError, IndefiniteError, LookupFailed, PeerLost, PeerUnreachable
from chord.ids import Point, between
from chord.ring.context import Host
from chord.wire.messages import (
    Candidate,
    Contact,
    FindNext,
    Forward,
    Forwarded,
    HopTrace,
    Mode,
    NextHops,
    Ping,
    Pong,
    Reply,
    Request,
    Route,
    Via,
)

R = TypeVar("R", bound=Reply)

TRIED_MAX = 256
NOT_ASKED = "not asked"
"""Begins the outcome of a hop that was known to be dead."""


class Path:
    """A lookup in progress: what was asked, what it cost, and where it stands.

    Attributes:
        hops: the start, then every vnode asked; dead ends included.
        earlier: the hops of attempts before this one.
        candidates: once routed, the key's successor and the vnodes after it, best first.
        predecessor: once routed, the last live hop.
        tried: ids found useless.
        doubt: why it is not known whether a write has happened; then nobody's refusal can say that it has not.
        refusal: the last answer that asking again might change.
        spacings: mean gaps between vnodes, as the asked lists show them; the inverse of their mean estimates N.
        shortcut: who is remembered to stand before the key, worth asking instead of those a list offers farther away.
        calls: to other nodes; what a node asks itself costs nobody anything.
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
        self.shortcut: Candidate | None = None

    @property
    def path_length(self) -> int:
        """Live forwarding hops from the start to the key's predecessor."""
        return max(0, sum(1 for hop in self.hops if hop.outcome == "ok") - 1)

    @property
    def nodes_estimate(self) -> int:
        """N as far as the lists on the way tell."""
        return max(1, round(len(self.spacings) / sum(self.spacings))) if self.spacings else 1

    @property
    def route_now(self) -> Route:
        """The route, but classic once it failed: who stands right before the key knows who stands in for its owner.

        A list that happens to reach the key may end there.
        """
        return "classic" if self.restarts else self.route

    def restart(self) -> None:
        """Route again from the start; the costs stay on the bill."""
        self.restarts += 1
        self.forget_hops()
        self.candidates, self.predecessor, self.tried = (), self.start, {}

    def forget_hops(self) -> None:
        """Begin a new way; what did not answer on the one before is still told of."""
        self.earlier += tuple(self.hops)
        self.hops = []

    def shown(self) -> tuple[HopTrace, ...]:
        """Return the hops of this way, and behind the hop that led to it each dead one of the ways before.

        A vnode that did not answer several times has one line, which says how often.
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
    """Return the line of a hop that was asked in vain several times."""
    if not hop.is_dead or len(attempts) < 2:
        return hop
    times = f"asked {len(attempts)} times, no answer until {attempts[-1].at_ms / 1000:.1f} s"
    return msgspec.structs.replace(hop, outcome=f"{attempts[-1].outcome}; {times}")


def _behind(hops: list[HopTrace], before: Contact | None) -> int:
    """Return where in a trace a dead hop stands: behind the live one that named it, and others that it named."""
    place = next((i + 1 for i, hop in enumerate(hops) if hop.contact == before), len(hops))
    while place < len(hops) and hops[place].is_dead:
        place += 1
    return place


class Router:
    """Finds ways for one node, from any of its vnodes or on behalf of another.

    Attributes:
        host, peers: of the node.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.peers = host.peers

    def new_path(self, key: Point, start: Contact, mode: Mode, route: Route) -> Path:
        """Return a lookup that begins now."""
        return Path(key, start, mode, route, trio.current_time())

    async def find_way(self, path: Path) -> None:
        """Go from the start to the key's predecessor, which names the candidates.

        Raises:
            LookupFailed: nobody asked knows a way on.
        """
        if path.mode == "recursive":
            await self._route_recursively(path)
        else:
            await self._route_iteratively(path)

    async def _route_recursively(self, path: Path) -> None:
        remaining = self.remaining(path.start, path.key)
        path.hops.append(HopTrace(path.start, Via("start"), remaining, None, self.ms(path)))
        hops_max = self._hops_max(path)
        self.count_call(path, path.start)
        try:
            reply = await self.peers.call(path.start, Forward(path.key, path.route_now, int(hops_max)), Forwarded)
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
        """Ask hop after hop; a dead end is stepped back from, its alternatives tried first."""
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
            # Nobody on offer answered: ask the same vnode for others, or go back one hop.
            again = await self._ask_again(path, trail)
            if again is None:
                raise LookupFailed(f"no vnode asked knows a next hop; {len(path.tried)} were tried")
            step = again
        path.predecessor, path.candidates = trail[-1].contact, step.candidates

    async def _first_answer(self, path: Path, trail: list[Candidate], candidates: list[Candidate]) -> NextHops | None:
        for candidate in candidates:
            if self.peers.is_dead(candidate.contact):
                path.tried[candidate.contact.id] = None
                continue
            step = await self._ask(path, candidate)
            if step is not None:
                trail.append(candidate)
                return step
        return None

    async def _ask_again(self, path: Path, trail: list[Candidate]) -> NextHops | None:
        """Ask the last live hop again without what was tried; when it has nothing new, the one before it."""
        while trail:
            asked = trail[-1]
            request = self._find_next(path)
            self.count_call(path, asked.contact)
            try:
                step = await self.peers.call(asked.contact, request, NextHops)
            except ChordError:
                step = NextHops(False, ())
            fresh = [c for c in step.candidates if step.final or self._is_progress(path, asked.contact, c.contact)]
            if fresh:
                return step
            path.tried[asked.contact.id] = None
            trail.pop()
        return None

    async def _ask(self, path: Path, candidate: Candidate) -> NextHops | None:
        """Ask one vnode, and write its line of the trace. None when it is of no use."""
        request = self._find_next(path)
        sent = trio.current_time()
        self.count_call(path, candidate.contact)
        try:
            step = await self.peers.call(candidate.contact, request, NextHops)
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
        """Return who is remembered to stand nearer before the key than the best on offer, if anybody is; once."""
        known, path.shortcut = path.shortcut, None
        return [known] if known is not None and self._is_progress(path, best, known.contact) else []

    def _find_next(self, path: Path) -> FindNext:
        return FindNext(path.key, path.route_now, tuple(path.tried)[-TRIED_MAX:], path.mode == "successor")

    def _is_progress(self, path: Path, asked: Contact, candidate: Contact) -> bool:
        """Whether a candidate lies strictly between the asked vnode and the key, and is new."""
        return candidate.id not in path.tried and between(asked.id, candidate.id, path.key)

    def _hops_max(self, path: Path) -> float:
        if path.mode == "successor":
            return 4096 - 1
        return 2 * math.log2(max(2, path.nodes_estimate)) + self.host.constants.successors + len(path.tried) + 8

    # -- recursive ------------------------------------------------------------------------------

    async def forward(self, request: Forward, me: Contact) -> Forwarded:
        """Carry a recursive lookup on from one of our vnodes."""
        began = trio.current_time()
        step = await self.peers.call(me, FindNext(request.key, request.route), NextHops)
        if step.final:
            return Forwarded((), step.candidates, 0.0, step.spacing)
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
            return Forwarded((*hops, *rest.hops), rest.candidates, elapsed, (step.spacing + rest.spacing) / 2)
        raise LookupFailed(f"no next hop from {me.address}")

    async def _pass_on(self, to: Contact, request: Forward) -> Forwarded:
        """Pass a recursive lookup on.

        Raises:
            ChordError: the next one does not live, or knows no way on.
            TooSlowError: something behind it took too long.
        """
        with trio.fail_after(self.host.timing.timeout_cap_s):
            return await self.call_watched(to, request, Forwarded)

    async def call_watched(self, to: Contact, request: Request, expect: type[R]) -> R:
        """Make a call that may take as long as others behind the callee take: whether it lives itself, pings tell.

        Raises:
            ChordError: what it answered, or its silence, as soon as its own timeout has passed.
        """
        outcomes: list[R | ChordError] = []
        news = trio.Event()
        is_pinging = False

        def heard(answer: R | ChordError) -> None:
            outcomes.append(answer)
            news.set()

        def has_pinged(answer: Pong | ChordError) -> None:
            nonlocal is_pinging
            is_pinging = False
            if isinstance(answer, SILENCE) and not outcomes:
                # It may have done before it fell silent what it was asked for.
                heard(answer if not isinstance(answer, PeerUnreachable) else PeerLost(answer.message))

        self.peers.begin(to, request, expect, heard, deadline=trio.current_effective_deadline())
        while not outcomes:
            with trio.move_on_after(self.peers.suspicion.timeout(to.address)):
                await news.wait()
            if not outcomes and not is_pinging:
                is_pinging = True
                self.peers.begin(to, Ping(), Pong, has_pinged, deadline=math.inf)
        if isinstance(outcomes[0], ChordError):
            raise outcomes[0]
        return outcomes[0]

    # -- the trace ------------------------------------------------------------------------------

    def count_call(self, path: Path, to: Contact) -> None:
        """Put a call on the bill of a lookup."""
        path.calls += to.address != self.host.address

    def hop(
        self, candidate: Candidate, key: int, began: float, sent: float, error: ChordError | trio.TooSlowError | None
    ) -> HopTrace:
        """Return the line of the trace for a vnode that was asked at `sent`, in a lookup that began at `began`."""
        now = trio.current_time()
        is_dead = isinstance(error, (*SILENCE, trio.TooSlowError))
        outcome = "ok"
        if error is not None:
            reason = error.message if isinstance(error, ChordError) else "no answer in time"
            reason = reason.replace(f" from {candidate.contact.address}", "")  # it stands in the same line
            outcome = f"{reason}; {self.peers.suspicion.state(candidate.contact.address)}" if is_dead else reason
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
        """Return which part of the circle lies between a vnode and the key."""
        circle = self.host.circle
        return circle.fraction(circle.distance(contact.id, key))

    def ms(self, path: Path) -> float:
        """Return how long a lookup has taken so far."""
        return 1000 * (trio.current_time() - path.began)
