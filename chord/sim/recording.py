"""The recording of a run as a `.chordlog`: states, events, faults, operations and checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from chord.events import Emitted, NodeStateChanged, StepDone
from chord.node import Node
from chord.observe.chordlog import ChordlogWriter, LogHeader
from chord.observe.event_log import event_info
from chord.observe.model import PARTS, RingModel, event_fields
from chord.sim.cluster import EPOCH_S, Cluster
from chord.sim.plan import LOSS, Plan
from chord.verify import invariants
from chord.verify.history.format import decode

ENDS = {"vanish": "dead", "cut_power": "dead", "kill": "dead"}
"""The faults that end a process, and the state of its node afterwards."""


class RunRecorder:
    """A writer of one run's recording (`.chordlog`). Give its methods to `Run` as callbacks, then call `end`.

    Args:
        plan: the plan of the run.
        command: the command that repeats the run.
        write: called with each line, newline included.

    Attributes:
        model: the recorded state.
    """

    def __init__(self, plan: Plan, command: str, write: Callable[[bytes], object]) -> None:
        constants = plan.constants
        self.model = RingModel()
        self._plan = plan
        self._log = ChordlogWriter(write, LogHeader(
            source="simulation", seed=plan.seed, command=command, bits=constants.bits,
            successors=constants.successors, replicas=constants.replicas, quorum=constants.quorum,
            began_ms=1000 * EPOCH_S, clock="virtual",
        ))  # fmt: skip
        self._living: list[Node] = []
        self._has_begun = False

    def on_event(self, cluster: Cluster, emitted: Emitted) -> None:
        """Write an event and the new state of its node, and a keyframe if it is due."""
        self._go_on()
        self._note_ends(cluster)
        event = emitted.event
        if not isinstance(event, StepDone):
            self._log.line("e", event_fields(event_info(emitted)))
            for node in cluster.nodes:
                if node.address == emitted.node:
                    self._describe(node)
            if isinstance(event, NodeStateChanged) and event.state == "left":
                self._log.change(self.model.remove(emitted.node))
        if self._log.is_keyframe_due:
            for node in cluster.nodes:
                self._describe(node)
            self._log.keyframe(self.model)
            self._check(cluster)

    def on_fault(self, what: str, groups: tuple[tuple[str, ...], ...]) -> None:
        """Write a fault, or its end: its name, such as "partition" or "heal", and the groups of hosts."""
        self._go_on()
        self._log.line("f", {"do": what, "groups": groups})
        if what in ENDS:
            for node in self._living:
                if (node.name,) in groups:
                    self._log.change(self.model.lose(node.address, ENDS[what]))

    def on_operation(self, line: bytes) -> None:
        """Write an operation of the history, with a point in place of its key, and without values."""
        self._go_on()
        operation = decode(line, 1)
        self._log.line("o", {
            "c": operation.client, "p": str(int(self._plan.constants.circle.hash(str(operation.key).encode()))),
            "f": operation.kind, "st": operation.status, "t0": operation.start_s, "t1": operation.end_s,
            "found": len(operation.found),
        })  # fmt: skip

    def end(self, outcome: str) -> None:
        """Write the last line, with the outcome of the run in words. Call it once, after the run."""
        self._log.end(outcome)

    def _go_on(self) -> None:
        """Set the time of the next lines. The first lines are the empty state and the lasting faults."""
        self._log.at(trio.current_time())
        if not self._has_begun:
            self._has_begun = True
            self._log.keyframe(self.model)
            if "loss" in self._plan.faults:
                self._log.line("f", {"do": "loss", "groups": (), "share": LOSS})

    def _note_ends(self, cluster: Cluster) -> None:
        """Note the nodes that ended by themselves, such as those that the ring refused."""
        if cluster.nodes != self._living:
            living = {node.address for node in cluster.nodes}
            for node in self._living:
                if node.address not in living:
                    self._log.change(self.model.lose(node.address, "stopped" if node.state == "stopped" else "dead"))
            self._living = list(cluster.nodes)

    def _describe(self, node: Node) -> None:
        if node.address and node.state != "left":  # a node that left may still close its connections
            self._log.change(self.model.describe(node._local_status(PARTS)))

    def _check(self, cluster: Cluster) -> None:
        """Write the violated invariants, and the number of differences to an Ideal ring."""
        snapshot = cluster.snapshot()
        found: list[dict[str, Any]] = [
            {"invariant": wrong.invariant, "text": wrong.text, "nodes": [str(int(point)) for point in wrong.nodes]}
            for wrong in invariants.violations(snapshot, self._plan.successors)
        ]
        waiting = len(invariants.waiting(snapshot, self._plan.successors))
        self._log.line("c", {"members": len(snapshot), "violations": found, "waiting": waiting})
