"""The node context: what the vnodes of one node share.

It holds configuration, peers, storage, random numbers, clock, observer and counters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from chord.config import SKEW_REPORTED_MS, NodeConfig
from chord.events import ClockSkewed, Event
from chord.ids import Circle, Point
from chord.net.peers import Peers
from chord.net.tasks import Tasks
from chord.net.timers import Timers
from chord.observe.event_log import EventLog
from chord.observe.metrics import HOP_BOUNDS, Histogram
from chord.observe.sampler import Sampler
from chord.ring.health import Health
from chord.ring.members import Members
from chord.store.reap_log import ReapLog
from chord.store.storage import Storage
from chord.wire.hello import HelloPolicy
from chord.wire.messages import PAGE_RECORDS_MAX, Contact, Mode, Route

if TYPE_CHECKING:
    import random

    from chord.ring.vnode import Vnode


PAGE_RECORDS_SERVING = 32
"""Page size of background work while clients are active, in records.

A page takes a few milliseconds of event-loop time, in which the node serves no request.
"""

PAGE_RECORDS_IDLE = PAGE_RECORDS_MAX
"""Page size while no client is active, in records.

Larger pages need fewer round trips and fewer writes to the disk.
"""

SERVING_S = 0.25  # a node counts as serving for this long after the last get or put

LAG_S = 0.002
LAG_FACTOR = 4
REST_FACTOR = 3
LAG_WAIT_MAX_S = 0.25
SKEWS_MAX = 64
SKEW_ROUNDS = 20
"""How many stabilize rounds a neighbour's clock reading counts.

