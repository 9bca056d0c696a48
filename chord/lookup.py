"""Find the successor of an id, and the trace of how we got there.

A lookup has two phases. *Route*: hop by hop, strictly clockwise, never past the key, to the key's
predecessor. *Deliver*: give the request (for a plain lookup, `Confirm`) to the candidate; follow
`NotOwner` back along predecessors, step over dead candidates, and where the arc is changing hands
wait a moment and route again, until the caller's deadline. A wrong "not found" cannot come out,
because only an owner answers.

Source: Stoica et al. 2001, section 4.3-4.4 and Fig. 4; iterative and recursive styles, ToN 2003, section 6.
"""

from __future__ import annotations

import math
from typing import TypeVar

import trio

from chord.errors import SILENCE, ChordError, IndefiniteError, LookupFailed, NotOwner, PeerLost, PeerUnreachable
from chord.host import Host
from chord.ids import Point, between
from chord.messages import (
    Candidate,
    Confirm,
    Confirmed,
    Contact,
    FindNext,
    Forward,
    Forwarded,
    HopTrace,
    Merge,
    Mode,
    NextHops,
    Ping,
    Pong,
    Put,
    Reply,
    Request,
    Route,
    Trace,
    Via,
    as_retry,
)

R = TypeVar("R", bound=Reply)

TRIED_MAX = 256
WAIT_FIRST_S = 0.005
WAIT_MAX_S = 0.25


class Path:
    """A lookup in progress: what was asked, what it cost, and where it stands.

    Attributes:
        hops: the start, then every vnode asked; dead ends included.
        candidates: once routed, the key's successor and the vnodes after it, best first.
        predecessor: once routed, the last live hop.
        tried: ids found useless.
        doubt: why it is not known whether a write has happened; then nobody's refusal can say that it has not.
        spacings: mean gaps between vnodes, as the asked lists show them; the inverse of their mean estimates N.
    """

    def __init__(self, key: Point, start: Contact, mode: Mode, route: Route, now: float) -> None:
        self.key = key
        self.start = start
        self.mode: Mode = mode
        self.route: Route = route
        self.began = now
        self.hops: list[HopTrace] = []
        self.candidates: tuple[Candidate, ...] = ()
        self.predecessor = start
        self.tried: dict[Point, None] = {}
        self.timeouts = 0
        self.calls = 0
        self.restarts = 0
        self.doubt: IndefiniteError | None = None
        self.spacings: list[float] = []

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
        self.hops, self.candidates, self.predecessor, self.tried = [], (), self.start, {}


