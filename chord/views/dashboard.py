"""The answers of the dashboard about a state of a ring: its nodes and vnodes, one node, the check.

The state is a `RingModel`, so these answers are the same for a living ring, a recording and a simulation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from chord.ids import Arc, Circle, Point
from chord.observe.model import Fields, RingModel, RingShape
from chord.verify import invariants
from chord.verify.invariants import Member, Violation
from chord.views.common import Json

StateSource: TypeAlias = Literal["live", "recording", "simulation", "model"]
"""The origin of a state: a living ring, a recording of one, a simulated run, or a file made by hand."""

INVARIANTS: Final = (
    "OneLiveSuccessor",
    "NoDuplicates",
    "OrderedSuccessorList",
    "SufficientPrincipals",
    "AtLeastOneRing",
    "AtMostOneRing",
    "OrderedRing",
    "ConnectedAppendages",
)
"""The names of the invariants, in the order of the page."""

LOCAL_INVARIANTS: Final = ("NoDuplicates", "OrderedSuccessorList")
"""The invariants that one vnode can break alone, so that a missing node hides no other one's violation."""

HEALTH: Final = ("ready", "other", "suspect", "unreachable", "dead")
"""The states of a node in a part of the circle, the best first.

An unreachable node does not answer the dashboard, and no other node declares it dead.
"""

ENDED: Final = ("dead", "left", "stopped")
GONE: Final = ("unreachable", *ENDED)


class Moment(NamedTuple):
    """The time, age and origin of the state that an answer shows.

    Attributes:
        at_ms: the time of the state, in Unix ms.
        age_ms: the age of the oldest status in it, in ms; None if no node ever answered.
        source: "live", "recording", "simulation" or "model".
    """

    at_ms: int
    age_ms: int | None
    source: StateSource


def moment_json(moment: Moment) -> Json:
    """Return the time, age and origin of a state as JSON. Every answer about a state has these fields."""
    return moment._asdict()


def shape_json(shape: RingShape | None) -> Json:
    """Return the constants of a ring as JSON: `bits`, `r`, `N` and `W`. Each is None if `shape` is None."""
    if shape is None:
        return {"bits": None, "r": None, "N": None, "W": None}
    return {"bits": shape.bits, "r": shape.successors, "N": shape.replicas, "W": shape.quorum}


def ring_state_json(
    model: RingModel,
    shape: RingShape | None,
    moment: Moment,
    seen_ms: Mapping[str, int],
    *,
    bins: int | None = None,
    lens: Arc | None = None,
    requests: Sequence[float | None] | None = None,
) -> Json:
    """Return a state of the ring as JSON: its vnodes in ascending order of their ids, and its nodes.

    Args:
        model: the state.
        shape: the constants of the ring; None if no node has answered yet, and the state is empty.
        moment: the time, age and origin of the state.
        seen_ms: the time of the last answer of each node, in Unix ms, by address. Nodes of a recording have none.
        bins: also count vnodes and keys in this number of equal parts of the circle. Without `lens`, no vnodes and
            nodes are then listed.
        lens: list only the vnodes in this arc, and their nodes; None: all.
        requests: with `bins`, the number of requests in each of these parts; see `requests_by_part`. None: they are
            not counted.
    """
    circle = Circle(shape.bits if shape else 160)
    points = sorted(model.vnodes, key=int)
    shown = [point for point in points if lens is None or Point(int(point)) in lens]
    if bins is not None and lens is None:
        shown = []
    nodes, doubts = sorted(model.nodes), doubters_of_all(model)
    if bins is not None or lens is not None:
        holders = {str(model.vnodes[point].get("node")) for point in shown}
        nodes = [address for address in nodes if address in holders]
    return {
        **moment_json(moment),
        **shape_json(shape),
        "vnodes": [vnode_state_json(circle, model, point) for point in shown],
        "nodes": [node_state_json(model, address, moment, seen_ms.get(address), doubts) for address in nodes],
        **({} if bins is None else {"bins": _bins(circle, model, points, bins, doubts, requests)}),
    }


