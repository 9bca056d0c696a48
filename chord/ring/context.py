"""What the vnodes of one node share: configuration, peers, storage, dice, clock, observer, counters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from chord.config import SKEW_REPORTED_MS, NodeConfig
from chord.events import ClockSkewed, Event, Observer
from chord.ids import Circle, Point
from chord.net.peers import Peers
from chord.net.timers import Timers
from chord.ring.health import Health
from chord.store.reap_log import ReapLog
from chord.store.storage import Storage
from chord.wire.hello import Greeter
from chord.wire.messages import PAGE_RECORDS_MAX, Contact

if TYPE_CHECKING:
    import random

    from chord.ring.vnode import Vnode


PAGE_RECORDS_SERVING = 32
"""So many records make a page of work that can wait: a few milliseconds of the loop, in which nobody else is served."""

PAGE_RECORDS_IDLE = PAGE_RECORDS_MAX
"""The same where no client is served: fewer round trips, and syncs that carry more."""

SERVING_S = 0.25  # after the last get or put a node counts as serving for so long

LAG_S = 0.002
LAG_FACTOR = 4
REST_FACTOR = 3
LAG_WAIT_MAX_S = 0.25
SKEWS_MAX = 64
SKEW_ROUNDS = 20
"""What a neighbour's clock said counts for so many rounds of stabilize: it may have left, or been set right."""


