"""The framework of the gallery against independent counts, and its own planted bugs."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from chord.gallery.entry import Entry
from chord.gallery.explore import Search, SearchResult, Stepper, prove, systems_of
from chord.gallery.index import entry_of
from chord.gallery.laws import SmallWorld
from chord.gallery.process import (
    Did,
    Effects,
    Machine,
    Name,
    Process,
    ProcessMessage,
    Send,
    Set,
    Unset,
    all_of,
    names_of,
)
from chord.gallery.recording import Recording
from chord.gallery.timed import Conditions, Outage, Partition, run_timed
from chord.gallery.world import Choice, FaultBudget, Order, System
from tests.support.real_rings import HANG_S, ROOT


class Ping(ProcessMessage, frozen=True):
    n: int


class Clocked(Process):
    """A process with timers: it pings until it hears an answer."""

    left: int = 1
    has_heard: bool = False

    def on_start(self) -> Effects:
        yield Set("ping")

    def on_timer(self, timer: str) -> Effects:
        if self.left:
            self.left -= 1
            yield from self.all_others(Ping(self.left))
            yield Set("ping")

    def on_message(self, sender: Name, message: Ping) -> Effects:
        self.has_heard = True
        yield Unset("ping")
        yield Did("heard", message.n)


CLOCKED = Entry(
    name="clocked", ticket=0, title="", make=all_of(Clocked), laws=(),
    goal=lambda world: all(process.has_heard for process in world.up()),
)  # fmt: skip


# -- an independent enumeration ---------------------------------------------------------------------
# It keeps objects, not bytes, and knows nothing of `System`. A state is a text.


def count_states(processes: list[Process], order: Order) -> int:
    """Count the reachable states of a world without faults."""
    start = ({p.me: copy.deepcopy(p) for p in processes}, [], set())
    for process in start[0].values():
        apply(start, process.me, process.on_start())
    seen = {text_of(start, order)}
    todo: deque[Any] = deque([start])
    while todo:
        for after in successors(todo.popleft(), order):
            text = text_of(after, order)
            if text not in seen:
                seen.add(text)
                todo.append(after)
    return len(seen)


def apply(state: Any, me: Name, effects: Effects) -> None:
    _, mail, timers = state
    for effect in effects:
        if isinstance(effect, Send):
            mail.append((me, effect.to, effect.message))
        elif isinstance(effect, Set):
            timers.add((me, effect.timer))
        elif isinstance(effect, Unset):
            timers.discard((me, effect.timer))


def successors(state: Any, order: Order) -> Iterator[Any]:
    for place, (sender, to, _) in enumerate(state[1]):
        if order == "fifo" and any(other[:2] == (sender, to) for other in state[1][:place]):
            continue
        after = copy.deepcopy(state)
        *_, message = after[1].pop(place)
        apply(after, to, after[0][to].on_message(sender, message))
        yield after
    for me, process in state[0].items():
        for ask in process.asks():
            after = copy.deepcopy(state)
            apply(after, me, after[0][me].on_ask(ask))
            yield after
    for me, timer in state[2]:
        after = copy.deepcopy(state)
        after[2].remove((me, timer))
        apply(after, me, after[0][me].on_timer(timer))
        yield after


def text_of(state: Any, order: Order) -> str:
    processes, mail, timers = state
    lanes: dict[tuple[Name, Name], list[str]] = {}
    for sender, to, message in mail:
        lanes.setdefault((sender, to), []).append(repr(message))
    if order == "any":
        lanes = {pair: sorted(texts) for pair, texts in lanes.items()}
    return repr(([repr(p) for p in processes.values()], sorted(lanes.items()), sorted(timers)))


def states(entry: Entry, kind: type[System] = System) -> int:
    (built,) = systems_of(entry, 2)
    system = kind(built.first.values(), built.order)
    return Search([system], (), lambda world: True).run().states


COUNTED = [entry_of("mutex-ricart-agrawala"), entry_of("mutex-lamport"), CLOCKED]


@pytest.mark.parametrize("entry", COUNTED, ids=lambda entry: entry.name)
def test_search_visits_as_many_states_as_an_independent_count(entry: Entry) -> None:
    assert states(entry) == count_states(list(entry.make(names_of(2))), entry.channels)


# -- planted bugs -----------------------------------------------------------------------------------


class Reorders(System):
    """An ordered channel that hands out any message."""

    def choices(self, world: SmallWorld) -> list[Choice]:
        found = super().choices(world)
        for choice in tuple(found):
            if choice.what == "receive":
                parcels = world.channels[f"{choice.of}→{choice.process}"]
                found += [Choice("receive", choice.process, choice.of, place) for place in range(1, len(parcels))]
        return found


class ForgetsTimers(System):
    """A search that forgets a choice."""

    def choices(self, world: SmallWorld) -> list[Choice]:
        return [choice for choice in super().choices(world) if choice.what != "timer" or choice.process != "b"]


class MissesTimers(System):
    """A fingerprint that misses a field."""

    def fingerprint(self, state: bytes, recording: Recording | None = None) -> bytes:
        world = self.decode(state)
        world.timers = {}
        return super().fingerprint(self.encode(world), recording)


@pytest.mark.parametrize(
    ("entry", "bug"), [(entry_of("mutex-lamport"), Reorders), (CLOCKED, ForgetsTimers), (CLOCKED, MissesTimers)]
)
def test_planted_bug_changes_the_number_of_states(entry: Entry, bug: type[System]) -> None:
    assert states(entry, bug) != count_states(list(entry.make(names_of(2))), entry.channels)


def test_fingerprint_covers_every_field_of_a_world() -> None:
    (system,) = systems_of(CLOCKED, 2)
    world = system.start()
    base = system.fingerprint(system.encode(world))
    assert system.encode(system.decode(system.encode(world))) == system.encode(world)
    changes = {
        "processes": {**world.processes, "a": Clocked("a", ("b",), left=0)},
        "channels": {"a→b": [system.decode(system.encode(world))]},
        "timers": {},
        "down": ["a"],
        "faults": FaultBudget(lose=1),
    }
    assert set(changes) == set(SmallWorld.__struct_fields__)
    for field, value in changes.items():
        changed = msgspec.structs.replace(world, **{field: value})
        assert system.fingerprint(system.encode(changed)) != base, field


# -- results of a search ----------------------------------------------------------------------------


class Counter(Machine):
    """A machine that counts around a circle of four, and may skip nothing."""

    at: int = 0

    def rule(self, seen: Any) -> Machine | None:
        return msgspec.structs.replace(self, at=(self.at + 1) % 4)


def search_counters(goal: Any, **options: Any) -> SearchResult:
    return Search([System(all_of(Counter)(names_of(2)))], (), goal, **options).run()


def test_goal_of_a_cycle_is_inevitable_only_if_every_run_meets_it() -> None:
    assert search_counters(lambda world: world.processes["a"].at == 2).kind == "holds"
    assert search_counters(lambda world: world.processes["a"].at == 2, is_inevitable=True).kind == "endless"
    assert search_counters(lambda world: any(p.at == 2 for p in world.up()), is_inevitable=True).kind == "holds"


def test_goal_that_no_run_reaches_is_hopeless() -> None:
    assert search_counters(lambda world: world.processes["a"].at == 7).kind == "hopeless"


def test_search_beyond_its_bound_proves_nothing() -> None:
    assert search_counters(lambda world: True, states_max=3).kind == "too many"


def test_machines_move_at_once_only_if_they_may() -> None:
    assert len(System(all_of(Counter)(names_of(3))).choices(System(all_of(Counter)(names_of(3))).start())) == 3
    system = System(all_of(Counter)(names_of(3)), at_once=True)
    assert len(system.choices(system.start())) == 7


# -- recordings -------------------------------------------------------------------------------------


def test_happens_before_equals_the_transitive_closure() -> None:
    run = run_timed(entry_of("mutex-lamport"), 3, Conditions(seed=4)).recording
    events = [json.loads(line) for line in run.lines()]
    after: list[set[int]] = [set() for _ in events]
    last: dict[Name, int] = {}
    for event in events:  # in order, so the events before each are complete
        causes = [last[event["process"]]] if event["process"] in last else []
        if event["what"] == "receive":
            assert events[event["of"]]["what"] == "send"
            causes.append(event["of"])
        after[event["n"]] = {*causes, *(cause for known in causes for cause in after[known])}
        last[event["process"]] = event["n"]
    assert len(events) > 50
    for e in run.events:
        for f in run.events:
            assert run.before(e, f) == (e.n in after[f.n]), (e, f)


def test_state_of_an_event_is_the_state_when_it_happened() -> None:
    run = run_timed(entry_of("clocks-lamport"), 2, Conditions()).recording
    assert all(event.state is not None and event.state["clock"] == event.message.time for event in run.of("send"))


@pytest.mark.slow
def test_seed_gives_the_same_digest_under_another_hash_seed() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from chord.gallery.index import entry_of\n"
        "from chord.gallery.timed import Conditions, run_timed\n"
        "for name in ('mutex-lamport', 'clocks-lamport'):\n"
        "    print(run_timed(entry_of(name), 4, Conditions(seed=3, loss=0.1, double=0.2)).digest)"
    )
    digests = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            timeout=HANG_S,
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert digests[0] == digests[1]
    assert digests[0].count(b"\n") == 2


# -- faults on virtual time -------------------------------------------------------------------------


def test_timed_run_in_any_order_breaks_what_needs_order() -> None:
    entry = entry_of("mutex-lamport")
    broken = [run_timed(entry, 2, Conditions(seed=seed, order="any")).breaches for seed in range(100)]
    assert any("one inside" in breaches for breaches in broken)


def test_timed_faults_are_events() -> None:
    outages, splits = (Outage("b", 0.03, 0.5),), (Partition((("a",), ("b",)), 0.01, 0.02),)
    conditions = Conditions(seed=1, loss=0.2, double=0.3, outages=outages, splits=splits)
    run = run_timed(CLOCKED, 2, conditions)
    assert [event.process for event in run.recording.of("crash")] == ["b"]
    assert [event.process for event in run.recording.of("restart")] == ["b"]
    lossy = run_timed(entry_of("clocks-lamport"), 4, Conditions(seed=1, loss=0.4, double=0.5)).recording
    assert lossy.of("lost")
    assert lossy.of("doubled")
    assert len(lossy.of("send")) + len(lossy.of("doubled")) == len(lossy.of("receive")) + len(lossy.of("lost"))


def test_cut_of_a_partition_loses_messages() -> None:
    apart = Conditions(splits=(Partition((("a",),), 0.0, 500.0),))
    run = run_timed(entry_of("mutex-ricart-agrawala"), 2, apart)
    assert not run.is_goal
    assert {event.what for event in run.recording.events} >= {"lost"}
    assert not run.recording.of("receive")


# -- step by step -----------------------------------------------------------------------------------


def test_stepper_takes_and_undoes_steps() -> None:
    (system,) = systems_of(entry_of("mutex-ricart-agrawala"), 2)
    stepper = Stepper(system)
    before = stepper.world()
    assert stepper.choices()[0] == {"what": "ask", "process": "a", "of": "enter"}
    stepper.take(0)
    assert stepper.world()["processes"]["a"]["ticket"] == 1
    assert stepper.world()["channels"] == {"a→b": [["Request", 1]]}
    json.dumps([stepper.world(), stepper.choices()])
    stepper.undo()
    stepper.undo()
    assert stepper.world() == before
    with pytest.raises(IndexError, match="0 to 1"):
        stepper.take(2)


def test_proof_of_all_histories_is_larger_than_of_all_states() -> None:
    entry = entry_of("mutex-ricart-agrawala")
    of_worlds = [law for law in entry.laws if not law.is_of_runs]
    assert prove(entry, 2).states >= prove(entry, 2, laws=of_worlds).states
