"""The entries of the gallery, by name. The module of an entry is imported when the entry is used."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from chord.gallery.entry import Entry
from chord.views.common import Json

ENTRIES: dict[str, str] = {
    "clocks-lamport": "clocks.lamport",
    "clocks-vector": "clocks.vector",
    "clocks-direct": "clocks.direct",
    "mutex-central": "mutex.central",
    "mutex-lamport": "mutex.lamport",
    "mutex-ricart-agrawala": "mutex.ricart_agrawala",
    "mutex-philosophers": "mutex.philosophers",
    "mutex-token": "mutex.token",
    "mutex-quorum": "mutex.quorum",
    "mutex-quorum-one": "mutex.quorum:ONE",
    "mutex-quorum-weighted": "mutex.quorum:WEIGHTED",
    "mutex-quorum-walls": "mutex.quorum:WALLS",
    "cuts-chandy-lamport": "cuts.chandy_lamport",
    "cuts-sender": "cuts.sender",
    "cuts-receiver": "cuts.receiver",
    "predicates-stable": "predicates.stable",
    "predicates-wcp-central": "predicates.wcp_central",
    "predicates-wcp-distributed": "predicates.wcp_distributed",
    "termination-diffusing": "termination.diffusing",
    "termination-shortest-paths": "termination.shortest_paths",
    "barriers-central": "barriers.central",
    "barriers-all-to-all": "barriers.all_to_all",
    "barriers-token": "barriers.token",
    "barriers-deadlock": "barriers.deadlock",
    "order-central": "order.central",
    "order-lamport": "order.lamport",
    "order-skeen": "order.skeen",
    "order-leader-followers": "order.leader_followers",
    "order-gossip": "order.gossip",
    "consensus-ben-or": "consensus.ben_or",
    "transactions-logs": "transactions.logs",
    "transactions-logs-undo": "transactions.logs:UNDO",
    "transactions-two-phase-locking": "transactions.two_phase_locking",
    "transactions-two-phase-commit": "transactions.two_phase_commit",
    "consensus-raft": "consensus.raft",
    "stabilizing-token-ring": "stabilizing.token_ring",
    "stabilizing-token-ring-one-at-a-time": "stabilizing.token_ring:ONE_AT_A_TIME",
    "stabilizing-spanning-tree": "stabilizing.spanning_tree",
}
"""The module of each entry, below `chord.gallery`, in the order of tickets.

If the variable with the entry is not ENTRY, its name follows after a colon.
"""


def entry_of(name: str) -> Entry:
    """Return the entry with a name, such as "mutex-lamport". Imports its module.

    Raises:
        KeyError: there is no entry with this name.
    """
    module, _, variable = ENTRIES[name].partition(":")
    entry = getattr(import_module(f"chord.gallery.{module}"), variable or "ENTRY")
    assert isinstance(entry, Entry)
    return entry


def every_entry() -> Iterator[Entry]:
    """Yield all entries, in the order of the tickets of the exam notes."""
    return map(entry_of, ENTRIES)


def entry_json(entry: Entry) -> Json:
    """Return the description of an entry as plain data, for JSON: names, texts and sizes, but no functions."""
    return {
        "name": entry.name,
        "ticket": entry.ticket,
        "title": entry.title,
        "channels": entry.channels,
        "tolerates": list(entry.tolerates),
        "needs": {fault: need.law for fault, need in entry.needs.items()},
        "cost": [{"text": cost.text, "per": cost.per} for cost in entry.cost],
        "laws": [{"name": law.name, "ticket": law.ticket, "text": law.text} for law in entry.laws],
        "bugs": {name: altered.text for name, altered in entry.bugs.items()},
        "printed": {name: altered.text for name, altered in entry.printed.items()},
        "small": list(entry.small),
        "sizes": list(entry.sizes),
    }
