"""The metrics of a node and of a dashboard, and the files for Prometheus and Grafana that use them."""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, cast, get_args

import pytest
import trio
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import chord
from chord import errors, testing
from chord.ids import NodeState, PeerState, Point
from chord.web.exposition import Family, metrics_reply
from chord.web.prometheus import node_metrics
from chord.web.ring_metrics import RingFacts, ring_facts, ring_metrics
from chord.wire.messages import PURPOSES, Lookup, Mode, Route
from tests.support.rings import virtual
from tests.support.statuses import statuses
from tests.support.tools import require_tool
from tests.support.web import Ring, WebClient, app_of

ROOT: Final = Path(__file__).parents[2]
MONITORING: Final = ROOT / "docs" / "monitoring"
PAGE: Final = ROOT / "docs" / "how-to" / "monitor-a-ring.md"
LINES_MAX: Final = 650
OPENMETRICS: Final = "application/openmetrics-text;version=1.0.0"
FACTS: Final = RingFacts(8, {"AtMostOneRing": False, "OrderedRing": True, "NoDuplicates": None}, 3, 0.25, 2, 1)

ERROR_WORDS: Final = {
    error.word for error in vars(errors).values() if isinstance(error, type) and issubclass(error, errors.ChordError)
}
LABEL_VALUES: Final = {
    "state": (*get_args(NodeState), *get_args(PeerState), "degraded"),
    "to": get_args(PeerState),
    "op": ("get", "put", "get_many", "put_many", "scan", "lookup", "merge", "other"),
    "outcome": ("ok", "error", "no_reply", "cancelled", "timeout", "equal", "repaired", "failed", *ERROR_WORDS),
    "mode": get_args(Mode),
    "route": get_args(Route),
    "class": PURPOSES,
    "direction": ("sent", "received"),
    "step": (
        *("stabilize", "refresh_predecessor", "self_lookup", "fix_finger", "repair", "reap"),
        *("save_identity", "bring_home", "scrub", "look_for_files"),
    ),
    "kind": (
        *("join", "leave", "repair", "surplus"),
        *("handed_over", "received", "repair_pulled", "repair_pushed", "brought_home"),
    ),
    "version": (chord.__version__,),
    "invariant": (
        *("OneLiveSuccessor", "NoDuplicates", "OrderedSuccessorList", "SufficientPrincipals"),
        *("AtLeastOneRing", "AtMostOneRing", "OrderedRing", "ConnectedAppendages"),
    ),
}
"""The values that each label may have."""


def text_of(families: Iterable[Family], accept: str = "") -> str:
    return bytes(metrics_reply(families, accept).body).decode()


