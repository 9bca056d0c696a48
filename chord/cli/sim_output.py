"""The output of the `sim` commands: result tables, and files written meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from chord.cli.output import Out
from chord.cli.reports import cannot_write
from chord.views.common import Json
from chord.views.experiments import FailedSeed, seeds_json

if TYPE_CHECKING:
    from chord.sim.plan import Plan
    from chord.sim.run import RunReport
    from chord.sim.swarm import SwarmOutcome

T = TypeVar("T")

SHOWN_MAX = 5
SITUATION = "situation "

Replay = Callable[[int], str]
"""Returns the command that runs a seed again."""


# -- while a simulation runs ----------------------------------------------------------------------


class Late(Generic[T]):
    """A writer that keeps its first `OSError` until `fail` is called.

    The simulator would take an error in the middle of a run for a bug of its own.

    Args:
        write: writes one item.
    """

    def __init__(self, write: Callable[[T], object]) -> None:
        self._write = write
        self._error: OSError | None = None

    def __call__(self, what: T) -> None:
        """Write an item. After a write has failed, nothing is written."""
        if self._error is None:
            try:
                self._write(what)
            except OSError as error:
                self._error = error

    def fail(self) -> None:
        """Raise the kept error, if a write failed.

        Raises:
            OSError: the error of that write.
        """
        if self._error is not None:
            raise self._error


@contextmanager
def writing(path: Path) -> Iterator[Late[bytes]]:
    """Open a file for the `with` block, create its folder if necessary, and yield a writer of bytes.

    Raises:
        Failure: exit 2: the file cannot be opened, or a write failed. A failed write is reported at the end of the
            block.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            late: Late[bytes] = Late(file.write)
            yield late
            late.fail()
    except OSError as error:
        raise cannot_write(path, error) from None


# -- sim run and sim replay -----------------------------------------------------------------------


def drawn(plan: Plan) -> str:
    """Return what a seed drew for its run in words: nodes, constants of the ring, delays, clients and faults."""
    faults = ", ".join(plan.faults) or "no faults"
    theme = "" if plan.theme == "mixed" else f"{plan.theme}: "
    least, most = plan.delay_s
    return (
        f"{theme}{plan.nodes} nodes, r = {plan.successors}, N = {plan.replicas}, {plan.fidelity}, "
        f"{1000 * least:g} to {1000 * most:g} ms, {plan.clients} clients; {faults}"
    )


def print_outcome(
    out: Out, outcome: SwarmOutcome, never_taken: list[str], replay: Replay, *, has_counts: bool = False
) -> None:
    """Print the result of many seeds: a summary, how often each situation arose, and the failures.

    The last line is the command that replays the first failure.

    Args:
        out: the output of the command.
        outcome: the results.
        never_taken: the names of the paths that no seed took, and of the kinds of writes that were too rare.
        replay: returns the command that runs a seed again.
        has_counts: also print how many seeds drew each fault, and how often each path was taken.
    """
    from chord.sim.plan import FAULTS

    for text in _summary(outcome):
        out.sentence(text)
    counts = {name: count for name, count in sorted(outcome.counts.items()) if count}
    in_situations = {name.removeprefix(SITUATION): n for name, n in counts.items() if name.startswith(SITUATION)}
    if in_situations:
        out.line()
        out.table(["situation", ">times"], [[n, f"{c:,}"] for n, c in in_situations.items()])
    if has_counts:
        out.line()
        faults = [[fault, str(outcome.drawn[fault]), FAULTS[fault]] for fault in FAULTS]
        out.table(["fault", ">seeds", "meaning"], faults)
        out.line()
        taken = [[name, f"{count:,}"] for name, count in counts.items() if not name.startswith(SITUATION)]
        out.table(["taken", ">times"], taken)
    if never_taken or outcome.broken:
        out.line()
    if never_taken:
        out.sentence(f"never taken: {', '.join(never_taken)}")
    for broken in outcome.broken[:SHOWN_MAX]:
        out.sentence(f"seed {broken.plan.seed}: {drawn(broken.plan)}")
        out.sentence(f"{broken.kind}: {broken.text}")
    if len(outcome.broken) > SHOWN_MAX:
        seeds = ", ".join(str(broken.plan.seed) for broken in outcome.broken[SHOWN_MAX:])
        out.sentence(f"and {len(outcome.broken) - SHOWN_MAX} more: {seeds}")
    if outcome.broken:
        out.line()
        out.line(replay(outcome.broken[0].plan.seed))


def _summary(outcome: SwarmOutcome) -> list[str]:
    reports = outcome.reports
    totals = _totals(outcome)
    lines = [
        f"{outcome.seeds:,} seed{'s' * (outcome.seeds != 1)}, {outcome.drawn['over frames']:,} of them over frames: "
        + (f"{len(outcome.broken)} FAILED" if outcome.broken else "all passed"),
        f"{totals['steps']:,} protocol steps, {totals['membership']:,} times a node joined or left, "
        f"{totals['checks']:,} checks of all invariants, {totals['deliveries']:,} deliveries",
    ]
    if reports:
        lines += [
            f"Ideal at most {max(r.settled_s for r in reports):.1f} s after the last event; "
            f"healed at most {max(r.healed_rounds for r in reports):.0f} rounds after an episode",
            f"{totals['keys']:,} acknowledged keys were read back in the end; "
            f"{totals['lost']:,} were lost with the last node that had them",
        ]
    if written := outcome.counts["client put ok"]:
        shares = ", ".join(f"{100 * share:.0f} % {name}" for name, share in outcome.shares().items())
        lines.append(f"{written:,} writes were acknowledged{shares and ': '}{shares}")
    if reports:
        lines.append(f"{100 * outcome.long_absences:.0f} % of the runs had an absence longer than every period")
    return lines


def _totals(outcome: SwarmOutcome) -> dict[str, int]:
    names = ("steps", "membership", "checks", "deliveries", "keys", "lost")
    return {name: sum(getattr(report, name) for report in outcome.reports) for name in names}


def outcome_json(outcome: SwarmOutcome, asked: int, never_taken: list[str], replay: Replay) -> Json:
    """Return the result of many seeds as JSON.

    Args:
        outcome: the results.
        asked: how many seeds the user asked for.
        never_taken: the names of the paths that no seed took, and of the kinds of writes that were too rare.
        replay: returns the command that runs a seed again.
    """
    return seeds_json(
        outcome.seeds, asked, outcome.drawn, outcome.counts, never_taken, _totals(outcome), outcome.shares(),
        outcome.long_absences, {report.seed: report.digest for report in outcome.reports},
        [FailedSeed(b.plan.seed, b.kind, b.text, replay(b.plan.seed)) for b in outcome.broken],
    )  # fmt: skip


def summary_of_one(report: RunReport) -> str:
    """Return the result of one seed in words, of two lines. The second has the digest of the run."""
    return (
        f"{report.steps:,} protocol steps, {report.membership:,} times a node joined or left, "
        f"{report.checks:,} checks of all invariants, {report.virtual_s:.1f} virtual seconds\n"
        f"digest {report.digest}"
    )
