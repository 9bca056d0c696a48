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

PARTNER_S = 0.5
"""Time in seconds for a partner's answer. If it passes, the owner coordinates the read, and asks another replica."""


def quorum_read(
    session: ClientSession, key: bytes, *, with_replicas: bool = False
) -> ClientOperation[GetReply | None]:
    """Read a key from its owner and the owner's partners at the same time, in one round trip.

    Args:
        session: the session of the client or node that reads.
        key: the key.
        with_replicas: whether an owner that coordinates the read after all lists the replicas.

    Returns:
        The values; None if the owner must coordinate the read, or if no owner with partners is remembered.
    """
    is_node = session.member is not None
    owner, partners = session.owner_routing.quorum_of(session.circle, key, is_counted=is_node)
    if owner is None or not partners or owner.address == session.member:
        return None
    request = Get(key, 0, tuple(partner.id for partner in partners), with_owner=False, with_replicas=with_replicas)
    asked = [ClientCall(partner, ReadDigest(key, owner.id), PARTNER_S) for partner in partners]
    own = ClientCall(owner, request, PARTNER_S if is_node else None)  # a node coordinates without the owner, too
    reply, *digests = yield MakeCalls((own, *asked), session.attempt_s(owner))
    session.owner_routing.learn(session.circle, request, owner, reply)
    if not isinstance(reply, GetReply):
        return None
    if not reply.partners:  # the client asked the right ones, or the owner knows none
        have_answered = all(isinstance(digest, ReadDigestReply) for digest in digests)
        session.owner_routing.note_partners(owner, have_answered=have_answered)
    if not reply.copy:  # the owner coordinated the read
        return msgspec.structs.replace(reply, owner=owner)
    if reply.values and all(isinstance(digest, ReadDigestReply) and digest.copy == reply.copy for digest in digests):
        lines = tuple(ReplicaLine(contact, "ok", True) for contact in (owner, *partners))
        return msgspec.structs.replace(reply, owner=owner, r=len(lines), replicas=lines)
    return None
