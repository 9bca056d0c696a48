"""Checks that a consistent backup contains the causes of everything in it.

The law: if the backup contains B, and A was acknowledged before B began, the backup contains A, or a value that has
replaced A. *Before* means that the client of B knew: it had written A itself, or it had read a value that some client
wrote after A. The law also holds for the start of the backup in place of B, and then for all clients.

Nothing else is known of a ring: operations, with the times at which they began and ended, and the values in the backup.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple, TypeAlias

import msgspec


class CutOperation(msgspec.Struct, eq=False):
    """An operation of a client. A client has one operation at a time.

    Attributes:
        client: the name of the client.
        key: the key.
        value: the value of a put, which no other put has; None: a delete or a get.
        began: when it began, in seconds on the clock of all clients.
        ended: when the client got the acknowledgement, or the values; infinity if it never did.
        found: the values that a get found; None: a write.
        spared: values of the last backup that a delete did not replace, as its acknowledgement says.
    """

    client: str
    key: bytes
    value: bytes | None
    began: float
    ended: float = inf
    found: tuple[bytes, ...] | None = None
    spared: Collection[bytes] = ()

    @property
    def is_write(self) -> bool:
        """Whether the operation is a put or a delete."""
        return self.found is None


class CutViolation(NamedTuple):
    """An acknowledged write that a backup lacks.

    Attributes:
        missing: the write.
        because: a later write that the backup contains; None: the backup began after `missing` was acknowledged.
    """

    missing: CutOperation
    because: CutOperation | None

    def __str__(self) -> str:
        """Return the violation in one sentence."""
        missing, because = self.missing, self.because
        what = f"a delete of {missing.key!r}" if missing.value is None else f"{missing.value!r} of {missing.key!r}"
        why = "its start" if because is None else f"{because.value!r} of {because.key!r}, which it contains"
        return f"the backup lacks {what}, which {missing.client} had acknowledged before {why}"


Past: TypeAlias = dict[str, int]
"""By client: the number of its first operations that are in the past."""


def violations(
    operations: Sequence[CutOperation], backup: Mapping[bytes, Collection[bytes | None]], began: float
) -> list[CutViolation]:
    """Return the acknowledged writes that a consistent backup must contain and this one lacks, each once.

    If the backup contains a write, it must contain each write that the client of that write knew before. It must also
    contain each write that was acknowledged before the backup began. A later write of the same key counts in its place.

    Args:
        operations: all operations until the end of the backup. Those of one client are in their order.
        backup: by key, the values in the backup, and None if it has a tombstone of the key.
        began: when the backup began, in seconds.
    """
    history = _History(operations)
    demanded: dict[tuple[str, int], CutOperation | None] = {}
    for operation in operations:
        if operation.value is not None and operation.value in backup.get(operation.key, ()):
            for client, count in history.past_of(operation).items():
                for number in range(count):
                    demanded.setdefault((client, number), operation)
    for client, done in history.by_client.items():
        for number, operation in enumerate(done):
            if operation.ended < began:
                demanded.setdefault((client, number), None)
    found = [
        CutViolation(missing, because)
        for (client, number), because in demanded.items()
        if (missing := history.by_client[client][number]).is_write
        and missing.ended < inf
        and not history.is_covered(missing, backup)
    ]
    return sorted(found, key=lambda violation: (violation.missing.ended, violation.missing.client))


class _History:
    """The operations by client, and what each client knew before each of them."""

    def __init__(self, operations: Sequence[CutOperation]) -> None:
        self.by_client: dict[str, list[CutOperation]] = {}
        self._number: dict[CutOperation, int] = {}
        self._writers: dict[bytes, CutOperation] = {}
        self._writes: dict[bytes, list[CutOperation]] = {}
        self._pasts: dict[CutOperation, Past] = {}
        for operation in operations:
            done = self.by_client.setdefault(operation.client, [])
            self._number[operation] = len(done)
            done.append(operation)
            if operation.value is not None:
                self._writers[operation.value] = operation
            if operation.is_write:
                self._writes.setdefault(operation.key, []).append(operation)
        for operation in sorted(operations, key=lambda operation: operation.began):
            self.past_of(operation)

    def past_of(self, operation: CutOperation) -> Past:
        """Return the operations that the client of an operation knew when it began."""
        if (past := self._pasts.get(operation)) is not None:
            return past
        number = self._number[operation]
        self._pasts[operation] = past = {}
        if number:
            before = self.by_client[operation.client][number - 1]
            past.update(self.past_of(before))
            for source in self._sources(before):
                for client, count in self.past_of(source).items():
                    past[client] = max(count, past.get(client, 0))
                if source.ended <= before.ended:
                    past[source.client] = max(self._number[source] + 1, past.get(source.client, 0))
            if before.ended < inf:
                past[operation.client] = number
        return past

    def _sources(self, operation: CutOperation) -> Iterator[CutOperation]:
        """Yield the writes of the values that a get found."""
        if operation.ended < inf:
            for value in operation.found or ():
                if (source := self._writers.get(value)) is not None:
                    yield source

    def is_covered(self, write: CutOperation, backup: Mapping[bytes, Collection[bytes | None]]) -> bool:
        """Return whether a backup contains a write, or a write that may have replaced it.

        Every write of the key may have, unless it ended before `write` began. The tombstone of a delete may have been
        removed, so a key counts as deleted if all its values are values that the delete spared.
        """
        values = backup.get(write.key) or (None,)
        may_replace = [other for other in self._writes[write.key] if not other.ended < write.began]
        return any(other.value in values or _may_be_removed(other, values) for other in may_replace)


def _may_be_removed(write: CutOperation, values: Collection[bytes | None]) -> bool:
    """Return whether a write is a delete that spared all the values that a backup shows."""
    return write.value is None and all(value in write.spared for value in values)
