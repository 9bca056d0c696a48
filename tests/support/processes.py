"""Real `chord node` processes on loopback for tests. Each ends with its block."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from tests.support.machines import forget_clock
from tests.support.ports import Ports

ROOT = Path(__file__).resolve().parents[2]
HANG_S = 600.0  # as in tests/support/real_rings.py, which benchmarks do not need
HEALED_S = 120.0  # a ring that is not whole by then has a bug; healing takes seconds
PYTHON = os.environ.get("TESTED_PYTHON", sys.executable)
"""The interpreter of all `chord` processes. `TESTED_PYTHON` names another, with an installed chord to be tested."""
PACKAGE = {"PYTHONSAFEPATH": "1"} if "TESTED_PYTHON" in os.environ else {"PYTHONPATH": str(ROOT)}
"""The environment in which a process finds the tested package: this checkout's, or the installed one."""
PROGRAM = (PYTHON, "-m", "chord")
ENVIRONMENT = {
    **os.environ, **PACKAGE, "PYTHONWARNINGS": "error", "CHORD_NODE": "", "CHORD_TIMEOUT": str(HANG_S)
}  # fmt: skip

T = TypeVar("T")


class Peer:
    """One `chord node` process."""

    def __init__(self, *arguments: str, listen: str, program: Sequence[str] = PROGRAM) -> None:
        command = [*program, "node", "--json", "--preset", "local", "--listen", listen, *arguments]
        self.process = subprocess.Popen(
            command, cwd="/", env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.address = self.origin = ""

    def ready(self) -> Peer:
        """Wait until the process is a member."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the node ended with {self.process.wait()}: {self.errors()}")
        self.address, self.origin = (json.loads(line)[name] for name in ("address", "origin"))
        return self

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal."""
        self.process.send_signal(how)

    def limit_files(self, bytes_max: int) -> None:
        """Let every write beyond this size of a file fail from now on."""
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (bytes_max, bytes_max))

    def ended(self, within_s: float = HANG_S) -> int:
        """Wait for the end and return the exit code."""
        return self.process.wait(within_s)

    def errors(self) -> str:
        """Return the output on stderr, after the end of the process."""
        assert self.process.stderr is not None
        return self.process.stderr.read()


class Peers:
    """Processes, each at a port that is held for it. The end of the block ends them all."""

    def __init__(self) -> None:
        self._all: list[Peer] = []
        self._ports = Ports()

    def __enter__(self) -> Peers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for peer in self._all:
            if peer.process.poll() is None:
                peer.process.kill()
        for peer in self._all:
            peer.process.communicate()
            forget_clock(peer.process.pid)
        self._ports.close()

    def start(self, *arguments: str, listen: str | None = None, program: Sequence[str] = PROGRAM) -> Peer:
        """Start a process at an earlier or a new address, and do not wait for it."""
        peer = Peer(*arguments, listen=listen or self._ports.address(), program=program)
        self._all.append(peer)
        return peer

    def ring(self, n: int, *arguments: str) -> list[Peer]:
        """Start n that make one ring, and wait until the ring is Ideal."""
        first = self.start(*arguments).ready()
        others = [self.start("--join", first.address, *arguments) for _ in range(n - 1)]
        ring = [first, *(peer.ready() for peer in others)]
        ideal(first.address)
        return ring

    def ring_on_disks(self, n: int, directory: Path) -> list[Peer]:
        """Start n with data that make one ring, one after the other, and wait until the ring is Ideal."""
        ring = [self.start("--data", str(directory / "0")).ready()]
        for number in range(1, n):
            peer = self.start("--join", ring[0].address, "--data", str(directory / str(number)))
            ring.append(peer.ready())
        ideal(ring[0].address)
        return ring

    def killed_at_once(self, ring: Sequence[Peer], directory: Path) -> list[Peer]:
        """Kill all peers of a ring on disks and restart them in their places. Do not wait for them."""
        for peer in ring:
            peer.kill()
        for peer in ring:
            peer.ended()
        return [self.start("--data", str(directory / str(n)), listen=peer.address) for n, peer in enumerate(ring)]


def chord(*arguments: str, node: str | None = None, expect: int | None = 0, stdin: str | None = None) -> str:
    """Run a command and return its stdout; its exit code must be as expected."""
    entry = ["--node", node] if node else []
    done = subprocess.run(
        [*PROGRAM, *arguments, *entry],
        cwd="/", env=ENVIRONMENT, text=True, capture_output=True, timeout=HANG_S, input=stdin, check=False,
    )  # fmt: skip
    if expect is not None:
        assert done.returncode == expect, f"exit code {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout if not expect else done.stderr


def chord_json(*arguments: str, node: str | None = None) -> Any:
    """Run a command with --json and return its output."""
    return json.loads(chord(*arguments, "--json", node=node))


def ideal(node: str, within_s: float = HEALED_S) -> None:
    """Wait until `chord check` finds the ring Ideal."""
    chord("check", "--wait", str(within_s), node=node)


def eventually(look: Callable[[], T], within_s: float = HEALED_S) -> T:
    """Return the first true answer."""
    deadline = time.monotonic() + within_s
    while True:
        answer = look()
        if answer or time.monotonic() > deadline:
            assert answer, "the condition did not hold in time"
            return answer
        time.sleep(0.05)


@contextmanager
def stopped(peer: Peer) -> Iterator[None]:
    """Stop a process with SIGSTOP during the block."""
    peer.kill(signal.SIGSTOP)
    try:
        yield
    finally:
        peer.kill(signal.SIGCONT)
