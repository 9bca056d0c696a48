"""Every page in both themes and two widths: axe-core, the contrast of text in pictures, and cut text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.web.browser.site import Site, seek

if TYPE_CHECKING:
    from playwright.sync_api import Page

AXE: Final = (Path(__file__).parent / "vendor" / "axe.js").read_text()
PAGES: Final = ("ring", "keys", "nodes", "metrics", "recordings", "learn", "gallery", "lab")
WIDTHS: Final = (1440, 390)
CONTRAST_MIN: Final = 4.5

CONTRASTS: Final = """() => {
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const rgb = color => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const light = color => {
        const [r, g, b] = color.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = rgb(getComputedStyle(document.body).backgroundColor);
    const opacity = one =>
        one && one.nodeType === 1 ? Number(getComputedStyle(one).opacity) * opacity(one.parentNode) : 1;
    return [...document.querySelectorAll('svg text, svg tspan')].filter(one => one.textContent.trim()).map(one => {
        const share = opacity(one);
        const ink = rgb(getComputedStyle(one).fill).map((v, i) => v * share + ground[i] * (1 - share));
        const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
        return [one.textContent, (a + 0.05) / (b + 0.05)];
    });
}"""

OVERLAPS: Final = """() => {
    const boxes = [...document.querySelectorAll('.ring .label, .ring .key-label')].map(
        one => [one.textContent, one.getBoundingClientRect()]);
    const svg = document.querySelector('.ringbox').getBoundingClientRect();
    const found = [];
    boxes.forEach(([text, a], i) => {
        if (a.left < svg.left - 1 || a.right > svg.right + 1 || a.top < svg.top - 1 || a.bottom > svg.bottom + 1)
            found.push(`${text} is cut off`);
        for (const [other, b] of boxes.slice(i + 1))
            if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
                found.push(`${text} overlaps ${other}`);
    });
    return found;
}"""


def violations(page: Page, rules: list[str] | None = None) -> list[Any]:
    """Return the violations of these rules of axe-core, by default of all."""
    only = {} if rules is None else {"runOnly": rules}
    found: list[Any] = page.evaluate("""only => axe.run({ resultTypes: ['violations'], ...only }).then(
        found => found.violations.map(one => [one.id, one.nodes.slice(0, 3).map(node => node.html.slice(0, 200))]))""",
        only)  # fmt: skip
    return found


def show(page: Page, place: str, theme: str) -> None:
    page.evaluate(f"location.hash = '#/{place}'; document.documentElement.dataset.theme = '{theme}'")
    shown = {"gallery": ".spacetime", "lab": "iframe, main code", "nodes": "main", "metrics": "main"}
    page.wait_for_selector(shown.get(place, ".node"))


def test_no_page_violates_a_rule_of_axe(played: Site) -> None:
    with played.open() as page:
        page.wait_for_selector(".node")
        page.evaluate(AXE)
        for place in PAGES:
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                for theme in ("light", "dark"):
                    show(page, place, theme)
                    rules = None if theme == "light" else ["color-contrast"]
                    assert violations(page, rules) == [], (place, theme, width)
    assert played.problems == []


def test_text_of_pictures_is_readable(played: Site) -> None:
    with played.open() as page:
        page.wait_for_selector(".node")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            for place, at_s in (("ring", 2.0), ("ring", 18.0), ("learn", 0.0)):
                for theme in ("light", "dark"):
                    show(page, place, theme)
                    if place == "ring":
                        seek(page, at_s)
                        page.wait_for_selector(".timeline text")
                    contrasts = page.evaluate(CONTRASTS)
                    assert len(contrasts) > 10
                    assert [one for one in contrasts if one[1] < CONTRAST_MIN] == [], (place, theme, width)
                    assert page.evaluate(OVERLAPS) == [], (place, at_s, width)


def test_page_loads_little_and_soon(played: Site) -> None:
    with played.open() as page:
        page.wait_for_selector(".node")
        sizes = page.evaluate("""() => performance.getEntriesByType('resource').concat(
            performance.getEntriesByType('navigation')).filter(one => !one.name.includes('/api/')).map(
            one => one.decodedBodySize)""")
        assert sum(sizes) <= 250_000
