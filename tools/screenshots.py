"""The pictures of the dashboard in the documentation: Chromium without a window, on recordings.

`python tools/screenshots.py` writes them into `docs/images`. With a folder as its argument, it writes every page in
light, dark, narrow and print there. It adds rings in trouble: frozen and paused nodes, a split network, nodes that do
not respond, no server. It needs `/usr/bin/chromium`, and the fonts `fonts-inter` and `fonts-jetbrains-mono` for the
same pictures everywhere.
"""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

ROOT: Final = Path(__file__).parents[1]
IMAGES: Final = ROOT / "docs" / "images"
RECORDINGS: Final = ROOT / "chord" / "web" / "static" / "recordings"
BYTES_MAX: Final = 60_000
WIDE: Final = (1440, 900)
SMALL: Final = (1200, 760)
NARROW: Final = (390, 844)
LOOKS: Final = (("light", WIDE, "light"), ("dark", WIDE, "dark"), ("light", NARROW, "narrow"))
BEFORE_S, AFTER_S, SPLIT_S = 7.5, 8.7, 18.0


@contextmanager
def dashboard(recording: Path) -> Iterator[str]:
    """Serve a recording, and give the address of its page to the block."""
    command = [sys.executable, "-m", "chord", "dashboard", "--play", str(recording), "--json"]
    with subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.terminate()


@contextmanager
def demonstration() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run a ring of five processes with a dashboard, and give its address and its process to the block."""
    command = [sys.executable, "-m", "chord", "up", "-n", "5", "--web", "127.0.0.1:0", "--demo", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as ring:
        assert ring.stdout is not None
        try:
            yield json.loads(ring.stdout.readline())["dashboard"], ring
        finally:
            ring.terminate()


@contextmanager
def opened(browser: Browser, url: str, place: str, theme: str, size: tuple[int, int] = WIDE) -> Iterator[Page]:
    """Open a page, with motion reduced to steps."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce", device_scale_factor=2 if size == NARROW else 1,
    )  # fmt: skip
    page = context.new_page()
    page.goto(f"{url}#/{place}")
    page.wait_for_selector(".node" if place in ("ring", "keys", "recordings", "learn") else "main *")
    yield page
    context.close()


def store(page: Page, call: str) -> None:
    """Call a function of the page's store, and let the page draw."""
    page.evaluate(f"import('./js/store.js').then(store => store.{call})")
    page.wait_for_timeout(600)


def look_up(page: Page) -> None:
    """Show a finished lookup."""
    store(page, "lookUp({ key: 'photo:1234', from: 'n9' })")
    store(page, "set({ step: 99, isStepping: false })")
    store(page, "goStep(0)")


def select(page: Page, name: str) -> None:
    """Select a node by its name."""
    store(page, f"selectNode(store.currentView().vnodes.find(one => one.name === '{name}').id)")


def save(page: Page, path: Path) -> None:
    """Write a picture of the page, with at most `BYTES_MAX` bytes."""
    page.wait_for_timeout(300)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    few = picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)  # a third of the bytes
    few.save(path, optimize=True)
    size = path.stat().st_size
    assert size <= BYTES_MAX or path.parent != IMAGES, f"{path} has {size} bytes"
    sys.stdout.write(f"{path}: {size} bytes\n")


def for_documents(browser: Browser, url: str) -> None:
    """Write the pictures of the documentation."""
    with (
        dashboard(RECORDINGS / "split.chordlog.gz") as split,
        opened(browser, split, "ring", "light", SMALL) as page,
    ):
        store(page, f"seek({SPLIT_S})")
        save(page, IMAGES / "dashboard-split.png")
    with opened(browser, url, "ring", "light", SMALL) as page:
        store(page, f"seek({BEFORE_S})")
        look_up(page)
        save(page, IMAGES / "dashboard-lookup.png")
    with opened(browser, url, "ring", "dark", SMALL) as page:
        store(page, f"seek({AFTER_S})")
        select(page, "n7")
        save(page, IMAGES / "dashboard-kill.png")
    with opened(browser, url, "gallery", "light", SMALL) as page:
        page.wait_for_selector(".spacetime")
        for _ in range(14):
            page.keyboard.press("ArrowRight")
        save(page, IMAGES / "dashboard-gallery.png")
    with opened(browser, url, "learn", "light", SMALL) as page:
        page.wait_for_selector(".lesson h1")
        for _ in range(9):
            page.keyboard.press("ArrowRight")
            page.wait_for_timeout(100)
        save(page, IMAGES / "dashboard-learn.png")


