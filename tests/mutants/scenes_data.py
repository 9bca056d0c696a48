"""Scenarios with three replicas of each record: nodes are unreachable, die, join and leave.

Each is a function of a seed.
"""

from __future__ import annotations

import msgspec
import trio

from chord import events
from chord.config import PRESETS
from chord.ids import Arc, Point
from chord.node import Node
from chord.sim.disk import flash
from chord.store.storage import Batch
from chord.testing import MemoryNetwork

from .play import World, keys_of, live, play, themed, vnode_of

N = 3
WHOLE = Arc(Point(0), Point(0))
HASTY = msgspec.structs.replace(PRESETS["local"], anti_entropy_s=2.0, down_out_s=15.0, reprobe_first_s=1.0)
SLOW = msgspec.structs.replace(PRESETS["local"], anti_entropy_s=30.0)
OBLIVIOUS = msgspec.structs.replace(HASTY, grace_s=4.0, down_out_s=2.0)


def replicated(seed: int) -> None:
    """Clients write and read in a ring without faults."""

    async def scene(world: World) -> None:
        await _busy(world, 6, 1.0)
        await world.level(N)
        await world.workload.settle()

    play(seed, scene, nodes=6, replicas=N, timing=HASTY, sync_delay=flash)


def joins_leaves_and_crashes(seed: int) -> None:
    """A run with joins, leaves and crashes, every machine with a disk."""
    live(seed, "adjacent", "crash", "silent", "restart", replicas=N, successors=4)


def shared_keys(seed: int) -> None:
    """A run in which several clients write the same keys at once, and read them immediately."""
    live(seed, "adjacent", "restart", "hiccup", replicas=N, successors=4, shared=0.8)


def power_cuts(seed: int) -> None:
    """A run in which all machines lose their power, and return one after the other."""
    themed(seed, "power", N)


def absences(seed: int) -> None:
    """A run in which nodes are dead, cut off or stopped for long."""
    themed(seed, "absence", N)


def absences_and_trims(seed: int) -> None:
    """A run in which nodes are away for long, and must catch up because reap logs keep no entry."""
    themed(seed, "absence", N, reap_log=0)


def deletes_are_missed(seed: int) -> None:
    """One of three nodes gets no delete. Only anti-entropy repairs it, because there is no stand-in."""

    async def scene(world: World) -> None:
        await world.workload.fill(20)
        await world.level(N)
        world.watch.go_outside()
        world.workload.oracle.is_lenient = True
        away = world.rng.choice(world.nodes)
        world.ring.network.freeze(away.name)
        others = [node for node in world.nodes if node is not away]
        for number in range(20):
            await world.workload.write(world.rng.choice(others), b"old-%d" % number, "filler", "put", is_delete=True)
        world.ring.network.unfreeze(away.name)
        await world.converged()
        world.workload.oracle.is_lenient = False
        await world.level(N)
        await world.workload.settle()

    play(seed, scene, nodes=3, replicas=N, timing=HASTY, sync_delay=flash, network=MemoryNetwork(seed))


def too_few_answer(seed: int) -> None:
    """Writes reach too few replicas, and the client must get a true error."""

    async def scene(world: World) -> None:
        network, workload = world.ring.network, world.workload
        await workload.fill(20)
        world.watch.go_outside()
        workload.oracle.is_lenient = True
        for _ in range(4):
            one = world.rng.choice(world.nodes)
            for other in world.nodes:
                if other is not one:
                    network.block(one.name, other.name)
            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(_put_strictly, world, one, f"old-{number}".encode())
            network.heal()
            await trio.sleep(2)
        await world.converged()
        workload.oracle.is_lenient = False
        await world.level(N)
        await workload.settle()

    play(seed, scene, nodes=5, replicas=N, timing=HASTY, sync_delay=flash, network=MemoryNetwork(seed))


async def _put_strictly(world: World, node: Node, key: bytes) -> None:
    await world.workload.write(node, key, "filler", "no context", strict=True)


def bad_record(seed: int) -> None:
    """A record is damaged while its owner is down; then the owner coordinates writes of it with no context."""

    async def scene(world: World) -> None:
        await world.workload.fill(20)
        await world.level(N)
        for owner in list(world.nodes):
            keys = [key for key in world.workload.models if world.owner_of(key) is owner]
            if keys:
                await world.kill(owner)
                for key in keys:
                    world.ring.disk(owner.name).damage(key)
                    world.workload.accounting.damage(owner.name, key)
                back = await world.restart(owner)
                await back.ready()
                for key in keys:
                    await world.workload.write(back, key, "filler", "no context")
                await world.converged()
        await world.level(N)
        await world.workload.settle()

    play(seed, scene, nodes=6, replicas=N, timing=HASTY, sync_delay=flash)


