"""sim run, sim replay, sim paper: the same node on virtual time, by the thousand.

The simulator is loaded inside the commands: nothing else pays for it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chord.cli.failures import CHECK_FAILED, INTERNAL, OK, TIMEOUT, USAGE
from chord.cli.output import Column, Failure, Out
from chord.cli.shapes import Json
from chord.errors import ConfigError

if TYPE_CHECKING:
    from chord.events import Event
    from chord.sim.cluster import Cluster
    from chord.sim.paper import Report
    from chord.sim.plan import Plan
    from chord.sim.swarm import Broken, Outcome

EXIT_CODES = {"correctness": CHECK_FAILED, "crash": INTERNAL, "liveness": TIMEOUT}
SHOWN_MAX = 5
_VERDICTS = {True: "yes", False: "NO", None: "-"}
WISHES = ("nodes", "successors", "faults", "fidelity", "until", "membership", "steps")


@click.group("sim")
def sim_command() -> None:
    """Simulate: rings of the real node on virtual time, with faults, checked after every step."""


def _wishes(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options by which a plan differs from what its seed draws."""
    options = (
        click.option("--nodes", type=click.IntRange(5, 10_000), metavar="N", help="So many nodes; default: drawn."),
        click.option("--successors", type=click.IntRange(1, 32), metavar="R", help="r of the ring; default: drawn."),
        click.option("--faults", metavar="A,B", help="Exactly these faults, or all, or none; default: drawn, each with p = 1/2."),
        click.option("--fidelity", type=click.Choice(["messages", "frames"]),
                     help="Whole messages, or frames over streams; default: drawn."),
        click.option("--until", type=click.FloatRange(min=0, min_open=True), metavar="S",
                     help="Let things happen for so many virtual seconds; default: until enough has happened."),
        click.option("--membership", type=click.IntRange(min=0), metavar="M", help="Enough is so many comings and goings [30]…"),
        click.option("--steps", type=click.IntRange(min=0), metavar="K", help="…and so many protocol steps [2000]."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@sim_command.command("run")
@click.option("--seeds", default="0-19", show_default=True, metavar="A-B", help="One seed or a range.")
@_wishes
@click.option("--jobs", type=click.IntRange(min=1), metavar="J", help="Processes; default: one for each core.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def run_command(seeds: str, jobs: int | None, as_json: bool, **wishes: Any) -> int:
    """Run seeds: each a ring that lives through what the seed has drawn, checked after every step.

    Exit code 8 where a check failed, 1 where a bug raised an error, 5 where a ring did not become whole in time. The
    last line is the command that replays the first failure.
    """
    from chord.sim.swarm import run_many

    out = Out(as_json)
    numbers = _seeds(seeds)
    plans = [_plan(seed, wishes) for seed in numbers]
    done = 0

    def on_result(plan: Plan, result: object) -> None:
        nonlocal done
        done += 1
        show(done)

    with out.progress("seeds", len(plans)) as show:
        outcome = run_many(plans, on_result, jobs=jobs)
    is_swarm = not any(wishes[name] for name in WISHES)
    zeros = _zeros(outcome) if is_swarm else []
    if as_json:
        out.json(_outcome_json(outcome, zeros, wishes))
    else:
        _print(out, outcome, zeros, wishes)
    kinds = [broken.kind for broken in outcome.broken]
    for kind, code in EXIT_CODES.items():
        if kind in kinds:
            return code
    return CHECK_FAILED if zeros else OK


@sim_command.command("replay")
@click.argument("seed", type=int)
@_wishes
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Where the event log goes; default: out/sim/seed-SEED.jsonl.")
@click.option("--history", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write what the clients did as well, for chord check-history.")
@click.option("--json", "as_json", is_flag=True, help="Print the event log instead of lines.")
def replay_command(seed: int, log: Path | None, history: Path | None, as_json: bool, **wishes: Any) -> int:
    """Run one seed again, the very same way: a line for each change of a node's state, and all events as JSON lines."""
    from chord.sim import replay
    from chord.sim.life import Failure as Broke
    from chord.sim.life import Life

    out = Out(as_json)
    plan = _plan(seed, wishes)
    path = log or Path("out/sim") / f"seed-{seed}.jsonl"
    with _writing(path) as entries, _writing(history or Path("/dev/null")) as operations:

        def on_event(cluster: Cluster, event: Event) -> None:
            text = json.dumps(replay.entry(cluster, event), ensure_ascii=False)
            entries.write(text.encode() + b"\n")
            shown = text if as_json else replay.line(cluster, event)
            if shown is not None:
                out.line(shown)

        if not as_json:
            out.note(f"seed {plan.seed}: {_drawn(plan)}")
            out.line(replay.HEADING)
        try:
            report = Life(plan, on_event=on_event, write_history=operations.write if history else None).run()
        except Broke as broke:
            out.flush()
            out.note(f"{broke.kind}: {broke.text}")
            out.note(f"events: {path}")
            return EXIT_CODES[broke.kind]
    out.note(f"{report.steps:,} protocol steps, {report.membership} members came or went, {report.checks:,} checks, "
             f"{report.virtual_s:.1f} virtual seconds; digest {report.digest}")  # fmt: skip
    out.note(f"events: {path}")
    return OK


@sim_command.command("paper")
@click.argument("experiments", nargs=-1)
@click.option("--scale", type=click.Choice(["quick", "standard", "full"]), default="standard", show_default=True,
              help="How much is measured: two minutes, ten, or as in the papers.")
@click.option("--seed", default=1, show_default=True, metavar="N", help="Of everything that is drawn.")
@click.option("--out", "out_dir", type=click.Path(file_okay=False, path_type=Path), default=Path("out/sim"),
              show_default=True, help="Where reports, tables and plots go.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="J", help="Processes; default: one for each core.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def paper_command(
    experiments: tuple[str, ...], scale: Any, seed: int, out_dir: Path, jobs: int | None, as_json: bool
) -> int:
    """Measure what the papers published, with the real node: all EXPERIMENTS, or those named.

    Prints measured beside published, and writes CSV, plots and a Markdown report. Exit code 8 where a bar is missed.
    """
    from chord.sim import paper

    out = Out(as_json)
    for name in experiments:
        if name not in paper.EXPERIMENTS:
            hint = f"There are: {', '.join(paper.EXPERIMENTS)}"
            raise Failure(f"there is no experiment {name!r}", hint, USAGE, "usage")
    with out.progress("measure") as show, paper.processes(jobs) as pool:
        reports = paper.run_all(experiments, scale, seed, out_dir, pool, lambda label, done, of: show(done))
    if as_json:
        out.json({"scale": scale, "seed": seed, "experiments": [_report_json(report) for report in reports]})
    else:
        for report in reports:
            _print_report(out, report)
    return CHECK_FAILED if any(report.passed is False for report in reports) else OK


# -- plans ----------------------------------------------------------------------------------------


def _seeds(text: str) -> list[int]:
    first, dash, last = text.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        raise Failure(f"{text!r} is not a seed or a range of seeds", "For example: --seeds 0-99", USAGE, "usage")
    seeds = list(range(int(first), int(last or first) + 1))
    if not seeds:
        raise Failure(f"there are no seeds in {text}", "For example: --seeds 0-99", USAGE, "usage")
    return seeds


def _plan(seed: int, wishes: dict[str, Any]) -> Plan:
    from chord.sim.plan import FAULTS, draw

    named = wishes["faults"]
    faults: tuple[str, ...] | None = None
    if named is not None:
        faults = tuple(FAULTS) if named == "all" else () if named == "none" else tuple(named.replace(",", " ").split())
    enough = {name: wishes[name] for name in ("membership", "steps") if wishes[name] is not None}
    try:
        return draw(
            seed,
            nodes=wishes["nodes"],
            successors=wishes["successors"],
            fidelity=wishes["fidelity"],
            faults=faults,
            until_s=wishes["until"],
            **enough,
        )
    except ConfigError as error:
        raise Failure(error.message, "See: chord sim run --help", USAGE, "config") from None


def _again(seed: int, wishes: dict[str, Any]) -> str:
    """Return the command that runs a seed again."""
    given = [f"--{name} {shlex.quote(str(wishes[name]))}" for name in WISHES if wishes[name] is not None]
    return " ".join(["chord sim replay", str(seed), *given])


def _drawn(plan: Plan) -> str:
    faults = ", ".join(plan.faults) or "no faults"
    least, most = plan.delay_s
    return (
        f"{plan.nodes} nodes, r = {plan.successors}, {plan.fidelity}, {1000 * least:g} to {1000 * most:g} ms, "
        f"{plan.clients} clients; {faults}"
    )


def _writing(path: Path) -> Any:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb")
    except OSError as error:
        hint = "Name a file that can be written"
        raise Failure(f"cannot write {path} ({str(error.strerror).lower()})", hint, USAGE, "usage") from None


# -- results --------------------------------------------------------------------------------------


def _zeros(outcome: Outcome) -> list[str]:
    from chord.sim.swarm import SEEDS_FOR_ALL

    return outcome.zeros() if outcome.seeds >= SEEDS_FOR_ALL else []


def _print(out: Out, outcome: Outcome, zeros: list[str], wishes: dict[str, Any]) -> None:
    """Print what was drawn, what was taken, what failed, and last how to see it again."""
    from chord.sim.plan import FAULTS

    drawn = [[fault, str(outcome.drawn[fault]), FAULTS[fault]] for fault in FAULTS]
    out.table([Column("fault"), Column("seeds", "right"), Column("meaning")], drawn)
    out.line()
    counts = sorted(outcome.counts.items())
    out.table([Column("taken"), Column("times", "right")], [[name, f"{count:,}"] for name, count in counts])
    out.line()
    for text in _summary(outcome):
        out.line(text)
    if zeros:
        out.line(f"never taken: {', '.join(zeros)}")
    for broken in outcome.broken[:SHOWN_MAX]:
        out.line()
        out.line(f"seed {broken.plan.seed}: {_drawn(broken.plan)}")
        out.line(f"{broken.kind}: {broken.text}")
    if len(outcome.broken) > SHOWN_MAX:
        seeds = ", ".join(str(broken.plan.seed) for broken in outcome.broken[SHOWN_MAX:])
        out.line(f"and {len(outcome.broken) - SHOWN_MAX} more: {seeds}")
    if outcome.broken:
        out.line()
        out.line(f"again: {_again(outcome.broken[0].plan.seed, wishes)}")


def _summary(outcome: Outcome) -> list[str]:
    reports = outcome.reports
    verdict = f"{len(outcome.broken)} FAILED" if outcome.broken else "all held"
    lines = [
        f"{outcome.seeds} seeds, {outcome.drawn['over frames']} of them over frames: {verdict}",
        f"{sum(r.steps for r in reports):,} protocol steps, {sum(r.membership for r in reports):,} members came or went, "
        f"{sum(r.checks for r in reports):,} times all invariants checked, {sum(r.deliveries for r in reports):,} deliveries",
    ]
    if reports:
        lines += [
            f"Ideal at most {max(r.settled_s for r in reports):.1f} s after the last event; "
            f"healed at most {max(r.healed_rounds for r in reports):.0f} rounds after an episode",
            f"{sum(r.keys for r in reports):,} acknowledged keys were read back in the end; "
            f"{sum(r.lost for r in reports):,} had died with the only node that had them",
        ]
    return lines


def _print_report(out: Out, report: Report) -> None:
    for table in report.tables:
        has_bar = table.passed is not None
        columns = [Column(column.heading, "left" if index == 0 else "right") for index, column in enumerate(table.columns)]
        columns += [Column("within the bar")] * has_bar
        rows = [[*table.texts(row), *[_VERDICTS[row.passed]] * has_bar] for row in table.rows]
        out.line(table.title)
        out.table(columns, rows)
        for note in (*([f"bar: {table.bar}"] if table.bar else []), *table.notes):
            out.line(note)
        out.line()
    for note in report.notes:
        out.note(note)
    out.note(f"{report.name}: {', '.join(str(path) for path in report.files)}")


def _report_json(report: Report) -> Json:
    return {
        "name": report.name,
        "title": report.title,
        "passed": report.passed,
        "files": [str(path) for path in report.files],
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "columns": [column.heading for column in table.columns],
                "rows": [{"values": list(row.values), "passed": row.passed} for row in table.rows],
                "bar": table.bar,
                "notes": list(table.notes),
            }
            for table in report.tables
        ],
    }


def _outcome_json(outcome: Outcome, zeros: list[str], wishes: dict[str, Any]) -> Json:
    return {
        "seeds": outcome.seeds,
        "drawn": dict(sorted(outcome.drawn.items())),
        "taken": dict(sorted(outcome.counts.items())),
        "never_taken": zeros,
        "steps": sum(r.steps for r in outcome.reports),
        "membership": sum(r.membership for r in outcome.reports),
        "checks": sum(r.checks for r in outcome.reports),
        "deliveries": sum(r.deliveries for r in outcome.reports),
        "keys": sum(r.keys for r in outcome.reports),
        "lost": sum(r.lost for r in outcome.reports),
        "digests": {str(r.seed): r.digest for r in outcome.reports},
        "failures": [_broken_json(broken, wishes) for broken in outcome.broken],
    }


def _broken_json(broken: Broken, wishes: dict[str, Any]) -> Json:
    seed = broken.plan.seed
    return {"seed": seed, "kind": broken.kind, "text": broken.text, "replay": _again(seed, wishes)}
