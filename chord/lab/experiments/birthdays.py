"""Collisions: the probability that two of many random points are the same.

An article on consistent hashing begins with the birthday paradox. Among 23 people, two probably have the same
birthday. The same law says how many bits the ids of a ring need. Let n points be drawn from M. With probability
`(1 - 1/M) (1 - 2/M) … (1 - (n - 1)/M)` they are all different. A collision has at most the probability
`n (n - 1) / 2M`. A node does not join a ring in which its id is taken, so `--bits` must make that unlikely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from chord.lab.harness.experiment import Experiment, Field, Result, Scale, Table
from chord.lab.theory import collision_chance

NODES = 1_000_000
DRAWS, DRAWN_MAX = 20_000, 20_000_000
ERRORS_MAX, RARE = 4.0, 1e-9
DAYS, PEOPLE = 365, 23


class BirthdaySetting(NamedTuple):
    """A circle of points, and random draws of them.

    Attributes:
        what: the meaning of the points.
        points: number of points.
        drawn: number of points drawn, with repetition.
        times: number of times that the draws are made; 0: the probability is only computed.
        seed: the source of all random choices.
    """

    what: str
    points: int
    drawn: int
    times: int
    seed: int

    @property
    def bound(self) -> float:
        """The expected number of pairs of draws that are the same point: an upper bound of the probability of one."""
        return self.drawn * (self.drawn - 1) / 2 / self.points

    def __str__(self) -> str:
        return f"{self.drawn:,} of {self.what}"


@dataclass(frozen=True)
class BirthdayCell:
    """The measurement of one setting. `collided` counts the times at which two draws were the same point."""

    setting: BirthdaySetting
    collided: int

    @property
    def chance(self) -> float:
        """The probability that two draws are the same point."""
        return collision_chance(self.setting.points, self.setting.drawn)

    @property
    def measured(self) -> float | None:
        """The share of the times with a collision; None if the probability was only computed."""
        return self.collided / self.setting.times if self.setting.times else None

    @property
    def errors_off(self) -> float | None:
        """The distance of the measured share from the probability, in standard errors; None without a measurement."""
        if self.measured is None:
            return None
        return (self.measured - self.chance) / math.sqrt(self.chance * (1 - self.chance) / self.setting.times)


def plan(nodes: int, scale: Scale, seed: int) -> list[BirthdaySetting]:
    """Return the settings: the birthdays, small circles to measure, and large circles with `nodes` nodes to compute."""
    most = DRAWS // 10 if scale == "quick" else DRAWS
    small = [("birthdays", DAYS, PEOPLE), ("--bits 8", 1 << 8, 7), ("--bits 16", 1 << 16, 100)]
    small.append(("--bits 24", 1 << 24, 1000))
    large = [(f"--bits {bits}", 1 << bits, nodes) for bits in (32, 64, 128, 160)]
    return [
        *(BirthdaySetting(what, m, n, min(most, DRAWN_MAX // n), seed) for what, m, n in small),
        *(BirthdaySetting(what, m, n, 0, seed) for what, m, n in large),
    ]


def measure(setting: BirthdaySetting) -> BirthdayCell:
    """Draw points, and count the times that two of them are the same."""
    rng = np.random.default_rng([setting.seed, setting.points % (1 << 32), setting.drawn])
    collided = 0
    for first in range(0, setting.times, 1000):
        shape = min(1000, setting.times - first), setting.drawn
        drawn = np.sort(rng.integers(0, setting.points, shape), axis=1)
        collided += int((drawn[:, 1:] == drawn[:, :-1]).any(axis=1).sum())
    return BirthdayCell(setting, collided)


def is_met(cell: BirthdayCell) -> bool | None:
    """Whether the measured share is within 4 standard errors of the probability; None without a measurement.

    For the birthdays, the probability must also be more than a half.
    """
    if cell.errors_off is None:
        return None
    is_paradox = cell.setting.what != "birthdays" or cell.chance > 0.5
    return is_paradox and abs(cell.errors_off) <= ERRORS_MAX


def bits_for(nodes: int) -> int:
    """Return the least number of bits of a circle on which `nodes` random ids are very likely all different.

    The probability that two of them are the same is at most 10^-9.
    """
    return math.ceil(math.log2(nodes * (nodes - 1) / 2 / RARE)) if nodes > 1 else 1


def tables(result: Result[BirthdayCell]) -> list[Table]:
    """Return the probability of a collision for birthdays, and for ids of several widths."""
    nodes = result.cells[-1].setting.drawn
    fields: list[Field[BirthdayCell]] = [
        Field("points", "", lambda cell: cell.setting.what),
        Field("drawn", ",", lambda cell: cell.setting.drawn),
        Field("p of a collision", ".3g", lambda cell: cell.chance),
        Field("n (n - 1) / 2M", ".3g", lambda cell: cell.setting.bound),
        Field("measured", ".3g", lambda cell: cell.measured),
        Field("times", ",", lambda cell: cell.setting.times or None),
        Field("standard errors off", "+.2f", lambda cell: cell.errors_off),
    ]
    notes = (
        f"On {bits_for(nodes)} bits, {nodes:,} ids are all different except with p = {RARE:g}. MD5 has 128 bits and "
        "SHA-1 160. A ring has 160 by default.",
        "The birthdays are those of an article on consistent hashing: 23 people, more than a half.",
    )
    bar = f"measured within {ERRORS_MAX:g} standard errors of p; among {PEOPLE} people more than a half"
    return [Table.of("birthdays", "Two ids at the same point", fields, result.cells, is_met, bar, notes)]


def experiment(nodes: int = NODES) -> Experiment[BirthdaySetting, BirthdayCell]:
    """Return the experiment on collisions; the large circles have `nodes` nodes."""
    return Experiment(
        name="birthdays",
        title="Two ids at the same point",
        source="an anonymous article on consistent hashing: 23 people, more than a half",
        plan=partial(plan, nodes),
        measure=measure,
        tables=tables,
        pictures={},
        command=f"lab ring --nodes {nodes}",
    )
