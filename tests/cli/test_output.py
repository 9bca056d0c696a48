"""The output for people: traces, tables, bars, the order of names, errors."""

from __future__ import annotations

import json
import re
import sys
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chord.cli import run
from chord.cli.failures import OK, USAGE, explain
from chord.cli.lookup import is_worth_counting
from chord.cli.output import CLEAR, Failure, Out, bar, percent, short_id, time_left
from chord.cli.target import choose, natural, to_number
from chord.cli.trace import Size, print_trace, rows, summary
from chord.errors import BY_CODE
from chord.ids import Circle
from chord.views.common import names_of
from chord.wire.messages import HopTrace, Via
from tests.support.statuses import contact, statuses, worked_trace

CIRCLE = Circle(8)
NAMES = names_of(statuses())
LEADING_ZEROS = re.compile("(?<![0-9])0+(?=[0-9])")


@pytest.fixture
def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHORD_OUTPUT", "table")
    monkeypatch.setenv("COLUMNS", "160")


@pytest.mark.usefixtures("at_a_terminal")
def test_trace_table_shows_every_hop(capsys: pytest.CaptureFixture[str]) -> None:
    print_trace(Out(), CIRCLE, worked_trace(), NAMES, "id 190", Size(7, True, 8))
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "lookup id 190   id 190 (74.2 %)   from n2 127.0.0.1:9002   7 nodes, iterative",
        "",
        "hop  node  address         id       at  reached by       still to go                 rtt       t",
        "  0  n2    127.0.0.1:9002  80   31.2 %  start                 43.0 %  ████████▋        -  0.0 ms",
        "  1  n4    127.0.0.1:9004  160  62.5 %  finger 6 (+1/4)       11.7 %  ██▍        0.41 ms  0.5 ms",
        "  ●  n5    127.0.0.1:9005  200  78.1 %  successor of n4               owner      0.36 ms  1.3 ms",
        "",
        "replicas  n5 ●   (N=1)",
        "1 hop to the key's predecessor (classic route)   1.3 ms   0 timeouts",
    ]


@pytest.mark.usefixtures("at_a_terminal")
def test_trace_shows_a_dead_hop_with_reason_and_detour(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_trace(Out(), CIRCLE, worked_trace(dead=True), NAMES, "id 190", Size(7, True, 8))
    lines = capsys.readouterr().out.splitlines()
    assert lines[4].split() == [
        "✗", "n4", "127.0.0.1:9004", "160", "62.5", "%", "finger", "6", "(+1/4)", "✗", "no", "answer", "in", "500",
        "ms;", "suspect", "-", "500.4", "ms",
    ]
    assert lines[5].split()[:2] == ["1", "n3"], "the detour takes the dead hop's number: only live hops count"
    assert "successor 2 of n3" in lines[6]
    assert lines[-1].endswith("1 timeout")


def test_trace_in_a_pipe_has_tabs_and_no_bars(capsys: pytest.CaptureFixture[str]) -> None:
    print_trace(Out(), CIRCLE, worked_trace(dead=True), NAMES, "id 190", Size(7, True, 8))
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["hop", "node", "address", "id", "at", "reached by", "still to go", "outcome", "rtt", "t"]
    assert [line[7] for line in lines[1:]] == ["ok", "no answer in 500 ms; suspect", "ok", "owner"]


def test_trace_names_the_source_of_each_hop() -> None:
    hops = tuple(
        HopTrace(contact(p), via, 0.1, 0.2, 0.3, outcome)
        for p, via, outcome in [
            (80, Via("start"), "ok"),
            (120, Via("finger", 5), "ok"),
            (160, Via("successor", 2), "busy"),
            (200, Via("predecessor"), "ok"),
            (230, Via("cache"), "ok"),
        ]
    )
    shown = rows(CIRCLE, msgspec.structs.replace(worked_trace(), hops=hops), NAMES, with_bars=True)
    reached = [row[5] for row in shown[:-1]]
    assert reached == ["start", "finger 5 (+1/8)", "successor 3 of n3", "redirected", "cache"]
    assert shown[2][7] == "busy", "an outcome other than ok replaces the bar"
    wide = rows(Circle(160), msgspec.structs.replace(worked_trace(), hops=hops), NAMES, with_bars=False)
    assert wide[1][5] == "finger 5 (+2^-155)"


def test_expected_length_is_printed_only_if_it_applies() -> None:
    assert "expected here ½·log2 16 − ½·log2 8 + 1 = 1.5" in summary(worked_trace(), Size(16, True, 8))
    assert "expected" not in summary(worked_trace(), Size(9, True, 8)), "a small ring holds full membership"
    walk = msgspec.structs.replace(worked_trace(), mode="successor")
    assert "expected" not in summary(walk, Size(1000, False, 8))


def test_ring_is_counted_only_if_it_is_small() -> None:
    assert is_worth_counting(worked_trace())
    assert not is_worth_counting(msgspec.structs.replace(worked_trace(), nodes_estimate=100_000))


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, ""), (1.0, "█" * 20), (0.5, "█" * 10), (0.45, "█" * 9), (0.006, "▏"), (2.0, "█" * 20)]
)
def test_bar_has_eighths_of_a_character(share: float, text: str) -> None:
    assert bar(share) == text
    assert percent(0.559) == "55.9 %"


