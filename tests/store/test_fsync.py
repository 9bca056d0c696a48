"""The calls that make files and directories durable."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from chord.store import fsync
from chord.store.identity import FileIdentity


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The directories that were synced during the test."""
    found: list[Path] = []
    monkeypatch.setattr(fsync, "sync_directory", found.append)
    return found


def test_make_directory_syncs_the_parent_of_each_new_directory(tmp_path: Path, synced: list[Path]) -> None:
    fsync.make_directory(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert sorted(synced) == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]


def test_make_directory_of_an_old_directory_syncs_nothing(tmp_path: Path, synced: list[Path]) -> None:
    fsync.make_directory(tmp_path)
    assert synced == []


def test_new_data_directory_is_durable_in_its_parent(tmp_path: Path, synced: list[Path]) -> None:
    FileIdentity(str(tmp_path / "data")).close()
    assert synced == [tmp_path]


def synced_by(monkeypatch: pytest.MonkeyPatch, path: Path, *, full: bool, error: OSError | None = None) -> list[str]:
    """Sync a file on a system with or without F_FULLFSYNC; return the calls that were made."""
    calls: list[str] = []

    def control(descriptor: int, command: int, *args: Any) -> int:
        assert command == 51
        calls.append("full")
        if error is not None:
            raise error
        return 0

    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.setattr(os, "fsync", lambda descriptor: calls.append("fsync"))
    if full:
        monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    else:
        monkeypatch.delattr(fcntl, "F_FULLFSYNC", raising=False)
    with path.open("wb") as file:
        fsync.sync(file.fileno())
    return calls


def test_sync_on_macos_empties_the_cache_of_the_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert synced_by(monkeypatch, tmp_path / "file", full=True) == ["full"]


def test_sync_of_a_file_system_without_full_sync_is_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(errno.ENOTSUP, "Operation not supported")
    assert synced_by(monkeypatch, tmp_path / "file", full=True, error=error) == ["full", "fsync"]


def test_failed_full_sync_is_not_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="Input/output"):
        synced_by(monkeypatch, tmp_path / "file", full=True, error=OSError(errno.EIO, "Input/output error"))


def test_sync_elsewhere_is_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert synced_by(monkeypatch, tmp_path / "file", full=False) == ["fsync"]
