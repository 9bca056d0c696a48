"""Same seed, same history: bit for bit, run after run, process after process.

`python tests/test_determinism.py SCENARIO SEED` prints a scenario's digest, for the other process.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from trio._core import _run as scheduler

from chord.events import Event
from chord.testing import MemoryNetwork, ring, run, uniform

QUANTUM_S = 0.005  # coarse against the delays, so that many deliveries are due at the same moment


def traced(seed: int) -> MemoryNetwork:
    return MemoryNetwork(seed, delay=uniform(0.001, 0.02), quantum_s=QUANTUM_S, is_traced=True)


async def chatter(seed: int) -> str:
    """Hosts that call each other, all at once, and answer until the number they pass on is used up."""
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


async def life(seed: int) -> str:
    """A ring that is born, loses one node, sees another leave, and gains two."""
    network = traced(seed)
    history = hashlib.blake2b(digest_size=16)

    def observe(event: Event) -> None:
        history.update(f"{trio.current_time():.9f} {event!r}\n".encode())

    async with ring(8, seed=seed, network=network, observe=observe) as peers:
        await peers.kill(peers[3])
        await peers[2].leave()
        await peers.start()
        await peers.start()
        await trio.sleep(5)
        await peers.converged()
        lines = f"{network.deliveries} {trio.current_time():.9f} {peers.snapshot()}"
    history.update(f"{network.digest()} {lines}".encode())
    return history.hexdigest()


SCENARIOS = {"chatter": chatter, "life": life}


def digest_of(scenario: str, seed: int) -> str:
    return run(SCENARIOS[scenario], seed, seed=seed)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_same_seed_gives_the_same_history(scenario: str) -> None:
    assert digest_of(scenario, 7) == digest_of(scenario, 7)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_another_seed_gives_another_history(scenario: str) -> None:
    assert digest_of(scenario, 7) != digest_of(scenario, 8)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_other_processes_with_other_hashes_give_the_same_history(scenario: str) -> None:
    here = digest_of(scenario, 7)
    for hash_seed in ("1", "4242"):
        command = [sys.executable, __file__, scenario, "7"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parents[1])}
        there = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert there.stdout.strip() == here, f"PYTHONHASHSEED={hash_seed}\n{there.stderr}"


def test_the_schedule_repeats_itself_only_under_the_switches() -> None:
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


def test_the_switches_are_put_back() -> None:
    async def fail() -> None:
        assert scheduler._ALLOW_DETERMINISTIC_SCHEDULING
        raise KeyError("planted")

    scheduler_before = (scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate())
    with pytest.raises(KeyError):
        run(fail)
    assert (scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate()) == scheduler_before


def test_virtual_time_costs_nothing_and_is_exact() -> None:
    async def wait() -> float:
        began = trio.current_time()
        with trio.move_on_after(86_400):
            await trio.sleep_forever()
        await trio.sleep(0.25)
        return trio.current_time() - began

    assert run(wait) == 86_400.25


if __name__ == "__main__":
    sys.stdout.write(digest_of(sys.argv[1], int(sys.argv[2])) + "\n")
