"""A quorum read that a client performs itself, in one round.

Only the owner of a key knows the key's replica set, so the owner checks it. Its replies name the replicas that it asks
first: the *partners*. The client remembers them, and asks owner and partners at the same time.

- The owner answers from its own durable copy, if it would ask exactly these partners itself.
- Each partner identifies its durable copy by a digest.
- If all copies are equal, they are a read quorum, and the owner's values are its result.

Otherwise the client leaves the read to the owner. The owner merges different copies, repairs stale ones, and proves
that a key is absent. A result serves one read only.

Source: DeCandia et al. 2007 (Dynamo), section 4.6, on coordination by the client.
"""

from __future__ import annotations

import msgspec

from chord.client.session import ClientCall, ClientOperation, ClientSession, MakeCalls
from chord.wire.messages import Get, GetReply, ReadDigest, ReadDigestReply, ReplicaLine

PARTNER_S = 0.25
"""Time in seconds for a partner's answer. If it passes, the owner coordinates the read, and asks another replica."""


def quorum_read(session: ClientSession, key: bytes) -> ClientOperation[GetReply | None]:
    """Read a key from its owner and the owner's partners at the same time.

    Returns:
        The result; None if the owner must coordinate the read, or if no owner with partners is remembered.
    """
    owner, partners = session.owner_routing.quorum_of(session.circle, key)
    if owner is None or not partners or owner.address == session.member:
        return None
    request = Get(key, 0, tuple(partner.id for partner in partners), with_owner=False)
    asked = [ClientCall(partner, ReadDigest(key, owner.id), PARTNER_S) for partner in partners]
    reply, *digests = yield MakeCalls((ClientCall(owner, request), *asked), session.attempt_s(owner))
    session.owner_routing.learn(session.circle, request, owner, reply)
    if not isinstance(reply, GetReply):
        return None
    if not reply.copy:  # the owner coordinated the read
        return msgspec.structs.replace(reply, owner=owner)
    session.owner_routing.note_partners(owner, have_answered=all(isinstance(one, ReadDigestReply) for one in digests))
    if all(isinstance(digest, ReadDigestReply) and digest.copy == reply.copy for digest in digests):
        lines = tuple(ReplicaLine(contact, "ok", True) for contact in (owner, *partners))
        return msgspec.structs.replace(reply, owner=owner, r=len(lines), replicas=lines)
    return None
