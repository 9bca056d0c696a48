"""The gallery and the lab over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.schemas import check_shape
from tests.support.statuses import statuses
from tests.support.web import Answer, Ring, WebClient, app_of

SVG = '<svg xmlns="http://www.w3.org/2000/svg"/>'
REPORT = """# Shards & <schemes>

`chord lab all`, seed 1. **A bar is missed.**

    chord lab jump --seed 1

| scheme | share |
|---|---|
| jump | 4.8 % |

![It is <even>](even.svg)

![Gone](gone.svg)

- *One.* First <script>alert(1)</script>
Tables: [jump.md](jump.md).
"""


async def get(path: str, reports: Path = Path("nowhere")) -> Answer:
    return await WebClient(app_of(Ring(statuses()).origin, reports=reports)).get(f"/api/v1{path}")


async def run_of(query: str) -> Any:
    answer = await get(f"/gallery/{query}")
    assert answer.status == 200
    check_shape("api-gallery-run", answer.json)
    return answer.json


async def test_gallery_lists_all_algorithms() -> None:
    answer = await get("/gallery")
    check_shape("gallery-list", answer.json)
    assert "mutex-lamport" in [entry["name"] for entry in answer.json["entries"]]


async def test_run_of_an_algorithm_is_a_diagram() -> None:
    run = await run_of("mutex-lamport?nodes=3&seed=7")
    assert run["names"] == ["a", "b", "c"]
    assert run["holds"] is True
    assert sum(run["messages"].values()) > 0
    received = [row for row in run["rows"] if row["from"] is not None]
    assert received
    assert all(run["rows"][row["from"]["row"]]["at"] <= row["at"] for row in received)
    assert run == await run_of("mutex-lamport?nodes=3&seed=7")
    assert run["rows"] != (await run_of("mutex-lamport?nodes=3&seed=8"))["rows"]


async def test_variant_shows_the_shortest_run_that_breaks_it() -> None:
    (entry,) = [one for one in (await get("/gallery")).json["entries"] if one["name"] == "mutex-lamport"]
    run = await run_of(f"mutex-lamport?variant={next(iter(entry['bugs']))}")
    assert run["holds"] is False
    assert [law["why"] for law in run["laws"] if not law["holds"]] != [""]
    assert 0 < len(run["rows"]) < 30


async def test_steps_are_chosen_one_by_one() -> None:
    start = await run_of("mutex-lamport?nodes=2&steps=")
    assert start["rows"] == []
    assert start["choices"]
    two = await run_of("mutex-lamport?nodes=2&steps=0,0")
    assert len(two["rows"]) == 2


@pytest.mark.parametrize(("path", "status", "code"), [
    ("/gallery/no-such", 404, "no_such_algorithm"),
    ("/gallery/mutex-lamport?variant=none", 404, "no_such_variant"),
    ("/gallery/mutex-lamport?nodes=99", 400, "invalid"),
    ("/gallery/mutex-lamport?steps=a", 400, "invalid"),
    ("/gallery/mutex-lamport?steps=77", 400, "no_such_step"),
    ("/lab/report.md", 404, "no_such_report"),
    ("/lab/..%2Freport.md", 404, "no_such_report"),
])  # fmt: skip
async def test_wrong_requests_are_refused(path: str, status: int, code: str) -> None:
    answer = await get(path)
    check_shape("error", answer.json)
    assert (answer.status, answer.json["error"]["code"]) == (status, code)


async def test_report_is_a_page_that_loads_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    folder.mkdir()
    (tmp_path / "secret.md").write_text("# secret")
    (folder / "report.md").write_text(REPORT)
    (folder / "jump.md").write_text("# Jump\n")
    (folder / "even.svg").write_text(SVG)
    found = (await get("/lab", folder)).json
    check_shape("api-lab", found)
    assert [(one["name"], one["title"]) for one in found["reports"]] == [
        ("report.md", "Shards & <schemes>"), ("jump.md", "Jump")
    ]  # fmt: skip
    answer = await get("/lab/report.md", folder)
    assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    page = answer.body.decode()
    for part in (
        "<h1>Shards &amp; &lt;schemes&gt;</h1>", "<b>A bar is missed.</b>", "<pre>chord lab jump --seed 1</pre>",
        "<tr><th>scheme</th><th>share</th></tr><tr><td>jump</td><td>4.8 %</td></tr>",
        '<img alt="It is &lt;even&gt;" src="data:image/svg+xml;base64,', "<p>gone.svg is missing.</p>",
        "<li><i>One.</i> First &lt;script&gt;", "<p>Tables: jump.md.</p>",
    ):  # fmt: skip
        assert part in page
    assert (await get("/lab/../secret.md", folder)).status == 404
