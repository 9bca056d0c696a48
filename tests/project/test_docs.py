"""The reference pages and the site: every name of the code is on its page, and every link has a target."""

from __future__ import annotations

import ast
import os
import pydoc
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import pytest

import chord
import chord.testing
from chord import errors
from chord.cli import cli, failures
from chord.cli.settings import KEYS, VARIABLES
from chord.client.api import AsyncApi, AsyncClientApi
from chord.client.session import TIMEOUT_S
from chord.config import Limits, NodeConfig, RingConstants, Timing
from tests.support.real_rings import HANG_S, ROOT
from tools import docs_hooks

REFERENCE = ROOT / "docs" / "reference"
PAGES = {name: (REFERENCE / f"{name}.md").read_text() for name in ("api", "cli", "configuration", "errors")}
DIRECTIVES = {name for text in PAGES.values() for name in re.findall(r"^::: (chord[\w.]*)$", text, re.MULTILINE)}
PUBLIC = [name for name in chord.__all__ if not name.startswith("_")]
LOADED = {("img", "src"), ("link", "href"), ("script", "src")}
"""Attributes that make a browser load something without a click."""


# -- the reference pages --------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_is_on_a_reference_page(name: str) -> None:
    assert any(re.search(rf"(^::: |`)chord\.{name}\b", text, re.MULTILINE) for text in PAGES.values())


@pytest.mark.parametrize("name", sorted(DIRECTIVES))
def test_directive_names_something_in_the_code(name: str) -> None:
    assert pydoc.locate(name) is not None or name == "chord.client.results.Resolver"


def test_api_page_states_the_default_time_limit() -> None:
    assert TIMEOUT_S == chord.Node.timeout_s == 5
    assert "`timeout_s` sets it; its default is 5 s" in PAGES["api"].split("\n\n")[1], "the first paragraph"


def test_command_line_page_documents_the_root_command() -> None:
    assert "::: mkdocs-click\n    :module: chord.cli\n    :command: cli\n" in PAGES["cli"]


def test_variables_of_commands_are_on_the_command_line_page() -> None:
    sources = (path.read_text() for path in (ROOT / "chord" / "cli").glob("*.py"))
    named = {name for source in sources for name in re.findall(r"\bCHORD_[A-Z]+\b", source)}
    assert named - set(re.findall(r"\bCHORD_[A-Z]+\b", PAGES["cli"])) == set()


@pytest.mark.parametrize("kind", [NodeConfig, RingConstants, Timing, Limits])
def test_every_field_of_a_configuration_has_a_meaning(kind: type[NodeConfig]) -> None:
    assert all(docs_hooks.meanings(kind).values())


def test_tables_of_the_configuration_have_every_field() -> None:
    page = docs_hooks.on_page_markdown(PAGES["configuration"])
    assert set(first_cells(page)) - {"key"} == {*KEYS, *Timing.__struct_fields__, *Limits.__struct_fields__}
    assert set(VARIABLES.values()) <= set(re.findall(r"CHORD_\w+", page))
    tables = {"ring", "timing", "limits"}
    assert {*NodeConfig.__struct_fields__, *RingConstants.__struct_fields__} == {*KEYS} | tables


def test_tables_of_errors_have_every_class() -> None:
    page = docs_hooks.on_page_markdown(PAGES["errors"])
    classes = {kind.__name__ for kind in errors.BY_CODE.values()}
    assert classes <= set(first_cells(page))


def test_errors_with_attributes_are_described() -> None:
    kinds = [kind for kind in errors.BY_CODE.values() if "Attributes:" in str(kind.__doc__)]
    assert {f"chord.errors.{kind.__name__}" for kind in kinds} <= DIRECTIVES


def test_table_of_command_codes_matches_the_commands() -> None:
    table = PAGES["errors"].partition("## Codes of commands")[2]
    rows = set(re.findall(r"^\| `(\w+)` \| (\d+) \| ", table, re.MULTILINE))
    words = {kind.word for kind in errors.BY_CODE.values()}
    assert rows == {(word, str(code)) for word, code in failures_of_commands() if word not in words}


def first_cells(page: str) -> list[str]:
    """Return the first cell of each row of each table."""
    return [cell.strip("`") for cell in re.findall(r"^\| (\S+) \|", page, re.MULTILINE)]


