"""Every example runs with the documented output, and is short enough to read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.real_rings import HANG_S, ROOT, environment, ring_of

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LINES_MAX = 60


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment(), capture_output=True, text=True, check=False,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < LINES_MAX


def test_every_example_has_a_test() -> None:
    assert [path.name for path in EXAMPLES] == [
        "asyncio_session.py", "blocking_session.py", "custom_scheme.py", "embedded_node.py", "session_store.py",
        "shopping_cart.py", "test_ring_heals.py",
    ]


def test_demo_with_help_prints_its_usage_and_runs_no_demo() -> None:
    said = run("tools/demo.py", "--help")
    assert said.startswith("usage: demo.py")
    assert "[1/9]" not in said


def test_embedded_node_example_runs() -> None:
    assert run("examples/embedded_node.py") == "welcome Ada, visit 1\nwelcome Ada, visit 2\n"


@pytest.mark.slow
def test_blocking_session_example_runs() -> None:
    with ring_of(3) as ring:
        lines = run("examples/blocking_session.py", ring.entry).splitlines()
    assert lines[0] == "user:42 is Ada"
    assert lines[1] == "written at the same time: ['Ada', 'Grace']"
    assert lines[2] == "settled: Ada and Grace"
    assert lines[3].startswith("the way to its owner: ")
    assert lines[4:] == ["1000 words stored, 0 failures", "user:42 is gone, for sure"]


def test_asyncio_session_example_runs() -> None:
    with ring_of(3) as ring:
        lines = run("examples/asyncio_session.py", ring.entry).splitlines()
    assert lines == [
        "user:42 is Ada", "user:43 is not there", "100 tasks stored 100 keys", "scanned 100 keys", "no answer in time",
    ]  # fmt: skip


def test_shopping_cart_example_runs() -> None:
    with ring_of(3) as ring:
        lines = run("examples/shopping_cart.py", ring.entry).splitlines()
    assert lines == [
        "side by side: 2",
        "merged: {'honey': 1, 'milk': 1, 'tea': 1}",
        'settled: {"honey": 1, "milk": 1, "tea": 2}',
    ]


@pytest.mark.slow
def test_session_store_example_runs() -> None:
    with ring_of(3) as ring:
        lines = run("examples/session_store.py", ring.entry, "0.3").splitlines()
    assert lines[:2] == ["first visit: {'user': 'ada', 'visits': 1}", "second visit: {'user': 'ada', 'visits': 2}"]
    assert lines[2] == "after a pause: None"


@pytest.mark.slow
def test_custom_scheme_example_runs() -> None:
    first, *lines = run("examples/custom_scheme.py").splitlines()
    assert first == "foo is in slot 12182"  # as CLUSTER KEYSLOT says
    found = {line.split()[0]: line for line in lines}
    assert list(found) == ["redis-slots", "ring-100", "jump", "mod"]
    for name in ("redis-slots", "ring-100", "jump"):
        assert " 95." in found[name]
        assert " 0 move between" in found[name]
    assert " 0 move between" not in found["mod"]


@pytest.mark.slow
def test_ring_heals_example_runs() -> None:
    assert "2 passed" in run("-m", "pytest", "-q", "examples/test_ring_heals.py")
