"""The page of a ring that it cannot see in full: which verdicts it gives, and how it marks the nodes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.real_rings import running
from tests.web.browser.conftest import RECORDINGS
from tests.web.browser.site import Site, text_of
from tests.web.browser.test_accessible import AXE, violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Nodes = dict[str, dict[str, Any]]
Shown = Callable[[Callable[[Nodes], None]], AbstractContextManager[Site]]


@pytest.fixture(scope="module")
def shown(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """Serve the first state of a recording after a change of its nodes."""
    with gzip.open(RECORDINGS / "kill.chordlog.gz", "rt") as lines:
        header, first = next(lines), next(lines)

    @contextmanager
    def serve(change: Callable[[Nodes], None]) -> Iterator[Site]:
        keyframe = json.loads(first)
        change(keyframe["k"]["nodes"])
        path: Path = tmp_path_factory.mktemp("state") / "state.chordlog"
        path.write_text(header + json.dumps(keyframe) + '\n{"t":1.0,"end":"model","index":[]}\n')
        with running("dashboard", "--play", str(path), "--listen", "127.0.0.1:0") as server:
            yield Site(browser, server.ready["url"], server)

    return serve


def select(page: Page, name: str) -> None:
    page.evaluate(
        "name => import('./js/store.js').then("
        "s => s.selectNode(s.currentView().vnodes.find(vnode => vnode.name === name).id))", name
    )  # fmt: skip
    page.wait_for_selector(f".side h2:has-text('{name}')")


def test_ring_that_is_seen_in_part_gets_no_verdict(shown: Shown) -> None:
    def hide(nodes: Nodes) -> None:
        for address in ("n2:1", "n3:1"):
            nodes[address]["state"] = "unreachable"

    with shown(hide) as site, site.open() as page:
        page.wait_for_selector(".node")
        assert text_of(page, ".verdict h2") == "Part of the ring does not respond"
        assert "No verdict on some invariants" in text_of(page, ".verdict")
        held = page.eval_on_selector_all(".left .marks li .sr", "all => all.map(one => one.textContent.trim())")
        assert (held.count("not determined:"), held.count("holds:"), held.count("violated:")) == (6, 2, 0)
        assert "Not yet correct" not in text_of(page, ".left"), "the lists may be correct: n2 and n3 may live"
        assert "2 of 16" in (page.text_content(".ring") or "")
        page.evaluate(AXE)
        assert violations(page) == []
        select(page, "n2")
        assert text_of(page, ".side .pill") == "unreachable"
        assert "No node declares n2 dead." in text_of(page, ".side .note")
        assert "chord forget" not in text_of(page, ".side")
        assert site.problems == []


def test_paused_node_has_two_bars_and_is_not_dead(shown: Shown) -> None:
    def pause(nodes: Nodes) -> None:
        nodes["n2:1"]["state"] = "unreachable"
        nodes["n1:1"]["suspects"] = {"n2:1": {"state": "paused", "reason": "paused"}}
        nodes["n3:1"]["suspects"] = {"n2:1": {"state": "dead", "reason": "connection refused"}}

    with shown(pause) as site, site.open() as page:
        page.wait_for_selector(".node")
        select(page, "n2")
        assert text_of(page, ".side .pill") == "paused"
        assert "n2 has announced that it stops for a while" in text_of(page, ".side .note")
        point = page.evaluate("import('./js/store.js').then(({ store }) => store.selected)")
        bars = page.get_attribute(f".node[data-id='{point}'] .hwarn .cross", "d")
        assert bars is not None
        assert bars.count("V") == 2
        assert site.problems == []


LIVE_DEMO: Final = """() => import('./js/store.js').then(({ set, store }) => {
    Object.assign(store.server, { isDemo: true, isOpen: true, lastMs: Date.now() + 1e9 });
    set({ source: 'live' });
})"""

BUTTONS: Final = ".side section:has(h2:has-text('Demo ring')) button"


def test_demonstration_offers_what_may_be_possible(shown: Shown) -> None:
    def hide(nodes: Nodes) -> None:
        nodes["n2:1"]["state"] = "unreachable"

    with shown(hide) as site, site.open() as page:
        page.wait_for_selector(".node")
        page.evaluate(LIVE_DEMO)
        both = ["Split the network here", "Heal the network"]
        for name, expected in (
            ("n2", ["Thaw n2", "Start n2 again", *both]),  # a fault line may be missing: it is frozen, or dead
            ("n1", ["Kill n1", "Freeze", "Leave", *both]),
        ):
            select(page, name)
            page.wait_for_selector(BUTTONS)
            assert page.eval_on_selector_all(BUTTONS, "all => all.map(one => one.textContent.trim())") == expected
        page.evaluate("""import('./js/store.js').then(({ set, store }) => {
            store.live.faults.push({ t: 0, do: 'stop', groups: [['n2']] }, { t: 0, do: 'partition', groups: [] });
            set({});
        })""")
        select(page, "n2")
        page.wait_for_selector("button:has-text('Kill n2')")
        names = page.eval_on_selector_all(BUTTONS, "all => all.map(one => one.textContent.trim())")
        assert names == ["Thaw n2", "Start n2 again", "Kill n2", "Heal the network"]


def test_split_halves_the_ring_of_now(shown: Shown) -> None:
    with shown(lambda nodes: None) as site, site.open() as page:
        page.wait_for_selector(".node")
        half, gone = page.evaluate("""Promise.all([import('./js/right.js'), import('./js/store.js')]).then(
            ([{ halfFrom }, { currentView, store }]) => {
                const { members } = currentView();
                const log = store.live;
                log.push({ t: log.endsS + 1, d: { gone: [members[1].id, members[1].node] } });
                log.at = log.beginsS;
                return [halfFrom(members[0].owner), members[1].node];
            })""")
        assert len(half) == 7, "half of 15 nodes"
        assert all(address.endswith(":1") for address in half)
        assert gone not in half
    assert site.problems == []


def test_lost_ring_and_its_pointers_are_grey(shown: Shown) -> None:
    with shown(lambda nodes: None) as site, site.open() as page:
        page.wait_for_selector(".node")
        select(page, "n2")
        page.wait_for_selector(".ring .chord")
        page.evaluate("""import('./js/store.js').then(({ set, store }) => {
            store.server.lastMs = 1;
            set({ source: 'live' });
        })""")
        page.wait_for_selector(".overlay:has-text('No contact with the dashboard')")
        filters = page.eval_on_selector_all(
            ".ring .static, .ring .pointers", "all => all.map(one => getComputedStyle(one).filter)"
        )
        assert filters == ["grayscale(1)", "grayscale(1)"]
        page.evaluate(AXE)
        assert violations(page) == []
        assert site.problems == []
