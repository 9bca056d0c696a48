"""The plan of a seed: nodes, network, faults and clients, drawn before the run.

The random generator draws everything every time and in the same order. The caller's wishes replace drawn values
afterwards, so a wish changes only the field that it names. Each fault is on with probability one half. A schedule with
all faults at once rarely finds a bug.

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
    "silent": "a machine vanishes: its peers get no reset and no answer",
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
    "forget": "operators forget nodes that are dead for good, and tombstones are reaped after some quiet seconds",
    "return": "every killed node is started again sooner or later: no disk is gone for good",
}
"""Every fault that can be on, and its meaning."""

THEMES: dict[str, str] = {
    "mixed": "all the faults above, a little of each, in a ring that keeps to the failure assumption",
    "absence": "some nodes, or all, are dead, cut off or stopped for a tenth of a period to a hundred periods",
    "power": "all machines lose their power, and start one after the other",
    "clocks": "clocks differ, drift and are set by up to three days while tombstones are reaped",
    "stop": "processes are stopped with their timers, and wake",
    "disks": "disks are slow, hang or are full for long, and node.json cannot be written",
    "addresses": "nodes come back at new addresses, at each other's, or twice from a copied directory",
    "delivery": "requests arrive late, or twice, or get no answer",
}
"""The themes: for each main kind of trouble in a run, its meaning.

All themes but *mixed* have rings of one to seven nodes, some with several vnodes each. Their periods are so short that
a run sees the end of them.
"""

THEMED = 0.8
"""Fraction of runs with another theme than *mixed*."""
EPISODES = 4
THEMED_FAULTS = ("return",)

GRACE_S = 8.0
"""Seconds for which tombstones are kept if the fault *forget* is on.

Each owner counts its own running time.
"""

REAP_LOGS = (None, None, 0, 4)
"""Choices for the number of entries in a slice's reap log; None: the default.

Half of the runs have logs that are trimmed.
"""

LOSS = 0.02
"""Fraction of messages that are lost once if the fault *loss* is on."""

JITTER_MAX_S = 0.03
"""Longest one-way delay in seconds: a round trip takes less than any timeout."""
LARGE = 1 / 64
"""Fraction of *mixed* rings that are large; they take ten times as long."""

WITHOUT_DISK = 0.3
"""Fraction of machines without a disk, if the fault *memory* is on."""

LATER = ("forget", "return")
"""Faults that were added later.

A random generator of their own draws them, so that seeds keep their earlier draws.
"""

READS = 0.6
"""Default fraction of operations on existing keys that are reads."""

SHARED, SHARED_IN = 0.5, 0.5
"""Fraction of operations on shared keys, and fraction of runs with such keys.

All clients write shared keys.
"""
HABIT_IN = 0.2
"""Fraction of runs in which clients have a habit, for each habit."""
SHARING, SHARING_PAUSE_S = 6, 0.05
"""With shared keys: least number of clients, and longest mean pause in seconds."""

DRAWS, DRAWS_OF_MANY = 4, 12
"""Number of keys that a client tries in search of a key with a new owner.

