"""Codec between bytes and messages: frames, strict CBOR, validation.

The codec does no I/O and has no clock. A frame is one byte of kind, three bytes of body length (big-endian), and the
body, which is one CBOR item:

- hello: `[version min, version max, role, stream, …]`, the fields of `messages.Hello`
- call: `[call id, vnode id or nil, budget ms, [tag, fields…], sent ms]`
- reply: `[call id, [tag, fields…]]`
- error: `[call id, [code, message, peer, after ms]]`; call id 0 refuses the connection itself
- call, reply and error end with the number of the newest cut that the sender knows, if there is one (`wire/cuts.py`)
- cast: `[tag]`; tag 1 is the goodbye, which asks for no new calls on this stream

Points travel as big-endian bytes of the circle's width. For any bytes, cut into any chunks, decoding raises only
`MalformedMessage`. If the envelope of a call is readable, an error inside it is returned as a value. So the caller can
get an answer, and the connection stays open.

The defences, in order:

1. A frame that is too long is refused before its body is buffered.
2. A large body with too many items is refused before it is decoded.
3. CBOR is decoded without tags, indefinite lengths, duplicate or odd map keys, depth over 16, or trailing bytes.
4. The result is converted to the one expected type, with all bounds.

Unknown fields after the known ones are ignored, and missing fields have defaults. So a protocol version can grow.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from struct import Struct
from typing import Any, Final, TypeVar

import msgspec

from chord.config import Limits
from chord.errors import ChordError, MalformedMessage, RemoteFailure, UnknownRequest, from_wire
from chord.ids import Circle, Point
from chord.wire.cbor import Encoder, decode, require_items
from chord.wire.conversion import convert
from chord.wire.cuts import CUT_MAX
from chord.wire.messages import REQUEST_BY_TAG, ErrorReply, Hello, Reply, Request

PREFIX_BYTES: Final = 4
BODY_BYTES_MAX: Final = (1 << 24) - 1
CALL_ID_MAX: Final = (1 << 63) - 1
BUDGET_MS_MAX: Final = (1 << 32) - 1
SENT_MS_MAX: Final = (1 << 53) - 1
REFUSED_CALL_ID: Final = 0
MESSAGE_CHARS_MAX: Final = 1024
REMEMBERED_BYTES_MAX: Final = 3 << 17  # has room for a batch of copies

_PLAIN_TYPES: Final = (bytes,)
"""Types that msgspec must leave as they are. By default it takes `bytes` for base64 text."""

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_Reply = TypeVar("_Reply", bound=Reply)


class FrameKind(IntEnum):
    """The kind of a frame: its first byte."""

    HELLO = 1
    CALL = 2
    REPLY = 3
    ERROR = 4
    CAST = 5


_KINDS: Final = {int(kind): kind for kind in FrameKind}

# Envelopes are arrays of a fixed shape, so one call packs the head of each. The result is valid CBOR, if not the
# shortest. `0x1b` begins a number of 8 bytes, `0x1a` a number of 4, and `0x40 + n` begins n bytes; `0xf6` is nil.
ENVELOPE_BYTES_MAX: Final = 64
_CALL, _REPLY, _ERROR = ((kind << 24) - PREFIX_BYTES for kind in (FrameKind.CALL, FrameKind.REPLY, FrameKind.ERROR))
_TO_NODE: Final = Struct(">IBBQBBI")
_ANSWER: Final = Struct(">IBBQ")
_SENT: Final = Struct(">BQ")


# -- frames -----------------------------------------------------------------------------------


class Frames:
    """Cuts a byte stream into frames.

    Args:
        limit: see the attribute.
        items_max: the largest number of CBOR items in the body of a frame.

    Attributes:
        limit: the largest body of a frame that is accepted, in bytes. It may be raised once the peer is known.
        is_partial: whether the bytes so far end inside a frame.
    """

    __slots__ = ("_items_max", "_rest", "is_partial", "limit")

    def __init__(self, limit: int, items_max: int = Limits().frame_items_max) -> None:
        self.limit = limit
        self.is_partial = False
        self._items_max = items_max
        self._rest = bytearray()

    def feed(self, data: bytes | bytearray) -> list[tuple[FrameKind, bytes]]:
        """Take the next bytes of the stream, and return the frames that they complete, in order.

        Returns:
            The kind and the body of each frame.

        Raises:
            MalformedMessage: the kind of a frame is unknown, or a body has too many bytes or items. The stream is of no
                further use.
        """
        rest = self._rest
        if not rest and int.from_bytes(data[1:PREFIX_BYTES], "big") == len(data) - PREFIX_BYTES <= self.limit:
            kind = _KINDS.get(data[0])
            if kind is not None:  # most reads bring exactly one frame
                body = bytes(data[PREFIX_BYTES:])
                if len(body) > self._items_max:
                    require_items(body, self._items_max)
                return [(kind, body)]
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
            body = bytes(source[body_start:start])
            if body_bytes > self._items_max:
                require_items(body, self._items_max)
            frames.append((kind, body))
        if source is rest:
            del rest[:start]
        elif start < end:
            rest += data[start:]
        self.is_partial = bool(rest)
        return frames

    @property
    def partial_bytes(self) -> int:
        """The number of bytes received of the unfinished frame; 0 without one."""
        return len(self._rest)

    def drop(self) -> None:
        """Free the memory of the unfinished frame. The stream is of no further use."""
        self._rest = bytearray()


def _frame(kind: FrameKind, body: bytes) -> bytes:
    return (kind << 24 | len(body)).to_bytes(PREFIX_BYTES, "big") + body


# -- messages ---------------------------------------------------------------------------------


def open_envelope(body: bytes, fields: int) -> list[Any]:
    """Decode the body of a call, a reply or an error: an array that begins with a call id.

    The second field of a reply or an error is its content, which `Codec.finish` checks.

    Args:
        body: the body of the frame.
        fields: the smallest number of fields of the array.

    Returns:
        The fields.

    Raises:
        MalformedMessage: the body is anything else.
    """
    item = decode(body)
    if type(item) is not list or len(item) < fields:
        raise MalformedMessage(f"the envelope is not an array of {fields} fields")
    if type(item[0]) is not int or not 0 <= item[0] <= CALL_ID_MAX:
        raise MalformedMessage("the call id is not a number in range")
    return item


def cut_in(envelope: list[Any], fields: int) -> int:
    """Return the number of the newest cut that the sender of an envelope knew; 0: it knew none.

    Args:
        envelope: the fields of a call, a reply or an error, from `open_envelope`.
        fields: the number of fields before the number of the cut.

    Raises:
        MalformedMessage: it is not a number in range.
    """
    if len(envelope) <= fields:
        return 0
    cut = envelope[fields]
    if type(cut) is not int or not 0 <= cut <= CUT_MAX:
        raise MalformedMessage("the number of the newest cut is not a number in range")
    return cut


class Call(msgspec.Struct, frozen=True):
    """A decoded call.

    Attributes:
        call_id: the number of the call on its connection.
        vnode: the id of the called vnode; None: the call is to the node, or `request` is an error.
        budget_ms: the time until the caller's deadline when it sent the call, in ms.
        request: the request; if it could not be decoded, the error to answer with.
        sent_ms: when the call was sent, in ms on the sender's clock since the stream was opened.
        cut: the number of the newest cut that the sender knew; 0: none.
    """

    call_id: int
    vnode: Point | None
    budget_ms: int
    request: Request | MalformedMessage | UnknownRequest
    sent_ms: int
    cut: int = 0


class Codec:
    """Encodes and decodes all frames that may contain points of a circle: calls, replies and errors.

    One codec serves all streams. Its only state is the encoding of the latest small request, for requests that go to
    several nodes. The `encode_…` methods return whole frames; the `decode_…` methods take the body of a frame.
    """

    def __init__(self, circle: Circle) -> None:
        self.circle = circle
        self._width = circle.width
        self._size = circle.size
        self._to_vnode = Struct(f">IBBQB{circle.width}sBI")
        self._encode = Encoder(circle.width, BODY_BYTES_MAX - ENVELOPE_BYTES_MAX).encode
        self._latest: tuple[Request | None, bytes] = (None, b"")
        self._decode_point = self._point  # bound once, not for each message

    def encode_call(
        self, call_id: int, vnode: Point | None, budget_ms: int, request: Request, sent_ms: int, cut: int = 0
    ) -> bytes:
        """Return the frame of a call.

        Args:
            call_id: the number of the call on its connection.
            vnode: the id of the vnode to call; None: the node.
            budget_ms: the time until the caller's deadline, in ms; at most `BUDGET_MS_MAX` is sent.
            request: the request.
            sent_ms: when the call leaves, in ms on the sender's clock since the stream was opened.
            cut: the number of the newest cut that the sender knows; 0: none, and the frame has no number.
        """
        before, content = self._latest
        if request is not before:  # a request to several nodes is encoded once
            content = self._encode(request)
            if len(content) <= REMEMBERED_BYTES_MAX:
                self._latest = request, content
        content += _SENT.pack(0x1B, sent_ms)
        fields = 0x85
        if cut:
            fields, content = 0x86, content + _SENT.pack(0x1B, cut)
        if budget_ms > BUDGET_MS_MAX:
            budget_ms = BUDGET_MS_MAX
        if vnode is None:
            prefix = _CALL + _TO_NODE.size + len(content)
            return _TO_NODE.pack(prefix, fields, 0x1B, call_id, 0xF6, 0x1A, budget_ms) + content
        prefix = _CALL + self._to_vnode.size + len(content)
        at = vnode.to_bytes(self._width, "big")
        return self._to_vnode.pack(prefix, fields, 0x1B, call_id, 0x40 + self._width, at, 0x1A, budget_ms) + content

    def encode_reply(self, call_id: int, reply: Reply, cut: int = 0) -> bytes:
        """Return the frame of a reply.

        Args:
            call_id: the id of the call that it answers.
            reply: the reply.
            cut: the number of the newest cut that the sender knows; 0: none, and the frame has no number.
        """
        return _answer(_REPLY, call_id, self._encode(reply), cut)

    def encode_error(self, call_id: int, error: ChordError | ErrorReply, cut: int = 0) -> bytes:
        """Return the frame that answers a call with an error; for the arguments see `encode_reply`."""
        return _answer(_ERROR, call_id, self._encode(_error_reply(error)), cut)

    def decode_call(self, body: bytes) -> Call:
        """Decode the body of a call's frame.

        If only the vnode or the request in it is invalid, the `request` of the result is the error to answer with.

        Raises:
            MalformedMessage: the envelope cannot be read.
        """
        envelope = open_envelope(body, 5)
        call_id, vnode, budget_ms, content, sent_ms = envelope[:5]
        cut = cut_in(envelope, 5)
        if type(budget_ms) is not int or not 0 <= budget_ms <= BUDGET_MS_MAX:
            raise MalformedMessage("the budget is not a number in range")
        if type(sent_ms) is not int or not 0 <= sent_ms <= SENT_MS_MAX:
            raise MalformedMessage("the time of sending is not a number in range")
        try:
            if vnode is not None:
                vnode = self._point(Point, vnode)
            if type(content) is not list or not content or type(content[0]) is not int:
                raise MalformedMessage("the request is not an array that begins with its tag")
            type_ = REQUEST_BY_TAG.get(content[0])
            if type_ is None:
                raise UnknownRequest(f"request {content[0]} is not known here")
            return Call(call_id, vnode, budget_ms, self.finish(content, type_), sent_ms, cut)
        except (MalformedMessage, UnknownRequest) as error:
            return Call(call_id, None, budget_ms, error, sent_ms, cut)
        except ValueError as error:
            return Call(call_id, None, budget_ms, MalformedMessage(f"vnode id: {error}"), sent_ms, cut)

    def finish(self, content: Any, expected: type[_Struct]) -> _Struct:
        """Return the content of an envelope as a message of the expected type.

        Raises:
            MalformedMessage: the content is not of that type, or a field is out of bounds.
        """
        try:
            return convert(content, expected, self._decode_point, _PLAIN_TYPES)
        except msgspec.ValidationError as error:
            raise MalformedMessage(f"{expected.__name__}: {error}") from None

    def decode_reply(self, body: bytes, expected: type[_Reply]) -> tuple[int, _Reply]:
        """Decode the body of a reply's frame; return the id of the answered call, and the reply.

        Args:
            body: the body of the frame.
            expected: the type of the reply.

        Raises:
            MalformedMessage: the frame cannot be read, or the reply is not of the expected type.
        """
        call_id, content, *_ = open_envelope(body, 2)
        return call_id, self.finish(content, expected)

    def decode_error(self, body: bytes) -> tuple[int, ChordError]:
        """Decode the body of an error's frame; return the id of the failed call, and the error to raise.

        The id 0 says that the peer refuses the connection.

        Raises:
            MalformedMessage: the frame cannot be read.
        """
        item = open_envelope(body, 2)
        error = self.finish(item[1], ErrorReply)
        return item[0], from_wire(error.code, error.message, error.peer, error.after_ms)

    def _point(self, type_: type, value: Any) -> Point:
        if type_ is not Point or type(value) is not bytes or len(value) != self._width:
            raise ValueError(f"expected {self._width} bytes")
        number = int.from_bytes(value, "big")
        if number >= self._size:
            raise ValueError(f"not on a circle of {self.circle.bits} bits")
        return Point(number)


@cache
def codec_for(circle: Circle) -> Codec:
    """Return the codec of a circle. The whole process shares it, and its caches."""
    return Codec(circle)


def _answer(kind: int, call_id: int, content: bytes, cut: int) -> bytes:
    if not cut:
        return _ANSWER.pack(kind + _ANSWER.size + len(content), 0x82, 0x1B, call_id) + content
    content += _SENT.pack(0x1B, cut)
    return _ANSWER.pack(kind + _ANSWER.size + len(content), 0x83, 0x1B, call_id) + content


def _error_reply(error: ChordError | ErrorReply) -> ErrorReply:
    if isinstance(error, ErrorReply):
        return error
    # The message may quote text of the operating system that UTF-8 cannot encode.
    message = error.message.encode(errors="replace").decode()[:MESSAGE_CHARS_MAX]
    return ErrorReply(error.code or RemoteFailure.code, message, error.peer, error.after_ms)


# -- outside the circle: the handshake and goodbye --------------------------------------------


_encode_plain: Final = Encoder(0, BODY_BYTES_MAX).encode
"""Encodes messages without points."""


def encode_hello(hello: Hello) -> bytes:
    """Return the frame of a hello, the first frame of a stream.

    The frame leaves out the fields `cuts` and `features` if both have their defaults.
    """
    is_whole = hello.cuts or hello.features
    return _frame(FrameKind.HELLO, _encode_plain(hello if is_whole else msgspec.structs.astuple(hello)[:-2]))


def decode_hello(body: bytes) -> Hello:
    """Return the peer's hello, from the body of its frame.

    Raises:
        MalformedMessage: the body is not a `Hello`.
    """
    try:
        return convert(decode(body), Hello, builtin_types=_PLAIN_TYPES)
    except msgspec.ValidationError as error:
        raise MalformedMessage(f"Hello: {error}") from None


def encode_refusal(error: ChordError) -> bytes:
    """Return the error frame that refuses a connection.

    It names no peer, because both sides have not agreed on the width of points yet.
    """
    reply = _error_reply(error)
    return _frame(FrameKind.ERROR, _encode_plain((REFUSED_CALL_ID, (reply.code, reply.message, None, reply.after_ms))))


def decode_refusal(body: bytes) -> ChordError:
    """Return the error with which the peer refused the connection, from the body of its frame.

    Raises:
        MalformedMessage: the frame cannot be read.
    """
    content = open_envelope(body, 2)[1]
    if type(content) is not list:
        raise MalformedMessage("the refusal is not an array")
    try:
        error = convert([*content[:2], None, *content[3:]], ErrorReply)
    except msgspec.ValidationError as wrong:
        raise MalformedMessage(f"refusal: {wrong}") from None
    return from_wire(error.code, error.message, None, error.after_ms)


GOODBYE: Final = _frame(FrameKind.CAST, _encode_plain((1,)))
"""The frame that asks the peer to make no new calls on this stream, and to close it after the last answer."""


def is_goodbye(body: bytes) -> bool:
    """Return whether a cast, given by the body of its frame, is a goodbye.

    A cast is a frame without an answer. The caller ignores other casts, which belong to later versions.

    Raises:
        MalformedMessage: the body is not a cast.
    """
    item = decode(body)
    if type(item) is not list or not item or type(item[0]) is not int:
        raise MalformedMessage("the cast is not an array that begins with its tag")
    return bool(item[0] == 1)
