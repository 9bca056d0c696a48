"""Output on a terminal of 80 columns: no line is wider, however long names and numbers are."""

from __future__ import annotations

import io
import re
import sys

import msgspec
import pytest
from rich.cells import cell_len

from chord import cli
from chord.cli.output import Out
from chord.cli.sim_output import print_outcome
from chord.ids import Point
from chord.sim.plan import FAULTS, draw
from chord.sim.run import RunReport
from chord.sim.swarm import Broken, SwarmOutcome
from chord.wire.messages import Contact, ReplicaLine, Status, TransferInfo, VnodeInfo
from tests.support.cli import CannedRing
from tests.support.statuses import WORKED_IDS

WIDTH = 80
STYLE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
COMMANDS = (
    ("put", "user:42", "Ada", "--trace"), ("get", "user:42", "--trace"), ("lookup", "--key-id", "190", "--trace"),
    ("lookup", "--key-id", "190"), ("lookup", "--key-id", "190", "--all-from"), ("ring",), ("check",), ("status",),
    ("transfers",), ("members",), ("fingers",), ("plan", "leave", "127.0.0.1"), ("bench", "--ops", "1", "--keys", "32"),
)  # fmt: skip
NAMES = {"long": "storage-{}.rack-04.row-17.west.example.internal:19000", "wide": "保管ノード{}"}


def busy(name: str, node: Status) -> Status:
    """Return a node with ids of 160 bits, five vnodes, every kind of trouble, and a transfer."""
    number = WORKED_IDS.index(node.vnodes[0].contact.id)
    vnodes = tuple(_moved(vnode, turn, node.address) for vnode in node.vnodes for turn in range(5))
    peer = Contact(Point(7), node.address)
    transfer = TransferInfo("surplus", vnodes[0].contact.id, vnodes[1].contact.id, peer, 123_456, 987_654, 10**9, 9_999)
    return msgspec.structs.replace(
        node, name=name.format(number), bits=160, vnodes=vnodes, transfers=(transfer,), hints=12_345,
        under_replicated=123_456, sibling_keys=1, damaged=2, quarantined=3, keys=9_876_543, clock_skew_ms=61_000,
        troubles=("its disk is full: writes are refused until there is room",),
    )


def _moved(vnode: VnodeInfo, turn: int, address: str) -> VnodeInfo:
    return msgspec.structs.replace(vnode, contact=Contact(Point((vnode.contact.id + turn) % 256), address))


@pytest.mark.parametrize(
    ("kind", "encoding"), [("quiet", "utf-8"), ("quiet", "ascii"), ("long", "ascii"), ("wide", "utf-8")]
)
@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_output_fits_80_columns(
    canned: CannedRing, monkeypatch: pytest.MonkeyPatch, kind: str, encoding: str, args: tuple[str, ...]
) -> None:
    if kind != "quiet":
        canned.change = lambda point, node: busy(NAMES[kind], node)
        canned.trace_is_dead = True
    addresses = list(canned.addresses.items())
    canned.lines = tuple(
        ReplicaLine(Contact(Point(p), at), "no answer in 500 ms", False, 1234.5, b"version") for p, at in addresses
    )
    canned.values[b"user:42"] = (b"Ada",)
    monkeypatch.setenv("CHORD_NODE", canned.entry)
    monkeypatch.setenv("CHORD_TIMEOUT", "5")
    monkeypatch.setenv("CHORD_OUTPUT", "table")
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    streams = [Terminal(io.BytesIO(), encoding), Terminal(io.BytesIO(), encoding)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    args = tuple(canned.entry if word == "127.0.0.1" else word for word in args)
    code = cli.run(args)
    for stream in streams:
        stream.flush()
        lines = stream.buffer.getvalue().decode(encoding).split("\n")  # type: ignore[attr-defined]
        shown = [STYLE.sub("", line.rpartition("\r")[2]) for line in lines]
        assert [line for line in shown if cell_len(line) > WIDTH] == []
        assert code in (0, 8), lines


def test_result_of_a_simulation_fits_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CHORD_OUTPUT", "table")
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    outcome = SwarmOutcome([
        RunReport(seed, 99_999_999, 99_999_999, 99_999, keys=99_999, settled_s=9.9, deliveries=99_999_999)
        for seed in range(3)
    ])
    plan = draw(3, faults=tuple(FAULTS))
    outcome.add(plan, Broken(plan, "correctness", "what was wrong " * 20))
    print_outcome(Out(), outcome, [f"path {number}" for number in range(40)], lambda seed: f"chord sim replay {seed}")
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if cell_len(line) > WIDTH] == []
    assert lines[-1] == "chord sim replay 3"


class Terminal(io.TextIOWrapper):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True
