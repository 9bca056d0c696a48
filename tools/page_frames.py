"""Frames per second of the dashboard's page: a lookup on 64 nodes, and a lens on 1,000.

`python tools/page_frames.py` plays models of rings, with exact fingers, in Chromium without a window and without
a GPU. The bars are 60 frames/s at 64 nodes with a moving lookup, and 30 at 1,000 nodes.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from playwright.sync_api import sync_playwright

ROOT: Final = Path(__file__).parents[1]
BITS: Final = 160
SUCCESSORS: Final = 8
SECONDS: Final = 4
BARS: Final = {64: 60, 1000: 30}

FRAMES: Final = """seconds => new Promise(done => {
    const times = [];
    const frame = now => {
        times.push(now);
        if (now - times[0] < 1000 * seconds) requestAnimationFrame(frame);
        else done((times.length - 1) / (now - times[0]) * 1000);
    };
    requestAnimationFrame(frame);
})"""


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
        "chordlog": 1, "source": "model", "seed": None, "command": "python tools/page_frames.py", "bits": BITS,
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
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
            assert server.stdout is not None
            try:
                yield json.loads(server.stdout.readline())["url"]
            finally:
                server.terminate()


def main() -> None:
    """Measure, and print one line for each size."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        empty = browser.new_page()
        sys.stdout.write(f"an empty page on this machine now: {empty.evaluate(FRAMES, 1):.1f} frames/s\n")
        empty.close()
        for nodes, bar in BARS.items():
            with served(nodes) as url:
                page = browser.new_page(viewport={"width": 1440, "height": 900})
                page.goto(url)
                page.wait_for_selector(".node, canvas")
                page.wait_for_timeout(500)
                if nodes == 64:
                    page.evaluate("""() => import('./js/store.js').then(store => setInterval(
                        () => store.store.isStepping || store.lookUp({ key: `key ${Math.random()}` }), 300))""")
                else:
                    page.evaluate("""() => import('./js/store.js').then(store => {
                        const turn = () => {
                            store.set({ lens: ((store.store.lens ?? 0) + 0.002) % 1 });
                            requestAnimationFrame(turn);
                        };
                        turn();
                    })""")
                frames = page.evaluate(FRAMES, SECONDS)
                sys.stdout.write(f"{nodes} nodes: {frames:.1f} frames/s (bar {bar})\n")
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
