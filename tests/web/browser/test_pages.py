"""The pages on a recording: they show its state, and nothing overlaps or is cut off."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.real_rings import running
from tests.web.browser.conftest import RECORDINGS
from tests.web.browser.site import Site, seek, text_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CLOSE = """async () => {
    const { placeLabels } = await import('./js/geometry.js');
    const wanted = (xs, width) => xs.map(x => ({ x, width, radius: 276, height: 17, shorter: 20 }));
    return [[wanted([0.962, 0.961, 0.965, 0.978, 0.002, 0.0], 75), 6], [wanted([0.25, 0.2501, 0.2499, 0.251], 60), 4],
            [wanted(Array.from({ length: 90 }, (_, i) => i / 90), 70), 40]].map(([labels, most]) => {
        const placed = placeLabels(labels).map((place, i) => ({ place, x: labels[i].x })).filter(one => one.place);
        return [placed.map(({ place: { box }, x }) => [box.x, box.y, box.w, box.h, x]), most];
    });
}"""
"""The boxes of the labels of close points, each with its point, and how many labels must have a place."""

TEXTS_OF_LANES = """() => [...document.querySelectorAll('.timeline g')].flatMap(lane => {
    const boxes = [...lane.querySelectorAll('text')].map(one => one.getBoundingClientRect());
    return boxes.filter((a, i) => boxes.some((b, j) => i < j && a.left < b.right && b.left < a.right
        && a.top < b.bottom && b.top < a.bottom)).map(() => lane.textContent);
})"""


@pytest.fixture(scope="module")
def killed(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The page of a recording in which a node dies, returns, and another one joins. The lab has one report."""
    lab = tmp_path_factory.mktemp("lab")
    (lab / "report.md").write_text("# Shards side by side\n\n<script>alert(1)</script>\n")
    recording = RECORDINGS / "kill.chordlog.gz"
    with running("dashboard", "--play", str(recording), "--lab", str(lab), "--listen", "127.0.0.1:0") as server:
        yield Site(browser, server.ready["url"], server)


def angle_of(box: list[float]) -> float:
    """Return the clockwise angle of the middle of a box, in turns."""
    x, y, width, height, _ = box
    return (math.atan2(x + width / 2, -(y + height / 2)) / math.tau) % 1


def overlap(a: list[float], b: list[float]) -> bool:
    return a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]


