"""A test with a whole ring: eight real nodes in memory, on virtual time.

    pytest examples/test_ring_heals.py

The test does not sleep and opens no port. The same seed gives the same run.
"""

from __future__ import annotations

import chord.testing


async def kill_one_of_eight() -> float:
    """Store keys, kill a node, and return the virtual seconds until the ring heals."""
    async with chord.testing.open_ring(8, seed=7) as ring:
        keys = [f"user:{i}" for i in range(50)]
        for key in keys:
            await ring[0].put(key, b"here")

        await ring.kill(ring[3])
        healed_in = await ring.converged()
        assert ring.violations() == []

        for key in keys:  # each key is on three nodes, and only one node was killed
            assert (await ring[0].get(key)).value == b"here"
        return healed_in


def test_ring_heals_after_a_crash() -> None:
    assert chord.testing.run(kill_one_of_eight, seed=7) < 10


def test_same_seed_gives_the_same_run() -> None:
    assert chord.testing.run(kill_one_of_eight, seed=7) == chord.testing.run(kill_one_of_eight, seed=7)