def everything(browser: Browser, url: str, split: str, folder: Path) -> None:
    """Write every page in both themes, two widths and print, to look at."""
    folder.mkdir(parents=True, exist_ok=True)
    for theme, size, name in LOOKS:
        with opened(browser, url, "ring", theme, size) as page:
            store(page, f"seek({BEFORE_S})")
            save(page, folder / f"ring-{name}.png")
            look_up(page)
            save(page, folder / f"lookup-{name}.png")
            store(page, f"seek({AFTER_S})")
            select(page, "n7")
            save(page, folder / f"kill-{name}.png")
            for place in ("keys", "nodes", "metrics", "gallery", "lab", "learn"):
                page.evaluate(f"location.hash = '#/{place}'")
                page.wait_for_timeout(500)
                save(page, folder / f"{place}-{name}.png")
        with opened(browser, split, "recordings", theme, size) as page:
            store(page, f"seek({SPLIT_S})")
            save(page, folder / f"split-{name}.png")
    with opened(browser, url, "ring", "dark", (1000, 1050)) as page:
        look_up(page)
        page.emulate_media(media="print")
        save(page, folder / "print.png")


@contextmanager
def moment(states: dict[str, str], verdicts: dict[str, str]) -> Iterator[str]:
    """Serve the first state of a recording after a change, and give the address of its page to the block.

    Args:
        states: new states of nodes, by name.
        verdicts: the verdicts of n1 on other nodes, by name.
    """
    with gzip.open(RECORDINGS / "kill.chordlog.gz", "rt") as lines, TemporaryDirectory() as folder:
        header, first = next(lines), json.loads(next(lines))
        nodes = first["k"]["nodes"]
        for name, state in states.items():
            nodes[f"{name}:1"]["state"] = state
        nodes["n1:1"]["suspects"] = {f"{n}:1": {"state": state, "reason": state} for n, state in verdicts.items()}
        path = Path(folder) / "moment.chordlog"
        path.write_text(header + json.dumps(first) + '\n{"t":1.0,"end":"model","index":[]}\n', encoding="utf-8")
        with dashboard(path) as url:
            yield url


def in_part(browser: Browser, folder: Path) -> None:
    """Write the page of a ring with nodes that do not respond, and with a paused node."""
    silent = {"n2": "unreachable", "n3": "unreachable"}
    with moment(silent, {}) as part, moment({"n2": "stopped"}, {"n2": "paused"}) as paused:
        for theme, size, name in LOOKS:
            for place, file in ((part, "cut-off"), (paused, "paused")):
                with opened(browser, place, "ring", theme, size) as page:
                    select(page, "n2")
                    save(page, folder / f"{file}-{name}.png")


def in_trouble(browser: Browser, folder: Path) -> None:
    """Write the page of a ring in trouble: frozen node, split network, no server."""
    with demonstration() as (url, ring), ExitStack() as stack:
        pages = [(stack.enter_context(opened(browser, url, "ring", *look[:2])), look[2]) for look in LOOKS]
        first = pages[0][0]
        first.wait_for_function("() => document.querySelectorAll('.ring .node').length === 5")
        first.evaluate("import('./js/api.js').then(({ api }) => api.chaos('freeze', 'n2'))")
        for page, name in pages:
            page.wait_for_selector(".node .hollow")
            select(page, "n2")
            save(page, folder / f"frozen-{name}.png")
        first.evaluate("import('./js/api.js').then(({ api }) => api.partition(['n0', 'n1']))")
        for page, name in pages:
            page.wait_for_selector("h2:has-text('Cycles of successors')", state="attached")
            save(page, folder / f"cut-{name}.png")
        ring.terminate()
        for page, name in pages:
            page.wait_for_selector(".overlay")
            save(page, folder / f"lost-{name}.png")
            page.emulate_media(media="print")
            save(page, folder / f"lost-{name}-print.png")


def main() -> None:
    """Write the pictures."""
    with sync_playwright() as playwright, dashboard(RECORDINGS / "kill.chordlog.gz") as url:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        if len(sys.argv) < 2:
            for_documents(browser, url)
        else:
            with dashboard(RECORDINGS / "split.chordlog.gz") as split:
                everything(browser, url, split, Path(sys.argv[1]))
            in_part(browser, Path(sys.argv[1]))
            in_trouble(browser, Path(sys.argv[1]))
        browser.close()


if __name__ == "__main__":
    main()
