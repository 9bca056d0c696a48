"""check: is the ring correct, and is it finished?

`violation` lines say what must never be; `waiting` lines who has not yet what. Both come from
`chord.verify.invariants`, over a snapshot taken by asking every node that can be named.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import click

from chord.cli.failures import CHECK_FAILED, OK
from chord.cli.numbers import Seconds
from chord.cli.output import Failure, Out, counted, percent
from chord.cli.ring import clock_warnings, failures_taken, is_small
from chord.cli.shapes import Json
from chord.cli.target import Target, descriptions, ring_options, who_left
from chord.client.blocking import Ring
from chord.client.session import Outcome
from chord.errors import SILENCE
from chord.ids import Arc, Circle, Point
from chord.verify.invariants import Member, Violation, ownership, violations, waiting
from chord.wire.messages import Description, VnodeInfo

REREADS_MAX = 4
WATCH_EVERY_S = 0.5
INVARIANTS = 8


class Verdict(NamedTuple):
    """What a check found.

    Attributes:
        silent: addresses that others name and that do not answer: the ring goes on without them, their copies do not.
        told: of these addresses, what a node said of itself as it turned the caller away.
        under_replicated: records with a copy on a silent node, or on one that does not have everything yet.
        damaged: nodes with damaged copies that are not replaced, and how many.
        troubles: nodes that do not serve all requests, and why.
        unavailable: the share of the circle in which a get may fail, because nodes that may hold keys do not answer, or
            because too few replicas are in sync.
        absent: the addresses of these replicas.
        quarantined: values that are hidden from readers until an operator decides about them.
        clocks: what is to be said of clocks that differ.
    """

    nodes: int
    vnodes: int
    is_small: bool
    violations: list[Violation]
    waiting: list[Violation]
    labels: dict[int, str]
    silent: tuple[str, ...] = ()
    under_replicated: int = 0
    damaged: tuple[tuple[str, int], ...] = ()
    troubles: tuple[tuple[str, str], ...] = ()
    unavailable: float = 0.0
    absent: tuple[str, ...] = ()
    told: tuple[tuple[str, str], ...] = ()
    quarantined: int = 0
    clocks: tuple[str, ...] = ()

    @property
    def is_ideal(self) -> bool:
        """Whether nothing of the ring is broken and nothing is missing."""
        return not self.violations and not self.waiting

    @property
    def serves(self) -> bool:
        """Whether all nodes serve all requests, and no get fails for want of a whole copy."""
        return not (self.damaged or self.troubles or self.unavailable)

    def holds(self, *, only_invariants: bool) -> bool:
        """Return what the exit code says."""
        return not self.violations and (only_invariants or (self.is_ideal and self.serves))


@click.command("check")
@click.option("--invariants", "only_invariants", is_flag=True, help="Mind only what must never be.")
@click.option("--wait", "wait_s", type=Seconds(min=0), default=0.0, metavar="S",
              help="Repeat until it holds, at most this long.")
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C; print what changes.")
@ring_options()
def check_command(target: Target, only_invariants: bool, wait_s: float, watch: bool) -> int:
    """Check the ring: exit 0 when its invariants hold, it is Ideal, and every get can be answered, else 8.

    The command asks every known node twice, and asks again if the answers differ. A line `degraded` names a node that
    does not serve all requests, for example because its disk is full. A line `damaged` names a node with damaged
    copies. A line `unavailable` gives the share of the circle in which a get may fail, and the silent nodes that may
    hold keys there. With any of these lines the exit code is 8, too. Silent nodes, records with too few copies,
    clocks that differ and values in quarantine are reported, and do not change the exit code.
    """
    deadline = time.monotonic() + wait_s
    shown: Verdict | None = None
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


def _but_for_counts(verdict: Verdict) -> Verdict:
    """What a watcher is told of when it changes: not of each record that is written while a node is away."""
    unavailable = float(verdict.unavailable > 0)
    under_replicated, quarantined = min(1, verdict.under_replicated), min(1, verdict.quarantined)
    return verdict._replace(under_replicated=under_replicated, unavailable=unavailable, quarantined=quarantined)


def examine(ring: Ring) -> Verdict:
    """Take a snapshot of the ring and judge it."""
    crawl, unsettled = _survey(ring)
    nodes = descriptions(crawl)
    waited_for = {contact.address for node in nodes for contact in node.known} - who_left(nodes)
    silent = {at: outcome for at in waited_for if isinstance(outcome := crawl.get(at), SILENCE)}
    words = {at: error.message for at, error in silent.items()}
    told = [(at, said.removeprefix(f"{at}: ")) for at, said in words.items() if said.startswith(f"{at}: ")]
    return judge(nodes, unsettled, silent)._replace(told=tuple(sorted(told)))


def judge(nodes: list[Description], unsettled: list[str], silent: Iterable[str] = ()) -> Verdict:
    """Return what is broken and what is missing, from what the nodes say of themselves.

    Args:
        unsettled: names of nodes that changed each time they were read.
        silent: addresses of nodes that were named and did not answer.
    """
    circle = Circle(nodes[0].bits)
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
    missing += [Violation("Settled", f"{name} changed while it was read") for name in unsettled]
    share, absent = _unavailable(nodes, circle)
    r = nodes[0].successors
    missing += waiting(snapshot, r)
    missing += ownership(owned, circle)
    return Verdict(
        nodes=len({snapshot[v].address for v in snapshot}),
        vnodes=len(snapshot),
        is_small=is_small(nodes),
        violations=violations(snapshot, r),
        waiting=missing,
        labels={int(v.contact.id): labels[node.address] for node in nodes for v in node.vnodes},
        silent=tuple(sorted(silent)),
        under_replicated=sum(node.under_replicated for node in nodes),
        damaged=tuple((labels[node.address], node.damaged) for node in nodes if node.damaged),
        troubles=tuple((labels[node.address], why) for node in nodes for why in node.troubles),
        unavailable=share,
        absent=absent,
        quarantined=sum(node.quarantined for node in nodes),
        clocks=tuple(clock_warnings(nodes)),
    )


def _unavailable(nodes: list[Description], circle: Circle) -> tuple[float, tuple[str, ...]]:
    """Return the share of the circle in which a get may fail, and the silent nodes.

    A get may fail if the silent nodes may be the only holders of an acknowledged write, or if too few replicas are in
    sync to know.
    """
    share = 0.0
    absent: dict[str, None] = {}
    for node in nodes:
        for part in node.sets if node.replicas > 1 else ():
            if part.missing or part.is_uncertain:
                share += circle.fraction(circle.distance(part.arc_start, part.arc_end) or circle.size)
                absent.update(dict.fromkeys(contact.address for contact in part.missing))
    return min(1.0, share), tuple(sorted(absent))


def verdict_json(verdict: Verdict, *, only_invariants: bool = False) -> Json:
    """Return a verdict as JSON."""

    def listed(found: list[Violation]) -> list[Json]:
        return [
            {"invariant": v.invariant, "text": v.text, "nodes": [verdict.labels.get(n, str(n)) for n in v.nodes]}
            for v in found
        ]

    return {
        "ideal": verdict.is_ideal,
        "small": verdict.is_small,
        "violations": listed(verdict.violations),
        "waiting": listed(verdict.waiting),
        "silent": list(verdict.silent),
        "under_replicated": verdict.under_replicated,
        "ok": verdict.holds(only_invariants=only_invariants),
        "damaged": [{"node": node, "records": count} for node, count in verdict.damaged],
        "unavailable": {"share": round(verdict.unavailable, 6), "nodes": list(verdict.absent)},
        "troubles": [{"node": node, "why": why} for node, why in verdict.troubles],
        "quarantined": verdict.quarantined,
        "clocks": list(verdict.clocks),
    }


def _examine_until(target: Target, deadline: float) -> Verdict:
    """Examine; while there is time left, nodes that do not answer are waited for."""
    while True:
        try:
            with target.connect() as ring:
                return examine(ring)
        except Failure:
            if time.monotonic() >= deadline:
                raise
            time.sleep(WATCH_EVERY_S / 2)


def _survey(ring: Ring) -> tuple[dict[str, Outcome], list[str]]:
    """Crawl twice, and read again what differed: a snapshot taken in passing of a ring that moves would lie."""
    before = ring.members()
    after = ring.members(also=list(before))
    for _ in range(REREADS_MAX):
        changed = [a for a, outcome in after.items() if _place(outcome) != _place(before.get(a))]
        if not changed:
            return after, []
        before, after = after, {**after, **ring.members(only=changed)}
    return after, [o.name for a in changed if isinstance(o := after[a], Description)]


def _place(outcome: Outcome | None) -> object:
    """What of a description matters to the check."""
    if not isinstance(outcome, Description):
        return None
    return [(v.contact, v.state, v.predecessor, v.successors, v.arcs) for v in outcome.vnodes]


def _member(vnode: VnodeInfo, label: str) -> Member:
    predecessor = None if vnode.predecessor is None else int(vnode.predecessor.id)
    return Member(label, predecessor, tuple(int(c.id) for c in vnode.successors), vnode.rounds)


def _labels(nodes: list[Description]) -> dict[str, str]:
    """Return by address what to call a node: its name, where no other has the same."""
    names = Counter(node.name for node in nodes)
    return {node.address: node.name if names[node.name] == 1 else node.address for node in nodes}


def _print(out: Out, verdict: Verdict, only_invariants: bool) -> None:
    if out.as_json:
        out.json(verdict_json(verdict, only_invariants=only_invariants))
        return
    for violation in verdict.violations:
        out.line(f"violation  {violation.invariant}  {violation.text}")
    for missing in verdict.waiting if not only_invariants else ():
        out.line(f"waiting  {missing.invariant}  {missing.text}")
    for node, why in verdict.troubles:
        out.line(f"degraded  {node} does not serve all requests: {why}")
    for node, records in verdict.damaged:
        text = f"{counted(records, 'record')} not as written; copies of other nodes replace them, else: chord restore"
        rest = f"If some are left: chord backup, start {node} without its records.sqlite, chord restore"
        out.line(f"damaged  {node}: {text}. {rest}")
    if verdict.unavailable:
        where = f"{percent(verdict.unavailable)} of the circle"
        why = f"no answer from {', '.join(verdict.absent)}" if verdict.absent else "its replicas are being compared"
        out.line(f"unavailable  a get may fail in {where}: {why}")
    if verdict.holds(only_invariants=only_invariants):
        more = "" if verdict.vnodes == verdict.nodes else f", {counted(verdict.vnodes, 'vnode')}"
        size = counted(verdict.nodes, "node") + more
        ideal = "; the ring is Ideal, every point is owned once" if verdict.is_ideal else ""
        small = f" (small ring: {failures_taken(verdict.nodes)})" if verdict.is_small else ""
        out.line(f"OK  {INVARIANTS} invariants hold on {size}{ideal}{small}")
    for address in verdict.silent:
        if said := dict(verdict.told).get(address):
            out.line(f"silent  {address} does not answer: {said}")
        else:
            out.line(f"silent  {address} does not answer. If it will never be back: chord forget {address}")
    if verdict.under_replicated:
        count = verdict.under_replicated
        out.line(f"copies  records with a copy where nobody answers, or with one still to be made: {count}")
    for text in verdict.clocks:
        out.line(f"clocks  {text}")
    if verdict.quarantined:
        hidden = counted(verdict.quarantined, "value")
        out.line(f"quarantine  {hidden} hidden from readers until you decide: chord quarantine list")
    out.flush()
