"""What a seed draws: how many nodes, which network, which faults, what clients do. All of it before anything runs.

Everything is drawn every time and in the same order, and wishes are put in its place afterwards, so
that a wish changes what it names and nothing else. Each fault is on with probability one half:
schedules in which everything goes wrong at once are rarely those that find a bug.

Source of the swarm: Groce et al. 2012 (ISSTA), *Swarm testing*.
"""

from __future__ import annotations

import random
from typing import Literal, TypeAlias

import msgspec

from chord.config import PRESETS, Limits, RingConstants, Timing
from chord.errors import ConfigError
from chord.sim.habits import HABITS
from chord.testing.network import Delay, lossy, uniform

Fidelity: TypeAlias = Literal["messages", "frames"]

FAULTS: dict[str, str] = {
    "adjacent": "two join next to each other at the same time",
    "crash": "kill -9: the peers' connections break",
    "silent": "a machine vanishes: nobody hears anything",
    "row": "r - 1 neighbours crash at one moment",
    "restart": "a node is killed and started again, sometimes on an empty disk",
    "meddle": "either side of a hand-over dies or stalls in the middle of it",
    "hiccup": "nothing passes for less than any timeout, then all of it at once",
    "freeze": "a node is stopped for longer than any timeout, and goes on",
    "oneway": "one host cannot reach another for a while; the other way works",
    "partition": "the network falls into two parts, both go on, and it heals",
    "blackout": "every node is killed at once and started again",
    "loss": "messages are lost and sent again: they come late",
    "jitter": "one message takes up to fifteen times as long as another",
    "memory": "three in ten machines have no disk: what their nodes hold is gone when they die",
    "wipe": "three in ten of those that are started again find an empty disk",
    "damage": "half of those that are started again find a damaged record",
    "full": "a disk takes no writes for a while",
    "eio": "a disk fails in the middle of a sync, and its node must stop",
    "skew": "wall clocks are wrong by up to an hour",
    "forget": "of who died for good it is said so, and tombstones go after some seconds, when it is quiet",
    "return": "whoever is killed is started again, sooner or later: no disk is gone for good",
}
"""Every fault that can be on, and what it means."""

THEMES: dict[str, str] = {
    "mixed": "all the faults above, a little of each, in a ring that keeps to the failure assumption",
    "absence": "some nodes, or all, are dead, cut off or stopped for a tenth of a period to a hundred periods",
    "power": "all machines lose their power, and start one after the other",
    "clocks": "clocks differ, drift and are set by up to three days while tombstones are reaped",
    "stop": "processes are stopped with their timers, and wake",
    "disks": "disks are slow, hang or are full for long, and node.json cannot be written",
    "addresses": "nodes come back at other addresses, at those of others, or twice from a copied directory",
    "delivery": "requests arrive late, or twice",
}
"""What a life has most of. All themes but *mixed* have rings of one to seven nodes, some with several vnodes each,
and periods so short that a life sees the end of them."""

THEMED = 0.8
"""The share of lives with another theme than *mixed*."""
EPISODES = 4
THEMED_FAULTS = ("return",)

GRACE_S = 8.0
"""How long tombstones are kept if the fault *forget* is on. Each owner counts its own running time."""

REAP_LOGS = (None, None, 0, 4)
"""The entries that a slice's reap log keeps; None: the default. Half of the lives have logs that are trimmed."""

JITTER_MAX_S = 0.03
"""There and back in less than any timeout."""
LARGE = 1 / 64
"""So many of the rings are large: they take ten times as long as small ones."""

WITHOUT_DISK = 0.3
"""So many of the machines have no disk, where the fault *memory* is on."""

LATER = ("forget", "return")
"""Faults that were thought of later are drawn with dice of their own: seeds keep what they drew before."""

READS = 0.6
"""Of what clients do with a key that was written before, unless wished otherwise."""

SHARED, SHARED_IN = 0.5, 0.5
"""Which share of the operations is on keys that all clients write, in which share of the lives."""
HABIT_IN = 0.2
"""In so many of the lives clients have a habit, each by itself."""
SHARING, SHARING_PAUSE_S = 6, 0.05
"""Where keys are shared, there are as many clients at least, and they wait no longer between two operations."""

DRAWS, DRAWS_OF_MANY = 4, 12
"""How many keys a client looks at to find one that has changed hands; more where much is written between two events."""

SILENCING = ("meddle", "hiccup", "freeze", "oneway", "partition", "blackout", "loss", "jitter")


