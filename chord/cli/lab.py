"""`lab`: sharding schemes side by side, and rings of a million nodes.

The subcommands are compare, vnodes, movement, jump, strategies, ring and all. They import the lab and its libraries
(`chord[lab]`) while they run, so other commands do not load them.
"""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chord.cli.failures import USAGE
from chord.cli.inputs import file_failure, lines_limited
from chord.cli.output import Failure, Out, byte_size
from chord.cli.reports import jobs_option, run_experiments
from chord.cli.target import with_options
from chord.wire.messages import KEY_BYTES_MAX

if TYPE_CHECKING:
    from chord.lab.experiments import AnyExperiment
    from chord.lab.experiments.common import Keys

LIBRARIES = ("numpy", "matplotlib", "xxhash")
KEYS_MAX = 10_000_000
KEYS_BYTES_MAX = 512 << 20  # of a file of keys, because the lab holds all keys in memory
NODES_MAX = 10_000
RING_NODES_MIN, RING_NODES_MAX = 8, 4_000_000


class _Folder(click.Path):
    """A folder argument that may not be empty.

    An empty name would mean the current folder.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self.fail("expected a folder's name", param, ctx) if value == "" else super().convert(value, param, ctx)


@click.group("lab", no_args_is_help=False)
def lab_command() -> None:
    """Compare sharding schemes: evenness, stability, speed, memory, cost of growth.

    Each command writes tables, plots and a page to out/lab. Exit code 8 if a result misses its bar: a published figure,
    or a law.
    """


_common = with_options(
    click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, metavar="N",
                 help="Seed of all random draws."),
    click.option("--scale", type=click.Choice(["quick", "standard"]), default="standard", show_default=True,
                 help="How much to measure: for an impression, or for the bars."),
    click.option("--out", "out_dir", type=_Folder(file_okay=False, path_type=Path), default=Path("out/lab"),
                 show_default=True, help="Folder for tables, plots and pages."),
    jobs_option,
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
)  # fmt: skip
"""The options that all lab commands have."""


@lab_command.command("compare", short_help="Compare schemes on the same keys, also on your own.")
@click.option("--schemes", metavar="A,B", help="Schemes to compare; default: all. A wrong name lists them.")
@click.option("--keys", "key_source", default="1000000", show_default=True, metavar="FILE|N",
              help="File with one key per line, or number of keys to make.")
@click.option("--nodes", type=click.IntRange(1, NODES_MAX), default=20, show_default=True, metavar="A",
              help="Number of nodes at first.")
@click.option("--then", type=click.IntRange(2, 2 * NODES_MAX), metavar="B",
              help="Number of nodes after the growth; default: one more.")
@click.option("--weights", metavar="X,Y",
              help="Weights of the nodes, one each; only their proportions matter. New nodes get the mean. "
              "Default: equal weights.")
@_common
def compare_command(
    schemes: str | None, key_source: str, nodes: int, then: int | None, weights: str | None, seed: int, **wishes: Any
) -> int:
    """Place the same keys by every scheme, and compare the results.

    The tables have keys per node, keys that move when nodes come and go, memory, copies and time. The default, 10^6
    keys on 20 nodes and then on 21, also gives the table of Golubtsov's article on sharding algorithms (2024).
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


@lab_command.command("vnodes", short_help="Effects of vnodes, probes and bounded loads.")
@click.option("--nodes", type=click.IntRange(3, 1000), default=100, show_default=True, metavar="N",
              help="Number of nodes of the rings.")
@_common
def vnodes_command(nodes: int, **wishes: Any) -> int:
    """Vary the vnodes of a ring: its evenness, and the nodes that take over from a failed one.

    Also draws the rings of Golubtsov's article (2024) some hundred times, and measures two ways to even out a ring
    without vnodes. One of them is measured while keys arrive and depart. The last table has the memory of schemes among
    thousands of servers.
    """
    _require_libraries()
    from chord.lab.experiments import of_vnodes

    return _run(of_vnodes(nodes), **wishes)


@lab_command.command("movement", short_help="Cost of growth, and effect of moving hot sections.")
@_common
def movement_command(**wishes: Any) -> int:
    """Add nodes one by one, from 4 to 64, and sum up all keys that move.

    Also moves hot sections of a central map under skewed requests, and compares numbers of sections.
    """
    _require_libraries()
    from chord.lab.experiments import of_movement

    return _run(of_movement(), **wishes)


