"""The page on a recording: the picture, and the steps of a user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.web.browser.conftest import RECORDINGS
from tests.web.browser.site import Site, drawn_arcs, model_of, model_of_server, seek, text_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

BEGAN_MS = 1_800_000_000_000
CUT_S, SPLIT_S, WHOLE_S = 2.0, 18.0, 35.0


def check_arcs(site: Site, page: Page, at_s: float) -> None:
    """Check that each drawn arc is the arc that its vnode owns."""
    seek(page, at_s)
    vnodes = site.api(f"/ring?at={BEGAN_MS + round(1000 * at_s)}")["vnodes"]
    drawn = drawn_arcs(page)
    owned = {v["id"]: arc for v in vnodes for arc in v["arcs"] if arc["state"] == "owned"}
    assert drawn.keys() == owned.keys()
    for point, arc in owned.items():
        start, end = (int(arc[side]) / 2**160 for side in ("start", "end"))
        assert drawn[point] == (pytest.approx(start, abs=1e-4), pytest.approx(end, abs=1e-4)), point


def check_state(site: Site, page: Page, at_s: float) -> None:
    """Check that the page and the server have the same state."""
    seek(page, at_s)
    assert model_of(page) == model_of_server(site, BEGAN_MS + round(1000 * at_s))


@pytest.fixture(scope="module")
def shown(played: Site) -> Iterator[Page]:
    """A page that several tests only look at."""
    with played.open() as page:
        page.wait_for_selector(".node")
        yield page
        assert played.problems == []


def test_arcs_of_the_picture_are_those_of_the_nodes(played: Site, shown: Page) -> None:
    check_arcs(played, shown, CUT_S)
    check_arcs(played, shown, WHOLE_S)


def test_page_applies_every_delta(played: Site, shown: Page) -> None:
    for at_s in (CUT_S, 7.0, SPLIT_S, 30.1, WHOLE_S):
        check_state(played, shown, at_s)


def test_verdicts_of_page_and_server_agree(played: Site, shown: Page) -> None:
    for at_s in (CUT_S, 7.0, SPLIT_S, 30.1, WHOLE_S):
        seek(shown, at_s)
        found = shown.evaluate("""() => import('./js/store.js').then(({ currentViolations, currentView }) =>
            [...new Set(currentViolations(currentView()).map(one => one.invariant))].sort())""")
        verdict = played.api(f"/check?at={BEGAN_MS + round(1000 * at_s)}")
        assert found == sorted(one["name"] for one in verdict["invariants"] if one["violations"]), at_s


HAS_STATE = """() => import('./js/store.js').then(({ store }) => store.seenMs.mark && store.live?.keyframes.length)"""


def test_page_goes_on_with_the_state_after_a_reset(played: Site) -> None:
    ring = played.api("/ring")
    state = next(line["k"] for line in played.api("/history")["lines"] if "k" in line)
    messages = {
        "hello": {"ring": {name: ring[name] for name in ("bits", "r", "N", "W")}, "source": "live",
                  "at_ms": BEGAN_MS, "from_ms": BEGAN_MS, "to_ms": BEGAN_MS, "write": False, "demo": False},
        "reset": {"at_ms": BEGAN_MS},
        "state": {"seq": 1, "at_ms": BEGAN_MS, "seen_ms": {"mark": 1}, **state},
    }  # fmt: skip
    stream = "".join(f"event: {name}\ndata: {json.dumps(content)}\n\n" for name, content in messages.items())
    with played.open() as page:
        page.wait_for_selector(".node")
        page.route("**/api/v1/history**", lambda route: route.fulfill(body='{"lines": []}'))
        page.route("**/api/v1/events", lambda route: route.fulfill(body=stream, content_type="text/event-stream"))
        page.evaluate("import('./js/store.js').then(({ connect }) => connect())")
        page.wait_for_function(HAS_STATE)
        page.wait_for_selector(".node")


def test_arc_that_is_off_by_one_vnode_is_noticed(played: Site) -> None:
    bug = (
        "js/ring.js",
        "for (const arc of vnode.owned) comet",
        "const all = scene.view.vnodes;\n"
        "    for (const arc of all[(all.indexOf(vnode) + 1) % all.length].owned) comet",
    )
    with played.open(plant=bug) as page:
        page.wait_for_selector(".node")
        with pytest.raises(AssertionError):
            check_arcs(played, page, CUT_S)


def test_lost_delta_is_noticed(played: Site) -> None:
    bug = ("js/log.js", "else if (line.d) state = applied(state, line.d);",
           "else if (line.d && next % 7) state = applied(state, line.d);")  # fmt: skip
    with played.open(plant=bug) as page:
        page.wait_for_selector(".node")
        with pytest.raises(AssertionError):
            check_state(played, page, SPLIT_S)


def test_split_recording_plays_until_one_ring_remains(played: Site) -> None:
    with played.open() as page:
        page.wait_for_selector(".node")
        assert "whole" in text_of(page, ".verdict h2")
        page.click("text=8×")
        page.click("[aria-label=Play]")
        page.wait_for_function("() => document.querySelector('.verdict h2').innerText === 'The ring is split'")
        page.wait_for_selector(".loop.bad")
        assert page.text_content(".ring .middle") == "2 rings"
        assert "The ring is split into two rings" in text_of(page, ".left")
        page.wait_for_function("() => document.querySelector('.verdict h2').innerText === 'The ring is whole'")
        assert page.query_selector(".loop") is None
        assert len(page.query_selector_all(".node")) == 12
    assert played.problems == []


def test_keys_page_without_a_key_shows_no_skew_of_keys(played: Site) -> None:
    no_keys = ("js/pages.js", "const view = currentView();\n  const rows = [...view.members]",
               "const view = { ...currentView(), keys: 0 };\n  const rows = [...view.members]")  # fmt: skip
    with played.open(plant=no_keys) as page:
        page.wait_for_selector(".node")
        page.click("nav >> text=Keys")
        page.wait_for_selector("text=expected of 12 arcs")
        assert "0 keys" in text_of(page, ".verdict h2")
        assert "largest over mean, keys" not in text_of(page, ".left")


def test_keyboard_alone_finds_a_key_and_steps(played: Site) -> None:
    with played.open() as page:
        page.wait_for_selector(".node")
        page.keyboard.press("/")
        page.keyboard.type("photo:1234")
        page.keyboard.press("Enter")
        page.wait_for_selector(".hops li")
        page.keyboard.press("Escape")
        page.focus(".node[tabindex='0']")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.wait_for_selector("[role=tab][aria-selected=true]:has-text('Node')")
        name = text_of(page, "#tabpanel h2")
        page.focus("[role=tab][aria-selected=true]")
        page.keyboard.press("ArrowLeft")
        page.wait_for_selector("#find")
        page.focus("body")
        page.keyboard.press("/")
        page.keyboard.type("key 7")
        page.keyboard.press("Enter")
        page.wait_for_selector(".hops li .mark.start, .hops li .mark.owner")
        assert name in text_of(page, ".hops li:first-child")
        page.evaluate("document.activeElement.blur()")
        steps = len(page.query_selector_all(".hops li"))
        for _ in range(steps):
            page.keyboard.press("ArrowRight")
        page.wait_for_function("() => !document.querySelector('.hops li.later')")
    assert played.problems == []


def test_recording_from_a_file_is_played(played: Site) -> None:
    with played.open("recordings") as page:
        page.click("text=Open another")
        page.set_input_files("#file", str(RECORDINGS / "lesson-death.chordlog"))
        page.wait_for_selector("text=lesson-death.chordlog")
        seek(page, 1.3)
        page.wait_for_selector(".ring .cover")
        assert "200 covers for 160" in (page.text_content(".cover-label") or "")
        page.click("text=Open another")
        page.set_input_files("#file", {"name": "bad.chordlog", "mimeType": "text/plain", "buffer": b"nothing\n"})
        page.wait_for_selector("text=This file is no recording")
    assert played.problems == []


def test_lookup_of_the_page_takes_the_hops_of_the_nodes(played: Site) -> None:
    with played.open("learn") as page:
        page.wait_for_selector(".node")
        found = page.evaluate("""async () => {
            const [{ fetchLog }, { lookupInState, stepsOf }, { derive }] = await Promise.all(
                ['store', 'lookup', 'view'].map(name => import(`./js/${name}.js`)));
            const log = await fetchLog('recordings/lesson-ring.chordlog');
            const view = derive(log.live, log);
            const traces = await (await fetch('recordings/lesson-lookups.json')).json();
            const path = lookup => stepsOf(lookup).map(step => step.id);
            return Object.entries(traces).map(([from, trace]) => [path(trace), path(lookupInState(view, from, '190'))]);
        }""")
    assert len(found) == 7
    assert [real for real, _ in found] == [computed for _, computed in found]


def test_lessons_answer_their_three_questions(played: Site) -> None:
    with played.open("learn") as page:
        page.wait_for_selector(".lesson h1")
        titles, texts = [], []
        while True:
            titles.append(text_of(page, ".lesson h1"))
            page.click("text=Show the answer")
            texts.append(text_of(page, ".side") + text_of(page, ".think"))
            if page.is_disabled(".bottom .primary"):
                break
            page.keyboard.press("ArrowRight")
            page.wait_for_function("old => document.querySelector('.lesson h1').innerText !== old", arg=titles[-1])
        everything = "\n".join(texts)
        assert titles[0] == "Picture a clock with 256 marks instead of 12."
        assert len({text.split("\n")[0].split(" · ")[0] for text in texts}) == 10  # Chapter 1 to Chapter 10
        assert "200 owns 190" in "\n".join(titles)
        assert "two hops: from 80 to 160, and from 160 to the owner 200" in everything
        assert "200 takes over the arc of 160." in titles
    assert played.problems == []
