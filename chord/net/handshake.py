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
from chord.errors import ChordError, MalformedMessage, OtherRing, PeerUnreachable
from chord.net.transport import Stream
from chord.wire.codec import Frames, Kind, decode_hello, decode_refusal, encode_hello, encode_refusal
from chord.wire.messages import Hello, StreamName

RECEIVE_BYTES: Final = 64 * 1024

HELLO_BYTES_MAX: Final = 16 * 1024
"""Largest first frame of a dialler, in bytes. Until it has arrived, the dialler is unknown."""

FAREWELL_S: Final = 1.0
"""Seconds that a peer has to read a refusal."""


HUNG_UP: Final = "the peer closed the connection before its hello; it may be out of descriptors, or ending"


class Met(NamedTuple):
    """A successful handshake.

    Attributes:
        mine: the hello of this node.
        peer: the hello of the peer.
        frames: cuts the bytes that follow into frames.
        early: the frames that arrived together with the peer's hello.
    """

    mine: Hello
    peer: Hello
    frames: Frames
    early: list[tuple[Kind, bytes]]


async def greet(stream: Stream, mine: Hello, check: Callable[[Hello], None], limits: Limits) -> Met:
    """Shake hands on a stream that we opened.

    Raises:
        ChordError: one side refused the other, or the peer closed the connection; nothing has happened.
    """
    frames = Frames(limits.frame_control_bytes_max, limits.frame_items_max)
    try:
        await stream.send_all(encode_hello(mine))
        peer, early = await _receive_hello(stream, frames)
    except trio.BrokenResourceError:
        raise PeerUnreachable(HUNG_UP) from None
    try:
        if peer.stream != mine.stream:
            raise MalformedMessage(f"asked for a {mine.stream} stream, was given {peer.stream}")
        return _met(mine, peer, frames, early, check, limits)
    except ChordError as error:  # callers wait for it, so do not wait until the peer has read it
        with trio.move_on_after(FAREWELL_S), suppress(trio.BrokenResourceError):
            await stream.send_all(encode_refusal(error))
        raise


async def welcome(
    stream: Stream,
    hello: Callable[[StreamName], Hello],
    check: Callable[[Hello], None],
    limits: Limits,
) -> Met:
    """Shake hands on a stream that the peer opened.

    Raises:
        ChordError: one side refused the other, or the peer closed the connection.
        trio.BrokenResourceError: the connection is broken.
    """
    frames = Frames(min(HELLO_BYTES_MAX, limits.frame_control_bytes_max), limits.frame_items_max)
    try:
        peer, early = await _receive_hello(stream, frames)
        met = _met(hello(peer.stream), peer, frames, early, check, limits)
    except ChordError as error:
        await refuse(stream, error)
        raise
    await stream.send_all(encode_hello(met.mine))
    return met


async def refuse(stream: Stream, error: ChordError) -> None:
    """Send the peer the reason of a refusal, if it still reads."""
    with trio.move_on_after(FAREWELL_S), suppress(trio.BrokenResourceError):
        await stream.send_all(encode_refusal(error))
        await stream.send_eof()
        await wait_for_end(stream)


async def wait_for_end(stream: Stream) -> None:
    """Give the peer a moment to read the last frame before the stream is closed.

    If bytes of the peer are still unread, closing the stream could discard that frame.

    Raises:
        trio.BrokenResourceError: the connection is already broken.
    """
    with trio.move_on_after(FAREWELL_S):
        while await stream.receive_some(RECEIVE_BYTES):
            pass


async def _receive_hello(stream: Stream, frames: Frames) -> tuple[Hello, list[tuple[Kind, bytes]]]:
    complete: list[tuple[Kind, bytes]] = []
    while not complete:
        data = await stream.receive_some(RECEIVE_BYTES)
        if not data:
            raise PeerUnreachable(HUNG_UP)
        complete = frames.feed(data)
    kind, body = complete[0]
    if kind is Kind.ERROR:
        raise decode_refusal(body)
    if kind is not Kind.HELLO:
        raise MalformedMessage("the first frame is not a hello")
    return decode_hello(body), complete[1:]


def _met(
    mine: Hello,
    peer: Hello,
    frames: Frames,
    early: list[tuple[Kind, bytes]],
    check: Callable[[Hello], None],
    limits: Limits,
) -> Met:
    if min(mine.version_max, peer.version_max) < max(mine.version_min, peer.version_min):
        raise OtherRing(
            f"no common version of the protocol: {mine.version_min} to {mine.version_max} here, "
            f"{peer.version_min} to {peer.version_max} there"
        )
    check(peer)
    frames.limit = limits.frame_bulk_bytes_max if peer.stream == "bulk" else limits.frame_control_bytes_max
    return Met(mine, peer, frames, early)