def deleted_while_away(seed: int) -> None:
    """A replica is cut off for longer than tombstones are kept and any node waits for it, and returns."""
    _away_while_reaped(seed, is_trimmed=False)


def deleted_while_away_and_trimmed(seed: int) -> None:
    """As `deleted_while_away`, and the other replicas have trimmed the log entries meanwhile."""
    _away_while_reaped(seed, is_trimmed=True)


def deleted_while_away_and_scanned(seed: int) -> None:
    """As `deleted_while_away_and_trimmed`, and only scans are made from the return on."""
    _away_while_reaped(seed, is_trimmed=True, is_scanned=True)


def _away_while_reaped(seed: int, *, is_trimmed: bool, is_scanned: bool = False) -> None:
    async def scene(world: World) -> None:
        world.workload.accounting.is_trimming = is_trimmed
        await world.workload.fill(20)
        await world.level(N)
        world.watch.go_outside()
        world.workload.oracle.is_lenient = True
        away = world.rng.choice(world.nodes)
        world.ring.network.freeze(away.name)
        others = [node for node in world.nodes if node is not away]
        for number in range(20):
            await world.workload.write(world.rng.choice(others), b"old-%d" % number, "filler", "put", is_delete=True)
        await trio.sleep(12)
        for node in others if is_trimmed else ():
            log = node._host.reap_log
            for part in log.slices_in(WHOLE):
                await node._host.storage.commit(log.trim(part, 0))
        world.ring.network.unfreeze(away.name)
        async with trio.open_nursery() as nursery:
            if is_scanned:
                nursery.start_soon(_scan_on, world)
            await world.converged()
            await world.level(N)
            nursery.cancel_scope.cancel()
        await (world.workload.scan(world.nodes[0]) if is_scanned else world.workload.settle())

    play(seed, scene, nodes=5, replicas=N, timing=OBLIVIOUS, sync_delay=flash, network=MemoryNetwork(seed))


def reaped_and_handed_over(seed: int) -> None:
    """Reap all records while a node is away. Then a node joins and all former replicas leave.

    Afterwards the absent node returns with its old values. The former replicas return too, if they could not leave.
    """

    async def scene(world: World) -> None:
        await world.workload.fill(8)
        await world.level(N)
        world.watch.go_outside()
        world.workload.oracle.is_lenient = True
        away = world.rng.choice(world.nodes)
        await world.kill(away)
        await trio.sleep(2)
        former = world.nodes
        for number in range(8):
            await world.workload.write(world.rng.choice(former), b"old-%d" % number, "filler", "put", is_delete=True)
        await trio.sleep(12)
        await (await world.ring.start()).ready()
        async with trio.open_nursery() as nursery:
            for node in former:
                nursery.start_soon(node.leave)
        for node in (away, *former):
            if node.state != "left":
                await world.restart(node)
        await world.converged()
        await world.level(N)
        await world.workload.settle()

    play(seed, scene, nodes=4, replicas=N, timing=OBLIVIOUS, sync_delay=flash)


def owner_is_back(seed: int) -> None:
    """An owner returns, and clients write its keys when it has its arc, but not the list of its replicas yet.

    Only its predecessor answers at first, so it knows no other node.
    """

    async def scene(world: World) -> None:
        network, workload = world.ring.network, world.workload
        await workload.fill(10)
        await world.level(N)
        before, owner = world.row(2)
        vnode, keys = vnode_of(owner).id, keys_of(world, owner, 12)
        others = [node for node in world.nodes if node is not owner]
        for key in keys:
            await workload.write(owner, key, "writer", "put")
        await world.kill(owner)
        await world.converged()
        for node in others:
            if node is not before:
                network.block(node.name, owner.name)
        back = await world.restart(owner)
        await trio.sleep(0.01)
        network.heal()
        await world.happens(events.ArcGained, lambda event: event.vnode == vnode)
        network.block(before.name, back.name)
        async with trio.open_nursery() as nursery:
            for key in keys:
                nursery.start_soon(workload.write, world.rng.choice(others), key, "writer", "put")
            await trio.sleep(0.1)
            network.heal()
        await back.ready()

    play(seed, scene, nodes=7, replicas=N, timing=SLOW, sync_delay=flash)


