"""Requests of a client below its operations: for measurements and for the simulator.

A user of `AsyncApi` names keys and values. The functions here take the requests themselves. So the simulator knows the
operation id of a write before it sends the write, and `bench` measures the smallest call.
"""

from __future__ import annotations

from collections.abc import Sequence

from chord.client.operations import Operations, to_found
from chord.client.quorum_read import quorum_read
from chord.client.results import Found, Stored, to_quorum
from chord.client.session import ClientOperation, Outcome
from chord.client.trio_driver import TrioApi
from chord.errors import ChordError
from chord.wire.messages import Get, Ping, Put


async def ping(api: TrioApi, address: str) -> None:
    """Make the smallest call to the node at an address, to measure a round trip.

    Raises:
        ChordError: the node does not answer.
    """
    await api._drive(api._core.session.request(Ping(), address))


def put_request(
    api: TrioApi,
    key: bytes,
    value: bytes | None,
    *,
    context: bytes | None = None,
    no_context: bool = False,
    w: int | None = None,
    sloppy: bool = True,
    ttl_s: float | None = None,
    replicas: bool = False,
) -> Put:
    """Return the request of a write with a new operation id. It is not sent yet.

    Args:
        api: the client or node that will send it.
        key: the key.
        value: the value; None: delete the key.
        context, no_context, w, sloppy, ttl_s, replicas: as for `AsyncApi.put`.

    Raises:
        InvalidRequest: an argument is out of bounds.
    """
    return api._core.to_put(
        key, value, context=context, no_context=no_context, w=w, sloppy=sloppy, ttl_s=ttl_s, replicas=replicas
    )


async def write(api: TrioApi, puts: Sequence[Put]) -> Sequence[Stored | ChordError]:
    """Send one write alone, or several as a batch, and return the result or the error of each, in order.

    Raises:
        ChordError: `puts` has one write, and it failed. In a batch, an error is one of the results.
    """
    if len(puts) == 1:
        return [await api._drive(api._core.write(puts[0]))]
    return await api._drive(api._core.write_all(puts))


async def read(api: TrioApi, keys: Sequence[bytes], r: int | None = None) -> Sequence[Found | ChordError]:
    """Read one key alone, or several as a batch, and return the result or the error of each, in order.

    Each result lists the replicas that answered, also if the client performs a quorum read itself.

    `r` is the number of replicas that must answer; None: a majority.

    Raises:
        ChordError: `keys` has one key, and its read failed. In a batch, an error is one of the results.
    """
    if len(keys) == 1:
        return [await api._drive(_get(api._core, keys[0], r))]
    return await api._drive(api._core.get_all(keys, r, replicas=True))


def _get(core: Operations, key: bytes, r: int | None) -> ClientOperation[Found]:
    reply: Outcome | None = None
    if r is None:
        reply = yield from quorum_read(core.session, key, with_replicas=True)
    if reply is None:
        reply = yield from core.session.request(Get(key, to_quorum(r, "r"), with_replicas=True))
    found = to_found(key, reply)
    if isinstance(found, ChordError):
        raise found
    return found
