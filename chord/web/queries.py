"""The endpoints that show a ring: its states, its numbers, its history."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple, TypeVar

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response

from chord.errors import ChordError
from chord.ids import Arc, Circle, Point
from chord.observe.chordlog import BYTES_MAX, BadChordlog, Chordlog, LogLine, unpack
from chord.observe.model import RingChange, RingModel, RingShape
from chord.views.common import Json, key_json
from chord.views.dashboard import (
    Moment,
    moment_json,
    node_detail_json,
    owner_of,
    requests_by_part,
    ring_check_json,
    ring_state_json,
    shape_json,
    transfers_state_json,
)
from chord.views.nodes import set_json
from chord.web.actions import body_of
from chord.web.failures import HttpFailure, number_of
from chord.web.heat import harmonic
from chord.web.phrases import event_json
from chord.web.recorder import DOWNLOAD, recorded
from chord.web.replies import json_reply
from chord.web.sampling import ANSWER_S, RingMeter
from chord.web.series import series_json
from chord.web.source import LiveRing, PlayedRing, SeenState, StateOrigin
from chord.wire.messages import SAMPLE_BINS, Describe, StatusPart

UPLOADS_MAX: Final = 4
"""The number of uploaded recordings in memory. The oldest gives way to a new one."""

LINES_MAX: Final = 20_000
"""The largest number of lines in one answer."""

THREADS: Final = trio.CapacityLimiter(2)
"""The threads that read recordings. A recording made to do harm may keep them busy, but not the event loop."""

BINS_MAX: Final = 1024
"""The largest number of parts of the circle in which `ring` counts vnodes."""

REQUESTS_S: Final = 60.0
"""The time in which it counts their requests, in seconds."""

ASKED_FIELDS: Final[tuple[StatusPart, ...]] = ("peers", "sets", "counters", "timing")
"""The parts of a status for which `node` asks on request, because they change too often for the polls."""

RATE_S: Final = 5.0

T = TypeVar("T")


class QueryEndpoints:
    """The HTTP endpoints that show a ring. Each returns JSON, except `download`.

    The query parameter `recording` of most endpoints chooses an uploaded recording by its id. A wrong id or parameter
    raises `HttpFailure`.

    Args:
        origin: the ring that the dashboard shows.
        meter: the metrics and request counts of a living ring; None for a recording.
    """

    def __init__(self, origin: StateOrigin, meter: RingMeter | None) -> None:
        self._origin = origin
        self._meter = meter
        self._uploads: dict[str, PlayedRing] = {}
        self._uploaded = 0

    async def ring(self, request: Request) -> Response:
        """Answer with the nodes and vnodes of the ring at the time `at` (Unix ms; default: the latest).

        Raises:
            HttpFailure: 404: there is no state of this time. 400: a parameter is invalid.
        """
        origin = self._chosen(request)
        bins, lens = number_of(request, "bins", 1, BINS_MAX), _lens(request, origin.shape)
        requests = self._requests(request, origin, bins) if bins is not None else None

        def shown(state: SeenState) -> Json:
            return ring_state_json(
                state.model, origin.shape, state.moment, state.seen_ms, bins=bins, lens=lens, requests=requests
            )

        return await _of_state(request, origin, shown)

    async def node(self, request: Request) -> Response:
        """Answer with the node that the path names, at the time `at` (Unix ms; default: the latest).

        The query parameter `peers` adds the round-trip times to its peers, its replica sets, counters and periods, for
        which it asks the node.

        Raises:
            HttpFailure: 404: there is no such node or time, or several nodes have this name.
        """
        origin, name = self._chosen(request), request.path_params["name"]
        asked = await _asked(origin, name, wanted="peers" in request.query_params)

        def shown(state: SeenState) -> Json:
            address = _address_of(state.model, name)
            seen_ms = state.seen_ms.get(address)
            return {**node_detail_json(state.model, origin.shape, address, state.moment, seen_ms), **asked}

        return await _of_state(request, origin, shown)

    async def check(self, request: Request) -> Response:
        """Answer with the invariants of the ring, checked at the time `at` (Unix ms; default: the latest).

        Raises:
            HttpFailure: 404: there is no state of this time.
        """
        origin = self._chosen(request)
        return await _of_state(request, origin, lambda s: ring_check_json(s.model, origin.shape, s.moment))

    async def transfers(self, request: Request) -> Response:
        """Answer with the transfers in progress, with their rates over the last 5 seconds."""

        def shown() -> Response:
            state = self._origin.at()
            before = self._origin.at(state.moment.at_ms - round(1000 * RATE_S))
            return json_reply(transfers_state_json(state.model, before.model, RATE_S, state.moment))

        return await _computed(self._origin, shown)

    async def requests(self, request: Request) -> Response:
        """Answer with the requests of the last 60 s in equal parts of the circle.

        It looks at the nodes of the sample only, so its time hardly grows with the ring.

        Raises:
            HttpFailure: 409: the dashboard shows a recording. 400: a parameter is invalid.
        """
        origin, meter = self._live()
        bins = number_of(request, "bins", 1, BINS_MAX) or SAMPLE_BINS
        counted = _counted(origin, meter, bins)
        return json_reply({
            **moment_json(Moment(origin.to_ms(origin.now_s), origin.age_ms, origin.kind)),
            "bins": bins,
            "window_s": round(REQUESTS_S),
            "requests": counted.requests or [None] * bins,
            "counted_by": counted.by_node,
            "nodes": len(origin.aggregator.model.nodes),
        })

    async def heat(self, request: Request) -> Response:
        """Answer with the numbers of keys and requests in equal parts of the circle, and the most requested keys.

        Raises:
            HttpFailure: 409: the dashboard shows a recording. 400: a parameter is invalid.
        """
        origin, meter = self._live()
        bins = number_of(request, "bins", 1, SAMPLE_BINS) or SAMPLE_BINS
        if SAMPLE_BINS % bins:
            raise HttpFailure(400, "invalid", f"invalid bins {bins}", f"Give a divisor of {SAMPLE_BINS}")
        window_s = number_of(request, "window", 1, 60) or 60
        keys = _coarser(await meter.density(), bins)
        counts = meter.requests.counts(origin.now_s, window_s)
        state = origin.at()
        model, circle = state.model, Circle(origin.shape.bits if origin.shape else 160)
        living = [fields for fields in model.nodes.values() if fields.get("state") != "unreachable"]
        records = sum(fields.get("keys", 0) for fields in living)
        value_bytes = sum(fields.get("value_bytes", 0) for fields in living) / records if records else 0.0
        owned = [fields.get("keys", 0) for fields in model.vnodes.values()]
        hot = [
            {
                **key_json(row.key),
                "id": str(int(circle.hash(row.key))),
                "id_hex": circle.hex(circle.hash(row.key)),
                "share": round(row.share, 6),
                "owner": owner_of(circle, model, circle.hash(row.key)),
                "error": round(row.error, 6),
            }
            for row in counts.hot
        ]
        return json_reply({
            **moment_json(state.moment),
            "bins": bins,
            "window_s": window_s,
            "keys": [round(count) for count in keys],
            "bytes": [round(count * value_bytes) for count in keys],
            "requests": [round(count) for count in _coarser(counts.bins, bins)],
            "hot": hot,
            "skew": {
                "keys": _skew(owned),
                "requests": _skew(list(counts.by_node.values())),
                "expected": round(harmonic(len(owned)), 3),
            },
            "counted_by": sorted(counts.by_node),
        })

    async def history(self, request: Request) -> Response:
        """Answer with a keyframe and the lines after it, between the times `from` and `to` in Unix ms."""
        origin = self._chosen(request)
        from_ms, to_ms = self._span(request, origin)

        def shown() -> Response:
            lines = islice(origin.lines(from_ms, to_ms), LINES_MAX + 1)
            latest = origin.at()
            found = [{"at_ms": at_ms, **_line_json(latest.model, line, at_ms)} for at_ms, line in lines]
            return json_reply({
                **moment_json(latest.moment),
                **shape_json(origin.shape),
                "from_ms": from_ms,
                "to_ms": to_ms,
                "lines": found[:LINES_MAX],
                "more": len(found) > LINES_MAX,
            })

        return await _computed(origin, shown)

    async def download(self, request: Request) -> Response:
        """Answer with the history between `from` and `to` (Unix ms) as a compressed .chordlog file.

        Without these parameters, a recording is returned whole, with its lines unchanged.

        Raises:
            HttpFailure: 503: no node of the living ring has answered yet.
        """
        origin = self._chosen(request)
        headers = {"content-disposition": f'attachment; filename="{DOWNLOAD}"'}
        if isinstance(origin, PlayedRing) and not {"from", "to"} & request.query_params.keys():
            content = await _computed(origin, lambda: gzip.compress(origin.log.text))
            return Response(content, headers=headers, media_type="application/gzip")
        if origin.shape is None:
            raise HttpFailure(503, "unreachable", "no node of the ring has answered yet", "Start one: chord up")
        shape, (from_ms, to_ms) = origin.shape, self._span(request, origin)
        content = await _computed(origin, lambda: recorded(origin, shape, from_ms, to_ms))
        return Response(content, headers=headers, media_type="application/gzip")

    async def upload(self, request: Request) -> Response:
        """Keep the .chordlog of the request body in memory, and answer with its id. The oldest of more than four goes.

        Raises:
            HttpFailure: 400 or 413: the body is no recording, or is too long.
        """
        content = await body_of(request, BYTES_MAX)
        try:
            played = await trio.to_thread.run_sync(lambda: PlayedRing(Chordlog(unpack(content))), limiter=THREADS)
        except BadChordlog as error:
            hint = "Record one: chord dashboard --record FILE, or chord sim replay SEED --chordlog FILE"
            raise HttpFailure(413 if error.is_too_long else 400, "bad_recording", str(error), hint) from None
        self._uploaded += 1
        self._uploads[str(self._uploaded)] = played
        while len(self._uploads) > UPLOADS_MAX:
            del self._uploads[next(iter(self._uploads))]
        return json_reply({
            **moment_json(played.moment(played.span_ms[1])),
            **shape_json(played.shape),
            "recording": str(self._uploaded),
            "from_ms": played.span_ms[0],
            "to_ms": played.span_ms[1],
            "command": played.log.header.command,
            "seed": played.log.header.seed,
            "outcome": played.log.outcome,
        })

    async def metrics(self, request: Request) -> Response:
        """Answer with the ring's metrics of the last 15 minutes, one row per second. A recording has no rows."""
        rows = self._meter.series.rows if self._meter is not None else ()
        moment = await _computed(self._origin, lambda: self._origin.at().moment)
        return json_reply({**moment_json(moment), **series_json(rows)})

    # -- inside -----------------------------------------------------------------------------------

    def _live(self) -> tuple[LiveRing, RingMeter]:
        """Return the living ring and its meter.

        Raises:
            HttpFailure: 409: the dashboard shows a recording.
        """
        if not isinstance(self._origin, LiveRing) or self._meter is None:
            raise HttpFailure(409, "not_live", "this is a recording, not a living ring", "Start chord dashboard --node")
        return self._origin, self._meter

    def _requests(self, request: Request, origin: StateOrigin, parts: int) -> list[float | None] | None:
        """Return the requests of the last 60 s in equal parts of the circle; None if none are counted.

        A recording does not count them, and neither does an earlier moment. Nodes count while they are asked.
        """
        if self._meter is None or not isinstance(origin, LiveRing) or "at" in request.query_params:
            return None
        return _counted(origin, self._meter, parts).requests

    def _chosen(self, request: Request) -> StateOrigin:
        name = request.query_params.get("recording")
        if name is None:
            return self._origin
        if name not in self._uploads:
            raise HttpFailure(404, "no_such_recording", f"there is no recording {name[:20]!r}", "Upload it again")
        return self._uploads[name]

    def _span(self, request: Request, origin: StateOrigin) -> tuple[int, int]:
        """Return the parameters from and to, in Unix ms."""
        from_ms, to_ms = number_of(request, "from"), number_of(request, "to")
        first_ms, latest_ms = origin.span_ms
        return first_ms if from_ms is None else from_ms, latest_ms if to_ms is None else to_ms


