"""The turns of rings: one ring is measured while the others are paused.

A turn is a wait until the ring is idle, and a short warm-up. Then, for each number of operations in flight, one client
puts a batch of keys, and another client gets the acknowledged ones. Each key is read once, by a process that did not
write it. Otherwise some systems would answer from a cache. All rings have equally many turns.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.others.install import CannotInstall
from benchmarks.others.processes import Group, SystemFailed
from benchmarks.others.system import Home, System

CONCURRENCIES = (1, 32)
FIRST_WARM_UP, WARM_UP = (300, 5.0), (64, 0.5)
"""The operations of each kind, and the maximum seconds, before the first turn of a ring and before each turn."""

WARM_UP_CONCURRENCY = 4

SETTLE_WINDOW_S, SETTLE_S_MAX = 0.5, 10.0
SETTLED_TIMES, SETTLED_MORE = 1.5, 0.1
"""A factor and a summand for the share of a core that a ring may use before its turn.

After a pause a ring catches up with missed timers. It is idle again if it uses no more than its first idle share times
the factor plus the summand. The wait has a limit.
"""

GRACE_S = 30.0
"""The seconds that the runner waits for the result of a batch beyond its time limit."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Effort:
    """The extent of the measurement: operations, seconds, rounds and time limits.

    Attributes:
        ops: the maximum number of operations of a batch.
        seconds: the time after which no operation of a batch begins.
        rounds: the number of turns of each ring.
        deadline_s: the time limit of one operation.
        until: the moment of `time.monotonic` after which no ring starts and no round begins.
    """

    ops: int
    seconds: float
    rounds: int
    deadline_s: float
    until: float


@dataclass(frozen=True)
class Measured:
    """The figures of one batch: puts or gets of one ring in one turn.

    Attributes:
        key: system, nodes, operation, operations in flight.
        ops_per_s: the rate of successful operations.
        latencies_s: the latencies of all operations.
        errors: the number of failed operations.
        cpu_us_per_op: the CPU time of all nodes and clients, per successful operation.
        hops: calls on the way to the owner, per operation; None: not known.
        rss_mb_per_node: the mean resident memory of a node, in MB.
        why: the reasons of the first few failures.
    """

    key: tuple[str, int, str, int]
    ops_per_s: float
    latencies_s: tuple[float, ...]
    errors: int
    cpu_us_per_op: float
    hops: float | None
    rss_mb_per_node: float
    why: tuple[str, ...]


