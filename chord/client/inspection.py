"""The copies of a key, as each member of its replica set holds them."""

from __future__ import annotations

import msgspec

from chord.client.results import to_key
from chord.client.session import ClientCall, ClientOperation, ClientSession, MakeCalls, Outcome
from chord.errors import ChordError
from chord.wire.messages import Contact, Lookup, ReadCopy, ReadCopyReply, Trace, Version

INSPECT_S = 1.0  # time limit in seconds for the copy of one member


class Copy(msgspec.Struct, frozen=True):
    """The copy of a key at one member of its replica set.

    Attributes:
        member: the member.
        reason: why the copy is not known, in words; "" if it is known. If not, all other attributes are empty.
        version: the first bytes of the copy's digest; empty if the member holds no copy.
        versions: the concurrent versions, without those in quarantine. A tombstone has the value None.
        quarantined: the number of values in quarantine.
        is_in_sync: whether the member says that it holds every acknowledged write of the key.
        is_damaged: whether the member has a damaged record that may be the one of this key.
    """

    member: Contact
    reason: str = ""
    version: bytes = b""
    versions: tuple[Version, ...] = ()
    quarantined: int = 0
    is_in_sync: bool = False
    is_damaged: bool = False


class Inspection(msgspec.Struct, frozen=True):
    """The copies of a key at the members of its replica set.

    Attributes:
        key: the key.
        owner: the vnode that owns the key.
        copies: the copy of each member, in ring order.
    """

    key: bytes
    owner: Contact
    copies: tuple[Copy, ...]


def inspect(session: ClientSession, key: str | bytes) -> ClientOperation[Inspection]:
    """Ask each member of a key's replica set for its copy.

    No quorum is needed, and nothing is repaired. A member that the owner finds unreachable is not asked.
    """
    raw = to_key(key)
    circle = yield from session.known_circle()
    trace = yield from session.request(Lookup(circle.hash(raw)))
    assert isinstance(trace, Trace)
    asked = [contact for contact in trace.replicas if contact not in trace.unreachable]
    calls = tuple(ClientCall(contact, ReadCopy(raw), INSPECT_S) for contact in asked)
    outcomes = dict(zip(asked, (yield MakeCalls(calls)), strict=True))
    unasked = f"not asked: it does not answer the owner, {trace.owner.address}"
    return Inspection(raw, trace.owner, tuple(
        _copy(contact, outcomes[contact]) if contact in outcomes else Copy(contact, unasked)
        for contact in trace.replicas
    ))


def _copy(member: Contact, outcome: Outcome) -> Copy:
    if isinstance(outcome, ChordError):
        return Copy(member, outcome.message)
    assert isinstance(outcome, ReadCopyReply)
    record = outcome.record
    if record is None:
        return Copy(member, is_in_sync=outcome.is_in_sync, is_damaged=outcome.is_damaged)
    from chord.store import versions  # not at the start: `chord get` loads this module, and seldom inspects
    from chord.store.merkle import VERSION_BYTES, digest_of

    return Copy(
        member,
        version=digest_of(record)[:VERSION_BYTES],
        versions=tuple(versions.siblings(record)),
        quarantined=sum(len(entry.versions) for entry in record.quarantine),
        is_in_sync=outcome.is_in_sync,
        is_damaged=outcome.is_damaged,
    )