def failures_of_commands() -> Iterator[tuple[str, int]]:
    """Yield each code that a command puts into a `Failure`, with its exit code."""
    for path in sorted((ROOT / "chord" / "cli").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Failure":
                _, _, exit_code, word = node.args
                if isinstance(word, ast.Constant):
                    is_name = isinstance(exit_code, ast.Name)
                    number = getattr(failures, ast.unparse(exit_code)) if is_name else ast.literal_eval(exit_code)
                    yield str(word.value), int(number)


def test_shared_line_of_a_docstring_is_split() -> None:
    docstring = "Summary.\n\nArgs:\n    w, strict: as for\n        `put`, that is.\n    key: a, b: c.\n\nx, y: prose."
    split = docs_hooks.one_name_per_line(docstring)
    text = "as for\n        `put`, that is.\n"
    assert f"\n    w: {text}    strict: {text}    key: a, b: c.\n" in split
    assert split.endswith("\n\nx, y: prose.")


# -- the site -------------------------------------------------------------------------------------


class Html(HTMLParser):
    """A page of the site: its anchors, its links, and the addresses that a browser loads by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif name in ("href", "src") and value:
                (self.loaded if (tag, name) in LOADED else self.links).append(value)


def wrong_links(site: Path) -> list[str]:
    """Return the links without a target, and the files that a page would load from another site."""
    pages = {path: Html(path.read_text()) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    wrong = []
    for path, page in pages.items():
        for link in (*page.links, *page.loaded):
            scheme, host, target, _, anchor = urlsplit(link)
            if scheme or host:
                wrong += [f"{path.name} loads {link}"] if link in page.loaded else []
                continue
            found = (path.parent / unquote(target)).resolve() if target else path
            if not found.is_file() or (anchor and found in pages and unquote(anchor) not in pages[found].ids):
                wrong.append(f"{path.name} links to {link}")
    return wrong


def command_ids(command: click.Command, path: str, context: click.Context) -> Iterator[str]:
    """Yield the anchor of a command, and those of its commands."""
    yield path.replace(" ", "-")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from command_ids(found, f"{path} {name}", context)


RESULTS = ("chord.client.results", "chord.client.inspection")
"""Modules of results. The sections of their docstrings have all their attributes."""


def member_ids() -> Iterator[str]:
    """Yield the anchor of every operation, of every public class, and of every name of `chord.testing`."""
    kinds = {f"chord.{name}": getattr(chord, name) for name in PUBLIC}
    apis = {f"chord.client.api.{kind.__name__}": kind for kind in (AsyncApi, AsyncClientApi)}
    for name, kind in {**kinds, **apis}.items():
        if name in DIRECTIVES - {"chord.testing"}:  # the page has a heading of its own for this module
            yield name
            # Its methods are inherited. A section of its docstring has its attribute.
            names = set(dir(kind)) - {"timeout_s"} if kind is chord.Client else vars(kind)
            for member in names if isinstance(kind, type) and kind.__module__ not in RESULTS else ():
                yield from () if member.startswith("_") else (f"{name}.{member}",)
    yield from (f"chord.testing.{name}" for name in chord.testing.__all__)


@pytest.mark.slow
def test_site_builds_strictly_with_every_name_and_link(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert wrong_links(tmp_path) == []
    pages = {name: (tmp_path / "reference" / f"{name}.html").read_text() for name in PAGES}
    assert set(member_ids()) - Html(pages["api"]).ids == set()
    assert set(command_ids(cli, "chord", click.Context(cli))) - Html(pages["cli"]).ids == set()
    for name in (*KEYS, *Timing.__struct_fields__, *Limits.__struct_fields__):
        assert f"<td><code>{name}</code></td>" in pages["configuration"]
    for kind in errors.BY_CODE.values():
        assert f"<td><code>{kind.__name__}</code></td>" in pages["errors"]


@pytest.mark.parametrize(
    "tag",
    [
        '<a href="b.html">', '<a href="a.html#there">', '<a href="#there">', '<a href="../c/">', '<img src="b.png">',
        '<script src="https://example.org/x.js">', '<link href="//example.org/x.css">',
    ],
)  # fmt: skip
def test_planted_link_of_the_site_is_found(tag: str, tmp_path: Path) -> None:
    fine = '<a id="here"><a href="#here"><a href="a.html#here"><a href="https://example.org"><img src="a.html">'
    (tmp_path / "a.html").write_text(fine)
    assert wrong_links(tmp_path) == []
    (tmp_path / "a.html").write_text(fine + tag)
    assert len(wrong_links(tmp_path)) == 1