def _bins(
    circle: Circle,
    model: RingModel,
    points: list[str],
    count: int,
    doubts: Mapping[str, list[Json]],
    requests: Sequence[float | None] | None,
) -> list[Json]:
    """Return the vnodes, their nodes, the largest arc, the worst state, the keys and requests of each part."""
    asked = [None] * count if requests is None else requests
    found: list[Json] = [
        {
            "vnodes": 0, "nodes": 0, "largest_arc": 0.0, "worst": None, "dead": 0, "keys": 0,
            "requests": requests_of_part,
        }
        for requests_of_part in asked
    ]  # fmt: skip
    nodes: list[set[str]] = [set() for _ in found]
    for point in points:
        fields = model.vnodes[point]
        number = int(point) * count // circle.size
        part, address = found[number], str(fields.get("node", ""))
        state = _health(str(model.nodes.get(address, {}).get("state", "")), doubts.get(address, ()))
        nodes[number].add(address)
        part["vnodes"] += 1
        part["nodes"] = len(nodes[number])
        part["largest_arc"] = max(part["largest_arc"], _owned_share(circle, fields))
        part["worst"] = max(part["worst"] or HEALTH[0], state, key=HEALTH.index)
        part["dead"] += state == "dead"
        part["keys"] += fields.get("keys", 0)
    return found