The second number counts if `writes` is set: then clients write much between two events.
"""

LOSING = ("memory", "wipe", "damage")
"""Faults that may lose an acknowledged write beyond the failure assumption."""

SILENCING = ("meddle", "hiccup", "freeze", "oneway", "partition", "blackout", "loss", "jitter")


class Plan(msgspec.Struct, frozen=True):
    """The drawn values of one seed.

    Attributes:
        seed: the seed of everything.
        nodes: number of nodes at the start.
        nodes_max: number of nodes at which no more join.
        successors, replicas: r and N of the ring.
        faults: the faults that are on, names out of `FAULTS`.
        fidelity: "messages": whole messages. "frames": frames over streams, with the codec and flow control.
        delay_s: shortest and longest one-way delay of a message.
        quantum_s: messages arrive at multiples of this, so that ties occur.
        pause_s: mean seconds between two events of a *mixed* run.
        clients: number of clients.
        client_pause_s: mean seconds of each client between two operations.
        down_out_s: seconds for which a down node keeps its place; short, so that a run sees the end of it.
        anti_entropy_s: the period in seconds at which an owner compares its arc with each replica; short, too.
        membership, steps, writes: the safety phase ends once all three are reached: this many membership changes,
            protocol steps and acknowledged writes. With another theme than *mixed*, four episodes replace the first
            two.
        until_s: end the safety phase after this many virtual seconds instead; None: do not.
        reads: fraction of operations on existing keys that are reads, 0.0 to 1.0.
        shared: fraction of operations on keys that all clients write at the same time, 0.0 to 1.0.
        habits: names out of `chord.sim.habits.HABITS`: batches, large values, times to live, scans.
        theme: main kind of trouble, a name out of `THEMES`.
        vnodes: number of vnodes of each node.
        grace_s: seconds until tombstones and expired values are reaped. None: 8 with the fault *forget*, otherwise a
            day.
        reap_log: number of entries that the reap log of a slice keeps; None: the default, more than a run makes.
        backups: whether further clients work and make consistent backups, which are checked. No seed draws it.
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
    backups: bool = False

    @property
    def limits(self) -> Limits:
        """The limits of every node: the defaults, except the size of reap logs if drawn."""
        if self.reap_log is None:
            return Limits()
        return Limits(reap_log_entries=self.reap_log, reap_log_entries_max=2 * self.reap_log)

    @property
    def draws(self) -> int:
        """Number of keys that a client tries in search of a key with another owner than at its last write."""
        return DRAWS_OF_MANY if self.writes else DRAWS

    @property
    def constants(self) -> RingConstants:
        """The constants of the ring."""
        return RingConstants(successors=self.successors, replicas=self.replicas)

    @property
    def timing(self) -> Timing:
        """The preset `local` with short waiting times: virtual minutes cost real seconds."""
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
        """The distribution of message delays, in seconds, with losses if the fault *loss* is on."""
        drawn = uniform(*self.delay_s)
        return lossy(drawn, LOSS) if "loss" in self.faults else drawn

    @property
    def is_atomic(self) -> bool:
        """Whether no message takes more than twice as long as another, and none is lost.

        Only then is abort-if-observed exact; see `chord.stabilize`.
        """
        return "loss" not in self.faults and self.delay_s[1] <= 2 * self.delay_s[0]

    @property
    def is_clear(self) -> bool:
        """Whether no fault of the plan can make a living node look dead."""
        return self.theme == "mixed" and not any(fault in self.faults for fault in SILENCING)

    @property
    def mourning_s(self) -> float:
        """Seconds after a death in which an arc may have two owners.

        The bound is a round of stabilize, a grown round, and the time until other nodes notice the death. The simulated
        network has no streams that end with a node, so they may notice only after a grown period.
        """
        timing = self.timing
        rounds_s = 1.5 * timing.stabilize_s * (1 + timing.period_growth_max)
        return rounds_s + timing.dead_misses * timing.timeout_stranger_s + timing.timeout_cap_s

    @property
    def virtual_s_max(self) -> float:
        """Longest duration of a run in virtual seconds.

        The bound is 15 minutes after `until_s`, and longer if the plan asks for more events.
        """
        return (self.until_s or 0.0) + 900.0 * max(1.0, self.membership / 30, self.steps / 2000, self.writes / 100)

    @property
    def nodes_min(self) -> int:
        """The number of nodes that must remain.

        The failure assumption needs more than r + 1 principals. Other themes than *mixed* do not keep to it.
        """
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
    backups: bool = False,
) -> Plan:
    """Return the plan of a seed, with the caller's wishes in place of drawn values.

    Each argument after `seed` is the wish for the field of `Plan` with its name. None keeps the drawn value; for
    `reads` it is the default, and for `until_s` no time limit. A run with named faults is *mixed*, unless `theme` says
    otherwise. With `backups`, messages are sent whole, and no acknowledged write is lost for good.

    Raises:
        ConfigError: unknown fault or theme, too few successors for the replicas, or too few nodes for the successors.
    """
    drawn = _drawn(seed, theme or (None if faults is None else "mixed"))
    faults = drawn.faults if faults is None else faults
    wish = replicas or 0
    successors = successors or max(drawn.successors, wish - 1)
    if backups:
        faults, fidelity = _losing_nothing(faults, wish or min(drawn.replicas, successors + 1)), "messages"
    unknown = [fault for fault in faults if fault not in FAULTS]
    if unknown:
        raise ConfigError(f'unknown fault "{unknown[0]}": expected {", ".join(FAULTS)}')
    if wish > successors + 1:
        raise ConfigError(f"invalid number of successors: {successors}; {wish} replicas need at least {wish - 1}")
    is_mixed = drawn.theme == "mixed"
    nodes = nodes or (max(drawn.nodes, successors + 4) if is_mixed else drawn.nodes)
    if is_mixed and nodes < successors + 3:
        why = f"{wish} replicas" if wish == successors + 1 else f"lists of {successors} successors"
        raise ConfigError(f"too few nodes: {nodes}; {why} need at least {successors + 3}")
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
        delay_s=_delay_s(drawn.delay_s[0], has_jitter="jitter" in faults),
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
        backups=backups,
    )


def _losing_nothing(faults: tuple[str, ...], replicas: int) -> tuple[str, ...]:
    """Return the faults without those that may lose an acknowledged write for good."""
    kept = tuple(fault for fault in faults if fault not in LOSING)
    return kept if replicas > 1 else (*(fault for fault in kept if fault not in LATER), "return")


def _delay_s(least_s: float, *, has_jitter: bool) -> tuple[float, float]:
    return least_s, max(2 * least_s, min(15 * least_s, JITTER_MAX_S)) if has_jitter else 2 * least_s


def _drawn(seed: int, theme: str | None) -> Plan:
    """Return the plan that a seed draws, before `draw` replaces values.

    Args:
        seed: the number of the run.
        theme: the kind of fault that dominates the run, one of `THEMES`; None: drawn, too.

    Raises:
        ConfigError: unknown theme.
    """
    plan = _drawn_mixed(seed)
    rng = random.Random(f"plan/{seed}/theme")
    drawn = rng.choice([name for name in THEMES if name != "mixed"]) if rng.random() < THEMED else "mixed"
    theme = drawn if theme is None else theme
    if theme not in THEMES:
        raise ConfigError(f'unknown theme "{theme}": expected {", ".join(THEMES)}')
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
    """Return the values that a seed draws for a run with a little of each fault."""
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
