"""lab compare, vnodes, movement, jump, strategies, ring, all: sharding schemes side by side, and rings of a million.

The lab and what it is built on (`chord[lab]`) are loaded inside the commands: nothing else pays for it.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chord.cli.failures import CHECK_FAILED, OK, USAGE, orderly_end
from chord.cli.inputs import lines_limited
from chord.cli.output import Failure, Out, byte_size
from chord.cli.reports import LINES_EVERY_S, cannot_write, print_report, report_json, require_folder
from chord.wire.messages import KEY_BYTES_MAX

if TYPE_CHECKING:
    from chord.lab.experiments import AnyExperiment
    from chord.lab.experiments.common import Keys

LIBRARIES = ("numpy", "matplotlib", "xxhash")
KEYS_MAX = 10_000_000
KEYS_BYTES_MAX = 512 << 20  # of a file of keys: the lab holds all of them in memory
NODES_MAX = 10_000
RING_NODES_MIN, RING_NODES_MAX = 8, 4_000_000


class _Folder(click.Path):
    """A folder that has a name: without one, a path would be the folder one is in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self.fail("--out names no folder", param, ctx) if value == "" else super().convert(value, param, ctx)


@click.group("lab", no_args_is_help=False)
def lab_command() -> None:
    """Compare sharding schemes: how even, how stable, how fast, how much memory, what growing costs.

    Tables, plots and a page of each command go to out/lab. Exit code 8 where a bar is missed: a published figure, or a
    law.
    """


