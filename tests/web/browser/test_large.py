"""The page of a ring with more than 256 vnodes: its parts are those that the server counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from benchmarks.page import model
from tests.support.real_rings import running
from tests.web.browser.site import Site, text_of
from tests.web.browser.test_accessible import AXE, violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NODES: Final = 300
BINS: Final = 360

COUNTED: Final = """() => Promise.all([import('./js/bigring.js'), import('./js/store.js')]).then(
    ([{ binsOf }, { currentView }]) => binsOf(currentView()).map(bin => [bin.count, bin.keys, bin.arc, bin.dead]))"""

INK: Final = """() => {
    const canvas = document.querySelector('canvas');
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return data.reduce((sum, value, i) => sum + (i % 4 === 3 ? value : 0), 0);
}"""
"""The sum of the opacity of all pixels of the picture."""


@pytest.fixture(scope="module")
def large(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The page of a model of a large ring."""
    path: Path = tmp_path_factory.mktemp("large") / "model.chordlog"
    path.write_text(model(NODES))
    with running("dashboard", "--play", str(path), "--listen", "127.0.0.1:0") as server:
        yield Site(browser, server.ready["url"], server)


def test_parts_of_page_and_server_agree(large: Site) -> None:
    with large.open() as page:
        page.wait_for_selector("canvas")
        page.wait_for_selector("text=/300 nodes/")
        parts = large.api(f"/ring?bins={BINS}")["bins"]
        shown = page.evaluate(COUNTED)
        assert [one[:2] for one in shown] == [[part["vnodes"], part["keys"]] for part in parts]
        assert [one[2] for one in shown] == [pytest.approx(part["largest_arc"], abs=2e-6) for part in parts]
        assert [one[3] for one in shown] == [part["dead"] for part in parts]
        assert sum(part["nodes"] for part in parts) == NODES
    assert large.problems == []


def test_band_of_a_recording_has_no_requests(large: Site) -> None:
    with large.open() as page:
        page.wait_for_selector("canvas")
        names = page.eval_on_selector_all(".tools button", "all => all.map(one => one.textContent)")
        assert names == ["nodes", "keys"]
        page.click(".tools button:has-text('keys')")
        page.wait_for_selector(".marks:has-text('few to many keys')")
    assert large.problems == []


def test_band_shows_the_requests_that_the_server_counts(large: Site) -> None:
    answer = large.api(f"/ring?bins={BINS}")
    for number, part in enumerate(answer["bins"]):
        part["requests"] = 7.0 if number == 90 else 0.0
    with large.open() as page:
        page.route(f"**/api/v1/ring?bins={BINS}", lambda route: route.fulfill(body=json.dumps(answer)))
        page.wait_for_selector("canvas")
        before = page.evaluate(INK)
        page.evaluate("import('./js/store.js').then(({ set }) => set({ source: 'live' }))")
        page.click(".tools button:has-text('requests')")
        page.wait_for_function(
            "() => import('./js/store.js').then(({ store }) => store.binRequests?.indexOf(7) === 90)"
        )
        assert "few to many requests" in text_of(page, ".side .marks")
        page.wait_for_function(f"before => ({INK})() < before", arg=before)


def test_events_of_a_large_ring_are_counted(large: Site) -> None:
    with large.open() as page:
        page.wait_for_selector("canvas")
        page.evaluate("""import('./js/store.js').then(({ currentLog, set }) => {
            const log = currentLog();
            const says = (t, kind, fields) => log.events.push({ t, node: 'n1:1', kind, fields });
            says(0.1, 'RingJoined', {});
            for (const t of [0.2, 0.3]) says(t, 'PeerChanged', { address: 'n2:1', state: 'suspect' });
            says(0.4, 'PeerChanged', { address: 'n2:1', state: 'dead' });
            says(0.9, 'PeerChanged', { address: 'n3:1', state: 'suspect' });
            log.at = 0.5;
            set({});
        })""")
        page.wait_for_selector(".events .counts")
        rows = page.eval_on_selector_all(".events li", "all => all.map(one => one.textContent)")
        assert rows == ["2suspicions", "1joins", "1verdicts of death"], "one suspicion is later than the shown moment"
    assert large.problems == []


def test_table_of_a_large_ring_begins_with_the_largest_arcs(large: Site) -> None:
    with large.open("nodes") as page:
        page.wait_for_selector("table.nodes tbody tr")
        assert page.get_attribute("table.nodes th:has-text('owns')", "aria-sort") == "descending"
        vnodes = sorted(large.api("/ring")["vnodes"], key=lambda vnode: -vnode["owned"])
        names = "all => all.map(one => one.textContent.trim())"
        shown = page.eval_on_selector_all("table.nodes tbody tr button", names)
        assert shown[:5] == [vnode["node"] for vnode in vnodes[:5]]
    assert large.problems == []


def test_page_of_a_large_ring_violates_no_rule_of_axe(large: Site) -> None:
    with large.open() as page:
        page.wait_for_selector("canvas")
        page.evaluate(AXE)
        for width in (1440, 390):
            page.set_viewport_size({"width": width, "height": 900})
            for theme in ("light", "dark"):
                page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
                assert violations(page) == [], (theme, width)