class Lookups:
    """Lookups made by one node, from any of its vnodes or on behalf of another."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._peers = host.peers

    async def find(self, key: Point, start: Contact, mode: Mode = "iterative", route: Route = "classic") -> Trace:
        """Find the confirmed owner of a key.

        Args:
            key: a point of the circle.
            start: the vnode that performs the first step, usually one of ours.
            mode: iterative (we ask each hop), recursive (each hop asks the next), successor (O(N), for teaching).
            route: classic (fingers and successor, as in the papers) or fast (stop when any list brackets the key).

        Raises:
            OwnerDown: definite; the owner paused.

        Concurrency: checkpoints; waits for an owner until the enclosing deadline.
        """
        confirmed, path, via, rtt_ms = await self.deliver(Confirm(key), Confirmed, key, start, mode, route)
        return self._trace(confirmed, path, via, rtt_ms)

    async def neighbours(self, point: Point, start: Contact) -> tuple[Contact, Contact]:
        """Return the vnodes (q, t) between which a point lies: q says that t follows.

        Raises:
            LookupFailed: nobody could be found.
        """
        path = self._new_path(point, start, "iterative", "classic")
        await self._route(path)
        return path.predecessor, path.candidates[0].contact

    async def deliver(
        self,
        request: Request,
        expect: type[R],
        key: Point,
        start: Contact,
        mode: Mode = "iterative",
        route: Route = "fast",
    ) -> tuple[R, Path, Via, float]:
        """Bring a request to the key's owner: its reply, the path, how the owner was reached, round-trip ms.

        Definite errors that will not pass (`OwnerDown`, `InvalidRequest`, …) are raised; all others are met by
        looking up again, until the enclosing deadline.
        """
        path = self._new_path(key, start, mode, route)
        wait = WAIT_FIRST_S
        if any(v.ownership.is_owner(key) for v in self._host.vnodes.values() if v.me == start):
            path.hops.append(HopTrace(start, Via("start"), self._remaining(start, key), None, 0.0))
            path.candidates = (Candidate(start, Via("start")),)
        while True:
            try:
                if not path.candidates:
                    await self._route(path)
                found = await self._offer(path, request, expect)
            except LookupFailed:
                found = None
            if found is not None:
                reply, via, rtt_ms = found
                return reply, path, via, rtt_ms
            await trio.sleep(self._host.jitter(wait))
            wait = min(2 * wait, WAIT_MAX_S)
            path.restart()

    async def forward(self, request: Forward, me: Contact) -> Forwarded:
        """Carry a recursive lookup on from one of our vnodes."""
        began = trio.current_time()
        step = await self._peers.call(me, FindNext(request.key, request.route), NextHops)
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
                hops.append(self._hop(candidate, request.key, began, sent, error))
                continue
            hop = self._hop(candidate, request.key, began, sent, None)
            own_rtt = max(0.0, (hop.rtt_ms or 0.0) - rest.elapsed_ms)
            hops.append(HopTrace(hop.contact, hop.via, hop.remaining, own_rtt, hop.at_ms))
            elapsed = 1000 * (trio.current_time() - began)
            return Forwarded((*hops, *rest.hops), rest.candidates, elapsed, (step.spacing + rest.spacing) / 2)
        raise LookupFailed(f"no way on from {me.address}")

    async def _pass_on(self, to: Contact, request: Forward) -> Forwarded:
        """Pass a recursive lookup on.

        Raises:
            ChordError: the next one does not live, or knows no way on.
            TooSlowError: something behind it took too long.
        """
        with trio.fail_after(self._host.timing.timeout_cap_s):
            return await self._call_watched(to, request, Forwarded)

    async def _call_watched(self, to: Contact, request: Request, expect: type[R]) -> R:
        """Make a call that may take as long as others behind the callee take: whether it lives itself, pings tell.

        Raises:
            ChordError: what it answered, or its silence, as soon as its own timeout has passed.
        """
        failed: list[ChordError] = []
        found: list[R] = []

        async def watch() -> None:
            while True:
                await trio.sleep(self._peers.suspicion.timeout(to.address))
                try:
                    await self._peers.call(to, Ping(), Pong)
                except SILENCE as error:
                    # It may have done before it fell silent what it was asked for.
                    failed.append(error if not isinstance(error, PeerUnreachable) else PeerLost(error.message))
                    nursery.cancel_scope.cancel()
                except ChordError:
                    pass  # an answer: it lives

        async def call() -> None:
            try:
                found.append(await self._peers.call(to, request, expect))
            except ChordError as error:
                failed.append(error)
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            nursery.start_soon(call)
        if found:
            return found[0]
        raise failed[0]

    # -- route ----------------------------------------------------------------------------------

    def _new_path(self, key: Point, start: Contact, mode: Mode, route: Route) -> Path:
        return Path(key, start, mode, route, trio.current_time())

    async def _route(self, path: Path) -> None:
        if path.mode == "recursive":
            await self._route_recursively(path)
        else:
            await self._route_iteratively(path)

    async def _route_recursively(self, path: Path) -> None:
        remaining = self._remaining(path.start, path.key)
        path.hops.append(HopTrace(path.start, Via("start"), remaining, None, self._ms(path)))
        hops_max = self._hops_max(path)
        path.calls += 1
        try:
            reply = await self._peers.call(path.start, Forward(path.key, path.route_now, int(hops_max)), Forwarded)
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
            after = await self._first_answer(path, trail, alternatives)
            if after is not None:
                step = after
                continue
            # Nobody on offer answered: ask the same vnode for others, or go back one hop.
            again = await self._ask_again(path, trail)
            if again is None:
                raise LookupFailed(f"nobody asked knows a way on; {len(path.tried)} were tried")
            step = again
        path.predecessor, path.candidates = trail[-1].contact, step.candidates

    async def _first_answer(self, path: Path, trail: list[Candidate], candidates: list[Candidate]) -> NextHops | None:
        for candidate in candidates:
            if self._peers.is_dead(candidate.contact):
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
            path.calls += 1
            try:
                step = await self._peers.call(asked.contact, request, NextHops)
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
        path.calls += 1
        try:
            step = await self._peers.call(candidate.contact, request, NextHops)
        except ChordError as error:
            hop = self._hop(candidate, path.key, path.began, sent, error)
            path.hops.append(hop)
            path.timeouts += hop.is_dead
            path.tried[candidate.contact.id] = None
            return None
        path.hops.append(self._hop(candidate, path.key, path.began, sent, None))
        if step.spacing > 0:
            path.spacings.append(step.spacing)
        return step

    def _find_next(self, path: Path) -> FindNext:
        return FindNext(path.key, path.route_now, tuple(path.tried)[-TRIED_MAX:], path.mode == "successor")

    def _is_progress(self, path: Path, asked: Contact, candidate: Contact) -> bool:
        """Whether a candidate lies strictly between the asked vnode and the key, and is new."""
        return candidate.id not in path.tried and between(asked.id, candidate.id, path.key)

    def _hops_max(self, path: Path) -> float:
        if path.mode == "successor":
            return 4096 - 1
        return 2 * math.log2(max(2, path.nodes_estimate)) + self._host.constants.successors + len(path.tried) + 8

    # -- deliver --------------------------------------------------------------------------------

    async def _offer(self, path: Path, request: Request, expect: type[R]) -> tuple[R, Via, float] | None:
        """Offer the request to the candidates and those they point to. None: wait and look up again."""
        queue = list(path.candidates)
        steps_back = 2 * self._host.constants.successors
        while queue:
            candidate = queue.pop(0)
            if path.restarts == 0 and self._peers.is_dead(candidate.contact):
                continue  # at first; but who others go on naming may be back, and only a call can tell
            sent = trio.current_time()
            path.calls += 1
            try:
                asked = request if path.doubt is None else as_retry(request)
                reply = await self._call(candidate.contact, asked, expect)
            except NotOwner as error:
                if error.peer is None or steps_back == 0:
                    return None
                steps_back -= 1
                queue.insert(0, Candidate(error.peer, Via("predecessor")))
            except SILENCE as error:
                path.timeouts += 1
                path.hops.append(self._hop(candidate, path.key, path.began, sent, error))
                if isinstance(request, (Put, Merge)) and isinstance(error, IndefiniteError):
                    path.doubt = error
            except ChordError as error:
                if error.is_retryable:
                    return None
                if path.doubt is not None and not isinstance(error, IndefiniteError):
                    raise path.doubt from error
                raise
            else:
                return reply, candidate.via, 1000 * (trio.current_time() - sent)
        return None

    async def _call(self, to: Contact, request: Request, expect: type[R]) -> R:
        if request.patient and to.address != self._host.address:
            return await self._call_watched(to, request, expect)
        return await self._peers.call(to, request, expect)

    # -- the trace ------------------------------------------------------------------------------

    def _trace(self, confirmed: Confirmed, path: Path, via: Via, rtt_ms: float) -> Trace:
        return Trace(
            key=path.key,
            start=path.start,
            owner=confirmed.owner,
            owner_via=via,
            owner_rtt_ms=rtt_ms,
            replicas=confirmed.replicas,
            hops=tuple(path.hops),
            mode=path.mode,
            route=path.route,
            path_length=path.path_length,
            timeouts=path.timeouts,
            calls=path.calls,
            duration_ms=self._ms(path),
            nodes_estimate=path.nodes_estimate,
            arc_start=confirmed.arc_start,
            epoch=confirmed.epoch,
        )

    def _hop(
        self, candidate: Candidate, key: int, began: float, sent: float, error: ChordError | trio.TooSlowError | None
    ) -> HopTrace:
        now = trio.current_time()
        is_dead = isinstance(error, (*SILENCE, trio.TooSlowError))
        outcome = "ok"
        if error is not None:
            reason = error.message if isinstance(error, ChordError) else "no answer in time"
            outcome = f"{reason}; {self._peers.suspicion.state(candidate.contact.address)}" if is_dead else reason
        return HopTrace(
            contact=candidate.contact,
            via=candidate.via,
            remaining=self._remaining(candidate.contact, key),
            rtt_ms=None if is_dead or candidate.via.kind == "start" else 1000 * (now - sent),
            at_ms=1000 * (now - began),
            outcome=outcome[:1024],
            is_dead=is_dead,
        )

    def _remaining(self, contact: Contact, key: int) -> float:
        circle = self._host.circle
        return circle.fraction(circle.distance(contact.id, key))

    def _ms(self, path: Path) -> float:
        return 1000 * (trio.current_time() - path.began)