def _common(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that all have."""
    options = (
        click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, metavar="N",
                     help="Of everything that is drawn."),
        click.option("--scale", type=click.Choice(["quick", "standard"]), default="standard", show_default=True,
                     help="How much is measured: a taste, or enough for the bars."),
        click.option("--out", "out_dir", type=_Folder(file_okay=False, path_type=Path), default=Path("out/lab"),
                     show_default=True, help="Where tables, plots and pages go."),
        click.option("--jobs", type=click.IntRange(min=1), metavar="J", help="Processes; default: one for each core."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@lab_command.command("compare", short_help="Every scheme on the same keys, also on your own.")
@click.option("--schemes", metavar="A,B", help="Only these; default: all. An unknown name lists those there are.")
@click.option("--keys", "key_source", default="1000000", show_default=True, metavar="FILE|N",
              help="Keys from a file, one a line; or how many to make.")
@click.option("--nodes", type=click.IntRange(1, NODES_MAX), default=20, show_default=True, metavar="A",
              help="How many nodes at first.")
@click.option("--then", type=click.IntRange(2, 2 * NODES_MAX), metavar="B", help="How many then; default: one more.")
@click.option("--weights", metavar="X,Y",
              help="Weights of the nodes, one for each; only their proportions matter, and newcomers weigh their mean. "
              "Default: all the same.")
@_common
def compare_command(
    schemes: str | None, key_source: str, nodes: int, then: int | None, weights: str | None, seed: int, **wishes: Any
) -> int:
    """Place the same keys by every scheme: keys per node, keys that move when nodes come and go, memory, copies, time.

    With 10^6 keys on 20 nodes and then 21, as they are by default, the fourth text's table is there too.
    """
    _require_libraries()
    from chord.lab.experiments import of_compare

    then = nodes + 1 if then is None else then
    if then <= nodes:
        what = f"--then {then} is not more than --nodes {nodes}"
        raise Failure(what, "Name more nodes than at first", USAGE, "usage")
    chosen = _schemes(schemes)
    heavy = _weights(weights, nodes)
    found = _keys(key_source, seed)
    return _run(of_compare(found, chosen, nodes, then, heavy, seed), seed, **wishes)


@lab_command.command("vnodes", short_help="What vnodes, probes and bounded loads buy.")
@click.option("--nodes", type=click.IntRange(3, 1000), default=100, show_default=True, metavar="N",
              help="Nodes of the rings whose vnodes are varied.")
@_common
def vnodes_command(nodes: int, **wishes: Any) -> int:
    """Vary the vnodes of a ring: how even it is, and who inherits from a node that fails.

    Also the rings of the fourth text, drawn some hundred times, and the two ways to even out a ring without vnodes.
    """
    _require_libraries()
    from chord.lab.experiments import of_vnodes

    return _run(of_vnodes(nodes), **wishes)


@lab_command.command("movement", short_help="What growing costs, and what moving hot sections buys.")
@_common
def movement_command(**wishes: Any) -> int:
    """Let nodes in one by one, from 4 to 64, and add up all keys that move on the way.

    Also what moves on purpose: hot sections of a central map, under requests that are skewed.
    """
    _require_libraries()
    from chord.lab.experiments import of_movement

    return _run(of_movement(), **wishes)


@lab_command.command("jump", short_help="Jump consistent hash: lemma, cost, evenness.")
@_common
def jump_command(**wishes: Any) -> int:
    """Check what is proved of jump: the same bucket at m and n with m / n, H(n) jumps, equal buckets."""
    _require_libraries()
    from chord.lab.experiments import of_jump

    return _run(of_jump(), **wishes)


@lab_command.command("strategies", short_help="Dynamo's three partition strategies.")
@_common
def strategies_command(**wishes: Any) -> int:
    """Lay out a ring by each of Dynamo's strategies: how even, against what every node must know of the others."""
    _require_libraries()
    from chord.lab.experiments import of_strategies

    return _run(of_strategies(), **wishes)


@lab_command.command("ring", short_help="Rings of a million nodes: paths, failures, shares.")
@click.option("--nodes", type=click.IntRange(RING_NODES_MIN, RING_NODES_MAX), default=1_000_000, show_default=True,
              metavar="N", help="The largest ring.")
@_common
def ring_command(nodes: int, **wishes: Any) -> int:
    """Look up 100,000 keys on rings of 8 nodes, 16, 32, … and of N: path lengths, and why they are what they are.

    Also ways to route, from one table that all ask to full membership; look-ups among dead nodes; shares of the circle.
    """
    _require_libraries()
    from chord.lab.experiments import of_ring

    return _run(of_ring(nodes), **wishes)


@lab_command.command("all", short_help="All of these, and one page on them.")
@_common
def all_command(seed: int, **wishes: Any) -> int:
    """Run all of these and write one page on them: report.md. About two minutes on two cores, five at most."""
    _require_libraries()
    from chord.lab.experiments import of_all

    return _run(of_all(seed), seed, **wishes)


# -- running --------------------------------------------------------------------------------------


def _require_libraries() -> None:
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        what = f"the lab needs {' and '.join(missing)}, not installed here"
        raise Failure(what, "In a checkout of chord: make venv, or pip install '.[lab]'", USAGE, "not_installed")


def _run(
    experiments: list[AnyExperiment], seed: int, scale: Any, out_dir: Path, jobs: int | None, as_json: bool
) -> int:
    from chord.lab.harness.report import run_all
    from chord.lab.report import PAGE, write_page
    from chord.sim.pool import processes

    command = click.get_current_context().info_name
    name = PAGE if command == "all" else f"report-{command}.md"  # a part does not take the place of the whole
    out = Out(as_json)
    require_folder(out_dir)  # now, not in five minutes
    cells = sum(len(experiment.plan(scale, seed)) for experiment in experiments)
    try:
        with (
            orderly_end(),
            out.progress("measured", cells, lines_every_s=LINES_EVERY_S) as show,
            processes(jobs) as pool,
        ):
            reports = run_all(experiments, scale, seed, out_dir, pool, lambda label, done, of: show(done, label))
        page = write_page(reports, seed, shlex.join(sys.argv[1:]), out_dir, name)
    except (IsADirectoryError, PermissionError) as error:  # of a file in the folder: somebody else's
        raise cannot_write(Path(str(error.filename)), error) from None
    if as_json:
        out.json({"scale": scale, "seed": seed, "experiments": [report_json(report) for report in reports]})
    else:
        for report in reports:
            print_report(out, report)
        out.note(f"page: {page}")
    return CHECK_FAILED if any(report.passed is False for report in reports) else OK


# -- what is asked for ----------------------------------------------------------------------------


def _schemes(text: str | None) -> tuple[str, ...]:
    from chord.lab.schemes import SCHEMES

    if text is None:
        return ()
    names = tuple(dict.fromkeys(text.replace(",", " ").split()))
    for name in names:
        if name not in SCHEMES:
            raise Failure(f"there is no scheme {name!r}", f"There are: {', '.join(SCHEMES)}", USAGE, "usage")
    if not names:
        raise Failure("--schemes names none", f"There are: {', '.join(SCHEMES)}", USAGE, "usage")
    return names


def _weights(text: str | None, nodes: int) -> tuple[float, ...]:
    from chord.lab.placement import require_ratio

    if text is None:
        return ()
    example = "For example: --nodes 3 --weights 1,1,2"
    try:
        weights = tuple(float(part) for part in text.replace(",", " ").split())
    except ValueError:
        raise Failure(f"{text!r} is not a list of numbers", example, USAGE, "usage") from None
    if len(weights) != nodes:
        raise Failure(f"there are {len(weights)} weights for {nodes} nodes", example, USAGE, "usage")
    if not all(0 < weight < float("inf") for weight in weights):
        raise Failure("a weight must be more than 0", example, USAGE, "usage")
    try:
        require_ratio(weights)
    except ValueError as error:
        raise Failure(str(error), example, USAGE, "usage") from None
    return weights


def _keys(text: str, seed: int) -> Keys:
    from chord.lab.experiments.common import given_keys, made_keys

    if text.isdecimal():
        digits = text.lstrip("0") or "0"
        count = int(digits) if len(digits) <= len(str(KEYS_MAX)) else 0  # thousands of digits are none for int()
        if not 1 <= count <= KEYS_MAX:
            shown = digits if len(digits) <= 20 else f"{digits[:8]}… ({len(digits):,} digits)"
            raise Failure(f"{shown} keys cannot be made", f"Ask for 1 to {KEYS_MAX:,}", USAGE, "usage")
        return made_keys(count, seed)
    hint = "--keys takes a number, or a file with one key a line"
    if not text:
        raise Failure("--keys names nothing", hint, USAGE, "usage")
    try:
        content = _read_keys(text)
    except OSError as error:
        raise Failure(f"cannot read {text} ({str(error.strerror).lower()})", hint, USAGE, "file") from None
    try:
        return given_keys(text, content)
    except ValueError as error:
        raise Failure(str(error), hint, USAGE, "file") from None


def _read_keys(name: str) -> bytes:
    """Return the lines of a file of keys.

    Raises:
        Failure: exit 2: a line is longer than a key may be, or the file has too many lines or bytes.
    """
    lines: list[bytes] = []
    size = 0
    with open(name, "rb") as source:
        for line in lines_limited(source, KEY_BYTES_MAX, name):
            lines.append(line)
            size += len(line)
            if len(lines) > KEYS_MAX or size > KEYS_BYTES_MAX:
                limit = f"{KEYS_MAX:,} lines and {byte_size(KEYS_BYTES_MAX)}"
                raise Failure(f"{name} has too many keys; at most {limit} are read", "Take a part", USAGE, "too_long")
    return b"".join(lines)
