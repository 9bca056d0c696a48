"""Two-phase locking (ticket 22): a transaction takes all its locks before it releases the first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from chord.gallery.entry import STUCK, Altered, Breaks, Entry
from chord.gallery.laws import SmallWorld, law_of_worlds
from chord.gallery.process import Did, Effects, Make, Name, Process, ProcessMessage, Send, all_of

ITEMS = 2
"""The first processes have one item each. All others run one transaction each, which writes all items."""


class Lock(ProcessMessage, frozen=True):
    """The sender wants to lock the item, and to write it."""


class Locked(ProcessMessage, frozen=True):
    """The receiver has the lock, and has written the item."""


class Unlock(ProcessMessage, frozen=True):
    """The sender ends, and releases the lock."""


class Item(Process):
    """A process with one item and its lock. It decides alone whether a transaction commits or rolls back."""

    queue: list[Name] = []  # the first has the lock
    history: list[Name] = []  # the transactions that have written the item, in their order
    ended: list[Name] = []  # the transactions that have released the lock, but are not decided
    outcomes: dict[Name, str] = {}

    def asks(self) -> Sequence[str]:
        return [f"{outcome} {name}" for name in self.ended[:1] for outcome in ("commit", "roll back")]

    def on_ask(self, ask: str) -> Effects:
        outcome, _, name = ask.rpartition(" ")
        self.ended, self.outcomes = self.ended[1:], {**self.outcomes, name: outcome}
        yield Did(outcome, name)
        self.queue = self.queue[1:]
        yield from self.lock()

    def on_message(self, sender: Name, message: Lock | Unlock) -> Effects:
        if isinstance(message, Lock):
            self.queue.append(sender)
            if len(self.queue) == 1:
                yield from self.lock()
        else:
            self.ended.append(sender)

    def lock(self) -> Effects:
        """Give the lock to the next transaction, if there is one."""
        if self.queue:
            self.history.append(self.queue[0])
            yield Send(self.queue[0], Locked())


class Transaction(Process):
    """A process that locks the items one after another, writes each, and unlocks all of them at the end."""

    left: int = 1
    held: int = 0  # the items that it has written

    def asks(self) -> Sequence[str]:
        return ["begin"] if self.left else []

    def on_ask(self, ask: str) -> Effects:
        self.left -= 1
        yield Send(self.items()[0], Lock())

    def items(self) -> list[Name]:
        """Return the items in the order of the locks. The same order everywhere prevents cycles of waiting."""
        return list(self.others[:ITEMS])

    def on_message(self, sender: Name, message: Locked) -> Effects:
        self.held += 1
        for item in self.to_unlock(sender):
            yield Send(item, Unlock())
        if self.held < ITEMS:
            yield Send(self.items()[self.held], Lock())

    def to_unlock(self, written: Name) -> list[Name]:
        """Return the items to unlock after a write of the item `written`: all after the last write, none before."""
        return self.items() if self.held == ITEMS else []


@law_of_worlds("serializable", ticket=22)
def serializable(world: SmallWorld) -> str:
    """The precedence graph has no cycle: the items agree on the order of any two transactions."""
    # Each of the two items has a total order. So every longer cycle contains one of two transactions.
    items = list(world.processes.values())[:ITEMS]
    orders = {pair for item in items for pair in combinations(item.history, 2)}
    cycle = next((pair for pair in sorted(orders) if pair[0] < pair[1] and pair[::-1] in orders), None)
    return f"{cycle[0]} is before {cycle[1]} at one item, and after it at another" if cycle else ""


@law_of_worlds("one outcome", ticket=22)
def one_outcome(world: SmallWorld) -> str:
    """All items decide alike about a transaction."""
    items = list(world.processes.values())[:ITEMS]
    decided = {(name, outcome) for item in items for name, outcome in item.outcomes.items()}
    split = sorted(name for name, outcome in decided if outcome == "commit" and (name, "roll back") in decided)
    return f"{split[0]} commits at one item, and rolls back at another" if split else ""


def all_is_done(world: SmallWorld) -> bool:
    """Return whether all transactions have ended, and all items have decided about them. The goal."""
    processes = list(world.processes.values())
    items, transactions = processes[:ITEMS], processes[ITEMS:]
    is_decided = all(len(item.outcomes) == len(transactions) for item in items)
    return is_decided and all(transaction.held == ITEMS for transaction in transactions)


def transactions(kind: Callable[[Name, tuple[Name, ...]], Process]) -> Make:
    """Return a function that makes items, and transactions of the class `kind`."""
    return lambda names: [*list(all_of(Item)(names))[:ITEMS], *list(all_of(kind)(names))[ITEMS:]]


class ReleasesEarly(Transaction):
    """A bug: the transaction releases each lock after the write, and takes the next lock then."""

    def to_unlock(self, written: Name) -> list[Name]:
        return [written]


class AnyOrder(Transaction):
    """A bug: the last transaction locks the items in descending order."""

    def items(self) -> list[Name]:
        return super().items()[:: -1 if self.me > self.others[-1] else 1]


ENTRY = Entry(
    name="transactions-two-phase-locking", ticket=22, title="Two-phase locking", make=transactions(Transaction),
    goal=all_is_done, laws=(serializable,), refuted=(one_outcome,), small=(4,), histories=(), sizes=(4, 8),
    needs={"loss": Breaks(STUCK, 4), "copies": Breaks("serializable", 4), "crash": Breaks(STUCK, 4),
           "restart": Breaks(STUCK, 4)},
    bugs={
        "releases-early": Altered(transactions(ReleasesEarly), breaks="serializable", nodes=4,
                                  text="Another transaction comes between the two writes."),
        "any-order": Altered(transactions(AnyOrder), breaks=STUCK, nodes=4,
                             text="Two transactions hold one lock each, and wait for the other."),
    },
)  # fmt: skip
