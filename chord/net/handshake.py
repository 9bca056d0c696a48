"""Handshake: the first frame in each direction, and whether both sides may talk.

The dialler sends its hello. The acceptor checks it, and answers with its own hello or with a refusal. Then the dialler
checks the acceptor's hello. A refusal is an error frame with call id 0, and the other side raises the same error.
Neither side handles any other frame before both have agreed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

import trio

from chord.config import Limits
from chord.errors import ChordError, PeerUnreachable
from chord.net.transport import Stream
from chord.wire.codec import encode_hello, encode_refusal
from chord.wire.messages import Hello, StreamName
from chord.wire.session import Handshake

RECEIVE_BYTES: Final = 64 * 1024

HELLO_BYTES_MAX: Final = 16 * 1024
"""Largest first frame of a dialler, in bytes. Until it has arrived, the dialler is unknown."""

REFUSAL_S: Final = 1.0
"""Seconds that a peer has to read a refusal."""


HUNG_UP: Final = "the peer closed the connection before its hello; it may be out of descriptors, or ending"


class Met(NamedTuple):
    """A successful handshake.

    Attributes:
        mine: the hello of this node.
        peer: the hello of the peer.
        handshake: holds the bytes that arrived behind the peer's hello, and cuts what follows into frames.
    """

    mine: Hello
    peer: Hello
    handshake: Handshake


async def open_handshake(stream: Stream, mine: Hello, check: Callable[[Hello], None], limits: Limits) -> Met:
    """Exchange hellos on a stream that this node opened.

    Args:
        stream: the stream.
        mine: the hello of this node, which sends it first.
        check: gets the peer's hello, and raises a `ChordError` to refuse the peer.
        limits: the largest sizes of frames.

    Raises:
        ChordError: one side refused the other, or the peer closed the connection. No call was sent.
    """
    handshake = Handshake(limits)
    try:
        await stream.send_all(encode_hello(mine))
        peer = await _receive_hello(stream, handshake)
    except trio.BrokenResourceError:
        raise PeerUnreachable(HUNG_UP) from None
    try:
        return _met(mine, peer, handshake, check)
    except ChordError as error:  # callers wait for it, so do not wait until the peer has read it
        with trio.move_on_after(REFUSAL_S), suppress(trio.BrokenResourceError):
            await stream.send_all(encode_refusal(error))
        raise


async def answer_handshake(
    stream: Stream,
    hello: Callable[[StreamName], Hello],
    check: Callable[[Hello], None],
    limits: Limits,
) -> Met:
    """Exchange hellos on a stream that the peer opened.

    The peer's hello comes first.

    Args:
        stream: the stream.
        hello: returns this node's hello for the kind of stream that the peer wants, control or bulk.
        check: gets the peer's hello, and raises a `ChordError` to refuse the peer.
        limits: the largest sizes of frames.

    Raises:
        ChordError: one side refused the other, or the peer closed the connection.
        trio.BrokenResourceError: the connection is broken.
    """
    handshake = Handshake(limits, min(HELLO_BYTES_MAX, limits.frame_control_bytes_max))
    try:
        peer = await _receive_hello(stream, handshake)
        met = _met(hello(peer.stream), peer, handshake, check)
    except ChordError as error:
        await refuse(stream, error)
        raise
    await stream.send_all(encode_hello(met.mine))
    return met


async def refuse(stream: Stream, error: ChordError) -> None:
    """Send the peer the error with which it is refused, and wait until it has read the error.

    Give up after `REFUSAL_S` seconds, or if the connection is broken. The caller closes the stream.
    """
    with trio.move_on_after(REFUSAL_S), suppress(trio.BrokenResourceError):
        await stream.send_all(encode_refusal(error))
        await stream.send_eof()
        await wait_for_end(stream)


async def wait_for_end(stream: Stream) -> None:
    """Read and discard the peer's bytes until the peer closes its side, for at most `REFUSAL_S` seconds.

    If bytes of the peer were still unread, closing the stream could discard the last frame sent to it.

    Raises:
        trio.BrokenResourceError: the connection is already broken.
    """
    with trio.move_on_after(REFUSAL_S):
        while await stream.receive_some(RECEIVE_BYTES):
            pass


async def _receive_hello(stream: Stream, handshake: Handshake) -> Hello:
    peer: Hello | ChordError | None = None
    while peer is None:
        data = await stream.receive_some(RECEIVE_BYTES)
        if not data:
            raise PeerUnreachable(HUNG_UP)
        peer = handshake.receive(data)
    if isinstance(peer, ChordError):
        raise peer
    return peer


def _met(mine: Hello, peer: Hello, handshake: Handshake, check: Callable[[Hello], None]) -> Met:
    handshake.agree(mine, peer)
    check(peer)
    return Met(mine, peer, handshake)
