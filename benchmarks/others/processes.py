"""The processes of one ring and its clients: start, pause, measure, and kill.

Linux only, because it reads /proc. All processes of a ring are stopped (SIGSTOP) while another system has its turn. So
no system pays for the maintenance of another. The kernel kills the processes when this one ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
READY_S = 60.0
ONCE_S = 120.0
POLL_S = 0.05
FREE_BYTES_MIN = 1 << 30
"""The memory that stays free, in bytes. A machine that swaps would measure its disk."""

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class SystemFailed(Exception):
    """A system did not start, stopped answering, or ended.

    The comparison then leaves the system out.
    """


class Process:
    """A node or client process that exchanges JSON lines with the runner."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.popen = popen
        self.log = log
        self._waiting = bytearray()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self.popen.pid

    def read(self, within_s: float) -> Any:
        """Return the next line that the process prints, decoded from JSON.

        Raises:
            SystemFailed: the process ended, or printed no line in time.
        """
        assert self.popen.stdout is not None
        deadline = time.monotonic() + within_s
        with selectors.DefaultSelector() as selector:
            selector.register(self.popen.stdout, selectors.EVENT_READ)
            while (end := self._waiting.find(b"\n")) < 0:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise SystemFailed(f"{self.name} says nothing for {within_s:.0f} s (see {self.log})")
                data = os.read(self.popen.stdout.fileno(), 1 << 16)
                if not data:
                    raise SystemFailed(f"{self.name} ended with {self.popen.wait()}: {self._last_words()}")
                self._waiting += data
        line = bytes(self._waiting[:end])
        del self._waiting[: end + 1]
        return json.loads(line)

    def ask(self, within_s: float, **what: Any) -> Any:
        """Write a JSON object to the process, and return its answer.

        Args:
            within_s: the time limit of the answer, in seconds.
            what: the fields of the object.

        Raises:
            SystemFailed: the process ended, or did not answer in time.
        """
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(json.dumps(what).encode() + b"\n")
            self.popen.stdin.flush()
        except BrokenPipeError:
            raise SystemFailed(f"{self.name} ended with {self.popen.wait()}: {self._last_words()}") from None
        return self.read(within_s)

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "without a word"


class Group:
    """A context manager for the processes of one ring; its end kills them all.

    Args:
        name: the name in messages and log files.
        directory: the directory for files of the ring; created if it is missing.
    """

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.nodes: list[Process] = []
        self.clients: list[Process] = []
        directory.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """Kill all processes, and wait for their ends."""
        everyone = [*self.nodes, *self.clients]
        self.nodes, self.clients = [], []
        for process in everyone:
            process.popen.kill()
        for process in everyone:
            process.popen.wait()
            for stream in (process.popen.stdin, process.popen.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()

    def node(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Process:
        """Start a node process, without waiting for it.

        Args:
            command: the command line.
            environment: additional environment variables.

        Raises:
            SystemFailed: there is no memory for another node.
        """
        free = available_bytes()
        if free < FREE_BYTES_MIN:
            left = f"{free / 1e6:,.0f} MB of memory are left"
            raise SystemFailed(f"{self.name} does not fit: {left} at {len(self.nodes)} nodes")
        return self._start(self.nodes, f"{self.name} node {len(self.nodes)}", command, environment)

    def client(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Process:
        """Start a client process, and wait until it is ready.

        Args:
            command: the command line.
            environment: additional environment variables.

        Raises:
            SystemFailed: the client ended, or is not ready in time.
        """
        process = self._start(self.clients, f"{self.name} client {len(self.clients)}", command, environment)
        process.read(READY_S)
        return process

    def once(self, command: Sequence[str]) -> str:
        """Run a command to its end, and return its output.

        Raises:
            SystemFailed: the command failed.
        """
        try:
            done = subprocess.run(
                command, cwd=self.directory, env=_environment(None), capture_output=True, text=True, timeout=ONCE_S,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise SystemFailed(f"{self.name}: {command[0]} takes more than {ONCE_S:.0f} s") from None
        if done.returncode:
            raise SystemFailed(f"{self.name}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def pause(self) -> None:
        """Stop all processes of the ring (SIGSTOP), to leave the machine to another ring."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let all processes of the ring continue (SIGCONT).

        Raises:
            SystemFailed: a process has ended.
        """
        self._signal(signal.SIGCONT)
        for process in (*self.nodes, *self.clients):
            if process.popen.poll() is not None:
                raise SystemFailed(f"{process.name} ended with {process.popen.returncode}")

    def cpu_s(self) -> float:
        """Return the CPU seconds that nodes and clients used so far, user and system."""
        return sum(cpu_s_of(process.pid) for process in (*self.nodes, *self.clients))

    def rss_mb_per_node(self) -> float:
        """Return the mean resident memory of a node, in MB (10^6 bytes)."""
        return sum(rss_bytes_of(process.pid) for process in self.nodes) / len(self.nodes) / 1e6

    def _start(
        self, among: list[Process], name: str, command: Sequence[str], environment: Mapping[str, str] | None
    ) -> Process:
        log = self.directory / (name.replace(" ", "-") + ".log")
        with log.open("wb") as errors:
            popen = subprocess.Popen(
                command,
                cwd=self.directory,
                env=_environment(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                process_group=0,  # Ctrl-C is for the runner, which ends them all
                preexec_fn=_die_with_parent,
            )
        process = Process(name, popen, log)
        among.append(process)
        return process

    def _signal(self, number: signal.Signals) -> None:
        for process in (*self.nodes, *self.clients):
            process.popen.send_signal(number)


def cpu_s_of(pid: int) -> float:
    """Return the CPU seconds that a process used so far, user and system.

    Raises:
        SystemFailed: the process has ended.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise SystemFailed(f"process {pid} has ended") from None
    fields = stat.rpartition(")")[2].split()  # the name before it may contain anything
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def rss_bytes_of(pid: int) -> int:
    """Return the resident memory of a process, in bytes.

    Raises:
        SystemFailed: the process has ended.
    """
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        raise SystemFailed(f"process {pid} has ended") from None
    return pages * os.sysconf("SC_PAGE_SIZE")


def available_bytes() -> int:
    """Return the memory of this machine that is available without swapping."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """Return a free port of loopback, for programs that cannot choose one themselves.

    Another program may take the port before it is used.

    Args:
        kind: the kind of socket: TCP, or UDP with `SOCK_DGRAM`.
    """
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def until_it_listens(process: Process, port: int, within_s: float = READY_S) -> None:
    """Wait until a server process accepts connections on a port of loopback.

    Raises:
        SystemFailed: the process ended, or does not listen in time.
    """
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if process.popen.poll() is not None:
            raise SystemFailed(f"{process.name} ended with {process.popen.returncode} (see {process.log})")
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(POLL_S)
    raise SystemFailed(f"{process.name} does not listen on {port}")


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "CHORD_NODE": "", **(more or {})}


def _die_with_parent() -> None:
    """Let the kernel kill this child process when the runner ends for any reason.

    The child calls the function before it starts its program.
    """
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
