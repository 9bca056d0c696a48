"""Bytes to messages and back: frames, strict CBOR, validation. No I/O, no clock.

A frame is one byte of kind, three bytes of body length (big-endian), and the body, one CBOR item:

    hello   [version min, version max, role, stream, …]      the fields of `messages.Hello`
    call    [call id, vnode id or nil, budget ms, [tag, fields…], sent ms]
    reply   [call id, [tag, fields…]]
    error   [call id, [code, message, peer, after ms]]       call id 0 refuses the connection itself
    cast    [tag]                                             1: goodbye, no new calls on this stream, please

Points travel as big-endian bytes of the circle's width. Whatever the bytes and however they are cut into
chunks, only `MalformedMessage` comes out. Of a call whose envelope can be read, what is wrong inside comes out
as a value, because then the caller can be told and the connection lives.

The order of the defences: the length is refused before the body is buffered; a large body of too many items is
refused before it is decoded; CBOR is decoded without tags, indefinite lengths, duplicate or odd map keys, depth over
16 or trailing bytes; and what remains is converted to the one type expected, bounds included. Fields behind the known
ones are ignored, missing ones have defaults: that is how a protocol version grows.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from struct import Struct
from typing import Any, Final, TypeVar

import msgspec

from chord.config import Limits
from chord.errors import ChordError, MalformedMessage, PeerUnreachable, RemoteFailure, UnknownRequest, from_wire
from chord.ids import Circle, Point
from chord.wire.cbor import Encoder, decode, require_items
from chord.wire.messages import REQUEST_BY_TAG, ErrorReply, Hello, Reply, Request

PREFIX_BYTES: Final = 4
BODY_BYTES_MAX: Final = (1 << 24) - 1
CALL_ID_MAX: Final = (1 << 63) - 1
BUDGET_MS_MAX: Final = (1 << 32) - 1
SENT_MS_MAX: Final = (1 << 53) - 1
REFUSED_CALL_ID: Final = 0
MESSAGE_CHARS_MAX: Final = 1024
REMEMBERED_BYTES_MAX: Final = 3 << 17  # a batch of copies, too

_PLAIN_TYPES: Final = (bytes,)
"""What CBOR can carry and msgspec by default would not leave alone: it would make base64 of it."""

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_Reply = TypeVar("_Reply", bound=Reply)


class Kind(IntEnum):
    """What a frame carries."""

    HELLO = 1
    CALL = 2
    REPLY = 3
    ERROR = 4
    CAST = 5


_KINDS: Final = {int(kind): kind for kind in Kind}

# Envelopes are arrays of a fixed shape, so their heads are packed in one go. That is CBOR like any other, if not the
# shortest: `0x1b` is a number of 8 bytes, `0x1a` one of 4, `0xf6` is nil, `0x40 + n` are n bytes.
ENVELOPE_BYTES_MAX: Final = 64
_CALL, _REPLY, _ERROR = ((kind << 24) - PREFIX_BYTES for kind in (Kind.CALL, Kind.REPLY, Kind.ERROR))
_TO_NODE: Final = Struct(">IBBQBBI")
_ANSWER: Final = Struct(">IBBQ")
_SENT: Final = Struct(">BQ")


# -- frames -----------------------------------------------------------------------------------


class Frames:
    """Cuts a byte stream into frames.

    Args:
        items_max: the most CBOR items of a body.

    Attributes:
        limit: the largest body accepted, in bytes. It may be raised once the peer is known.
        is_partial: whether the stream stands inside an unfinished frame.
    """

    def __init__(self, limit: int, items_max: int = Limits().frame_items_max) -> None:
        self.limit = limit
        self.is_partial = False
        self._items_max = items_max
        self._rest = bytearray()

    def feed(self, data: bytes | bytearray) -> list[tuple[Kind, bytes]]:
        """Return the frames that these bytes complete, in order.

        Raises:
            MalformedMessage: an unknown kind, a body over the limit, or of too many items. The stream is of no further
                use.
        """
        rest = self._rest
        if not rest and int.from_bytes(data[1:PREFIX_BYTES], "big") == len(data) - PREFIX_BYTES <= self.limit:
            kind = _KINDS.get(data[0])
            if kind is not None:  # most reads bring exactly one frame
                return [(kind, self._checked(bytes(data[PREFIX_BYTES:])))]
        source: bytes | bytearray = data
        if rest:  # a bytearray grows in place: a body in tiny pieces costs no more than one in large ones
            rest += data
            source = rest
        frames, start, end = [], 0, len(source)
        while end - start >= PREFIX_BYTES:
            prefix = int.from_bytes(source[start : start + PREFIX_BYTES], "big")
            kind, body_bytes = _KINDS.get(prefix >> 24), prefix & BODY_BYTES_MAX
            if kind is None:
                raise MalformedMessage(f"unknown kind of frame: {prefix >> 24}")
            if body_bytes > self.limit:
                raise MalformedMessage(f"frame of {body_bytes} bytes; the limit here is {self.limit}")
            body_start = start + PREFIX_BYTES
            if end - body_start < body_bytes:
                break
            start = body_start + body_bytes
            frames.append((kind, self._checked(bytes(source[body_start:start]))))
        if source is rest:
            del rest[:start]
        elif start < end:
            rest += data[start:]
        self.is_partial = bool(rest)
        return frames

    @property
    def partial_bytes(self) -> int:
        """The size of what is there of an unfinished frame."""
        return len(self._rest)

    def drop(self) -> None:
        """Give back the memory of what is unfinished; the stream is of no further use."""
        self._rest = bytearray()

    def _checked(self, body: bytes) -> bytes:
        if len(body) > self._items_max:
            require_items(body, self._items_max)
        return body


def _frame(kind: Kind, body: bytes) -> bytes:
    return (kind << 24 | len(body)).to_bytes(PREFIX_BYTES, "big") + body


# -- messages ---------------------------------------------------------------------------------


def _open_envelope(body: bytes, fields: int) -> list[Any]:
    """Decode an array of at least so many fields, of which the first is a call id."""
    item = decode(body)
    if type(item) is not list or len(item) < fields:
        raise MalformedMessage(f"the envelope is not an array of {fields} fields")
    if type(item[0]) is not int or not 0 <= item[0] <= CALL_ID_MAX:
        raise MalformedMessage("the call id is not a number in range")
    return item


class Call(msgspec.Struct, frozen=True):
    """A decoded call; where `request` is an error, that is what to answer. `sent_ms`: see `Codec.encode_call`."""

    call_id: int
    vnode: Point | None
    budget_ms: int
    request: Request | MalformedMessage | UnknownRequest
    sent_ms: int | None = None


class Codec:
    """Encodes and decodes everything that may contain points of a circle. One serves all streams: it remembers nothing
    but how the latest small request looks, for one that goes to several.

    The `encode_…` methods return whole frames; the `decode_…` methods take a frame's body.
    """

    def __init__(self, circle: Circle) -> None:
        self.circle = circle
        self._width = circle.width
        self._size = circle.size
        self._to_vnode = Struct(f">IBBQB{circle.width}sBI")
        self._encode = Encoder(circle.width, BODY_BYTES_MAX - ENVELOPE_BYTES_MAX).encode
        self._latest: tuple[Request | None, bytes] = (None, b"")
        self._decode_point = self._point  # a bound method made once, not once a message

    def encode_call(
        self, call_id: int, vnode: Point | None, budget_ms: int, request: Request, sent_ms: int | None = None
    ) -> bytes:
        """Return the frame of a call. `sent_ms`: when it leaves, by the sender's clock since the stream was opened."""
        before, content = self._latest
        if request is not before:  # what is asked of several is encoded once
            content = self._encode(request)
            if len(content) <= REMEMBERED_BYTES_MAX:
                self._latest = request, content
        head = 0x84
        if sent_ms is not None:
            head, content = 0x85, content + _SENT.pack(0x1B, sent_ms)
        if budget_ms > BUDGET_MS_MAX:
            budget_ms = BUDGET_MS_MAX
        if vnode is None:
            prefix = _CALL + _TO_NODE.size + len(content)
            return _TO_NODE.pack(prefix, head, 0x1B, call_id, 0xF6, 0x1A, budget_ms) + content
        prefix = _CALL + self._to_vnode.size + len(content)
        at = vnode.to_bytes(self._width, "big")
        return self._to_vnode.pack(prefix, head, 0x1B, call_id, 0x40 + self._width, at, 0x1A, budget_ms) + content

    def encode_reply(self, call_id: int, reply: Reply) -> bytes:
        """Return the frame of a reply."""
        content = self._encode(reply)
        return _ANSWER.pack(_REPLY + _ANSWER.size + len(content), 0x82, 0x1B, call_id) + content

    def encode_error(self, call_id: int, error: ChordError | ErrorReply) -> bytes:
        """Return the frame that answers a call with an error."""
        content = self._encode(_error_reply(error))
        return _ANSWER.pack(_ERROR + _ANSWER.size + len(content), 0x82, 0x1B, call_id) + content

    def decode_call(self, body: bytes) -> Call:
        """Return a call; what is wrong inside a readable envelope stands in place of the request.

        Raises:
            MalformedMessage: the envelope itself cannot be read.
        """
        item = _open_envelope(body, 4)
        call_id, vnode, budget_ms = item[0], item[1], item[2]
        if type(budget_ms) is not int or not 0 <= budget_ms <= BUDGET_MS_MAX:
            raise MalformedMessage("the budget is not a number in range")
        sent_ms = item[4] if len(item) > 4 else None
        if sent_ms is not None and (type(sent_ms) is not int or not 0 <= sent_ms <= SENT_MS_MAX):
            raise MalformedMessage("the time of sending is not a number in range")
        try:
            if vnode is not None:
                vnode = self._point(Point, vnode)
            return Call(call_id, vnode, budget_ms, self._request(item[3]), sent_ms)
        except (MalformedMessage, UnknownRequest) as error:
            return Call(call_id, None, budget_ms, error)
        except ValueError as error:
            return Call(call_id, None, budget_ms, MalformedMessage(f"vnode id: {error}"))

    def open_reply(self, body: bytes) -> tuple[int, Any]:
        """Return a reply's call id and its still unchecked content, for `finish`.

        Raises:
            MalformedMessage: the envelope cannot be read.
        """
        item = _open_envelope(body, 2)
        return item[0], item[1]

    def finish(self, content: Any, expected: type[_Struct]) -> _Struct:
        """Return the content of an envelope as the message it should be.

        Raises:
            MalformedMessage: it is not of that type, or out of bounds.
        """
        try:
            return msgspec.convert(content, expected, dec_hook=self._decode_point, builtin_types=_PLAIN_TYPES)
        except msgspec.ValidationError as error:
            raise MalformedMessage(f"{expected.__name__}: {error}") from None

    def decode_reply(self, body: bytes, expected: type[_Reply]) -> tuple[int, _Reply]:
        """Return call id and reply, where it is known beforehand which call is being answered.

        Raises:
            MalformedMessage: it cannot be read, or is not of the expected type.
        """
        call_id, content = self.open_reply(body)
        return call_id, self.finish(content, expected)

    def decode_error(self, body: bytes) -> tuple[int, ChordError]:
        """Return the call that failed, and the error to raise there.

        Raises:
            MalformedMessage: it cannot be read.
        """
        item = _open_envelope(body, 2)
        error = self.finish(item[1], ErrorReply)
        return item[0], from_wire(error.code, error.message, error.peer, error.after_ms)

    def _point(self, type_: type, value: Any) -> Point:
        if type_ is not Point or type(value) is not bytes or len(value) != self._width:
            raise ValueError(f"expected {self._width} bytes")
        number = int.from_bytes(value, "big")
        if number >= self._size:
            raise ValueError(f"not on a circle of {self.circle.bits} bits")
        return Point(number)

    def _request(self, content: Any) -> Request:
        if type(content) is not list or not content or type(content[0]) is not int:
            raise MalformedMessage("the request is not an array that begins with its tag")
        type_ = REQUEST_BY_TAG.get(content[0])
        if type_ is None:
            raise UnknownRequest(f"request {content[0]} is not known here")
        return self.finish(content, type_)


