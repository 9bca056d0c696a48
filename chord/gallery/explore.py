"""Every run of a small world, and the shortest run that breaks a law. Also one run, step by step."""

from __future__ import annotations

import gc
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from chord.gallery.entry import ENDLESS, HOPELESS, STUCK, Altered, Entry, Fault
from chord.gallery.laws import Law
from chord.gallery.process import Machine, names_of
from chord.gallery.recording import Recording
from chord.gallery.world import Choice, FaultBudget, Order, SmallWorld, System

STATES_MAX = 300_000

Kind: TypeAlias = Literal["holds", "broken", "stuck", "hopeless", "endless", "too many"]
"""The kinds of results.

- holds: no law breaks, and the goal stays reachable from every state.
- broken: a law breaks.
- stuck: a state before the goal has no possible step.
- hopeless: no run from a state reaches the goal.
- endless: a run goes through a cycle of states forever, and none of them has reached the goal.
- too many: the search stopped at its limit of states. It proves nothing.
"""

ONE_OF: dict[Fault, FaultBudget] = {
    "order": FaultBudget(),
    "loss": FaultBudget(lose=1),
    "copies": FaultBudget(double=1),
    "crash": FaultBudget(crash=1),
    "restart": FaultBudget(crash=1, restart=1),
}
"""The faults of a search that tries one fault."""


class SearchResult(msgspec.Struct, frozen=True):
    """The result of a search.

    Attributes:
        kind: "holds", "broken", "stuck", "hopeless", "endless" or "too many".
        states: the number of states that the search visited.
        law: the broken law; None: the kind is not "broken".
        why: how the law is broken, in words; "": no law is broken.
        path: the steps of the shortest run to the broken, stuck, hopeless or endless state; (): no such state.
        first: the index of the start of this run among the starts of the search.
        faults: the faults that could occur.
    """

    kind: Kind
    states: int
    law: Law | None = None
    why: str = ""
    path: tuple[Choice, ...] = ()
    first: int = 0
    faults: FaultBudget = FaultBudget()

    @property
    def found(self) -> str:
        """The name of the broken law. If no law is broken, the kind of the result."""
        return self.law.name if self.law is not None else self.kind


class Search:
    """A search of all states, breadth first.

    Args:
        systems: the worlds from which the search starts. All have the same rules.
        laws: the laws to check. With laws of runs, the search visits all histories: states with their past.
        goal: returns whether a state has reached the goal. It must stay reachable from every state.
        is_inevitable: every run must reach the goal.
        states_max: the most states that the search visits. With more, the result is "too many".
        watch: called now and then with the number of states that were visited so far.
    """

    def __init__(
        self,
        systems: Sequence[System],
        laws: Iterable[Law],
        goal: Callable[[SmallWorld], bool],
        *,
        is_inevitable: bool = False,
        states_max: int = STATES_MAX,
        watch: Callable[[int], None] | None = None,
    ) -> None:
        self._systems = systems
        self._laws = tuple(laws)
        self._goal = goal
        self._is_inevitable = is_inevitable
        self._states_max = states_max
        self._watch = watch
        self._with_past = any(law.is_of_runs for law in self._laws)
        self._numbers: dict[bytes, int] = {}  # of each state, by its fingerprint
        self._queue: deque[tuple[int, bytes, Recording | None]] = deque()
        self._came: list[tuple[int, Choice | None]] = []  # the state before each state; a start has its own number
        self._steps = array("I")  # pairs: a state, and a state after one step
        self._is_goal: list[bool] = []

    def run(self) -> SearchResult:
        """Search, and return the result."""
        is_collecting = gc.isenabled()
        gc.disable()  # a search makes no cycles, and keeps many objects, which the collector would scan again and again
        try:
            return self._run()
        finally:
            if is_collecting:
                gc.enable()

    def _run(self) -> SearchResult:
        for number, system in enumerate(self._systems):
            recording = Recording(system.names) if self._with_past else None
            world = system.start(recording)
            if (broken := self._visit(system, world, recording, number, None)) is not None:
                return broken
        system = self._systems[0]
        while self._queue:
            number, state, past = self._queue.popleft()
            world = system.decode(state)
            choices = system.choices(world)
            if not choices and not self._is_goal[number]:
                return self._result(STUCK, number)
            for choice in choices:
                recording = None if past is None else past.copy()
                system.take(world, choice, recording)
                if (broken := self._visit(system, world, recording, number, choice)) is not None:
                    return broken
                world = system.decode(state)
            if len(self._came) > self._states_max:
                return SearchResult("too many", len(self._came))
            if self._watch is not None and number % 4096 == 0:
                self._watch(len(self._came))
        return self._of_goal()

    def _visit(
        self, system: System, world: SmallWorld, recording: Recording | None, before: int, choice: Choice | None
    ) -> SearchResult | None:
        """Note a state; return a result if it is new and breaks a law."""
        state = system.encode(world)
        fingerprint = system.fingerprint(state, recording)
        number = self._numbers.setdefault(fingerprint, len(self._came))
        if choice is not None:
            self._steps.extend((before, number))
        if number < len(self._came):
            return None
        self._came.append((before, choice))
        self._is_goal.append(self._goal(world))
        for law in self._laws:
            why = law.breach(recording if law.is_of_runs else world)
            if why:
                return self._result("broken", number, law, why)
        self._queue.append((number, state, recording))
        return None

    def _of_goal(self) -> SearchResult:
        """Return the result of a complete search without a broken law."""
        into: list[list[int]] = [[] for _ in self._came]
        exits = [0] * len(self._came)
        for before, after in zip(self._steps[::2], self._steps[1::2], strict=True):
            into[after].append(before)
            exits[before] += 1
        reaching = {number for number, is_goal in enumerate(self._is_goal) if is_goal}
        todo = list(reaching)
        while todo:
            for number in into[todo.pop()]:
                if number not in reaching:
                    reaching.add(number)
                    todo.append(number)
        for number in range(len(self._came)):
            if number not in reaching:
                return self._result(HOPELESS, number)
        if self._is_inevitable and (cycle := self._endless(into, exits)) is not None:
            return self._result(ENDLESS, cycle)
        return SearchResult("holds", len(self._came))

    def _endless(self, into: list[list[int]], exits: list[int]) -> int | None:
        """Return the first state from which a run can avoid the goal forever, or None.

        `exits` has the number of steps from each state. It loses those that lead to the goal in the end.
        """
        done = [number for number, is_goal in enumerate(self._is_goal) if is_goal]
        is_done = self._is_goal[:]
        while done:
            for number in into[done.pop()]:
                exits[number] -= 1
                if not is_done[number] and not exits[number]:
                    is_done[number] = True
                    done.append(number)
        return next((number for number, ends in enumerate(is_done) if not ends), None)

    def _result(self, kind: Any, number: int, law: Law | None = None, why: str = "") -> SearchResult:
        path: list[Choice] = []
        states = len(self._came)
        while (came := self._came[number])[1] is not None:
            path.append(came[1])
            number = came[0]
        return SearchResult(kind, states, law, why, tuple(reversed(path)), came[0], self._systems[0].faults)


