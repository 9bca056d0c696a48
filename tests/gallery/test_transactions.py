"""Logs of transactions: a store survives a crash in the middle of its recovery, too."""

from __future__ import annotations

import pytest

from chord.gallery.explore import prove
from chord.gallery.index import entry_of
from chord.gallery.world import FaultBudget


@pytest.mark.parametrize("name", ["transactions-logs", "transactions-logs-undo"])
def test_store_survives_crash_of_recovery(name: str) -> None:
    assert prove(entry_of(name), 1, faults=FaultBudget(crash=3, restart=3)).kind == "holds"
