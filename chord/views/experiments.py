"""Experiments: seeds and events of the simulator, and tables of measured figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from chord.events import Event
from chord.ids import Arc, Contact, Point
from chord.views.common import Json


class FailedSeed(NamedTuple):
    """A seed of the simulator that failed, with the fields of its JSON object in order.

    Attributes:
        seed: the seed.
        kind: the kind of the failure.
        text: what failed, in words.
        replay: the command that runs the seed again.
    """

    seed: int
    kind: str
    text: str
    replay: str


def seeds_json(
    seeds: int, asked: int, drawn: Mapping[str, int], taken: Mapping[str, int], never_taken: Sequence[str],
    totals: Mapping[str, int], shares: Mapping[str, float], long_absences: float, digests: Mapping[int, str],
    failures: Iterable[FailedSeed],
) -> Json:  # fmt: skip
    """Return the result of a swarm of seeds as JSON.

    Args:
        seeds: the number of seeds that ran.
        asked: the number of seeds that the user asked for. If it is larger, the run was interrupted.
        drawn: by the name of each fault, the number of seeds that drew it.
        taken: how often the seeds took each path. A path is a transition, an action or a situation of the ring.
        never_taken: the paths that no seed took, and the kinds of writes that were too rare.
        totals: sums over the seeds that passed, by name. Each becomes a field of the JSON object.
        shares: the share of each kind among the acknowledged writes, 0 to 1.
        long_absences: the share of the passed runs in which a node was away for longer than `down_out_s` and `grace_s`,
            0 to 1.
        digests: a digest of the whole run for each seed that passed, in hexadecimal. Equal runs have equal digests.
        failures: the seeds that failed.
    """
    return {
        "seeds": seeds,
        "asked": asked,
        "drawn": dict(sorted(drawn.items())),
        "taken": dict(sorted(taken.items())),
        "never_taken": never_taken,
        **totals,
        "shares": shares,
        "long_absences": long_absences,
        "digests": {str(seed): digest for seed, digest in digests.items()},
        "failures": [failure._asdict() for failure in failures],
    }


def event_json(time_s: float, node: str | None, event: Event) -> Json:
    """Return an event of a run as a JSON line of the run's event log.

    Points are decimal strings, because many JSON readers keep only 53 bits of a number.

    Args:
        time_s: the virtual time, in seconds.
        node: the name of the node; None if the event belongs to no known node.
        event: the event.
    """
    fields = {name: _plain(getattr(event, name)) for name in event.__struct_fields__}
    return {**_when(time_s, node), "event": type(event).__name__, **fields}


def death_json(time_s: float, node: str, address: str) -> Json:
    """Return the JSON line of a run's event log that says that a node died.

    Args:
        time_s: the virtual time, in seconds.
        node, address: the name and the address of the node.
    """
    return {**_when(time_s, node), "event": "Died", "address": address}


def table_json(
    name: str, title: str, columns: Sequence[str], rows: Iterable[tuple[Sequence[object], bool | None]], bar: str,
    notes: Iterable[str],
) -> Json:  # fmt: skip
    """Return a table of an experiment as JSON.

    Args:
        name: the name of the table, for programs.
        title: its title, for readers.
        columns: the headings.
        rows: the values of each row, and whether they meet the bar (the pass criterion); None: no bar applies to the
            row.
        bar: the bar in words; "" if the table has none.
        notes: remarks about the table.
    """
    return {
        "name": name,
        "title": title,
        "columns": columns,
        "rows": [{"values": [_finite(value) for value in values], "passed": passed} for values, passed in rows],
        "bar": bar,
        "notes": list(notes),
    }


def tables_json(name: str, title: str, passed: bool | None, tables: Iterable[Json], notes: Iterable[str]) -> Json:
    """Return an experiment as JSON.

    Args:
        name: the name of the experiment, for programs.
        title: its title, for readers.
        passed: whether all tables meet their bars; None if no table has one.
        tables: its tables, as `table_json` returns them.
        notes: remarks about the experiment.
    """
    return {"name": name, "title": title, "passed": passed, "tables": list(tables), "notes": list(notes)}


def experiments_json(scale: str, seed: int, experiments: Iterable[tuple[Json, Iterable[str]]]) -> Json:
    """Return the results of several experiments as JSON.

    Args:
        scale: the size of the measurements: quick, standard or full.
        seed: the seed from which they ran.
        experiments: each experiment, as `tables_json` returns it, with the names of the files that it wrote.
    """
    return {"scale": scale, "seed": seed, "experiments": [{**one, "files": list(files)} for one, files in experiments]}


def _when(time_s: float, node: str | None) -> Json:
    return {"t": round(time_s, 9), "node": node}


def _plain(value: object) -> object:
    if isinstance(value, Point):
        return str(value)
    if isinstance(value, Contact):
        return {"id": str(value.id), "address": value.address}
    if isinstance(value, Arc):
        return {"start": str(value.start), "end": str(value.end)}
    return value


def _finite(value: object) -> object:
    """Return the value, or None for a float that JSON cannot represent."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
