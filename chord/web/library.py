"""The endpoints about no ring: the algorithms of the gallery, and the reports of the lab."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio
from starlette.requests import Request
from starlette.responses import Response

from chord.gallery.entry import Entry
from chord.gallery.index import ENTRIES, entry_json, entry_of, every_entry
from chord.views.common import Json
from chord.web.failures import HttpFailure, number_of
from chord.web.gallery_runs import broken_run_json, stepped_run_json, timed_run_json
from chord.web.replies import json_reply
from chord.web.reports import report_html, reports_in

REPORT_CSP: Final = "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'self'"
"""A report loads nothing, and its scripts do not run."""

STEPS_MAX: Final = 400
SEED_MAX: Final = 1_000_000

ONE: Final = trio.CapacityLimiter(1)
"""The thread of the gallery. A search takes some seconds."""


class LibraryEndpoints:
    """The HTTP endpoints of the gallery of algorithms and of the lab's reports. They need no ring.

    Args:
        folder: the folder with the reports of the lab. It need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def gallery(self, request: Request) -> Response:
        """Answer with the list of all algorithms of the gallery, as JSON."""
        return await _computed(lambda: {"entries": [entry_json(entry) for entry in every_entry()]})

    async def gallery_run(self, request: Request) -> Response:
        """Answer with a run of the algorithm that the path names, as JSON.

        The query parameter `variant` asks for the shortest run in which that variant breaks a law. `steps` asks for the
        run of these chosen steps. Otherwise the run is on virtual time, with `seed`.

        Raises:
            HttpFailure: 404: there is no such algorithm or variant. 400: a parameter is invalid.
        """
        name = request.path_params["name"]
        if name not in ENTRIES:
            raise HttpFailure(404, "no_such_algorithm", f"there is no algorithm {name[:40]!r}", "See /api/v1/gallery")
        entry = await trio.to_thread.run_sync(entry_of, name, limiter=ONE)
        low, high = entry.sizes
        variant, steps = request.query_params.get("variant"), request.query_params.get("steps")
        seed = number_of(request, "seed", 0, SEED_MAX) or 0
        nodes = number_of(request, "nodes", low, high)
        if variant is not None:
            altered = {**entry.bugs, **entry.printed}.get(variant)
            if altered is None:
                text = f"{name} has no variant {variant[:40]!r}"
                raise HttpFailure(404, "no_such_variant", text, "See /api/v1/gallery")
            return await _computed(lambda: broken_run_json(entry, altered))
        if steps is not None:
            return await _computed(lambda: _stepped(entry, nodes or entry.small[0], steps))
        return await _computed(lambda: timed_run_json(entry, nodes or min(max(3, low), high), seed))

    async def reports(self, request: Request) -> Response:
        """Answer with the names and titles of the lab's reports, as JSON."""
        return await _computed(lambda: {"folder": str(self._folder), "reports": reports_in(self._folder)})

    async def report(self, request: Request) -> Response:
        """Answer with the report that the path names, as an HTML page.

        Raises:
            HttpFailure: 404: there is no such report.
        """
        name = request.path_params["name"]
        found = await trio.to_thread.run_sync(report_html, self._folder, name, limiter=ONE)
        if found is None:
            raise HttpFailure(404, "no_such_report", f"there is no report {name[:40]!r}", "See /api/v1/lab")
        headers = {"content-security-policy": REPORT_CSP}
        return Response(found, headers=headers, media_type="text/html; charset=utf-8")


async def _computed(compute: Callable[[], Json]) -> Response:
    return await trio.to_thread.run_sync(lambda: json_reply(compute()), limiter=ONE)


def _stepped(entry: Entry, nodes: int, steps: str) -> Json:
    words = [word for word in steps.split(",") if word]
    if len(words) > STEPS_MAX or not all(word.isascii() and word.isdecimal() and len(word) < 5 for word in words):
        hint = f"Give up to {STEPS_MAX} numbers: steps=0,2,1"
        raise HttpFailure(400, "invalid", f"invalid steps {steps[:40]!r}", hint)
    try:
        return stepped_run_json(entry, nodes, [int(word) for word in words])
    except IndexError as error:
        raise HttpFailure(400, "no_such_step", str(error), "See choices of the answer with fewer steps") from None
