"""The writing rules of CONTRIBUTING, counted: a ratchet that only turns one way.

Each area of the project has two ceilings in `tests/project/prose_ceilings.json`: sentences with a banned pattern, and
sentences of more than 25 words. `python tests/project/test_prose.py` prints the counts, and `--lower` lowers the
ceilings.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[2]
CEILINGS: Final = Path(__file__).with_name("prose_ceilings.json")
WORDS_MAX: Final = 25
MESSAGE_WORDS_MIN: Final = 4  # shorter strings are names and formats, not sentences

BANNED: Final = (
    r"\b(?:who|whom|whose|whoever|whomever|somebody|someone|nobody|anybody|everybody)\b",
    r"\bones? (?:that|which)\b",
    r"\bso (?:many|much|long|few|often)\b",
    r"\b(?:is|are|was|were|be|been) told\b",
    r"\b(?:comes?|came|coming) to\b",
    r"\b(?:all the same|affairs?|of which|there is none|there are none)\b",
    r"(?:^|[.;:,] )else\b",
    r"(?:^|[,;:] )where\b",
    r"\blook-ups?\b",  # the noun is lookup
    r"\bwhat (?:is|are|was|were|has|have|had|it|they|he|she|others)\b",
)
PATTERN: Final = re.compile("|".join(BANNED), re.IGNORECASE)


class Count(NamedTuple):
    """Sentences of an area: all, those with a banned pattern, and those that are too long."""

    sentences: int
    banned: int
    long: int


def texts_of_python(source: str, *, messages: bool) -> Iterator[str]:
    """Yield docstrings and comments of a module, and the strings in it that read as messages."""
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = set()
    for node in nodes:
        for statement in getattr(node, "body", []) if isinstance(getattr(node, "body", []), list) else []:
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                docstrings.add(id(value))
                yield value.value
    block: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            block.append(token.string.lstrip("#: -"))
        elif token.type not in (tokenize.NL, tokenize.NEWLINE) and block:
            yield " ".join(block)
            block = []
    if not messages:
        return
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(p.value) if isinstance(p, ast.Constant) else "x" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | parts:
            text = node.value
        else:
            continue
        if len(text.split()) >= MESSAGE_WORDS_MIN:
            yield text


def text_of_markdown(text: str) -> str:
    """Return a page without its code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of a text: what ends with a stop, a blank line, a list item, a parameter, a table cell."""
    text = re.sub(r"`[^`]*`", "`x`", text)
    for block in re.split(r"\n\s*\n|\n\s*(?:[-*|#]|\d+\.) |\n\s*(?=\w+: )|\|", text):
        for sentence in re.split(r"(?<=[.!?])\s+", " ".join(block.split())):
            if sentence.strip("-*|# "):
                yield sentence


def count(texts: Iterator[str]) -> Count:
    """Count the sentences of some texts."""
    every = [sentence for text in texts for sentence in sentences_of(text)]
    banned = sum(1 for sentence in every if PATTERN.search(sentence))
    return Count(len(every), banned, sum(1 for sentence in every if len(sentence.split()) > WORDS_MAX))


def areas() -> dict[str, list[Path]]:
    """Return the files of each area."""
    chord = ROOT / "chord"
    found = {f"chord/{path.name}": sorted(path.rglob("*.py")) for path in chord.iterdir() if path.is_dir()}
    found |= {"chord": sorted(chord.glob("*.py")), "tests": sorted((ROOT / "tests").rglob("*.py"))}
    found |= {name: sorted((ROOT / name).rglob("*.py")) for name in ("benchmarks", "examples", "tools")}
    found["docs"] = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    return {name: files for name, files in sorted(found.items()) if files}


def count_area(name: str, files: list[Path]) -> Count:
    """Count the sentences of an area."""

    def texts() -> Iterator[str]:
        for file in files:
            if file.suffix == ".md":
                yield text_of_markdown(file.read_text(encoding="utf-8"))
            elif file.name != Path(__file__).name:
                yield from texts_of_python(file.read_text(encoding="utf-8"), messages=name.startswith("chord"))

    return count(texts())


def ceilings() -> dict[str, list[int]]:
    """Return for each area how many sentences may have a banned pattern, and how many may be too long."""
    found: dict[str, list[int]] = json.loads(CEILINGS.read_text(encoding="utf-8"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", areas())
def test_prose_of_an_area_stays_below_its_ceilings(name: str) -> None:
    counted = count_area(name, areas()[name])
    banned, long = ceilings()[name]
    hint = f"run `python {Path(__file__).name} {name}` for the sentences; see CONTRIBUTING"
    assert counted.banned <= banned, f"{name}: more sentences with a banned pattern than before; {hint}"
    assert counted.long <= long, f"{name}: more sentences of over {WORDS_MAX} words than before; {hint}"


@pytest.mark.parametrize(
    "sentence",
    [
        "Return who answers.", "A task for each one that waits.", "The first, where it is up.", "Comes to an error.",
        "Else the next.", "The caller is told.", "Keep what is left.", "Keep so many.", "Nobody asks.",
        "A look-up asks all.",
    ],
)  # fmt: skip
def test_banned_pattern_is_counted(sentence: str) -> None:
    assert count(iter([sentence])).banned == 1


def test_plain_sentence_is_not_counted() -> None:
    plain = "Return the replicas that answered. If none did, raise `TooFewReplicas` (see who)."
    assert count(iter([plain.replace(" (see who)", "")])) == Count(2, 0, 0)
    assert count(iter(["word " * WORDS_MAX + "end."])).long == 1


def test_messages_and_comments_are_read() -> None:
    source = '"""Doc."""\nx = f"{y} is no way to print"  # a comment\nz = "short"\n'
    assert list(texts_of_python(source, messages=True)) == ["Doc.", "a comment", "x is no way to print"]
    assert list(texts_of_python(source, messages=False)) == ["Doc.", "a comment"]


def main() -> None:
    """Print the counts; with an area, its sentences; with `--lower`, write ceilings that are lower."""
    wanted = sys.argv[1:]
    found = {name: count_area(name, files) for name, files in areas().items()}
    for name, files in areas().items():
        if name in wanted:
            for file in files:
                source = file.read_text(encoding="utf-8")
                messages = name.startswith("chord")
                pages = [text_of_markdown(source)] if file.suffix == ".md" else []
                for text in pages or texts_of_python(source, messages=messages):
                    for sentence in sentences_of(text):
                        if PATTERN.search(sentence) or len(sentence.split()) > WORDS_MAX:
                            print(f"{file.relative_to(ROOT)}: {sentence}")
    for name, counted in found.items():
        print(f"{name:20} {counted.sentences:6} sentences {counted.banned:5} banned {counted.long:5} long")
    if "--lower" in wanted:
        before = ceilings() if CEILINGS.exists() else {}
        lower = {n: [c.banned, c.long] for n, c in found.items()}
        lower = {n: [min(new, old) for new, old in zip(c, before.get(n, c), strict=True)] for n, c in lower.items()}
        CEILINGS.write_text(json.dumps(lower, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
