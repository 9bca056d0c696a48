"""`completion`: the script with which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from chord.cli.failures import OK
from chord.cli.output import Out

VARIABLE = "_CHORD_COMPLETE"  # the variable in which click looks for a question of the shell


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> int:
    """Print a script that completes chord commands and options in SHELL.

    To complete until the shell ends, run in bash or zsh: eval "$(chord completion bash)". In fish, run: chord
    completion fish | source. To keep the completion, put that line into the start-up file of the shell. bash must be
    version 4.4 or newer.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(click.get_current_context().find_root().command, {}, "chord", VARIABLE).source()
    Out().line(script.strip("\n"))
    return OK
