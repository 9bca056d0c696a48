"""Calls to other nodes, with a timeout and a state for each peer.

Every call of the protocol goes through `Peers.call` or `Peers.begin`. They give the call the peer's own timeout, and
report its outcome to the failure detector. `Peers.call` answers calls to our own vnodes without the network.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable
from typing import TYPE_CHECKING, TypeVar

import trio

from chord.config import Limits, Timing
from chord.errors import (
    NO_REPLY,
    Busy,
    ChordError,
    DeadlineExceeded,
    MalformedMessage,
    PeerLost,
    PeerUnreachable,
    UnknownVnode,
)
from chord.events import Emit, PeerChanged
from chord.ids import Point
from chord.net.calls import Caller, Calls, RequestHandler, no_handler, reply_of
from chord.net.failure_detector import FailureDetector
from chord.net.goodbyes import Goodbyes
from chord.wire.messages import Contact, Hello, PeerState, Ping, PingReply, Reply, Request

if TYPE_CHECKING:
    import random

R = TypeVar("R", bound=Reply)

RESUMES_MAX = 4  # in units of `resume_s`
NOT_READY_MAX = 64
STALLED_MS = 50  # while its disk hangs, a node retries calls to its own vnodes after this long


class Peers:
    """This node's view of other nodes, and its way to call them.

    Args:
        calls: carries the calls over the network.
        timing: see `Timing`.
        observe: receives an event for each change of a peer's state.
        limits: how many vnodes the passive list and `goodbyes` remember.

    Attributes:
        address: this node's advertised address; "" until it is known.
        failure_detector: the state and the timeout of each address.
        passive: the passive list: unreachable vnodes that are probed for their return.
        goodbyes: the vnodes that left for good.
        calls_made: number of calls to other nodes since the start.
        transitions: number of changes of the states of peers since the start, by the new state.
    """

    def __init__(self, calls: Calls, timing: Timing, observe: Emit, limits: Limits) -> None:
        self._calls = calls
        self._observe = observe
        self.address = ""
        self.failure_detector = FailureDetector(timing)
        self.passive = PassiveList(timing, limits.passive_max, limits.unreachable_max)
        self.goodbyes = Goodbyes(limits.goodbyes_max, limits.owners_max)
        self._handler: RequestHandler = no_handler
        self.calls_made = 0
        self.transitions: Counter[PeerState] = Counter()
        self._timing = timing
        self._not_ready: dict[Contact, tuple[float, float]] = {}  # not members yet: first and last report of that

    def serve(self, handler: RequestHandler) -> None:
        """Answer calls to this node with this handler from now on, also the calls that this node makes to itself."""
        self._handler = handler
        self._calls.serve(handler)

    async def call(self, to: Contact | str, request: Request, expect: type[R]) -> R:
        """Call a vnode, or a node by its address, and report the outcome to the failure detector.

        The call has the peer's own timeout. A patient request, or a request to a node by its address, has only the
        deadline of the enclosing cancel scopes.

        Args:
            to: the vnode, or the address of the node.
            request: the request.
            expect: the type of the reply.

        Raises:
            MalformedMessage: the peer answered with another type of reply.
            ChordError: see `Calls.call`. `NO_REPLY` errors count as a miss of the peer. Other errors, except
                `UnknownVnode`, show that the peer is alive.

        Concurrency: checkpoints.
        """
        address = to if isinstance(to, str) else to.address
        if address == self.address:
            reply = await self._call_self(to, request)
        else:
            reply = await self._call_out(to, address, request)
        if not isinstance(reply, expect):
            raise _not_an_answer(address, request, reply)
        return reply

    def begin(
        self,
        to: Contact,
        request: Request,
        expect: type[R],
        callback: Callable[[R | ChordError], None],
        *,
        deadline: float,
    ) -> None:
        """Call a vnode of another node without a task that waits; otherwise like `call`.

        Args:
            to: the vnode.
            request: the request.
            expect: the type of the reply.
            callback: called once, with the reply or the error that `call` would raise; see `Calls.begin`.
            deadline: the latest time for the reply, on Trio's clock. The peer's own timeout may end the call earlier,
                unless the request is patient.
        """
        self.calls_made += 1
        sent = trio.current_time()

        def on_reply(answer: Reply | ChordError) -> None:
            self._learn(to.address, request, answer, sent)
            if isinstance(answer, (expect, ChordError)):
                callback(answer)
            else:
                callback(_not_an_answer(to.address, request, answer))

        if not request.patient:
            deadline = min(deadline, sent + self.failure_detector.timeout(to.address))
        self._calls.begin(to, request, on_reply, deadline=deadline)

    async def call_watched(self, to: Contact, request: Request, expect: type[R]) -> R:
        """Make a call that may take long; pings meanwhile show if the callee is alive.

        The call of a patient request may take until the deadline of the enclosing cancel scopes. Other requests end
        as in `call`.

        Args:
            to: the vnode of the callee.
            request: the request.
            expect: the type of the reply.

        Raises:
            ChordError: the callee's error reply. Or an indefinite error, because a ping had no reply within the
                callee's own timeout.
        """
        outcomes: list[R | ChordError] = []
        news = trio.Event()
        is_pinging = False

        def on_reply(answer: R | ChordError) -> None:
            outcomes.append(answer)
            news.set()

        def has_pinged(answer: PingReply | ChordError) -> None:
            nonlocal is_pinging
            is_pinging = False
            if isinstance(answer, NO_REPLY) and not outcomes:
                # The callee may have carried out the request before it went down.
                on_reply(answer if not isinstance(answer, PeerUnreachable) else PeerLost(answer.message))

        self.begin(to, request, expect, on_reply, deadline=trio.current_effective_deadline())
        while not outcomes:
            with trio.move_on_after(self.failure_detector.timeout(to.address)):
                await news.wait()
            if not outcomes and not is_pinging:
                is_pinging = True
                self.begin(to, Ping(), PingReply, has_pinged, deadline=math.inf)
        if isinstance(outcomes[0], ChordError):
            raise outcomes[0]
        return outcomes[0]

    async def reach(self, address: str) -> Hello | None:
        """Return the hello of the node at an address; see `Calls.reach`.

        The node has `timeout_cap_s` to answer. The outcome does not count for the failure detector.

        Returns:
            The hello; None if the network has no connections, as in the simulator.

        Raises:
            ChordError: no node answered there in time, or the node refused the connection.
        """
        return await self._calls.reach(address, deadline=trio.current_time() + self._timing.timeout_cap_s)

    def _learn(self, address: str, request: Request, answer: Reply | ChordError, sent: float) -> None:
        now = trio.current_time()
        if isinstance(answer, PeerUnreachable) and answer.is_ended:
            return
        if isinstance(answer, Reply):
            event = self.failure_detector.answered(address, now, None if request.patient else now - sent)
            if event is not None:
                self._tell(event)
        elif not isinstance(answer, NO_REPLY):  # an error reply shows that the peer is alive
            if not isinstance(answer, UnknownVnode):
                self.heard_from(address)
        elif not (request.patient and isinstance(answer, DeadlineExceeded)):  # only the caller's deadline has passed
            is_refused = isinstance(answer, PeerUnreachable) and answer.is_refused
            self._tell(self.failure_detector.missed(address, now, is_refused, answer.message))

    async def _call_self(self, to: Contact | str, request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        if isinstance(to, str):
            return await reply_of(self._handler(None, request, Caller(self.address)))
        try:
            return await reply_of(self._handler(to.id, request, Caller(self.address)))
        except PeerUnreachable as error:
            if not error.is_own:
                raise
            raise Busy(error.message, after_ms=STALLED_MS) from error  # our own vnodes are never unreachable to us

    async def _call_out(self, to: Contact | str, address: str, request: Request) -> Reply:
        self.calls_made += 1
        sent = trio.current_time()
        deadline = math.inf if request.patient or isinstance(to, str) else sent + self.failure_detector.timeout(address)
        try:
            reply = await self._calls.call(to, request, deadline=deadline)
        except ChordError as error:
            self._learn(address, request, error, sent)
            await trio.lowlevel.checkpoint_if_cancelled()  # calls of a node that ends fail at once: a retry would spin
            raise
        self._learn(address, request, reply, sent)
        return reply

    def _tell(self, event: PeerChanged | None) -> None:
        if event is not None:
            self.transitions[event.state] += 1
            if event.state == "alive":
                self.passive.hurry(event.address, trio.current_time())
            self._observe(event)

    def heard_from(self, address: str) -> None:
        """Note that a node is alive, because a call or a reply from it has arrived."""
        event = self.failure_detector.heard_from(address, trio.current_time())
        if event is not None:  # seldom
            self._tell(event)

    def has_left(self, address: str, vnodes: Iterable[Point]) -> None:
        """Note that a node has left the ring for good, with these vnodes.

        Args:
            address: the address of the node.
            vnodes: the ids of its vnodes. Vnodes that an earlier node had at the same address still count as
                unreachable.
        """
        self._tell(self.failure_detector.left(address, trio.current_time()))
        self.give_up(list(vnodes))

    def give_up(self, vnodes: Collection[Point]) -> None:
        """Note that vnodes, given by their ids, have left for good, as they said themselves or an operator said."""
        for point in vnodes:
            self.goodbyes.said(point, self.now())
            self.passive.forget(point)

    def learn_left(self, vnode: Point, at: float) -> None:
        """Note that a vnode, given by its id, had left for good by the time `at`, as another node reports.

        This node waits for it no longer, unless the vnode has owned an arc since. A report that is younger than the
        known goodbye only by the time of a message is a copy of it.
        """
        known_at = self.goodbyes.said_at(vnode)
        if known_at is None or at > known_at + self._timing.timeout_cap_s:
            self.goodbyes.said(vnode, at)
        if vnode in self.goodbyes:
            self.passive.forget(vnode)

    def is_known_to_have_left(self, contact: Contact) -> bool:
        """Whether a vnode left for good and has not been a member since."""
        return contact.id in self.goodbyes

    def has_paused(self, address: str, *, is_only_copy: bool) -> None:
        """Note that a node stops for a while and keeps its records on disk.

        Args:
            address: the address of the node.
            is_only_copy: whether no other node has these records. If so, the node counts as paused, so that no other
                node takes its place; otherwise it counts as dead.
        """
        learn = self.failure_detector.paused if is_only_copy else self.failure_detector.stopped
        self._tell(learn(address, trio.current_time()))

    def is_dead(self, contact: Contact) -> bool:
        """Whether the successor lists and other lists drop a vnode, because its node is dead or has left.

        They never drop the vnodes of our own node.
        """
        return contact.address != self.address and self.failure_detector.is_dead(contact.address)

    def is_on_its_way(self, contact: Contact) -> bool:
        """Whether an unreachable vnode seems to be on its way back.

        It does if its address is alive, and no probe of the vnode has failed since a node was last heard from there.
        """
        is_alive = self.failure_detector.state(contact.address) == "alive"
        return is_alive and not self.passive.was_asked_in_vain(contact.id)

    def is_doubtful(self, contact: Contact) -> bool:
        """Whether to route around a vnode, because its node does not count as alive."""
        return contact.address != self.address and self.failure_detector.state(contact.address) != "alive"

    async def is_gone(self, contact: Contact) -> bool:
        """Find out whether a vnode of the ring is dead or has lost its place.

        The vnode may be back. So it is called at least once, until it answers or its node counts as dead. A vnode that
        is unknown at its address is gone. So is a vnode that owns no arc and is joining, or that takes longer than
        `down_out_s` to resume its place after a restart.

        Raises:
            ChordError: the answer is uncertain. The node said before it stopped that it will be back, and does not
                reply.
        """
        while True:
            try:
                pong = await self.call(contact, Ping(), PingReply)
            except UnknownVnode:
                return True
            except NO_REPLY:
                if self.failure_detector.state(contact.address) == "paused":
                    raise
                if self.is_dead(contact):
                    return True
                continue
            except ChordError:  # any other answer is a sign of life
                return False
            if pong.is_owner or pong.state not in ("joining", "resuming"):
                return False
            return pong.state == "joining" or self.has_lost_its_place(contact)

    def took_its_place(self, contact: Contact, asked_at: float, *, is_owner: bool) -> None:
        """Note that a vnode answered as a member of the ring.

        Args:
            contact: the vnode.
            asked_at: when it was asked, in seconds on the event loop's clock.
            is_owner: whether the vnode owns an arc. If it does, a vnode that had left has joined again.
        """
        self._not_ready.pop(contact, None)
        if is_owner:
            self.goodbyes.owned(contact.id, asked_at)

    def has_lost_its_place(self, contact: Contact) -> bool:
        """Note a vnode's answer that it has not rejoined the ring yet; return whether to give it up.

        The vnode has some time to take up its place again: `RESUMES_MAX` times `resume_s`, from its first such answer.
        After that it must join like a new vnode. It may be waiting for this node while this node waits for it.
        """
        now = trio.current_time()
        since, last = self._not_ready.get(contact, (now, now))
        if now - last > 2 * self._timing.stabilize_s:  # the reports were of an earlier absence
            since = now
        self._not_ready.pop(contact, None)
        self._not_ready[contact] = (since, now)
        while len(self._not_ready) > NOT_READY_MAX:
            del self._not_ready[next(iter(self._not_ready))]
        return now - since > RESUMES_MAX * self._timing.resume_s

    def sent_before(self) -> float:
        """Return a time before the request that this node is handling was sent, in seconds on Trio's clock."""
        return self.now() - self._timing.timeout_cap_s

    def now(self) -> float:
        """Return the current time on Trio's clock, in seconds, which the failure detector also uses."""
        return trio.current_time()

    def srtt(self, contact: Contact) -> float:
        """Return the smoothed round-trip time to a vnode's node in seconds; 0.001 if none was measured."""
        return self.failure_detector.srtt(contact.address) or 0.001


