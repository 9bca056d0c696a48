"""One run of an entry on virtual time, with drawn delays and chosen faults."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import msgspec
import trio

from chord import testing
from chord.gallery.entry import Altered, Entry
from chord.gallery.explore import systems_of
from chord.gallery.laws import Law
from chord.gallery.process import Name, Send, Set, Unset
from chord.gallery.recording import Recording
from chord.gallery.world import Choice, Order, Parcel, SmallWorld, System, Taken
from chord.sim.messages import MessageNetwork
from chord.testing import Delay

THINK_S = 0.05
"""The mean pause between two asks at one process, and between two moves of machines."""

DELAY_S = 0.05


class Outage(msgspec.Struct, frozen=True):
    """A process that is down from `from_s` to `until_s`, in virtual seconds of the run.

    If `until_s` is None, the process does not start again.
    """

    process: Name
    from_s: float
    until_s: float | None = None


class Partition(msgspec.Struct, frozen=True):
    """A partition: from `from_s` to `until_s`, in virtual seconds, messages between the groups are lost."""

    groups: tuple[tuple[Name, ...], ...]
    from_s: float
    until_s: float


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """The delays, faults and limits of a run on virtual time.

    Attributes:
        seed: the seed of all draws.
        order: the order of messages; None: as the entry claims.
        delay: draws the delay of each message in seconds; default: exponential, with a mean of 50 ms.
        loss: the fraction of messages that are lost, from 0 to 1.
        double: the fraction of messages that arrive twice, from 0 to 1.
        outages: the crashes.
        splits: the partitions. Only one counts at a time.
        until_s: the end of the run in virtual seconds, if it does not end before.
        steps_max: the most steps of the run.
    """

    seed: int = 0
    order: Order | None = None
    delay: Delay = testing.exponential(DELAY_S)
    loss: float = 0.0
    double: float = 0.0
    outages: tuple[Outage, ...] = ()
    splits: tuple[Partition, ...] = ()
    until_s: float = 600.0
    steps_max: int = 20_000


class TimedRun(msgspec.Struct, frozen=True):
    """The result of a run on virtual time.

    Attributes:
        recording: its events.
        is_goal: whether it reached the goal.
        breaches: by name of each broken law, how it is broken, in words.
        digest: a digest of all events, in hex. Runs with the same seed and conditions have the same digest.
        seconds: the virtual seconds that it took.
        world: the state at the end.
    """

    recording: Recording
    is_goal: bool
    breaches: dict[str, str]
    digest: str
    seconds: float
    world: SmallWorld


def run_timed(
    entry: Entry, nodes: int, conditions: Conditions, variant: Altered | None = None, *, has_states: bool = True
) -> TimedRun:
    """Run an entry on virtual time until it has reached its goal, and no message is in transit if it ends quietly.

    The run also ends at the limits of `conditions`. It goes on after a law breaks.

    Args:
        entry: the entry.
        nodes: the number of processes.
        conditions: delays and faults.
        variant: a bug or a printed form; None: the algorithm itself.
        has_states: keep the state of a process after each of its events. Long runs without laws of runs need no states.
    """
    made = msgspec.structs.replace(entry, starts=None)  # the first start only
    (system,) = systems_of(made, nodes, variant, conditions.order)
    driver = _Driver(system, entry, conditions, Recording(system.names, has_states=has_states))
    testing.run(driver.run, seed=conditions.seed)
    for law in entry.laws:
        why = law.breach(driver.recording) if law.is_of_runs else ""
        if why:
            driver.breaches[law.name] = why
    digest = blake2b(b"\n".join(driver.recording.lines()), digest_size=16).hexdigest()
    is_goal = entry.goal(driver.world)
    return TimedRun(driver.recording, is_goal, driver.breaches, digest, driver.ended_s, driver.world)


def delay_of(text: str) -> Delay:
    """Return the delay that a text describes: constant (50ms), exponential (exp:50ms) or uniform:10ms-90ms.

    Raises:
        ValueError: the text describes no delay.
    """
    found = re.fullmatch(r"(?:(exp|uniform):)?(\d+(?:\.\d+)?)ms(?:-(\d+(?:\.\d+)?)ms)?", text)
    if found is None or (found[3] is not None) != (found[1] == "uniform") or (found[1] and not float(found[2])):
        raise ValueError(f"{text!r} is not a delay")
    low_s = float(found[2]) / 1000
    if found[1] == "exp":
        return testing.exponential(low_s)
    return testing.uniform(low_s, float(found[3]) / 1000 if found[3] else low_s)


class _Driver:
    """Takes the steps of one world when the network, the timers and the environment say so."""

    def __init__(self, system: System, entry: Entry, conditions: Conditions, recording: Recording) -> None:
        self._system = system
        self._entry = entry
        self._conditions = conditions
        self._laws: list[Law] = [law for law in entry.laws if not law.is_of_runs]
        self._rng = random.Random(f"gallery/{conditions.seed}")
        self._network = MessageNetwork(
            conditions.seed, delay=conditions.delay, in_order=system.order == "fifo", quantum_s=1e-6
        )
        self._network.loss = conditions.loss
        self._timers: dict[tuple[Name, str], object] = {}  # the latest setting of each timer
        self._thinking: set[Name] = set()  # the processes with a scheduled ask
        self._is_moving = False
        self._steps = 0
        self._over = trio.Event()
        self.recording = recording
        self.world: SmallWorld
        self.breaches: dict[str, str] = {}
        self.ended_s = 0.0

    async def run(self) -> None:
        conditions = self._conditions
        taken: list[Taken] = []
        self.world = self._system.start(self.recording, taken)
        for outage in conditions.outages:
            self._later(outage.from_s, outage.process, self._step, Choice("crash", outage.process))
            if outage.until_s is not None:
                self._later(outage.until_s, outage.process, self._step, Choice("restart", outage.process))
        for split in conditions.splits:
            self._later(split.from_s, "", lambda split: self._network.partition(*split.groups), split)
            self._later(split.until_s, "", lambda _: self._network.heal(), split)
        self._after(taken)
        with trio.move_on_after(conditions.until_s):
            await self._over.wait()
        self._over.set()  # events that are due later take no step
        self.ended_s = trio.current_time()

    def _later(self, after_s: float, name: Name, happen: Callable[[Any], None], what: Any) -> None:
        self._network.at(trio.current_time() + after_s, name, happen, what)

    def _step(self, choice: Choice) -> None:
        if self._over.is_set():
            return
        if choice.what in ("crash", "restart") and (choice.process in self.world.down) == (choice.what == "crash"):
            return
        self._steps += 1
        if choice.what == "crash":
            self._timers = {key: setting for key, setting in self._timers.items() if key[0] != choice.process}
        self._after(self._system.take(self.world, choice, self.recording, trio.current_time()))

    def _after(self, taken: list[Taken]) -> None:
        """Carry out the effects of a step, check the laws, and see whether the run is over."""
        sent = []
        for name, effect, parcel in ((each.process, each.effect, each.parcel) for each in taken):
            if isinstance(effect, Send):
                assert parcel is not None
                sent.append((name, effect.to, parcel))
            elif isinstance(effect, Set):
                setting = self._timers[name, effect.timer] = object()
                after_s = self._rng.uniform(effect.low_s, effect.high_s)
                self._later(after_s, name, self._fire, (name, effect.timer, setting))
            elif isinstance(effect, Unset):
                self._timers.pop((name, effect.timer), None)
        for law in self._laws:
            if law.name not in self.breaches and (why := law.breach(self.world)):
                self.breaches[law.name] = why
        for sender, receiver, parcel in sent:
            self._send(sender, receiver, parcel)
        for sender, receiver, parcel in sent:
            if self._conditions.double and self._rng.random() < self._conditions.double:
                self._double(sender, receiver, parcel)
        for process in self.world.up():
            if process.me not in self._thinking and process.asks():
                self._thinking.add(process.me)
                self._later(self._rng.expovariate(1 / THINK_S), process.me, self._ask, process.me)
        if not self._is_moving and self._system.has_machines and self._system.moves(self.world):
            self._is_moving = True
            self._later(self._rng.expovariate(1 / THINK_S), "", self._move, None)
        self._end_if_over()

    def _send(self, sender: Name, receiver: Name, parcel: Parcel) -> None:
        if not self._network.send(sender, receiver, self._arrive, (sender, receiver, parcel)):
            place = self._place_of(sender, receiver, parcel)
            self._system.take(self.world, Choice("lose", receiver, sender, place), self.recording, trio.current_time())

    def _double(self, sender: Name, receiver: Name, parcel: Parcel) -> None:
        if (place := self._place_of(sender, receiver, parcel)) >= 0:
            choice = Choice("double", receiver, sender, place)
            self._system.take(self.world, choice, self.recording, trio.current_time())
            self._send(sender, receiver, parcel)

    def _place_of(self, sender: Name, receiver: Name, parcel: Parcel) -> int:
        """Return the place of a parcel in its channel; -1 if it was lost."""
        parcels = self.world.channels.get(f"{sender}→{receiver}", ())
        return next((place for place, other in enumerate(parcels) if other is parcel), -1)

    # -- events of the network ------------------------------------------------------------------

    def _arrive(self, what: tuple[Name, Name, Parcel]) -> None:
        sender, receiver, parcel = what
        self._step(Choice("receive", receiver, sender, self._place_of(sender, receiver, parcel)))

    def _fire(self, what: tuple[Name, str, object]) -> None:
        name, timer, setting = what
        if self._timers.get((name, timer)) is setting:
            del self._timers[name, timer]
            self._step(Choice("timer", name, timer))
        self._end_if_over()

    def _ask(self, name: Name) -> None:
        self._thinking.discard(name)
        asks = self.world.processes[name].asks()
        if asks and name not in self.world.down:
            self._step(Choice("ask", name, self._rng.choice(asks)))
        self._end_if_over()

    def _move(self, _: None) -> None:
        self._is_moving = False
        moves = self._system.moves(self.world)
        if moves:
            self._step(self._rng.choice(moves))
        self._end_if_over()

    def _end_if_over(self) -> None:
        is_quiet = not self.world.channels or not self._entry.ends_quietly
        is_done = is_quiet and not self._thinking and self._entry.goal(self.world)
        if is_done or self._steps >= self._conditions.steps_max or self._network.next_due() == float("inf"):
            self._over.set()
