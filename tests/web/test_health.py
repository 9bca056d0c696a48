"""The health of a node: what its probes answer, alone and in a ring that loses nodes."""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Callable
from typing import Any, cast

import pytest
import trio
from starlette.types import ASGIApp

from chord import testing
from chord.cli import serve as serve_module
from chord.cli.output import Failure
from chord.cli.serve import _open_http
from chord.config import NodeConfig
from chord.events import Emitted
from chord.node import Node, probe
from chord.node.probe import Condition
from chord.store.identity import MemoryIdentity
from chord.web.health import TURNED_WITHIN_S, Heartbeat, health_app
from tests.support.ports import Ports
from tests.support.processes import HANG_S, Peers
from tests.support.rings import lone_world, virtual
from tests.support.web import WebClient


async def get(app: ASGIApp, path: str) -> tuple[int, str]:
    """Return the status and the body of the answer to a request."""
    answer = await WebClient(app).get(path)
    return answer.status, answer.body.decode()


def app_of(node: Node) -> ASGIApp:
    return health_app(node, Heartbeat(trio.current_time))


@virtual
async def test_node_before_its_start_is_not_ready() -> None:
    config = NodeConfig(listen="n0:9000")
    app = app_of(Node(config, lone_world(config, MemoryIdentity())))
    assert await get(app, "/livez") == (200, "ok\n")
    status, text = await get(app, "/readyz")
    assert (status, text.splitlines()[0]) == (503, "[-] state: starting")
    status, text = await get(app, "/metrics")
    assert status == 200
    assert 'chord_node_state{state="starting"} 1\n' in text
    assert (await get(app, "/"))[0] == 404


@virtual
async def test_node_in_a_ring_is_ready() -> None:
    async with testing.open_ring(3, seed=1) as ring:
        app = app_of(ring[0])
        assert await get(app, "/readyz") == (200, "ok\n")
        status, text = await get(app, "/readyz?verbose")
        assert (status, text.splitlines()) == (200, [
            "[+] state: ready", "[+] arc: owns an arc", "[+] successor: has a live successor", "[+] store: takes writes"
        ])  # fmt: skip


def spoil_store(node: Node) -> None:
    node._host.storage.refusal = "no space left in /var/lib/chord"  # type: ignore[misc]


def stall_disk(node: Node) -> None:
    node._host.is_stalled = True


@pytest.mark.parametrize("spoil", [spoil_store, stall_disk])
def test_node_that_takes_no_writes_is_not_ready(spoil: Callable[[Node], None]) -> None:
    async def main() -> None:
        async with testing.open_ring(1, seed=1) as ring:
            spoil(ring[0])
            assert await get(app_of(ring[0]), "/readyz") == (503, "[-] store: takes no writes\n")

    testing.run(main, seed=1)


@virtual
async def test_node_that_left_is_not_ready() -> None:
    async with testing.open_ring(2, seed=1) as ring:
        node = ring[0]
        await node.leave()
        status, text = await get(app_of(node), "/readyz")
        assert (status, text.splitlines()[:2]) == (503, ["[-] state: left", "[-] arc: owns no arc"])


async def check_ready_while_others_die(n: int) -> None:
    """Kill all nodes of a ring but the first, one after the other; the first must be ready at every moment."""
    failing: list[Condition] = []

    def note(emitted: Emitted) -> None:  # also at the moment when a peer counts as dead and lists still name it
        if watched and emitted.node == watched[0].address:
            failing.extend(condition for condition in probe.readiness(watched[0]) if not condition.holds)

    watched: list[Node] = []
    async with testing.open_ring(n, seed=1, observe=note) as ring:
        watched.append(ring[0])
        for node in ring.nodes[1:]:
            await ring.kill(node)
            await trio.sleep(5)
            assert await get(app_of(ring[0]), "/readyz") == (200, "ok\n")
        watched.clear()
    assert failing == []


def test_dead_peers_never_make_a_node_unready() -> None:
    testing.run(check_ready_while_others_die, 3, seed=1)


def every_listed_node_lives(node: Node) -> Condition:
    peers = node._host.peers
    listed = [contact for vnode in node._host.vnodes.values() for contact in vnode.ring.successors]
    return Condition("successor", not any(peers.is_dead(contact) for contact in listed), "planted bug")


def test_planted_unreadiness_after_a_death_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_successor", every_listed_node_lives)
    with pytest.raises(AssertionError):
        testing.run(check_ready_while_others_die, 3, seed=1)


@virtual
async def test_node_with_broken_pointers_stays_ready() -> None:
    """A node is ready although the invariants of the ring do not hold."""
    async with testing.open_ring(4, seed=1) as ring:
        state = next(iter(ring[0]._host.vnodes.values())).ring
        state.successors = state.successors[:1] + state.successors[:0:-1]  # in the wrong order
        assert ring.violations()
        assert (await get(app_of(ring[0]), "/readyz"))[0] == 200


@virtual
async def test_stopped_event_loop_fails_liveness() -> None:
    async with testing.open_ring(1, seed=1) as ring, trio.open_nursery() as nursery:
        heartbeat = Heartbeat(trio.current_time)
        app = health_app(ring[0], heartbeat)
        await trio.sleep(TURNED_WITHIN_S + 1)  # the heartbeat does not run: the loop of a real process stands still
        status, text = await get(app, "/livez")
        assert (status, text) == (503, "[-] loop: the event loop turned 6.0 s ago\n")
        nursery.start_soon(heartbeat.run)
        await trio.sleep(TURNED_WITHIN_S + 1)
        assert (await get(app, "/livez?verbose"))[0] == 200
        nursery.cancel_scope.cancel()


def test_http_without_the_extra_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_module, "find_spec", lambda name: None if name == "hypercorn" else cast(Any, object()))
    with pytest.raises(Failure) as caught:
        _open_http("127.0.0.1:0")
    assert caught.value.exit_code == 2
    assert "hypercorn" in caught.value.message
    assert "chord[web]" in caught.value.hint


def test_http_on_a_port_in_use_names_the_address(ports: Ports) -> None:
    address = ports.address()
    with _open_http(address), pytest.raises(Failure) as caught:
        _open_http(address)
    assert caught.value.exit_code == 2
    assert caught.value.message == f"cannot serve health and metrics on {address} (address already in use)"


@pytest.mark.slow
def test_node_process_serves_health_until_its_end(ports: Ports) -> None:
    address = ports.address()
    with Peers() as peers:
        peer = peers.start("--http", address)
        peer.ready()
        for path, beginning in (("livez", "ok"), ("readyz", "ok"), ("metrics", "# HELP chord_build_info")):
            with urllib.request.urlopen(f"http://{address}/{path}", timeout=HANG_S) as answer:
                assert answer.status == 200
                assert answer.read().decode().startswith(beginning)
        other = peers.start("--http", address)
        assert other.ended() == 2
        assert "cannot serve health and metrics" in other.errors()
        peer.kill(signal.SIGTERM)
        assert peer.ended() == 0
        assert "Traceback" not in peer.errors()
