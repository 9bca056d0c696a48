"""Real rings for tests: processes on loopback, started and stopped with a `with`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chord.client.blocking import connect
from tests.support.ports import Ports
from tests.support.processes import PACKAGE, PROGRAM

ROOT = Path(__file__).parents[2]
HANG_S = 600.0  # a test that takes longer hangs, on any machine under any load
HEALED_S = 120.0  # a ring heals within seconds, so longer is a bug
CHORD = [*PROGRAM]


def environment(entry: str | None = None) -> dict[str, str]:
    """Return the environment of a command: the tested package, without the caller's settings."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("CHORD_")}
    here = {**PACKAGE, "PYTHONWARNINGS": "error", "CHORD_TIMEOUT": str(HANG_S)}
    return {**clean, **here, **({"CHORD_NODE": entry} if entry is not None else {})}


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGINT end processes of the block, even if the tests are a background job, which may ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # children do not inherit a handler
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Ended:
    """A command that has ended."""

    def __init__(self, done: subprocess.CompletedProcess[str], seconds: float) -> None:
        self.code, self.out, self.err, self.seconds = done.returncode, done.stdout, done.stderr, seconds

    @property
    def json(self) -> Any:
        """The object that the command printed."""
        assert self.code in (0, 3, 7, 8), (self.code, self.out, self.err)
        return json.loads(self.out)


def chord_command(*args: str, entry: str | None = None, cwd: Path | None = None) -> Ended:
    """Run a command to its end."""
    began = time.monotonic()
    done = subprocess.run(
        [*CHORD, *args], env=environment(entry), capture_output=True, text=True, check=False, timeout=HANG_S, cwd=cwd
    )
    return Ended(done, time.monotonic() - began)


class Running:
    """A `chord up` or `chord node` that is ready; `ready` is its line of output."""

    def __init__(self, process: subprocess.Popen[str], ready: Any) -> None:
        self.process = process
        self.ready = ready

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """The name, address and pid of each node."""
        found: list[dict[str, Any]] = self.ready.get("nodes") or [self.ready]
        return found

    @property
    def entry(self) -> str:
        """The first node's address."""
        return str(self.nodes[0]["address"])

    def __call__(self, *args: str) -> Ended:
        """Run a command on this ring."""
        return chord_command(*args, entry=self.entry)

    def check(self, within_s: float = HANG_S, entry: str | None = None) -> Any:
        """Wait until the ring is Ideal; return the last verdict."""
        return chord_command("check", "--json", "--wait", str(within_s), entry=entry or self.entry).json

    def level(self) -> None:
        """Wait until every node's arcs are in sync. Before, one death may make denials impossible."""
        with connect(self.entry) as client:
            for node in self.nodes:
                while any(part.pending for part in client.status(node["address"]).sets):
                    time.sleep(0.05)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End the process with a signal; return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(HANG_S)


@contextmanager
def running(*args: str) -> Iterator[Running]:
    """Start `chord up …` or `chord node …`, wait until it is ready, and stop it with the block."""
    with subprocess.Popen(
        [*CHORD, *args, "--json"], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            line = process.stdout.readline()
            assert line, f"chord {' '.join(args)} did not start: {process.stderr.read()}"
            yield Running(process, json.loads(line))
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(HANG_S)
                except subprocess.TimeoutExpired:
                    process.kill()


@contextmanager
def ring_of(n: int, *args: str) -> Iterator[Running]:
    """Run a ring of n processes."""
    with Ports() as ports, running("up", "-n", str(n), "--base-port", str(ports.row(n)), *args) as ring:
        yield ring


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
