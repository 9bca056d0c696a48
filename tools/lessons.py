"""The recordings of the page Learn, and of a ring that splits and heals: real nodes in memory, on virtual time.

`python tools/lessons.py` writes them into `chord/web/static/recordings`. The same program always writes the same bytes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from chord import testing
from chord.errors import ChordError
from chord.events import Emitted, StepDone
from chord.ids import Point
from chord.node import Node
from chord.observe.chordlog import ChordlogWriter, LogHeader, packing
from chord.observe.event_log import event_info
from chord.observe.model import PARTS, RingModel, event_fields
from chord.testing.network import MemoryNetwork
from chord.testing.rings import TestRing
from chord.verify import invariants
from chord.views.trace import lookup_json

FOLDER: Final = Path(__file__).parents[1] / "chord" / "web" / "static" / "recordings"
IDS: Final = (10, 42, 80, 120, 160, 200, 230)
KEYS: Final = 60
NEWCOMER: Final = 100
CASUALTY: Final = 160
SUBJECT: Final = 190
SPLIT_KEYS: Final = 400
LIFE_NODES: Final = 16
LIFE_KEYS: Final = 1200
EPOCH_MS: Final = 1_800_000_000_000


class Recorder:
    """A writer of everything that happens to a ring.

    Attributes:
        model: the recorded state.
    """

    def __init__(self, write: Callable[[bytes], object], header: LogHeader, successors: int) -> None:
        self.model = RingModel()
        self._log = ChordlogWriter(write, header)
        self._successors = successors
        self._ring: TestRing | None = None
        self._began_s = 0.0
        self._last_check = ""

    def begin(self, ring: TestRing) -> None:
        """Begin with the present state of a ring, at t = 0."""
        self._ring = ring
        self._began_s = trio.current_time()
        for node in ring.nodes:
            self.model.describe(node._local_status(PARTS))
        self._log.keyframe(self.model)
        self._check()

    def on_event(self, emitted: Emitted) -> None:
        """Write an event, and the new state of its node."""
        if self._ring is None:
            return
        if not isinstance(emitted.event, StepDone):
            self._go_on()
            self._log.line("e", event_fields(event_info(emitted)))
            self.look(emitted.node)

    def look(self, address: str = "") -> None:
        """Write the present state of a node, by default of all."""
        assert self._ring is not None
        self._go_on()
        for node in self._ring.nodes:
            if address in ("", node.address):
                self._describe(node)
        if self._log.is_keyframe_due:
            self._log.keyframe(self.model)
        self._check()

    def fault(self, what: str, groups: tuple[tuple[str, ...], ...]) -> None:
        """Write a fault. If it ends a process, its node is dead from now on."""
        if self._ring is None:
            return
        self._go_on()
        self._log.line("f", {"do": what, "groups": groups})
        for address, fields in list(self.model.nodes.items()):
            if what == "kill" and (fields["name"],) in groups:
                self._log.change(self.model.lose(address, "dead"))

    async def get(self, key: str, client: Node) -> None:
        """Read a key, and write the operation, with its point in place of the key."""
        assert self._ring is not None
        began_s = trio.current_time()
        try:
            found = await client.get(key.encode())
            status = "ok"
        except ChordError:
            found, status = None, "fail"
        self._go_on()
        now_s, point = trio.current_time(), client.config.ring.circle.hash(key.encode())
        self._log.line("o", {
            "c": "client 1", "p": str(int(point)), "f": "get", "st": status, "t0": round(began_s - self._began_s, 6),
            "t1": round(now_s - self._began_s, 6), "found": len(found.values) if found else 0,
        })  # fmt: skip

    def end(self) -> None:
        """Write the last line."""
        self._go_on()
        self._log.end("passed")
        self._ring = None

    def _go_on(self) -> None:
        self._log.at(trio.current_time() - self._began_s)

    def _describe(self, node: Node) -> None:
        if node.address and node.state != "left":
            self._log.change(self.model.describe(node._local_status(PARTS)))

    def _check(self) -> None:
        """Write the verdict, unless it is that of the last check."""
        assert self._ring is not None
        snapshot = self._ring.snapshot()
        found = [
            {"invariant": wrong.invariant, "text": wrong.text, "nodes": [str(int(point)) for point in wrong.nodes]}
            for wrong in invariants.violations(snapshot, self._successors)
        ]
        waiting = len(invariants.waiting(snapshot, self._successors))
        check = {"members": len(snapshot), "violations": found, "waiting": waiting}
        if json.dumps(check) != self._last_check:
            self._last_check = json.dumps(check)
            self._log.line("c", check)


@asynccontextmanager
async def recorded(
    name: str, n: int, *, bits: int, successors: int, ids: tuple[int, ...] | None, seed: int
) -> AsyncIterator[tuple[TestRing, Recorder]]:
    """Run a ring, and write its recording from the moment at which it is Ideal."""
    header = LogHeader(
        source="simulation", seed=seed, command="python tools/lessons.py", bits=bits, successors=successors, replicas=3,
        quorum=2, began_ms=EPOCH_MS, clock="virtual",
    )  # fmt: skip
    path = FOLDER / name
    with path.open("wb") as file, packing(name, file.write) as write:
        recorder = Recorder(write, header, successors)
        network = MemoryNetwork(seed, on_fault=recorder.fault)
        async with testing.open_ring(
            0, seed=seed, bits=bits, successors=successors, network=network, observe=recorder.on_event, wait=False
        ) as ring:
            for number in range(n):
                named = {} if ids is None else {"name": str(ids[number]), "id": ids[number]}
                node = await ring.start(**named)  # type: ignore[arg-type]
                await node.ready()
            await ring.converged()
            yield ring, recorder
            recorder.end()


def lesson(name: str) -> Any:
    """Return `recorded` for a ring of the page Learn."""
    return recorded(name, len(IDS), bits=8, successors=3, ids=IDS, seed=5)


def node_at(ring: TestRing, point: int) -> Node:
    """Return the node with a vnode at a point."""
    return next(node for node in ring.nodes if Point(point) in node._host.vnodes)


async def fill(ring: TestRing) -> None:
    """Write keys, and wait until their copies are everywhere."""
    for number in range(KEYS):
        await ring[0].put(f"key {number}".encode(), b"value")
    await trio.sleep(20)


async def still(lookups: dict[str, Any]) -> None:
    """Record a ring at rest, and a lookup of `SUBJECT` from every node."""
    async with lesson("lesson-ring.chordlog") as (ring, recorder):
        await fill(ring)
        recorder.begin(ring)
        circle = ring[0].config.ring.circle
        names = {node.address: node.name for node in ring.nodes}
        for point in IDS:
            trace = await node_at(ring, point).lookup(key_id=SUBJECT)
            lookups[str(point)] = lookup_json(circle, trace, names, None)


async def join() -> None:
    """Record a node that joins."""
    async with lesson("lesson-join.chordlog") as (ring, recorder):
        await fill(ring)
        recorder.begin(ring)
        await trio.sleep(1)
        node = await ring.start(name=str(NEWCOMER), id=NEWCOMER)
        for _ in range(400):
            await trio.sleep(0.05)
            recorder.look()
        assert node.state == "ready"


async def death() -> None:
    """Record the death of a node, the takeover, and its return."""
    async with lesson("lesson-death.chordlog") as (ring, recorder):
        await fill(ring)
        recorder.begin(ring)
        await trio.sleep(1)
        casualty = node_at(ring, CASUALTY)
        recorder.fault("kill", ((casualty.name,),))
        await ring.kill(casualty)
        for _ in range(300):
            await trio.sleep(0.05)
            recorder.look()


async def life() -> None:
    """Record a ring of 16 nodes in which one is killed and returns, and another joins."""
    async with recorded("kill.chordlog.gz", LIFE_NODES, bits=160, successors=8, ids=None, seed=4) as (ring, recorder):
        for number in range(LIFE_KEYS):
            await ring[number % LIFE_NODES].put(f"key {number}".encode(), b"value")
        await trio.sleep(30)
        recorder.begin(ring)
        await every(recorder, 8, ring)
        casualty = ring[7]
        recorder.fault("kill", ((casualty.name,),))
        await ring.kill(casualty)
        await every(recorder, 12, ring)
        await ring.start(join=(), name=casualty.config.name)
        await every(recorder, 11, ring)
        await ring.start(name=f"n{LIFE_NODES}")
        await every(recorder, 15, ring)
        assert not ring.violations()


async def split() -> None:
    """Record a ring while its network falls into two parts, until one ring remains."""
    async with recorded("split.chordlog.gz", 12, bits=160, successors=4, ids=None, seed=11) as (ring, recorder):
        for number in range(SPLIT_KEYS):
            await ring[number % len(ring)].put(f"key {number}".encode(), b"value")
        await trio.sleep(20)
        recorder.begin(ring)
        names = [node.config.name or "" for node in ring.nodes]
        await every(recorder, 4)
        ring.network.partition(names[::2], names[1::2])
        await every(recorder, 26)
        ring.network.heal()
        for _ in range(60):
            await every(recorder, 1)
            if not ring.waiting():
                break
        await every(recorder, 5)
        assert not ring.violations()


async def every(recorder: Recorder, seconds: int, ring: TestRing | None = None) -> None:
    """Record the states of the next seconds, and with a ring also a read from time to time."""
    for number in range(4 * seconds):
        await trio.sleep(0.25)
        recorder.look()
        if ring is not None:
            await recorder.get(f"key {number}", ring[0])


def main() -> None:
    """Write all recordings."""
    FOLDER.mkdir(exist_ok=True)
    lookups: dict[str, Any] = {}
    tasks: list[Callable[[], Awaitable[None]]] = [partial(still, lookups), join, death, split, life]
    for task in tasks:
        testing.run(task)
    (FOLDER / "lesson-lookups.json").write_text(json.dumps(lookups, indent=1) + "\n")
    for path in sorted(FOLDER.iterdir()):
        sys.stdout.write(f"{path.name}: {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