# -- searches of an entry ---------------------------------------------------------------------------


def systems_of(
    entry: Entry,
    nodes: int,
    variant: Altered | None = None,
    order: Order | None = None,
    faults: FaultBudget | None = None,
) -> list[System]:
    """Return the worlds from which a search of an entry starts.

    Args:
        entry: the entry.
        nodes: the number of processes.
        variant: a bug or a printed form; None: the algorithm itself.
        order: the order of messages; None: as the variant or the entry claims.
        faults: the faults that may occur; None: none.
    """
    names = names_of(nodes)
    order = order or (variant and variant.order) or entry.channels
    if variant is not None:
        starts: Iterable[Any] = [variant.make(names)]
        if entry.starts is not None and not variant.transcript:
            starts = _like(list(variant.make(names)), entry.starts(names))
    else:
        starts = [entry.make(names)] if entry.starts is None else entry.starts(names)
    return [System(processes, order, faults, entry.at_once) for processes in starts]


def _like(made: list[Any], starts: Iterable[Iterable[Any]]) -> Iterator[list[Any]]:
    """Yield each start with the classes of other processes."""
    for start in starts:
        fields = [{name: getattr(process, name) for name in process.__struct_fields__} for process in start]
        yield [type(process)(**given) for process, given in zip(made, fields, strict=True)]


def prove(
    entry: Entry,
    nodes: int,
    *,
    variant: Altered | None = None,
    order: Order | None = None,
    faults: FaultBudget | None = None,
    laws: Sequence[Law] | None = None,
    watch: Callable[[int], None] | None = None,
) -> SearchResult:
    """Search all states of an entry and, if its size allows, all histories.

    Args:
        entry: the entry.
        nodes: the number of processes.
        variant: a bug or a printed form; None: the algorithm itself.
        order: the order of messages; None: as the variant or the entry claims.
        faults: the faults that may occur; None: those that the variant needs.
        laws: the laws to check; None: those of the entry and of the variant.
        watch: called now and then with the number of states that were visited so far.

    Returns:
        The first result other than "holds", or the result of the search with more states.
    """
    if faults is None and variant is not None and variant.fault is not None:
        faults = ONE_OF[variant.fault]
    systems = systems_of(entry, nodes, variant, order, faults)
    if variant is not None and variant.transcript:
        return play(systems[0], variant.transcript, entry.laws + variant.laws)
    every = tuple(laws) if laws is not None else entry.laws + (variant.laws if variant is not None else ())
    of_worlds = [law for law in every if not law.is_of_runs]
    is_inevitable = entry.is_inevitable
    found = Search(systems, of_worlds, entry.goal, is_inevitable=is_inevitable, watch=watch).run()
    if found.kind == "holds" and nodes in entry.histories and len(of_worlds) < len(every):
        return Search(systems, every, entry.goal, is_inevitable=is_inevitable, watch=watch).run()
    return found


