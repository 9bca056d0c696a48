"""`sim run`, `sim replay`, `sim paper` and `sim figure`: the real node on virtual time.

The commands import the simulator while they run, so other commands do not load it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chord.cli.failures import (
    CHECK_FAILED,
    INTERNAL,
    INTERRUPTED,
    OK,
    TERMINATED,
    TIMEOUT,
    USAGE,
    Terminated,
    orderly_end,
)
from chord.cli.numbers import FiniteRange, Seconds
from chord.cli.output import Failure, Out
from chord.cli.reports import LINES_EVERY_S, jobs_option, run_experiments
from chord.cli.sim_figure import figure_command
from chord.cli.sim_output import Late, drawn, outcome_json, print_outcome, summary_of_one, writing
from chord.cli.target import json_option, with_options
from chord.errors import ConfigError
from chord.observe.chordlog import packing

if TYPE_CHECKING:
    from chord.events import Emitted
    from chord.sim.cluster import Cluster
    from chord.sim.plan import Plan
    from chord.sim.swarm import SwarmOutcome

EXIT_CODES = {"correctness": CHECK_FAILED, "crash": INTERNAL, "liveness": TIMEOUT}
"""The exit codes by kind of failure. If several kinds occurred, the first of these counts."""

PROGRESS_WRITES = 10_000
"""The number of acknowledged writes between two progress messages of a single long run."""

WISHES = (
    "nodes", "successors", "replicas", "faults", "fidelity", "membership", "steps", "writes", "clients",
    "client_pause_s", "reads", "pause_s", "until_s", "theme", "backups"
)  # fmt: skip
FAULTS_HELP = """Exactly these faults, or all, or none; default: each is drawn with p = 1/2. Faults: adjacent, crash,
silent, row, restart, meddle, hiccup, freeze, oneway, partition, blackout, loss, jitter, memory, wipe, damage, full,
eio, skew, forget, return. --counts explains them."""

THEME_HELP = """Main stress of the run: mixed (a little of each fault), absence, power, clocks, stop, disks, addresses
or delivery. Default: mixed if --faults names faults, otherwise drawn. Without --nodes, the rings of all themes except
mixed have one to seven nodes."""


@click.group("sim", no_args_is_help=False)
def sim_command() -> None:
    """Simulate rings of the real node on virtual time, with faults and checks."""


_wishes = with_options(
    click.option("--nodes", type=click.IntRange(1, 1000), metavar="N", help="Number of nodes; default: drawn."),
    click.option("--successors", type=click.IntRange(2, 32), metavar="R",
                 help="Length of the successor lists; default: drawn."),
    click.option("--replicas", type=click.IntRange(1, 16), metavar="N",
                 help="Number of copies of each record; default: drawn."),
    click.option("--faults", metavar="A,B", help=FAULTS_HELP),
    click.option("--fidelity", type=click.Choice(["messages", "frames"]),
                 help="Send whole messages, or frames over streams; default: drawn."),
    click.option("--membership", type=click.IntRange(min=0), metavar="M",
                 help="Run until nodes joined or left this many times; default: 30. "
                 "Only with theme mixed."),
    click.option("--steps", type=click.IntRange(min=0), metavar="K",
                 help="And until this many protocol steps were taken; default: 2000. "
                 "Only with theme mixed."),
    click.option("--writes", type=click.IntRange(min=0), metavar="W",
                 help="And until this many writes were acknowledged; default: 0."),
    click.option("--clients", type=click.IntRange(1, 1000), metavar="C",
                 help="Number of clients; default: drawn."),
    click.option("--client-pause", "client_pause_s", type=Seconds(min=0, min_open=True), metavar="S",
                 help="Mean pause of a client between two operations; default: drawn."),
    click.option("--reads", type=FiniteRange(0, 1), metavar="SHARE",
                 help="Fraction of reads among operations on keys that were written before;"
                 " default: 0.6."),
    click.option("--pause", "pause_s", type=Seconds(min=0, min_open=True), metavar="S",
                 help="Mean virtual time between two events; default: drawn."),
    click.option("--until", "until_s", type=Seconds(min=0, min_open=True), metavar="S",
                 help="Run for this many virtual seconds, whatever --membership, --steps and --writes say."),
    click.option("--theme", metavar="T", help=THEME_HELP),
    click.option("--backups", is_flag=True, default=None,
                 help="Let further clients work, make consistent backups, and check each. "
                 "No disk is lost or damaged."),
)  # fmt: skip
"""The options that override the draws of a seed."""


@sim_command.command("run", short_help="Run seeds, with faults, and check every step.")
@click.option("--seeds", default="0-19", show_default=True, metavar="A-B", help="One seed, or a range.")
@_wishes
@click.option("--shares", is_flag=True,
              help="Fail if too few writes are without a context, deletes, through stand-ins, or by a new coordinator.")
@click.option("--counts", is_flag=True, help="Print how often each fault was drawn and each path was taken.")
@jobs_option
@json_option
def run_command(out: Out, seeds: str, shares: bool, counts: bool, jobs: int | None, **wishes: Any) -> int:
    """Run seeds: each is a ring under the faults that it draws, checked at every step.

    Exit code 8 if a check failed, 1 if a bug raised an error, 5 if a ring did not converge in time. The last line is
    then the command that replays the first failure. Ctrl-C and SIGTERM end the run, and the results of the finished
    seeds are printed.

    200 seeds or more must also have taken every path: each transition, action and situation that --counts lists. This
    is not checked if an option such as --nodes or --faults overrides draws of the seeds. --shares is checked in any
    case.
    """
    from chord.sim.swarm import SEEDS_FOR_ALL, Broken, SwarmOutcome, run_many

    plans = [_plan(seed, wishes) for seed in _seeds(seeds)]
    is_one_run = len(plans) == 1 and bool(plans[0].writes)
    done = reported = 0

    def on_result(plan: Plan, result: object) -> None:
        nonlocal done
        done += 1
        if isinstance(result, Broken):
            out.note(f"{result.kind}: {result.text.partition(chr(10))[0]}")
        if not is_one_run:
            show(done)

    def on_progress(writes: int, membership: int) -> None:
        nonlocal reported
        if not is_one_run:
            return
        show(min(writes, plans[0].writes))
        if writes - reported >= PROGRESS_WRITES:  # a run of hours also reports progress without a terminal
            reported = writes
            out.note(f"{writes:,} writes were acknowledged, {membership:,} times a node joined or left, all held")

    what, total = ("writes", plans[0].writes) if is_one_run else ("seeds", len(plans))
    outcome, end = SwarmOutcome(), OK
    try:
        with orderly_end(), out.progress(what, total, lines_every_s=LINES_EVERY_S) as show:
            run_many(plans, on_result, jobs=jobs, on_progress=on_progress, outcome=outcome)
    except (KeyboardInterrupt, Terminated) as signalled:
        end = TERMINATED if isinstance(signalled, Terminated) else INTERRUPTED
        out.note(f"ended early: {outcome.seeds:,} of {len(plans):,} seeds were finished")
        if not outcome.seeds:
            return end
    is_swarm = outcome.seeds >= SEEDS_FOR_ALL and all(wishes[name] is None for name in WISHES)
    never_taken = outcome.zeros() if is_swarm else outcome.zeros(()) if shares else []
    if out.as_json:
        out.json(outcome_json(outcome, len(plans), never_taken, lambda seed: _replay(seed, wishes)))
    else:
        print_outcome(out, outcome, never_taken, lambda seed: _replay(seed, wishes), has_counts=counts)
    return end or _exit_code(outcome, never_taken)


@sim_command.command("replay", short_help="Run one seed again, and print its events.")
@click.argument("seed", type=click.IntRange(min=0))
@_wishes
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="File for the event log; default: out/sim/seed-SEED.jsonl.")
@click.option("--history", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Also write the operations of the clients, for chord check-history.")
@click.option("--chordlog", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Also write a recording: states, events, faults, operations, checks. FILE.gz is compressed.")
@click.option("--json", "as_json", is_flag=True, help="Print the event log instead of lines.")
def replay_command(
    seed: int, log: Path | None, history: Path | None, chordlog: Path | None, as_json: bool, **wishes: Any
) -> int:
    """Run one seed again, exactly as before, and print each change of a node's state.

    All events also go to a log, as JSON lines. A printed line has the virtual time, the node, the event and the node's
    new state. The state is the predecessor, the successor list, the share of the circle and the number of keys. Exit
    codes are those of chord sim run.
    """
    from chord.sim.recording import RunRecorder
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
        on_event: list[Callable[[Cluster, Emitted], object]] = [replay]
        on_operation: list[Callable[[bytes], object]] = [operations] if operations else []
        on_fault: list[Callable[[str, tuple[tuple[str, ...], ...]], object]] = []
        recorder = None
        if chordlog is not None:
            pack = files.enter_context(packing(chordlog.name, files.enter_context(writing(chordlog))))
            recorder = RunRecorder(plan, _replay(seed, wishes), pack)
            on_event.append(recorder.on_event)
            on_operation.append(recorder.on_operation)
            on_fault.append(recorder.on_fault)
        result = run_one(
            plan,
            on_event=partial(_call_each, on_event),
            write_history=partial(_call_each, on_operation) if on_operation else None,
            on_fault=partial(_call_each, on_fault),
        )
        if recorder is not None:
            recorder.end(result.kind if isinstance(result, Broken) else "passed")
    printed.fail()
    out.flush()
    out.note(f"{result.kind}: {result.text}" if isinstance(result, Broken) else summary_of_one(result))
    others = {"history": history, "recording": chordlog}
    out.note(f"events: {path}" + "".join(f"; {name}: {file}" for name, file in others.items() if file))
    return EXIT_CODES[result.kind] if isinstance(result, Broken) else OK


@sim_command.command("paper", short_help="Repeat the measurements of the papers.")
@click.argument("experiments", nargs=-1)
@click.option("--scale", type=click.Choice(["quick", "standard", "full"]), default="standard", show_default=True,
              help="How much to measure: two minutes, ten, or as in the papers.")
@click.option("--seed", default=1, show_default=True, metavar="N", help="Seed of all random draws.")
@click.option("--out", "out_dir", type=click.Path(file_okay=False, path_type=Path), default=Path("out/sim"),
              show_default=True, help="Folder for reports, tables and plots.")
@jobs_option
@json_option
def paper_command(
    out: Out, experiments: tuple[str, ...], scale: Any, seed: int, out_dir: Path, jobs: int | None
) -> int:
    """Repeat the measurements of the papers with the real node.

    EXPERIMENTS are path_length, load_balance, failures, churn, sessions, healing, missed_updates, leaders, local_reads
    and membership; default: all. The command prints measured beside published figures, and writes CSV, plots and a
    Markdown report. Exit code 8 if a result misses its bar.
    """
    from chord.lab.papers import EXPERIMENTS

    for name in experiments:
        if name not in EXPERIMENTS:
            hint = f"There are: {', '.join(EXPERIMENTS)}"
            raise Failure(f"there is no experiment {name!r}", hint, USAGE, "usage")
    chosen = [EXPERIMENTS[name] for name in dict.fromkeys(experiments or EXPERIMENTS)]
    return run_experiments(out, chosen, scale, seed, out_dir, jobs)


sim_command.add_command(figure_command)


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

    given = {name: wish for name, wish in wishes.items() if wish is not None}
    if "faults" in given:
        named = given["faults"].replace(",", " ").split()
        given["faults"] = {"all": tuple(FAULTS), "none": ()}.get(given["faults"], tuple(named))
    try:
        return draw(seed, **given)
    except ConfigError as error:
        fewer = "Name more --nodes, or fewer --successors or --replicas"
        hint = fewer if "too few" in error.message else "See: chord sim run --help"
        raise Failure(error.message, hint, USAGE, "config") from None


def _replay(seed: int, wishes: dict[str, Any]) -> str:
    given = {name.removesuffix("_s").replace("_", "-"): wishes[name] for name in WISHES if wishes[name] is not None}
    options = (
        f"--{name}" if wish is True else f"--{name} {shlex.quote(str(wish))}" for name, wish in given.items()
    )
    return " ".join(["chord sim replay", str(seed), *options])


def _call_each(callbacks: Iterable[Callable[..., object]], *args: Any) -> None:
    for callback in callbacks:
        callback(*args)


def _exit_code(outcome: SwarmOutcome, never_taken: list[str]) -> int:
    kinds = [broken.kind for broken in outcome.broken]
    for kind, code in EXIT_CODES.items():
        if kind in kinds:
            return code
    return CHECK_FAILED if never_taken else OK