class _Counted(NamedTuple):
    """The requests of the last 60 s.

    Attributes:
        by_node: the number of nodes that counted them.
        requests: their number in equal parts of the circle, as `requests_by_part` returns it; None: no node counted.
    """

    by_node: int
    requests: list[float | None] | None


def _counted(origin: LiveRing, meter: RingMeter, parts: int) -> _Counted:
    """Let the nodes of a sample count requests, and return their counts."""
    meter.watch()
    counts = meter.requests.counts(origin.now_s, REQUESTS_S)
    circle, model = Circle(origin.shape.bits if origin.shape else 160), origin.aggregator.model
    found = requests_by_part(circle, model, counts.bins, counts.by_node, parts) if counts.by_node else None
    return _Counted(len(counts.by_node), found)


async def _computed(origin: StateOrigin, compute: Callable[[], T]) -> T:
    """Compute in a thread if the states are of a recording, which may take long. A living ring changes meanwhile."""
    if isinstance(origin, LiveRing):
        return compute()
    return await trio.to_thread.run_sync(compute, limiter=THREADS)


async def _of_state(request: Request, origin: StateOrigin, shown: Callable[[SeenState], Json]) -> Response:
    """Return what a function shows of the state at the time of the parameter at; default: the latest."""
    at_ms = number_of(request, "at")
    first_ms, latest_ms = origin.span_ms
    if at_ms is not None and not first_ms <= at_ms <= latest_ms:
        hint = f"Give a time from {first_ms} to {latest_ms}, in Unix ms"
        raise HttpFailure(404, "no_such_time", f"there is no state of the time {at_ms}", hint)
    return await _computed(origin, lambda: json_reply(shown(origin.at(at_ms))))


