"""The documents are right: this file executes every command block and every Python block in them.

Commands that take too long are blocks of the kind *sh*. This file parses them, and every command within a text: their
commands, options and values must exist.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import click
import pytest
import trio

import chord.testing
from chord.cli import cli
from chord.cli.settings import node_config
from chord.sim.plan import FAULTS
from chord.sim.swarm import NEVER_ZERO
from tests.support.ports import Ports
from tests.support.real_rings import CHORD, HANG_S, ROOT, Running, environment, ring_of

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")
NOT_BUILT = re.compile(r"`[^`]+` \*\(not built yet\)\*")
"""A command that is only designed, in `docs/explanation/sources.md`."""
INDENTED = re.compile(r"^    (chord|make|python|pip|\$) .*$", re.MULTILINE)
SHELL = ("chord", "make", "python", ".venv/bin/python", "kill", "seq", "sleep", "xargs")
RINGLESS = ("$ chord sim", "$ chord lab", "$ chord gallery", "$ seq 20000")
FIRST = "README.md"
README_LINES_MAX = 200


def blocks(kind: str) -> list[object]:
    """Return every fenced block of a kind in all pages, with its place."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in BLOCK.finditer(text):
            if match[1] == kind:
                line = text.count("\n", 0, match.start()) + 1
                found.append(pytest.param(match[2], id=f"{page.relative_to(ROOT)}:{line}"))
    return found


def sessions() -> list[object]:
    """Return the command blocks of each page as shell sessions.

    A session begins with a block that starts a ring, and has the blocks that use the ring. A block of the simulator or
    of the lab also begins a session, which takes minutes.
    """
    found: list[tuple[str, str]] = []
    for page in PAGES:
        for kind, block in BLOCK.findall(page.read_text()):
            if kind == "console":
                first = block.partition("\n")[0]
                name = str(page.relative_to(ROOT))
                starts = first.endswith(" &") or (first.startswith(RINGLESS) and not _simulates(found))
                if starts or not found or found[-1][0] != name:
                    found.append((name, block))
                else:
                    found[-1] = (name, found[-1][1] + block)
    return [pytest.param(text, id=f"{name}:{i}", marks=_marks(name, text)) for i, (name, text) in enumerate(found)]


def _marks(name: str, session: str) -> list[pytest.MarkDecorator]:
    """Mark long sessions as thorough. CI runs all sessions of the README."""
    if not session.startswith(RINGLESS):
        return [pytest.mark.slow]
    return [pytest.mark.slow, pytest.mark.long if name == FIRST else pytest.mark.thorough]


def _simulates(found: list[tuple[str, str]]) -> bool:
    """Whether the last session needs no ring."""
    return bool(found) and found[-1][1].startswith(RINGLESS)


@pytest.mark.parametrize("block", sessions())
def test_command_block_runs(block: str, tmp_path: Path, ports: Ports) -> None:
    """Run a session in a shell, with other ports: 9000 may be in use."""
    assert all(line.startswith("$ ") for line in block.splitlines())
    port = ports.row(10)
    command = tmp_path / "bin" / "chord"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {" ".join(CHORD)} "$@"\n')
    command.chmod(0o755)
    lines = []
    for shown in (line.removeprefix("$ ") for line in block.splitlines()):
        moved = re.sub(r"127\.0\.0\.1:90(\d\d)", lambda m: f"127.0.0.1:{port + int(m[1])}", shown)
        moved = moved.replace("chord up", f"chord up --base-port {port}")
        if moved.endswith(" &"):  # wait for the ready line, as a person would
            log = tmp_path / f"log{len(lines)}"
            lines.append(f"{moved[:-2]} > {log} &\nfor _ in $(seq 200); do grep ready {log} && break; sleep 0.1; done")
        else:
            lines.append(f"echo '$ {shown}'; {moved} || {{ echo \"exit $?\"; exit 1; }}")
    variables = {"PATH": f"{command.parent}:{os.environ['PATH']}", "CHORD_NODE": f"127.0.0.1:{port}"}
    with (tmp_path / "output").open("w+") as output, subprocess.Popen(
        ["bash", "-c", "\n".join(lines)], env={**environment(), **variables}, cwd=tmp_path, stdout=output,
        stderr=subprocess.STDOUT, start_new_session=True,
    ) as shell:
        try:
            assert shell.wait(HANG_S) == 0, (tmp_path / "output").read_text()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)  # the rings it started go with it


@pytest.fixture(scope="module")
def ring() -> Iterator[Running]:
    """A ring of three processes, for the Python blocks."""
    with ring_of(3) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("python"))
def test_python_block_runs(block: str, ring: Running) -> None:
    block = block.replace("127.0.0.1:9000", ring.entry)
    space = {"chord": chord, "trio": trio}
    if not block.startswith("async with"):
        # The main thread has a running event loop of asyncio if this worker ran tests in the browser before.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(exec, compile(block, "block", "exec"), space).result()
        return
    exec(compile("async def main() -> None:\n" + textwrap.indent(block, "    "), "block", "exec"), space)
    if "chord.testing" in block:
        chord.testing.run(space["main"], seed=7)  # type: ignore[arg-type]
    else:
        trio.run(space["main"])  # type: ignore[arg-type]


@pytest.mark.parametrize("block", blocks("toml"))
def test_configuration_block_is_read(block: str, tmp_path: Path) -> None:
    (tmp_path / "chord.toml").write_text(block)
    node_config({}, tmp_path / "chord.toml", {})


def test_make_targets_exist() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    for target in set(re.findall(r"^make ([\w-]+)|`make ([\w-]+)`", text, re.MULTILINE)):
        subprocess.run(["make", "-n", "".join(target)], cwd=ROOT, check=True, capture_output=True)