def test_id_is_shortened_to_its_ends() -> None:
    assert short_id(Circle(8), 190) == "190"
    assert short_id(Circle(160), 0x8F3A << 144 | 0xC21D) == "8f3a…c21d"
    assert short_id(Circle(160), 5) == "0000…0005", "ids keep their leading zeros"
    assert short_id(Circle(20), 0xABCDE) == "abcde"


def test_table_prints_markup_and_emoji_names_as_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for style in ("table", "tsv"):
        monkeypatch.setenv("CHORD_OUTPUT", style)
        Out().table(["name", "value", "bar"], [["[bold]x[/]", ":boom:", "█"]], plain=["bar"])
        shown = capsys.readouterr().out
        assert "[bold]x[/]" in shown
        assert ":boom:" in shown
        assert ("█" in shown) == (style == "table")
    Out().table(["a"], [["tab\tand\nline"]])
    assert capsys.readouterr().out == "a\ntab and line\n", "control characters do not end a cell"


def test_unknown_output_style_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHORD_OUTPUT", "yaml")
    assert run(["version"]) == USAGE
    assert 'invalid CHORD_OUTPUT "yaml"' in capsys.readouterr().err
    monkeypatch.setenv("CHORD_OUTPUT", "")
    assert run(["version"]) == OK


def test_progress_is_shown_on_terminals_only_and_keeps_notes(capsys: pytest.CaptureFixture[str]) -> None:
    for is_live in (False, True):
        out = Out()
        out.is_live = is_live
        with out.progress("seeds", 10) as show:
            out.note("before")
            show(5)
            out.note("hello")
        out.note("after")
        found = capsys.readouterr()
        assert found.out == ""
        if is_live:
            assert found.err == f"before\n{CLEAR}seeds  5/10  {'█' * 10:<20}{CLEAR}hello\n{CLEAR}after\n"
        else:
            assert found.err == "before\nhello\nafter\n"


@pytest.mark.parametrize(
    ("elapsed_s", "done", "total", "text"),
    [(10.0, 0, 4, ""), (10.0, 1, 4, "about 30 s left"), (90.0, 3, 4, "about 30 s left"), (10.0, 4, 4, ""),
     (600.0, 1, 2, "about 10 min 0 s left"), (10.0, 1, None, "")],
)  # fmt: skip
def test_time_left_is_extrapolated(elapsed_s: float, done: int, total: int | None, text: str) -> None:
    assert time_left(elapsed_s, done, total) == text


@pytest.mark.parametrize("is_terminal", [True, False])
def test_line_of_data_erases_a_progress_line_of_the_same_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool
) -> None:
    out = Out()
    out.is_live = True
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    with out.progress("scan", 10) as show:
        out.line("a")
        assert capsys.readouterr().err == "", "there is nothing to erase"
        show(1)
        shown = capsys.readouterr().err
        out.line("b")
        assert capsys.readouterr().err == (CLEAR if is_terminal else "")
    assert shown.startswith(CLEAR)


