"""Events in words, for the event log of the page."""

from __future__ import annotations

from typing import Final

from chord.observe.model import Fields, RingModel
from chord.views.common import Json

PHRASES: Final = {
    "RingCreated": "{self} founded the ring",
    "RingJoined": "{self} joined before {successor}",
    "RingResumed": "{self} resumed its place before {successor}",
    "SuccessorAdopted": "{self} has the new successor {new}",
    "ListCopied": "{self} copied the successor list of {head}",
    "HeadForgotten": "{self} dropped its successor {old}",
    "PredecessorAdopted": "{self} has the new predecessor {new}",
    "StepAborted": "{self} repeats the step {step}",
    "StepFailed": "{self} failed in the step {step}: {error}",
    "FingerChanged": "{self} points the fingers {first} to {last} at {new}",
    "SplitFound": "{asked} found that {self} is in another part of the ring",
    "VnodeIsolated": "{self} lost its last neighbours",
    "ArcGained": "{self} owns an arc ({how})",
    "ArcLost": "{self} gave up an arc ({how})",
    "TransferStarted": "{self} began to hand an arc over to {to} ({reason})",
    "TransferEnded": "{self} handed {records} records over to {to}: {outcome}",
    "RecordsReceived": "{self} stored {records} records",
    "RecordUnmerged": "{self} cannot merge a record",
    "ValuesQuarantined": "{self} hid {values} values in quarantine",
    "RecordsDropped": "{self} dropped {records} records of {to}",
    "LookupDone": "{start} found {owner} in {hops} hops",
    "PeerChanged": "{self} takes {peer} for {state}",
    "ConnectionOpened": "{self} connected with {peer}",
    "ConnectionClosed": "{self} lost a connection with {peer}: {reason}",
    "ConnectionRefused": "{self} has no connection with {peer}: {reason}",
    "NodeStateChanged": "{self} is {state}",
    "HealthChanged": "{self}: {subject}: {why}",
    "RecordsDamaged": "{self} found {records} damaged records",
    "ClockSkewed": "the clocks of {self} and {peer} differ by {skew_ms} ms",
    "StoreBegun": "{self} begins with an empty store ({why})",
    "ReplyRefused": "{self} sent an invalid reply: {why}",
    "HandlerFailed": "{self} failed in the handler of {where}",
}
"""The phrase of each kind of event."""

CONTACTS: Final = ("new", "old", "head", "predecessor", "successor", "asked", "to", "start", "owner")
"""The fields of events that name a vnode, as `NAME_id` and `NAME_address`."""


class _Words(dict[str, object]):
    """The words of a phrase. A field that the event lacks is a question mark."""

    def __missing__(self, name: str) -> str:
        return "?"


def event_json(model: RingModel, event: Fields, at_ms: int) -> Json:
    """Return an event as JSON, with a sentence that describes it and the nodes and vnodes that it is about.

    Args:
        model: the state of the ring, which has the names of nodes.
        event: the event, with the fields of a recording's line.
        at_ms: the time when the aggregator received it, in Unix ms. The field `age_ms` of the event is subtracted.
    """
    fields = event.get("fields", {})
    refs = {"nodes": [event.get("node", "")], "vnodes": [] if event.get("vnode") is None else [event["vnode"]]}
    for name in CONTACTS:
        if fields.get(f"{name}_id") is not None:
            refs["vnodes"].append(str(fields[f"{name}_id"]))
            refs["nodes"].append(str(fields.get(f"{name}_address", "")))
    peer = fields.get("address")
    if peer is not None:
        refs["nodes"].append(str(peer))
    return {
        "seq": event.get("seq", 0),
        "at_ms": at_ms - event.get("age_ms", 0),
        "node": event.get("node", ""),
        "vnode": event.get("vnode"),
        "kind": event.get("kind", ""),
        "text": phrase(model, event),
        "refs": {name: list(dict.fromkeys(found)) for name, found in refs.items()},
        "fields": fields,
    }


def phrase(model: RingModel, event: Fields) -> str:
    """Return an event as a sentence in English. For an unknown kind, it is the name of the kind.

    Args:
        model: the state of the ring, which has the names of nodes.
        event: the event, with the fields of a recording's line.
    """
    fields, kind = event.get("fields", {}), str(event.get("kind", ""))
    words = _Words(fields)
    words["self"] = _name(model, event.get("node"))
    words["peer"] = _name(model, fields.get("address"))
    for name in CONTACTS:
        if f"{name}_address" in fields:
            words[name] = _name(model, fields[f"{name}_address"])
    return PHRASES.get(kind, kind).format_map(words)


def _name(model: RingModel, address: object) -> str:
    return str(model.nodes.get(str(address), {}).get("name") or address or "?")
