"""Same seed, same history: bit for bit, run after run, process after process.

`python tests/testing/test_determinism.py SCENARIO SEED [BUG]` prints a scenario's digest, for the other process.
"""

from __future__ import annotations

import functools
import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest import mock

import msgspec
import pytest
import trio
from trio._core import _run as scheduler

from chord.events import Emitted
from chord.node import Node
from chord.sim.fault_schedule import FaultSchedule
from chord.sim.plan import FAULTS, Fidelity, Plan, draw
from chord.sim.run import Run
from chord.testing import MemoryNetwork, open_ring, run, runner, uniform
from tests.support.real_rings import HANG_S

SEED, OTHER = 11, 10  # runs with many kinds of events within a second of real time
QUANTUM_S = 0.01  # coarse against the delays, so that many deliveries are due at the same moment


def traced(seed: int) -> MemoryNetwork:
    return MemoryNetwork(seed, delay=uniform(0.001, 0.02), quantum_s=QUANTUM_S, trace=True)


async def chatter(seed: int) -> str:
    """Let hosts call each other concurrently, and answer until a counter in the messages ends."""
    network = traced(seed)
    names = [f"n{number}" for number in range(6)]
    order: list[str] = []

    async def talk(stream: trio.abc.Stream, name: str) -> None:
        while data := await stream.receive_some():
            order.append(name)
            if data[0] > 0:
                await stream.send_all(bytes([data[0] - 1]))

    async with trio.open_nursery() as nursery:
        listeners = {name: await network.transport(name).open_listener(f"{name}:1") for name in names}
        for name in names:
            for other in names:
                if other != name:
                    stream = await network.transport(name).open_stream(f"{other}:1")
                    nursery.start_soon(talk, stream, name)
                    nursery.start_soon(talk, await listeners[other].accept(), other)
                    await stream.send_all(bytes([40]))
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    return hashlib.blake2b(repr((network.digest(), network.deliveries, order)).encode(), digest_size=16).hexdigest()


async def small_ring(seed: int) -> str:
    """Play a ring that starts, loses a node, has a leave and two joins."""
    network = traced(seed)
    history = hashlib.blake2b(digest_size=16)

    def observe(emitted: Emitted) -> None:
        event = emitted.event
        history.update(f"{trio.current_time():.9f} {event!r}\n".encode())

    async with open_ring(8, seed=seed, network=network, observe=observe) as peers:
        await peers.kill(peers[3])
        await peers[2].leave()
        await peers.start()
        await peers.start()
        await trio.sleep(5)
        await peers.converged()
        lines = f"{network.deliveries} {trio.current_time():.9f} {peers.snapshot()}"
    history.update(f"{network.digest()} {lines}".encode())
    return history.hexdigest()


def everything(fidelity: Fidelity) -> Callable[[int], Plan]:
    """Return the plan of a short run with all faults and many simultaneous events."""

    def plan(seed: int) -> Plan:
        drawn = draw(seed, nodes=6, successors=2, fidelity=fidelity, faults=tuple(FAULTS), membership=3, steps=200)
        return msgspec.structs.replace(drawn, quantum_s=QUANTUM_S)

    return plan


FRAMES = "run over frames"
RUNS = {"run over messages": everything("messages"), FRAMES: everything("frames")}

SCENARIOS: dict[str, Callable[[int], str]] = {
    "chatter": lambda seed: run(chatter, seed, seed=seed),
    "small ring": lambda seed: run(small_ring, seed, seed=seed),
    **{name: lambda seed, plan=plan: Run(plan(seed)).run().digest for name, plan in RUNS.items()},
}


MARKS = {"chatter": (), FRAMES: (pytest.mark.slow, pytest.mark.thorough)}
EACH = [pytest.param(name, marks=MARKS.get(name, pytest.mark.slow)) for name in SCENARIOS]


def digest_of(scenario: str, seed: int) -> str:
    return SCENARIOS[scenario](seed)


@functools.cache
def digest_here(scenario: str, seed: int) -> str:
    """Return the digest of this process, computed once for all tests."""
    return digest_of(scenario, seed)


def digest_elsewhere(scenario: str, seed: int, hash_seed: str, *bug: str) -> str:
    """Return the digest of another process with other string hashes and object addresses."""
    command = [sys.executable, __file__, scenario, str(seed), *bug]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.stdout.strip(), done.stderr
    return done.stdout.strip()


def by_hash(schedule: FaultSchedule) -> list[Node]:
    """A planted bug: the order of a set of strings."""
    found = {node.name: node for node in schedule._cluster.nodes}
    return [found[name] for name in set(found)]


