"""Ben-Or's consensus (ticket 18): if votes do not decide, each process tosses a coin for its next preference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import ClassVar

from msgspec import structs

from chord.gallery.entry import Altered, Breaks, Cost, Entry
from chord.gallery.laws import SmallWorld, agreement, law_of_worlds, validity
from chord.gallery.process import Did, Effects, Make, Name, Process, ProcessMessage, all_of

COIN, UNKNOWN = ("0", "1"), "?"


class Vote(ProcessMessage, frozen=True):
    """In phase 1 the preference of the sender. In phase 2 the value that it ratifies, or ?."""

    round: int
    phase: int
    value: str


class BenOr(Process):
    """A process that votes in two phases per round. In each it waits for N − f votes.

    N is the number of processes. At most f of them may crash, with f = ⌊(N − 1)/2⌋.
    """

    half: ClassVar[int] = 1  # by how much twice the votes exceed all votes, at least, to ratify
    more: ClassVar[int] = 1  # by how much the ratifications exceed f, at least, to decide
    stable: ClassVar = ("preferences", "ratified", "left", "decision", "decided_in")
    preferences: list[str] = []  # at the start of each round
    ratified: list[str] = []  # in each round
    left: int = 0  # rounds that it may still finish
    phase: int = 0
    votes: dict[str, list[str]] = {}  # by round and phase, from this phase on
    is_tossing: bool = False
    decision: str = ""
    decided_in: int = 0  # the round of the decision

    def asks(self) -> Sequence[str]:
        return COIN if self.is_tossing else ()

    def on_start(self) -> Effects:
        return self.vote(1, self.preferences[-1]) if self.left else []

    def on_ask(self, ask: str) -> Effects:
        return self.next_round(ask)

    def on_message(self, sender: Name, message: Vote) -> Effects:
        if self.left and (message.round, message.phase) >= (len(self.preferences), self.phase):
            yield from self.count(message)

    def vote(self, phase: int, value: str) -> Effects:
        """Begin a phase, with the vote for a value."""
        self.phase = phase
        if phase == 1:
            yield Did("round", len(self.preferences))
        vote = Vote(len(self.preferences), phase, value)
        yield from self.all_others(vote)
        yield from self.count(vote)

    def count(self, vote: Vote) -> Effects:
        """Add a vote, and end the phase if enough votes are here."""
        key, now = f"{vote.round} {vote.phase}", f"{len(self.preferences)} {self.phase}"
        self.votes[key] = sorted([*self.votes.get(key, ()), vote.value])
        if len(self.votes.get(now, ())) < len(self.others) + 1 - len(self.others) // 2:
            return
        values = self.votes.pop(now)
        if self.phase == 1:
            most = max((self.preferences[-1], *COIN), key=values.count)
            self.ratified.append(most if 2 * values.count(most) >= len(self.others) + 1 + self.half else UNKNOWN)
            yield from self.vote(2, self.ratified[-1])
            return
        self.phase, value = 3, values[0]  # 0 and 1 are less than ?
        ratified = len(values) - values.count(UNKNOWN)
        if value != UNKNOWN and ratified >= len(self.others) // 2 + self.more and not self.decision:
            self.decision, self.decided_in = value, len(self.preferences)
            yield Did("decide", value)
        self.is_tossing = value == UNKNOWN and self.left > 1
        if not self.is_tossing:
            yield from self.next_round(value)

    def next_round(self, preference: str) -> Effects:
        """Begin the next round, or stop after the last one."""
        self.preferences.append(preference)
        self.left, self.is_tossing = self.left - 1, False
        return self.vote(1, preference) if self.left else []


@law_of_worlds("one value ratified", ticket=18)
def one_value_ratified(world: SmallWorld) -> str:
    """In one round, processes do not ratify different values (lemma 18.1)."""
    ratified = {(n, v) for p in world.processes.values() for n, v in enumerate(p.ratified, 1) if v != UNKNOWN}
    return "in one round, both values are ratified" if len({n for n, _ in ratified}) < len(ratified) else ""


@law_of_worlds("decision is kept", ticket=18)
def decision_is_kept(world: SmallWorld) -> str:
    """After a decision, all processes start the next round with its value (lemma 18.2)."""
    for one, other in product(world.processes.values(), repeat=2):
        if one.decision and other.preferences[one.decided_in : one.decided_in + 1] not in ([], [one.decision]):
            return f"{one.me} decides {one.decision}, and {other.me} sees no ratification"
    return ""


def is_decided(world: SmallWorld) -> bool:
    """Return whether each process that is up has decided, or has used all of its rounds. The goal."""
    return all(process.decision or not process.left for process in world.up())


def first_votes(kind: type[BenOr], values: str = "01", rounds: int = 200) -> Make:
    """Return a maker of processes for `rounds` rounds. Their first preferences repeat the characters of `values`."""
    return lambda names: [
        structs.replace(process, preferences=[values[place % len(values)]], left=rounds)
        for place, process in enumerate(all_of(kind)(names))
    ]


def every_start(names: Sequence[Name]) -> Iterable[Iterable[Process]]:
    """Return all first preferences for one round, except those that differ by names or by swapping 0 and 1."""
    return [first_votes(BenOr, "1" * ones + "0" * (len(names) - ones), 1)(names) for ones in range(len(names) // 2 + 1)]


class HalfIsEnough(BenOr):
    """A bug: half of the votes ratify a value."""

    half: ClassVar[int] = 0


class DecidesWithF(BenOr):
    """A bug: f ratifications are enough to decide, although f processes may crash."""

    more: ClassVar[int] = 0


ENTRY = Entry(
    name="consensus-ben-or", ticket=18, title="Ben-Or's consensus with coins", make=first_votes(BenOr),
    laws=(agreement, validity, one_value_ratified, decision_is_kept), goal=is_decided, starts=every_start, small=(3,),
    ends_quietly=False, tolerates=("loss", "crash"), bands=("is_tossing",),
    needs={"copies": Breaks("decision is kept", 3), "restart": Breaks("decision is kept", 3)},
    cost=(Cost("2(n − 1)", per="round", formula=lambda n: 2 * (n - 1), is_exact=False),),
    bugs={
        "half-is-enough": Altered(first_votes(HalfIsEnough), "one value ratified", "Two halves ratify two values."),
        "decides-with-f": Altered(first_votes(DecidesWithF), "decision is kept", "Others may see no vote.", nodes=3),
    },
)  # fmt: skip