def test_labels_of_close_points_keep_their_order(killed: Site) -> None:
    with killed.open() as page:
        page.wait_for_selector(".node")
        cases: Any = page.evaluate(CLOSE)
        for boxes, most in cases:
            assert len(boxes) >= most
            boxes.sort(key=lambda box: (box[4] + 0.1) % 1)
            angles = [(angle_of(box) + 0.1) % 1 for box in boxes]
            assert angles == sorted(angles)
            assert not any(overlap(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
        seek(page, 7.5)
        labels = page.eval_on_selector_all(".ring .label", "all => all.map(one => one.firstChild.textContent)")
        assert {"n13", "n14", "n8", "n11"} <= set(labels)


def test_narrow_page_cuts_nothing_off(killed: Site) -> None:
    with killed.open("recordings", width=390) as page:
        page.wait_for_selector(".node")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        right = page.eval_on_selector_all(
            ".player > *", "all => all.map(one => one.offsetParent ? one.getBoundingClientRect().right : 0)"
        )
        assert max(right) <= 390
        tabs = page.eval_on_selector_all(".tabbar a", "all => all.map(one => one.textContent)")
        assert tabs == page.eval_on_selector_all(".nav a", "all => all.map(one => one.textContent)")
        page.evaluate("location.hash = '#/lab'")
        page.wait_for_function(
            "() => document.querySelector('.tabbar [aria-current]')?.getBoundingClientRect().right <= innerWidth + 1"
        )


def test_texts_of_the_timeline_do_not_overlap(killed: Site) -> None:
    for width in (1440, 700, 390):
        with killed.open(width=width) as page:
            page.wait_for_selector(".timeline text")
            assert page.evaluate(TEXTS_OF_LANES) == [], width


def test_timeline_leaves_out_what_is_older(killed: Site) -> None:
    with killed.open() as page:
        page.wait_for_selector(".timeline .mark-label")
        assert page.query_selector(".timeline .blue") is not None
        page.evaluate("""() => import('./js/store.js').then(({ currentLog, set, store }) => {
            store.source = 'live';
            currentLog().endsS = 1000;
            set({});
        })""")
        page.wait_for_function("() => !document.querySelector('.timeline .mark-label')")
        assert page.query_selector(".timeline .blue") is None


def test_metrics_of_a_recording_are_shown(killed: Site) -> None:
    with killed.open("metrics") as page:
        page.wait_for_selector(".chart .u-wrap")
        titles = page.eval_on_selector_all(".chart h2", "all => all.map(one => one.textContent)")
        assert {"requests", "nodes", "under-replicated keys", "transfers"} <= set(titles)
    assert killed.problems == []


def test_recording_names_its_circle_in_typeset_form(killed: Site) -> None:
    with killed.open("recordings") as page:
        page.wait_for_selector(".facts sup")
        assert "2^" not in text_of(page, ".side")
        assert page.text_content(".facts sup") == "160"


def open_last_lesson(page: Page) -> None:
    page.wait_for_selector(".lesson h1")
    page.evaluate("import('./js/learn.js').then(learn => learn.openLesson(999))")
    page.wait_for_selector("text=Chapter 10")


def test_last_lesson_gets_its_tick(killed: Site) -> None:
    with killed.open("learn") as page:
        open_last_lesson(page)
        page.wait_for_selector(".chapters li:last-child .done")
        assert page.query_selector(".progress rect.now") is None


def test_lessons_explain_words_before_they_use_them(killed: Site) -> None:
    with killed.open("learn") as page:
        page.wait_for_selector(".ring .middle")
        shown = ""
        explained = dict.fromkeys(("arc", "record", "predecessor", "pointers", "lookup", "hop"), False)
        for number in range(25):
            page.evaluate(f"import('./js/learn.js').then(learn => learn.openLesson({number}))")
            page.wait_for_function(
                "n => import('./js/store.js').then(({ store }) => store.lessonStep === n && !!store.lesson)", arg=number
            )
            bold = page.eval_on_selector_all(".lesson b", "all => all.map(one => one.textContent)")
            explained |= dict.fromkeys((word for word in explained if word in bold), True)
            shown = f"{text_of(page, '.lesson')} {' '.join(page.eval_on_selector_all('.ring text', TEXTS))}"
            used = {word for word in explained if re.search(rf"\b{word}s?\b", shown)}
            assert all(explained[word] for word in used), (number, used, explained)
    assert killed.problems == []


def test_gallery_plays_a_run_step_by_step(killed: Site) -> None:
    with killed.open("gallery") as page:
        page.wait_for_selector(".spacetime .current")
        page.click("text=Mutual exclusion by a token")
        page.wait_for_selector(".spacetime[aria-label^='Mutual exclusion by a token: 1 of']")
        page.keyboard.press("ArrowRight")
        page.wait_for_function("() => document.querySelectorAll('.spacetime .number').length === 2")
        page.fill(".steps", "9")
        page.wait_for_selector(".spacetime .message")
        page.click("text=Mutual exclusion by Lamport")
        page.wait_for_selector(".spacetime[aria-label^='Mutual exclusion by Lamport']")
        page.click("text=A bug")
        page.wait_for_selector(".side .marks .bad")
        assert "chord gallery prove mutex-lamport --bug" in text_of(page, ".side .code")
        page.click("text=Choose steps")
        page.click(".choices button")
        page.wait_for_selector(".button:has-text('Undo'):enabled")
        page.wait_for_selector(".spacetime .step")
    assert killed.problems == []


def test_lab_shows_its_report_without_scripts(killed: Site) -> None:
    with killed.open("lab") as page:
        page.wait_for_selector(".menu button[aria-current]:has-text('Shards side by side')")
        frame = page.frame_locator("iframe.report")
        assert frame.locator("h1").inner_text() == "Shards side by side"
        assert frame.locator("p").inner_text() == "<script>alert(1)</script>"
    assert killed.problems == []


TEXTS = "all => all.map(one => one.textContent)"
