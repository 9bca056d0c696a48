"""Scenarios in which a mistake with a pointer shows soon. Each is a function of a seed.

Without a bug all of them are silent on every seed the tests use: that is tested too.
"""

from __future__ import annotations

import msgspec
import trio

from chord import events, testing
from chord.config import PRESETS
from chord.events import Emitted
from chord.ids import Point
from chord.node import Node
from chord.sim.messages import MessageNetwork

from .play import FORGIVING, World, may_go, play, vnode_of

# Rounds follow each other as fast as messages do, and no node ever counts as dead.
HECTIC = msgspec.structs.replace(
    PRESETS["local"], stabilize_s=0.1, finger_s=1.0, timeout_floor_s=1.0, timeout_stranger_s=1.0
)

# Few rounds run without a trigger.
UNHURRIED = msgspec.structs.replace(PRESETS["local"], stabilize_s=2.0)

GROWING = msgspec.structs.replace(PRESETS["local"], period_growth_max=8.0)

CALM_DEATH_S = 3.0
"""The time in which a ring of eight heals after a kill: less than two grown periods."""


def small_ring(seed: int) -> None:
    """A ring of fewer than r + 1 nodes: lists name every node once. One node joins, one leaves."""

    async def scene(world: World) -> None:
        await (await world.ring.start()).ready()
        await world.converged()
        await world.rng.choice(world.nodes).leave()
        await world.converged()

    play(seed, scene, nodes=2 + seed % 3)


def one_failure(seed: int) -> None:
    """The successor of a newcomer dies right after the join: one failure in a ring that tolerates r - 1."""

    async def scene(world: World) -> None:
        await world.ring.start()
        joined = await world.happens(events.RingJoined)
        await world.kill(world.at(joined.successor.address))
        await world.converged()

    play(seed, scene, nodes=8)


def adjacent_joins_and_crashes(seed: int) -> None:
    """Joins side by side and crashes, in rounds as short as a round trip: every step meets another.

    No message takes twice as long as another, so that an answer is never older than a round trip: then
    abort-if-observed makes every step atomic.
    """

    async def scene(world: World) -> None:
        ring, rng = world.ring, world.rng
        for _ in range(28):
            await trio.sleep(rng.uniform(0, 0.3))
            if rng.random() < 0.75:
                points = list(ring._vnodes())
                at = rng.randrange(len(points))
                gap = (points[at] - points[at - 1]) % (1 << 160)
                first = points[at - 1] + 1 + rng.randrange(max(1, gap - 9))
                for number in range(rng.choice([1, 2, 3])):
                    await ring.start(id=Point((first + number) % (1 << 160)))
            else:
                node = rng.choice(world.nodes)
                if may_go(ring, node, 2):
                    await world.kill(node)
        await ring.converged()

    play(seed, scene, nodes=6, successors=2, timing=HECTIC, network=fast_rounds(seed))


def lost_goodbye(seed: int) -> None:
    """A node leaves, and its goodbye to the predecessor is lost. Rounds later the next node dies."""
    network = MessageNetwork(seed)

    async def scene(world: World) -> None:
        _, leaver, behind = world.row(3)
        leaver._begin_leave()
        await world.happens(events.ArcLost)
        network.loss = 1.0
        await trio.sleep(0.002)
        network.loss = 0.0
        while vnode_of(leaver).state != "left":
            await trio.sleep(0.01)
        await trio.sleep(5 * HECTIC.stabilize_s)  # it still answers lookups of its former arc
        await world.kill(behind)
        await world.converged()

    play(seed, scene, nodes=6, successors=2, timing=HECTIC, network=network)


def fast_rounds(seed: int) -> MessageNetwork:
    """A network with round trips as long as a round."""
    return MessageNetwork(seed, delay=testing.uniform(0.04, 0.079))


def split(seed: int) -> None:
    """Two halves, each an Ideal ring, count each other as dead and meet again. Only a self-lookup finds it."""

    async def scene(world: World) -> None:
        ring = world.ring
        ring.network.partition([node.name for node in ring.nodes[:3]], reset=True)
        await trio.sleep(5)
        assert any(v.invariant == "AtMostOneRing" for v in ring.violations())
        ring.network.heal()
        await world.converged()

    play(seed, scene, nodes=6, timing=FORGIVING, is_watched=False)


def death_in_a_calm_ring(seed: int) -> None:
    """A node is killed after a long calm. The ring heals as fast as ever, because the end of a stream is news."""

    async def scene(world: World) -> None:
        await trio.sleep(64 * PRESETS["local"].stabilize_s)
        await world.kill(world.rng.choice(world.nodes))
        await world.ring.converged(CALM_DEATH_S)

    play(seed, scene, nodes=8, timing=GROWING, network=testing.MemoryNetwork(seed))


def late(seed: int) -> None:
    """Members with outdated pointers ask to be a predecessor again. They must be refused, without other harm."""

    async def scene(world: World) -> None:
        *late, node = world.row(4)
        for other in late:  # they still have the same old successor
            vnode_of(other).ring.successors = (vnode_of(node).me, *vnode_of(node).ring.successors)[:4]
        world.watch.start_over()
        world.watch.calm_down()
        await world.converged()

    play(seed, scene, nodes=8)


def wrong_verdict_about_a_predecessor(seed: int) -> None:
    """A member asks a vnode that wrongly counts its own predecessor as dead. The vnode pings it, and it answers."""

    async def scene(world: World) -> None:
        late, predecessor, node = world.row(3)
        _take_for_dead(node, predecessor)
        node._parts[vnode_of(node).id].stabilizer.notified(vnode_of(late).me)
        world.watch.calm_down()
        await trio.sleep(1)
        await world.converged()

    play(seed, scene, nodes=8)


def _take_for_dead(who: Node, whom: Node) -> None:
    failure_detector = who._host.peers.failure_detector
    for _ in range(who._host.timing.dead_misses):
        failure_detector.missed(whom.address, trio.current_time(), False, "no answer")
    assert failure_detector.is_dead(whom.address)


def wrong_verdict_about_a_successor(seed: int) -> None:
    """A member wrongly counts its second successor as dead, then the first dies. It asks the second, which answers."""

    async def scene(world: World) -> None:
        node, first, second = world.row(3)
        _take_for_dead(node, second)
        await world.kill(first)
        await world.converged()

    play(seed, scene, nodes=8)


def last_entry_leaves(seed: int) -> None:
    """The only entry of a member's list leaves. The member has just dropped a dead head, and asked no vnode yet.

    The leaver sends its own list. Without this list the member becomes a ring of its own.
    """

    async def scene(world: World) -> None:
        node, leaver = world.row(2)
        watch, here, gone = world.watch, vnode_of(node).ring, vnode_of(leaver).id

        def on_event(emitted: Emitted) -> None:
            event = emitted.event
            if isinstance(event, events.ArcLost) and event.vnode == gone:
                watch.go_outside()  # in the proof a leaver that no longer answers is dead
                here.successors = here.successors[:1]
            elif isinstance(event, events.HeadForgotten) and event.vnode == here.me.id:
                watch.come_back()
                watch.check()

        await trio.sleep(world.rng.uniform(1, 2))
        world.on_event = on_event
        await leaver.leave()
        await world.converged()

    play(seed, scene, nodes=6, successors=2, timing=UNHURRIED)
