"""`chord dashboard` and `chord up --web`: wrong options, and one ring of processes with both."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from chord.observe.chordlog import BYTES_MAX, Chordlog, unpack
from tests.support.cli import Run
from tests.support.ports import Ports
from tests.support.real_rings import HANG_S, HEALED_S, ring_of, running
from tests.support.schemas import check_shape


@pytest.mark.parametrize("content", [b"", b"{}\n", b'{"chordlog":2}\n', b"\x1f\x8bxx", b"\x00" * 99])
def test_bad_recording_is_not_played(run: Run, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.chordlog"
    path.write_bytes(content)
    ended = run("dashboard", "--play", str(path), "--json")
    assert ended.code == 2
    ended.failure("bad_recording")


def test_missing_recording_is_not_played(run: Run) -> None:
    ended = run("dashboard", "--play", "/nowhere/x.chordlog", "--json")
    assert ended.code == 2
    ended.failure("file")


def test_recording_that_is_too_long_is_not_played(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "long.chordlog.gz"
    path.write_bytes(gzip.compress(bytes(BYTES_MAX + 1), 1))
    ended = run("dashboard", "--play", str(path), "--json")
    assert ended.code == 2
    assert "64 MiB" in ended.failure("bad_recording")["message"]


@pytest.mark.parametrize("command", [["dashboard"], ["up", "--web"]])
def test_missing_extra_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    monkeypatch.setitem(sys.modules, "hypercorn", None)
    ended = run(*command, "--json")
    assert ended.code == 2
    failure = ended.failure("not_installed")
    assert "hypercorn" in failure["message"]
    assert "chord[web]" in failure["hint"]


@pytest.mark.parametrize("command", [
    ["dashboard", "--play", __file__, "--write"],
    ["dashboard", "--play", __file__, "--record", "x"],
    ["dashboard", "--keys"],
    ["dashboard", "--listen", "9080"],
    ["up", "--demo"],
    ["up", "--web", "nowhere"],
])  # fmt: skip
def test_contradicting_options_are_refused(run: Run, command: list[str]) -> None:
    ended = run(*command, "--json")
    assert ended.code == 2
    ended.failure("usage")


def test_demonstration_beyond_loopback_is_refused(run: Run) -> None:
    ended = run("up", "--web", "0.0.0.0:0", "--demo", "--json")
    assert ended.code == 2
    failure = ended.failure("open_demo")
    assert "kill peers" in failure["message"]
    assert "ssh -L" in failure["hint"]


def test_address_in_use_is_an_error(run: Run, ports: Ports) -> None:
    address = ports.address()
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
        for command in (["dashboard", "--listen", address], ["up", "--web", address]):
            ended = run(*command, "--json")
            assert ended.code == 2
            assert address in ended.failure("listen")["message"]


def test_recording_that_cannot_be_written_is_an_error(run: Run, ports: Ports) -> None:
    ended = run("dashboard", "--record", "/proc/nowhere/x.chordlog", "--listen", ports.address(), "--json")
    assert ended.code == 2


class Page:
    """The HTTP interface of a running dashboard."""

    def __init__(self, url: str) -> None:
        self._place = urlsplit(url)

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = HTTPConnection(self._place.hostname or "", self._place.port or 0, timeout=HANG_S)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, f"/api/v1{path}", content, {"X-Chord": "1"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def settled(self) -> Any:
        deadline = time.monotonic() + HEALED_S
        while True:
            _, verdict = self("GET", "/check")
            check_shape("api-check", verdict)
            if verdict["settled"]:
                return self("GET", "/ring")[1]
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + HEALED_S
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def verdicts(self) -> set[tuple[str, bool | None]]:
        """Return whether each invariant holds."""
        return {(one["name"], one["holds"]) for one in self("GET", "/check")[1]["invariants"]}

    def successors(self) -> dict[str, str]:
        """Return the node of the first successor of each node, by name."""
        vnodes = self("GET", "/ring")[1]["vnodes"]
        names = {vnode["id"]: vnode["node"] for vnode in vnodes}
        listed = {vnode["node"]: vnode["successors"][0] for vnode in vnodes if vnode["successors"]}
        return {node: names[head] for node, head in listed.items() if head in names}  # a newcomer is listed first

    def ready(self, n: int) -> None:
        """Wait until the dashboard shows a settled ring of `n` nodes."""
        deadline = time.monotonic() + HEALED_S
        while sum(node["state"] == "ready" for node in self.settled()["nodes"]) < n:
            assert time.monotonic() < deadline


@pytest.mark.slow
def test_demonstration_is_controlled_recorded_and_played(tmp_path: Path) -> None:
    path = tmp_path / "ring.chordlog"
    with ring_of(3, "--web", "127.0.0.1:0", "--demo") as ring:
        check_shape("up", ring.ready)
        page = Page(ring.ready["dashboard"])
        assert len(page.settled()["nodes"]) == 3
        listen = ("--node", ring.entry, "--listen", "127.0.0.1:0")
        with running("dashboard", *listen, "--record", str(path)) as dashboard:
            check_shape("dashboard", dashboard.ready)
            other = Page(dashboard.ready["url"])
            other.settled()
            assert page("PUT", "/keys/YQ", {"value": "secret value"})[0] == 200
            assert other("PUT", "/keys/YQ", {"value": "Ada"})[1]["error"]["code"] == "read_only"
            assert other("POST", "/chaos", {"do": "kill", "node": "n1"})[1]["error"]["code"] == "no_demo"
            assert page("POST", "/chaos", {"do": "kill", "node": "n1"})[0] == 200
            assert page("POST", "/chaos", {"do": "freeze", "node": "n9"})[1]["error"]["code"] == "no_effect"
            assert page("POST", "/chaos", {"do": "join"})[1]["node"] == "n3"
            assert page("POST", "/chaos", {"do": "start", "node": "n1"})[1]["node"] == "n1"
            page.ready(4)
            assert page("GET", "/keys/YQ")[1]["values"][0]["text"] == "secret value"
            other.ready(4)
            assert dashboard.stop(signal.SIGINT) == 0
    content = path.read_bytes()
    assert b"secret" not in content
    log = Chordlog(unpack(content))
    assert log.outcome == "stopped"
    assert {fields["name"] for fields in log.seek(10**6).nodes.values()} == {"n0", "n1", "n2", "n3"}
    with running("dashboard", "--play", str(path), "--listen", "127.0.0.1:0") as played:
        _, state = Page(played.ready["url"])("GET", "/ring")
        assert state["source"] == "recording"
        assert len(state["nodes"]) == 4


@pytest.mark.slow
def test_demonstration_is_split_and_heals() -> None:
    with ring_of(4, "--web", "127.0.0.1:0", "--demo") as ring:
        page = Page(ring.ready["dashboard"])
        page.settled()
        assert page("POST", "/chaos", {"do": "heal"})[1]["error"]["message"] == "the network is not split"
        status, split = page("POST", "/chaos", {"do": "partition", "nodes": ["n0", "n1"]})
        assert (status, split["groups"]) == (200, [["n0", "n1"], ["n2", "n3"]])
        page.until(lambda: ("AtMostOneRing", False) in page.verdicts())
        assert page("POST", "/chaos", {"do": "join"})[1]["node"] == "n4"
        page.until(lambda: page.successors().get("n4") in ("n2", "n3") and page.successors()["n0"] == "n1")
        assert page("POST", "/chaos", {"do": "heal"})[0] == 200
        page.ready(5)
        lines = page("GET", "/history")[1]["lines"]
        assert [line["f"]["do"] for line in lines if "f" in line] == ["partition", "heal"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_split_is_of_the_whole_ring_and_of_the_page(ports: Ports) -> None:
    split = {"do": "partition", "nodes": ["n0", "n1"]}
    with ring_of(4, "--web", "127.0.0.1:0", "--demo") as ring:
        page = Page(ring.ready["dashboard"])
        page.settled()
        own = ("--name", "n1", "--preset", "local", "--listen", ports.address())
        with running("node", "--join", ring.entry, *own) as foreign:
            page.ready(5)
            status, answer = page("POST", "/chaos", split)
            assert (status, answer["error"]["code"]) == (409, "no_effect")
            assert answer["error"]["message"].startswith(f"{foreign.entry} is a node of another command")
            wrong = page("POST", "/chaos", {"do": "kill", "node": foreign.entry})[1]["error"]["message"]
            assert wrong == f"no peer is called '{foreign.entry}'"
            assert foreign.stop() == 0
        page.until(lambda: page("POST", "/chaos", split)[0] == 200)
        page.until(lambda: ("AtMostOneRing", False) in page.verdicts())
        parent = ring.process.pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        (dashboard,) = {int(pid) for pid in children} - {node["pid"] for node in ring.nodes}
        os.kill(dashboard, signal.SIGKILL)
        assert ring("check", "--wait", str(HEALED_S), "--json").code == 0
