"""The page of a demonstration: it splits the network of real processes, and heals it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.real_rings import ring_of
from tests.web.browser.site import Site, text_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SELECT: Final = """name => import('./js/store.js').then(
    s => s.selectNode(s.currentView().vnodes.find(vnode => vnode.name === name).id))"""


@pytest.fixture(scope="module")
def demo(browser: Browser) -> Iterator[Site]:
    """The page of `chord up --web --demo` with six peers."""
    with ring_of(6, "--web", "127.0.0.1:0", "--demo") as ring:
        yield Site(browser, ring.ready["dashboard"], ring, ring)


def test_page_splits_the_network_and_heals_it(demo: Site) -> None:
    with demo.open() as page:
        page.wait_for_function("() => document.querySelectorAll('.ring .node').length === 6")
        page.wait_for_selector(".pill:has-text('Live')")
        page.evaluate("import('./js/api.js').then(({ api }) => api.chaos('kill', 'n5'))")
        page.wait_for_selector("text=n5 declared dead by")
        page.wait_for_selector(".node .cross")
        page.evaluate(SELECT, "n0")
        page.click("button:has-text('Split the network here')")
        page.wait_for_selector("h2:has-text('Cycles of successors')")
        cycles = [one.split() for one in text_of(page, ".left section:has(h2:has-text('Cycles')) ul").splitlines()]
        assert [len(names) for names in cycles if names] == [3, 2]
        page.wait_for_selector(".left :text('The ring is split into two rings')")  # the server's check follows
        page.wait_for_selector("text=The network is cut:")
        page.evaluate(SELECT, "n5")
        page.wait_for_selector(".side .pill:has-text('dead')")
        page.click("button:has-text('Heal the network')")
        page.wait_for_selector("text=The network is whole again")
        page.wait_for_selector("h2:has-text('Cycles of successors')", state="detached")
        page.wait_for_selector("button:has-text('Split the network here')")
    assert demo.problems == []
