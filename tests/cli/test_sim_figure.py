"""`chord sim figure`: the lookup of the Chord paper by the real node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import Run


@pytest.mark.slow
def test_figure_is_the_lookup_of_the_paper(run: Run, tmp_path: Path) -> None:
    """ToN 2003, Fig. 4: from N8 over N42 and N51 to N56, which owns key 54."""
    ended = run("sim", "figure", str(tmp_path / "figure.svg"), "--json")
    assert ended.code == 0, ended.err
    shape = ended.json("lookup")
    assert [hop["node"] for hop in shape["hops"]] == ["N8", "N42", "N51"]
    assert (shape["owner"]["node"], shape["route"], shape["timeouts"]) == ("N56", "classic", 0)
    drawing = (tmp_path / "figure.svg").read_text()
    assert drawing.count('class="hop"') == 2
    assert drawing == Path("docs/images/paper-lookup.svg").read_text(), "the same seed gives the same picture"


@pytest.mark.parametrize(("arguments", "said"), [
    (["--from", "9"], "no node has the id 9"), (["--key-id", "64"], "64 is not on a circle of 6 bits"),
    (["--ids", "1,1,8"], "expected 2 to 40 different points below 64"),
    (["--ids", "1,x"], "expected 2 to 40 different points"), (["--ids", "8,64"], "different points below 64"),
])  # fmt: skip
def test_figure_of_an_impossible_ring_is_exit_2(run: Run, tmp_path: Path, arguments: list[str], said: str) -> None:
    ended = run("sim", "figure", str(tmp_path / "figure.svg"), *arguments)
    assert ended.code == 2
    assert said in ended.err
