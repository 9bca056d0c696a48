"""The inventory of copies: the stores of living nodes, and the disks of dead ones.

The oracle judges the ring by this inventory. A node that dies takes its memory with it. The autopsy then checks its
disk: every record that its store called durable must be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from chord.ids import Arc, Point
from chord.node import Node
from chord.sim.disk import Disk
from chord.sim.stores import left_on
from chord.store import versions
from chord.store.storage import Batch, MemoryStorage, Storage
from chord.testing.rings import TestRing
from chord.wire.messages import Record


class FoundCopy(NamedTuple):
    """A record on a machine.

    Attributes:
        host: the name of the machine.
        record: the visible record.
        durable: the durable record of the key, perhaps older than `record`; None: it has none. A store in memory
            calls all its records durable.
        is_living: whether the node of the machine runs.
    """

    host: str
    record: Record
    durable: Record | None
    is_living: bool


class Inventory:
    """The copies of one ring's records: in the stores of living nodes, and on the disks of dead ones."""

    def __init__(self, ring: TestRing) -> None:
        self._ring = ring
        # By machine: the store of the dead node, or the content of its disk after the autopsy.
        self._dead: dict[str, Storage] = {}
        self._claims: dict[str, dict[bytes, tuple[Record, Record | None]]] = {}  # by machine and key: durable, visible
        self._dropping: dict[str, dict[bytes, Record]] = {}  # by machine: durable records at the start of their removal

    # -- questions ------------------------------------------------------------------------------

    def copies(self, key: bytes) -> Iterator[FoundCopy]:
        """Yield every copy of a key's record: on living nodes, then of dead ones."""
        for node in self._ring.nodes:
            if self.is_living(node):
                storage = node._host.storage
                record = storage.get(key)
                if record is not None:
                    yield FoundCopy(node.name, record, storage.durable(key), True)
        for host, storage in self._dead.items():
            record = storage.get(key)
            if record is not None:
                yield FoundCopy(host, record, storage.durable(key), False)

    def is_living(self, node: Node) -> bool:
        """Return whether a node runs, is not about to be killed, and is no clone.

        A clone runs on a copy of another node's data directory.
        """
        return node.name not in self._dead and node.name not in getattr(self._ring, "clones", ())

    def merged(self, key: bytes, *, only_living: bool = False) -> Record | None:
        """Return all copies of a key's record, merged; None if there is no copy.

        With `only_living`, copies of dead nodes are left out.
        """
        found: Record | None = None
        for copy in self.copies(key):
            if copy.is_living or not only_living:
                found = copy.record if found is None else versions.sync(found, copy.record)
        return found

    # -- events -----------------------------------------------------------------------------------

    def dies(self, node: Node, is_known: Callable[[bytes], bool]) -> Storage | None:
        """Record that a node is about to die, and return its store if it has no disk.

        Args:
            is_known: returns whether `autopsy` will check a key.

        Returns:
            The store that is lost with the node; None if the node has a disk.
        """
        storage, circle = node._host.storage, node._host.circle
        if self._disk(node.name) is None:
            self._dead[node.name] = MemoryStorage(circle, bytes(8))
            return storage
        found = [record.key for record in storage.scan(Arc(circle.point(0), circle.point(0))) if is_known(record.key)]
        dropping = self._dropping.pop(node.name, {})
        claims = {key: record for key in found if (record := storage.durable(key)) is not None}
        claims = {key: record for key, record in claims.items() if dropping.get(key) != record}
        self._claims[node.name] = {key: (record, storage.get(key)) for key, record in claims.items()}
        self._dead[node.name] = storage
        return None

    def drops(self, host: str, key: bytes) -> None:
        """Record that the store of machine `host` is about to remove the record of a key.

        Until the removal is durable, the disk may have the record or not.
        """
        for node in self._ring.nodes:
            if node.name == host and (record := node._host.storage.durable(key)) is not None:
                self._dropping.setdefault(host, {})[key] = record

    def autopsy(self, node: Node) -> list[bytes]:
        """Read a dead node's disk, and return the keys of durable records that it lost.

        From then on, the records on this disk count as the node's copies. For a machine without a disk or a dead node,
        the call does nothing.
        """
        disk = self._disk(node.name)
        if disk is None or node.name not in self._dead:
            return []
        left = left_on(disk, node._host.circle) or MemoryStorage(node._host.circle, bytes(8))
        self._dead[node.name] = left
        claims = self._claims.pop(node.name, {})
        found = {key: left.get(key) for key in claims}
        # A transaction may have ended without an answer to the node. It may have removed reaped records.
        wrong = (key for key, (_, visible) in claims.items() if found[key] != visible)
        return [key for key in wrong if not _covers(found[key], claims[key][0])]

    def not_on_disk(self, node: Node, keys: Iterable[bytes]) -> list[bytes]:
        """Return those of `keys` that a running store calls durable and its disk lacks.

        A key counts even if the disk has an older record of it. The result is empty if the node is dead or has no
        disk.
        """
        disk, storage = self._disk(node.name), node._host.storage
        left = None if disk is None or not self.is_living(node) else left_on(disk, node._host.circle)
        if left is None:
            return []
        claims = {key: record for key in keys if (record := storage.durable(key)) is not None}
        return [key for key, record in claims.items() if not _covers(left.get(key), record)]

    def comes_back(self, host: str) -> None:
        """Record that a dead node starts again with the content of its disk."""
        self._dead.pop(host, None)

    def is_wiped(self, host: str) -> Storage | None:
        """Record that a dead node's disk is about to be emptied, and return its content.

        None: the machine has no dead node.
        """
        return self._dead.pop(host, None)

    def has_disk(self, host: str) -> bool:
        """Return whether a machine has a disk."""
        return self._disk(host) is not None

    def dead(self) -> list[str]:
        """Return the machines with a dead node, in the order of the deaths."""
        return list(self._dead)

    def is_damaged(self, host: str, key: bytes) -> Record | None:
        """Record damage to a copy on a dead node's disk, and return the copy as it was.

        The copy no longer counts. None: the disk had no such copy.
        """
        storage = self._dead[host]
        assert isinstance(storage, MemoryStorage)
        record = storage.get(key)
        storage.apply(Batch(removals=[key]))
        return record

    def records_of(self, host: str) -> list[bytes]:
        """Return the keys of a dead node's copies."""
        storage = self._dead[host]
        return [record.key for record in storage.scan(Arc(Point(0), Point(0)))]

    def _disk(self, host: str) -> Disk | None:
        disks: dict[str, Disk] = getattr(self._ring, "disks", {})
        return disks.get(host)


def _covers(record: Record | None, other: Record) -> bool:
    """Return whether a record knows all that another record knows."""
    if record is None or record == other:
        return record is not None
    context = versions.context_of(record)
    return all(context.get(entry.actor, 0) >= entry.count for entry in other.clock)