class Plan(msgspec.Struct, frozen=True):
    """What one seed does.

    Attributes:
        seed: of everything.
        nodes, nodes_max: at the start, and at most.
        successors, replicas: r and N.
        fidelity: whole messages, or frames over streams with the codec and flow control.
        faults: names out of `FAULTS`.
        delay_s: the least and the most a message takes.
        quantum_s: messages arrive at multiples of this, so that ties occur.
        pause_s: mean time between two events.
        reads: how many in one of what clients do with a key that was written before are reads.
        down_out_s, anti_entropy_s: see `chord.config.Timing`; short, so that a life sees the end of them.
        clients, client_pause_s: how many write and read, and how long each waits on average.
        membership, steps: the safety phase ends after so many comings and goings and so many protocol steps…
        writes: …and so many acknowledged writes…
        until_s: …or after so many virtual seconds, where this is given.
        shared: which share of the operations is on keys that all clients write at the same time.
        habits: what clients do beside reading and writing single small keys, out of `chord.sim.habits`.
        theme: what the life has most of, out of `THEMES`.
        vnodes: of each node.
        grace_s: see `chord.config.Timing`; None: as the faults say.
        reap_log: how many entries the reap log of a slice keeps; None: the default, more than a life makes.
    """

    seed: int
    nodes: int
    nodes_max: int
    successors: int
    replicas: int
    fidelity: Fidelity
    faults: tuple[str, ...]
    delay_s: tuple[float, float]
    quantum_s: float
    pause_s: float
    clients: int
    client_pause_s: float
    down_out_s: float
    anti_entropy_s: float
    membership: int = 30
    steps: int = 2000
    writes: int = 0
    until_s: float | None = None
    reads: float = READS
    shared: float = 0.0
    habits: tuple[str, ...] = ()
    theme: str = "mixed"
    vnodes: int = 1
    grace_s: float | None = None
    reap_log: int | None = None

    @property
    def limits(self) -> Limits:
        """Of every node: short reap logs are trimmed, so that nodes that were away must catch up."""
        if self.reap_log is None:
            return Limits()
        return Limits(reap_log_entries=self.reap_log, reap_log_entries_max=2 * self.reap_log)

    @property
    def draws(self) -> int:
        """How many keys a client looks at to find one that is another coordinator's since it was written."""
        return DRAWS_OF_MANY if self.writes else DRAWS

    @property
    def constants(self) -> RingConstants:
        """Of the ring."""
        return RingConstants(successors=self.successors, replicas=self.replicas)

    @property
    def timing(self) -> Timing:
        """Preset local, and what is waited for comes soon: virtual minutes cost real seconds."""
        is_reaping = "forget" in self.faults
        first_s, most_s = (2.0, 16.0) if self.theme == "mixed" else (1.0, 4.0)
        return msgspec.structs.replace(
            PRESETS["local"],
            reprobe_first_s=first_s,
            reprobe_max_s=most_s,
            down_out_s=self.down_out_s,
            anti_entropy_s=self.anti_entropy_s,
            grace_s=self.grace_s or (GRACE_S if is_reaping else Timing().grace_s),
        )

    @property
    def delay(self) -> Delay:
        """How long messages take."""
        drawn = uniform(*self.delay_s)
        return lossy(drawn, 0.02) if "loss" in self.faults else drawn

    @property
    def is_atomic(self) -> bool:
        """Whether no answer takes twice as long as another (see `stabilize`, abort-if-observed)."""
        return "loss" not in self.faults and self.delay_s[1] <= 2 * self.delay_s[0]

    @property
    def is_clear(self) -> bool:
        """Whether nothing can make a living node look dead."""
        return self.theme == "mixed" and not any(fault in self.faults for fault in SILENCING)

    @property
    def mourning_s(self) -> float:
        """How long after a death an arc may have two owners: two rounds, and the time until a death is noticed."""
        timing = self.timing
        return 2 * 1.5 * timing.stabilize_s + timing.dead_misses * timing.timeout_stranger_s + timing.timeout_cap_s

    @property
    def virtual_s_max(self) -> float:
        """The longest a life may take, in virtual seconds: ten minutes, or longer where more is to happen."""
        return (self.until_s or 0.0) + 900.0 * max(1.0, self.membership / 30, self.steps / 2000, self.writes / 100)

    @property
    def nodes_min(self) -> int:
        """Fewer may never remain: the failure assumption needs more than r + 1 principals."""
        if self.theme != "mixed":
            return 1
        return max(self.successors + 3, self.nodes // 2)


def draw(
    seed: int,
    *,
    nodes: int | None = None,
    successors: int | None = None,
    replicas: int | None = None,
    fidelity: Fidelity | None = None,
    faults: tuple[str, ...] | None = None,
    membership: int = 30,
    steps: int = 2000,
    writes: int = 0,
    clients: int | None = None,
    client_pause_s: float | None = None,
    pause_s: float | None = None,
    until_s: float | None = None,
    reads: float | None = None,
    shared: float | None = None,
    theme: str | None = None,
) -> Plan:
    """Return the plan of a seed, with wishes in the place of what was drawn.

    Args:
        faults: a life with these is *mixed*, unless a theme is wished for as well.

    Raises:
        ConfigError: a fault or theme that there is not, lists too short for so many replicas, or too few nodes for the
            lists.
    """
    drawn = _drawn(seed, theme or (None if faults is None else "mixed"))
    faults = drawn.faults if faults is None else faults
    unknown = [fault for fault in faults if fault not in FAULTS]
    if unknown:
        raise ConfigError(f"there is no fault {unknown[0]!r}; there are {', '.join(FAULTS)}")
    wish = replicas or 0
    successors = successors or max(drawn.successors, wish - 1)
    if wish > successors + 1:
        raise ConfigError(f"{wish} replicas need lists of {wish - 1} successors at least, not {successors}")
    is_mixed = drawn.theme == "mixed"
    nodes = nodes or (max(drawn.nodes, successors + 4) if is_mixed else drawn.nodes)
    if is_mixed and nodes < successors + 3:
        why = f"{wish} replicas" if wish == successors + 1 else f"lists of {successors}"
        raise ConfigError(f"{nodes} nodes are too few for {why}: at least {successors + 3}")
    least_s = drawn.delay_s[0]
    has_clocks = "skew" not in faults and drawn.theme != "clocks"
    shared = drawn.shared if shared is None else shared
    sharing = (max(SHARING, drawn.clients), min(SHARING_PAUSE_S, drawn.client_pause_s))
    drawn_clients, drawn_client_pause_s = sharing if shared else (drawn.clients, drawn.client_pause_s)
    return msgspec.structs.replace(
        drawn,
        nodes=nodes,
        nodes_max=nodes + max(4, nodes // 4),
        successors=successors,
        replicas=wish or min(drawn.replicas, successors + 1),
        fidelity=fidelity or drawn.fidelity,
        faults=faults,
        delay_s=(least_s, max(2 * least_s, min(15 * least_s, JITTER_MAX_S)) if "jitter" in faults else 2 * least_s),
        pause_s=drawn.pause_s if pause_s is None else pause_s,
        clients=drawn_clients if clients is None else clients,
        client_pause_s=drawn_client_pause_s if client_pause_s is None else client_pause_s,
        membership=membership,
        steps=steps,
        writes=writes,
        until_s=until_s,
        reads=READS if reads is None else reads,
        shared=shared,
        habits=tuple(habit for habit in drawn.habits if habit != "ttl" or has_clocks),
    )


def _drawn(seed: int, theme: str | None) -> Plan:
    """Return what a seed draws, before anything depends on anything else."""
    plan = _drawn_mixed(seed)
    rng = random.Random(f"plan/{seed}/theme")
    drawn = rng.choice([name for name in THEMES if name != "mixed"]) if rng.random() < THEMED else "mixed"
    theme = drawn if theme is None else theme
    if theme not in THEMES:
        raise ConfigError(f"there is no theme {theme!r}; there are {', '.join(THEMES)}")
    if theme == "mixed":
        return plan
    replicas = rng.randint(1, 5)
    return msgspec.structs.replace(
        plan,
        theme=theme,
        nodes=rng.choice([1, 2, 3, 3, 4, 5, 6, 7]),
        successors=max(replicas - 1, rng.randint(2, 5)),
        replicas=replicas,
        vnodes=rng.choice([1, 1, 1, 2, 3]),
        faults=THEMED_FAULTS,
        fidelity="messages",
        down_out_s=rng.choice([2.0, 4.0]),
        anti_entropy_s=rng.choice([0.5, 1.0]),
        grace_s=rng.choice([3.0, 6.0]),
    )


def _drawn_mixed(seed: int) -> Plan:
    """Return what a seed draws for a life with a little of each fault."""
    rng = random.Random(f"plan/{seed}")
    is_large = rng.random() < LARGE
    successors = rng.randint(2, 5)
    replicas = rng.choice([1, 2, 3, 3, 3, 3])
    nodes = rng.randint(20, 36) if is_large else successors + rng.randint(4, 8)
    faults = tuple(fault for fault in FAULTS if fault not in LATER and rng.random() < 0.5)
    fidelity: Fidelity = "frames" if rng.random() < 1 / 16 else "messages"
    least_s = rng.choice([0.0005, 0.002, 0.01])
    pause_s = rng.choice([0.05, 0.1, 0.2])
    clients, client_pause_s = rng.randint(1, 4), rng.choice([0.05, 0.15, 0.5])
    quantum_s = rng.choice([0.0001, 0.001])
    down_out_s, anti_entropy_s = rng.choice([20.0, 40.0, 60.0]), rng.choice([2.0, 5.0, 10.0])
    faults += tuple(fault for fault in LATER if random.Random(f"plan/{seed}/{fault}").random() < 0.5)
    habit_dice = random.Random(f"plan/{seed}/habits")
    habits = tuple(habit for habit in HABITS if habit_dice.random() < HABIT_IN)
    is_shared = random.Random(f"plan/{seed}/shared").random() < SHARED_IN
    return Plan(
        seed=seed,
        nodes=nodes,
        nodes_max=nodes,
        successors=successors,
        replicas=replicas,
        fidelity=fidelity,
        faults=faults,
        delay_s=(least_s, 2 * least_s),
        quantum_s=quantum_s,
        pause_s=pause_s,
        clients=clients,
        client_pause_s=client_pause_s,
        down_out_s=down_out_s,
        anti_entropy_s=anti_entropy_s,
        shared=SHARED if is_shared else 0.0,
        habits=habits,
        reap_log=random.Random(f"plan/{seed}/reap_log").choice(REAP_LOGS),
    )