def _address_of(model: RingModel, name: str) -> str:
    """Return the address of the node that a name or an address names."""
    found = [a for a, fields in model.nodes.items() if name in (a, fields.get("name"))]
    if len(found) != 1:
        code = "ambiguous_node" if found else "no_such_node"
        text = f"{len(found)} nodes are called {name!r}" if found else f"no node is called {name!r}"
        raise HttpFailure(404, code, text, "Name a node by its address, as in /nodes/127.0.0.1:9000")
    return found[0]


async def _asked(origin: StateOrigin, name: str, *, wanted: bool) -> Json:
    """Ask a living node for what the polls leave out: round-trip times, replica sets, counters, periods.

    Each field is None if the node was not asked or does not answer.
    """
    nothing: Json = {"peers": None, "sets": None, "counters": None, "timing": None}
    if not wanted or not isinstance(origin, LiveRing) or origin.client is None:
        return nothing
    model = origin.aggregator.model
    address = _address_of(model, name)
    try:
        with trio.fail_after(ANSWER_S):
            status = (await origin.client.watch(Describe(ASKED_FIELDS), address)).status
    except (ChordError, trio.TooSlowError):
        return nothing
    if status is None:
        return nothing
    names = {at: str(fields.get("name") or at) for at, fields in model.nodes.items()}
    peers = [
        {"address": p.address, "node": names.get(p.address, p.address), "state": p.state, "rtt_ms": p.rtt_ms}
        for p in status.peers
    ]
    return {
        "peers": peers,
        "sets": [set_json(origin.client.circle, part, names) for part in status.sets],
        "counters": dict(status.counters),
        "timing": dict(status.timing),
    }


