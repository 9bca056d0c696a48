"""Unreachable nodes in traces: the owner, replicas, and dead hops of earlier attempts."""

from __future__ import annotations

import msgspec
import pytest
import trio

from chord.cli.output import Out
from chord.cli.trace import Size, print_trace, rows
from chord.errors import OwnerDown
from chord.ids import Circle, Point
from chord.node import Node
from chord.ring.lookup import Lookups
from chord.ring.routing import Path
from chord.testing import TestRing, open_ring, run
from chord.wire.messages import HopTrace, Trace, Via
from tests.support.cli import CannedRing, Run
from tests.support.statuses import contact, worked_trace


async def trace_with_dead_owner(memory: TestRing, owner: Node, after_s: float = 0.0) -> Trace:
    """Look up a key some time after its owner has stopped answering."""
    key = owner.contact.id
    start = next(node for node in memory.nodes if node is not owner)
    memory.network.freeze(owner.address.partition(":")[0])
    await trio.sleep(after_s)
    with trio.fail_after(60):
        return await start.lookup(key_id=key)


def frozen_owner(seed: int, nodes: int, after_s: float = 0.0) -> tuple[Trace, str]:
    async def main() -> tuple[Trace, str]:
        async with open_ring(nodes, seed=seed) as memory:
            owner = memory[nodes - 1]
            return await trace_with_dead_owner(memory, owner, after_s), owner.address

    return run(main, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "nodes"), [(1, 4), (2, 4), (3, 12)])
def test_trace_has_a_line_for_a_dead_owner_with_the_reason(seed: int, nodes: int) -> None:
    trace, owner = frozen_owner(seed, nodes)
    assert trace.owner.address != owner
    lines = [hop for hop in trace.hops if hop.contact.address == owner]
    assert [hop.is_dead for hop in lines] == [True], "one line for all attempts"
    assert "no answer" in lines[0].outcome
    assert trace.timeouts == 1 or f"asked {trace.timeouts} times" in lines[0].outcome
    assert trace.hops[0].via.kind == "start"
    assert trace.timeouts >= 1
    times = [hop.at_ms for hop in trace.hops]
    assert times == sorted(times), "in order of time"
    assert trace.path_length == sum(not hop.is_dead for hop in trace.hops) - 1
    *_, last = rows(Circle(160), trace, {}, with_bars=False)
    waited_s = (trace.duration_ms - trace.owner_rtt_ms - times[-1]) / 1000
    assert last[7] == f"owner; for {waited_s:.1f} s before, no node answered for the key"


@pytest.mark.parametrize(("nodes", "after_s"), [(4, 1.0), (4, 2.0), (16, 1.5), (40, 1.5)])
def test_trace_names_a_dead_owner_that_was_not_asked(nodes: int, after_s: float) -> None:
    """The other nodes know by then that it is down, so the way goes around it, and its arc has no owner yet."""
    trace, owner = frozen_owner(1, nodes, after_s)
    (line,) = [hop for hop in trace.hops if hop.contact.address == owner]
    assert line.is_dead
    assert line.outcome.startswith("not asked; ")
    assert trace.timeouts == 0
    *_, last = rows(Circle(160), trace, {}, with_bars=False)
    assert "before, no node answered for the key" in last[7]


def test_planted_lookup_that_leaves_out_the_dead_owner_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lookups, "_note_unasked", lambda *args: None)
    with pytest.raises(ValueError, match="not enough values"):
        test_trace_names_a_dead_owner_that_was_not_asked(4, 1.0)


def test_trace_shows_a_dead_hop_behind_the_hop_that_named_it() -> None:
    path = Path(Point(190), contact(80), "iterative", "classic", 0.0)
    asked = ((80, 0.0), (160, 1.0), (120, 9.0))
    start, before, other = (HopTrace(contact(point), Via("start"), 0.0, None, at) for point, at in asked)
    dead = HopTrace(contact(200), Via("successor"), 0.0, None, 500.0, "no answer; suspect", True)
    path.hops = [start, before, dead]
    path.restart()
    path.hops = [start, other, dead]
    path.restart()
    assert path.hops == []
    late = [msgspec.structs.replace(hop, at_ms=hop.at_ms + 900) for hop in (start, before, other)]
    path.hops = list(late)
    twice = "no answer; suspect; asked 2 times, no answer until 0.5 s"
    assert path.shown() == (start, before, msgspec.structs.replace(dead, outcome=twice), other)
    path.earlier = ()
    assert path.shown() == tuple(late), "the path of one attempt is shown unchanged"


def test_planted_trace_without_earlier_attempts_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: each attempt forgets the hops of earlier attempts."""
    monkeypatch.setattr(Path, "shown", lambda self: tuple(self.hops))
    with pytest.raises(AssertionError):
        test_trace_has_a_line_for_a_dead_owner_with_the_reason(1, 4)


@pytest.mark.slow
def test_scan_names_dead_replicas_in_its_error() -> None:
    async def main() -> None:
        async with open_ring(8, seed=4) as memory:
            await memory[0].put_many((f"key{number}", "value") for number in range(50))
            trace = await memory[0].lookup("key7")
            gone = {contact.address for contact in trace.replicas}
            reader = next(node for node in memory.nodes if node.address not in gone)
            for node in [node for node in memory.nodes if node.address in gone]:
                await memory.kill(node, silently=True)
            await trio.sleep(20)
            found = [replica for node in memory.nodes for replica in node._local_status().sets if replica.unreachable]
            assert found
            with pytest.raises(OwnerDown, match=r"the result is incomplete: no answer from .*, which may hold more"):
                async for _ in reader.scan():
                    pass

    run(main, seed=4)


@pytest.mark.usefixtures("at_a_terminal")
def test_trace_table_shows_an_unreachable_replica_with_a_cross(capsys: pytest.CaptureFixture[str]) -> None:
    replicas = (contact(200), contact(230), contact(10))
    trace = msgspec.structs.replace(worked_trace(), replicas=replicas, unreachable=(contact(230),))
    names = {contact(200).address: "n5", contact(230).address: "n6"}
    print_trace(Out(), Circle(8), trace, names, "id 190", Size(7, True, 8))
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("replicas")]
    assert line == f"replicas  n5 ● n6 ✗ {contact(10).address} ✗   (N=3)"


def test_trace_json_names_unreachable_replicas(run: Run, canned: CannedRing) -> None:
    shape = run("lookup", "--key-id", "190", "--json").json("lookup")
    assert shape["unreachable"] == []
    canned.nodes[200].die()
    shape = run("lookup", "--key-id", "190", "--json").json("lookup")
    assert shape["unreachable"] == [canned.addresses[200]]


@pytest.fixture
def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHORD_OUTPUT", "table")