def under_fault(
    entry: Entry, fault: Fault, nodes: int, watch: Callable[[int], None] | None = None
) -> SearchResult:
    """Search all states of an entry in which one fault of a kind may occur, at most once.

    Args:
        entry: the entry.
        fault: the kind of fault. With "order", all messages may overtake each other.
        nodes: the number of processes.
        watch: called now and then with the number of states that were visited so far.
    """
    return prove(entry, nodes, order="any" if fault == "order" else None, faults=ONE_OF[fault], watch=watch)


def play(system: System, transcript: Iterable[str], laws: Iterable[Law]) -> SearchResult:
    """Take the steps of a transcript, up to the first that breaks a law.

    Args:
        system: the world.
        transcript: the steps in words, such as "a timer election" or "b receive a".
        laws: the laws to check after each step.

    Returns:
        The result "broken" or "holds". Its `states` counts the states of this one run.

    Raises:
        ValueError: a step is not possible.
    """
    recording, path = Recording(system.names), list[Choice]()
    world = system.start(recording)
    for line in transcript:
        possible = system.choices(world)
        choice = next((c for c in possible if f"{c.process} {c.what} {c.of}".rstrip() == line), None)
        if choice is None:
            raise ValueError(f"step {len(path) + 1} is not possible: {line}")
        path.append(choice)
        system.take(world, choice, recording)
        for law in laws:
            why = law.breach(recording if law.is_of_runs else world)
            if why:
                return SearchResult("broken", len(path), law, why, tuple(path))
    return SearchResult("holds", len(path) + 1)


def replay(system: System, path: Iterable[Choice]) -> Recording:
    """Return the recording of a run that takes the given choices."""
    # Marks do not move a message in a sorted channel, except among equal messages. So the places stay right.
    recording = Recording(system.names)
    world = system.start(recording)
    for step, choice in enumerate(path, start=1):
        system.take(world, choice, recording, float(step))
    return recording


def start_of(system: System) -> str:
    """Return the state of all processes at the start, in words: machines whole, others without default values."""
    words = []
    for process in system.first.values():
        plain, fields = type(process)(process.me, process.others), process.__struct_fields__[2:]
        values = {name: getattr(process, name) for name in fields}
        shown = [name for name in fields if isinstance(process, Machine) or values[name] != getattr(plain, name)]
        words.append(" ".join([process.me, *(f"{name}={values[name]}" for name in shown)]))
    return ", ".join(words)


def numbers_of(system: System, path: Iterable[Choice]) -> list[int]:
    """Return, for each step of a run, its index among the steps that were possible then. `Stepper.take` expects it."""
    world = system.start()
    numbers = []
    for choice in path:
        world = system.decode(system.encode(world))
        numbers.append(system.choices(world).index(choice))
        system.take(world, choice)
    return numbers


class Stepper:
    """One run, step by step. All its results are plain data, for JSON.

    Args:
        system: the world.
    """

    def __init__(self, system: System) -> None:
        self._system = system
        self._path: list[Choice] = []
        self._states = [system.encode(system.start())]

    def world(self) -> dict[str, Any]:
        """Return the current state of all processes, channels and timers, as `plain_world` does."""
        return plain_world(self._system.decode(self._states[-1]))

    def choices(self) -> list[dict[str, Any]]:
        """Return the steps that are possible now, in a fixed order. Each has the fields of `Choice`."""
        world = self._system.decode(self._states[-1])
        return [msgspec.to_builtins(choice) for choice in self._system.choices(world)]

    def take(self, number: int) -> None:
        """Take the step at index `number` of `choices()`.

        Raises:
            IndexError: there is no such step.
        """
        world = self._system.decode(self._states[-1])
        choices = self._system.choices(world)
        if not 0 <= number < len(choices):
            raise IndexError(f"there is no step {number}; the steps are 0 to {len(choices) - 1}")
        self._system.take(world, choices[number])
        self._path.append(choices[number])
        self._states.append(self._system.encode(world))

    def undo(self) -> None:
        """Undo the last step, if there is one."""
        if self._path:
            self._path.pop()
            self._states.pop()

    def recording(self) -> Recording:
        """Return the recording of the steps so far. Steps that were undone are not in it."""
        return replay(self._system, self._path)


def plain_world(world: SmallWorld) -> dict[str, Any]:
    """Return a world as plain data, for JSON.

    - `processes`: the fields of each process, by its name.
    - `channels`: the messages in transit, by `sender→receiver`.
    - `timers`: the names of the timers that are set, by process.
    - `down`: the names of the crashed processes.
    """
    fields = {
        name: {field: msgspec.to_builtins(getattr(process, field)) for field in process.__struct_fields__}
        for name, process in world.processes.items()
    }
    channels = {
        channel: [msgspec.to_builtins(p.message) for p in parcels] for channel, parcels in world.channels.items()
    }
    return {"processes": fields, "channels": channels, "timers": world.timers, "down": world.down}
