"""Measure how fast the dashboard's page reacts: its first load, a killed node, frames per second.

    python -m benchmarks.page [--only load,kill,frames,parts] [--json]

The page is opened in Chromium without a window and without a GPU. The parts are:

- load: milliseconds from the request for the page until a click on a node has shown its side panel. The ring has 16
  processes. The page is new to the browser each time, so nothing is cached.
- kill: milliseconds from the event of the first node that knows of a killed node until the page shows a cross.
- frames: frames per second of models of rings with exact fingers. On 64 nodes a lookup moves, and on 1,000 a lens. An
  empty page in the same browser shows what this machine can draw.
- parts: what a large ring costs. The bytes of its whole state, and the milliseconds in which the page derives its
  picture and groups it into 360 parts. Beside them, the bytes and milliseconds of the server's answer with these parts.
  The last figure is the milliseconds of its answer with their requests only. A page asks for it every 3 seconds.

Bars (required figures): load and kill at most 1,000 ms; at least 60 frames per second at 64 nodes, and 30 at 1,000.
The requests for the band of a page cost the server at most 5 % of a core.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import trio
from playwright.sync_api import Browser, Page, sync_playwright

import chord
from benchmarks.bars import Rows, bar, run_parts
from chord.observe.model import RingChange, RingShape
from chord.web.aggregator import Aggregator
from chord.web.heat import KEPT_S
from chord.web.hub import EventHub
from chord.web.sampling import NODES_MAX, SAMPLE_S, RingMeter
from chord.web.source import LiveRing
from chord.wire.messages import SAMPLE_BINS, SampleReply
from tests.support.real_rings import Running, ring_of, running
from tests.support.web import WebClient, app_of

NODES: Final = 16
LOADS: Final = 9
KILLS: Final = 3
REACTION_MS_MAX: Final = 1_000
CORE_MAX: Final = 5
"""The largest share of a core that a page may cost the server, in percent."""

BITS: Final = 160
SUCCESSORS: Final = 8
SECONDS: Final = 4
FRAMES_MIN: Final = {64: 60, 1000: 30}

CLICKED: Final = """() => new Promise(done => {
    const look = () => {
        const nodes = document.querySelectorAll('.ring .node');
        if (nodes.length < %d) return requestAnimationFrame(look);
        nodes[0].dispatchEvent(new MouseEvent('click', { bubbles: true }));
        const wait = () => document.querySelector('.side h2') ? done(performance.now()) : requestAnimationFrame(wait);
        wait();
    };
    look();
})"""

CROSSED: Final = """id => new Promise(done => {
    const cross = `.node[data-id='${id}'] .cross`;
    const look = () => document.querySelector(cross) ? done(Date.now()) : requestAnimationFrame(look);
    look();
})"""

FRAMES: Final = """seconds => new Promise(done => {
    const times = [];
    const frame = now => {
        times.push(now);
        if (now - times[0] < 1000 * seconds) requestAnimationFrame(frame);
        else done((times.length - 1) / (now - times[0]) * 1000);
    };
    requestAnimationFrame(frame);
})"""


LOOKUPS: Final = """() => import('./js/store.js').then(store => setInterval(
    () => store.store.isStepping || store.lookUp({ key: `key ${Math.random()}` }), 300))"""

TURNS: Final = """() => import('./js/store.js').then(store => {
    const turn = () => {
        store.set({ lens: ((store.store.lens ?? 0) + 0.002) % 1 });
        requestAnimationFrame(turn);
    };
    turn();
})"""


PARTS: Final = (1_000, 10_000)
ASKED: Final = 5

DERIVED: Final = """async () => {
    const [store, { binsOf }, { derive }] = await Promise.all(
        ['store', 'bigring', 'view'].map(name => import(`./js/${name}.js`)));
    const log = store.currentLog();
    const timed = work => {
        const began = performance.now();
        for (let i = 0; i < 10; i += 1) work();
        return (performance.now() - began) / 10;
    };
    return [timed(() => derive(log.live, log)), timed(() => binsOf(store.currentView()))];
}"""


@contextmanager
def opened() -> Iterator[Browser]:
    """Open a browser for the block."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def watched() -> Iterator[tuple[Running, str]]:
    """Start a ring and a dashboard, and give the ring and the address of the page to the block."""
    with ring_of(NODES) as ring, running("dashboard", "--node", ring.entry, "--listen", "127.0.0.1:0") as server:
        ring.level()
        yield ring, server.ready["url"]