def by_address(schedule: FaultSchedule) -> list[Node]:
    """A planted bug: the order of addresses in memory, as in a set of objects."""
    return sorted(schedule._cluster.nodes, key=id)


BUGS = {"by hash": by_hash, "by address": by_address}


def scatter() -> object:
    """Give new objects random addresses, by random holes in the memory for each size."""
    dice = random.SystemRandom()
    kept = [bytearray(size) for size in range(8, 500, 8) for _ in range(500)]
    kept += [{} for _ in range(20_000)]
    dice.shuffle(kept)
    del kept[len(kept) // 2 :]
    return kept


@pytest.mark.parametrize("scenario", EACH)
def test_equal_seeds_give_equal_histories(scenario: str) -> None:
    assert digest_here(scenario, SEED) == digest_of(scenario, SEED)


@pytest.mark.parametrize("scenario", EACH)
def test_different_seeds_give_different_histories(scenario: str) -> None:
    assert digest_here(scenario, SEED) != digest_of(scenario, OTHER)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", EACH)
def test_process_with_other_hashes_gives_the_same_history(scenario: str) -> None:
    """One other process is enough, because the bugs below show between any two."""
    assert digest_elsewhere(scenario, SEED, "4242") == digest_here(scenario, SEED)


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_planted_order_outside_the_seed_is_caught(bug: str) -> None:
    """Addresses may have the same order in two processes, so several are compared."""
    found: set[str] = set()
    for hash_seed in ("1", "4242", "7", "99", "123"):
        found.add(digest_elsewhere("run over messages", SEED, hash_seed, bug))
        if len(found) == 2:
            return
    raise AssertionError("it is the same in every process")


@contextmanager
def interrupted() -> Iterator[list[int]]:
    """Send a signal repeatedly, as the monitor of a long run does; yield the handled signals.

    Signals are the process's: with a second thread there, as in a test worker, either may take them.
    """
    handled: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: handled.append(number))
    is_over = threading.Event()
    other = threading.Thread(target=is_over.wait)
    other.start()
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        yield handled
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        is_over.set()
        other.join()


# With the planted bug, the second thread may take a signal while Trio closes its wake-up file descriptor.
WOKEN_TOO_LATE = pytest.mark.filterwarnings("ignore:Exception ignored in. None:pytest.PytestUnraisableExceptionWarning")


@pytest.mark.slow
@pytest.mark.parametrize("is_planted", [False, pytest.param(True, marks=WOKEN_TOO_LATE)])
def test_signals_do_not_change_the_history(is_planted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = digest_here("run over messages", SEED)
    if is_planted:
        monkeypatch.setattr(runner, "_undisturbed", nullcontext)
    with interrupted() as handled:
        found = {digest_of("run over messages", SEED) for _ in range(1 if is_planted else 3)}
    assert len(handled) > 10
    assert (found != {undisturbed}) is is_planted


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RUNS if name != FRAMES])
def test_scenarios_have_many_simultaneous_events(name: str) -> None:
    """Otherwise the tests would not cover the order among simultaneous events."""
    at: Counter[float] = Counter()
    Run(RUNS[name](SEED), on_event=lambda cluster, event: at.update([trio.current_time()])).run()
    together = sum(count for count in at.values() if count > 1)
    assert together > at.total() / 4, f"{together} of {at.total()} events"


def test_schedule_depends_only_on_the_seed() -> None:
    async def order() -> list[int]:
        met: list[int] = []

        async def meet(number: int) -> None:
            await trio.sleep(1)
            met.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(meet, number)
        return met

    assert run(order, seed=1) == run(order, seed=1)
    assert run(order, seed=1) != run(order, seed=2)


def test_run_restores_the_scheduler_after_an_error() -> None:
    async def fail() -> None:
        assert scheduler._ALLOW_DETERMINISTIC_SCHEDULING
        raise KeyError("planted")

    scheduler_before = (scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate())
    with pytest.raises(KeyError):
        run(fail)
    assert (scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate()) == scheduler_before


def test_virtual_time_is_exact() -> None:
    async def wait() -> float:
        began = trio.current_time()
        with trio.move_on_after(86_400):
            await trio.sleep_forever()
        await trio.sleep(0.25)
        return trio.current_time() - began

    assert run(wait) == 86_400.25


if __name__ == "__main__":
    _scattered = scatter()
    _wrong = BUGS[sys.argv[3]] if len(sys.argv) > 3 else FaultSchedule.in_order
    with mock.patch.object(FaultSchedule, "in_order", _wrong):
        sys.stdout.write(digest_of(sys.argv[1], int(sys.argv[2])) + "\n")