def owner_writes_what_it_missed(seed: int) -> None:
    """Clients write keys while their owner is cut off. Then the owner coordinates writes before it gets these."""
    _owner_writes_what_it_missed(seed, is_alarm_over=True)


def owner_writes_what_it_missed_during_an_alarm(seed: int) -> None:
    """The same writes before the alarm is over. The ring is whole again."""
    _owner_writes_what_it_missed(seed, is_alarm_over=False)


def _owner_writes_what_it_missed(seed: int, *, is_alarm_over: bool) -> None:
    async def scene(world: World) -> None:
        network, workload = world.ring.network, world.workload
        await workload.fill(10)
        await world.level(N)
        await trio.sleep(6)  # every node knows all others: from now on a write needs a quorum of three
        owner = world.rng.choice(world.nodes)
        keys = keys_of(world, owner, 12)
        others = [node for node in world.nodes if node is not owner]
        workload.oracle.is_lenient = True  # while it is cut off
        world.watch.go_outside()
        network.freeze(owner.name)
        await trio.sleep(2)
        for key in keys:
            await workload.write(world.rng.choice(others), key, "writer", "put")
        network.unfreeze(owner.name)
        workload.oracle.is_lenient = not is_alarm_over
        async with trio.open_nursery() as nursery:
            for key in keys:
                nursery.start_soon(workload.write, owner, key, "writer", "put")

    play(seed, scene, nodes=7, replicas=N, timing=SLOW, sync_delay=flash, network=MemoryNetwork(seed))


def owner_missed_writes(seed: int) -> None:
    """Writes do not reach a replica, which then owns their keys. It may not deny the keys that it lacks."""

    async def scene(world: World) -> None:
        network = world.ring.network
        await world.workload.fill(10)
        await world.level(N)
        await trio.sleep(6)  # by now all replicas are in sync and know it
        owner, second = world.row(2)
        keys = keys_of(world, owner, 12)
        others = [node for node in world.nodes if node is not owner]
        network.block(owner.name, second.name)
        async with trio.open_nursery() as nursery:
            for key in keys:
                nursery.start_soon(world.workload.write, owner, key, "writer", "no context")
        await world.kill(owner)
        network.unblock(owner.name, second.name)
        async with trio.open_nursery() as nursery:
            for key in keys:
                nursery.start_soon(_read_on, world, key, others, 0.0, 0.01)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()

    play(seed, scene, nodes=7, replicas=N, timing=HASTY, sync_delay=flash, network=MemoryNetwork(seed))


def leave_with_one_reachable_replica(seed: int) -> None:
    """A node leaves while all but one of the next replicas are unreachable, and there is no stand-in."""

    async def scene(world: World) -> None:
        await world.workload.fill(10)
        leaver, _, second, third = world.row(4)
        await world.kill(second)
        await world.converged()
        for key in keys_of(world, leaver, 12):
            await world.workload.write(leaver, key, "writer", "put")
        await world.kill(third)
        await world.converged()
        await leaver.leave()

    play(seed, scene, nodes=8, successors=2, replicas=N, timing=HASTY, sync_delay=flash)


def replicas_die_in_a_row(seed: int) -> None:
    """All replicas of some keys vanish at once, with their disks. No other node may deny the keys.

    The next node has a new predecessor before it owns the arc of the dead: it waits in vain for the answer of each.
    """

    async def scene(world: World) -> None:
        await world.workload.fill(10)
        *gone, heir = world.row(N + 1)
        keys = keys_of(world, gone[0], 4)
        for key in keys:
            await world.workload.write(gone[0], key, "writer", "put")
        await world.level(N)
        others = [node for node in world.nodes if node not in gone]
        for node in gone:
            await world.kill(node, silently=True)
        await world.happens(events.PredecessorAdopted, lambda event: event.vnode == vnode_of(heir).id)
        async with trio.open_nursery() as nursery:
            for key in keys:
                nursery.start_soon(_read_on, world, key, others, 0.0, 0.01)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()

    play(seed, scene, nodes=10, replicas=N, timing=SLOW, sync_delay=flash)


def one_disk_is_lost(seed: int) -> None:
    """Replicas restart one after the other, the last on an empty disk, before any anti-entropy."""

    async def scene(world: World) -> None:
        await world.workload.fill(10)
        await trio.sleep(6)
        gone = world.row(3)
        for key in keys_of(world, gone[0], 12):
            await world.workload.write(gone[0], key, "writer", "put")
        for node in gone[:2]:
            await world.kill(node)
            back = await world.restart(node)
            await back.ready()
        await world.kill(gone[2])
        world.workload.accounting.wipe(gone[2].name)

    play(seed, scene, nodes=7, replicas=N, timing=SLOW, sync_delay=flash)


