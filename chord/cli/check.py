"""`check`: is the ring correct, and is it complete?

A `violation` line names a broken invariant. A `waiting` line names a part of the ring that is not in its final state
yet. `chord.verify.invariants` finds both in a snapshot of all nodes that can be reached.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

import click

from chord.cli.failures import CHECK_FAILED, OK
from chord.cli.numbers import Seconds
from chord.cli.output import Failure, Out, counted, percent
from chord.cli.ring import clock_warnings, failures_taken
from chord.cli.target import Target, ring_options, statuses, unreachable_nodes
from chord.client.blocking import Client
from chord.client.results import BatchResult
from chord.errors import ChordError
from chord.ids import Arc, Circle, Point
from chord.verify.invariants import Member, Violation, ownership, violations, waiting
from chord.views.check import CheckVerdict, verdict_json
from chord.views.common import names_of_peers
from chord.views.ring import is_small
from chord.wire.messages import Status, VnodeInfo

REREADS_MAX = 4
WATCH_EVERY_S = 0.5
INVARIANTS = 8


@click.command("check")
@click.option("--invariants", "only_invariants", is_flag=True, help="Fail only if an invariant is broken.")
@click.option("--wait", "wait_s", type=Seconds(min=0), default=0.0, metavar="S",
              help="Repeat until the check passes, for at most this many seconds.")
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C, also after the check passes, and print changes.")
@ring_options()
def check_command(target: Target, only_invariants: bool, wait_s: float, watch: bool) -> int:
    """Check that the ring is correct, Ideal and able to answer every get.

    Exit code 0 if so, 8 if not. Ideal means that every pointer is exact and every point has one owner. The command asks
    every known node twice, and asks again if the answers differ.

    A line `degraded` names a node that does not serve all requests, for example because its disk is full. A line
    `damaged` names a node with damaged copies. A line `unavailable` gives the share of the circle in which a get may
    fail. It names the unreachable nodes that may hold keys there, or says that replicas are being compared. That takes
    seconds after a start. Each of these lines makes the exit code 8.

    Unreachable nodes, records with too few copies, clocks that differ and values in quarantine are reported, but do not
    change the exit code.
    """
    deadline = time.monotonic() + wait_s
    shown: CheckVerdict | None = None
    while True:
        try:
            verdict = _examine_until(target, deadline)
        except Failure as failure:
            if not watch:
                raise
            target.out.failure(failure)
            time.sleep(2 * WATCH_EVERY_S)
            continue
        holds = verdict.holds(only_invariants=only_invariants)
        if _but_for_counts(verdict) != shown and (watch or holds or time.monotonic() >= deadline):
            _print(target.out, verdict, only_invariants)
            shown = _but_for_counts(verdict)
        if watch:
            time.sleep(WATCH_EVERY_S)
        elif holds or time.monotonic() >= deadline:
            return OK if holds else CHECK_FAILED
        else:
            time.sleep(WATCH_EVERY_S / 2)


def _but_for_counts(verdict: CheckVerdict) -> CheckVerdict:
    """Return a verdict with 0 or 1 for each number that changes with single records.

    `--watch` prints a verdict if this reduced one has changed. While a node is away, the count of records that lack
    copies grows with each write.
    """
    unavailable = float(verdict.unavailable > 0)
    under_replicated, quarantined = min(1, verdict.under_replicated), min(1, verdict.quarantined)
    return verdict._replace(under_replicated=under_replicated, unavailable=unavailable, quarantined=quarantined)


def examine(client: Client) -> CheckVerdict:
    """Ask all nodes for their status, and return the verdict on the ring.

    Raises:
        ChordError: no entry node answers.
    """
    crawl, changing = _survey(client)
    nodes = statuses(crawl)
    unreachable = unreachable_nodes(crawl)
    words = {at: error.message for at, error in unreachable.items()}
    reported = [(at, said.removeprefix(f"{at}: ")) for at, said in words.items() if said.startswith(f"{at}: ")]
    return judge(nodes, changing, unreachable)._replace(reported=tuple(sorted(reported)))


def judge(nodes: list[Status], changing: list[str], unreachable: Iterable[str] = ()) -> CheckVerdict:
    """Return the verdict on a ring from the reports of its nodes.

    Args:
        nodes: the status of each node that answered, at least one.
        changing: the names of the nodes that gave a different answer each time they were asked.
        unreachable: the addresses of the known nodes that did not answer.
    """
    circle, unreachable = Circle(nodes[0].bits), sorted(unreachable)
    labels = _labels(nodes)
    snapshot: dict[int, Member] = {}
    owned: dict[Point, list[Arc]] = {}
    missing: list[Violation] = []
    for node in nodes:
        label = labels[node.address]
        for vnode in node.vnodes:
            if vnode.state in ("member", "leaving") and vnode.successors:
                snapshot[int(vnode.contact.id)] = _member(vnode, label)
                owned[vnode.contact.id] = [Arc(a.start, a.end) for a in vnode.arcs if a.state == "owned"]
            elif vnode.state != "left":
                missing.append(Violation("Joined", f"{label} is {vnode.state}", (vnode.contact.id,)))
        if node.misplaced:
            text = f"{label} holds {counted(node.misplaced, 'record')} that belong elsewhere"
            missing.append(Violation("RecordsAtHome", text, tuple(v.contact.id for v in node.vnodes[:1])))
    missing += [Violation("Stable", f"{name} changed while it was read") for name in changing]
    share, absent = _unavailable(nodes, circle)
    away = {*unreachable, *absent}
    r = nodes[0].successors
    missing += waiting(snapshot, r)
    missing += ownership(owned, circle)
    return CheckVerdict(
        nodes=len({snapshot[v].address for v in snapshot}),
        vnodes=len(snapshot),
        is_small=is_small(nodes),
        violations=violations(snapshot, r),
        waiting=missing,
        labels={int(v.contact.id): labels[node.address] for node in nodes for v in node.vnodes},
        unreachable=tuple(unreachable),
        names={at: name for at, name in names_of_peers(nodes).items() if at in away},
        under_replicated=sum(node.under_replicated for node in nodes),
        damaged=tuple((labels[node.address], node.damaged) for node in nodes if node.damaged),
        troubles=tuple((labels[node.address], why) for node in nodes for why in node.troubles),
        unavailable=share,
        absent=absent,
        quarantined=sum(node.quarantined for node in nodes),
        clocks=tuple(clock_warnings(nodes)),
    )


def _unavailable(nodes: list[Status], circle: Circle) -> tuple[float, tuple[str, ...]]:
    """Return the share of the circle in which a get may fail, and the missing nodes.

    A get may fail if unreachable nodes may be the only holders of an acknowledged write. These are the missing nodes,
    given by address. A get may also fail if too few replicas are in sync to exclude that. For a ring with one copy of
    each record, the result is 0.0 and ().
    """
    share = 0.0
    absent: dict[str, None] = {}
    for node in nodes:
        for part in node.sets if node.replicas > 1 else ():
            if part.missing or part.is_uncertain:
                share += circle.fraction(circle.length(part.arc_start, part.arc_end))
                absent.update(dict.fromkeys(contact.address for contact in part.missing))
    return min(1.0, share), tuple(sorted(absent))


def _examine_until(target: Target, deadline: float) -> CheckVerdict:
    while True:
        try:
            with target.connect() as client:
                return examine(client)
        except Failure:
            if time.monotonic() >= deadline:
                raise
            time.sleep(WATCH_EVERY_S / 2)


def _survey(client: Client) -> tuple[BatchResult[str, Status], list[str]]:
    """Crawl the ring twice, and repeat it for the nodes that changed.

    A single crawl of a changing ring would mix states of different moments.

    Returns:
        The outcome of each address, and the names of nodes that still changed after `REREADS_MAX` repetitions.
    """
    before = client.members()
    after = client.members(also=list(before))
    for _ in range(REREADS_MAX):
        changed = [a for a, outcome in after.items() if _place(outcome) != _place(before.get(a))]
        if not changed:
            return after, []
        before, after = after, BatchResult({**after, **client.members(only=changed)})
    return after, [after.ok[address].name for address in changed if address in after.ok]


def _place(outcome: Status | ChordError | None) -> object:
    """Return the part of a status that must not change during a crawl.

    None: the node did not answer with a status.
    """
    if not isinstance(outcome, Status):
        return None
    return [(v.contact, v.state, v.predecessor, v.successors, v.arcs) for v in outcome.vnodes]


def _member(vnode: VnodeInfo, label: str) -> Member:
    predecessor = None if vnode.predecessor is None else int(vnode.predecessor.id)
    return Member(label, predecessor, tuple(int(c.id) for c in vnode.successors), vnode.rounds)


def _labels(nodes: list[Status]) -> dict[str, str]:
    """Return a label for each address: the node's name if unique, or the address."""
    names = Counter(node.name for node in nodes)
    return {node.address: node.name if names[node.name] == 1 else node.address for node in nodes}


