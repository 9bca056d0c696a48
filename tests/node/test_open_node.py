"""`open_node`: the end of the node when the program's block ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import chord
from chord.errors import NotReady
from tests.support.ports import Ports
from tests.support.real_rings import HANG_S


@pytest.mark.parametrize("keeps_data", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_error_in_the_block_of_open_node_stops_the_node(keeps_data: bool, tmp_path: Path, ports: Ports) -> None:
    async with chord.open_node(preset="local") as first:
        where = {"listen": ports.address(), "join": [first.address]}
        data_dir = str(tmp_path) if keeps_data else None
        try:
            async with chord.open_node(preset="local", data_dir=data_dir, **where) as second:
                await second.put("k", b"v")
                raise ValueError("of the program")
        except ValueError as error:
            message = str(error)
        assert message == "of the program"
        assert second.state == ("stopped" if keeps_data else "left")
        with trio.fail_after(HANG_S):
            assert (await first.get("k", r=1)).value == b"v"


async def test_cancelled_block_of_open_node_is_a_crash() -> None:
    with trio.CancelScope() as scope:
        async with chord.open_node(preset="local") as node:
            scope.cancel()
    assert node.state == "ready"


async def test_node_that_does_not_run_yet_is_not_ready() -> None:
    node = chord.Node(chord.NodeConfig())
    for asks in (lambda: node.get("k"), lambda: node.put("k", b"v"), lambda: node.lookup("k")):
        with pytest.raises(NotReady, match="does not run yet"):
            await asks()
    with pytest.raises(NotReady, match="does not run yet"):
        assert node.contact
