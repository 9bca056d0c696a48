"""The summary of a ring: the verdict, the nodes and the latest events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from chord.ids import Circle
from chord.observe.model import RingModel, RingShape
from chord.views.common import Json
from chord.views.dashboard import (
    Moment,
    doubters_of_all,
    moment_json,
    node_state_json,
    ring_check_json,
    vnode_state_json,
)

TopVerdict: TypeAlias = Literal["healthy", "healing", "unknown", "broken", "lost"]
"""The verdict on a ring.

"healing": a part is not in its final state yet, or records lack copies. "unknown": a missing node may break an
invariant unseen. "broken": an invariant does not hold. "lost": no node answers.
"""

GONE: Final = ("unreachable", "left", "stopped")

ROUTINE_KINDS: Final = (
    *("ConnectionOpened", "ConnectionClosed", "ConnectionRefused", "FingerChanged", "ListCopied", "StepAborted"),
    *("LookupDone", "RecordsReceived", "StepFailed"),
)
"""The kinds of events that say nothing about the state of a ring."""


def top_json(
    model: RingModel, shape: RingShape | None, moment: Moment, seen_ms: Mapping[str, int], events: Iterable[Json]
) -> Json:
    """Return the summary of a ring for `chord top` as JSON: the verdict, the nodes and the latest events.

    Args:
        model: the state of the ring.
        shape: the constants of the ring; None if no node has answered yet.
        moment: the time, age and origin of the state.
        seen_ms: the time of the last answer of each node, in Unix ms, by address.
        events: the events to include, as `chord.web.phrases.event_json` returns them.
    """
    circle = Circle(shape.bits if shape else 160)
    vnodes = [vnode_state_json(circle, model, point) for point in sorted(model.vnodes, key=int)]
    owned: dict[str, float] = {}
    for vnode in vnodes:
        if model.nodes.get(vnode["address"], {}).get("state") not in GONE:
            owned[vnode["address"]] = owned.get(vnode["address"], 0.0) + vnode["owned"]
    nodes, doubts = [], doubters_of_all(model)
    for address in model.nodes:
        node = node_state_json(model, address, moment, seen_ms.get(address), doubts)
        nodes.append({
            **{name: node[name] for name in ("node", "address", "state", "keys", "bytes", "hints", "misplaced")},
            "under_replicated": node["under_replicated"],
            "owned": round(min(1.0, owned.get(address, 0.0)), 6),
            "suspected_by": len(node["doubters"]),
            "age_ms": node["age_ms"],
        })
    verdict, text = _verdict(model, shape, moment)
    return {
        **moment_json(moment),
        "verdict": verdict,
        "text": text,
        "nodes": nodes,
        "ring": [
            {
                **{name: vnode[name] for name in ("id", "id_hex", "node", "address", "state")},
                "position": round(circle.fraction(int(vnode["id"])), 9),
            }
            for vnode in vnodes
        ],
        "events": [{name: event[name] for name in ("at_ms", "node", "kind", "text")} for event in events],
    }


def _verdict(model: RingModel, shape: RingShape | None, moment: Moment) -> tuple[TopVerdict, str]:
    living = [address for address, fields in model.nodes.items() if fields.get("state") not in GONE]
    if not living:
        return "lost", "no node answers"
    check = ring_check_json(model, shape, moment)
    broken = [violation for invariant in check["invariants"] for violation in invariant["violations"]]
    if broken:
        return "broken", f"{broken[0]['name']} does not hold: {broken[0]['text']}{_more(broken)}"
    names = ", ".join(str(model.nodes[address].get("name") or address) for address in check["missing"])
    if names:
        return "unknown", f"no verdict: {names} may break an invariant unseen"
    if check["waiting"]:
        return "healing", f"{check['waiting'][0]['text']}{_more(check['waiting'])}"
    if check["under_replicated"]:
        return "healing", f"under-replicated records: {check['under_replicated']}"
    vnodes = sum(len(model.nodes[address].get("vnodes", ())) for address in living)
    lost = ", ".join(str(model.nodes[address].get("name") or address) for address in _unreachable(model))
    text = f"{len(living)} nodes, {vnodes} vnodes, the eight invariants hold"
    return "healthy", f"{text}; no answer from {lost}" if lost else text


def _unreachable(model: RingModel) -> list[str]:
    return sorted(address for address, fields in model.nodes.items() if fields.get("state") == "unreachable")


def _more(found: list[Json]) -> str:
    return f" (and {len(found) - 1} more)" if len(found) > 1 else ""
