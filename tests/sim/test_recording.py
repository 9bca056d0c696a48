"""Recordings of simulated rings: the played state is the recorded state, at every keyframe."""

from __future__ import annotations

import json

import pytest
import trio

from chord import testing
from chord.events import Emitted
from chord.observe.chordlog import Chordlog
from chord.observe.model import RingChange, RingModel
from chord.sim.cluster import Cluster, Reports, cluster
from chord.sim.messages import MessageNetwork
from chord.sim.plan import FAULTS, draw
from chord.sim.recording import RunRecorder
from chord.sim.run import Run
from tests.support.rings import virtual

DEATHS = 10
CHURN_S = 11.0  # longer than the time between two keyframes


class Recorded:
    """A recorder into memory, which also notes the true pointers at every keyframe."""

    def __init__(self, seed: int, **wishes: object) -> None:
        self.plan = draw(seed, **wishes)  # type: ignore[arg-type]
        self.text = bytearray()
        self.truths: list[dict[str, tuple[str, list[str]]]] = []
        self.recorder = RunRecorder(self.plan, "test", self.text.extend)

    def on_event(self, ring: Cluster, emitted: Emitted) -> None:
        size = len(self.text)
        self.recorder.on_event(ring, emitted)
        if b',"k":{' in self.text[size:]:
            self.truths.append({
                str(int(point)): (vnode.me.address, [str(int(c.id)) for c in vnode.ring.successors])
                for point, vnode in ring._vnodes().items()
            })

    def check(self) -> Chordlog:
        """Check that the deltas give every keyframe, and the keyframes the true pointers."""
        found, played = Chordlog(bytes(self.text)), RingModel()
        keyframes: list[RingChange] = []
        for line in found.lines():
            content = line.content
            if line.letter == "k":
                assert isinstance(content, RingChange)
                assert played.nodes == content.nodes
                assert played.vnodes == content.vnodes
                keyframes.append(content)
            elif line.letter == "d":
                assert isinstance(content, RingChange)
                played.apply(content)
        assert len(keyframes) > 1, "the first one is empty"
        for keyframe, truth in list(zip(keyframes, self.truths, strict=True))[1:]:
            for point, (address, successors) in truth.items():
                vnode = keyframe.vnodes[point]
                assert (vnode["node"], vnode["successors"]) == (address, successors)
            living = {address for address, _ in truth.values()}
            dead = {a for a, node in keyframe.nodes.items() if node["state"] in ("dead", "stopped", "left")}
            assert not living & dead
        return found


@pytest.mark.slow
@virtual
async def test_recording_of_a_split_ring_plays_as_recorded() -> None:
    recorded, rings = Recorded(1, nodes=6, successors=2, faults=(), theme="mixed"), list[Cluster]()
    network = MessageNetwork(1, on_fault=recorded.recorder.on_fault)

    def observe(emitted: Emitted) -> None:
        if rings:
            recorded.on_event(rings[0], emitted)

    reports = Reports(fault=recorded.recorder.on_fault)
    async with cluster(
        seed=1, ring=recorded.plan.constants, network=network, observe=observe, reports=reports
    ) as ring:
        rings.append(ring)
        await ring.place(6)
        network.partition([node.name for node in ring.nodes[:3]])
        await trio.sleep(12)
        network.heal()
        await ring.converged()
        await ring.kill(ring[3])
        await trio.sleep(21)
    found = recorded.check()
    faults = [line.content for line in found.lines() if line.letter == "f"]
    assert faults[:3] == [
        {"do": "partition", "groups": [["n0", "n1", "n2"]]},
        {"do": "heal", "groups": []},
        {"do": "kill", "groups": [["n3"]]},
    ]
    checks = [line.content for line in found.lines() if line.letter == "c"]
    assert any(check["violations"] for check in checks), "the ring is split"  # type: ignore[index]
    assert (checks[-1]["violations"], checks[-1]["waiting"]) == ([], 0)  # type: ignore[index]
    assert found.seek(found.ends_s).nodes["n3:1"]["state"] == "dead"
    # A planted fault: the last delta before the last keyframe is lost.
    end = recorded.text.rindex(b',"k":{')
    begin = recorded.text.rindex(b"\n", 0, recorded.text.rindex(b',"d":{', 0, end)) + 1
    del recorded.text[begin : recorded.text.index(b"\n", begin) + 1]
    with pytest.raises(AssertionError):
        recorded.check()


@pytest.mark.slow
def test_recording_of_a_run_plays_as_recorded_and_changes_nothing() -> None:
    recorded = Recorded(
        2, nodes=6, successors=2, faults=tuple(FAULTS), fidelity="messages", membership=4, steps=100, clients=2,
        client_pause_s=0.5,
    )  # fmt: skip
    recorder = recorded.recorder
    report = Run(
        recorded.plan, on_event=recorded.on_event, on_fault=recorder.on_fault, write_history=recorder.on_operation
    ).run()
    recorder.end("passed")
    assert report.digest == Run(recorded.plan, write_history=lambda line: None).run().digest
    found = recorded.check()
    assert (found.outcome, found.header.seed) == ("passed", 2)
    operations = [line.content for line in found.lines() if line.letter == "o"]
    assert {"c", "p", "f", "st", "t0", "t1", "found"} == {name for one in operations for name in one}  # type: ignore[union-attr]
    (loss,) = [line.content for line in found.lines() if line.letter == "f" and "share" in line.content]  # type: ignore[operator]
    assert loss == {"do": "loss", "groups": [], "share": 0.02}
    assert [t for t, _ in found.keyframes()] == [t for t, _ in json.loads(recorded.text.splitlines()[-1])["index"]]


@pytest.mark.parametrize(
    "nodes", [pytest.param(20, marks=pytest.mark.slow), pytest.param(1000, marks=pytest.mark.thorough)]
)
def test_recording_of_churn_plays_as_recorded(nodes: int) -> None:
    recorded = Recorded(3, nodes=8, successors=4, faults=(), theme="mixed")

    async def churn() -> None:
        rings: list[Cluster] = []

        def observe(emitted: Emitted) -> None:
            if rings:
                recorded.on_event(rings[0], emitted)

        network = MessageNetwork(3, on_fault=recorded.recorder.on_fault)
        reports = Reports(fault=recorded.recorder.on_fault)
        async with cluster(
            seed=3, ring=recorded.plan.constants, network=network, observe=observe, reports=reports
        ) as ring:
            rings.append(ring)
            await ring.place(nodes)
            for number in range(DEATHS):
                await ring.kill(ring[number * 7 % len(ring)])
                await ring.start()
                await trio.sleep(CHURN_S / DEATHS)

    testing.run(churn, seed=3)
    found = recorded.check()
    assert len(list(found.keyframes())) >= 2
    assert sum(line.letter == "f" for line in found.lines()) == DEATHS