def new_page(browser: Browser, url: str) -> Page:
    """Open the page of the ring in a context without a cache."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce").new_page()
    page.goto(url, wait_until="commit")
    return page


def load_ms(browser: Browser, url: str) -> float:
    """Return the time from the request for the page to the effect of a click."""
    page = new_page(browser, url)
    took: float = page.evaluate(CLICKED % NODES)
    page.context.close()
    return took


def first_known_ms(nodes: list[str], address: str) -> int:
    """Return the time in Unix ms at which the first of some nodes knew that an address is dead."""
    times = []
    for node in nodes:
        with chord.connect(node) as client:
            for event in client.watch(chord.GetEvents(), node).events:
                fields = dict(event.fields)
                if event.kind == "PeerChanged" and (fields["address"], fields["state"]) == (address, "dead"):
                    times.append(event.wall_ms)
    return min(times)


def kill_ms(browser: Browser, ring: Running, url: str) -> float:
    """Kill a node, and return the time from the first node that knows it to the cross on the page."""
    page = new_page(browser, url)
    page.wait_for_function("n => document.querySelectorAll('.ring .node').length === n", arg=NODES)
    page.wait_for_selector(".pill:has-text('Live')")
    victim: Any = next(node for node in ring.nodes if node["address"] != ring.entry)
    with urllib.request.urlopen(f"{url}api/v1/ring") as reply:
        vnodes = json.loads(reply.read())["vnodes"]
    (point,) = [vnode["id"] for vnode in vnodes if vnode["address"] == victim["address"]]
    os.kill(victim["pid"], signal.SIGKILL)
    shown: float = page.evaluate(CROSSED, point)
    page.context.close()
    return shown - first_known_ms([node["address"] for node in ring.nodes if node is not victim], victim["address"])


def model(nodes: int) -> str:
    """Return a recording of one state: nodes with SHA-1 ids and exact pointers."""
    names = {int(hashlib.sha1(f"n{i}:1".encode()).hexdigest(), 16): f"n{i}" for i in range(nodes)}
    points = sorted(names)

    def at_or_after(point: int) -> str:
        return str(points[bisect_left(points, point % (1 << BITS)) % nodes])

    vnodes: dict[str, Any] = {}
    for index, point in enumerate(points):
        before = points[index - 1]
        fingers: list[list[Any]] = []
        for i in range(BITS):
            target = at_or_after(point + (1 << i))
            if fingers and fingers[-1][2] == target:
                fingers[-1][1] = i
            else:
                fingers.append([i, i, target])
        vnodes[str(point)] = {
            "node": f"{names[point]}:1", "state": "member", "isolated": False, "predecessor": str(before),
            "successors": [str(points[(index + j) % nodes]) for j in range(1, SUCCESSORS + 1)], "keys": 100,
            "arcs": [{"start": str(before), "end": str(point), "epoch": 1, "state": "owned", "peer": None}],
            "fingers": fingers,
        }  # fmt: skip
    known = {
        f"{name}:1": {"name": name, "state": "ready", "keys": 300, "value_bytes": 9000, "vnodes": [str(point)]}
        for point, name in names.items()
    }
    header = {
        "chordlog": 1, "source": "model", "seed": None, "command": "python -m benchmarks.page", "bits": BITS,
        "r": SUCCESSORS, "N": 3, "W": 2, "began_ms": 0, "clock": "virtual",
    }  # fmt: skip
    lines = [header, {"t": 0.0, "k": {"nodes": known, "vnodes": vnodes}}, {"t": 1.0, "end": "model", "index": []}]
    return "".join(json.dumps(line) + "\n" for line in lines)


@contextmanager
def served(nodes: int) -> Iterator[str]:
    """Serve a model, and give the address of its page to the block."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.chordlog"
        path.write_text(model(nodes))
        command = [sys.executable, "-m", "chord", "dashboard", "--play", str(path), "--listen", "127.0.0.1:0", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                yield json.loads(server.stdout.readline())["url"]
            finally:
                server.terminate()


def load(_: argparse.Namespace) -> Rows:
    """Measure the first load of the page."""
    with opened() as browser, watched() as (_ring, url):
        return _reaction("load", [load_ms(browser, url) for _number in range(LOADS)])


def kill(_: argparse.Namespace) -> Rows:
    """Measure how soon the page shows a killed node, each time in a new ring."""
    times = []
    with opened() as browser:
        for _number in range(KILLS):
            with watched() as (ring, url):
                times.append(kill_ms(browser, ring, url))
    return _reaction("kill", times)


def _reaction(what: str, times: list[float]) -> Rows:
    median = statistics.median(times)
    return [
        {"op": what, "nodes": NODES, "n": len(times), "median_ms": round(median), "max_ms": round(max(times))},
        bar(f"ms until the page reacts, {what}", median, at_most=REACTION_MS_MAX),
    ]


def frames(_: argparse.Namespace) -> Rows:
    """Count the frames of rings of each size."""
    rows: Rows = []
    with opened() as browser:
        empty = browser.new_page()
        rows.append({"op": "frames", "page": "empty", "frames_s": round(empty.evaluate(FRAMES, 1), 1)})
        empty.close()
        for nodes, least in FRAMES_MIN.items():
            with served(nodes) as url:
                page = browser.new_page(viewport={"width": 1440, "height": 900})
                page.goto(url)
                page.wait_for_selector(".node, canvas")
                page.wait_for_timeout(500)
                page.evaluate(LOOKUPS if nodes == 64 else TURNS)
                counted = page.evaluate(FRAMES, SECONDS)
                page.close()
            rows.append({"op": "frames", "nodes": nodes, "frames_s": round(counted, 1)})
            rows.append(bar(f"frames a second of {nodes} nodes", counted, at_least=least))
    return rows


def parts(_: argparse.Namespace) -> Rows:
    """Measure a large ring: its whole state on the page, and its parts from the server."""
    rows: Rows = []
    with opened() as browser:
        for nodes in PARTS:
            with served(nodes) as url:
                times = []
                for _number in range(ASKED):
                    began = time.perf_counter()
                    with urllib.request.urlopen(f"{url}api/v1/ring?bins=360") as reply:
                        answer = reply.read()
                    times.append(1000 * (time.perf_counter() - began))
                page = browser.new_page(viewport={"width": 1440, "height": 900})
                page.goto(url)
                page.wait_for_selector("canvas")
                derive_ms, bins_ms = page.evaluate(DERIVED)
                page.close()
                rows.append({
                    "op": "parts", "nodes": nodes, "state_kB": round(_state_bytes(url) / 1000),
                    "derive_ms": round(derive_ms, 1), "bins_ms": round(bins_ms, 2),
                    "answer_kB": round(len(answer) / 1000), "answer_ms": round(statistics.median(times)),
                })  # fmt: skip
            requests_ms = _requests_ms(nodes)
            rows[-1]["requests_ms"] = round(requests_ms, 1)
            share = round(requests_ms / (10 * SAMPLE_S), 2)
            rows.append(bar(f"% of a core for the requests of {nodes} nodes", share, at_most=CORE_MAX))
    return rows


def _requests_ms(nodes: int) -> float:
    """Return the milliseconds in which the server answers with the requests of a living ring."""
    now_s = KEPT_S
    origin = LiveRing(Aggregator([], 0.0), lambda: now_s, 0)
    aggregator = origin.aggregator
    aggregator.model.apply(msgspec.convert(json.loads(model(nodes).splitlines()[1])["k"], RingChange))
    aggregator.shape = RingShape(BITS, SUCCESSORS, 3)
    for address in aggregator.model.nodes:
        aggregator._add(address, now_s)
        aggregator._nodes[address].described_s = now_s
    meter = RingMeter(origin, EventHub(origin))
    for second in range(0, round(KEPT_S), round(SAMPLE_S)):
        for address in meter.nodes():
            meter.requests.add(float(second), address, SampleReply(0, 1 + second, (second,) * SAMPLE_BINS, ()))

    async def ask() -> float:
        web, times = WebClient(app_of(origin, meter=meter)), []
        for _number in range(ASKED):
            began = time.perf_counter()
            assert (await web.get("/api/v1/requests?bins=360")).json["counted_by"] == min(nodes, NODES_MAX)
            times.append(1000 * (time.perf_counter() - began))
        return statistics.median(times)

    return trio.run(ask)


def _state_bytes(url: str) -> int:
    """Return the length of the first state in the event stream."""
    with urllib.request.urlopen(f"{url}api/v1/events") as stream:
        for line in stream:
            if line.startswith(b"event: state"):
                next(stream)
                return len(next(stream))
    raise AssertionError("the stream has no state")


if __name__ == "__main__":
    sys.exit(run_parts(__doc__, {"load": load, "kill": kill, "frames": frames, "parts": parts}))
