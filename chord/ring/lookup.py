"""Find the successor of an id, and the trace of how we got there.

A lookup has two phases. *Route* (`ring/routing.py`): hop by hop to the key's predecessor. *Deliver*: give the request
(for a plain lookup, `Confirm`) to the candidate; follow `NotOwner` back along predecessors, step over dead candidates,
and where the arc is changing hands wait a moment and route again, until the caller's deadline. A wrong "not found"
cannot come out, because only an owner answers.

Source: Stoica et al. 2001, section 4.3-4.4.
"""

from __future__ import annotations

from typing import TypeVar

import trio

from chord.errors import SILENCE, ChordError, IndefiniteError, LookupFailed, NotOwner, PeerUnreachable, UnknownVnode
from chord.ids import Point
from chord.ring.context import Host
from chord.ring.owner_cache import ArcCache
from chord.ring.routing import NOT_ASKED, Path, Router
from chord.wire.messages import (
    WRITES,
    Candidate,
    Confirm,
    Confirmed,
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
TELL_BEFORE_S = 0.1  # before the deadline, the last refusal sets out for the caller


class Lookups(Router):
    """Lookups made by one node, from any of its vnodes or on behalf of another.

    Attributes:
        arcs: who answered for what; fast lookups try that first.
    """

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.arcs = ArcCache(host.circle, host.limits.arcs_max)

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
            start: the vnode that performs the first step, usually one of ours.
            mode: iterative (we ask each hop), recursive (each hop asks the next), successor (O(N), for teaching).
            route: classic (fingers and successor, as in the papers) or fast (ask who answered for the key before; else
                stop when any list brackets the key).
            is_remembered: False: a fast lookup asks nobody because of earlier ones.

        Raises:
            OwnerDown: definite; the owner paused.

        Concurrency: checkpoints; waits for an owner until the enclosing deadline.
        """
        confirmed, path, via, rtt_ms = await self.deliver(
            Confirm(key), Confirmed, key, start, mode, route, is_remembered=is_remembered
        )
        return self._trace(confirmed, path, via, rtt_ms)

    async def neighbours(self, point: Point, start: Contact) -> tuple[Contact, Contact]:
        """Return the vnodes (q, t) between which a point lies: q says that t follows.

        Raises:
            LookupFailed: nobody could be found.
        """
        path = self.new_path(point, start, "iterative", "classic")
        await self.find_way(path)
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
        """Bring a request to the key's owner: its reply, the path, how the owner was reached, round-trip ms.

        Definite errors that will not pass (`OwnerDown`, `InvalidRequest`, …) are raised; all others are met by
        looking up again, until the enclosing deadline. The last of them is raised shortly before that: what somebody
        said is worth more than that time is up.
        """
        path = self.new_path(key, start, mode, route)
        wait = WAIT_FIRST_S
        known = self._known(path, is_remembered)
        if known is not None:
            path.hops.append(HopTrace(start, Via("start"), self.remaining(start, key), None, 0.0))
            path.candidates = (known,)
        while True:
            try:
                if not path.candidates:
                    await self.find_way(path)
                found = await self._offer(path, request, expect)
            except LookupFailed:
                found = None
            if found is not None:
                reply, via, rtt_ms = found
                return reply, path, via, rtt_ms
            if known is not None and known.via.kind == "cache":  # it was no more than a hint
                self.arcs.forget(known.contact.address)
                path.forget_hops()
                known, path.candidates = None, ()
                continue
            pause = self.host.jitter(wait)
            is_last = trio.current_time() + pause + TELL_BEFORE_S >= trio.current_effective_deadline()
            if is_last and path.refusal is not None and path.doubt is None:
                raise path.refusal
            await trio.sleep(pause)
            wait = min(2 * wait, WAIT_MAX_S)
            path.restart()

    # -- deliver --------------------------------------------------------------------------------

    def _known(self, path: Path, is_remembered: bool) -> Candidate | None:
        """Return who need not be searched for: the start itself, or who answered for the key before.

        Else who has answered for a key shortly before it is a good place to ask: its list may reach the key.
        """
        if any(v.ownership.is_owner(path.key) for v in self.host.vnodes.values() if v.me == path.start):
            return Candidate(path.start, Via("start"))
        if not is_remembered or path.route != "fast" or path.mode != "iterative":
            return None
        owner = self.arcs.find(path.key)
        if owner is not None and not self.peers.is_doubtful(owner):
            return Candidate(owner, Via("cache"))
        before = self.arcs.before(path.key)
        if before is not None and not self.peers.is_doubtful(before):
            path.shortcut = Candidate(before, Via("cache"))
        return None

    async def _offer(self, path: Path, request: Request, expect: type[R]) -> tuple[R, Via, float] | None:
        """Offer the request to the candidates and those they point to. None: wait and look up again."""
        queue = list(path.candidates)
        steps_back = 2 * self.host.constants.successors
        while queue:
            candidate = queue.pop(0)
            sent = trio.current_time()
            if path.restarts == 0 and self.peers.is_dead(candidate.contact):
                # At first; but who others go on naming may be back, and only a call can tell.
                path.hops.append(self.hop(candidate, path.key, path.began, sent, PeerUnreachable(NOT_ASKED)))
                continue
            self.count_call(path, candidate.contact)
            try:
                asked = request if path.doubt is None else as_retry(request)
                reply = await self._call(candidate.contact, asked, expect)
            except NotOwner as error:
                if error.peer is None or steps_back == 0:
                    return None
                steps_back -= 1
                queue.insert(0, Candidate(error.peer, Via("predecessor")))
            except UnknownVnode:
                continue  # it is gone, and whoever named it does not know yet
            except SILENCE as error:
                path.timeouts += 1
                path.hops.append(self.hop(candidate, path.key, path.began, sent, error))
                if isinstance(request, WRITES) and isinstance(error, IndefiniteError):
                    path.doubt = error
            except ChordError as error:
                if error.is_retryable:
                    path.refusal = error
                    return None
                if path.doubt is not None and not isinstance(error, IndefiniteError):
                    raise path.doubt from error
                raise
            else:
                if candidate.contact.address != self.host.address:
                    start = reply.arc_start if isinstance(reply, Confirmed) else None
                    self.arcs.learn(path.key, candidate.contact, start)
                return reply, candidate.via, 1000 * (trio.current_time() - sent)
        return None

    async def _call(self, to: Contact, request: Request, expect: type[R]) -> R:
        if request.patient and to.address != self.host.address:
            return await self.call_watched(to, request, expect)
        return await self.peers.call(to, request, expect)

    # -- the trace ------------------------------------------------------------------------------

    def _trace(self, confirmed: Confirmed, path: Path, via: Via, rtt_ms: float) -> Trace:
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
            duration_ms=self.ms(path),
            nodes_estimate=path.nodes_estimate,
            arc_start=confirmed.arc_start,
            epoch=confirmed.epoch,
            silent=confirmed.silent,
        )