def test_every_kind_of_block_is_known() -> None:
    """No test would check a block of an unknown kind."""
    for page in PAGES:
        text = page.read_text()
        kinds = {match[1] for match in BLOCK.finditer(text)}
        assert kinds <= {"console", "python", "toml", "text", "sh"}
        assert not INDENTED.search(BLOCK.sub("", text)), f"{page}: fence the block, so that tests read it"


def commands(text: str) -> list[list[str]]:
    """Split lines for a shell into the commands in them, without comments and redirections."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        for is_between, words in groupby(lexer, lambda word: set(word) <= set("|&;")):
            if not is_between:
                command = list(words)
                end = min((i for i, word in enumerate(command) if set(word) <= set("<>")), default=len(command))
                found.append(command[:end])
    return found


def parse(args: list[str], *, is_sketch: bool = False) -> None:
    """Read a command line as `chord` does, and do nothing.

    Args:
        is_sketch: the command is in a sentence: arguments may be missing, or be placeholders.

    Raises:
        click.UsageError: a command or an option does not exist, or has an invalid value.
    """
    context = click.Context(cli, info_name="chord", **cli.context_settings)
    command: click.Command = cli
    name, rest = "chord", args
    while isinstance(command, click.Group):
        try:
            context = command.make_context(name, list(rest), parent=None if command is cli else context)
        except click.exceptions.Exit:  # --help, --version
            return
        rest = [*context._protected_args, *context.args]
        if not rest:
            return
        found, inner, rest = command.resolve_command(context, rest)
        assert found is not None
        assert inner is not None
        name, command = found, inner
    try:
        command.make_context(name, list(rest), parent=context)
    except click.BadParameter:
        if not is_sketch:
            raise
    except click.exceptions.Exit:
        return


def shell_lines() -> list[object]:
    """Return every command of the blocks, also of blocks that no test runs."""
    return [
        pytest.param(args, id=f"{page.relative_to(ROOT)}: {shlex.join(args)}")
        for page in PAGES
        for kind, block in BLOCK.findall(page.read_text())
        if kind in ("sh", "console") or (kind == "text" and "$ chord" in block)
        for args in commands(block if kind != "text" else "\n".join(re.findall(r"^\$ .*$", block, re.MULTILINE)))
    ]


def test_commands_of_the_dashboard_exist() -> None:
    found = []
    for name in ("lessons", "lab"):
        source = (ROOT / "chord" / "web" / "static" / "js" / f"{name}.js").read_text()
        for text in re.findall(r'(?:terminal: |^const [A-Z]+ = |^  \[)("(?:[^"\\]|\\.)*")', source, re.MULTILINE):
            found += [args for args in commands(json.loads(text)) if args and args[0] == "chord"]
    assert len(found) > 25
    for args in found:
        parse(args[1:])


@pytest.mark.parametrize("args", shell_lines())
def test_command_of_a_block_exists(args: list[str]) -> None:
    if args[0] == "chord":
        parse(args[1:])
    elif args[0].endswith("python") and args[1] == "-m" and args[2].startswith("benchmarks"):
        shown = subprocess.run([sys.executable, "-m", args[2], "--help"], cwd=ROOT, env=environment(), check=True,
                               capture_output=True, text=True).stdout
        assert all(re.search(rf"^  {word}\b", shown, re.MULTILINE) for word in args[3:] if word.startswith("--")), shown
    elif args[0].endswith("python"):
        target = args[1] if args[1] != "-m" else args[2].replace(".", "/")
        assert target == "pytest" or (ROOT / target).exists() or (ROOT / f"{target}.py").exists(), args


def test_shell_blocks_have_commands_of_this_project() -> None:
    blocks_ = [block for page in PAGES for kind, block in BLOCK.findall(page.read_text()) if kind == "sh"]
    assert {args[0] for block in blocks_ for args in commands(block)} <= set(SHELL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_command_within_a_text_exists(page: Path) -> None:
    text = BLOCK.sub("", page.read_text()).replace("\n", " ")
    if page.name == "sources.md":
        text = NOT_BUILT.sub("", text)
    for line in INLINE.findall(text):
        if re.search(r"(^|[;|] *)chord ", line):
            for args in commands(line.replace("…", "")):
                if args[0] == "chord":
                    parse(args[1:], is_sketch=True)


@pytest.mark.parametrize("is_sketch", [False, True])
@pytest.mark.parametrize(
    "line",
    ["chord up --peers 8", "chord dance", "chord lab compare --kyes FILE", "chord --verbose status", "chord sim walk 3",
     "seq 10 | chord load - --in-fligth 3 > out"],
)
def test_planted_unknown_command_is_caught(line: str, is_sketch: bool) -> None:
    (args,) = (args[1:] for args in commands(line) if args[0] == "chord")
    with pytest.raises(click.UsageError):
        parse(args, is_sketch=is_sketch)


@pytest.mark.parametrize("line", ["chord up -n 0", "chord get", "chord sim paper churn --scale fast"])
def test_planted_invalid_value_is_caught_outside_sentences(line: str) -> None:
    with pytest.raises(click.BadParameter):
        parse(line.split()[1:])
    parse(line.split()[1:], is_sketch=True)


def test_correctness_page_has_the_right_counts() -> None:
    text = (ROOT / "docs" / "explanation" / "correctness.md").read_text()
    assert f"one of {len(NEVER_ZERO)} transitions" in text
    table = text.partition("| fault | |\n|---|---|\n")[2].partition("\n\n")[0]
    named = [name for row in table.splitlines() for name in row.split("|")[1].strip().split(", ")]
    assert sorted(named) == sorted(FAULTS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_have_targets(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES_MAX