def away_for_long(seed: int) -> None:
    """All replicas of some keys die, and no node waits for them any more. They may return with their disks."""

    async def scene(world: World) -> None:
        await world.workload.fill(10)
        gone = world.row(3)
        keys = keys_of(world, gone[0], 12)
        for key in keys:
            await world.workload.write(gone[0], key, "writer", "put")
        await world.level(N)
        await trio.sleep(3)  # by now every node knows the nodes before it
        for node in gone:
            await world.kill(node)
        await trio.sleep(6 * OBLIVIOUS.down_out_s)
        for key in keys:
            await world.workload.read(world.rng.choice(world.nodes), key)

    play(seed, scene, nodes=9, successors=6, replicas=N, timing=OBLIVIOUS, sync_delay=flash)


def only_copies_are_away(seed: int) -> None:
    """With one copy of each record a node with a disk dies, and no node waits for it any more."""

    async def scene(world: World) -> None:
        await world.workload.fill(20)
        await trio.sleep(3)  # by now every node knows the nodes before it
        gone = world.rng.choice(world.nodes)
        keys = keys_of(world, gone, 4)
        for key in keys:
            await world.workload.write(gone, key, "writer", "put")
        await world.kill(gone)
        await world.converged()
        await world.workload.scan(world.rng.choice(world.nodes))
        await trio.sleep(6 * OBLIVIOUS.down_out_s)
        for key in keys:
            await world.workload.read(world.rng.choice(world.nodes), key)

    play(seed, scene, nodes=6, replicas=1, timing=OBLIVIOUS, sync_delay=flash)