def _line_json(model: RingModel, line: LogLine, at_ms: int) -> Json:
    """Return a line under its letter; an event with its text, as in the event stream.

    `model` has the names of nodes.
    """
    if isinstance(line.content, RingChange):
        return {line.letter: msgspec.to_builtins(line.content)}
    if line.letter == "e":
        return {"e": event_json(model, line.content, at_ms)}
    return {line.letter: line.content}


def _lens(request: Request, shape: RingShape | None) -> Arc | None:
    """Return the arc of the parameters from and to; None if they are not given."""
    ends = [request.query_params.get(name) for name in ("from", "to")]
    if shape is None or ends == [None, None]:
        return None
    size = Circle(shape.bits).size
    if any(t is None or not (t.isascii() and t.isdecimal()) or len(t) > 49 or int(t) >= size for t in ends):
        raise HttpFailure(400, "invalid", "invalid from and to", f"Give two points below {size}, in decimal")
    return Arc(*(Point(int(text or "0")) for text in ends))


def _coarser(counts: list[float] | list[int], bins: int) -> list[float]:
    width = len(counts) // bins
    return [sum(counts[i * width : (i + 1) * width]) for i in range(bins)]


def _skew(counts: list[int]) -> float | None:
    """Return how many times the mean the largest count is; None if there is nothing to count."""
    return round(max(counts) * len(counts) / sum(counts), 3) if sum(counts) else None