@dataclass
class Outcome:
    """The results of a run.

    Attributes:
        measured: the figures of all batches.
        left_out: the reasons for which rings are missing, by system and number of nodes; 0: any number.
        versions: the version of each installed system.
    """

    measured: list[Measured] = field(default_factory=list)
    left_out: dict[tuple[str, int], str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


class Ring:
    """The processes of one system at one size: nodes, and two clients.

    One client puts, and the other gets.
    """

    def __init__(self, system: System, home: Home, nodes: int, group: Group) -> None:
        self.system = system
        self.nodes = nodes
        self._group = group
        self._entries = system.start(group, home, nodes)
        command = home.program(system.client, "client", *self._entries, *system.client_arguments)
        self._idle_share = 0.0
        self._clients = {op: group.client(command) for op in ("put", "get")}

    def prepare(self, effort: Effort) -> None:
        """Warm the ring up, measure its idle CPU use, and pause it until its first turn."""
        self._warm_up(effort, "first", *FIRST_WARM_UP)
        self._idle_share = self._share_of_a_core()
        self._group.pause()

    def end(self) -> None:
        """Kill all processes of the ring."""
        self._group.end()

    def _settle(self) -> None:
        """Wait until the CPU use of the resumed ring is close to its idle use."""
        enough = SETTLED_TIMES * self._idle_share + SETTLED_MORE
        for _ in range(round(SETTLE_S_MAX / SETTLE_WINDOW_S)):
            if self._share_of_a_core() <= enough:
                return

    def _share_of_a_core(self) -> float:
        """Return the CPU time that the ring uses in a short period, over the period."""
        began, cpu = time.monotonic(), self._group.cpu_s()
        time.sleep(SETTLE_WINDOW_S)
        return (self._group.cpu_s() - cpu) / (time.monotonic() - began)

    def _warm_up(self, effort: Effort, name: str, ops: int, seconds: float) -> None:
        """Put and get some keys without measurement.

        Args:
            name: makes the keys unique.
            ops: number of keys.
            seconds: the time after which no operation begins.
        """
        keys: list[str] = [f"warm-{name}-{i}" for i in range(min(ops, effort.ops))]
        for op in ("put", "get"):
            keys = self._batch(op, keys, WARM_UP_CONCURRENCY, seconds, effort.deadline_s)["done"]

    def turn(self, effort: Effort, number: int) -> list[Measured]:
        """Measure puts and gets of this ring in one turn.

        Args:
            number: the number of the turn, which makes the keys unique.
        """
        self._group.resume()
        self._settle()
        self._warm_up(effort, str(number), *WARM_UP)
        found = []
        for concurrency in CONCURRENCIES:
            keys: list[str] = [f"key-{number}-{concurrency}-{i}" for i in range(effort.ops)]
            for op in ("put", "get"):
                measured, keys = self._measure(op, keys, concurrency, effort)
                found.append(measured)
        self._group.pause()
        return found

    def _measure(self, op: str, keys: Sequence[str], concurrency: int, effort: Effort) -> tuple[Measured, list[str]]:
        """Measure one batch of puts or gets.

        Returns:
            the figures, and the keys of the successful operations.
        """
        hops, cpu = self._hops(), self._group.cpu_s()
        batch = self._batch(op, keys, concurrency, effort.seconds, effort.deadline_s)
        cpu, done = self._group.cpu_s() - cpu, batch["done"]
        calls = None if hops is None else (self._hops() or 0) - hops
        tried = max(1, len(batch["latencies_s"]))
        measured = Measured(
            key=(self.system.name, self.nodes, op, concurrency),
            ops_per_s=len(done) / max(batch["took_s"], 1e-9),
            latencies_s=tuple(batch["latencies_s"]),
            errors=batch["errors"],
            cpu_us_per_op=1e6 * cpu / max(1, len(done)),
            hops=None if calls is None else calls / tried,
            rss_mb_per_node=self._group.rss_mb_per_node(),
            why=tuple(batch["why"]),
        )
        return measured, done

    def _batch(self, op: str, keys: Sequence[str], concurrency: int, seconds: float, deadline_s: float) -> Any:
        return self._clients[op].ask(
            seconds + deadline_s + GRACE_S,
            op=op,
            keys=keys,
            concurrency=concurrency,
            seconds=seconds,
            deadline_s=deadline_s,
            value_bytes=self.system.value_bytes,
        )

    def _hops(self) -> int | None:
        return None if self.system.hops is None else self.system.hops(self._entries)


def measure_side_by_side(
    plan: Sequence[tuple[System, int]],
    homes: dict[str, Home],
    base: Path,
    effort: Effort,
    outcome: Outcome,
    progress: Progress,
) -> None:
    """Start these rings, measure them in turns, and kill them.

    A system that fails has no further turns.

    Args:
        plan: the systems, with the number of nodes of each.
        homes: the place of each system, by name.
        base: the directory for files of the rings.
        effort: the extent of the measurement.
        outcome: the result, to which this function adds.
        progress: prints a line of text.
    """
    with ExitStack() as stack:
        rings: list[Ring] = []
        for system, nodes in plan:
            if time.monotonic() > effort.until:
                outcome.left_out[system.name, nodes] = "the time was up before it started"
                continue
            progress(f"{system.name}: starting {nodes} node{'s' if nodes > 1 else ''}")
            group = stack.enter_context(Group(system.name, base / f"{system.name}-{nodes}"))
            try:
                ring = Ring(system, homes[system.name], nodes, group)
                ring.prepare(effort)
                rings.append(ring)
            except SystemFailed as error:
                _leave_out(outcome, system, nodes, error, progress)
                group.end()
        for number in range(effort.rounds):
            if time.monotonic() > effort.until:
                progress(f"the time is up after {number} of {effort.rounds} rounds")
                break
            shift = number % max(1, len(rings))  # so that no ring always follows the same ring
            for ring in [*rings[shift:], *rings[:shift]]:
                try:
                    found = ring.turn(effort, number)
                except SystemFailed as error:
                    _leave_out(outcome, ring.system, ring.nodes, error, progress)
                    ring.end()
                    rings = [other for other in rings if other is not ring]
                    continue
                outcome.measured += found
                rates = "  ".join(f"{one.key[2]}/{one.key[3]} {one.ops_per_s:,.0f}" for one in found)
                failed = sum(one.errors for one in found)
                why = next((one.why[0] for one in found if one.why), "")
                more = f"  {failed} failed: {why}" if failed else ""
                progress(f"{ring.system.name} {ring.nodes}, round {number + 1} of {effort.rounds}: {rates}{more}")


def _leave_out(outcome: Outcome, system: System, nodes: int, error: SystemFailed, progress: Progress) -> None:
    outcome.left_out[system.name, nodes] = str(error)
    progress(f"{system.name} {nodes}: LEFT OUT: {error}")


def printer(began: float) -> Progress:
    """Return a function that prints progress on standard error.

    Each line begins with the minutes since `began`, a moment of `time.monotonic`.
    """

    def show(text: str) -> None:
        sys.stderr.write(f"[{(time.monotonic() - began) / 60:4.1f} min] {text}\n")
        sys.stderr.flush()

    return show


def install_all(
    systems: Sequence[System],
    installer: Callable[[System, Path], Home],
    base: Path,
    outcome: Outcome,
    progress: Progress,
) -> dict[str, Home]:
    """Install all systems; return the place of each one by name.

    A system that cannot be installed is missing in the result. The reason is added to `outcome`.
    """
    homes = {}
    for system in systems:
        try:
            home = homes[system.name] = installer(system, base)
        except CannotInstall as error:
            outcome.left_out[system.name, 0] = f"cannot be installed here: {error}"
            progress(f"{system.name}: SKIPPED: cannot be installed here: {error}")
            continue
        outcome.versions[system.name] = home.version
        progress(f"{system.name}: version {home.version}" + (f", pip: {' '.join(system.pip)}" if system.pip else ""))
    return homes
