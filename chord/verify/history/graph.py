"""The happens-before graph of a key, in which a cycle is a violation.

Each operation is a vertex. An edge leads from an operation to every operation that began after its end, and from a
write to every read of it. Then each read is merged into the write that it returned, which leaves one *cluster* per
written value. In a cycle of clusters, each cluster must have come before the others. A cas reads one value and writes
the next with nothing in between. So clusters that are joined by cas are merged once more, into a *block*.

No edge is stored. Block A comes before block B if some operation of A ended before some operation of B began. Then the
first end in A is earlier than the last beginning in B. In any cycle, the block with the earliest end comes before every
other block, also before its own predecessor. So a cycle exists if and only if two blocks come before each other. One
sweep over the blocks finds such pairs.

The graph needs to know the write of every read. For that, the values written to a key must be distinct, and a "not
found" must come from before any delete. A read that several writes can explain is left out. A violation among the other
operations is still a violation. Otherwise the verdict is `partial`, and the search decides. If no read was left out,
the verdict is exact.

If the order of the writes is known, `anomalies` counts the reads that a linearizable store would have answered
differently.

Source: Gibbons and Korach 1997 (Testing shared memories); Lu et al. 2015 (Existential consistency, SOSP).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import inf
from typing import TypeAlias

from chord.verify.history.format import HistoryValue, Name, Operation, State, shown
from chord.verify.history.register import Finding, RegisterResult, RegisterVerdict, Step, seen

Writers: TypeAlias = dict[State, list[Operation | None]]
"""The writes of each value, in the order of their beginning. None is the initial state: a key starts as not found."""


def check_graph(key: Name, operations: Sequence[Operation]) -> RegisterResult:
    """Check one key: a cycle in the happens-before graph of its operations is a violation.

    Without a violation, the verdict is partial if a read was left out because several writes can explain it.
    Otherwise it is ok.
    """
    graph = _Graph(key, operations)
    graph.merge()
    blocks = graph.blocks()
    graph.find_cycles_inside(blocks)
    graph.find_cycles_between(blocks)
    verdict: RegisterVerdict = "violation" if graph.findings else "partial" if graph.is_partial else "ok"
    return RegisterResult("graph", key, len(operations), verdict, tuple(graph.findings))


def anomalies(operations: Iterable[Operation], order: Sequence[HistoryValue]) -> list[Operation]:
    """Return the reads of one key that a linearizable store would have answered differently.

    Reads are considered in the order in which they began. A read is an anomaly in two cases:

    - The write of a newer value had ended before the read began.
    - A read of a newer value had ended before the read began, and that read is no anomaly itself.

    Without these reads, the happens-before graph has no cycle. This presupposes that no read returns a value before
    its write takes effect; `check_graph` finds such reads. Takes O(n log n).

    Source: Lu et al. 2015 (Existential consistency, SOSP), section 4.

    Args:
        operations: the operations of the key, in any order. Those that are not ok are ignored.
        order: all written values, in the order in which the writes took effect. They are distinct.

    Raises:
        KeyError: a write wrote a value that is not in the order, or a read returned one. A delete is such a write.
        ValueError: a read returned several values.
    """
    places: dict[State, int] = {value: place for place, value in enumerate(order, 1)}
    happened = [operation for operation in operations if operation.status == "ok"]
    ended = [(o.latest_s, places[o.new]) for o in happened if o.is_write]  # and the reads that are kept
    heapify(ended)
    newest = 0
    found: list[Operation] = []
    for read in sorted((o for o in happened if not o.is_write), key=lambda o: (o.start_s, o.line)):
        while ended and ended[0][0] < read.start_s:
            newest = max(newest, heappop(ended)[1])
        (value,) = seen(read)
        place = 0 if value is None else places[value]
        if place < newest:
            found.append(read)
        else:
            heappush(ended, (read.latest_s, place))
    return found


class _Span:
    """A group of operations, and its first end and last beginning.

    Attributes:
        ended: the operation that ended first; None if the span includes the state before all operations.
        began: the operation that began last; None if the span has no operation.
    """

    def __init__(self, ended: Operation | None, began: Operation | None) -> None:
        self.ended = ended
        self.began = began

    @property
    def end_s(self) -> float:
        return -inf if self.ended is None else self.ended.latest_s

    @property
    def begin_s(self) -> float:
        return -inf if self.began is None else self.began.start_s


class _Cluster(_Span):
    """A write and the reads of its value; the write is None for the initial state."""

    def __init__(self, write: Operation | None) -> None:
        super().__init__(write, write)
        self.write = write
        self.next: _Cluster | None = None  # the cluster of the cas that replaced this value
        self.is_first = True  # in its block

    def merge(self, read: Operation) -> None:
        if read.latest_s < self.end_s:
            self.ended = read
        if read.start_s > self.begin_s:
            self.began = read


class _Block(_Span):
    """Clusters joined by compare-and-set, in their only order; mostly one cluster."""

    def __init__(self, clusters: Sequence[_Cluster]) -> None:
        ended = min(clusters, key=lambda c: c.end_s).ended
        began = max(clusters, key=lambda c: c.begin_s).began
        super().__init__(ended, began)
        self.clusters = clusters


class _Graph:
    """The happens-before graph of one key, and its violations.

    Attributes:
        is_partial: whether `merge` left out a read, because several writes could explain it.
        findings: the violations that the methods have found so far.
    """

    def __init__(self, key: Name, operations: Sequence[Operation]) -> None:
        self._key = key
        self._operations = operations
        self._writers = _writers(operations)
        self._homes: dict[int, _Cluster] = {0: _Cluster(None)}  # by line, of writes and of merged reads
        self._clusters = [self._homes[0]]
        self.is_partial = False
        self.findings: list[Finding] = []

    def merge(self) -> None:
        """Put every read into the cluster of its write, and join clusters by cas.

        A cluster is a write with its reads. A cas joins the cluster of the value that it read to its own. The method
        adds the contradictions that this shows to `findings`.
        """
        happened = self._happened()
        for operation in happened:
            if operation.is_write:
                self._homes[operation.line] = _Cluster(operation)
                self._clusters.append(self._homes[operation.line])
        for operation in happened:
            values = seen(operation)
            if len(values) > 1:
                self._complain("several values were read at once, and a register holds one", (operation, ""))
            elif values:
                self._merge(operation, values[0])

    def blocks(self) -> list[_Block]:
        """Group the clusters into blocks, and add circles of cas to `findings`.

        A cluster is one written value: its write, and the reads that `merge` added. A cas reads the value of one
        cluster and writes that of the next, with nothing in between. A block is a whole chain of clusters that cas link
        in this way. A cluster without such a link is a block of its own.

        If a chain closes to a circle, its clusters are in no block, and the circle is a violation.
        """
        blocks: list[_Block] = []
        placed: set[int] = set()
        for first in self._clusters:
            if first.is_first:
                blocks.append(_Block(list(_chain(first))))
                placed.update(map(id, blocks[-1].clusters))
        for cluster in self._clusters:
            if id(cluster) not in placed:
                circle = list(_chain(cluster))
                placed.update(map(id, circle))
                writes = [_some(c.write) for c in [*circle, cluster]]
                steps = [(x, f"wrote what line {y.line} replaced") for x, y in pairwise(writes)]
                self._complain("a circle of cas: each of them replaced the value that another one wrote", *steps)
        return blocks

    def find_cycles_inside(self, blocks: Sequence[_Block]) -> None:
        """Find contradictions in a block between the order by cas and real time.

        The method adds them to `findings`. A block is a chain of values that cas joins, with the reads of each value.
        """
        for block in blocks:
            latest: _Cluster = block.clusters[0]
            for cluster in block.clusters[1:]:
                if cluster.end_s < latest.begin_s:
                    x, y = _some(cluster.ended), _some(latest.began)
                    text = "the values that successive cas wrote were seen in another order"
                    self._complain(text, (x, f"ended before line {y.line} began"), (y, self._link(y, x)))
                if cluster.begin_s > latest.begin_s:
                    latest = cluster

    def find_cycles_between(self, blocks: Sequence[_Block]) -> None:
        """Find pairs of blocks that came before each other.

        The method adds them to `findings`, short cycles first, and each block in at most one of them. A block is a
        chain of values that cas joins, with the reads of each value.
        """
        cycles = [(self._cycle(a, b), {id(a), id(b)}) for a, b in _tangled(blocks)]
        blamed: set[int] = set()
        for cycle, pair in sorted(cycles, key=lambda found: len(found[0])):
            if not blamed & pair:
                blamed |= pair
                self._complain("a cycle: each of two values was there before the other", *cycle)

    def _happened(self) -> list[Operation]:
        """Return the operations that happened: ok ones, and unknown writes that were seen.

        A write of unknown outcome counts if another operation saw a value that only this write can have written. Other
        operations of unknown outcome are ignored: it is always possible that they never happened.
        """
        found = [operation for operation in self._operations if operation.status == "ok"]
        known = {operation.line for operation in found}
        for operation in found:  # the list grows during the loop
            for value in seen(operation):
                writers = self._sources(operation, value)
                if len(writers) == 1 and writers[0] is not None and writers[0].line not in known:
                    known.add(writers[0].line)
                    found.append(writers[0])
        return found

    def _sources(self, reader: Operation, value: State) -> Sequence[Operation | None]:
        """Return the writes that a reader of a value may have seen, by their beginning.

        Writes that began after the end of the reader are left out. If all writes of the value began later, the first of
        them is returned. None in the result is the initial state.
        """
        writers = self._writers.get(value, [])
        return writers[: bisect_right(writers, reader.latest_s, key=_start_s)] or writers[:1]

    def _merge(self, reader: Operation, value: State) -> None:
        sources = self._sources(reader, value)
        if len(sources) > 1:
            self.is_partial = True
        elif not sources:
            failed = [o for o in self._operations if o.is_write and o.new == value and o.status == "fail"]
            steps = [(o, f"failed, and line {reader.line} saw it") for o in failed[:1]]
            text = f"{shown(value)} was seen, but no operation that can have happened wrote it"
            self._complain(text, (reader, ""), *steps)
        else:
            self._merge_into(self._homes[_line(sources[0])], reader)

    def _merge_into(self, cluster: _Cluster, reader: Operation) -> None:
        write = cluster.write
        if write is not None and reader.latest_s < write.start_s:
            self._complain(
                "a value was read before it was written",
                (reader, f"ended before line {write.line} began"),
                (write, f"wrote what line {reader.line} read"),
            )
        elif not reader.is_write:
            cluster.merge(reader)
            self._homes[reader.line] = cluster
        elif cluster.next is not None:
            first = _some(cluster.next.write)
            text = f"two cas replaced the same {shown(reader.old)}, and one of them is lost"
            self._complain(text, (first, f"replaced what line {reader.line} did"), (reader, ""))
        else:
            cluster.next = self._homes[reader.line]
            cluster.next.is_first = False

    def _cycle(self, a: _Block, b: _Block) -> list[tuple[Operation, str]]:
        """Return the operations of a cycle of two blocks, each with why it takes part.

        The cycle has two edges of real time, and in each block a link between their ends.
        """
        if b.ended is None:
            a, b = b, a
        (a_ended, a_began), (b_ended, b_began) = (a.ended, _some(a.began)), (_some(b.ended), _some(b.began))
        cycle: list[tuple[Operation, str]] = []
        if a_ended is not None:
            cycle.append((a_ended, f"ended before line {b_began.line} began"))
            if b_began is not b_ended:
                cycle.append((b_began, self._link(b_began, b_ended)))
        cycle.append((b_ended, f"ended before line {a_began.line} began"))
        if a_began is not a_ended:
            cycle.append((a_began, self._link(a_began, a_ended)))
        return cycle

    def _link(self, x: Operation, y: Operation | None) -> str:
        """Say why two operations are in one block, for a report.

        If y is None, it stands for the initial state.
        """
        write = self._homes[x.line].write
        if y is None:
            return "found the state before any write" if write is None else "is joined to the first state by cas"
        if self._homes[x.line] is not self._homes[y.line]:
            return f"is joined to line {y.line} by cas"
        if write is x:
            return f"wrote what line {y.line} saw"
        if write is y:
            return f"saw what line {y.line} wrote"
        return f"saw what line {y.line} saw, written in line {_some(write).line}"

    def _complain(self, text: str, *steps: tuple[Operation, str]) -> None:
        named = tuple(Step(operation, why) for operation, why in steps)
        self.findings.append(Finding("graph", self._key, text, named))


def _chain(first: _Cluster) -> Iterator[_Cluster]:
    """Yield a cluster and the clusters that follow it by cas, a circle only once."""
    at: _Cluster | None = first
    while at is not None:
        yield at
        at = at.next if at.next is not first else None


def _tangled(blocks: Sequence[_Block]) -> Iterator[tuple[_Block, _Block]]:
    """Yield pairs of blocks that came before each other: at least one, if any exist.

    If the first end of a block is before its last beginning, the block holds its value in between: it *lasts*. Two
    blocks are tangled if both last and overlap, or if one lasts and the other took place within that time. In the order
    of first ends, two neighbours of the lasting blocks overlap if any two of these blocks do.
    """
    lasting = sorted((b for b in blocks if b.end_s < b.begin_s), key=lambda b: b.end_s)
    for before, block in pairwise(lasting):
        if block.end_s < before.begin_s:
            yield before, block
    ends = [b.end_s for b in lasting]
    for block in blocks:
        position = bisect_left(ends, block.begin_s)
        if block.end_s >= block.begin_s and position and block.end_s < lasting[position - 1].begin_s:
            yield lasting[position - 1], block


def _some(operation: Operation | None) -> Operation:
    assert operation is not None, "the state before all operations is never the later one"
    return operation


def _writers(operations: Sequence[Operation]) -> Writers:
    writers: Writers = {None: [None]}
    for operation in sorted((o for o in operations if o.is_write and o.status != "fail"), key=_start_s):
        writers.setdefault(operation.new, []).append(operation)
    return writers


def _start_s(operation: Operation | None) -> float:
    return -inf if operation is None else operation.start_s


def _line(operation: Operation | None) -> int:
    return 0 if operation is None else operation.line
