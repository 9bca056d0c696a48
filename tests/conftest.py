"""Settings all tests share."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support.ports import Ports
from tests.support.real_rings import HANG_S

# No deadlines: a loaded machine is slow, not wrong. Hypothesis reports one failure at a time. A planted bug may break a
# property in two ways, and its test expects one assertion, not a group.
settings.register_profile(
    "chord",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=40,
    report_multiple_bugs=False,
)
settings.register_profile("thorough", settings.get_profile("chord"), max_examples=400)
settings.load_profile("chord")

FOLDER = Path(__file__).parent
HAS_DASK = find_spec("distributed") is not None
collect_ignore = [] if HAS_DASK else ["optional/test_dask.py"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one worker more than there are cores: tests of real processes wait half of their time."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True, trylast=True)  # inside the wrapper that makes a warning of an import an error
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect the tests without garbage collections. Workers of a fresh checkout compile each module once."""
    gc.disable()  # modules and tests stay, and the collector would scan them again and again
    try:
        import_by_turns(session.config)
        return (yield)
    finally:
        gc.enable()


def import_by_turns(config: pytest.Config) -> None:
    """Import the modules of the tests, if this is a worker. Each worker begins with another module.

    pytest compiles the modules of tests itself, and stores the result in files. Workers in step would all compile all
    modules.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or [config.rootpath / arg for arg in config.args] != [FOLDER]:
        return
    paths = sorted(FOLDER.rglob("test_*.py"))
    first = len(paths) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for path in paths[first:] + paths[:first]:
        with suppress(Exception):  # the collection imports the module again, and reports the error
            import_module(".".join(path.relative_to(FOLDER.parent).with_suffix("").parts))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the test files that are left out."""
    if not HAS_DASK:
        left_out = "left out: tests/optional/test_dask.py (Dask is not installed: pip install distributed)"
        terminalreporter.write_line(left_out)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let workers begin with the long tests, so that none is left alone with one at the end.

    Tests of real processes and of swarms are one group: each needs all cores of the machine.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("long") is None)
    for item in items:
        if "/real/" in item.nodeid or "::test_swarm_holds_and_takes_every_path[" in item.nodeid:
            item.add_marker(pytest.mark.xdist_group("cores"))


if TYPE_CHECKING:
    from tests.support.cli import CannedRing, Ended, Run
    from tests.support.clients import Open
    from tests.support.clocks import Skipping


@pytest.fixture
def ports() -> Iterator[Ports]:
    """Ports that no other test uses."""
    with Ports() as held:
        yield held


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Skipping:
    """A clock that a silent `FakeNode` moves past every deadline; for Trio as well."""
    from tests.support.clocks import skipping

    return skipping(monkeypatch)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first pause of clients before a retry end after the deadline."""
    from chord.client import session

    monkeypatch.setattr(session, "BACKOFF_FIRST_S", 100 * HANG_S)
    monkeypatch.setattr(session, "BACKOFF_MAX_S", 100 * HANG_S)


@pytest.fixture(params=["blocking", "trio", "asyncio"])
def open_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Open a client of each kind in turn. An attempt at an entry node has no time limit of its own."""
    from chord.client import session
    from tests.support.clients import opener

    monkeypatch.setattr(session, "ATTEMPT_S", HANG_S)
    clock = request.getfixturevalue("clock") if "clock" in request.fixturenames else None
    return opener(request.param, monkeypatch, clock)


@pytest.fixture
def canned() -> Iterator[CannedRing]:
    """The canned ring."""
    from tests.support.cli import CannedRing

    ring = CannedRing()
    yield ring
    ring.close()


@pytest.fixture
def run(canned: CannedRing, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in this process, pointed at the canned ring."""
    from chord import cli
    from chord.client import operations
    from tests.support.cli import Ended

    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist sets it
    monkeypatch.setenv("CHORD_NODE", canned.entry)
    monkeypatch.setenv("CHORD_TIMEOUT", str(HANG_S))
    monkeypatch.setattr(operations, "CRAWL_S", HANG_S)

    def run_(*args: str) -> Ended:
        capfd.readouterr()
        code = cli.run(args)
        sys.stdout.flush()
        out, err = capfd.readouterr()
        return Ended(code, out, err)

    return run_