def test_progress_shows_the_amount_done_and_the_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("chord.cli.output.time.monotonic", lambda: now[0])
    monkeypatch.setenv("COLUMNS", "80")
    out = Out()
    for is_live in (False, True):
        out.is_live = is_live
        with out.progress("measured", 8, lines_every_s=30.0) as show:
            for now[0], done in ((110.0, 1), (129.9, 1), (130.0, 2), (159.9, 3), (160.0, 4)):
                show(done, f"compare: scheme {done} {'of a long name ' * 3}".strip())
        said = capsys.readouterr().err
        now[0] = 100.0
        if is_live:
            lines = said.split(CLEAR)
            assert max(map(len, lines)) == 79, "a longer line would stay on the screen"
            assert lines[1].startswith("measured  1/8  ██▌")
            assert "about 1 min 10 s left  compare: scheme 1" in lines[1]
        else:
            assert [line.partition("  compare")[0] for line in said.splitlines()] == [
                "measured 2/8  about 1 min 30 s left", "measured 4/8  about 1 min 0 s left",
            ]  # fmt: skip
    out.is_live = False
    with out.progress("records", None, lines_every_s=30.0) as show:
        now[0] += 31
        show(7)
    assert capsys.readouterr().err == "records 7\n"


@pytest.mark.slow
@given(st.lists(st.from_regex(r"[a-z]{0,2}[0-9]{0,3}", fullmatch=True), max_size=8))
def test_natural_order_is_total(words: list[str]) -> None:
    ordered = sorted(words, key=natural)
    for a, b in pairwise(ordered):
        assert natural(a) <= natural(b)
        assert (natural(a) == natural(b)) == (LEADING_ZEROS.sub("", a) == LEADING_ZEROS.sub("", b))


def test_natural_order_compares_numbers_by_value() -> None:
    assert sorted(["n10", "n2", "n1", "m3", "n", "127.0.0.1:9010", "127.0.0.1:9009"], key=natural) == [
        "127.0.0.1:9009", "127.0.0.1:9010", "m3", "n", "n1", "n2", "n10",
    ]


def test_node_argument_matches_in_order_of_precedence() -> None:
    nodes = statuses()
    nodes[3] = msgspec.structs.replace(nodes[3], name="80")  # a name that looks like another node's id
    assert choose("80", nodes).node.address == "127.0.0.1:9003"
    assert choose("0x50", nodes).node.address == "127.0.0.1:9002"
    assert choose("127.0.0.1:9006", nodes).node.name == "n6"
    assert choose("230", nodes).vnode == nodes[6].vnodes[0]
    with pytest.raises(Failure, match="no node of the ring is called '231'"):
        choose("231", nodes)


def test_number_is_decimal_or_hexadecimal() -> None:
    assert (to_number("12"), to_number("0xff"), to_number("0XFF"), to_number("x"), to_number("1.5")) == (
        12, 255, 255, None, None,
    )


def test_every_error_has_a_message_and_an_exit_code() -> None:
    for kind in BY_CODE.values():
        failure = explain(kind("what happened"), "127.0.0.1:9000")
        assert failure.message == "what happened"
        assert failure.exit_code in range(1, 9)
        assert failure.hint or not failure.exit_code, f"{kind.__name__} has no hint"


@pytest.mark.parametrize("form", ["table", "tsv"])
def test_foreign_names_are_escaped_on_a_terminal(
    form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name, an address or a key may have control characters. In a pipe they stay unchanged."""
    monkeypatch.setenv("CHORD_OUTPUT", form)
    evil = "a\x1b[2J\x9b31m\r\u202eb"
    shown = r"a\x1b[2J\x9b31m\r\u202eb"
    out = Out()
    out.table(["node"], [[evil + "\n"]])
    out.table(["node"], [[evil]], is_aside=True)
    out.note(evil)
    out.failure(Failure(evil, "", USAGE, "usage"))
    out.line(f"{evil}\t\n")
    printed, reported = capsys.readouterr()
    assert printed.count(shown) == (2 if form == "table" else 1)
    assert reported.count(shown) == 3
    assert printed.endswith(f"{shown}\t\n\n" if form == "table" else f"{evil}\t\n\n")
    assert "\x1b" not in reported


def test_json_escapes_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"name": "a\x1b[2J\x9b31m\u202e\x7f", "wörter": "größer 🙂", "big": "\U000e0001"}
    Out(as_json=True).json(value)
    printed = capsys.readouterr().out
    assert json.loads(printed) == value
    assert printed[:-1].isprintable()
    assert "größer 🙂" in printed
