"""Situations of runs; a large swarm must meet every one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from chord.sim.habits import HABITS
from chord.sim.plan import THEMES, Plan

SITUATION = "situation "
"""Prefix of the counts of situations."""
LONG = "run with an absence longer than every period"
LEAVER_BACK = "machine that left joins again"

EARLY = ("stored", "differs", "refused", "undecided")
"""Outcomes of the first round of an early put (`chord/replication/conditional.py`)."""

IN_ANY_THEME = (
    *(f"ring of {nodes} node{'s' * (nodes > 1)}" for nodes in range(1, 5)),
    "several vnodes",
    *(f"N = {replicas}" for replicas in range(1, 6)),
    "keys with many writers",
    "many writers, with a context",
    "many writers, without one",
    *(f"habit {habit}" for habit in HABITS),
    "scan judged",
    "read judged in a calm ring",
    "reap log of 0 entries",
    "reap log of 4 entries",
    "reap log trimmed",
    "slice caught up",
    "value quarantined",
    *(f"early put {how}" for how in EARLY if how != "differs"),  # too rare; a test has seeds with it
    LEAVER_BACK,
)
OF_THEME: dict[str, tuple[str, ...]] = {
    "absence": (
        "absence longer than down_out",
        "absence longer than grace",
        "absence longer than every period",
        "absence of the dead",
        "absence of the cut off",
        "absence of the stopped",
        LONG,
    ),
    "power": ("power cut of all nodes", "staggered power cut", "staggered return"),
    "clocks": ("clock stepped", "clock drifts", "clocks differ", "reaped while clocks are wrong"),
    "stop": ("process stopped", "process stopped longer than every period"),
    "disks": tuple(
        f"disk {what}{how}"
        for what in ("slow", "hung", "full", "node.json refused")
        for how in ("", " longer than every period")
    ),
    "addresses": ("address changed", "address reused", "directory cloned"),
    "delivery": ("request late", "request twice", "request unanswered"),
}
"""Situations in runs of each theme; runs of other themes may have them too."""


def demanded() -> tuple[str, ...]:
    """Return the names of the situations that a large swarm must meet, each with the prefix "situation "."""
    named = [*IN_ANY_THEME, *(f"theme {theme}" for theme in THEMES)]
    named += [name for names in OF_THEME.values() for name in names]
    return tuple(SITUATION + name for name in named)


def absences(lasted_s: Iterable[float], plan: Plan, how: str) -> Counter[str]:
    """Return how many absences belong to each situation, such as "absence longer than grace".

    The names are without the prefix "situation ".

    Args:
        lasted_s: the duration of each absence, in seconds.
        plan: the plan of the run, with the periods to compare with.
        how: the reason for all these absences: "dead", "cut off" or "stopped".
    """
    timing, found = plan.timing, Counter[str]()
    every_s = max(timing.timeout_cap_s, timing.anti_entropy_s, timing.down_out_s, timing.grace_s)
    for seconds in lasted_s:
        found["absence"] += 1
        found[f"absence of the {how}"] += 1
        found["absence longer than down_out"] += seconds > timing.down_out_s
        found["absence longer than grace"] += seconds > timing.grace_s
        found["absence longer than every period"] += seconds > every_s
    return found


def of_run(plan: Plan, reported: Counter[str], requests: Counter[str]) -> Counter[str]:
    """Return how often each situation of plan, clients and requests occurred in a run.

    The names are without the prefix "situation ".

    Args:
        plan: the plan of the run.
        reported: the counts of the clients (`Workload.counts`).
        requests: the counts of late and doubled requests (`Lateness.counts`).
    """
    found = Counter({f"theme {plan.theme}": 1, f"N = {plan.replicas}": 1})
    if plan.nodes <= 4:
        found[f"ring of {plan.nodes} node{'s' * (plan.nodes > 1)}"] = 1
    if plan.reap_log is not None:
        found[f"reap log of {plan.reap_log} entries"] = 1
    found["several vnodes"] = plan.vnodes > 1
    for habit in HABITS:
        found[f"habit {habit}"] = reported[f"habit {habit}"]
    found["keys with many writers"] = reported["writes of one key at the same time"]
    found["many writers, with a context"] = reported["acknowledged beside others with a context"]
    found["many writers, without one"] = reported["acknowledged beside others without one"]
    for judged in ("scan judged", "read judged in a calm ring"):
        found[judged] = reported[judged]
    found.update({f"request {how}": times for how, times in requests.items()})
    return found
