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
    ([{ binsOf }, { currentView }]) => binsOf(currentView()).map(bin =>
        [bin.count, bin.keys, bin.arc, bin.dead, bin.unreachable]))"""

INK: Final = """() => {
    const canvas = document.querySelector('canvas');
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return data.reduce((sum, value, i) => sum + (i % 4 === 3 ? value : 0), 0);
}"""
"""The sum of the opacity of all pixels of the picture."""


@pytest.fixture(scope="module")
def large(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The page of a model of a large ring. Of two nodes that do not answer, n8 is declared dead, and n7 is not."""
    path: Path = tmp_path_factory.mktemp("large") / "model.chordlog"
    header, first, end = model(NODES).splitlines()
    state = json.loads(first)
    nodes = state["k"]["nodes"]
    nodes["n7:1"]["state"] = nodes["n8:1"]["state"] = "unreachable"
    nodes["n1:1"]["suspects"] = {"n8:1": {"state": "dead", "reason": "no answer"}}
    path.write_text("\n".join((header, json.dumps(state), end, "")))
    with running("dashboard", "--play", str(path), "--listen", "127.0.0.1:0") as server:
        yield Site(browser, server.ready["url"], server)


def require_equal_parts(site: Site, plant: tuple[str, str, str] | None = None) -> None:
    """Compare the parts that the page counts with those of the server."""
    with site.open(plant=plant) as page:
        page.wait_for_selector("canvas")
        page.wait_for_selector("text=/300 nodes/")
        parts = site.api(f"/ring?bins={BINS}")["bins"]
        shown = page.evaluate(COUNTED)
        assert [one[:2] for one in shown] == [[part["vnodes"], part["keys"]] for part in parts]
        assert [one[2] for one in shown] == [pytest.approx(part["largest_arc"], abs=2e-6) for part in parts]
        assert [one[3] for one in shown] == [part["dead"] for part in parts]
        assert [one[4] > 0 for one in shown] == [part["worst"] == "unreachable" for part in parts]
        assert sum(part["nodes"] for part in parts) == NODES
    assert site.problems == []


def test_parts_of_page_and_server_agree(large: Site) -> None:
    require_equal_parts(large)
    parts = large.api(f"/ring?bins={BINS}")["bins"]
    assert (sum(part["dead"] for part in parts), sum(part["worst"] == "unreachable" for part in parts)) == (1, 1)


@pytest.mark.parametrize("plant", [
    ("bin.count += 1;", "bin.count += vnode.x > 0.01 ? 1 : 0;"),
    ("vnode.mark in bin", 'vnode.mark === "suspect"'),
    ("bin[vnode.mark] += 1", 'bin[vnode.isDown ? "dead" : vnode.mark] += 1'),
], ids=["lacks vnodes", "lacks the down", "no answer as death"])  # fmt: skip
def test_planted_bug_of_the_parts_is_caught(large: Site, plant: tuple[str, str]) -> None:
    with pytest.raises(AssertionError, match=r"At index \d+ diff"):
        require_equal_parts(large, ("js/bigring.js", *plant))


def test_node_without_an_answer_is_not_called_dead(large: Site) -> None:
    with large.open() as page:
        page.wait_for_selector("canvas")
        words = page.evaluate("""Promise.all([import('./js/bigring.js'), import('./js/store.js')]).then(
            ([{ downText }, { currentView }]) => downText(currentView()))""")
        assert words == "nodes, 1 of them dead, 1 without an answer"
        assert "does not respond, and that no node declares dead" in text_of(page, ".side .marks")
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
    numbers: list[float | None] = [0.0] * BINS
    numbers[90] = 7.0
    answer = {"requests": numbers, "counted_by": NODES, "nodes": NODES}
    with large.open() as page:
        page.route("**/api/v1/requests**", lambda route: route.fulfill(body=json.dumps(answer)))
        page.wait_for_selector("canvas")
        before = page.evaluate(INK)
        page.evaluate("import('./js/store.js').then(({ set }) => set({ source: 'live' }))")
        page.click(".tools button:has-text('requests')")
        page.wait_for_function(
            "() => import('./js/store.js').then(({ store }) => store.binRequests?.requests.indexOf(7) === 90)"
        )
        assert "few to many requests" in text_of(page, ".side .marks")
        page.wait_for_selector("text=300 of 300 nodes count requests.")
        assert "gaps" not in text_of(page, ".side")
        page.wait_for_function(f"before => ({INK})() < before", arg=before)
        before = page.evaluate(INK)
        numbers[100:] = [None] * (BINS - 100)
        answer["counted_by"] = 64
        page.wait_for_selector("text=64 of 300 nodes count requests. The band has gaps where none of them owns keys.")
        page.wait_for_function(f"before => ({INK})() < 0.9 * before", arg=before)


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
        counted = """([until, walked]) => Promise.all([import('./js/feed.js'), import('./js/store.js')]).then(
            ([{ counts }, { currentLog }]) => {
                const log = currentLog();
                const found = counts(log, until).map(row => [row[0], row[3]]);
                return walked ? [found, log.counted.next] : found;
            })"""
        assert page.evaluate(counted, [0.25, False]) == [["joins", 1], ["suspicions", 1]], "back"
        assert page.evaluate(counted, [0.5, True])[1] == 4, "the walk goes on from there"
        whole = [["suspicions", 3], ["joins", 1], ["verdicts of death", 1]]
        assert page.evaluate(counted, [1.0, False]) == whole
        assert page.evaluate(counted, [None, True]) == [whole, 5]
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
