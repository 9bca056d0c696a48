"""Commands of an operator: transfers, plans, forget, status, and commands with closed or full streams."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chord.cli.output import byte_size, duration
from chord.cli.plan import PlanPoints, changes
from chord.cli.settings import node_config
from chord.cli.transfers import Watcher
from chord.errors import RemoteFailure
from chord.ids import Circle, Point
from chord.wire.messages import Contact, Forget, ReplicaState, Status, TransferInfo
from tests.support.cli import CannedRing, Run
from tests.support.fake_node import Answer, Heard
from tests.support.ports import Ports
from tests.support.real_rings import CHORD, HANG_S, environment
from tests.support.statuses import WORKED_IDS, statuses

CIRCLE = Circle(8)


# -- transfers ----------------------------------------------------------------------------------------


def transfer(done: int, total: int | None, since_ms: int = 2000, sent: int = 4096) -> TransferInfo:
    """A repair of the worked example's arc from 42 to 80."""
    peer = Contact(Point(120), "127.0.0.1:9003")
    return TransferInfo("repair", Point(42), Point(80), peer, done, total, sent, since_ms)


def ring_with_transfers(*transfers: TransferInfo) -> list[Status]:
    """The ring, in which n2 reports these transfers."""
    nodes = statuses()
    return [msgspec.structs.replace(node, transfers=transfers) if i == 2 else node for i, node in enumerate(nodes)]


def test_transfers_are_listed_with_progress_and_rate(run: Run, canned: CannedRing) -> None:
    canned.change = lambda point, node: (
        msgspec.structs.replace(node, transfers=(transfer(50, 200), transfer(7, None))) if point == 80 else node
    )
    first, second = run("transfers", "--json").json("transfers")["transfers"]
    assert (first["node"], first["kind"], first["peer"]["id"], first["arc"]["start"]) == ("n2", "repair", "120", "42")
    assert (first["share"], first["keys_per_s"], first["bytes_per_s"], first["eta_s"]) == (0.25, 25.0, 2048.0, 6.0)
    assert (second["total"], second["share"], second["eta_s"]) == (None, None, None), "an unknown total has no ETA"
    lines = [line.split("\t") for line in run("transfers").out.splitlines()]
    assert lines[0] == ["node", "what", "with", "arc", "keys", "done", "rate", "left"]
    assert lines[1] == ["n2", "repair", "127.0.0.1:9003", "42 to 80", "50 of 200", "25.0 %", "25/s, 2.0 KiB/s", "6 s"]
    assert lines[2][4:] == ["7 of ?", "-", "4/s, 2.0 KiB/s", "-"]


