"""Lookups: find the owner of a key and bring a request to it, with a trace.

A lookup has two phases:

1. *Route* (`ring/routing.py`) goes hop by hop to the key's predecessor.
2. *Deliver* gives the request to the candidate owner. For a plain lookup the request is `Confirm`.

Delivery follows `NotOwner` back along predecessors, and steps over dead candidates. If the arc is changing hands, it
waits a moment and routes again, until the caller's deadline. A wrong "not found" is impossible, because only an owner
answers.

Source: Stoica et al. 2001, section 4.3-4.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec
import trio

from chord.errors import NO_REPLY, ChordError, IndefiniteError, LookupFailed, NotOwner, PeerUnreachable, UnknownVnode
from chord.events import LookupDone
from chord.ids import Point
from chord.ring.context import NodeContext
from chord.ring.owner_cache import OwnerCache
from chord.ring.routing import NOT_ASKED, Path, Router
from chord.wire.messages import (
    WRITES,
    Candidate,
    Confirm,
    ConfirmReply,
    Contact,
    HopTrace,
    Mode,
    Reply,
    Request,
    Route,
    Trace,
    Via,
    as_retry,
)

R = TypeVar("R", bound=Reply)

WAIT_FIRST_S = 0.005
WAIT_MAX_S = 0.25
MEMBERS_GUESSED = 2  # if the first does not answer, the next one is asked
TELL_BEFORE_S = 0.1  # how long before the deadline the last refusal is sent to the caller


class Lookups:
    """Lookups made by one node, from any of its vnodes or on behalf of another node.

    Args:
        host: the node context.
        router: finds the way to a key's predecessor.

    Attributes:
        arcs: the owner cache; fast lookups try it first.
    """

    __slots__ = ("_host", "_peers", "_router", "arcs")

    def __init__(self, host: NodeContext, router: Router) -> None:
        self._host = host
        self._peers = host.peers
        self._router = router
        self.arcs = OwnerCache(host.circle, host.limits.arcs_max)

    async def find(
        self,
        key: Point,
        start: Contact,
        mode: Mode = "iterative",
        route: Route = "classic",
        *,
        is_remembered: bool = True,
    ) -> Trace:
        """Find the confirmed owner of a key.

        Args:
            key: a point of the circle.
            start: the vnode that performs the first step, usually one of this node's.
            mode: iterative (this node asks each hop), recursive (each hop asks the next), or successor (O(N), for
                teaching).
            route: classic, fast or full. Classic uses fingers and the successor, as in the papers. Fast tries the owner
                cache and then the membership list first, and otherwise stops as soon as any list brackets the key. Full
                tries the membership list before the owner cache.
            is_remembered: whether a fast or full lookup may use the owner cache and the membership list.

        Raises:
            OwnerDown: definite; the owner paused and keeps the only copy.
            ChordError: any other error of `deliver`.

        Concurrency: checkpoints; waits for an owner until the enclosing deadline.
        """
        confirmed, path, via, rtt_ms = await self.deliver(
            Confirm(key), ConfirmReply, key, start, mode, route, is_remembered=is_remembered
        )
        trace = self._trace(confirmed, path, via, rtt_ms)
        sampler = self._host.sampler
        if sampler is not None and sampler.takes_lookup(trio.current_time()):
            hops, took_ms = trace.path_length, trace.duration_ms
            self._host.tell([LookupDone(key, start, trace.owner, mode, route, hops, trace.timeouts, took_ms)])
        return trace

    async def neighbours(self, point: Point, start: Contact) -> tuple[Contact, Contact]:
        """Return two adjacent vnodes (q, t), with a point in the arc from q to t.

        The vnode q names t as its successor. A vnode with the point as its id is t.

        Args:
            point: a point of the circle.
            start: the vnode that performs the first step.

        Raises:
            LookupFailed: no such vnodes were found.
        """
        path = Path(point, start, "iterative", "classic", trio.current_time())
        await self._router.find_way(path)
        if not path.candidates:
            raise LookupFailed(f"{path.predecessor.address} names no vnode behind it")
        return path.predecessor, path.candidates[0].contact

    async def deliver(
        self,
        request: Request,
        expect: type[R],
        key: Point,
        start: Contact,
        mode: Mode = "iterative",
        route: Route = "fast",
        *,
        is_remembered: bool = True,
    ) -> tuple[R, Path, Via, float]:
        """Bring a request to the key's owner, and return the owner's reply.

        After an error that a retry may change, the lookup starts again. If none of the errors below is raised, the
        caller's cancel scope ends it.

        Args:
            request: the request for the owner.
            expect: the type of the reply.
            key: a point of the circle.
            start: the vnode that performs the first step.
            mode: iterative (this node asks each hop), recursive (each hop asks the next) or successor (O(N)).
            route: classic, fast or full, as in `find`. Fast and full try the owner cache and the membership list.
            is_remembered: whether a fast or full lookup may use the owner cache and the membership list.

        Returns:
            The reply, the path, how the owner was reached, and the round-trip time in ms.

        Raises:
            ChordError: an error that a retry cannot change, for example `OwnerDown`. Or, shortly before the deadline,
                the last refusal, because it says more than a timeout. No definite error is raised if an earlier attempt
                of a write may have taken effect.
        """
        path = Path(key, start, mode, route, trio.current_time())
        outcome = "cancelled"
        try:
            reply, via, rtt_ms = await self._until_found(path, request, expect, is_remembered)
            outcome = "ok"
        except ChordError:
            outcome = "error"
            raise
        finally:
            self._host.lookups[mode, route, outcome] += 1
            self._host.counters["lookup_timeouts"] += path.timeouts
        self._host.note_hops(route, path.path_length)
        return reply, path, via, rtt_ms

    # -- deliver --------------------------------------------------------------------------------

    async def _until_found(
        self, path: Path, request: Request, expect: type[R], is_remembered: bool
    ) -> tuple[R, Via, float]:
        """Look up a path's key and offer the request, again and again, until an owner replies; see `deliver`."""
        wait = WAIT_FIRST_S
        guesses = self._guesses(path, is_remembered)
        guess = self._follow(path, next(guesses, ()))
        while True:
            try:
                if not path.candidates:
                    await self._router.find_way(path)
                found = await self._offer(path, request, expect)
            except LookupFailed:
                found = None
            if found is not None:
                return found
            if guess and guess[0].via.kind != "start":  # the cache and the membership list are only hints
                if guess[0].via.kind == "cache":
                    self.arcs.forget(guess[0].contact.address)
                path.forget_hops()
                guess = self._follow(path, next(guesses, ()))
                continue
            pause = self._host.jitter(wait)
            is_last = trio.current_time() + pause + TELL_BEFORE_S >= trio.current_effective_deadline()
            if is_last and path.refusal is not None and path.doubt is None:
                raise path.refusal
            await trio.sleep(pause)
            wait = min(2 * wait, WAIT_MAX_S)
            path.restart()

    def _guesses(self, path: Path, is_remembered: bool) -> Iterator[tuple[Candidate, ...]]:
        """Yield probable owners without routing: the start itself, or an owner that a hint names.

        If the owner cache has only an owner before the key, note it in `path.cached_owner`. Its successor list may
        reach the key.
        """
        if any(v.ownership.is_owner(path.key) for v in self._host.vnodes.values() if v.me == path.start):
            yield (Candidate(path.start, Via("start")),)
            return
        if not is_remembered or path.route == "classic" or path.mode != "iterative":
            return
        if path.route == "full" and (guess := self._member_guess(path.key)):
            yield guess
        owner = self.arcs.find(path.key)
        if owner is not None and not self._peers.is_doubtful(owner):
            yield (Candidate(owner, Via("cache")),)
        elif (before := self.arcs.before(path.key)) is not None and not self._peers.is_doubtful(before):
            path.cached_owner = Candidate(before, Via("cache"))
        if path.route == "fast" and (guess := self._member_guess(path.key)):
            yield guess

    def _member_guess(self, key: Point) -> tuple[Candidate, ...]:
        """Return the key's successor among the members of the list, and the next vnode of another node."""
        found: dict[str, Candidate] = {}
        for contact in () if self._host.members is None else self._host.members.successors(key):
            if contact.address not in found and not self._peers.is_doubtful(contact):
                found[contact.address] = Candidate(contact, Via("member"))
                if len(found) == MEMBERS_GUESSED:
                    break
        return tuple(found.values())

    def _follow(self, path: Path, guess: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        """Let a path begin with a guess; return the guess."""
        if guess:
            remaining = self._router.remaining(path.start, path.key)
            path.hops.append(HopTrace(path.start, Via("start"), remaining, None, 0.0))
        path.candidates = guess
        return guess

    async def _offer(self, path: Path, request: Request, expect: type[R]) -> tuple[R, Via, float] | None:
        """Send the request to the candidates in turn, and to closer vnodes that they name.

        Returns:
            The reply, how the owner was reached, and the round-trip time in ms. None if the caller must wait and look
            up again.

        Raises:
            ChordError: an error that a retry cannot change; see `deliver`.
        """
        queue = list(path.candidates)
        steps_back = 2 * self._host.constants.successors
        while queue:
            candidate = queue.pop(0)
            sent = trio.current_time()
            if path.restarts == 0 and self._peers.is_dead(candidate.contact):
                # Only at first: a vnode that others go on naming may be back, and only a call can tell.
                path.hops.append(self._router.hop(candidate, path.key, path.began, sent, PeerUnreachable(NOT_ASKED)))
                continue
            self._router.count_call(path, candidate.contact)
            try:
                asked = request if path.doubt is None else as_retry(request)
                reply = await self._call(candidate.contact, asked, expect)
            except NotOwner as error:
                if error.peer is None or steps_back == 0:
                    return None
                steps_back -= 1
                queue.insert(0, Candidate(error.peer, Via("predecessor")))
            except UnknownVnode:
                continue  # the vnode is gone, and the vnode that named it does not know yet
            except NO_REPLY as error:
                path.timeouts += 1
                path.hops.append(self._router.hop(candidate, path.key, path.began, sent, error))
                if isinstance(request, WRITES) and isinstance(error, IndefiniteError):
                    path.doubt = error
            except ChordError as error:
                if error.is_retryable:
                    path.refusal = error
                    if error.peer is not None:
                        self._note_unasked(path, error.peer, candidate.contact, sent)
                    return None
                if path.doubt is not None and not isinstance(error, IndefiniteError):
                    raise path.doubt from error
                raise
            else:
                if candidate.contact.address != self._host.address:
                    start = reply.arc_start if isinstance(reply, ConfirmReply) else None
                    self.arcs.learn(path.key, candidate.contact, start)
                return reply, candidate.via, 1000 * (trio.current_time() - sent)
        return None

    def _note_unasked(self, path: Path, former: Contact, heir: Contact, sent: float) -> None:
        """Add the former owner to the hops: it is down, so the way went around it, and no vnode has replaced it."""
        hop = self._router.hop(
            Candidate(former, Via("predecessor")), path.key, path.began, sent, PeerUnreachable(NOT_ASKED)
        )
        if not self._peers.is_doubtful(former):  # this node has not called it lately
            hop = msgspec.structs.replace(hop, outcome=f"{NOT_ASKED}; {heir.address} found it down")
        path.hops.append(hop)

    async def _call(self, to: Contact, request: Request, expect: type[R]) -> R:
        if request.patient and to.address != self._host.address:
            return await self._peers.call_watched(to, request, expect)
        return await self._peers.call(to, request, expect)

    # -- the trace ------------------------------------------------------------------------------

    def _trace(self, confirmed: ConfirmReply, path: Path, via: Via, rtt_ms: float) -> Trace:
        return Trace(
            key=path.key,
            start=path.start,
            owner=confirmed.owner,
            owner_via=via,
            owner_rtt_ms=rtt_ms,
            replicas=confirmed.replicas,
            hops=path.shown(),
            mode=path.mode,
            route=path.route,
            path_length=path.path_length,
            timeouts=path.timeouts,
            calls=path.calls,
            duration_ms=path.ms,
            nodes_estimate=path.nodes_estimate,
            arc_start=confirmed.arc_start,
            epoch=confirmed.epoch,
            unreachable=confirmed.unreachable,
            holders=confirmed.holders,
        )
