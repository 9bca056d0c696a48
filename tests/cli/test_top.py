"""`chord top`: the summaries of a ring that loses a node, and the screen."""

from __future__ import annotations

import io
import re
import signal
from typing import Any, cast

import pytest
import trio
from msgspec.structs import replace
from rich.console import Console

from chord import testing
from chord.cli.failures import INTERRUPTED, UNREACHABLE
from chord.cli.output import Failure, Out
from chord.cli.target import Target
from chord.cli.top import lines_on, run_top
from chord.cli.top_screen import EVENTS_MIN, Screen
from chord.ids import Contact, Point
from chord.observe.model import RingModel, RingShape
from chord.views.common import Json
from chord.views.dashboard import Moment
from chord.views.top import top_json
from tests.support.rings import virtual
from tests.support.schemas import check_shape
from tests.support.statuses import statuses

MOMENT = Moment(1_700_000_000_000, 300, "live")
SHAPE = RingShape(8, 8, 3)


def summary(model: RingModel) -> Json:
    return top_json(model, SHAPE, MOMENT, dict.fromkeys(model.nodes, MOMENT.at_ms - 300), [])


def a_model() -> RingModel:
    model = RingModel()
    for status in statuses():
        model.describe(status)
    return model


def verdict_of(model: RingModel) -> str:
    return str(summary(model)["verdict"])


# -- the verdict ----------------------------------------------------------------------------------


def test_ideal_ring_is_healthy() -> None:
    state = summary(a_model())
    check_shape("top", state)
    assert (state["verdict"], state["text"]) == ("healthy", "7 nodes, 7 vnodes, the eight invariants hold")
    assert sum(node["owned"] for node in state["nodes"]) == pytest.approx(1)


def test_ring_in_the_wrong_order_is_broken() -> None:
    model = a_model()
    fields = model.vnodes["42"]
    model.vnodes["42"] = {**fields, "successors": [fields["successors"][1], fields["successors"][0]]}
    state = summary(model)
    assert state["verdict"] == "broken"
    assert "does not hold" in state["text"]


def test_node_with_an_old_list_is_healing() -> None:
    model = a_model()
    model.vnodes["42"] = {**model.vnodes["42"], "predecessor": "230"}
    assert verdict_of(model) == "healing"


def test_records_that_lack_copies_are_healing() -> None:
    model = a_model()
    model.nodes["127.0.0.1:9000"] = {**model.nodes["127.0.0.1:9000"], "under_replicated": 5}
    assert (verdict_of(model), summary(model)["text"]) == ("healing", "under-replicated records: 5")


def test_silent_node_that_no_node_suspects_has_no_verdict() -> None:
    model = a_model()
    model.lose("127.0.0.1:9003", "unreachable")
    assert verdict_of(model) == "unknown"


def test_ring_without_an_answer_is_lost() -> None:
    model = a_model()
    for address in list(model.nodes):
        model.lose(address, "unreachable")
    assert verdict_of(model) == "lost"
    assert verdict_of(RingModel()) == "lost"


# -- the run --------------------------------------------------------------------------------------


