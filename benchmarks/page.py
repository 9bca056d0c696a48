"""How fast the dashboard's page reacts: to its first load, and to a killed node.

`python -m benchmarks.page` starts rings of 16 processes, and opens the page in Chromium without a window. It prints:

- load: milliseconds from the request for the page until the ring is drawn and a click on a node has shown its side
  panel. The page is new to the browser each time, so nothing is cached. The bar is 1,000 ms.
- kill: milliseconds from the moment at which the first node knows of a killed node until the page shows a cross.
  The first moment is the time of that node's event. The bar is 1,000 ms.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import urllib.request
from functools import partial
from typing import Any, Final

from playwright.sync_api import Browser, Page, sync_playwright

import chord
from tests.support.real_rings import Running, ring_of, running

NODES: Final = 16
LOADS: Final = 9
KILLS: Final = 3
BAR_MS: Final = 1_000

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


def report(what: str, times: list[float]) -> None:
    """Print the median and the maximum beside the bar."""
    median, most = statistics.median(times), max(times)
    sys.stdout.write(f"{what}: median {median:.0f} ms, longest {most:.0f} ms of {len(times)} (bar {BAR_MS})\n")


def main() -> None:
    """Measure, and print one line for each figure."""
    loads, kills = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for _ in range(KILLS):
            dashboard = partial(running, "dashboard", "--listen", "127.0.0.1:0", "--node")
            with ring_of(NODES) as ring, dashboard(ring.entry) as server:
                ring.level()
                url = server.ready["url"]
                loads += [load_ms(browser, url) for _ in range(LOADS // KILLS)]
                kills.append(kill_ms(browser, ring, url))
        browser.close()
    report("load", loads)
    report("kill", kills)


if __name__ == "__main__":
    main()