@cache
def codec_for(circle: Circle) -> Codec:
    """Return the codec of a circle. Everybody in the process shares it, and what it has learnt of the messages."""
    return Codec(circle)


def _error_reply(error: ChordError | ErrorReply) -> ErrorReply:
    if isinstance(error, ErrorReply):
        return error
    # A sentence may quote what the system said, and that need not be encodable.
    message = error.message.encode(errors="replace").decode()[:MESSAGE_CHARS_MAX]
    return ErrorReply(error.code or RemoteFailure.code, message, error.peer, error.after_ms)


# -- outside the circle: the handshake and goodbye --------------------------------------------


_encode_plain: Final = Encoder(0, BODY_BYTES_MAX).encode
"""For what contains no points."""


def encode_hello(hello: Hello) -> bytes:
    """Return the first frame of a stream."""
    return _frame(Kind.HELLO, _encode_plain(hello))


def decode_hello(body: bytes) -> Hello:
    """Return the peer's first frame.

    Raises:
        MalformedMessage: it is not a `Hello`.
    """
    try:
        return msgspec.convert(decode(body), Hello, builtin_types=_PLAIN_TYPES)
    except msgspec.ValidationError as error:
        raise MalformedMessage(f"Hello: {error}") from None


def encode_refusal(error: ChordError) -> bytes:
    """Return the error frame that refuses a connection. The width of points is not agreed yet, so it names no peer."""
    reply = _error_reply(error)
    return _frame(Kind.ERROR, _encode_plain((REFUSED_CALL_ID, (reply.code, reply.message, None, reply.after_ms))))


def decode_refusal(body: bytes) -> ChordError:
    """Return the error a connection was refused with.

    Raises:
        MalformedMessage: it cannot be read.
    """
    content = _open_envelope(body, 2)[1]
    if type(content) is not list:
        raise MalformedMessage("the refusal is not an array")
    try:
        error = msgspec.convert([*content[:2], None, *content[3:]], ErrorReply)
    except msgspec.ValidationError as wrong:
        raise MalformedMessage(f"refusal: {wrong}") from None
    refusal = from_wire(error.code, error.message, None, error.after_ms)
    if isinstance(refusal, PeerUnreachable):
        refusal.is_own = True
    return refusal


GOODBYE: Final = _frame(Kind.CAST, _encode_plain((1,)))
"""The frame that asks the peer to make no new calls on this stream and to close it when it has none left."""


def is_goodbye(body: bytes) -> bool:
    """Return whether a cast says goodbye; other casts are for later versions and are ignored.

    Raises:
        MalformedMessage: it is not a cast at all.
    """
    item = decode(body)
    if type(item) is not list or not item or type(item[0]) is not int:
        raise MalformedMessage("the cast is not an array that begins with its tag")
    return bool(item[0] == 1)