def owners_of_only_copies_are_back(seed: int) -> None:
    """With one copy of each record a node dies, another joins in its arc, and the node returns after a long time."""

    async def scene(world: World) -> None:
        await world.workload.fill(20)
        await trio.sleep(3)
        gone, *others = world.nodes
        key = keys_of(world, gone, 1)[0]
        await world.workload.write(gone, key, "writer", "put")
        circle = gone._host.circle
        low = circle.hash(key)
        await world.kill(gone)
        await world.converged()
        (point,) = gone._host.vnodes
        id = circle.point(low + circle.distance(low, point) // 2)
        await (await world.ring.start(id=id, join=others[:1])).ready()
        await world.converged()
        await trio.sleep(3 * OBLIVIOUS.down_out_s)
        world.workload.accounting.bring_back(await world.ring.start(name=gone.name))
        for _ in range(200):
            await world.workload.read(world.rng.choice(others), key)
            await trio.sleep(0.01)

    play(seed, scene, nodes=6, replicas=1, timing=OBLIVIOUS, sync_delay=flash)


def owners_of_only_copies_died_in_turn(seed: int) -> None:
    """With one copy of each record two neighbours die one after another, and return in that order."""

    async def scene(world: World) -> None:
        await world.workload.fill(20)
        await trio.sleep(3)
        circle = world.nodes[0]._host.circle
        inner = world.rng.choice(world.nodes)
        (point,) = inner._host.vnodes
        clockwise = sorted(world.nodes, key=lambda node: circle.distance(point, next(iter(node._host.vnodes))))
        outer = clockwise[1]
        others = clockwise[2:]
        keys = keys_of(world, inner, 4)
        await world.kill(inner)
        await world.converged()
        for key in keys:
            await world.workload.write(others[0], key, "writer", "put")
        await world.kill(outer)
        await world.converged()
        for gone in (inner, outer):
            world.workload.accounting.bring_back(await world.ring.start(name=gone.name))
            for _ in range(5):
                for key in keys:
                    await world.workload.read(world.rng.choice(others), key)
                await trio.sleep(0.1)

    play(seed, scene, nodes=6, replicas=1, timing=OBLIVIOUS, sync_delay=flash)


def after_an_alarm(seed: int) -> None:
    """Owners have lost records in a whole ring. A false alarm before excuses nothing."""

    async def scene(world: World) -> None:
        await world.workload.fill(10)
        await world.level(N)
        world.workload.oracle.is_lenient = True
        for key in list(world.workload.models):
            owner = world.owner_of(key)
            await owner._host.storage.commit(Batch(removals=[key]))
            await world.workload.read(owner, key, r=1)

    play(seed, scene, nodes=7, replicas=N, timing=SLOW)


def owner_reads_what_it_missed(seed: int) -> None:
    """Clients write keys while their owner is cut off. Then they read from the owner before it gets the writes."""

    async def scene(world: World) -> None:
        network, workload = world.ring.network, world.workload
        await workload.fill(10)
        await trio.sleep(6)  # every node knows all others: from now on a write needs a quorum of three
        owner = world.rng.choice(world.nodes)
        keys = keys_of(world, owner, 12)
        others = [node for node in world.nodes if node is not owner]
        for key in keys:
            await workload.write(owner, key, "writer", "put")
        workload.oracle.is_lenient = True  # while it is cut off
        world.watch.go_outside()
        network.freeze(owner.name)
        await trio.sleep(2)
        for key in keys:
            await workload.write(world.rng.choice(others), key, "writer", "put")
        network.unfreeze(owner.name)
        workload.oracle.is_lenient = False
        async with trio.open_nursery() as nursery:
            for key in keys:
                nursery.start_soon(workload.read, owner, key)

    play(seed, scene, nodes=7, replicas=N, timing=SLOW, sync_delay=flash, network=MemoryNetwork(seed))


def others_read_what_the_owner_missed(seed: int) -> None:
    """Clients write keys while their owner is cut off. Then another node reads from owner and partner at once.

    The reader knows both from a read before.
    """

    async def scene(world: World) -> None:
        network, workload = world.ring.network, world.workload
        await workload.fill(10)
        await world.level(N)
        await trio.sleep(6)  # every node knows all others: from now on a write needs a quorum of three
        owner, _, _, _, writer, reader = world.row(6)
        keys = keys_of(world, owner, 12)
        for key in keys:
            await workload.write(owner, key, "writer", "put")
            await workload.read(reader, key)
        workload.oracle.is_lenient = True  # while it is cut off
        world.watch.go_outside()
        network.freeze(owner.name)
        await trio.sleep(2)
        for key in keys:
            await workload.write(writer, key, "writer", "put")
        network.unfreeze(owner.name)
        workload.oracle.is_lenient = False
        async with trio.open_nursery() as nursery:
            for key in keys:
                nursery.start_soon(workload.read, reader, key)

    play(seed, scene, nodes=7, replicas=N, timing=SLOW, sync_delay=flash, network=MemoryNetwork(seed))


def values_that_expire(seed: int) -> None:
    """Clients write values with a short time to live, and read them meanwhile."""

    async def scene(world: World) -> None:
        world.hire("ttl")
        await _busy(world, 6, 4.0)

    play(seed, scene, nodes=6, replicas=N, timing=HASTY, sync_delay=flash)


def two_of_three_are_dead(seed: int) -> None:
    """Two of three nodes die, and after a while the third waits for neither. Clients continue to write."""

    async def scene(world: World) -> None:
        await world.workload.fill(10)
        await world.level(N)
        world.watch.go_outside()
        for node in world.row(2):
            await world.kill(node)
        await trio.sleep(3 * OBLIVIOUS.down_out_s)
        for number in range(10):
            await world.workload.write(world.nodes[0], b"new-%d" % number, "writer", "no context")

    play(seed, scene, nodes=3, successors=2, replicas=N, timing=OBLIVIOUS, sync_delay=flash)


def all_is_scanned(seed: int) -> None:
    """Clients write, read and scan in a ring without faults."""

    async def scene(world: World) -> None:
        world.hire("scan")
        await _busy(world, 6, 2.0)

    play(seed, scene, nodes=6, replicas=N, timing=HASTY, sync_delay=flash)


async def _read_on(world: World, key: bytes, nodes: list[Node], writes: float = 0.1, pause_s: float = 0.002) -> None:
    while True:
        await world.workload.read(world.rng.choice(nodes), key, r=world.rng.choice([1, 2, 3]))
        if world.rng.random() < writes:
            await world.workload.write(world.rng.choice(nodes), key, "reader", "put")
        await trio.sleep(pause_s)


async def _scan_on(world: World) -> None:
    while True:
        await world.workload.scan(world.rng.choice(world.nodes))
        await trio.sleep(0.01)


async def _busy(world: World, clients: int, seconds: float) -> None:
    """Clients write and read for a while."""
    async with trio.open_nursery() as nursery:
        scope: trio.CancelScope = await nursery.start(world.workload.clients, clients, 0.05)
        await trio.sleep(seconds)
        scope.cancel()
