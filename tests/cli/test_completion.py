"""`chord completion`: scripts that shells can read, and the words that they offer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from chord.cli import COMMANDS
from tests.support.cli import Run
from tests.support.real_rings import HANG_S


@pytest.mark.parametrize(("shell", "line"), [
    ("bash", "complete -o nosort -F _chord_completion chord"),
    ("zsh", "compdef _chord_completion chord"),
    ("fish", 'complete --no-files --command chord --arguments "(_chord_completion)"'),
])  # fmt: skip
def test_completion_prints_a_script_for_a_shell(run: Run, shell: str, line: str) -> None:
    ended = run("completion", shell)
    assert (ended.code, ended.err) == (0, "")
    assert line in ended.out
    assert f"_CHORD_COMPLETE={shell}_complete" in ended.out
    if found := shutil.which(shell):
        subprocess.run([found, "-n"], input=ended.out, text=True, check=True, timeout=HANG_S)


def test_completion_of_an_unknown_shell_is_exit_2(run: Run) -> None:
    ended = run("completion", "tcsh")
    assert ended.code == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in ended.err


def offered(words: Sequence[str]) -> set[str]:
    """Return the words that the command line offers to bash for the last word."""
    variables = {"_CHORD_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    env = {**os.environ, **variables, "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'chord'; from chord.cli import main; main()"],
        env=env, capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    return {line.partition(",")[2] for line in done.stdout.splitlines()}


def test_shell_gets_commands_and_options() -> None:
    assert offered(["chord", ""]) == set(COMMANDS)
    assert {"--trace", "--svg", "--from"} <= offered(["chord", "lookup", "--"])
