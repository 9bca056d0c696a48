"""Redo and undo logs (ticket 22): after a crash, a store has all writes of a transaction or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec import structs

from chord.gallery.entry import Altered, Entry
from chord.gallery.laws import SmallWorld, law_of_worlds
from chord.gallery.process import Did, Effects, Process, Set, all_of

ITEMS = 2
"""The items of the store. A transaction adds 1 to each."""


class Store(Process):
    """A store on a disk that writes one thing at a time. A crash can fall between any two writes."""

    stable: ClassVar = ("left", "items", "log", "is_marked", "promised")
    left: int = 1  # transactions that the environment may still ask for
    items: list[int] = []  # on disk
    log: list[list[int]] = []  # on disk: pairs of an item and a number
    is_marked: bool = False  # on disk: the transaction has committed
    promised: int = 0  # transactions that have committed, as the environment knows
    work: list[str] = []  # the writes that this process still makes, in their order

    def asks(self) -> Sequence[str]:
        return ["commit", "roll back"] if self.left and not self.work else []

    def on_start(self) -> Effects:
        self.items = self.items or [0] * ITEMS
        self.work = self.recovery()
        return self.go_on()

    def on_ask(self, ask: str) -> Effects:
        self.left -= 1
        self.work = self.transaction(ask == "commit")
        return self.go_on()

    def on_timer(self, timer: str) -> Effects:
        what, _, item = timer.partition(" ")
        self.work = self.work[1:]
        if what == "promise":
            yield Did("committed")
        self.write(what, int(item or 0))
        yield from self.go_on()

    def go_on(self) -> Effects:
        """Set the timer of the next write."""
        return [Set(self.work[0], 0.005, 0.015)] if self.work else []

    def write(self, what: str, item: int) -> None:
        """Make the write `what` of one item, such as "log" or "mark". "promise" tells the environment of the commit."""
        if what == "promise":
            self.promised += 1
        elif what == "log":
            self.log.append([item, self.items[item] + 1])
        elif what == "mark":
            self.is_marked = True
        elif what == "apply":
            for place, number in self.log:
                if place == item:
                    self.items[place] = number
        elif what == "clean":
            self.log, self.is_marked = [], False

    def transaction(self, is_commit: bool) -> list[str]:
        """Return the writes of a transaction: a shadow copy in memory, its redo log, the mark, then the items."""
        if not is_commit:
            return []  # the shadow copy is dropped
        return [*self.each("log"), "mark", "promise", *self.each("apply"), "clean"]

    def recovery(self) -> list[str]:
        """Return the writes after a restart: the log of a marked transaction is applied again."""
        return [*(self.each("apply") if self.is_marked else []), *(["clean"] if self.log or self.is_marked else [])]

    def each(self, what: str) -> list[str]:
        """Return one write of this kind for each item, such as "log 0" and "log 1"."""
        return [f"{what} {item}" for item in range(ITEMS)]


class UndoStore(Store):
    """A store that changes the items at once. Its undo log has their old numbers until the transaction ends."""

    def write(self, what: str, item: int) -> None:
        if what == "log":
            self.log.append([item, self.items[item]])
        elif what == "change":
            self.items[item] += 1
        else:
            super().write(what, item)

    def transaction(self, is_commit: bool) -> list[str]:
        changes = [write for item in range(ITEMS) for write in self.change(item)]
        return [*changes, "clean", "promise"] if is_commit else [*changes, *self.each("apply"), "clean"]

    def change(self, item: int) -> list[str]:
        """Return the writes that change an item: the old number is in the log before the item changes."""
        return [f"log {item}", f"change {item}"]

    def recovery(self) -> list[str]:
        return [*self.each("apply"), "clean"] if self.log else []


@law_of_worlds("all or nothing", ticket=22)
def all_or_nothing(world: SmallWorld) -> str:
    """Whenever a store does nothing, it has all writes of a transaction or none."""
    mixed = [store.me for store in world.up() if not store.work and len(set(store.items)) > 1]
    return f"{mixed[0]} has one write of the transaction, and lacks another" if mixed else ""


@law_of_worlds("durable", ticket=22)
def durable(world: SmallWorld) -> str:
    """Whenever a store does nothing, it has all transactions that the environment knows as committed."""
    lost = [store.me for store in world.up() if not store.work and store.items[0] < store.promised]
    return f"{lost[0]} has lost a committed transaction" if lost else ""


def all_is_done(world: SmallWorld) -> bool:
    """Return whether each store that is up has finished all transactions. The goal."""
    return not any(store.left or store.work for store in world.up())


class MarksFirst(Store):
    """A bug: the mark is on disk before the log is complete."""

    def transaction(self, is_commit: bool) -> list[str]:
        return sorted(super().transaction(is_commit), key=lambda write: write != "mark")


class ChangesFirst(UndoStore):
    """A bug: the item changes before its old number is in the log."""

    def change(self, item: int) -> list[str]:
        return [f"change {item}", f"log {item}"]


ENTRY = Entry(
    name="transactions-logs", ticket=22, title="A shadow copy with a redo log", make=all_of(Store), goal=all_is_done,
    laws=(all_or_nothing, durable), small=(1, 2), sizes=(1, 3), tolerates=("loss", "copies", "crash", "restart"),
    bugs={"marks-first": Altered(all_of(MarksFirst), breaks="all or nothing", nodes=1, fault="restart",
                                 text="After a crash, the store applies a part of the log.")},
)  # fmt: skip
UNDO = structs.replace(
    ENTRY, name="transactions-logs-undo", title="Changes in place with an undo log", make=all_of(UndoStore),
    bugs={"changes-first": Altered(all_of(ChangesFirst), breaks="all or nothing", nodes=1, fault="restart",
                                   text="After a crash, nothing tells the old number of the item.")},
)  # fmt: skip
