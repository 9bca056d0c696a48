"""The first frame both ways: who are you, and do we belong together?

The dialler says hello, the acceptor checks it and answers with its own hello or with a refusal; the
dialler checks in turn. A refusal is an error frame with call id 0, and the very error comes out at the
other end. Nothing but this happens on a stream before both have agreed.
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
"""The largest first frame of who dials: until it is there, nothing is known of them."""

FAREWELL_S: Final = 1.0
"""How long a peer is given to take a refusal."""


HUNG_UP: Final = "it closed the connection before it said hello; it may lack descriptors, or be ending"


class Met(NamedTuple):
    """A handshake that succeeded: both hellos, and the stream's frames behind them."""

    mine: Hello
    peer: Hello
    handshake: Handshake


async def greet(stream: Stream, mine: Hello, check: Callable[[Hello], None], limits: Limits) -> Met:
    """Shake hands on a stream we opened.

    Raises:
        ChordError: what either side refuses the other with; nothing has happened.
    """
    handshake = Handshake(limits)
    try:
        await stream.send_all(encode_hello(mine))
        peer = await _receive_hello(stream, handshake)
    except trio.BrokenResourceError:
        raise PeerUnreachable(HUNG_UP) from None
    try:
        return _met(mine, peer, handshake, check)
    except ChordError as error:  # callers wait for this one: no time for a long farewell
        with trio.move_on_after(FAREWELL_S), suppress(trio.BrokenResourceError):
            await stream.send_all(encode_refusal(error))
        raise


async def welcome(
    stream: Stream,
    hello: Callable[[StreamName], Hello],
    check: Callable[[Hello], None],
    limits: Limits,
) -> Met:
    """Shake hands on a stream the peer opened.

    Raises:
        ChordError: what either side refuses the other with.
        trio.BrokenResourceError: the peer is gone.
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
    """Tell the peer why not, if it still listens."""
    with trio.move_on_after(FAREWELL_S), suppress(trio.BrokenResourceError):
        await stream.send_all(encode_refusal(error))
        await stream.send_eof()
        await wait_for_end(stream)


async def wait_for_end(stream: Stream) -> None:
    """Give the peer a moment to read the last we said: closing with something of its unread could take that away.

    Raises:
        trio.BrokenResourceError: it is gone already.
    """
    with trio.move_on_after(FAREWELL_S):
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
