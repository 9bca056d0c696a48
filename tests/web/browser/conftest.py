"""A browser, a played recording and a real ring, for the tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.real_rings import ROOT, ring_of, running
from tests.support.tools import require_tool
from tests.web.browser.site import Site

if TYPE_CHECKING:
    from playwright.sync_api import Browser

RECORDINGS: Final = ROOT / "chord" / "web" / "static" / "recordings"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder as slow. One worker runs all of them."""
    for item in items:
        if item.nodeid.startswith("tests/web/browser/"):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser without a window.

    It ends with its module, because other tests of the same worker fail beside it. Its event loop keeps `asyncio.run`
    from starting. Its greenlets confuse the depth that `ast.parse` counts.
    """
    chromium = require_tool("chromium", "chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--force-prefers-reduced-motion"]
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def played(browser: Browser) -> Iterator[Site]:
    """The page of a recording in which a ring splits and heals."""
    recording = RECORDINGS / "split.chordlog.gz"
    with running("dashboard", "--play", str(recording), "--listen", "127.0.0.1:0") as server:
        yield Site(browser, server.ready["url"], server)


@pytest.fixture(scope="module")
def live(browser: Browser) -> Iterator[Site]:
    """The page of a ring of 8 processes."""
    with (
        ring_of(8) as ring,
        running("dashboard", "--node", ring.entry, "--listen", "127.0.0.1:0", "--write") as server,
    ):
        yield Site(browser, server.ready["url"], server, ring)
