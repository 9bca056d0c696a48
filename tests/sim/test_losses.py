"""What the ledger excuses: copies that nodes drop as they leave, and no others."""

from __future__ import annotations

from collections import Counter

import pytest

from chord import testing
from chord.messages import Record
from chord.sim.losses import Losses
from chord.sim.story import Story

KEY = b"k"


@pytest.mark.parametrize("is_leaving", [False, True])
def test_only_who_leaves_may_have_dropped_what_a_client_is_told_of(is_leaving: bool) -> None:
    async def main() -> None:
        async with testing.ring(3, seed=1) as ring:
            host = ring[0].host
            complaints: list[str] = []
            stories = {KEY: Story(KEY, host.circle.hash(KEY))}
            losses = Losses(ring, host.constants, stories, Counter(), complaints.append, 600.0)
            host.is_leaving = is_leaving
            losses.dropped(ring[0].name, Record(KEY, ()))
            assert losses.dropped_since(0.0, KEY) == is_leaving
            assert losses.dropped_since(0.0, b"another") == 0
            host.is_leaving = False

    testing.run(main)
