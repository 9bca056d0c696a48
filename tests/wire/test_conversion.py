"""The first use of a type of struct, by several threads at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import msgspec
import pytest

from chord.wire import conversion
from tests.support.real_rings import HANG_S

ROOT = Path(__file__).parents[2]

analyses: list[str] = []
has_begun = {name: threading.Event() for name in ("first", "second")}
wait_s = 0.2


def slow_field() -> type:
    """Return the type of a field, when msgspec analyses it. The first thread waits for the second one to begin, too."""
    name = threading.current_thread().name
    analyses.append(name)
    has_begun[name].set()
    has_begun["second"].wait(wait_s)
    return int


class Inner(msgspec.Struct):
    """A struct with a field that takes long to analyse."""

    number: slow_field()  # type: ignore[valid-type]


class Outer(msgspec.Struct):
    """A struct that contains it."""

    inner: Inner


def convert_in_two_threads() -> list[Outer]:
    """Let a second thread use a type while a first thread uses it for the first time."""
    found: list[Outer] = []

    def use() -> None:
        found.append(conversion.convert({"inner": {"number": 1}}, Outer))

    threads = [threading.Thread(target=use, name=name) for name in has_begun]
    threads[0].start()
    assert has_begun["first"].wait(HANG_S)
    threads[1].start()
    for thread in threads:
        thread.join(HANG_S)
    return found


def run_here(before: str) -> subprocess.CompletedProcess[str]:
    """Convert in two threads of a new process, because a crash would end this one. Run some code first."""
    program = f"""
        from contextlib import nullcontext
        from tests.wire import test_conversion as this
        {before}
        print(this.convert_in_two_threads(), this.analyses)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False)


def test_two_threads_analyse_a_type_once() -> None:
    done = run_here("")
    assert done.stdout == "[Outer(inner=Inner(number=1)), Outer(inner=Inner(number=1))] ['first']\n", done.stderr


def test_planted_first_use_without_a_lock_is_caught() -> None:
    done = run_here(f"this.conversion.first_use, this.wait_s = nullcontext(), {HANG_S}")
    assert done.returncode == -signal.SIGSEGV or "'second'" in done.stdout, done.stderr


def test_value_of_the_wrong_type_is_refused_at_each_use() -> None:
    class Fresh(msgspec.Struct):
        number: int

    for _ in range(2):
        with pytest.raises(msgspec.ValidationError, match="number"):
            conversion.convert({"number": "1"}, Fresh)
    assert conversion.convert({"number": 1}, Fresh) == Fresh(1)


def test_no_other_module_converts_messages() -> None:
    packages = ("wire", "store", "net", "ring", "replication", "membership", "client", "node", "observe", "web")
    files = {path for package in packages for path in (ROOT / "chord" / package).rglob("*.py")}
    users = {path.name for path in files if "msgspec.convert(" in path.read_text(encoding="utf-8")}
    assert users == {"conversion.py"}