@virtual
async def test_top_shows_a_death_and_ends_at_a_signal() -> None:
    states: list[Json] = []
    codes: list[int] = []
    async with testing.open_ring(4, seed=1) as ring:
        network = cast(testing.MemoryNetwork, ring.network)

        async def run() -> None:
            target = Target((ring[0].address,), 5.0, Out(as_json=True))
            codes.append(await run_top(target, 1.0, states.append, network.transport("client")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await trio.sleep(5)
            assert (states[-1]["verdict"], len(states[-1]["nodes"])) == ("healthy", 4)
            killed = ring[2].address
            await ring.kill(ring[2])
            await trio.sleep(8)
            signal.raise_signal(signal.SIGINT)
    for state in states:
        check_shape("top", state)
    assert codes == [INTERRUPTED]
    dead = next(node for node in states[-1]["nodes"] if node["address"] == killed)
    assert (dead["state"], dead["owned"]) == ("unreachable", 0)
    assert dead["suspected_by"] > 0
    texts = [event["text"] for state in states for event in state["events"]]
    assert any(text.endswith("for dead") for text in texts)
    assert len(texts) == len({(event["at_ms"], event["node"], event["text"]) for s in states for event in s["events"]})


@virtual
async def test_top_without_a_node_fails_as_other_commands() -> None:
    network = testing.MemoryNetwork(1)
    target = Target(("n0:9000",), 3.0, Out(as_json=True))
    began = trio.current_time()
    with pytest.raises(Failure) as caught:
        await unwrapped_run(target, network)
    assert caught.value.exit_code == UNREACHABLE
    assert 2 <= trio.current_time() - began <= 4


async def unwrapped_run(target: Target, network: testing.MemoryNetwork) -> None:
    from chord.errors import unwrapped

    with unwrapped():
        await run_top(target, 1.0, lambda state: None, network.transport("client"))


def test_pipe_gets_a_line_for_each_news(capsys: pytest.CaptureFixture[str]) -> None:
    show = lines_on(Out())
    state = summary(a_model())
    event = {"at_ms": MOMENT.at_ms, "node": "n0:1", "kind": "PeerChanged", "text": "n0 takes n1 for dead"}
    routine = {**event, "kind": "FingerChanged", "text": "n0 points the fingers 1 to 2 at n3"}
    show({**state, "events": [event, routine]})
    show(state)
    show({**state, "verdict": "healing", "text": "n1 is joining"})
    lines = [re.sub(r"^\d\d:\d\d:\d\d  ", "", line) for line in capsys.readouterr().out.splitlines()]
    assert lines == ["n0 takes n1 for dead", f"healthy: {state['text']}", "healing: n1 is joining"]


# -- the screen -----------------------------------------------------------------------------------


def drawn(state: Json, width: int = 80, height: int = 24) -> list[str]:
    screen = Screen()
    screen.take(state)
    file = io.StringIO()
    Console(file=file, width=width, height=height, color_system=None).print(screen)
    return file.getvalue().splitlines()


def test_screen_has_verdict_circle_nodes_and_events() -> None:
    event = {"at_ms": MOMENT.at_ms, "node": "n0:1", "kind": "PeerChanged", "text": "n3 takes n4 for dead"}
    lines = drawn({**summary(a_model()), "events": [event]})
    assert lines[0].startswith(" healthy   7 nodes")
    assert len(re.findall(r"[●*]", lines[3])) == 7
    assert any("ready" in line and "1.6 %" not in line for line in lines)
    assert any("n3 takes n4 for dead" in line for line in lines)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 20), (132, 50)])
def test_screen_fits_its_terminal(width: int, height: int) -> None:
    model = RingModel()
    for number, status in enumerate(statuses() * 6):
        at = Contact(Point(number * 6 + 1), f"a-long-host-name-{number}.example.org:9000")
        vnode = replace(status.vnodes[0], contact=at)
        model.describe(replace(status, name=f"a-long-name-{number}", address=at.address, vnodes=(vnode,)))
    event = {"at_ms": MOMENT.at_ms, "node": "n0:1", "kind": "PeerChanged", "text": "a long text " * 20}
    lines = drawn({**summary(model), "events": [event] * 40}, width, height)
    assert max(map(len, lines)) <= width
    assert len(lines) <= height
    assert sum("a long text" in line for line in lines) >= EVENTS_MIN


def test_screen_marks_a_node_that_does_not_answer() -> None:
    model = a_model()
    model.lose("127.0.0.1:9003", "unreachable")
    state: dict[str, Any] = summary(model)
    assert re.search("[✗x]", drawn(state)[3])


def test_screen_shows_problems_if_not_all_nodes_fit() -> None:
    model = a_model()
    model.lose("127.0.0.1:9006", "unreachable")
    assert any("unreachable" in line for line in drawn(summary(model), height=16))
