"""Experiments: seeds and events of the simulator, and tables of measured figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from chord.events import Event
from chord.ids import Arc, Contact, Point
from chord.views.common import Json


class FailedSeed(NamedTuple):
    """A seed that failed; its fields are those of the JSON object, in this order."""

    seed: int
    kind: str  # the kind of the failure
    text: str  # what failed
    replay: str  # the command that runs the seed again


def seeds_json(
    seeds: int, drawn: Mapping[str, int], taken: Mapping[str, int], never_taken: Sequence[str],
    totals: Mapping[str, int], shares: Mapping[str, float], long_absences: float, digests: Mapping[int, str],
    failures: Iterable[FailedSeed],
) -> Json:  # fmt: skip
    """Return the result of many seeds.

    Args:
        seeds: the number of seeds.
        drawn: how many seeds drew each fault.
        taken: how often the seeds took each path.
        never_taken: the paths that no seed took.
        totals: sums over all seeds, by name.
        shares: the share of each kind of write, 0 to 1.
        long_absences: the share of runs with an absence longer than every period, 0 to 1.
        digests: the digest of each seed that passed.
        failures: the seeds that failed.
    """
    return {
        "seeds": seeds,
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
    """Return a line of an event log.

    Points are decimal strings, because they exceed the numbers of other JSON readers.

    Args:
        time_s: the virtual time in seconds.
        node: the name of the node; None if the event does not say.
        event: the event.
    """
    fields = {name: _plain(getattr(event, name)) for name in event.__struct_fields__}
    return {**_when(time_s, node), "event": type(event).__name__, **fields}


def death_json(time_s: float, node: str, address: str) -> Json:
    """Return the line of an event log for a node that died."""
    return {**_when(time_s, node), "event": "Died", "address": address}


def table_json(
    name: str, title: str, columns: Sequence[str], rows: Iterable[tuple[Sequence[object], bool | None]], bar: str,
    notes: Iterable[str],
) -> Json:  # fmt: skip
    """Return a table of an experiment.

    Args:
        name: the name of the table.
        title: its title.
        columns: the headings.
        rows: the values of each row, and whether they meet the bar; None: no bar applies.
        bar: the bar in words, or "".
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
    """Return an experiment with its tables; `passed` is None if no table has a bar."""
    return {"name": name, "title": title, "passed": passed, "tables": list(tables), "notes": list(notes)}


def experiments_json(scale: str, seed: int, experiments: Iterable[tuple[Json, Iterable[str]]]) -> Json:
    """Return experiments of one scale and seed; each has its tables and the names of its files."""
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
