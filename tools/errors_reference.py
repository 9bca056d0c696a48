"""Write docs/reference/errors.md from the classes themselves. A test holds the file against them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from docstrings import REFERENCE, page, parsed, rendered, table

from chord import cli, errors
from chord.cli import failures
from chord.client.session import REMOTE_FAILURES_MAX, Entries
from chord.errors import ChordError, DefiniteError, IndefiniteError

TARGET = REFERENCE / "errors.md"

HEAD = """
# Errors

Generated from the code by `tools/errors_reference.py`; change the docstrings of `chord/errors.py`.

All errors of the package are classes of `chord.errors`. The *code* is the word for one in JSON
(`{"error": {"code", "message", "hint"}}` on stderr, with `--json`), the *number* stands for it between nodes. *Exit* is
the exit code of a command that ends with it; all of them are in [the command line](cli.md). *Asked again*: clients do
so by themselves until the deadline, a write under the same operation id; what reaches you is the last error, or for a
write an indefinite one if any attempt may have had its effect. A node that was named, as in `describe`, is not asked
again when it is silent.
"""

DEFINITE = """
## Nothing has happened

Each is a `DefiniteError`: there was no effect, and there never will be. Writing again is safe.
"""

INDEFINITE = """
## It may have happened

Each is an `IndefiniteError`: a write may have had its effect, in part or on all replicas, or may still have it. Read,
or write the same again. For what only reads, it says no more than that there was no answer.
"""

OF_NODES = """
`chord node` exits with 2 where any error of the package keeps it from starting, but with 1 on `WritesRefused`.
"""

WORDS_HEAD = """
## Codes of commands

Words that a command says of itself; there is no class for them. Others (`config`, `owner_down`, `timeout`) are used
with the meaning that they have above.
"""

WORDS = {
    "ambiguous_node": "what was given for NODE names several nodes, or begins several ids; write more, or HOST:PORT",
    "bad_line": "a line of the input is not what was expected; the message says which one and why",
    "damaged": "a backup is cut short or was changed; nothing of it was merged",
    "data": "the node's data directory cannot be used",
    "elsewhere": "`kill` was asked for a node that is not on this machine",
    "empty": "a history without any operation",
    "file": "a file, or stdin, cannot be read or written",
    "internal": "a bug; `CHORD_DEBUG=1` shows where",
    "last_node": "`leave` was asked for the last node that answers; `--force` does it all the same",
    "listen": "the address or the ports to listen on are in use or not ours",
    "no_permission": "`kill` was asked for a process of another user",
    "no_process": "`kill` was asked for a process that is not on this machine, or no more",
    "no_start": "a peer of `up` ended before it was in the ring; its own words are above",
    "no_such_node": "no node of the ring goes by that name, address or id, or knows of it",
    "not_chord": "`kill` was asked for a process that is not a chord node",
    "not_installed": "the command needs `chord[lab]`",
    "not_left": "a node that was to leave has ended, but nobody took its keys",
    "output": "stdout cannot be written: it is closed, or its disk is full",
    "running": "`up` was asked for a second ring on the ports of one that is running",
    "siblings": "`get` found concurrent values where one was asked for; `--all` prints them",
    "too_long": "an input, or a line of it, is longer than its limit; nothing of it was used",
    "usage": "wrong arguments; `--help` says which there are",
}
"""Every word that stands in a `Failure` of a command and is none of a class."""


def reference() -> str:
    """Return the page.

    Raises:
        LookupError: a command says a word that has no sentence here, or there is one for a word that none says.
    """
    classes = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ChordError)]
    spoken = sorted(set(_spoken()))
    unknown = {word for word, _ in spoken} - {kind.word for kind in classes} ^ set(WORDS)
    if unknown:
        raise LookupError(f"codes of commands and their sentences do not agree in {', '.join(sorted(unknown))}")
    exits = {word: ", ".join(str(code) for said, code in spoken if said == word) for word in WORDS}
    return page(
        HEAD,
        "## ChordError",
        *rendered(ChordError.__doc__),
        DEFINITE,
        _classes([kind for kind in classes if kind.code and issubclass(kind, DefiniteError)]),
        OF_NODES,
        INDEFINITE,
        _classes([kind for kind in classes if kind.code and issubclass(kind, IndefiniteError)]),
        WORDS_HEAD,
        table(["code", "exit", "means"], [[f"`{word}`", exits[word], text] for word, text in WORDS.items()]),
    )


def _classes(kinds: list[type[ChordError]]) -> str:
    rows = []
    for kind in kinds:
        exit_code = failures.explain(kind(), "").exit_code
        means = parsed(kind.__doc__).prose[0]
        rows.append([f"`{kind.__name__}`", f"`{kind.word}`", str(kind.code), str(exit_code), _again(kind), means])
    return table(["class", "code", "number", "exit", "asked again", "means"], rows)


def _again(kind: type[ChordError]) -> str:
    """Return how often clients ask again on their own."""
    if not Entries.is_worth_retrying(kind(), 0):
        return "no"
    return "yes" if Entries.is_worth_retrying(kind(), REMOTE_FAILURES_MAX) else f"{REMOTE_FAILURES_MAX - 1} times"


def _spoken() -> Iterator[tuple[str, int]]:
    """Yield the words that commands put into a `Failure` themselves, and the exit code beside each."""
    for path in sorted(Path(str(cli.__file__)).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Failure":
                _, _, exit_code, word = node.args
                if isinstance(word, ast.Constant):
                    is_name = isinstance(exit_code, ast.Name)
                    number = getattr(failures, ast.unparse(exit_code)) if is_name else ast.literal_eval(exit_code)
                    yield str(word.value), int(number)


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
