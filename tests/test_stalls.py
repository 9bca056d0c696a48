"""A test that fails is run again only if the machine stood still meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from time import monotonic, process_time

import pytest
from live import HANG_S
from stalls import STALLED_S, Watch

TESTS = Path(__file__).parent

# The first time it fails, for good or because its process was stopped for half a second.
FAILING = """
import os, signal, subprocess, sys, time
from pathlib import Path

def test_it():
    tries = Path(__file__).with_suffix(".tries")
    tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
    if {stands_still}:
        wakes = f"import os, signal, time; time.sleep(0.5); os.kill({{os.getpid()}}, signal.SIGCONT)"
        subprocess.Popen([sys.executable, "-c", wakes])
        os.kill(os.getpid(), signal.SIGSTOP)
    assert len(tries.read_text()) > 1, "for the first time"
"""


def _run(directory: Path, *, stands_still: bool) -> tuple[str, str]:
    """Run that test with this suite's settings; return what pytest printed, and a letter for each try."""
    (directory / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (directory / "test_failing.py").write_text(FAILING.format(stands_still=stands_still))
    options = ["-p", "no:cacheprovider", "-q", "--rootdir", str(directory)]
    command = [sys.executable, "-m", "pytest", *options, str(directory)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=HANG_S)
    return done.stdout, (directory / "test_failing.tries").read_text()


@pytest.mark.slow
def test_what_fails_while_the_machine_stands_still_is_run_again_and_said(tmp_path: Path) -> None:
    out, tries = _run(tmp_path, stands_still=True)
    assert tries == "xx"
    assert "1 passed, 1 rerun" in out
    assert "run again, as the machine stood still: test_failing.py::test_it: " in out
    assert "for the first time" in out


@pytest.mark.slow
def test_what_fails_on_a_machine_that_runs_stays_failed(tmp_path: Path) -> None:
    out, tries = _run(tmp_path, stands_still=False)
    assert tries == "x"
    assert "1 failed" in out
    assert "run again" not in out


@pytest.mark.slow
def test_work_of_ones_own_is_no_stall() -> None:
    watch, began_at, worked_s = Watch(), monotonic(), process_time()
    sorted(range(2_000_000), key=str)  # holds the interpreter's lock for many ticks
    idle_s = monotonic() - began_at - (process_time() - worked_s)  # others may want this core as well
    assert watch.lost_s() <= idle_s + STALLED_S / 2