After that the neighbour may have left, or its clock may have been set right.
"""


class NodeContext:
    """The parts of a node that all its vnodes share.

    Attributes:
        config: the node's configuration.
        circle: the identifier circle.
        hello_policy: this node's side of every handshake; holds the ring id.
        peers: calls to other nodes, and this node's verdicts on them.
        storage: the node's record store.
        reap_log: the log of reaped records of `storage`.
        rng: the source of random numbers.
        wall_now_ms: returns the wall clock, in ms since 1970.
        events: the log of the node's events.
        address: HOST:PORT under which other nodes reach this node; "" before it runs.
        vnodes: the vnodes of this node, by id.
        counters: named totals since the start.
        hops: the path lengths of lookups and forwarded requests, by route.
        lookups: the number of lookups and forwarded requests that ended, by mode, route and outcome: "ok", "error", or
            "cancelled" if the caller gave up.
        sampler: counts requests while a watcher asks for it; otherwise None.
        loop_lag: how late the event loop began periodic steps, in seconds.
        health: why this node does not serve all requests, if it does not.
        is_leaving: whether the node leaves the ring: it hands its arcs over and accepts no transfer. It stays set.
        is_ending: whether the maintenance tasks end, so that the node begins no new work; see `end`.
        is_stalled: whether the disk hangs. Meanwhile the node serves no requests and makes no calls (`disk_watch`).
        timers: callbacks at given times. They run as long as the maintenance tasks.
        members: the membership list; None if this node keeps none.
        on_write: called with the point and key of every change, just before it, so that a transfer sends the key again.
        on_arc_lost: called when a vnode has lost a part of its arc, so its records there may have to move to other
            nodes.
        on_news: called with the vnodes that must ask their neighbours soon, when something in the ring has changed.
        tasks: the tasks of the maintenance nursery. They end with the node.
    """

    # Defaults of the class: an object with 30 attributes of its own weighs 1.6 kB more.
    sampler: Sampler | None = None
    is_leaving = False
    is_ending = False
    is_stalled = False

    def __init__(
        self,
        config: NodeConfig,
        peers: Peers,
        storage: Storage,
        rng: random.Random,
        wall_now_ms: Callable[[], int],
        events: EventLog,
        hello_policy: HelloPolicy,
    ) -> None:
        self.config = config
        self.constants, self.timing, self.limits = config.ring, config.timing, config.limits
        self.circle: Circle = config.ring.circle
        self.hello_policy = hello_policy
        self.peers = peers
        self.storage = storage
        self.reap_log = ReapLog(config.ring.circle, storage, config.limits)
        self.rng = rng
        self.wall_now_ms = wall_now_ms
        self.events = events
        self.address = ""
        self.vnodes: dict[Point, Vnode] = {}
        self.members = Members(config.ring.circle, config.limits.members_max) if config.members == "on" else None
        self.counters: Counter[str] = Counter()
        self.hops: dict[Route, Histogram] = {}
        self.lookups: Counter[tuple[Mode, Route, str]] = Counter()
        self.loop_lag = Histogram()
        self._skews: dict[str, tuple[int, float]] = {}  # address to (ms by which its clock is ahead, when heard)
        self._served = 0  # gets and puts at the last look
        self._served_at = -math.inf
        self.health = Health(self.tell)
        if not storage.is_instant:
            self.health.watch("records", lambda: _refuses(self.storage.refusal))
        self.timers = Timers()
        self.on_write: list[Callable[[Point, bytes], None]] = []
        self.tasks = Tasks("the node")
        self.on_arc_lost: list[Callable[[], None]] = []
        self.on_news: list[Callable[[tuple[Point, ...]], None]] = []

    def settle_address(self, address: str) -> None:
        """Use this address from now on: HOST:PORT under which other nodes reach this node."""
        self.address = self.peers.address = self.events.address = address

    def end(self) -> None:
        """Begin no new work and no new tasks from now on; running tasks go on."""
        self.is_ending = True
        self.tasks.close()

    def tell(self, happened: list[Event]) -> bool:
        """Emit events and count them; return whether there were any."""
        for event in happened:
            self.counters[type(event).__name__] += 1
            self.events.emit(event)
        return bool(happened)

    def note_hops(self, route: Route, hops: int) -> None:
        """Count the path length `hops` of a lookup or of a forwarded request on a route."""
        if route not in self.hops:
            self.hops[route] = Histogram(HOP_BOUNDS)
        self.hops[route].note(hops)

    def note_clock(self, address: str, now_ms: int) -> None:
        """Note the time on a neighbour's wall clock, and report a wrong clock.

        The event `ClockSkewed` reports a clock that differs from this node's by more than five seconds. It occurs once
        per neighbour, and again only after a reading within that limit.

        Args:
            address: the neighbour.
            now_ms: the time on its clock now, in ms since 1970.
        """
        skew = now_ms - self.wall_now_ms()
        before, _ = self._skews.pop(address, (0, 0.0))
        self._skews[address] = skew, trio.current_time()
        while len(self._skews) > SKEWS_MAX:
            del self._skews[next(iter(self._skews))]
        if abs(skew) > SKEW_REPORTED_MS >= abs(before):
            self.tell([ClockSkewed(address, skew)])

    @property
    def skew_ms(self) -> int:
        """The largest recent difference to a neighbour's wall clock, in ms, without sign.

        A reading is recent for 20 stabilize rounds (`SKEW_ROUNDS`). Without a recent reading the value is 0.
        """
        since = trio.current_time() - SKEW_ROUNDS * self.timing.stabilize_s
        return max((abs(skew) for skew, received in self._skews.values() if received > since), default=0)

    def far_clock(self) -> str:
        """Return the address of the neighbour with the largest recent clock difference.

        Readings count as in `skew_ms`. Without a recent reading, return this node's own address.
        """
        since = trio.current_time() - SKEW_ROUNDS * self.timing.stabilize_s
        received = {address: abs(skew) for address, (skew, at) in self._skews.items() if at > since}
        return max(received, key=received.__getitem__, default=self.address)

    def is_serving(self) -> bool:
        """Return whether this node has served a get or a put within the last 0.25 seconds (`SERVING_S`).

        This method itself notes new requests. The time counts from the first call that notices a request.
        """
        served, now = self.counters["gets"] + self.counters["puts"], trio.current_time()
        if served != self._served:
            self._served, self._served_at = served, now
        return now - self._served_at < SERVING_S

    @property
    def page_records(self) -> int:
        """The number of records in the next page to compare, hand over or fetch.

        The number is smaller while `is_serving` is true.
        """
        return PAGE_RECORDS_SERVING if self.is_serving() else PAGE_RECORDS_IDLE

    async def give_way(self, since: float) -> None:
        """Let other tasks run between two pages of background work.

        The pause is four times the measured lag of the event loop; an idle loop gets none. While this node serves
        clients, the pause is at least three times as long as the work since `since`. On a machine that several nodes
        share, background work for one node slows all of them. No pause exceeds 0.25 seconds (`LAG_WAIT_MAX_S`).

        Args:
            since: when the page began, on Trio's clock.

        Concurrency: checkpoints.
        """
        began = trio.current_time()
        await trio.lowlevel.checkpoint()
        lag_s = trio.current_time() - began
        wait_s = LAG_FACTOR * lag_s if lag_s > LAG_S else 0.0
        if self.is_serving():
            wait_s = max(wait_s, REST_FACTOR * (began - since))
        if wait_s > 0:
            await trio.sleep(min(wait_s, LAG_WAIT_MAX_S))

    def jitter(self, seconds: float) -> float:
        """Return an interval drawn uniformly from 0.5 to 1.5 times the given seconds."""
        return seconds * self.rng.uniform(0.5, 1.5)

    def contacts(self) -> tuple[Contact, ...]:
        """Return every vnode of other nodes that this node knows.

        First come fingers and the entries of predecessor and successor lists, then the unreachable vnodes that this
        node probes. A vnode that is known at two addresses occurs twice.
        """
        vnodes = self.vnodes.values()
        named = [c for vnode in vnodes for c in (*vnode.fingers.contacts(), *vnode.listed())]
        named += self.peers.passive.contacts()
        return tuple({(c.id, c.address): c for c in named if c.address != self.address}.values())

    def nodes_known(self) -> set[str]:
        """Return the addresses of all other nodes that this node knows.

        If a vnode has moved, its new address counts. A node last seen at an address that now belongs to another node
        still counts, as `once ADDRESS`.
        """
        vnodes = self.vnodes.values()
        fingers = {c.id: c.address for vnode in vnodes for c in vnode.fingers.contacts()}
        listed = {c.id: c.address for vnode in vnodes for c in vnode.listed()}
        unreachable = {c.id: c.address for vnode in vnodes for c, _ in vnode.preference_list.unreachable()}
        unreachable |= {c.id: c.address for c in self.peers.passive.remembered()}
        living = {address for point, address in (fingers | listed).items() if point not in self.vnodes}
        gone = {address for point, address in unreachable.items() if point not in listed and point not in self.vnodes}
        taken = {self.address, *listed.values()}
        moved = {self.address} & living | gone & taken
        return living - {self.address} | gone - taken | {f"once {address}" for address in moved}

    def arc_lost(self) -> None:
        """Call the `on_arc_lost` functions, because a vnode has lost a part of its arc."""
        for note in self.on_arc_lost:
            note()

    def news(self, *vnodes: Point) -> None:
        """Note that something in the ring has changed, or was not confirmed.

        Periods of the maintenance steps that have grown in a calm ring then fall back to their configured lengths.

        Args:
            vnodes: the vnodes of this node that must ask their neighbours soon.
        """
        for note in self.on_news:
            note(vnodes)

    def owner_of(self, point: int) -> Vnode | None:
        """Return the local vnode that answers for a point; None if no local vnode does."""
        for vnode in self.vnodes.values():
            if vnode.ownership.is_owner(point):
                return vnode
        return None


def _refuses(why: str) -> str:
    return f"its store takes no writes: {why}" if why else ""