def _not_an_answer(address: str, request: Request, reply: Reply) -> MalformedMessage:
    return MalformedMessage(f"{address} answered {type(request).__name__} with {type(reply).__name__}")


class PassiveList:
    """Unreachable vnodes that this node once knew, with the time of each next probe.

    An unreachable vnode stays listed, because its disk may hold the only copies of records. It leaves the list when it
    is back, has left, or an operator forgets it. It stays even if another node lives at its address by now.

    All times are in seconds on Trio's clock.

    Args:
        timing: the first and the longest wait between two probes of a vnode.
        size_max: the number of addresses with vnodes that are probed. If there are more, the vnodes that were listed
            first wait without a probe. They take the places of vnodes that leave the list.
        waiting_max: the largest number of vnodes that wait without a probe. Beyond it, the list loses the oldest.
    """

    __slots__ = ("_due", "_in_vain", "_max", "_timing", "_waiting", "_waiting_max")

    def __init__(self, timing: Timing, size_max: int, waiting_max: int = 4096) -> None:
        self._timing = timing
        self._max = size_max
        self._waiting_max = waiting_max
        self._due: dict[Point, tuple[Contact, float, float]] = {}
        self._waiting: dict[Point, Contact] = {}  # the oldest first
        self._in_vain: dict[Point, None] = {}  # vnodes that did not answer their last probe

    def add(self, contact: Contact, now: float) -> None:
        """Remember a vnode that became unreachable; its first probe is due at once.

        If the vnode is already in the list, only its address changes. `now` is the current time on Trio's clock.
        """
        if contact.id in self._waiting:
            self._waiting[contact.id] = contact
            return
        known = self._due.get(contact.id)
        if known is None:
            self._probe(contact, now)
        elif known[0].address != contact.address:
            self._due[contact.id] = (contact, *known[1:])
            self._in_vain.pop(contact.id, None)

    def _probe(self, contact: Contact, now: float) -> None:
        """Schedule probes of a vnode from `now` on; if the list is full, the oldest wait."""
        self._due[contact.id] = (contact, now, self._timing.reprobe_first_s)
        while len(self._due) > self._max and len(self.addresses()) > self._max:
            oldest = next(iter(self._due))
            self._waiting[oldest] = self._due.pop(oldest)[0]
        while len(self._waiting) > self._waiting_max:
            lost = next(iter(self._waiting))
            del self._waiting[lost]
            self._in_vain.pop(lost, None)

    def forget(self, point: Point) -> None:
        """Remove a vnode, given by its id, that is back or has left; a waiting vnode may take its place."""
        self._waiting.pop(point, None)
        self._due.pop(point, None)
        self._in_vain.pop(point, None)
        while self._waiting and len(self.addresses()) < self._max:
            first = self._waiting.pop(next(iter(self._waiting)))
            self._due[first.id] = (first, -math.inf, self._timing.reprobe_first_s)

    def asked_in_vain(self, point: Point) -> None:
        """Note that a probe of a vnode, given by its id, failed, or that another node has its address now."""
        if point in self._due:
            self._in_vain[point] = None

    def was_asked_in_vain(self, point: Point) -> bool:
        """Return whether the last probe of a vnode failed, and no node was heard from at its address since then."""
        return point in self._in_vain

    def forget_at(self, address: str, living: Container[Point]) -> None:
        """Forget the unreachable vnodes of an address, because an operator gives them up.

        Args:
            address: the address of the node that will not be back.
            living: the ids of the vnodes of another node that lives at the address now. They are kept.
        """
        for contact in [c for c in self.remembered() if c.address == address and c.id not in living]:
            self.forget(contact.id)

    def due(self, now: float, rng: random.Random) -> Contact | None:
        """Return a random vnode that is due for a probe, and schedule its next probe.

        Return None if no vnode is due. `now` is the current time on Trio's clock.

        The waits double from `reprobe_first_s` (60 s) to `reprobe_max_s` (16 min), and vary at random by half. In a
        split, all vnodes of the other part become unreachable at once. Without the variation, all probes would be in
        step, and none might be due for a quarter of an hour after the split heals.
        """
        ready = [point for point, (_, at, _) in self._due.items() if at <= now]
        if not ready:
            return None
        contact, _, wait = self._due[rng.choice(ready)]
        self._due[contact.id] = (contact, now + wait * rng.uniform(0.5, 1.5), min(2 * wait, self._timing.reprobe_max_s))
        return contact

    def hurry(self, address: str, when: float) -> None:
        """Schedule probes of an address's vnodes, because a node answers there.

        Vnodes that waited without a probe are also probed.

        Args:
            address: the address.
            when: the time of the next probe, on Trio's clock.
        """
        for contact in [contact for contact in self._waiting.values() if contact.address == address]:
            del self._waiting[contact.id]
            self._probe(contact, when)
        for contact, _, wait in list(self._due.values()):
            if contact.address == address:
                self._due[contact.id] = (contact, when, wait)
                self._in_vain.pop(contact.id, None)

    def moved(self, contact: Contact) -> None:
        """Remove an unreachable vnode that answers at another address now.

        Args:
            contact: a vnode with its present address. If the list has it with that address, nothing happens.
        """
        known = self._waiting.get(contact.id) or self._due.get(contact.id, (None,))[0]
        if known is not None and known.address != contact.address:
            self.forget(contact.id)

    def __len__(self) -> int:
        return len(self._due) + len(self._waiting)

    def __contains__(self, point: Point) -> bool:
        return point in self._due or point in self._waiting

    def contacts(self) -> tuple[Contact, ...]:
        """Return the vnodes that are probed, the oldest entry first; empty only if no vnode waits either."""
        return tuple(contact for contact, _, _ in self._due.values())

    def remembered(self) -> tuple[Contact, ...]:
        """Return all vnodes of the list: the waiting vnodes, then the probed vnodes, each the oldest entry first."""
        return (*self._waiting.values(), *self.contacts())

    def nodes(self) -> tuple[Contact, ...]:
        """Return one vnode of each address, waiting vnodes included; probed addresses come first."""
        return tuple({c.address: c for c in (*self.contacts(), *self.remembered())}.values())

    def addresses(self) -> tuple[str, ...]:
        """Return the last known addresses of the vnodes that are probed, each once."""
        return tuple(dict.fromkeys(contact.address for contact in self.contacts()))