def _print(out: Out, verdict: CheckVerdict, only_invariants: bool) -> None:
    if out.as_json:
        out.json(verdict_json(verdict, only_invariants=only_invariants))
        return
    for violation in verdict.violations:
        out.sentence(f"violation  {violation.invariant}  {violation.text}")
    for missing in verdict.waiting if not only_invariants else ():
        out.sentence(f"waiting  {missing.invariant}  {missing.text}")
    for node, why in verdict.troubles:
        out.sentence(f"degraded  {node} does not serve all requests: {why}")
    for node, records in verdict.damaged:
        text = f"{counted(records, 'record')} damaged; copies of other nodes replace them, or use chord restore"
        rest = f"If some remain: chord backup, start {node} without its records.sqlite, chord restore"
        out.sentence(f"damaged  {node}: {text}. {rest}")
    if verdict.unavailable:
        where = f"{percent(verdict.unavailable)} of the circle"
        absent = ", ".join(map(verdict.node_at, verdict.absent))
        why = f"no answer from {absent}" if absent else "its replicas are being compared"
        out.sentence(f"unavailable  a get may fail in {where}: {why}")
    if verdict.holds(only_invariants=only_invariants):
        more = "" if verdict.vnodes == verdict.nodes else f", {counted(verdict.vnodes, 'vnode')}"
        size = counted(verdict.nodes, "node") + more
        ideal = "; the ring is Ideal, every point is owned once" if verdict.is_ideal else ""
        small = f" (small ring: {failures_taken(verdict.nodes)})" if verdict.is_small else ""
        out.sentence(f"OK  {INVARIANTS} invariants hold on {size}{ideal}{small}")
    for address in verdict.unreachable:
        node = verdict.node_at(address)
        if said := dict(verdict.reported).get(address):
            out.sentence(f"unreachable  {node} does not answer: {said}")
        else:
            out.sentence(f"unreachable  {node} does not answer. If it will never be back: chord forget {address}")
    if verdict.under_replicated:
        count = verdict.under_replicated
        out.sentence(f"copies  records with a copy on an unreachable node or still to be made: {count}")
    for text in verdict.clocks:
        out.sentence(f"clocks  {text}")
    if verdict.quarantined:
        hidden = counted(verdict.quarantined, "value")
        out.sentence(f"quarantine  {hidden} hidden from readers until you decide: chord quarantine list")
    out.flush()