def samples_of(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the value of each sample, by its name and its label values in the order of the labels' names."""
    found: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for family in parse_text(text):
        for sample in family.samples:
            found[sample.name][tuple(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


def families_of(*texts: str) -> dict[str, Metric]:
    return {family.name: family for text in texts for family in parse_text(text)}


def sample_names(families: dict[str, Metric]) -> set[str]:
    """Return the names that a query may use."""
    names = set()
    for family in families.values():
        ends = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        names |= {family.name + end for end in ends}
    return names


async def busy_ring() -> tuple[str, str]:
    """Return the metrics of a node after some requests and a death, as Prometheus text and as OpenMetrics."""
    async with testing.open_ring(4, seed=1) as ring:
        network = cast(testing.MemoryNetwork, ring.network)
        async with chord.open_client(ring[0].address, transport=network.transport("client")) as client:
            for number in range(20):
                await client.put(b"secret-%d" % number, b"value")
            for number in range(20):
                await client.get(b"secret-%d" % number)
            await client.get_many([b"secret-%d" % number for number in range(20)])
        await ring[0]._host.peers.call(ring[0].address, Lookup(Point(5)), Lookup.reply)
        await ring.kill(ring[2], silently=True)
        await ring.converged()
        return text_of(node_metrics(ring[0])), text_of(node_metrics(ring[0]), OPENMETRICS)


@pytest.fixture(scope="module")
def busy() -> tuple[str, str]:
    return cast("tuple[str, str]", testing.run(busy_ring, seed=1))


def test_metrics_count_what_happened(busy: tuple[str, str]) -> None:
    samples = samples_of(busy[0])
    operations = samples["chord_operations_total"]
    assert operations["put", "ok"] > 0
    assert operations["get", "ok"] > 0
    assert samples["chord_operation_duration_seconds_count"]["put",] == operations["put", "ok"]
    assert samples["chord_operation_duration_seconds_bucket"]["+Inf", "put"] == operations["put", "ok"]
    assert samples["chord_lookups_total"]["iterative", "ok", "classic"] > 0
    assert samples["chord_peers"]["dead",] + samples["chord_peers"]["suspect",] == 1
    assert samples["chord_peer_transitions_total"]["dead",] > 0
    assert samples["chord_protocol_steps_total"]["ok", "stabilize"] > 0
    assert samples["chord_rpc_requests_total"]["upkeep", "ok"] > 0
    assert samples["chord_rpc_requests_total"]["upkeep", "no_reply"] > 0
    assert samples["chord_successor_list_length"][()] == 2
    assert 0 < samples["chord_owned_ratio"][()] < 1
    assert samples["chord_node_state"]["ready",] == 1
    assert samples["chord_store_records"][()] > 0


@virtual
async def test_error_of_a_request_is_an_outcome() -> None:
    async with testing.open_ring(1, seed=1) as ring:
        network = cast(testing.MemoryNetwork, ring.network)
        async with chord.open_client(ring[0].address, transport=network.transport("client")) as client:
            for _ in range(3):
                with pytest.raises(errors.InvalidRequest):
                    await client.put(b"key", b"value", context=b"no context")
        operations = samples_of(text_of(node_metrics(ring[0])))["chord_operations_total"]
        assert (operations["put", "invalid"], operations["put", "ok"]) == (3, 0)


@virtual
async def test_cancelled_lookup_is_an_outcome() -> None:
    async with testing.open_ring(3, seed=1) as ring:
        node, silent = ring[0], ring[1].contact
        await ring.kill(ring[1], silently=True)
        with trio.move_on_after(0.01) as scope:
            await node._host.peers.call(node.address, Lookup(silent.id), Lookup.reply)
        assert scope.cancelled_caught
        samples = samples_of(text_of(node_metrics(node)))
        assert samples["chord_lookups_total"]["iterative", "cancelled", "classic"] == 1
        assert sum(count for label, count in samples["chord_rpc_requests_total"].items() if "cancelled" in label) >= 1


def test_labels_are_from_closed_sets(busy: tuple[str, str]) -> None:
    texts = (busy[0], text_of(ring_metrics(FACTS)))
    for family in families_of(*texts).values():
        assert family.name.startswith(("chord_", "process_"))
        for sample in family.samples:
            for label, value in sample.labels.items():
                assert label == "le" or value in LABEL_VALUES[label], sample
    assert "secret" not in texts[0]
    assert not re.search(r"n[0-9]+:9000", texts[0])


def test_scrape_stays_small(busy: tuple[str, str]) -> None:
    assert busy[0].count("\n") <= LINES_MAX


def test_openmetrics_has_the_same_samples(busy: tuple[str, str]) -> None:
    text, openmetrics = busy
    assert openmetrics.endswith("# EOF\n")
    names = {family.name for family in parse_openmetrics(openmetrics)}
    assert names == {family.name for family in parse_text(text)}


def test_dashboard_metrics_describe_the_ring() -> None:
    samples = samples_of(text_of(ring_metrics(FACTS)))
    assert samples["chord_ring_nodes"][()] == 8
    assert samples["chord_ring_invariant_holds"] == {("AtMostOneRing",): 0, ("OrderedRing",): 1}
    assert samples["chord_ring_waiting"][()] == 3
    assert samples["chord_watch_age_seconds"][()] == 0.25
    assert samples["chord_watch_readers"][()] == 2
    assert samples["chord_watch_readers_dropped_total"][()] == 1


def test_facts_follow_the_state_of_the_ring() -> None:
    ring = Ring(statuses(), age_s=0.5)
    facts = ring_facts(ring.origin, 3, 1)
    assert (facts.nodes, facts.waiting, facts.age_s, facts.readers, facts.dropped) == (7, 0, 0.5, 3, 1)
    assert list(facts.holds.values()) == [True] * 8
    ring.origin.aggregator.model.lose("127.0.0.1:9003", "unreachable")
    silent = ring_facts(ring.origin, 0, 0)
    assert silent.nodes == 6
    assert silent.holds["AtMostOneRing"] is None, "a missing node may hide a second ring"


async def test_dashboard_of_a_living_ring_serves_metrics() -> None:
    ring = Ring(statuses())
    app = app_of(ring.origin, metrics=lambda: ring_metrics(ring_facts(ring.origin, 0, 0)))
    answer = await WebClient(app).get("/metrics")
    assert samples_of(answer.body.decode())["chord_ring_nodes"][()] == 7
    assert (await WebClient(app_of(ring.origin)).get("/metrics")).status == 404


def check_metrics(text: str) -> None:
    promtool = require_tool("promtool", "prometheus")
    done = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_promtool_finds_no_fault(busy: tuple[str, str]) -> None:
    check_metrics(busy[0])
    check_metrics(text_of(ring_metrics(FACTS)))


def test_promtool_finds_a_planted_fault() -> None:
    require_tool("promtool", "prometheus")
    with pytest.raises(AssertionError):
        check_metrics("# TYPE chord_puts counter\nchord_puts 1\n")


def test_promtool_accepts_the_sample_configuration() -> None:
    promtool = require_tool("promtool", "prometheus")
    for command, name in (("rules", "alerts.yml"), ("config", "prometheus.yml")):
        done = subprocess.run([promtool, "check", command, str(MONITORING / name)], capture_output=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def queried(text: str) -> set[str]:
    return set(re.findall(r"\b(?:chord|process)_[a-z_]+", text))


@pytest.mark.parametrize("name", ["grafana.json", "alerts.yml"])
def test_every_queried_metric_exists(name: str, busy: tuple[str, str]) -> None:
    text = (MONITORING / name).read_text(encoding="utf-8")
    if name == "grafana.json":
        text = "\n".join(_expressions(json.loads(text)))
    else:
        text = "\n".join(re.findall(r"expr: (.*?)\n *(?:for|labels):", text, re.DOTALL))
    known = sample_names(families_of(busy[0], text_of(ring_metrics(FACTS))))
    assert queried(text)
    assert queried(text) - known == set()
    assert queried("rate(chord_gets_total[5m])") - known, "a name that does not exist is found"


def _expressions(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["expr"]] if "expr" in value else []
        return own + [text for part in value.values() for text in _expressions(part)]
    return [text for part in value for text in _expressions(part)] if isinstance(value, list) else []


def test_page_lists_every_metric(busy: tuple[str, str]) -> None:
    families = families_of(busy[0], text_of(ring_metrics(FACTS)))
    names = {name + ("_total" if family.type == "counter" else "") for name, family in families.items()}
    rows = re.findall(r"^\| `(chord_\w+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(name for name in names if name.startswith("chord_"))
