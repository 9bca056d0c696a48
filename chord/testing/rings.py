"""A ring of real nodes in memory: start, kill, leave, restart, await convergence.

    async def test_heals(autojump_clock):
        async with chord.testing.open_ring(16, seed=7) as ring:
            await ring.kill(ring[3])
            await ring.converged()

The nodes are the same as on TCP, codec and flow control included. The network and the identities are in memory, and all
randomness comes from the seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec
import trio

from chord.config import PRESETS, Limits, NodeConfig, RingConstants, Timing
from chord.errors import ChordError, DuplicateId, OtherRing, unwrapped
from chord.events import Emitted, HandlerFailed, Observer, ignore
from chord.ids import Point
from chord.node import Node
from chord.node.world import World
from chord.ring.vnode import Vnode
from chord.store.identity import MemoryIdentity
from chord.store.storage import MemoryStorage
from chord.testing.faults import FaultyNetwork
from chord.testing.network import MemoryNetwork
from chord.verify import invariants
from chord.verify.invariants import Member, Violation

PORT = 1
CONVERGED_WITHIN_S = 60.0


def network_host(node: Node) -> str:
    """Return the network host at which a node listens.

    The host has the name of the node, unless the node's address has changed.
    """
    return (node.config.listen or "").partition(":")[0]


class NotConverged(AssertionError):
    """The ring did not become Ideal in time. The message lists the reasons."""


class NodeRandom(random.Random):
    """The source of random numbers of one node; with a slot, it needs no dictionary for its only attribute."""

    __slots__ = ("gauss_next",)


class TestRing:
    """Nodes on one in-memory network. Created by `open_ring`.

    Attributes:
        network: the network, to inject faults; node `n3` is on host "n3".
        nodes: the running nodes, in the order of their start.
        counts: number of events of each class so far, of all nodes together.
        steps: number of events so far.
        expected: errors that may end a node without failing the test; a test may add to them.
    """

    __test__ = False  # pytest collects no class with this attribute
    expected: tuple[type[ChordError], ...] = (OtherRing, DuplicateId)

    def __init__(
        self,
        nursery: trio.Nursery,
        network: FaultyNetwork,
        seed: int | str,
        template: NodeConfig,
        observe: Observer,
    ) -> None:
        self._nursery = nursery
        self._seed = seed
        self._template = template
        self._observe = observe
        self._scopes: dict[str, trio.CancelScope] = {}
        self._identities: dict[str, MemoryIdentity] = {}
        self._started = 0
        self._ended: Counter[str] = Counter()
        self.network = network
        self.nodes: list[Node] = []
        self.counts: Counter[str] = Counter()
        self.steps = 0

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, index: int) -> Node:
        return self.nodes[index]

    # -- nodes come and go ----------------------------------------------------------------------

    async def start(
        self, *, join: Sequence[Node] | None = None, name: str | None = None, listen: str | None = None, **changes: Any
    ) -> Node:
        """Start one more node, and return it as soon as it listens.

        `await node.ready()` waits until the node is a member. A node that ends before it listens is returned, too: it
        was killed, or its disk could not be opened.

        Args:
            join: nodes to join by; default: up to three nodes in state `ready` at random, or running ones if none is
                ready. Empty: the node returns to the ring of its persisted identity; without that, it founds a ring.
            name: the node's host; default: the next unused name. A name that was used before means that host, with its
                persisted identity.
            listen: the node's address; default: port 1 of its host.
            changes: fields of `NodeConfig` that differ from those of the ring.
        """
        host = name or f"n{self._started}"
        self._started += 1
        rng = NodeRandom(f"{self._seed}/{host}/{self._started}")
        address = listen or f"{host}:{PORT}"
        if join is None:
            members = [node for node in self.nodes if node.state == "ready"] or self.nodes
            join = rng.sample(members, min(3, len(members)))
        config = msgspec.structs.replace(
            self._template, listen=address, name=host, join=tuple(node.address for node in join), **changes
        )
        node = self._make_node(host, config, rng)
        self._scopes[host] = trio.CancelScope()
        self.nodes.append(node)
        try:
            await self._nursery.start(self._run, node, host, name=host)
        except RuntimeError:
            if not node.closed.is_set():
                raise
        return node

    def _make_node(self, host: str, config: NodeConfig, rng: random.Random) -> Node:
        """Build a node on a host. Subclasses may build it in another way."""
        return Node(config, self._world(host, config, rng))

    def _world(self, host: str, config: NodeConfig, rng: random.Random) -> World:
        """Return the `World` of a new node: its network, store, clock and randomness.

        The store is in memory, and empty.
        """
        return World(
            connect=self.network._connector(host),
            storage=MemoryStorage(config.ring.circle, rng.randbytes(8)),
            identity=self._identity(host),
            wall_now_ms=lambda: int(1000 * trio.current_time()),
            rng=rng,
            observe=self._on_event,
        )

    def _identity(self, host: str) -> MemoryIdentity:
        """Return the persisted ids and pointers of a host, which its next node takes over."""
        return self._identities.setdefault(host, MemoryIdentity())

    def _forget_identity(self, host: str) -> None:
        """Delete a host's persisted identity, so that its next node has a new identity."""
        self._identities.pop(host, None)

    async def _run(self, node: Node, host: str, task_status: trio.TaskStatus[str]) -> None:
        running = node.run(task_status=task_status)
        del task_status  # see `Node.run`
        try:
            with self._scopes[host]:
                await running
            self._on_ended(node)
        except self.expected:
            self._on_refused(node)  # `node.ready()` raises the error
        finally:
            self._ended.update(node._host.counters)
            if node in self.nodes:
                self.nodes.remove(node)

    def _on_ended(self, node: Node) -> None:
        """Do nothing. Subclasses may react to a node that has ended without an error."""

    def _on_refused(self, node: Node) -> None:
        """Do nothing. Subclasses may react to a node that ended with an expected error."""

    async def kill(self, node: Node, *, silently: bool = False) -> None:
        """End a node as kill -9 does: without a goodbye and without a handover.

        Its identity is kept. Its memory is lost, with all records that are not on a disk.

        Args:
            node: the node.
            silently: the machine vanishes with the node; peers see no reset.
        """
        host = node.config.name or ""
        if node in self.nodes:
            self.nodes.remove(node)
        self._scopes[host].cancel()
        at = network_host(node)
        self.network.crash(at, silently=silently)  # before its tasks run again, so that their clean-up sends nothing
        await node.closed.wait()

    async def restart(self, node: Node) -> Node:
        """Kill a node, and start it again with the same identity on the same host.

        The node has lost all records that are not on a disk. The call returns when the node listens.
        """
        await self.kill(node)
        return await self.start(join=(), name=node.config.name)

    # -- state --------------------------------------------------------------------------

    def _vnodes(self) -> dict[Point, Vnode]:
        """Return the vnodes of running nodes that are members, by id in ascending order."""
        all_of_them = [v for node in self.nodes for v in node._host.vnodes.values()]
        found = {v.id: v for v in all_of_them if v.ring.is_member and v.state != "left"}
        return dict(sorted(found.items()))

    def totals(self) -> Counter[str]:
        """Return, by the name of a node's counter, the sum over all nodes, ended nodes included."""
        return sum((node._host.counters for node in self.nodes), start=self._ended.copy())

    def snapshot(self) -> dict[int, Member]:
        """Return the pointers of all vnodes that are members, by id, for the checks of `chord.verify.invariants`."""
        return {
            point: Member(
                predecessor=None if v.ring.predecessor is None else v.ring.predecessor.id,
                successors=tuple(c.id for c in v.ring.successors),
                address=v.me.address,
                rounds=v.rounds,
            )
            for point, v in self._vnodes().items()
        }

    def violations(self) -> list[Violation]:
        """Return the present violations of the ring's invariants.

        They are those of `chord.verify.invariants`.
        """
        return invariants.violations(self.snapshot(), self._template.ring.successors)

    def waiting(self) -> list[Violation]:
        """Return the differences between the ring and an Ideal ring; empty if it is Ideal.

        An Ideal ring has exact pointers, and exactly one owner for every point.
        """
        ring = self._template.ring
        arcs = {point: [v.ownership.arc] if v.ownership.arc else [] for point, v in self._vnodes().items()}
        return [
            *invariants.waiting(self.snapshot(), ring.successors),
            *invariants.ownership(arcs, ring.circle),
        ]

    async def converged(self, within_s: float = CONVERGED_WITHIN_S) -> float:
        """Wait until all running nodes are members and the ring is Ideal.

        Args:
            within_s: time limit in seconds; default: 60.

        Returns:
            The seconds that it took.

        Raises:
            NotConverged: the time limit passed.
        """
        began = trio.current_time()
        while True:
            ending = [node for node in self.nodes if node.state != "ready"]
            waiting = self.waiting()
            if not ending and not waiting:
                return trio.current_time() - began
            if trio.current_time() - began > within_s:
                states = ", ".join(f"{node.name} is {node.state}" for node in ending)
                lines = "\n".join(f"  {v.invariant}: {v.text}" for v in waiting[:12])
                raise NotConverged(f"not Ideal after {within_s} s. {states}\n{lines}")
            await trio.sleep(self._template.timing.stabilize_s / 5)

    def _on_event(self, emitted: Emitted) -> None:
        """Count an event, and pass it to the ring's observer.

        Raises:
            AssertionError: the event reports a bug of a handler.
        """
        event = emitted.event
        self.steps += 1
        self.counts[type(event).__name__] += 1
        self._observe(emitted)
        if isinstance(event, HandlerFailed):
            raise AssertionError(f"{event.where} failed:\n{event.traceback}")


