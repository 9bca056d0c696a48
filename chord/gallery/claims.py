"""Every claim of an entry, and the search or the runs that show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from chord.gallery.entry import Altered, Cost, Entry, Fault
from chord.gallery.explore import SearchResult, prove, under_fault
from chord.gallery.timed import Conditions, run_timed
from chord.gallery.world import Order

COUNTED_MAX = 8
"""The most processes of the runs that count messages."""


class EntryClaim(msgspec.Struct, frozen=True):
    """One claim of an entry about its algorithm, which a search of all states confirms or refutes.

    Attributes:
        entry: the entry that claims it.
        nodes: the number of processes of the search.
        expected: the result that the search should have: "holds", "stuck", "hopeless" or "endless", or the name of
            the law that breaks.
        fault: the fault that may occur once; None: none, or that of the variant.
        kind: the kind of the variant, "bug" or "printed"; "": the algorithm itself.
        name: the name of the variant; "": the algorithm itself.
    """

    entry: Entry
    nodes: int
    expected: str = "holds"
    fault: Fault | None = None
    kind: str = ""
    name: str = ""

    @property
    def variant(self) -> Altered | None:
        """The variant with a bug, or in the printed form, that is searched; None: the algorithm itself."""
        if not self.kind:
            return None
        return (self.entry.bugs if self.kind == "bug" else self.entry.printed)[self.name]

    @property
    def order(self) -> Order | None:
        """The order of messages in the search: "any" for the fault "order"; None: as the variant or entry claims."""
        return "any" if self.fault == "order" else None

    @property
    def text(self) -> str:
        """The claim in words, such as "holds for n = 3" or "does not tolerate a lost message"."""
        if self.kind:
            return f"breaks with the {'bug' if self.kind == 'bug' else 'printed form'} {self.name}"
        if self.fault is None:
            return f"holds for n = {self.nodes}"
        return f"{'tolerates' if self.expected == 'holds' else 'does not tolerate'} {WORDS_OF[self.fault]}"

    def search(self, watch: Callable[[int], None] | None = None) -> SearchResult:
        """Search all states. `watch` is called now and then with the number of states that were visited so far."""
        if self.fault is not None:
            return under_fault(self.entry, self.fault, self.nodes, watch)
        return prove(self.entry, self.nodes, variant=self.variant, watch=watch)


WORDS_OF: dict[Fault, str] = {
    "order": "any order of messages",
    "loss": "a lost message",
    "copies": "a message that arrives twice",
    "crash": "a crash",
    "restart": "a crash with restart",
}


def claims_of(entry: Entry) -> Iterator[EntryClaim]:
    """Yield all claims of an entry that a search can confirm.

    The algorithm holds at its small sizes, and under each fault that it tolerates. Each other fault, each bug and each
    printed form breaks it.
    """
    for nodes in entry.small:
        yield EntryClaim(entry, nodes)
    for fault in entry.tolerates:
        yield EntryClaim(entry, entry.small[0], fault=fault)
    for fault, need in entry.needs.items():
        yield EntryClaim(entry, need.nodes, need.law, fault=fault)
    for kind, variants in (("bug", entry.bugs), ("printed", entry.printed)):
        for name, altered in variants.items():
            yield EntryClaim(entry, altered.nodes, altered.breaks, kind=kind, name=name)


def sizes_counted(entry: Entry) -> range:
    """Return the numbers of processes of the runs that count messages: from the entry's smallest size to at most 8."""
    return range(entry.sizes[0], min(COUNTED_MAX, entry.sizes[1]) + 1)


def miscounted(entry: Entry, nodes: int) -> list[tuple[Cost, int]]:
    """Return the stated costs that a run on virtual time contradicts, each with the messages or moves it counted.

    A run that does not reach the goal confirms no cost, so all costs are returned. `nodes` is the number of processes.
    """
    run = run_timed(entry, nodes, Conditions())
    shown = [cost for cost in entry.cost if run.is_goal and cost.holds(run.recording)]
    return [(cost, cost.counted(run.recording)[0]) for cost in entry.cost if cost not in shown]
