"""Raft (ticket 24): a leader per term, elected by a majority, copies its log to the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeAlias

from chord.gallery.process import Did, Effects, Name, Process, ProcessMessage, Send, Set

Item: TypeAlias = list[int]  # an entry of a log: its term, and the number that the environment asked to write


class Request(ProcessMessage, frozen=True):
    """The sender is a candidate of `term`. Its log has `length` entries, and the last has the term `last`."""

    term: int
    last: int
    length: int


class Granted(ProcessMessage, frozen=True):
    """The sender votes for the receiver as the leader of this term."""

    term: int


class Append(ProcessMessage, frozen=True):
    """The leader has these entries after its first `length`. The last before them has the term `last`."""

    term: int
    length: int
    last: int
    items: list[Item]
    committed: int


class Appended(ProcessMessage, frozen=True):
    """The first `length` entries of the sender are those of the leader, if the message of the leader fits."""

    term: int
    length: int
    fits: bool


class Raft(Process):
    """A process that is a follower, a candidate or a leader."""

    stable: ClassVar[tuple[str, ...]] = ("term", "vote", "log", "committed", "led", "left", "elections")
    term: int = 0
    vote: Name = ""
    log: list[Item] = []
    committed: int = 0
    led: list[int] = []  # for the laws: the terms in which it was the leader
    left: int = 2  # entries that the environment may still ask for
    elections: int = 1000  # that it may still begin
    beats: int = 10000  # heartbeats that it may still send as the leader
    role: str = "follower"
    votes: list[Name] = []
    lengths: dict[Name, int] = {}  # at the leader: how long the log of each process is known to be equal
    following: dict[Name, int] = {}  # at the leader: after how many entries the next message begins

    def asks(self) -> Sequence[str]:
        return ["write"] if self.role == "leader" and self.left and self.committed == len(self.log) else []

    def on_start(self) -> Effects:
        return [Set("election", 3, 6)] if self.elections else []

    def on_ask(self, ask: str) -> Effects:
        self.left -= 1
        self.log.append([self.term, self.left])
        return self.update_all()

    def on_timer(self, timer: str) -> Effects:
        if timer == "heartbeat" and self.role == "leader":
            self.beats -= 1
            yield from self.update_all()
            if self.beats:
                yield Set("heartbeat", 0.5, 0.5)
        elif timer == "election":
            self.elections -= 1
            yield from self.on_start()
            if self.role != "leader":
                self.term, self.vote, self.votes, self.role = self.term + 1, self.me, [self.me], "candidate"
                yield from self.all_others(Request(self.term, self.last(len(self.log)), len(self.log)))

    def on_message(self, sender: Name, message: Request | Granted | Append | Appended) -> Effects:
        if message.term > self.term:
            self.term, self.vote, self.role = message.term, "", "follower"
        if message.term < self.term:
            return
        if isinstance(message, Request):
            if self.vote in ("", sender) and self.is_fresh(message):
                self.vote = sender
                yield from self.on_start()
                yield Send(sender, Granted(self.term))
        elif isinstance(message, Granted):
            self.votes = sorted({*self.votes, sender})
            if self.role == "candidate" and 2 * len(self.votes) > len(self.others) + 1:
                self.role, self.led, self.lengths = "leader", [*self.led, self.term], {}
                self.following = {name: len(self.log) for name in self.others}
                yield Did("lead", self.term)
                if self.beats:
                    yield Set("heartbeat", 0, 0)
        elif isinstance(message, Append):
            yield from self.on_start()
            yield Send(sender, self.append(message))
        elif self.role == "leader" and message.fits:
            yield from self.count(sender, message.length)
        elif self.role == "leader":  # the next message begins one entry earlier
            self.following[sender] = max(0, self.following[sender] - 1)

    def update_all(self) -> Effects:
        """Send each process the entries that it lacks. Without entries, the message is a heartbeat."""
        yield Did("round")
        for name, start in self.following.items():
            yield Send(name, Append(self.term, start, self.last(start), self.log[start:], self.committed))

    def append(self, message: Append) -> Appended:
        """Take the entries if the log before them equals that of the leader. An entry that differs ends the log."""
        end = message.length + len(message.items)
        fits = message.length <= len(self.log) and self.last(message.length) == message.last
        if fits:
            for place, item in enumerate(message.items, message.length):
                if self.log[place : place + 1] != [item]:
                    self.log = [*self.log[:place], item]
            self.committed = max(self.committed, min(message.committed, end))
        return Appended(self.term, end, fits)

    def count(self, sender: Name, length: int) -> Effects:
        """Note that `length` entries of a follower are equal, and commit the entries that a majority has."""
        self.lengths[sender] = self.following[sender] = max(self.lengths.get(sender, 0), length)
        for end in range(self.committed + 1, len(self.log) + 1):
            copies = 1 + sum(known >= end for known in self.lengths.values())
            if 2 * copies > len(self.others) + 1 and self.is_of_this_term(self.log[end - 1]):
                self.committed = end
                yield Did("commit", end)

    def last(self, length: int) -> int:
        """Return the term of the last of the first `length` entries; 0 for no entries."""
        return self.log[length - 1][0] if length else 0

    def is_fresh(self, request: Request) -> bool:
        """Return whether the log of a candidate is at least as fresh as that of this process."""
        return (request.last, request.length) >= (self.last(len(self.log)), len(self.log))

    def is_of_this_term(self, item: Item) -> bool:
        """Return whether an entry may be committed by counting its copies."""
        return item[0] == self.term
