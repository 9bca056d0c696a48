"""An entry of the gallery: the description of one algorithm.

How to write an entry:

1. Put the algorithm into `chord/gallery/FAMILY/NAME.py`, in at most 150 lines. Import only `process`, `laws` and
   `entry`, and modules of the standard library that compute. State each message as a subclass of `ProcessMessage`, and
   the process as a subclass of `Process` or `Machine`. If that is too long, put them into `NAME_algorithm.py`.
2. Annotate the argument `message` of `on_message` with the union of all messages that the process receives.
3. Limit the asks by a field such as `left`, so that the worlds are finite. Let the environment choose by `asks`.
4. Yield `Did(...)` for each event that laws or drawings need.
5. Write laws with `law_of_worlds` (checked in every state) and `law_of_runs` (checked on the recording, with `before`).
6. Write each bug, and each form that does literally what the text prints, as a subclass with one changed method.
7. Define `ENTRY`. Under each fault in `tolerates`, all laws hold and the goal stays reachable. For each other fault,
   state in `needs` how a search breaks the algorithm.
8. Add a row to `chord/gallery/index.py`, and a section to `docs/gallery/FAMILY.md`.

Tests then check the entry: no test has to be written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from chord.gallery.laws import Law, Recording, SmallWorld
from chord.gallery.process import Make, Name, Process
from chord.gallery.world import Order

Fault: TypeAlias = Literal["order", "loss", "copies", "crash", "restart"]
"""A fault: messages overtake each other, are lost, arrive twice; a process crashes, or crashes and starts again."""

STUCK, HOPELESS, ENDLESS = "stuck", "hopeless", "endless"
"""What a search finds if no law is broken: no choice is left, or no run reaches the goal, or a run never does."""


class Cost(msgspec.Struct, frozen=True):
    """The number of messages, or of moves of machines, that the exam notes state for an algorithm.

    Attributes:
        text: the number as the notes state it, such as "2n − 2".
        per: the number is for one of these: the name of a `Did`, such as "enter", or "run" for the whole run.
        formula: returns the number for n processes.
        is_exact: the number is exact; otherwise it is the largest possible.
        kinds: count only messages of these kinds; (): all kinds.
        unit: what the number counts.
    """

    text: str
    per: str
    formula: Callable[[int], int]
    is_exact: bool = True
    kinds: tuple[str, ...] = ()
    unit: Literal["messages", "moves"] = "messages"

    def counted(self, run: Recording) -> tuple[int, int]:
        """Return the number of messages or moves of a run, and the number of times that `per` occurred."""
        times = 1 if self.per == "run" else len(run.dids(self.per))
        if self.unit == "moves":
            return len(run.of("move")), times
        sent = run.messages()
        return sum(count for kind, count in sent.items() if not self.kinds or kind in self.kinds), times

    def holds(self, run: Recording) -> bool:
        """Return whether a finished run has as many messages or moves as the formula gives, or at most as many."""
        count, times = self.counted(run)
        allowed = self.formula(len(run.names)) * times
        return count == allowed if self.is_exact else count <= allowed


class Breaks(msgspec.Struct, frozen=True):
    """How a search breaks an algorithm under a fault.

    Attributes:
        law: the name of the law that it finds broken, or "stuck", "hopeless" or "endless".
        nodes: the number of processes of the search.
    """

    law: str
    nodes: int = 2


class Altered(msgspec.Struct, frozen=True):
    """A variant of an algorithm with a bug, or in the form that the exam notes print.

    Attributes:
        make: returns its processes, for their names.
        breaks: the name of the law that a search finds broken, or "stuck", "hopeless" or "endless".
        nodes: the number of processes of that search.
        text: why the rule exists, or why the printed form is wrong, as one sentence.
        order: the order of its channels; None: as the entry claims.
        fault: the fault that the search needs to break it; None: it breaks without faults.
        laws: laws that only this form states, besides those of the entry.
        transcript: the steps of a run that breaks it, if a search cannot reach one, such as "a timer election" or
            "b receive a". Then no search takes place.
    """

    make: Make
    breaks: str
    text: str
    nodes: int = 2
    order: Order | None = None
    fault: Fault | None = None
    laws: tuple[Law, ...] = ()
    transcript: tuple[str, ...] = ()


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The description of one algorithm.

    Attributes:
        name: its name on the command line: the family and the algorithm.
        ticket: the ticket of the exam notes; 0: the algorithm is from the course notes on sharding.
        title: its title.
        make: returns its processes, for their names.
        goal: returns whether a world has reached what the algorithm is for. It stays reachable from every state.
        laws: the laws that hold.
        small: the numbers of processes for which a search of all states proves the entry.
        histories: the numbers of processes for which a search of all histories proves the laws of runs.
        sizes: the smallest and the largest number of processes of a run.
        channels: the order of messages that the algorithm needs: "any" (none) or "fifo".
        tolerates: the faults, besides `channels`, under which laws and goal hold. A crash counts without restart.
        needs: for each other fault, how a search breaks the algorithm.
        cost: the numbers of messages that the exam notes state.
        bugs: variants with a bug, by name.
        printed: variants that do literally what a wrong text says, by name.
        refuted: laws that look plausible, and that a search at the smallest size breaks.
        starts: returns the processes of every world from which a search starts; None: only those of `make`.
        at_once: any set of machines may move in one step; default: one machine.
        ends_quietly: a run ends when no message is in transit. Otherwise it ends as soon as it has reached the goal.
        is_inevitable: every run reaches the goal, not only some run from every state.
        bands: for drawings: the fields that are shown as a band on a process's line while they are true.
    """

    name: str
    ticket: int
    title: str
    make: Make
    goal: Callable[[SmallWorld], bool]
    laws: tuple[Law, ...]
    small: tuple[int, ...] = (2, 3)
    histories: tuple[int, ...] = (2,)
    sizes: tuple[int, int] = (2, 8)
    channels: Order = "any"
    tolerates: tuple[Fault, ...] = ()
    needs: Mapping[Fault, Breaks] = {}
    cost: tuple[Cost, ...] = ()
    bugs: Mapping[str, Altered] = {}
    printed: Mapping[str, Altered] = {}
    refuted: tuple[Law, ...] = ()
    starts: Callable[[Sequence[Name]], Iterable[Iterable[Process]]] | None = None
    at_once: bool = False
    ends_quietly: bool = True
    is_inevitable: bool = False
    bands: tuple[str, ...] = ()

    def title_with(self, variant: Altered | None) -> str:
        """Return the title of a drawing, so that a drawing of a wrong form says that it is wrong."""
        if variant is None:
            return self.title
        bug = next((name for name, altered in self.bugs.items() if altered is variant), "")
        return f"{self.title} (bug {bug})" if bug else f"{self.title} (as printed, wrong)"
