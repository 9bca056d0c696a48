"""Notes of a store in its database: small values that change with the records.

All notes are in memory from the opening on. A change is visible at once. It becomes durable, or is rolled back, with
the records of its batch.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from hashlib import blake2b

SCHEMA = "CREATE TABLE notes (name BLOB PRIMARY KEY, value BLOB, checksum BLOB) WITHOUT ROWID;"


def _checksum(name: bytes, value: bytes) -> bytes:
    return blake2b(b"".join((len(name).to_bytes(8, "big"), name, value)), digest_size=8).digest()


def load(connection: sqlite3.Connection) -> tuple[dict[bytes, bytes], frozenset[bytes]]:
    """Return the undamaged notes of a database by name, and the names of the damaged notes.

    A damaged name is returned as stored.
    """
    whole, damaged = {}, set()
    for name, value, checksum in connection.execute("SELECT name, value, checksum FROM notes ORDER BY name"):
        if isinstance(name, bytes) and isinstance(value, bytes) and _checksum(name, value) == checksum:
            whole[name] = value
        else:
            damaged.add(name if isinstance(name, bytes) else str(name).encode())
    return whole, frozenset(damaged)


def write(connection: sqlite3.Connection, notes: Mapping[bytes, bytes | None]) -> None:
    """Store the values of some notes, by name, in the open transaction of a connection.

    A note with the value None is removed.
    """
    present = [(name, value, _checksum(name, value)) for name, value in notes.items() if value is not None]
    connection.executemany("REPLACE INTO notes VALUES (?, ?, ?)", present)
    connection.executemany("DELETE FROM notes WHERE name = ?", [(n,) for n, value in notes.items() if value is None])


class Notes:
    """The notes of one store in memory, with changes that are not durable yet.

    Attributes:
        visible: the present value of every note by name, durable or not.
        changes: the durable value, or None, of each note with a later change that is not durable.
    """

    def __init__(self, durable: Mapping[bytes, bytes]) -> None:
        self.visible = dict(durable)
        self.changes: dict[bytes, bytes | None] = {}

    def durable(self, name: bytes) -> bytes | None:
        """Return the durable value of a note; None if the disk has no such note."""
        return self.changes[name] if name in self.changes else self.visible.get(name)

    def change(self, name: bytes, value: bytes | None) -> None:
        """Set a note in memory, before it is durable; None removes the note."""
        self.changes.setdefault(name, self.visible.get(name))
        self._set(name, value)

    def settle(self, name: bytes, value: bytes | None, *, is_changed_again: bool) -> None:
        """Count a value of a note as durable, because its transaction is committed.

        Args:
            name: the name of the note.
            value: the value; None: the note was removed.
            is_changed_again: whether a later value of the note waits for the disk.
        """
        if is_changed_again:
            self.changes[name] = value
        else:
            del self.changes[name]

    def take_back(self) -> None:
        """Roll back every note to its durable value."""
        for name, value in self.changes.items():
            self._set(name, value)
        self.changes.clear()

    def _set(self, name: bytes, value: bytes | None) -> None:
        if value is None:
            self.visible.pop(name, None)
        else:
            self.visible[name] = value