class Host:
    """The surroundings of a vnode.

    Attributes:
        circle: the identifier circle.
        reap_log: what was reaped of the records in `storage`.
        save: write down what the node is to remember after a restart; returns when it is durable.
        note_running: find out whether the process stood still; see `Timetable.note_running`.
        bring_home_soon: look for misplaced records now instead of at the next round.
        is_receiving: whether any vnode is in the middle of receiving an arc; then nothing is dropped.
        start_task: run an async function in the node's maintenance nursery; it ends with the node.
        greeter: knows the ring id.
        health: why this node does not serve all requests, if it does not.
        counters: named totals since the start.
        is_leaving: the node hands everything over and accepts nothing new.
        is_ending: the node begins no new work.
        is_stalled: the disk hangs; the node serves nobody and calls nobody until it answers (`disk_watch`).
        timers: run with the maintenance.
        on_write: called with every key that changes, just before it does, so that a transfer sends it again.
    """

    def __init__(
        self,
        config: NodeConfig,
        peers: Peers,
        storage: Storage,
        rng: random.Random,
        wall_now_ms: Callable[[], int],
        observe: Observer,
        greeter: Greeter,
    ) -> None:
        self.config = config
        self.constants, self.timing, self.limits = config.ring, config.timing, config.limits
        self.circle: Circle = config.ring.circle
        self.greeter = greeter
        self.peers = peers
        self.storage = storage
        self.reap_log = ReapLog(config.ring.circle, storage, config.limits)
        self.rng = rng
        self.wall_now_ms = wall_now_ms
        self._observe = observe
        self.address = ""
        self.vnodes: dict[Point, Vnode] = {}
        self.counters: Counter[str] = Counter()
        self._skews: dict[str, tuple[int, float]] = {}  # by how many ms a neighbour's clock is ahead, and heard when
        self._served = 0  # gets and puts, when somebody last looked
        self._served_at = -math.inf
        self.health = Health(self.tell)
        if not storage.is_instant:
            self.health.watch("records", lambda: _refuses(self.storage.refusal))
        self.is_leaving = False
        self.is_ending = False
        self.is_stalled = False
        self.timers = Timers()
        self.on_write: list[Callable[[Point, bytes], None]] = []
        self.start_task: Callable[..., None] = _no_tasks
        self.save: Callable[[], Awaitable[bool]] = _remember_nothing
        self.note_running: Callable[[], None] = _nothing
        self.bring_home_soon: Callable[[], None] = _nothing
        self.is_receiving: Callable[[], bool] = lambda: False

    def tell(self, happened: list[Event]) -> bool:
        """Pass events on to the observer and count them. Returns whether there were any."""
        for event in happened:
            self.counters[type(event).__name__] += 1
            self._observe(event)
        return bool(happened)

    def note_clock(self, address: str, now_ms: int) -> None:
        """A neighbour has told the time. A clock that is off is reported once, until it is right again."""
        skew = now_ms - self.wall_now_ms()
        before, _ = self._skews.pop(address, (0, 0.0))
        self._skews[address] = skew, trio.current_time()
        while len(self._skews) > SKEWS_MAX:
            del self._skews[next(iter(self._skews))]
        if abs(skew) > SKEW_REPORTED_MS >= abs(before):
            self.tell([ClockSkewed(address, skew)])

    @property
    def skew_ms(self) -> int:
        """By how much the clocks of this node and of a neighbour heard of lately differ at most."""
        since = trio.current_time() - SKEW_ROUNDS * self.timing.stabilize_s
        return max((abs(skew) for skew, heard in self._skews.values() if heard > since), default=0)

    def far_clock(self) -> str:
        """Return the address of the neighbour whose clock differs most from this node's, of those heard of lately."""
        since = trio.current_time() - SKEW_ROUNDS * self.timing.stabilize_s
        heard = {address: abs(skew) for address, (skew, at) in self._skews.items() if at > since}
        return max(heard, key=heard.__getitem__, default=self.address)

    def is_serving(self) -> bool:
        """Whether a client has been served lately."""
        served, now = self.counters["gets"] + self.counters["puts"], trio.current_time()
        if served != self._served:
            self._served, self._served_at = served, now
        return now - self._served_at < SERVING_S

    @property
    def page_records(self) -> int:
        """So many records make the next page of what is compared, handed over or fetched."""
        return PAGE_RECORDS_SERVING if self.is_serving() else PAGE_RECORDS_IDLE

    async def give_way(self, since: float) -> None:
        """Between two pages of work that can wait: let others go first, the longer the more there is to do.

        The lag of the loop is measured, not guessed: an idle one costs next to nothing. And while clients are served
        here, work that began then is followed by a rest three times as long: on a machine that nodes share, what one of
        them does for another is taken from all.
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
        """Return an interval drawn uniformly from half to one and a half times its mean."""
        return seconds * self.rng.uniform(0.5, 1.5)

    def contacts(self) -> tuple[Contact, ...]:
        """Return every vnode of other nodes that this node could name: silent ones, fingers, lists."""
        vnodes = self.vnodes.values()
        named = [c for vnode in vnodes for c in (*vnode.fingers.contacts(), *vnode.listed())]
        named += self.peers.passive.contacts()
        return tuple({(c.id, c.address): c for c in named if c.address != self.address}.values())

    def nodes_known(self) -> set[str]:
        """Return every other node that this node could name, by its address; of a vnode that moved, the present one.

        A node that was last seen at an address where another lives now counts all the same, as `once ADDRESS`.
        """
        vnodes = self.vnodes.values()
        fingers = {c.id: c.address for vnode in vnodes for c in vnode.fingers.contacts()}
        listed = {c.id: c.address for vnode in vnodes for c in vnode.listed()}
        silent = {c.id: c.address for vnode in vnodes for c, _ in vnode.view.downs()}
        silent |= {c.id: c.address for c in self.peers.passive.remembered()}
        living = {address for point, address in (fingers | listed).items() if point not in self.vnodes}
        gone = {address for point, address in silent.items() if point not in listed and point not in self.vnodes}
        taken = {self.address, *listed.values()}
        moved = {self.address} & living | gone & taken
        return living - {self.address} | gone - taken | {f"once {address}" for address in moved}

    def owner_of(self, point: int) -> Vnode | None:
        """Return the local vnode that answers for a point, or None."""
        for vnode in self.vnodes.values():
            if vnode.ownership.is_owner(point):
                return vnode
        return None


def _refuses(why: str) -> str:
    return f"its store takes no writes: {why}" if why else ""


async def _remember_nothing() -> bool:
    """A vnode outside of any node has nothing to write, and nowhere."""
    return True


def _nothing() -> None:
    """Before the node runs there is nothing to be done."""


def _no_tasks(task: Callable[..., Awaitable[Any]], *args: Any) -> None:
    raise RuntimeError("the node is not running")