def test_transfers_of_an_idle_ring_are_empty(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("transfers", "--json").json("transfers") == {"transfers": []}
    monkeypatch.setenv("CHORD_OUTPUT", "table")
    assert run("transfers").out.splitlines()[-1] == "there are no transfers"


def test_watched_rate_is_measured_since_the_last_poll() -> None:
    watcher = Watcher()
    (first,) = watcher.look(ring_with_transfers(transfer(100, 300, 10_000, 1000)), 50.0)
    assert (first.keys_per_s, first.left_s) == (10.0, 20.0)
    (second,) = watcher.look(ring_with_transfers(transfer(200, 300, 12_000, 5000)), 52.0)
    assert (second.keys_per_s, second.bytes_per_s, second.left_s) == (50.0, 2000.0, 2.0)
    (stuck,) = watcher.look(ring_with_transfers(transfer(200, 300, 13_000, 5000)), 53.0)
    assert (stuck.keys_per_s, stuck.left_s) == (0.0, None), "a rate of zero has no time left"
    (anew,) = watcher.look(ring_with_transfers(transfer(250, 300, 1000, 6000)), 54.0)
    assert anew.keys_per_s == 250.0, "a later transfer of the same arc counts anew"
    (ended,) = watcher.look(ring_with_transfers(transfer(300, 300, 2000, 100)), 55.0)
    assert (ended.share, ended.left_s) == (1.0, 0.0)
    assert watcher.look(ring_with_transfers(), 56.0) == []


def test_watch_polls_until_it_is_interrupted(run: Run, canned: CannedRing, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def nap(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("chord.cli.transfers.time.sleep", nap)
    ended = run("transfers", "--watch", "--json")
    assert (ended.code, len(ended.out.splitlines())) == (130, 3)


def test_sizes_and_times_are_rounded_for_people() -> None:
    assert [byte_size(n) for n in (0, 999, 1000, 2048, 123_456, 5 << 30, 3 << 50)] == [
        "0 B", "999 B", "1.0 KiB", "2.0 KiB", "121 KiB", "5.0 GiB", "3072.0 TiB",
    ]
    assert [duration(s) for s in (0, 59.4, 60, 200, 3600, 7500)] == [
        "0 s", "59 s", "1 min 0 s", "3 min 20 s", "1 h 0 min", "2 h 5 min",
    ]


# -- plans --------------------------------------------------------------------------------------------


def plan_of(after: dict[int, str], replicas: int = 1, keys: int = 100) -> dict[str, tuple[float, ...]]:
    """Return for each node of the worked example: planned share, keys before and after, gets, drops."""
    nodes = statuses(keys=keys)
    return {
        c.address[-1]: (c.after.owned, c.before.keys, c.after.keys, c.gets, c.drops)
        for c in changes(CIRCLE, nodes, after, replicas)
    }


RING = {node.vnodes[0].contact.id: node.address for node in statuses()}


def test_plan_of_a_join_splits_one_arc() -> None:
    """From 42 to 80 there are 38 points; a node at 61 takes 19 of them."""
    found = plan_of({**RING, 61: "127.0.0.1:9009"})
    assert found["9"] == (19 / 256, 0, 50, 50, 0)
    assert found["2"] == (19 / 256, 100, 50, 0, 50)
    assert found["3"] == (40 / 256, 100, 100, 0, 0)


def test_plan_of_a_join_with_replicas_moves_the_copies() -> None:
    """With N = 3 the joiner keeps its own arc and the two before it; three nodes behind it drop one stretch each."""
    found = plan_of({**RING, 61: "127.0.0.1:9009"}, replicas=3)
    assert found["9"] == (19 / 256, 0, 250, 250, 0)
    assert [found[n][4] for n in "234"] == [100, 100, 50]
    assert [found[n][4] for n in "0156"] == [0] * 4
    assert sum(f[1] for f in found.values()) == pytest.approx(sum(f[2] for f in found.values())) == pytest.approx(2100)


def test_plan_of_a_leave_gives_everything_to_the_successor() -> None:
    found = plan_of({p: a for p, a in RING.items() if p != 80})
    assert found["2"] == (0, 100, 0, 0, 100)
    assert found["3"] == (78 / 256, 100, 200, 100, 0)


@given(
    st.sets(st.integers(0, 255), min_size=1, max_size=9), st.integers(0, 4), st.integers(1, 4)
)
def test_plan_places_replicas_by_the_definition(points: set[int], vnodes: int, replicas: int) -> None:
    nodes = {p: f"n{i % (vnodes + 1)}" for i, p in enumerate(sorted(points))}
    ring = PlanPoints(CIRCLE, nodes, replicas)
    for point in range(0, 256, 5):
        walk = sorted(nodes, key=lambda p: CIRCLE.distance(point, p))
        assert ring.owner(point) == walk[0]
        assert list(ring.keepers(point)) == list(dict.fromkeys(nodes[p] for p in walk))[:replicas]
    assert sum(ring.arc_share(p) for p in nodes) == pytest.approx(1)


def test_plan_join_and_leave_print_their_moves(run: Run, canned: CannedRing, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = run("plan", "join", "127.0.0.1:1", "--id", "61", "--json").json("plan")
    assert shape["plan"] == "127.0.0.1:1 joins"
    joiner = shape["nodes"][-1]
    assert (joiner["address"], joiner["before"]["owned"], joiner["gets"]) == ("127.0.0.1:1", 0, 2)
    shape = run("plan", "leave", "n2", "--json").json("plan")
    assert sum(node["after"]["owned"] for node in shape["nodes"]) == pytest.approx(1, abs=1e-5)
    assert len(run("plan", "join", "127.0.0.1:1", "--vnodes", "4").out.splitlines()) == 9
    monkeypatch.setenv("CHORD_OUTPUT", "table")
    assert "about 3 keys are copied. Keys and bytes are estimates" in run("plan", "leave", "n2").out
    here = canned.addresses[80]
    for wrong in (("join", here), ("join", "nonsense"), ("join", "a:1", "--id", "x"), ("leave", "none")):
        assert run("plan", *wrong).code == 2
    assert run("plan").code == 2


@pytest.mark.parametrize("point", ["-1", "256", "0x13d"])
def test_plan_join_at_a_point_off_the_circle_is_refused(run: Run, point: str) -> None:
    ended = run("plan", "join", "127.0.0.1:1", f"--id={point}")
    assert (ended.code, "is not on the circle of 8 bits (0 to 255)" in ended.err) == (2, True)


# -- forget -------------------------------------------------------------------------------------------


def test_forget_reaches_every_node(run: Run, canned: CannedRing) -> None:
    canned.nodes[160].die()
    shape = run("forget", canned.addresses[160], "--json").json("forget")
    assert (len(shape["reported"]), shape["failed"]) == (6, [])
    assert canned.nodes[80].requests(Forget) == [Forget(canned.addresses[160])]
    assert run("forget", "0xa0").out == f"{canned.addresses[160]} is forgotten by 6 of 6 nodes\n", "by its id"


def test_dead_node_keeps_its_name(run: Run, canned: CannedRing) -> None:
    gone = canned.addresses[160]

    def remembering(point: int, node: Status) -> Status:
        peers = tuple(msgspec.structs.replace(p, name="n4" if p.address == gone else "") for p in node.peers)
        return msgspec.structs.replace(node, peers=peers)

    canned.change = remembering
    canned.nodes[160].die()
    members = {m["address"]: m for m in run("members", "--json").json("members")["members"]}
    assert (members[gone]["node"], members[gone]["vnodes"]) == ("n4", [])
    assert f"\nunreachable  n4 {gone} does not answer. If it will never be back: chord forget" in run("check").out
    assert run("forget", "n4").out == f"n4 {gone} is forgotten by 6 of 6 nodes\n"
    assert run("forget", "n44").code == 2


def test_forget_finds_a_node_that_is_only_in_a_replica_set(run: Run, canned: CannedRing, ports: Ports) -> None:
    """No list names a node that is down for long, but its neighbours still wait for it."""
    gone = Contact(Point(99), ports.address())

    def waiting(point: int, node: Status) -> Status:
        own = ReplicaState(Point(80), Point(120), (gone,), (gone,), ())
        return msgspec.structs.replace(node, sets=(own,)) if point == 120 else node

    assert run("forget", "99").code == 2
    assert run("forget", gone.address).code == 2
    canned.change = waiting
    assert run("forget", "99", "--json").json("forget")["address"] == gone.address


def test_forget_refuses_a_node_that_answers(run: Run, canned: CannedRing) -> None:
    for word in ("n4", canned.addresses[160], "160"):
        ended = run("forget", word)
        assert (ended.code, "a node answers there" in ended.err) == (2, True)
    assert not canned.nodes[80].requests(Forget)


def test_forget_names_nodes_that_did_not_confirm(run: Run, canned: CannedRing) -> None:
    def deaf(point: int, heard: Heard) -> Answer:
        return RemoteFailure("broken") if point == 80 and isinstance(heard.request, Forget) else None

    canned.override = deaf
    canned.nodes[160].die()
    ended = run("forget", canned.addresses[160])
    assert (ended.code, f"{canned.addresses[80]}: broken" in ended.err) == (1, True)
    assert "1 of 6 nodes still wait" in ended.err


# -- status -------------------------------------------------------------------------------------------


def test_status_counts_hints_missing_copies_and_siblings(
    run: Run, canned: CannedRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHORD_OUTPUT", "table")
    assert "hints" not in run("status").out, "a column without values is omitted"
    canned.change = lambda point, node: msgspec.structs.replace(
        node, keys=9, hints=int(point == 80) * 2, under_replicated=3, sibling_keys=1
    )
    shape = run("status", "--json").json("status")
    assert (shape["hints"], shape["under_replicated"], shape["sibling_keys"]) == (2, 21, 7)
    assert (shape["keys"], shape["nodes"][2]["keys"]) == (21, 9), "copies are not keys"
    assert run("status").out.splitlines()[0].split()[-3:] == ["hints", "under-replicated", "siblings"]


# -- streams and small things -------------------------------------------------------------------------


def shell(command: str, canned: CannedRing) -> subprocess.CompletedProcess[str]:
    """Run a shell line in which `chord` is this one."""
    line = f'chord() {{ {" ".join(CHORD)} "$@"; }}; {command}'
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line], env=environment(canned.entry), capture_output=True, text=True,
        check=False, timeout=HANG_S,
    )


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-", "2>&-"])
def test_closed_stream_is_an_error_only_if_output_is_lost(canned: CannedRing, closed: str) -> None:
    """Lost output is a failure, and no output goes into a connection."""
    for command in ("status", "version --json"):
        ended = shell(f"chord {command} {closed}", canned)
        assert ended.returncode == (2 if ">&-" in closed.split() else 0)
        assert ("cannot write the output (stdout is closed)" in ended.stderr) == (closed == ">&-")
    ended = shell(f"chord put k v {closed}", canned)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert canned.values == {b"k": (b"v",)}


@pytest.mark.slow
@pytest.mark.parametrize("command", ["put k -", "load -", "restore -", "check-history -"])
def test_closed_stdin_is_not_an_empty_value(canned: CannedRing, command: str) -> None:
    canned.values = {b"k": (b"v",)}
    ended = shell(f"chord {command} <&-", canned)
    assert (ended.returncode, canned.values) == (2, {b"k": (b"v",)})
    assert "stdin is closed" in ended.stderr or "bad file descriptor" in ended.stderr


def test_node_with_closed_streams_runs(ports: Ports) -> None:
    """A node that cannot print is still useful."""
    chord, address = " ".join(CHORD), ports.address()
    node = f"{chord} node --preset local --listen {address} <&- >&- 2>&-"
    line = f"{node} & until {chord} put k v --node {address}; do sleep 0.1; done; kill -TERM $! && wait $!"
    done = subprocess.run(["bash", "-c", line], env=environment(), capture_output=True, check=False, timeout=HANG_S)
    assert done.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_output_to_a_full_disk_is_an_error_with_a_hint(canned: CannedRing) -> None:
    ended = shell("chord status > /dev/full", canned)
    assert ended.returncode == 2
    assert ended.stderr == "error: cannot write the output (no space left on device). Write to a disk with room\n"


def test_command_without_arguments_prints_help(run: Run) -> None:
    ended = run()
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == run("--help").out


def test_version_option_prints_the_version(run: Run) -> None:
    assert run("--version").out == run("version").out.partition(" (")[0] + "\n"


def test_replicas_are_a_constant_of_the_ring(tmp_path: Path) -> None:
    assert node_config({"replicas": 2}, None, {}).ring.replicas == 2
    assert node_config({}, None, {"CHORD_REPLICAS": "5"}).ring.replicas == 5
    for command in ("up", "node"):
        code = f"from chord.cli import run; run(['{command}', '--help'])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert "--replicas N" in done.stdout
    assert len(WORKED_IDS) == 7
