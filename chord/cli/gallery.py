"""`gallery`: run, prove, step and draw the algorithms of the exam notes.

The subcommands import the gallery while they run, so other commands do not load it.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec

from chord.cli.failures import CHECK_FAILED, OK, TIMEOUT, USAGE
from chord.cli.inputs import file_failure
from chord.cli.numbers import FiniteRange
from chord.cli.output import Failure, Out, counted
from chord.cli.plain import is_unicode
from chord.cli.target import json_option, with_options

if TYPE_CHECKING:
    from chord.gallery.claims import EntryClaim
    from chord.gallery.entry import Altered, Entry
    from chord.gallery.explore import SearchResult, Stepper
    from chord.gallery.recording import Recording
    from chord.gallery.timed import Conditions, TimedRun
    from chord.gallery.world import System
    from chord.views.common import Json

ROWS_MAX = 60
DELAY_EXAMPLE = "For example: --delay 50ms, --delay exp:50ms, --delay uniform:10ms-90ms"
CRASH_EXAMPLE = "For example: --crash b@1.5-3, or --crash b@1.5 for a process that does not start again"
SPLIT_EXAMPLE = "For example: --partition a,b|c@1-4"


@click.group("gallery", no_args_is_help=False)
def gallery_command() -> None:
    """Run, prove and draw the algorithms of the exam notes.

    A search tries every interleaving of a small case. Exit code 8 if a law is broken, and 5 if a search has too many
    states, so that nothing is proved.
    """


_variant = with_options(
    click.option("--channels", "order", type=click.Choice(["any", "fifo"]),
                 help="Order of messages; default: the order that the algorithm needs."),
    click.option("--bug", metavar="NAME", help="Take the variant with this bug. A wrong name lists them."),
    click.option("--as", "printed", metavar="FORM",
                 help="Take the algorithm literally as the text has it: printed, or the name of the form."),
)  # fmt: skip
_budget = with_options(
    click.option("--loss", "lose", type=click.IntRange(0, 9), default=0, metavar="K", help="Lose up to K messages."),
    click.option("--double", type=click.IntRange(0, 9), default=0, metavar="K", help="Let up to K arrive twice."),
    click.option("--crash", type=click.IntRange(0, 9), default=0, metavar="K", help="Crash up to K times."),
    click.option("--restart", type=click.IntRange(0, 9), default=0, metavar="K", help="Restart up to K times."),
)  # fmt: skip


@gallery_command.command("list", short_help="List the algorithms.")
@json_option
def list_command(out: Out) -> int:
    """List the algorithms: ticket, cost in messages, needs, bugs, and the sizes that a search proves."""
    from chord.gallery.index import entry_json, every_entry

    entries = list(every_entry())
    if out.as_json:
        out.json({"entries": [entry_json(entry) for entry in entries]})
        return OK
    rows = []
    for entry in entries:
        cost = "; ".join(f"{cost.text} {cost.unit} per {cost.per}" for cost in entry.cost)
        needs = "FIFO" if entry.channels == "fifo" else ""
        altered = ", ".join([*entry.bugs, *(f"{name} (printed)" for name in entry.printed)])
        small = ", ".join(map(str, entry.small))
        rows.append([str(entry.ticket or "–"), entry.name, cost, needs, ", ".join(entry.tolerates), altered, small])
    out.table([">ticket", "name", "cost", "needs", "tolerates", "bugs", "proved for n"], rows)
    return OK


@gallery_command.command("run", short_help="Run an algorithm once, on virtual time.")
@click.argument("name")
@click.option("--nodes", type=int, metavar="N", help="Number of processes; default: 3, or the next possible number.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
              help="Seed of delays, faults and asks.")
@_variant
@click.option("--delay", default="exp:50ms", show_default=True, metavar="D",
              help="Delay of messages: 50ms, exp:50ms or uniform:10ms-90ms.")
@click.option("--loss", type=FiniteRange(0, 1), default=0.0, metavar="SHARE", help="Fraction of messages to lose.")
@click.option("--double", type=FiniteRange(0, 1), default=0.0, metavar="SHARE", help="Fraction that arrives twice.")
@click.option("--crash", "crashes", multiple=True, metavar="P@S-S", help="Crash of a process, from one second to "
              "another. May be repeated.")
@click.option("--partition", "splits", multiple=True, metavar="A,B|C@S-S", help="Partition, from one second to "
              "another. May be repeated.")
@click.option("--draw", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the diagram as SVG.")
@click.option("--history", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the events as lines of JSON.")
@json_option
def run_command(
    out: Out, name: str, nodes: int | None, order: Any, bug: str | None, printed: str | None, draw: Path | None,
    history: Path | None, **wishes: Any,
) -> int:  # fmt: skip
    """Run the algorithm NAME once, on virtual time.

    Prints the diagram, the messages by kind beside the formula of the text, and yes or no for each law.
    """
    from chord.gallery.timed import run_timed

    entry, variant = _entry(name), None
    nodes = _size(entry, nodes)
    variant = _altered(entry, bug, printed)
    conditions = _conditions(nodes, order or (variant and variant.order), **wishes)
    run = run_timed(entry, nodes, conditions, variant)
    if draw is not None:
        _draw(entry, run.recording, draw, variant)
    if history is not None:
        _write(history, b"".join(line + b"\n" for line in run.recording.lines()))
    if out.as_json:
        out.json(_run_json(entry, run))
    else:
        _print_run(out, entry, run, variant is None)
    return CHECK_FAILED if run.breaches or not run.is_goal else OK


@gallery_command.command("prove", short_help="Try every interleaving of a small case.")
@click.argument("name", required=False)
@click.option("--all", "is_all", is_flag=True,
              help="Show every claim: all sizes, message counts, needs, bugs and printed forms. Without NAME, of all "
              "algorithms.")
@click.option("--nodes", type=int, metavar="N", help="Number of processes; default: all sizes of the entry.")
@_variant
@_budget
@click.option("--draw", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the diagram of the shortest run as SVG.")
@json_option
def prove_command(
    out: Out, name: str | None, is_all: bool, nodes: int | None, order: Any, bug: str | None, printed: str | None,
    draw: Path | None, **budget: int,
) -> int:  # fmt: skip
    """Search all states of the algorithm NAME, and print the shortest run that breaks a law.

    --loss, --double, --crash and --restart say how often a fault may occur in one run.
    """
    from chord.gallery.explore import prove
    from chord.gallery.index import every_entry
    from chord.gallery.world import FaultBudget

    if name is None and not is_all:
        raise Failure("expected the name of an algorithm, or --all", "See: chord gallery list", USAGE, "usage")
    if is_all and (bug or printed or nodes or order or draw or any(budget.values())):
        raise Failure("--all takes no size, variant, fault or drawing", "Leave out one of them", USAGE, "usage")
    entries = every_entry() if name is None else [_entry(name)]
    if is_all:
        return _prove_all(out, list(entries))
    faults = FaultBudget(**budget) if any(budget.values()) else None
    results: list[Json] = []
    codes = [OK]
    for entry in entries:
        variant = _altered(entry, bug, printed)
        options = [*_given("--channels", order), *_given("--bug", bug), *_given("--as", printed)]
        for size in _sizes(entry, nodes, variant):
            with out.progress(f"{entry.name}, n = {size}: states") as show:
                result = prove(entry, size, variant=variant, order=order, faults=faults, watch=show)
            shown = _Shown(entry, size, variant, order, options, result)
            if not out.as_json:
                _print_result(out, shown)
            if draw is not None and result.kind not in ("holds", "too many"):
                _draw(entry, shown.recording, draw, variant)
            results.append(shown.json())
            codes.append(OK if result.kind == "holds" else TIMEOUT if result.kind == "too many" else CHECK_FAILED)
    if out.as_json:
        out.json({"results": results})
    return max(codes)


@gallery_command.command("step", short_help="Choose every step yourself.")
@click.argument("name")
@click.option("--nodes", type=int, metavar="N", help="Number of processes; default: the smallest possible.")
@_variant
@_budget
@click.option("--start", type=click.IntRange(min=0), default=0, show_default=True, metavar="K",
              help="Number of the first state, for an algorithm that starts from any state.")
@click.option("--take", metavar="K,K", help="Take these steps, print the result and end.")
@json_option
def step_command(
    out: Out, name: str, nodes: int | None, order: Any, bug: str | None, printed: str | None, start: int,
    take: str | None, **budget: int,
) -> int:  # fmt: skip
    """Take the algorithm NAME step by step.

    Without --take, the command reads from stdin: the number of a step, undo, or quit. With --json it prints the state,
    the possible steps and the events.
    """
    from chord.gallery.explore import Stepper, systems_of
    from chord.gallery.world import FaultBudget

    entry = _entry(name)
    variant = _altered(entry, bug, printed)
    size = entry.small[0] if nodes is None else _size(entry, nodes)
    systems = systems_of(entry, size, variant, order, FaultBudget(**budget))
    if start >= len(systems):
        hint = f"Name 0 to {len(systems) - 1}"
        raise Failure(f"{entry.name} has {counted(len(systems), 'start')} for n = {size}", hint, USAGE, "usage")
    stepper = Stepper(systems[start])
    for word in (take or "").replace(",", " ").split():
        _take(stepper, word)
    _show(out, entry, stepper)
    while take is None and not out.as_json:
        word = sys.stdin.readline().strip()
        if word in ("", "q", "quit"):
            break
        if word in ("u", "undo"):
            stepper.undo()
        else:
            try:
                _take(stepper, word)
            except Failure as failure:
                out.note(f"{failure.message}. {failure.hint}")
                continue
        _show(out, entry, stepper)
    return OK


@gallery_command.command("needs", short_help="Show the conditions that each algorithm needs.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option
def needs_command(out: Out, names: tuple[str, ...]) -> int:
    """Search each algorithm under one fault of each kind, and print the effects.

    Without NAME, all algorithms. The faults are any order of messages, loss, copies, a crash, and a crash with restart.
    """
    from chord.gallery.explore import ONE_OF, under_fault
    from chord.gallery.index import every_entry

    rows, found = [], []
    entries = [_entry(name) for name in names] or list(every_entry())
    with out.progress("searches", len(entries) * len(ONE_OF)) as show:
        for entry in entries:
            cells = []
            for fault in ONE_OF:
                need = entry.needs.get(fault)
                size = need.nodes if need is not None else entry.small[0]
                result = under_fault(entry, fault, size)
                steps = f" in {counted(len(result.path), 'step')}" if result.path else ""
                cells.append(f"{result.found}{steps}")
                found.append({"entry": entry.name, "fault": fault, **_result_json(entry, size, result)})
                show(len(found), entry.name)
            rows.append([entry.name, *cells])
    if out.as_json:
        out.json({"needs": found})
    else:
        out.table(["name", *("any order" if fault == "order" else fault for fault in ONE_OF)], rows)
    return OK


# -- arguments ------------------------------------------------------------------------------------


def _entry(name: str) -> Entry:
    from chord.gallery.index import ENTRIES, entry_of

    if name not in ENTRIES:
        near = get_close_matches(name, ENTRIES, 1)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise Failure(f"there is no algorithm {name!r}", f"{hint}See: chord gallery list", USAGE, "usage")
    return entry_of(name)


def _size(entry: Entry, nodes: int | None) -> int:
    low, high = entry.sizes
    if nodes is None:
        return min(max(3, low), high)
    if not low <= nodes <= high:
        hint = f"Name {low} to {high} processes"
        raise Failure(f"{entry.name} cannot run with {counted(nodes, 'process', 'processes')}", hint, USAGE, "usage")
    return nodes


def _sizes(entry: Entry, nodes: int | None, variant: Altered | None) -> tuple[int, ...]:
    if nodes is not None:
        return (_size(entry, nodes),)
    return entry.small if variant is None else (variant.nodes,)


def _altered(entry: Entry, bug: str | None, printed: str | None) -> Altered | None:
    if bug is not None and printed is not None:
        raise Failure("--bug and --as exclude each other", "Name one of them", USAGE, "usage")
    if bug is not None:
        return entry.bugs[bug] if bug in entry.bugs else _unknown(entry, "bug", bug, list(entry.bugs))
    if printed == "printed" and len(entry.printed) == 1:
        return next(iter(entry.printed.values()))
    if printed is not None:
        forms = list(entry.printed)
        return entry.printed[printed] if printed in forms else _unknown(entry, "printed form", printed, forms)
    return None


def _unknown(entry: Entry, what: str, name: str, names: list[str]) -> NoReturn:
    there = f"There are: {', '.join(names)}" if names else f"{entry.name} has none"
    raise Failure(f"there is no {what} {name!r} of {entry.name}", there, USAGE, "usage")


def _conditions(
    nodes: int, order: Any, seed: int, delay: str, loss: float, double: float, crashes: tuple[str, ...],
    splits: tuple[str, ...],
) -> Conditions:  # fmt: skip
    from chord.gallery.process import names_of
    from chord.gallery.timed import Conditions, Outage, Partition, delay_of

    names = names_of(nodes)
    try:
        drawn = delay_of(delay)
    except ValueError as error:
        raise Failure(str(error), DELAY_EXAMPLE, USAGE, "usage") from None
    outages, partitions = [], []
    for text in crashes:
        found = re.fullmatch(r"(\w+)@([\d.]+)(?:-([\d.]+))?", text)
        if found is None:
            raise Failure(f"{text!r} is not a crash", CRASH_EXAMPLE, USAGE, "usage")
        _require_names(names, [found[1]])
        from_s = _number(found[2], CRASH_EXAMPLE)
        outages.append(Outage(found[1], from_s, _number(found[3], CRASH_EXAMPLE) if found[3] else None))
    for text in splits:
        found = re.fullmatch(r"([\w,|]+)@([\d.]+)-([\d.]+)", text)
        if found is None:
            raise Failure(f"{text!r} is not a partition", SPLIT_EXAMPLE, USAGE, "usage")
        groups = tuple(tuple(group.split(",")) for group in found[1].split("|"))
        _require_names(names, [name for group in groups for name in group])
        partitions.append(Partition(groups, _number(found[2], SPLIT_EXAMPLE), _number(found[3], SPLIT_EXAMPLE)))
    return Conditions(
        seed=seed, order=order, delay=drawn, loss=loss, double=double, outages=tuple(outages),
        splits=tuple(partitions),
    )  # fmt: skip


def _require_names(names: tuple[str, ...], wanted: list[str]) -> None:
    for name in wanted:
        if name not in names:
            raise Failure(f"there is no process {name!r}", f"There are: {', '.join(names)}", USAGE, "usage")


def _number(text: str, example: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Failure(f"{text!r} is not a number of seconds", example, USAGE, "usage") from None


def _take(stepper: Stepper, word: str) -> None:
    choices = stepper.choices()
    if not word.isdecimal() or int(word) >= len(choices):
        there = f"Name a number from 0 to {len(choices) - 1}" if choices else "No step is possible; undo the last one"
        raise Failure(f"there is no step {word!r}", there, USAGE, "usage")
    stepper.take(int(word))


# -- results --------------------------------------------------------------------------------------


class _Shown(msgspec.Struct, frozen=True):
    """A result of a search, and the options that replay its run."""

    entry: Entry
    nodes: int
    variant: Altered | None
    order: Any
    options: Sequence[str]  # those of the variant and of the order
    result: SearchResult

    @property
    def systems(self) -> list[System]:
        from chord.gallery.explore import systems_of

        return systems_of(self.entry, self.nodes, self.variant, self.order, self.result.faults)

    @property
    def recording(self) -> Recording:
        from chord.gallery.explore import replay

        return replay(self.systems[self.result.first], self.result.path)

    @property
    def replay(self) -> str:
        """The command that takes the same steps."""
        from chord.gallery.explore import numbers_of

        result = self.result
        numbers = ",".join(map(str, numbers_of(self.systems[result.first], result.path)))
        words = [*self.options, *_given("--start", result.first)]
        for name in result.faults.__struct_fields__:
            words += _given("--loss" if name == "lose" else f"--{name}", getattr(result.faults, name))
        nodes = ["--nodes", str(self.nodes)]
        return shlex.join(["chord", "gallery", "step", self.entry.name, *nodes, *words, "--take", numbers])

    def json(self) -> Json:
        plain = _result_json(self.entry, self.nodes, self.result)
        if self.result.kind in ("holds", "too many"):
            return plain
        return {**plain, "replay": self.replay, "events": _events(self.recording)}


_UNREACHED = {
    "stuck": "no step is possible, and the goal is not reached",
    "hopeless": "no run from the last state reaches the goal",
    "endless": "a run from the last state can avoid the goal forever",
}


def _given(option: str, value: object) -> list[str]:
    return [option, str(value)] if value else []


def _prove_all(out: Out, entries: list[Entry]) -> int:
    """Show every claim of the entries: by searches, and the costs by counting messages of runs on virtual time."""
    from chord.gallery.claims import claims_of, miscounted, sizes_counted

    results: list[Json] = []
    codes = [OK]
    for entry in entries:
        for claim in claims_of(entry):
            options = [*_given("--channels", "any" if claim.fault == "order" else None)]
            options += _given("--bug" if claim.kind == "bug" else "--as", claim.name)
            with out.progress(f"{entry.name}, n = {claim.nodes}: states") as show:
                result = claim.search(show)
            shown = _Shown(entry, claim.nodes, claim.variant, claim.order, options, result)
            is_shown = result.found == claim.expected
            codes.append(OK if is_shown else TIMEOUT if result.kind == "too many" else CHECK_FAILED)
            results.append({**shown.json(), "claim": claim.text, "shown": is_shown})
            if not out.as_json:
                _print_claim(out, claim, shown, is_shown)
        wrong = {nodes: miscounted(entry, nodes) for nodes in sizes_counted(entry)} if entry.cost else {}
        for cost in entry.cost:
            counts = [f"{count} for n = {nodes}" for nodes, costs in wrong.items() for c, count in costs if c is cost]
            codes.append(CHECK_FAILED if counts else OK)
            claim_text = f"{'' if cost.is_exact else 'at most '}{cost.text} {cost.unit} per {cost.per}"
            sizes = f"n = {min(wrong)} to {max(wrong)}"
            results.append({"name": entry.name, "claim": claim_text, "shown": not counts, "counted": sizes})
            if not out.as_json:
                found = f"NOT AS CLAIMED: counted {', '.join(counts)}" if counts else f"counted for {sizes}"
                out.line(f"{entry.name} costs {claim_text}: {found}")
    shown_count = sum(result["shown"] for result in results)
    if out.as_json:
        out.json({"results": results})
    else:
        out.line(f"{shown_count} of {counted(len(results), 'claim')} shown")
    return max(codes)


def _print_claim(out: Out, claim: EntryClaim, shown: _Shown, is_shown: bool) -> None:
    about = f"{claim.entry.name} {claim.text}"
    if is_shown and claim.expected == "holds":
        out.line(f"{about}: {counted(shown.result.states, 'state')}")
        return
    out.line(about)
    if not is_shown:
        out.line(f"NOT AS CLAIMED: expected {claim.expected}, found {shown.result.found}")
    _print_result(out, shown)


def _print_result(out: Out, shown: _Shown) -> None:
    from chord.gallery.explore import start_of

    entry, size, result = shown.entry, shown.nodes, shown.result
    if result.kind == "holds":
        out.line(f"{entry.name} holds for n = {size}: {counted(result.states, 'state')}")
        return
    if result.kind == "too many":
        out.line(f"{entry.name}, n = {size}: more than {result.states:,} states. Nothing is proved.")
        return
    said = f"{result.law.name} ({result.law.source})" if result.law is not None else _UNREACHED[result.kind]
    which = "run of the transcript" if shown.variant is not None and shown.variant.transcript else "shortest run"
    of = f" The {which}:" if result.path else ""
    out.line(f"{result.kind} after {counted(result.states, 'state')}: {said}.{of}")
    systems = shown.systems
    if len(systems) > 1:
        out.line(f"start {result.first} of {len(systems):,}: {start_of(systems[result.first])}")
    _print_diagram(out, entry, shown.recording)
    if result.why:
        out.line(result.why)
    out.line(f"replay: {shown.replay}")


def _print_run(out: Out, entry: Entry, run: TimedRun, is_whole: bool) -> None:
    _print_diagram(out, entry, run.recording)
    out.line()
    messages = run.recording.messages()
    out.table(["message", ">sent"], [[kind, str(count)] for kind, count in sorted(messages.items())])
    out.line()
    for cost in entry.cost:
        count, times = cost.counted(run.recording)
        bound = "" if cost.is_exact else "at most "
        allowed = cost.formula(len(run.recording.names)) * times
        state, done = "yes" if cost.holds(run.recording) else "NO", "sent" if cost.unit == "messages" else "made"
        unit = f"{cost.unit} per {cost.per}"
        out.line(f"{state:>3}  {bound}{cost.text} {unit}: {count} {done}, {bound}{allowed} expected")
    for law in entry.laws:
        why = run.breaches.get(law.name, "")
        out.line(f"{'NO' if why else 'yes':>3}  {law.name} ({law.source}): {why or law.text}")
    out.line(f"{'yes' if run.is_goal else 'NO':>3}  the goal is reached after {run.seconds:.3f} virtual seconds")
    if run.breaches or not run.is_goal:
        out.line(f"replay: {shlex.join(['chord', *sys.argv[1:]])}")


def _print_diagram(out: Out, entry: Entry, recording: Recording) -> None:
    from chord.gallery.layout import diagram_of
    from chord.gallery.text import draw_text, plain

    text = draw_text(diagram_of(recording, entry.bands, ROWS_MAX))
    out.line(text if is_unicode(sys.stdout) else plain(text))


def _draw(entry: Entry, recording: Recording, path: Path, variant: Altered | None) -> None:
    from chord.gallery.layout import diagram_of
    from chord.gallery.svg import draw_svg

    _write(path, draw_svg(diagram_of(recording, entry.bands), entry.title_with(variant)).encode())


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise file_failure(str(path), error, "write", "Name another file") from None


def _show(out: Out, entry: Entry, stepper: Stepper) -> None:
    choices = stepper.choices()
    if out.as_json:
        out.json({"world": stepper.world(), "choices": choices, "events": _events(stepper.recording())})
        return
    _print_diagram(out, entry, stepper.recording())
    for number, choice in enumerate(choices):
        of = f" {choice['of']}" if "of" in choice else ""
        place = f", message {choice['place']}" if "place" in choice else ""
        out.line(f"{number:>3}  {choice['process']}: {choice['what']}{of}{place}")
    out.flush()


# -- JSON -----------------------------------------------------------------------------------------


def _events(recording: Recording) -> list[Json]:
    import json

    return [json.loads(line) for line in recording.lines()]


def _result_json(entry: Entry, size: int, result: SearchResult) -> Json:
    law = result.law.name if result.law is not None else None
    return {
        "name": entry.name, "nodes": size, "result": result.kind, "states": result.states, "law": law,
        "why": result.why, "steps": len(result.path),
    }  # fmt: skip


def _run_json(entry: Entry, run: TimedRun) -> Json:
    costs = []
    for cost in entry.cost:
        sent, times = cost.counted(run.recording)
        expected = cost.formula(len(run.recording.names)) * times
        costs.append({"text": cost.text, "sent": sent, "expected": expected, "holds": cost.holds(run.recording)})
    return {
        "name": entry.name, "nodes": len(run.recording.names), "goal": run.is_goal, "seconds": run.seconds,
        "digest": run.digest, "messages": dict(run.recording.messages()), "cost": costs,
        "laws": {law.name: law.name not in run.breaches for law in entry.laws}, "broken": run.breaches,
        "events": _events(run.recording),
    }  # fmt: skip
