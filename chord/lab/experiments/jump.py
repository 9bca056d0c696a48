"""Jump consistent hash: its lemma, its cost and its evenness.

Let ch(k, n) be the bucket of key k among n buckets. The lemma is P(ch(k, n) = ch(k, m)) = m / n for m ≤ n. A lookup
visits H(n) = 1 + 1/2 + … + 1/n buckets on average, and each bucket is equally likely.

An anonymous article on consistent hashing prints a standard deviation "below 0.0000001 %". This is that of bucket
*shares* of all possible keys. Keys that are drawn add the deviation of chance, as for any scheme. The tables have both.

Source: Lamping and Veach 2014; the exam notes "Распределенные системы", ticket 21, for the proofs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chord.lab.experiments.common import build, node_names
from chord.lab.experiments.golubtsov import binomial_std
from chord.lab.harness.experiment import Column, Experiment, Result, Row, Scale, Table
from chord.lab.harness.plot import BLUE, GREEN, GREY, ORANGE, PURPLE, dress, headline
from chord.lab.hashing import random_hashes
from chord.lab.numbers import chi_square
from chord.lab.theory import harmonic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEYS, MOST = 200_000, 256
SAMPLED = (2, 10, 21, 100, 1000)
PAIRS = ((1, 2), (3, 4), (10, 11), (20, 21), (20, 40), (50, 100), (64, 256), (10, 100), (100, 256), (255, 256))
CURVES = {10: BLUE, 50: GREEN, 100: PURPLE}
DICE = 1 << 31
PUBLISHED_STD = 7.64e-9  # from the paper's table, as a fraction of the mean

ERRORS_WITHIN = 4.0
P_MIN = 0.0001


class JumpSetting(NamedTuple):
    """Random keys, placed on 1, 2, … and finally `most` buckets."""

    most: int
    keys: int
    seed: int

    def __str__(self) -> str:
        return f"1 to {self.most} buckets"


@dataclass(frozen=True)
class JumpCell:
    """The buckets of the keys for each number of buckets.

    Attributes:
        same: share of the keys that are in the same bucket among m buckets and among n, by (m, n).
        visited: mean number of buckets that a lookup among n buckets visits, by n.
        counts: number of keys in each bucket, by the number of buckets.
    """

    setting: JumpSetting
    same: dict[tuple[int, int], float]
    visited: dict[int, float]
    counts: dict[int, tuple[int, ...]]


def plan(scale: Scale, seed: int) -> list[JumpSetting]:
    """Return a single setting, because the buckets are added one by one."""
    return [JumpSetting(MOST, 5_000 if scale == "quick" else KEYS, seed)]


def measure(setting: JumpSetting) -> JumpCell:
    """Place the keys on 1, 2, 3, … buckets, and count the jumps of their lookups."""
    hashes = random_hashes(np.random.default_rng(setting.seed), setting.keys)
    names = node_names(max(*SAMPLED, setting.most), setting.seed)
    visits = np.zeros(setting.keys, np.int64)
    last = np.full(setting.keys, -1, np.intp)
    visited: dict[int, float] = {}
    wanted = {m for m, _ in PAIRS} | {n for _, n in PAIRS} | set(CURVES)
    kept: dict[int, NDArray[np.intp]] = {}
    for buckets in range(1, setting.most + 1):
        now = build("jump", names[:buckets]).place_many(hashes)
        visits += now != last
        visited[buckets] = float(visits.mean())
        last = now
        if buckets in wanted:
            kept[buckets] = now
    same = {(m, n): float((kept[m] == kept[n]).mean()) for m in kept for n in kept if m < n}
    counts = {
        buckets: tuple(np.bincount(build("jump", names[:buckets]).place_many(hashes), minlength=buckets).tolist())
        for buckets in SAMPLED
    }
    return JumpCell(setting, same, visited, counts)


def bucket_shares(buckets: int, dice: int = DICE) -> NDArray[np.float64]:
    """Return the exact share of all possible keys that each bucket gets.

    The random numbers have 31 bits, as in the published listing. From bucket b the next jump goes to i or farther with
    probability floor((b + 1) 2^31 / i) / 2^31. This rounding is the only reason why shares differ.

    Args:
        buckets: number of buckets.
        dice: number of different random values.

    Returns:
        shape (buckets,), with sum 1.
    """
    arrives, shares = np.zeros(buckets), np.zeros(buckets)
    arrives[0] = 1.0
    for b in range(buckets):
        ends = np.arange(b + 1, buckets + 1, dtype=np.int64)
        reaches = ((b + 1) * dice // ends) / dice  # the next jump goes to `ends` or farther
        arrives[b + 1 :] += arrives[b] * (reaches[:-1] - reaches[1:])
        shares[b] = arrives[b] * reaches[-1]
    return shares


# -- what comes of it ---------------------------------------------------------------------------------


def tables(result: Result[JumpCell]) -> list[Table]:
    """Return tables of the lemma, the cost, and the evenness of keys and of shares."""
    (cell,) = result.cells
    return [_lemma(cell), _cost(cell), _buckets(cell), _shares(cell)]


def _lemma(cell: JumpCell) -> Table:
    columns = (
        Column("m"),
        Column("n"),
        Column("same bucket", ".4f"),
        Column("m / n", ".4f"),
        Column("standard errors", "+.1f"),
    )
    rows = []
    for (m, n), law in ((pair, pair[0] / pair[1]) for pair in PAIRS):
        found = cell.same[m, n]
        errors = (found - law) / math.sqrt(law * (1 - law) / cell.setting.keys)
        rows.append(Row((m, n, found, law, errors), abs(errors) <= ERRORS_WITHIN))
    bar = "within 4 standard errors of m / n"
    return Table("jump_same", "Keys in the same bucket at m and at n", columns, tuple(rows), bar, (_of(cell),))


def _of(cell: JumpCell) -> str:
    return f"{cell.setting.keys:,} random keys."


def _cost(cell: JumpCell) -> Table:
    columns = (
        Column("buckets"),
        Column("buckets visited", ".3f"),
        Column("H(n)", ".3f"),
        Column("standard errors", "+.1f"),
    )
    rows = []
    for n in (1, 2, 4, 8, 16, 32, 64, 128, cell.setting.most):
        found, law = cell.visited[n], harmonic(n)
        variance = sum(1 / i * (1 - 1 / i) for i in range(1, n + 1))
        error = math.sqrt(variance / cell.setting.keys)
        errors = (found - law) / error if error else 0.0
        rows.append(Row((n, found, law, errors), abs(errors) <= ERRORS_WITHIN and (n > 1 or found == 1)))
    bar = "within 4 standard errors of H(n)"
    return Table("jump_visits", "Jumps of a lookup, the first into bucket 0", columns, tuple(rows), bar, (_of(cell),))


def _buckets(cell: JumpCell) -> Table:
    columns = (
        Column("buckets"), Column("keys per bucket", ",.0f"), Column("std", ",.1f"), Column("by chance", ",.1f"),
        Column("chi-square", ",.1f"), Column("p", ".3f"),
    )  # fmt: skip
    rows = []
    for buckets, found in cell.counts.items():
        counts = np.array(found)
        statistic, p = chi_square(counts, np.full(buckets, counts.sum() / buckets))
        by_chance = binomial_std(cell.setting.keys, buckets)
        rows.append(Row((buckets, float(counts.mean()), float(counts.std()), by_chance, statistic, p), p >= P_MIN))
    bar = f"chance alone gives such counts with p ≥ {P_MIN}"
    return Table("jump_buckets", "Each bucket is equally likely", columns, tuple(rows), bar, (_of(cell),))


def _shares(cell: JumpCell) -> Table:
    columns = (
        Column("buckets"), Column("std of shares / mean", ".2e"), Column("n / 2^31", ".2e"),
        Column("std of keys / mean", ".2e"), Column("by chance", ".2e"),
    )  # fmt: skip
    rows = []
    for buckets, found in cell.counts.items():
        counts, exact = np.array(found), bucket_shares(buckets)
        deviation = float(exact.std() * buckets)
        by_chance = binomial_std(cell.setting.keys, buckets) / counts.mean()
        rounding = buckets / DICE
        values = (buckets, deviation, rounding, float(counts.std() / counts.mean()), by_chance)
        rows.append(Row(values, deviation <= rounding))
    notes = (
        "An anonymous article prints below 0.0000001 % for jump, and the paper's table prints a standard error of "
        f"{PUBLISHED_STD:.3g}. Both are about bucket shares of all possible keys, comparable with the shares of a ring "
        "(vnodes). Keys that are drawn add chance under any scheme, and users see the sum of both.",
        "The shares are exact for fair random numbers of 31 bits, as in the listing. Shares differ only by rounding, "
        "which depends on the number of buckets.",
        "The listing of Golubtsov 2024 starts at b = 1, the published one at b = -1. The loop starts with j = 0 and "
        "sets b before it is read, so the results agree. They would differ only for zero buckets.",
    )
    bar = "shares differ by no more than the rounding of the random numbers, n / 2^31"
    return Table("jump_shares", "Evenness of shares, and of keys", columns, tuple(rows), bar, notes)


def draw(result: Result[JumpCell], figure: Figure) -> None:
    """Plot the measured lemma and lookup cost beside their formulas."""
    (cell,) = result.cells
    most = cell.setting.most
    headline(
        figure,
        f"From m buckets to n jump keeps the share m / n of the keys. A lookup visits ln n + 0.58 of n buckets, "
        f"{cell.visited[most]:.1f} of {most}",
    )
    left, right = figure.subplots(1, 2)
    for m, colour in CURVES.items():
        points = sorted((n, share) for (low, n), share in cell.same.items() if low == m)
        line = np.linspace(m, most, 200)
        left.plot(line, m / line, color=colour, linewidth=1, linestyle="--")
        left.plot([n for n, _ in points], [share for _, share in points], "o", color=colour, label=f"measured, m = {m}")
    left.plot([], [], color=GREY, linestyle="--", label="m / n")
    dress(left, "buckets n", "share of keys in the same bucket as at m")
    shown = sorted({round(1.25**k) for k in range(30) if round(1.25**k) <= most} | {most})
    right.plot(shown, [harmonic(n) for n in shown], color=ORANGE, linestyle="--", label="H(n)")
    right.plot(shown, [cell.visited[n] for n in shown], "o", color=BLUE, markersize=4, label="measured")
    right.set_xscale("log", base=2)
    right.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    dress(right, "buckets n", "buckets that a lookup visits")


EXPERIMENT = Experiment(
    name="jump",
    title="Jump consistent hash",
    source="Lamping and Veach 2014; proofs: exam notes «Распределенные системы», ticket 21; an anonymous article",
    plan=plan,
    measure=measure,
    tables=tables,
    pictures={"jump": draw},
    command="lab jump",
)
