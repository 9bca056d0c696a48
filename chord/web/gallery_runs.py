"""Runs of the gallery's algorithms as JSON: on virtual time, the shortest run that breaks a law, or step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chord.gallery.entry import Altered, Entry
from chord.gallery.explore import Stepper, prove, replay, systems_of
from chord.gallery.layout import diagram_of
from chord.gallery.recording import Recording
from chord.gallery.timed import Conditions, run_timed
from chord.views.common import Json

ROWS_MAX: Final = 400
"""The largest number of steps of a run that an answer has."""

UNREACHED: Final = {
    "stuck": "no step is possible, and the goal is not reached",
    "hopeless": "no run from the last state reaches the goal",
    "endless": "a run from the last state can avoid the goal forever",
    "too many": "the search has too many states, so it proves nothing",
}


def timed_run_json(entry: Entry, nodes: int, seed: int) -> Json:
    """Return a run of an algorithm on virtual time as JSON, with the verdict on each law.

    Args:
        entry: the algorithm.
        nodes: the number of processes.
        seed: determines the message delays and the times at which processes ask.
    """
    run = run_timed(entry, nodes, Conditions(seed=seed))
    goal = f"the goal is {'' if run.is_goal else 'not '}reached after {run.seconds:.3f} virtual seconds"
    return {**_drawn(entry, run.recording, run.breaches), "result": goal, "holds": run.is_goal and not run.breaches}


def broken_run_json(entry: Entry, variant: Altered) -> Json:
    """Return the shortest run in which a variant of an algorithm breaks a law, as JSON.

    A search of all states finds this run. If no law breaks, the field `result` says so.

    Args:
        entry: the algorithm.
        variant: the algorithm with a planted bug, or in the form that its source prints.
    """
    found = prove(entry, variant.nodes, variant=variant)
    systems = systems_of(entry, variant.nodes, variant, None, found.faults)
    run = replay(systems[found.first], found.path)
    breaches = {} if found.law is None else {found.law.name: found.why}
    why = found.why or UNREACHED.get(found.kind, "no law is broken")
    return {
        **_drawn(entry, run, breaches, (found.law.name, found.law.text) if found.law is not None else None),
        "result": f"{variant.text} The search visited {found.states} states: {why}",
        "holds": found.kind == "holds",
    }


def stepped_run_json(entry: Entry, nodes: int, taken: Sequence[int]) -> Json:
    """Return the run of an algorithm that takes the chosen steps as JSON, with the possible next steps in `choices`.

    Args:
        entry: the algorithm.
        nodes: the number of processes.
        taken: for each step, its index, from 0, among the choices before it.

    Raises:
        IndexError: an index is beyond the possible steps.
    """
    stepper = Stepper(systems_of(entry, nodes)[0])
    for number in taken:
        stepper.take(number)
    run = stepper.recording()
    breaches = {law.name: why for law in entry.laws if law.is_of_runs and (why := law.breach(run))}
    choices = [
        " ".join([choice["process"], choice["what"], *([choice["of"]] if "of" in choice else [])])
        + (f", message {choice['place'] + 1}" if "place" in choice else "")
        for choice in stepper.choices()
    ]
    return {
        **_drawn(entry, run, breaches),
        "result": "choose the next step" if choices else "no step is possible",
        "holds": not breaches,
        "choices": choices,
    }


def _drawn(
    entry: Entry, run: Recording, breaches: dict[str, str], also: tuple[str, str] | None = None
) -> Json:
    """Return the diagram of a run and the laws; `also` is a law of a variant, with its sentence."""
    diagram = diagram_of(run, entry.bands, ROWS_MAX)
    came = {arrow.to_row: arrow for arrow in diagram.arrows}
    laws = {law.name: law.text for law in entry.laws} | ({also[0]: also[1]} if also else {})
    return {
        "name": entry.name,
        "title": entry.title,
        "names": list(diagram.names),
        "rows": [
            {
                "at": round(run.events[row.number].at, 6),
                "lane": row.lane,
                "what": row.what,
                "text": row.text,
                "notes": list(row.notes),
                "from": {"row": came[place].from_row, "lane": came[place].from_lane} if place in came else None,
            }
            for place, row in enumerate(diagram.rows)
        ],
        "bands": [band._asdict() for band in diagram.bands],
        "pending": list(diagram.pending),
        "open": [{"row": line.from_row, "lane": line.from_lane, "to": line.to_lane} for line in diagram.open],
        "hidden": diagram.hidden,
        "messages": dict(run.messages()),
        "laws": [
            {"name": name, "text": text, "holds": name not in breaches, "why": breaches.get(name, "")}
            for name, text in laws.items()
        ],
        "choices": [],
    }
