"""The nemesis of a run with a theme: long and hard times of one kind.

The kinds are absences, power cuts, wrong clocks, stopped processes, bad disks, new addresses and late requests. Such a
run is made of episodes. An episode hits some of the nodes, sometimes all. It lasts from a tenth of a period of the
ring, such as `down_out_s`, to a hundred periods, while the other nodes go on. After its end the ring must heal. No disk
is lost, so no acknowledged write may be lost.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import trio

from chord.errors import ChordError
from chord.node import Node
from chord.sim.cluster import Cluster
from chord.sim.fault_schedule import FaultSchedule
from chord.sim.observer import Watch
from chord.sim.plan import Plan
from chord.sim.situations import absences
from chord.sim.workload import Workload
from chord.testing.rings import PORT

LASTS_MAX_S = 600.0
QUIET_S = (0.2, 2.0)
BUSY_S = 10.0
"""Seconds of normal client activity per episode; in longer ones clients slow down.

Busy clients cost real time.
"""
MEANWHILE_S = 3.0
MEANWHILE = 0.3
STAGGER = 3.0
"""After a power cut, machines start within this multiple of the cut's duration."""
DAY_S = 86_400.0
DRIFT_MAX = 0.2
"""Most seconds that a clock gains or loses in one second.

That is far more than in real clocks, so that a short run shows an effect.
"""
ROOM_BYTES = 500
RESTART_S = 0.5
UNANSWERED = 0.3
"""Fraction of the conditional copies without an answer. Both copies of a put must be lost to leave it undecided."""
HASTY = 0.5
"""Fraction of the writes that their clients do not retry. A version may then stay on some replicas only."""
SLOW_S = 0.5
"""Extra seconds that each sync of a slow disk takes."""


