"""The simulated database and SQLite have equal results, and a planted difference is caught.
SQLite runs in a process of its own, because its lives are forks that are killed.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from chord.sim.disk import Disk
from chord.sim.image import ImageChange
from chord.sim.stores import SimulatedStorage
from chord.store.group_commit import Group
from tests.support.real_rings import HANG_S

from .histories import ENDS
from .sides import on_the_twin

ROOT = Path(__file__).parents[2]


def compare(count: int, first: int) -> str:
    command = [sys.executable, "-m", "tests.twin", str(count), "--first", str(first), "--jobs", "1"]
    ended = subprocess.run(command, cwd=ROOT, timeout=HANG_S, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


@pytest.mark.slow
def test_twin_and_sqlite_agree_on_random_histories() -> None:
    assert "20 histories" in compare(20, 0)


@pytest.mark.slow
@pytest.mark.long
def test_twin_and_sqlite_agree_on_hundreds_of_histories() -> None:
    assert "300 histories" in compare(300, 20)


def test_histories_contain_every_end_of_a_transaction() -> None:
    counts: Counter[str] = Counter()
    for seed in range(40):
        lines = on_the_twin(seed)
        counts.update(end for line in lines for end in ("ok", *ENDS) if line.startswith(f"{end}:"))
        lives = sum(line.startswith("opened") for line in lines)
        counts["killed"] += lives - sum(line.startswith(("failed:", "failed, and written:")) for line in lines)
    assert all(counts[end] > 5 for end in ("ok", "full", "failed", "failed, and written", "killed")), counts


# -- planted ----------------------------------------------------------------------------------------------


class KeepsTheRefused(SimulatedStorage):
    """A refused change stays visible."""

    def _take_back(self) -> None:
        self._rows.changes.clear()
        self._notes.changes.clear()


class SettlesAtOnce(SimulatedStorage):
    """A change that gathers behind a durable one counts as durable."""

    def _settle(self, group: Group) -> None:
        self._rows.changes.clear()
        self._notes.changes.clear()


WRITE = Disk.write


def forgets_a_key_epoch(disk: Disk, change: ImageChange) -> None:
    WRITE(disk, ImageChange(change.rows, change.notes, 0))


def writes_what_it_refuses(disk: Disk, change: ImageChange) -> None:
    capacity, disk.capacity_bytes = disk.capacity_bytes, float("inf")
    WRITE(disk, change)
    disk.capacity_bytes = capacity


def drops_the_notes(disk: Disk, change: ImageChange) -> None:
    WRITE(disk, ImageChange(change.rows, {}, change.key_epoch))


def is_noticed(kind: type[SimulatedStorage] = SimulatedStorage) -> Callable[[list[list[str]]], bool]:
    return lambda right: [on_the_twin(seed, kind) for seed in range(len(right))] != right


@pytest.mark.slow
@pytest.mark.parametrize("kind", [KeepsTheRefused, SettlesAtOnce])
def test_planted_difference_of_the_store_is_caught(kind: type[SimulatedStorage]) -> None:
    assert is_noticed(kind)([on_the_twin(seed) for seed in range(20)])


@pytest.mark.slow
@pytest.mark.parametrize("write", [forgets_a_key_epoch, writes_what_it_refuses, drops_the_notes])
def test_planted_difference_of_the_disk_is_caught(
    write: Callable[[Disk, ImageChange], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = [on_the_twin(seed) for seed in range(20)]
    monkeypatch.setattr(Disk, "write", write)
    assert is_noticed()(right)