@asynccontextmanager
async def open_ring(
    n: int,
    *,
    seed: int | str = 0,
    successors: int = 4,
    bits: int = 160,
    ids: Sequence[int] | None = None,
    vnodes: int = 1,
    replicas: int = RingConstants().replicas,
    members: Literal["off", "on"] = "off",
    timing: Timing = PRESETS["local"],
    limits: Limits | None = None,
    network: FaultyNetwork | None = None,
    observe: Observer = ignore,
    wait: bool = True,
) -> AsyncIterator[TestRing]:
    """Run a ring of n nodes in memory, for the length of an `async with` block.

    At the end of the block all nodes end at once.

    Args:
        n: number of nodes. The first founds the ring; all others join by it.
        seed: seed of all random choices: delays, jitter, session ids. The nodes' addresses, and so their ids, do not
            depend on it.
        successors: r, the number of other nodes that a successor list names.
        bits: m; the circle has 2^m points.
        vnodes: number of vnodes per node.
        replicas: N, the number of nodes that keep a record.
        members: whether the nodes keep membership lists.
        timing: the periods and timeouts of every node.
        limits: the limits of every node, such as the sizes of its buffers; default: those of a real node.
        ids: n points, one for each node; for toy rings. Default: hashes of the addresses.
        network: the network of the nodes; default: a new one.
        observe: callback that gets every event of every node.
        wait: wait until the ring is Ideal before the block begins.

    Yields:
        The ring.

    Concurrency: checkpoints. Run it on virtual time: `chord.testing.run`, or pytest-trio's `autojump_clock`.
    """
    template = NodeConfig(
        ring=RingConstants(bits=bits, successors=successors, replicas=replicas),
        timing=timing,
        limits=limits or Limits(),
        preset="local",
        members=members,
        vnodes=vnodes,
    )
    with unwrapped():
        async with trio.open_nursery() as nursery:
            made = TestRing(nursery, network or MemoryNetwork(seed), seed, template, observe)
            first: list[Node] = []
            for index in range(n):
                changes: dict[str, Any] = {} if ids is None else {"id": ids[index]}
                node = await made.start(join=first, **changes)
                first = first or [node]
                if index == 0:
                    await node.ready()
            if wait:
                for node in list(made.nodes):
                    await node.ready()
                await made.converged()
            yield made
            nursery.cancel_scope.cancel()