class Hardships:
    """Draws and carries out the episodes of one theme (main kind of trouble) on one cluster.

    Args:
        plan: the plan of the run, with its theme.
        cluster: the machines and nodes of the run.
        workload: the workload, with the oracle and the loss accounting.
        watch: the observer.
        schedule: starts and kills nodes.
        healed: waits until the ring is Ideal again after an episode.

    Attributes:
        episodes: number of episodes that are over.
    """

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        workload: Workload,
        watch: Watch,
        schedule: FaultSchedule,
        healed: Callable[[], Awaitable[None]],
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._workload = workload
        self._watch = watch
        self._schedule = schedule
        self._healed = healed
        self._rng = random.Random(f"hardships/{plan.seed}")
        timing = plan.timing
        self._periods_s = [timing.timeout_cap_s, timing.anti_entropy_s, timing.down_out_s, timing.grace_s]
        self._moves = 0
        self.episodes = 0
        self._actions: dict[str, Callable[[], Awaitable[None]]] = {
            "absence": self._absence,
            "power": self._power_cut,
            "clocks": self._wrong_clocks,
            "stop": self._stopped,
            "disks": self._bad_disks,
            "addresses": self._new_addresses,
            "delivery": self._restarts,
        }

    def begin(self) -> None:
        """Begin the faults that last for the whole run: only in theme *delivery*, late and doubled requests."""
        network = self._cluster.network
        if self._plan.theme == "delivery" and hasattr(network, "lateness"):
            network.lateness.late = network.lateness.twice = 0.03
            network.lateness.unanswered = UNANSWERED
            self._workload.hasty = HASTY

    async def do_something(self) -> None:
        """Let one episode happen, and wait until the ring has healed."""
        await trio.sleep(self._rng.uniform(*QUIET_S))
        self._workload.oracle.is_lenient = True
        await self._actions[self._plan.theme]()
        await self._healed()
        self._workload.oracle.is_lenient = False
        self._workload.oracle.merged()
        self.episodes += 1

    def _count(self, situation: str, times: int = 1) -> None:
        self._watch.counts[f"situation {situation}"] += times

    # -- nodes and durations ----------------------------------------------------------------------

    def _some(self) -> list[Node]:
        """Draw some of the nodes in state `ready`, sometimes all."""
        ready = [node for node in self._cluster.nodes if node.state == "ready"]
        return self._rng.sample(ready, self._rng.randint(1, len(ready))) if ready else []

    def _duration_s(self) -> float:
        """Draw the duration of an episode in seconds.

        The first episode of a run is longer than every period of the ring. The others last a tenth to a hundred times
        one of the periods, at most `LASTS_MAX_S`.
        """
        period_s = self._rng.choice(self._periods_s)
        if not self.episodes:
            return max(self._periods_s) * self._rng.uniform(1.1, 5)
        return min(LASTS_MAX_S, float(period_s * 10 ** self._rng.uniform(-1, self._rng.choice([1, 1, 2]))))

    def _count_absences(self, count: int, lasted_s: float, how: str) -> None:
        """Count absences of nodes that ran but were cut off or stopped.

        `LossAccounting` counts the absences of dead nodes. `how` is "cut off" or "stopped".
        """
        for name, times in absences([lasted_s] * count, self._plan, how).items():
            self._count(name, times)

    async def _last(self, seconds: float) -> None:
        """Let time pass; meanwhile some nodes join, and some that are not stopped leave."""
        self._workload.slower = max(1.0, seconds / BUSY_S)
        until = trio.current_time() + seconds
        while trio.current_time() < until:
            await trio.sleep(min(self._rng.uniform(0, 2 * MEANWHILE_S), until - trio.current_time()))
            running = [node for node in self._cluster.nodes if node.name not in self._cluster.stopped]
            ready = [node for node in running if node.state == "ready"]
            if self._rng.random() >= MEANWHILE or not ready:
                continue
            nodes = len(self._cluster) + len(self._workload.inventory.dead())
            if self._rng.random() < 0.5 and nodes < self._plan.nodes_max:
                await self._schedule.join(join=ready[:3])
            elif len(ready) > self._plan.nodes_min:
                leaver = self._rng.choice(ready)
                if self._schedule.keeps_entry_nodes(leaver):
                    leaver._begin_leave()
                    self._schedule.count("leave")
        self._workload.slower = 1.0

    # -- absences ---------------------------------------------------------------------------------

    async def _absence(self) -> None:
        """Kill, cut off or stop some nodes, and bring them back."""
        nodes, lasts_s = self._some(), self._duration_s()
        how = self._rng.choice([self._dead_for, self._cut_off_for, self._stop_for])
        await how(nodes, lasts_s)

    async def _dead_for(self, nodes: list[Node], lasts_s: float) -> None:
        for node in nodes:
            await self._schedule.kill(node)
            self._schedule.count("crash")
        await self._last(lasts_s)
        for node in nodes:
            await self._back(node.name)

    async def _cut_off_for(self, nodes: list[Node], lasts_s: float) -> None:
        self._schedule.count("partition", 0)
        self._count_absences(len(nodes), lasts_s, "cut off")
        network = self._cluster.network
        network.partition([node.name for node in nodes], reset=self._rng.random() < 0.5)
        self._workload.oracle.split()
        await self._last(lasts_s)
        network.heal()

    async def _stop_for(self, nodes: list[Node], lasts_s: float) -> None:
        for node in nodes:
            self._cluster.stop(node)
            self._count("process stopped")
            self._count("process stopped longer than every period", lasts_s > max(self._periods_s))
        self._count_absences(len(nodes), lasts_s, "stopped")
        await self._last(lasts_s)
        for node in nodes:
            self._cluster.wake(node.name)

    async def _stopped(self) -> None:
        await self._stop_for(self._some(), self._duration_s())

    async def _back(self, host: str, **changes: object) -> None:
        """Start the dead node of a machine again, as an operator would.

        Do nothing if the machine has no dead node, or a task will start it. The entry nodes are up to three ready
        nodes. With a new `listen` address they need not be ready: if all nodes have moved, the node knows no current
        address of a member.

        Args:
            changes: arguments of `Cluster.start`.
        """
        if host in self._workload.inventory.dead() and not self._schedule.is_coming_back(host):
            self._schedule.count("restart")
            join = [node for node in self._cluster.nodes if node.state == "ready" or "listen" in changes]
            node = await self._schedule.start(join=join[:3], name=host, **changes)
            self._schedule.is_back(node)

    # -- power ------------------------------------------------------------------------------------

    async def _power_cut(self) -> None:
        """Cut the power of all machines, at once or one by one, and start them one by one."""
        nodes, lasts_s = list(self._cluster.nodes), self._duration_s()
        fades_s = self._rng.choice([0.0, 0.0, 1.0, lasts_s / 10])
        self._count("power cut of all nodes")
        self._count("staggered power cut", fades_s > 0)
        for node in self._rng.sample(nodes, len(nodes)):
            if node in self._cluster.nodes:
                await self._schedule.kill(node, power_loss=True)
                self._schedule.count("blackout")
                await trio.sleep(self._rng.uniform(0, fades_s / len(nodes)))
        await trio.sleep(lasts_s)
        within_s = self._rng.choice([0.0, 5.0, STAGGER * min(lasts_s, 20.0)])
        self._count("staggered return", within_s > 0)
        async with trio.open_nursery() as nursery:
            for host in self._workload.inventory.dead():
                nursery.start_soon(self._back_after, host, self._rng.uniform(0, within_s))

    async def _back_after(self, host: str, seconds: float) -> None:
        await trio.sleep(seconds)
        await self._back(host)

    # -- clocks -----------------------------------------------------------------------------------

    async def _wrong_clocks(self) -> None:
        """Let clocks differ, drift and jump; restart nodes after a moment or a long time."""
        cluster, lasts_s = self._cluster, self._duration_s()
        reaped = cluster.totals()["keys_reaped"]
        for node in self._some():
            host, true_ms = node.name, cluster.wall_now_ms(node.name)
            if self._rng.random() < 0.5:
                cluster.drifts[host] = self._rng.uniform(-DRIFT_MAX, DRIFT_MAX)
                cluster.skews_s[host] = cluster.skews_s.get(host, 0.0) + (true_ms - cluster.wall_now_ms(host)) / 1000
                self._count("clock drifts")
            if self._rng.random() < 0.7:
                step_s = self._rng.choice([1.0, self._plan.timing.grace_s, 3600.0, 3 * DAY_S])
                cluster.skew(host, cluster.skews_s.get(host, 0.0) + self._rng.choice([-1, 1]) * step_s)
                self._count("clock stepped")
        shown_s = [cluster.wall_now_ms(node.name) / 1000 for node in cluster.nodes]
        self._count("clocks differ", max(shown_s, default=0) - min(shown_s, default=0) > self._plan.timing.grace_s)
        if self.episodes and self._rng.random() < 0.5:
            for node in self._some():
                if node in cluster.nodes:
                    await self._schedule.kill(node)
                    await trio.sleep(self._rng.uniform(0, 1))
                    await self._back(node.name)
        else:
            await self._dead_for(self._some(), lasts_s)
        self._count("reaped while clocks are wrong", cluster.totals()["keys_reaped"] - reaped)

    # -- disks ------------------------------------------------------------------------------------

    async def _bad_disks(self) -> None:
        """Let disks be slow, hang, fill up or refuse node.json, and restart some nodes."""
        nodes, lasts_s = self._some(), self._duration_s()
        for node in nodes:
            disk, what = self._cluster.disk(node.name), self._rng.choice(["slow", "hung", "full", "node.json refused"])
            self._count(f"disk {what}")
            self._count(f"disk {what} longer than every period", lasts_s > max(self._periods_s))
            if what == "slow":
                disk.slow(SLOW_S)
            elif what == "hung":
                disk.hang()
            elif what == "full":
                disk.fill(self._rng.randrange(ROOM_BYTES))
            else:
                disk.refuse_identity()
        await self._last(lasts_s)
        is_rolling = self._rng.random() < 0.5
        for node in nodes:
            disk = self._cluster.disk(node.name)
            disk.free()
            disk.resume()
            disk.slow(0)
            disk.accept_identity()
            if is_rolling and node in self._cluster.nodes and node.state == "ready":
                await self._schedule.kill(node)
            await self._back(node.name)
            await trio.sleep(self._rng.uniform(0, 2))

    # -- addresses --------------------------------------------------------------------------------

    async def _new_addresses(self) -> None:
        """Start nodes at new addresses, at each other's, or twice from a copied directory.

        A node that is joining may know one address of the ring only, so the others wait for it.
        """
        while any(node.state == "joining" for node in self._cluster.nodes):
            await trio.sleep(0.05)
        nodes, lasts_s = self._some(), self._duration_s()
        for node in nodes:
            await self._schedule.kill(node)
            self._schedule.count("crash")
        await self._last(lasts_s)
        old = [node.config.listen or "" for node in nodes]
        for at, node in enumerate(nodes):
            self._moves += 1
            if self._rng.random() < 0.5:
                listen = f"{node.name}-{self._moves}:{PORT}"
                self._count("address changed")
            else:
                listen = old[(at + 1) % len(old)]
                self._count("address reused", listen != old[at])
            await self._back(node.name, listen=listen)
        if self._rng.random() < 0.5:
            await self._clone()

    async def _clone(self) -> None:
        """Start a node on a copy of a running node's directory: the ring must refuse it."""
        ready = [node for node in self._cluster.nodes if node.state == "ready"]
        if len(ready) < 2:
            return
        self._moves += 1
        host, victim = f"clone{self._moves}", self._rng.choice(ready)
        self._cluster.clone(victim.name, host)
        self._count("directory cloned")
        twin = await self._schedule.start(join=[node for node in ready if node is not victim][:3], name=host)
        with trio.move_on_after(30):
            try:
                await twin.ready()
            except ChordError:
                return
        self._watch.complain(f"{host} runs on a copy of the directory of {victim.name}, which runs too")

    async def _restarts(self) -> None:
        """Restart a node; the main trouble of theme *delivery* is the late requests."""
        await self._dead_for(self._some()[:1], self._rng.uniform(0, RESTART_S))
