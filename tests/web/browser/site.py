"""A served page: opens it, and reads from it what a user sees."""

from __future__ import annotations

import json
import math
import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from tests.support.real_rings import Running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WAIT_MS: Final = 60_000
"""A page reacts within a second. A loaded machine takes longer."""

MOVE: Final = re.compile(r"M(\S+) (\S+)A(\S+) \S+ 0 (\d) 1 (\S+) (\S+)")


class Site:
    """A page, its server, and the ring behind it.

    Attributes:
        problems: the errors in the console, and the requests that left the origin, since a page was opened last.
    """

    def __init__(self, browser: Browser, url: str, server: Running, ring: Running | None = None) -> None:
        self.browser = browser
        self.url = url
        self.server = server
        self._ring = ring
        self.problems: list[str] = []

    @property
    def ring(self) -> Running:
        assert self._ring is not None
        return self._ring

    @contextmanager
    def open(
        self, place: str = "ring", *, width: int = 1440, plant: tuple[str, str, str] | None = None
    ) -> Iterator[Page]:
        """Open the page, and fail if it reports an error or asks another origin.

        Args:
            place: the name of the page.
            width: the width of the window.
            plant: a bug to plant: a file, a text in it, and the text to put in its place.
        """
        self.problems.clear()
        context = self.browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce")
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("console", lambda line: self.problems.append(line.text) if line.type == "error" else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self._note(request.url))
        if plant is not None:
            self._plant(page, *plant)
        page.goto(f"{self.url}#/{place}")
        yield page
        context.close()

    def _note(self, url: str) -> None:
        if not url.startswith((self.url, "blob:" + self.url)):
            self.problems.append(f"a request leaves the origin: {url}")

    def _plant(self, page: Page, file: str, old: str, new: str) -> None:
        with urllib.request.urlopen(self.url + file) as reply:
            source = reply.read().decode()
        assert source.count(old) == 1
        body = source.replace(old, new)
        page.route(f"**/{file}", lambda route: route.fulfill(body=body, content_type="text/javascript"))

    def api(self, path: str) -> Any:
        """Return an answer of the server."""
        with urllib.request.urlopen(f"{self.url}api/v1{path}") as reply:
            return json.loads(reply.read())


def seek(page: Page, at_s: float) -> None:
    """Show a moment of the recording."""
    page.evaluate("at => import('./js/store.js').then(store => store.seek(at))", at_s)
    page.wait_for_function(
        "at => import('./js/store.js').then(s => Math.abs(s.shownS(s.currentLog()) - at) < 0.001)", arg=at_s
    )


def drawn_arcs(page: Page, radius: float = 250) -> dict[str, tuple[float, float]]:
    """Return the arc that the picture shows before each vnode: its start and end, as shares of the circle."""
    paths = page.eval_on_selector_all(
        "[data-arc]", "all => all.map(one => [one.dataset.arc, one.querySelector('.arc')?.getAttribute('d')])"
    )
    found = {}
    for point, path in paths:
        match = MOVE.match(path or "")
        if match is not None:
            x, y, _, _, u, v = map(float, match.groups())
            found[point] = (_share(x, y), _share(u, v))
    return found


def _share(x: float, y: float) -> float:
    return (math.atan2(x, -y) / math.tau) % 1


def model_of(page: Page) -> Any:
    """Return the pointers of the state that the page shows: by id, predecessor, successors and arcs."""
    return page.evaluate("""() => import('./js/store.js').then(({ currentView }) => Object.fromEntries(
        currentView().vnodes.map(vnode => [
            vnode.id, [vnode.predecessor, vnode.successors, vnode.arcs.map(arc => [arc.start, arc.end, arc.state])]])))
    """)


def model_of_server(site: Site, at_ms: int) -> Any:
    """Return the same from the server."""
    vnodes = site.api(f"/ring?at={at_ms}")["vnodes"]
    return {
        v["id"]: [v["predecessor"], v["successors"], [[a["start"], a["end"], a["state"]] for a in v["arcs"]]]
        for v in vnodes
    }


def text_of(page: Page, selector: str) -> str:
    """Return the text of an element."""
    return cast(str, page.inner_text(selector))