def resampled(counts: Sequence[float], parts: int) -> list[float]:
    """Return counts in equal parts of the circle as counts in another number of equal parts.

    A part gets its share of each given part that it overlaps, as if the things counted were spread evenly within it.
    """
    found = [0.0] * parts
    for number, count in enumerate(counts):
        first, last = number * parts, (number + 1) * parts  # a new part has len(counts) of these units
        for part in range(first // len(counts), -(-last // len(counts))):
            overlap = min(last, (part + 1) * len(counts)) - max(first, part * len(counts))
            found[part] += count * overlap / parts
    return found


def requests_by_part(
    circle: Circle, model: RingModel, counts: Sequence[float], asked: Iterable[str], parts: int
) -> list[float | None]:
    """Return the requests in equal parts of the circle; None for a part in which no asked node owns an arc.

    Args:
        circle: the circle of the ring.
        model: the state.
        counts: the requests in equal parts of the circle, of any number.
        asked: the addresses of the nodes that count requests.
        parts: the number of parts of the result.
    """
    seen = [False] * parts
    for point in (point for address in asked for point in model.nodes.get(address, {}).get("vnodes", ())):
        for arc in filter(_is_owned, model.vnodes.get(point, {}).get("arcs", ())):
            start, end = Point(int(arc["start"])), Point(int(arc["end"]))
            first, last = (point * parts // circle.size for point in (circle.point(start + 1), end))
            is_around = first == last and circle.length(start, end) * parts > circle.size
            for step in range(parts if is_around else (last - first) % parts + 1):
                seen[(first + step) % parts] = True
    return [round(n, 2) if is_seen else None for n, is_seen in zip(resampled(counts, parts), seen, strict=True)]


def _health(state: str, doubts: Iterable[Json]) -> str:
    """Return the state of a node as a part of the circle shows it: one of `HEALTH`."""
    verdicts = {doubt["state"] for doubt in doubts}
    if "paused" in verdicts:
        return "other"
    if state == "unreachable" and not verdicts & {*ENDED}:
        return "unreachable"
    if state in GONE:
        return "dead"
    if verdicts:
        return "suspect"
    return "ready" if state == "ready" else "other"


def _owned_share(circle: Circle, fields: Fields) -> float:
    """Return the share of the circle, 0 to 1, that a vnode owns."""
    owned = [arc for arc in fields.get("arcs", ()) if _is_owned(arc)]
    lengths = (circle.length(Point(int(arc["start"])), Point(int(arc["end"]))) for arc in owned)
    return round(float(sum(map(circle.fraction, lengths))), 6)


def vnode_state_json(circle: Circle, model: RingModel, point: str) -> Json:
    """Return one vnode of a state as JSON.

    Args:
        circle: the circle of the ring.
        model: the state.
        point: the id of the vnode, in decimal.

    Raises:
        KeyError: the state has no such vnode.
    """
    fields = model.vnodes[point]
    arcs = fields.get("arcs", ())
    return {
        "id": point,
        "id_hex": circle.hex(Point(int(point))),
        "node": _name(model, str(fields.get("node", ""))),
        "address": fields.get("node", ""),
        "state": fields.get("state", ""),
        "isolated": bool(fields.get("isolated")),
        "predecessor": fields.get("predecessor"),
        "successors": list(fields.get("successors", ())),
        "owned": _owned_share(circle, fields),
        "arcs": [
            {
                "start": arc["start"],
                "start_hex": circle.hex(Point(int(arc["start"]))),
                "end": arc["end"],
                "end_hex": circle.hex(Point(int(arc["end"]))),
                "epoch": arc["epoch"],
                "state": arc["state"],
                "peer": arc["peer"],
            }
            for arc in arcs
        ],
        "keys": fields.get("keys", 0),
    }


def node_state_json(
    model: RingModel, address: str, moment: Moment, seen_ms: int | None, doubts: Mapping[str, list[Json]]
) -> Json:
    """Return one node of a state as JSON.

    Args:
        model: the state.
        address: the address of the node.
        moment: the time, age and origin of the state.
        seen_ms: the time of the node's last answer, in Unix ms; None if it is not known.
        doubts: the result of `doubters_of_all` for this state.

    Raises:
        KeyError: the state has no such node.
    """
    fields = model.nodes[address]
    began_ms = fields.get("began_ms")
    return {
        "node": fields.get("name") or address,
        "address": address,
        "state": fields.get("state", ""),
        "version": fields.get("version", ""),
        "preset": fields.get("preset", ""),
        "uptime_ms": None if began_ms is None else max(0, (seen_ms or moment.at_ms) - int(began_ms)),
        "keys": fields.get("keys", 0),
        "bytes": fields.get("value_bytes", 0),
        "hints": fields.get("hints", 0),
        "under_replicated": fields.get("under_replicated", 0),
        "sibling_keys": fields.get("sibling_keys", 0),
        "misplaced": fields.get("misplaced", 0),
        "damaged": fields.get("damaged", 0),
        "quarantined": fields.get("quarantined", 0),
        "clock_skew_ms": round(1000 * fields.get("clock_skew_s", 0)),
        "troubles": list(fields.get("troubles", ())),
        "vnodes": list(fields.get("vnodes", ())),
        "seen_ms": seen_ms,
        "age_ms": None if seen_ms is None else max(0, moment.at_ms - seen_ms),
        "doubters": doubts.get(address, []),
    }


def doubters_of_all(model: RingModel) -> dict[str, list[Json]]:
    """Return which nodes do not take a peer for alive, by the address of the peer.

    Each of these nodes is a JSON object: `by` is its address, and `state`, `since_ms` and `reason` are from its failure
    detector.
    """
    found: dict[str, list[Json]] = {}
    for other, fields in sorted(model.nodes.items()):
        for address, verdict in fields.get("suspects", {}).items():
            doubt = {
                "by": other,
                "state": verdict["state"],
                "since_ms": verdict.get("since_ms"),
                "reason": verdict.get("reason", ""),
            }
            found.setdefault(address, []).append(doubt)
    return found


def node_detail_json(
    model: RingModel, shape: RingShape | None, address: str, moment: Moment, seen_ms: int | None
) -> Json:
    """Return everything that a state has about one node as JSON, including its fingers, transfers and peers in doubt.

    Args:
        model: the state.
        shape: the constants of the ring; None if they are not known.
        address: the address of the node.
        moment: the time, age and origin of the state.
        seen_ms: the time of the node's last answer, in Unix ms; None if it is not known.

    Raises:
        KeyError: the state has no such node.
    """
    circle, fields = Circle(shape.bits if shape else 160), model.nodes[address]
    vnodes = [point for point in fields.get("vnodes", ()) if point in model.vnodes]
    return {
        **moment_json(moment),
        **node_state_json(model, address, moment, seen_ms, doubters_of_all(model)),
        "vnodes": [
            {
                **vnode_state_json(circle, model, point),
                "fingers": [
                    {
                        "first": first,
                        "last": last,
                        "start": str(int(circle.point(int(point) + (1 << first)))),
                        "id": target,
                        "address": model.vnodes.get(target, {}).get("node"),
                    }
                    for first, last, target in model.vnodes[point].get("fingers", ())
                ],
            }
            for point in vnodes
        ],
        "suspects": [
            {
                "address": peer,
                "state": verdict["state"],
                "since_ms": verdict.get("since_ms"),
                "reason": verdict.get("reason", ""),
            }
            for peer, verdict in sorted(fields.get("suspects", {}).items())
        ],
        "incomplete": list(fields.get("incomplete", ())),
        "transfers": list(fields.get("transfers", ())),
        "cut": list(fields.get("cut", ())),
    }


def owner_of(circle: Circle, model: RingModel, point: Point) -> Json | None:
    """Return the vnode with the arc that contains a point, as JSON; None if the state has no such vnode."""
    for name in sorted(model.vnodes, key=int):
        for arc in model.vnodes[name].get("arcs", ()):
            if _is_owned(arc) and point in Arc(Point(int(arc["start"])), Point(int(arc["end"]))):
                address = str(model.vnodes[name].get("node", ""))
                return {
                    "id": name,
                    "id_hex": circle.hex(Point(int(name))),
                    "node": _name(model, address),
                    "address": address,
                }
    return None


def transfers_state_json(model: RingModel, before: RingModel, seconds: float, moment: Moment) -> Json:
    """Return the transfers of a state as JSON, with their rates.

    Args:
        model: the state.
        before: an earlier state. The rates follow from the difference of the two.
        seconds: the time between the two states, in seconds.
        moment: the time, age and origin of the later state.
    """
    found = []
    for address, fields in sorted(model.nodes.items()):
        old = {_transfer_key(one): one for one in before.nodes.get(address, {}).get("transfers", ())}
        for one in fields.get("transfers", ()):
            known = old.get(_transfer_key(one), {"done": 0, "bytes_sent": 0})
            keys_per_s = max(0, one["done"] - known["done"]) / seconds
            left = None if one["total"] is None else max(0, one["total"] - one["done"])
            found.append({
                "node": _name(model, address),
                "address": address,
                **one,
                "peer_node": _name(model, one["peer"]),
                "share": None if left is None else round(one["done"] / (one["done"] + left), 4) if left else 1.0,
                "keys_per_s": round(keys_per_s, 3),
                "bytes_per_s": round(max(0, one["bytes_sent"] - known["bytes_sent"]) / seconds, 3),
                "eta_s": None if left is None or (left and not keys_per_s) else round(left / (keys_per_s or 1), 3),
            })
    return {**moment_json(moment), "transfers": found}


def _transfer_key(transfer: Fields) -> tuple[object, ...]:
    return transfer["kind"], transfer["start"], transfer["end"], transfer["peer"]


# -- the check ------------------------------------------------------------------------------------


def missing_nodes(model: RingModel) -> list[str]:
    """Return the addresses of the nodes that do not answer, although no other node takes them for dead.

    Only such a node may hide a violation: the ring has given up a dead one.
    """
    lost = [address for address, fields in model.nodes.items() if fields.get("state") == "unreachable"]
    doubts = doubters_of_all(model)
    return sorted(a for a in lost if not any(doubt["state"] in ENDED for doubt in doubts.get(a, ())))


def present_nodes(model: RingModel) -> list[str]:
    """Return the addresses of the nodes that may be in the ring: all but those that ended or are declared dead."""
    return sorted({*missing_nodes(model), *(a for a, f in model.nodes.items() if f.get("state") not in GONE)})


def ring_check_json(model: RingModel, shape: RingShape | None, moment: Moment) -> Json:
    """Return the check of a state as JSON: whether each invariant holds, and what the ring still has to repair.

    If a node is missing, `holds` is None for each invariant that this node may break unseen, and `waiting` is empty.

    Args:
        model: the state.
        shape: the constants of the ring; None if they are not known, and then no invariant is judged.
        moment: the time, age and origin of the state.
    """
    missing = missing_nodes(model)
    found = _violations(model, shape) if shape is not None else []
    is_known = shape is not None and not missing and bool(_members(model))
    waiting = _waiting(model, shape) if shape is not None and is_known else []
    checked = []
    for name in INVARIANTS:
        broken = [violation for violation in found if violation.invariant == name]
        is_certain = is_known or (bool(broken) and name in LOCAL_INVARIANTS)
        checked.append({
            "name": name,
            "holds": not broken if is_certain else None,
            "violations": [_violation_json(model, violation) for violation in broken] if is_certain else [],
        })
    lost = sorted(a for a, fields in model.nodes.items() if fields.get("state") in GONE)
    return {
        **moment_json(moment),
        "invariants": checked,
        "waiting": [_violation_json(model, violation) for violation in waiting],
        "unreachable": lost,
        "missing": missing,
        "under_replicated": sum(fields.get("under_replicated", 0) for fields in _living(model)),
        "data_is_safe": _is_data_safe(model, shape, lost),
        "settled": (not waiting and all(one["holds"] for one in checked)) if is_known else None,
    }


def check_line(model: RingModel, shape: RingShape) -> Fields:
    """Return the check of a state in the form of a recording's line.

    Its fields are `members`, the number of vnodes in the ring, `violations`, and `waiting`, the number of differences
    to an Ideal ring.
    """
    found = _violations(model, shape)
    return {
        "members": len(_members(model)),
        "violations": [{"name": violation.invariant, "text": violation.text} for violation in found],
        "waiting": len(_waiting(model, shape)),
    }


def _is_data_safe(model: RingModel, shape: RingShape | None, lost: Iterable[str]) -> bool | None:
    """Return True if no acknowledged write can be lost; None if that is not known."""
    if shape is None or not _members(model):
        return None
    unreachable = [address for address in lost if model.nodes[address].get("state") != "left"]
    if len(unreachable) < shape.quorum:
        return True
    parts = [part for fields in _living(model) for part in fields.get("incomplete", ())]
    is_whole = not invariants.ownership(_owned(model), Circle(shape.bits))
    return True if is_whole and all(len(part["unreachable"]) < shape.quorum for part in parts) else None


def _living(model: RingModel) -> list[Fields]:
    return [fields for fields in model.nodes.values() if fields.get("state") not in GONE]


def _members(model: RingModel) -> dict[int, Member]:
    """Return the vnodes that the invariants are about: those of living nodes, in the ring."""
    living = {point for fields in _living(model) for point in fields.get("vnodes", ())}
    found = {}
    for point, fields in model.vnodes.items():
        if point in living and fields.get("state") in ("member", "leaving") and fields.get("successors"):
            predecessor = fields.get("predecessor")
            successors = tuple(int(successor) for successor in fields["successors"])
            before = None if predecessor is None else int(predecessor)
            found[int(point)] = Member(_name(model, str(fields["node"])), before, successors)
    return found


def _owned(model: RingModel) -> dict[Point, list[Arc]]:
    return {
        Point(point): [
            Arc(Point(int(arc["start"])), Point(int(arc["end"])))
            for arc in model.vnodes[str(point)].get("arcs", ())
            if _is_owned(arc)
        ]
        for point in _members(model)
    }


def _violations(model: RingModel, shape: RingShape) -> list[Violation]:
    return invariants.violations(_members(model), shape.successors)


def _waiting(model: RingModel, shape: RingShape) -> list[Violation]:
    members = _members(model)
    if not members:
        return []
    living = {point: str(fields.get("name", "")) for fields in _living(model) for point in fields.get("vnodes", ())}
    joining = [
        Violation("Joined", f"{living[point]} is joining", (int(point),))
        for point, fields in sorted(model.vnodes.items(), key=lambda item: int(item[0]))
        if point in living and fields.get("state") == "joining"
    ]
    wrong = invariants.ownership(_owned(model), Circle(shape.bits))
    return [*joining, *invariants.waiting(members, shape.successors), *wrong]


def _violation_json(model: RingModel, violation: Violation) -> Json:
    nodes = [str(model.vnodes.get(str(point), {}).get("node", point)) for point in violation.nodes]
    return {"name": violation.invariant, "text": violation.text, "nodes": nodes, "ids": [*map(str, violation.nodes)]}


def _is_owned(arc: Fields) -> bool:
    return bool(arc["state"] == "owned")  # arcs in other states are parts of it


def _name(model: RingModel, address: str) -> str:
    return str(model.nodes.get(address, {}).get("name") or address)