@lab_command.command("jump", short_help="Jump consistent hash: lemma, cost, evenness.")
@_common
def jump_command(**wishes: Any) -> int:
    """Check the proven properties of jump consistent hash.

    With m < n, a key has the same bucket among m and among n buckets with probability m / n. A lookup visits H(n)
    buckets on average. All buckets are equally likely.
    """
    _require_libraries()
    from chord.lab.experiments import of_jump

    return _run(of_jump(), **wishes)


@lab_command.command("strategies", short_help="Dynamo's three partition strategies.")
@_common
def strategies_command(**wishes: Any) -> int:
    """Compare Dynamo's three partition strategies.

    The tables set the evenness of each layout against the amount that every node must know of the others.
    """
    _require_libraries()
    from chord.lab.experiments import of_strategies

    return _run(of_strategies(), **wishes)


@lab_command.command("ring", short_help="Rings of a million nodes: paths, failures, shares.")
@click.option("--nodes", type=click.IntRange(RING_NODES_MIN, RING_NODES_MAX), default=1_000_000, show_default=True,
              metavar="N", help="Number of nodes of the largest ring.")
@_common
def ring_command(nodes: int, **wishes: Any) -> int:
    """Look up 100,000 keys on rings of 8, 16, 32, … and N nodes; explain the paths.

    Also compares ways to route, from one table that all nodes ask to full membership. Also measures lookups among dead
    nodes, shares of the circle, and the probability that two ids are the same.
    """
    _require_libraries()
    from chord.lab.experiments import of_ring

    return _run(of_ring(nodes), **wishes)


@lab_command.command("all", short_help="Run all of these; write one page.")
@_common
def all_command(seed: int, **wishes: Any) -> int:
    """Run all lab commands, and write one page on them: report.md.

    This takes about two minutes on two cores, and at most five.
    """
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
    from chord.lab.report import PAGE, write_page

    command, said = click.get_current_context().info_name, shlex.join(sys.argv[1:])
    name = PAGE if command == "all" else f"report-{command}.md"  # one command does not overwrite the page of all
    return run_experiments(
        Out(as_json), experiments, scale, seed, out_dir, jobs,
        write_page=lambda reports: write_page(reports, seed, said, out_dir, name),
    )  # fmt: skip


# -- arguments ------------------------------------------------------------------------------------


def _schemes(text: str | None) -> tuple[str, ...]:
    from chord.lab.schemes import SCHEMES

    if text is None:
        return ()
    names = tuple(dict.fromkeys(text.replace(",", " ").split()))
    for name in names:
        if name not in SCHEMES:
            raise Failure(f"there is no scheme {name!r}", f"There are: {', '.join(SCHEMES)}", USAGE, "usage")
    if not names:
        raise Failure("--schemes is empty", f"There are: {', '.join(SCHEMES)}", USAGE, "usage")
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
        count = int(digits) if len(digits) <= len(str(KEYS_MAX)) else 0  # int() refuses thousands of digits
        if not 1 <= count <= KEYS_MAX:
            shown = digits if len(digits) <= 20 else f"{digits[:8]}… ({len(digits):,} digits)"
            raise Failure(f"{shown} keys cannot be made", f"Ask for 1 to {KEYS_MAX:,}", USAGE, "usage")
        return made_keys(count, seed)
    hint = "Give a number, or a file with one key per line"
    if not text:
        raise Failure("--keys is empty", hint, USAGE, "usage")
    try:
        content = _read_keys(text)
    except OSError as error:
        raise file_failure(text, error, "read", hint) from None
    try:
        return given_keys(text, content)
    except ValueError as error:
        raise Failure(str(error), hint, USAGE, "file") from None


def _read_keys(name: str) -> bytes:
    """Return the content of a file of keys, one per line.

    Raises:
        OSError: the file cannot be read.
        Failure: exit 2: the file has too many lines or bytes, or a line is longer than a key may be.
    """
    lines: list[bytes] = []
    size = 0
    with open(name, "rb") as source:
        for line in lines_limited(source, KEY_BYTES_MAX, name):
            lines.append(line)
            size += len(line)
            if len(lines) > KEYS_MAX or size > KEYS_BYTES_MAX:
                limit = f"{KEYS_MAX:,} lines and {byte_size(KEYS_BYTES_MAX)}"
                raise Failure(f"{name} has too many keys; at most {limit} are read", "Use a part", USAGE, "too_long")
    return b"".join(lines)
