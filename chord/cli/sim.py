"""sim run, sim replay, sim paper: the same node on virtual time, by the thousand.

The simulator is loaded inside the commands: nothing else pays for it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chord.cli.failures import CHECK_FAILED, INTERNAL, OK, TIMEOUT, USAGE, orderly_end
from chord.cli.numbers import FiniteRange, Seconds
from chord.cli.output import Failure, Out
from chord.cli.reports import LINES_EVERY_S, print_report, report_json, require_folder
from chord.cli.sim_output import Late, drawn, outcome_json, print_outcome, summary_of_one, writing
from chord.errors import ConfigError

if TYPE_CHECKING:
    from chord.sim.plan import Plan
    from chord.sim.swarm import Outcome

EXIT_CODES = {"correctness": CHECK_FAILED, "crash": INTERNAL, "liveness": TIMEOUT}
"""By kind of failure; where there are several, the first of these counts."""

WRITES_TOLD = 10_000
"""After so many more acknowledged writes, a single long life says how far it has come."""

WISHES = (
    "nodes", "successors", "replicas", "faults", "fidelity", "membership", "steps", "writes", "clients",
    "client_pause", "reads", "pause", "until", "theme"
)  # fmt: skip
FAULTS_HELP = """Exactly these, or all, or none; default: drawn, each with p = 1/2. There are adjacent, crash, silent,
row, restart, meddle, hiccup, freeze, oneway, partition, blackout, loss, jitter, memory, wipe, damage, full, eio, skew,
forget, return; --counts explains them."""

THEME_HELP = """What the life has most of: mixed (a little of each fault), absence, power, clocks, stop, disks,
addresses or delivery; default: mixed if --faults names faults, otherwise drawn. Without a number of --nodes, all but
mixed have rings of one to seven nodes."""


@click.group("sim", no_args_is_help=False)
def sim_command() -> None:
    """Simulate: rings of the real node on virtual time, with faults, checked after every step."""


def _wishes(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options by which a plan differs from what its seed draws."""
    options = (
        click.option("--nodes", type=click.IntRange(1, 1000), metavar="N", help="How many nodes; default: drawn."),
        click.option("--successors", type=click.IntRange(2, 32), metavar="R", help="r of the ring; default: drawn."),
        click.option("--replicas", type=click.IntRange(1, 16), metavar="N", help="N of the ring; default: drawn."),
        click.option("--faults", metavar="A,B", help=FAULTS_HELP),
        click.option("--fidelity", type=click.Choice(["messages", "frames"]),
                     help="Whole messages, or frames over streams; default: drawn."),
        click.option("--membership", type=click.IntRange(min=0), metavar="M",
                     help="Go on until nodes came or went this many times; default: 30."),
        click.option("--steps", type=click.IntRange(min=0), metavar="K",
                     help="And until this many protocol steps were taken; default: 2000."),
        click.option("--writes", type=click.IntRange(min=0), metavar="W",
                     help="And until this many writes were acknowledged; default: 0."),
        click.option("--clients", type=click.IntRange(1, 1000), metavar="C",
                     help="How many clients write and read; default: drawn."),
        click.option("--client-pause", type=Seconds(min=0, min_open=True), metavar="S",
                     help="How long each waits between two operations, on average; default: drawn."),
        click.option("--reads", type=FiniteRange(0, 1), metavar="SHARE",
                     help="How many in one of their operations on a key that was written before are reads;"
                     " default: 0.6."),
        click.option("--pause", type=Seconds(min=0, min_open=True), metavar="S",
                     help="Mean time between two events; default: drawn."),
        click.option("--until", type=Seconds(min=0, min_open=True), metavar="S",
                     help="Go on for this many virtual seconds instead."),
        click.option("--theme", metavar="T", help=THEME_HELP),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@sim_command.command("run", short_help="Run seeds, with faults, and check every step.")
@click.option("--seeds", default="0-19", show_default=True, metavar="A-B", help="One seed or a range.")
@_wishes
@click.option("--shares", is_flag=True, help="Fail where too few writes are blind, deletes, or by a new coordinator.")
@click.option("--counts", is_flag=True, help="Print how often each fault was drawn and each path taken.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="J", help="Processes; default: one for each core.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def run_command(seeds: str, shares: bool, counts: bool, jobs: int | None, as_json: bool, **wishes: Any) -> int:
    """Run seeds: each a ring that lives through what its seed has drawn, checked after every step.

    Exit code 8 where a check failed, 1 where a bug raised an error, 5 where a ring did not become whole in time. Then
    the last line is the command that replays the first failure. 200 seeds or more must also have taken every path; that
    is not checked where an option such as --nodes or --faults replaces what the seeds draw, but --shares is.
    """
    from chord.sim.swarm import SEEDS_FOR_ALL, Broken, run_many

    out = Out(as_json)
    plans = [_plan(seed, wishes) for seed in _seeds(seeds)]
    one_life = len(plans) == 1 and bool(plans[0].writes)
    done = told = 0

    def on_result(plan: Plan, result: object) -> None:
        nonlocal done
        done += 1
        if isinstance(result, Broken):
            out.note(f"{result.kind}: {result.text.partition(chr(10))[0]}")
        if not one_life:
            show(done)

    def on_progress(writes: int, membership: int) -> None:
        nonlocal told
        if not one_life:
            return
        show(min(writes, plans[0].writes))
        if writes - told >= WRITES_TOLD:  # a life of hours says so where there is no terminal as well
            told = writes
            out.note(f"{writes:,} writes were acknowledged, {membership:,} times a node came or went, and all held")

    what, total = ("writes", plans[0].writes) if one_life else ("seeds", len(plans))
    with out.progress(what, total, lines_every_s=LINES_EVERY_S) as show:
        outcome = run_many(plans, on_result, jobs=jobs, on_progress=on_progress)
    is_swarm = outcome.seeds >= SEEDS_FOR_ALL and all(wishes[name] is None for name in WISHES)
    never_taken = outcome.zeros() if is_swarm else outcome.zeros(()) if shares else []
    if as_json:
        out.json(outcome_json(outcome, never_taken, lambda seed: _replay(seed, wishes)))
    else:
        print_outcome(out, outcome, never_taken, lambda seed: _replay(seed, wishes), has_counts=counts)
    return _exit_code(outcome, never_taken)


@sim_command.command("replay", short_help="Run one seed again, and tell what happens.")
@click.argument("seed", type=click.IntRange(min=0))
@_wishes
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Where the event log goes; default: out/sim/seed-SEED.jsonl.")
@click.option("--history", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write what the clients did as well, for chord check-history.")
@click.option("--json", "as_json", is_flag=True, help="Print the event log instead of lines.")
def replay_command(seed: int, log: Path | None, history: Path | None, as_json: bool, **wishes: Any) -> int:
    """Run one seed again, the very same way: a line for each change of a node's state, and all events as JSON lines.

    A line is virtual time, node, event, and the node as it is after it: predecessor, successor list, share of the
    circle, number of keys. Exit codes are those of chord sim run.
    """
    from chord.sim.replay import HEADING, Replay
    from chord.sim.swarm import Broken, run_one

    out = Out(as_json)
    plan = _plan(seed, wishes)
    path = log or Path("out/sim") / f"seed-{seed}.jsonl"
    printed = Late(out.line)
    with ExitStack() as files:
        events = files.enter_context(writing(path))
        operations = files.enter_context(writing(history)) if history else None

        def write(entry: dict[str, Any]) -> None:
            text = json.dumps(entry, ensure_ascii=False)
            events(text.encode() + b"\n")
            if as_json:
                printed(text)

        out.note(f"seed {plan.seed}: {drawn(plan)}")
        if not as_json:
            printed(HEADING)
        replay = Replay(write, (lambda line: None) if as_json else printed)
        result = run_one(plan, on_event=replay, write_history=operations)
    printed.fail()
    out.flush()
    out.note(f"{result.kind}: {result.text}" if isinstance(result, Broken) else summary_of_one(result))
    out.note(f"events: {path}" + (f"; history: {history}" if history else ""))
    return EXIT_CODES[result.kind] if isinstance(result, Broken) else OK


@sim_command.command("paper", short_help="Measure what the papers published.")
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

    There are path_length, load_balance, failures, churn, sessions and healing. Prints measured beside published, and
    writes CSV, plots and a Markdown report. Exit code 8 where a bar is missed.
    """
    from chord.lab import papers

    out = Out(as_json)
    names = list(dict.fromkeys(experiments or papers.EXPERIMENTS))
    for name in names:
        if name not in papers.EXPERIMENTS:
            hint = f"There are: {', '.join(papers.EXPERIMENTS)}"
            raise Failure(f"there is no experiment {name!r}", hint, USAGE, "usage")
    require_folder(out_dir)  # now, not in ten minutes
    cells = sum(len(papers.EXPERIMENTS[name].plan(scale, seed)) for name in names)
    with (
        orderly_end(),
        out.progress("measured", cells, lines_every_s=LINES_EVERY_S) as show,
        papers.processes(jobs) as pool,
    ):
        reports = papers.run_all(names, scale, seed, out_dir, pool, lambda label, done, of: show(done, label))
    if as_json:
        out.json({"scale": scale, "seed": seed, "experiments": [report_json(report) for report in reports]})
    else:
        for report in reports:
            print_report(out, report)
    return CHECK_FAILED if any(report.passed is False for report in reports) else OK


# -- plans ----------------------------------------------------------------------------------------


def _seeds(text: str) -> range:
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise Failure(f"{text!r} is not a seed or a range of seeds", "For example: --seeds 0-99", USAGE, "usage")
    seeds = range(int(first), int(last or first) + 1)
    if not seeds:
        raise Failure(f"there are no seeds in {text}", "For example: --seeds 0-99", USAGE, "usage")
    return seeds


def _plan(seed: int, wishes: dict[str, Any]) -> Plan:
    from chord.sim.plan import FAULTS, draw

    named = wishes["faults"]
    faults: tuple[str, ...] | None = None
    if named is not None:
        faults = tuple(FAULTS) if named == "all" else () if named == "none" else tuple(named.replace(",", " ").split())
    enough = {name: wishes[name] for name in ("membership", "steps", "writes") if wishes[name] is not None}
    try:
        return draw(
            seed,
            nodes=wishes["nodes"],
            successors=wishes["successors"],
            replicas=wishes["replicas"],
            clients=wishes["clients"],
            client_pause_s=wishes["client_pause"],
            reads=wishes["reads"],
            pause_s=wishes["pause"],
            theme=wishes["theme"],
            fidelity=wishes["fidelity"],
            faults=faults,
            until_s=wishes["until"],
            **enough,
        )
    except ConfigError as error:
        fewer = "Name more --nodes, or fewer --successors or --replicas"
        hint = fewer if "too few" in error.message else "See: chord sim run --help"
        raise Failure(error.message, hint, USAGE, "config") from None


def _replay(seed: int, wishes: dict[str, Any]) -> str:
    """Return the command that runs a seed again."""
    given = {name.replace("_", "-"): str(wishes[name]) for name in WISHES if wishes[name] is not None}
    return " ".join(["chord sim replay", str(seed), *(f"--{name} {shlex.quote(wish)}" for name, wish in given.items())])


def _exit_code(outcome: Outcome, never_taken: list[str]) -> int:
    kinds = [broken.kind for broken in outcome.broken]
    for kind, code in EXIT_CODES.items():
        if kind in kinds:
            return code
    return CHECK_FAILED if never_taken else OK
