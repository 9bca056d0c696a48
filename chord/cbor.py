"""CBOR as this protocol speaks it: cbor2 with everything odd forbidden, and points in their fixed width.

A hand-written encoder was 0.4 to 1.6 µs a message faster; not enough to keep one of our own beside cbor2's.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any, Final, NoReturn

import cbor2
import msgspec

from chord.errors import InvalidRequest, MalformedMessage
from chord.ids import Point

DEPTH_MAX: Final = 16

# -- writing ----------------------------------------------------------------------------------


class Encoder:
    """Turns messages into CBOR. A struct becomes the array of its tag, if it has one, and its fields.

    Args:
        point_bytes: the width of a point, the one type whose form depends on the ring.
        bytes_max: no frame holds more.
    """

    def __init__(self, point_bytes: int, bytes_max: int) -> None:
        self._point_bytes = point_bytes
        self._bytes_max = bytes_max

    def encode(self, item: Any) -> bytes:
        """Return the item as CBOR.

        Raises:
            InvalidRequest: it is larger than any frame.
        """
        plain = msgspec.to_builtins(item, enc_hook=self._plain, builtin_types=(bytes,))
        encoded = cbor2.dumps(plain)
        if len(encoded) > self._bytes_max:
            raise InvalidRequest(f"message of {len(encoded)} bytes; no frame holds more than {self._bytes_max}")
        return encoded

    def _plain(self, item: Any) -> bytes:
        if type(item) is Point:
            return item.to_bytes(self._point_bytes, "big")
        raise TypeError(f"{type(item).__name__} has no form on the wire")


# -- reading ----------------------------------------------------------------------------------


def _refuse_tag(*_: object) -> NoReturn:
    raise ValueError("tags are not part of this protocol")


class _NoTags(dict[int, Callable[..., Any]]):
    """Answers every tag with a refusal; cbor2 would decode many (big numbers, dates, sets, …) by itself."""

    def __missing__(self, tag: int) -> Callable[..., NoReturn]:
        return _refuse_tag


_NO_TAGS: Final = _NoTags()
_PAIR: Final = b"\x82"  # the head of an array of two
_GUARD: Final = bytes(256)
_ENDING: Final = cbor2.dumps(_GUARD)


def decode(body: bytes) -> Any:
    """Decode exactly one item, with no tags, indefinite lengths, duplicate or odd map keys, or depth over 16.

    The decoder does not say how much it consumed, and a slower one that does would double the price. So the body is
    decoded as the first item of two, and the second is a guard: a string of zeros that is longer than the body.
    Bytes behind the body's own item would be taken for the second, and whatever they are, they cannot be as long
    without reaching into the guard's head, which is not zero.

    Raises:
        MalformedMessage: anything else.
    """
    guard, ending = (_GUARD, _ENDING) if len(body) < len(_GUARD) else _guard(len(body))
    try:
        item, end = cbor2.loads(
            _PAIR + body + ending,
            semantic_decoders=_NO_TAGS,
            max_depth=DEPTH_MAX + 1,
            allow_indefinite=False,
            allow_duplicate_keys=False,
            strict_hashable_types=True,
        )
    except cbor2.CBORDecodeError as error:
        raise MalformedMessage(f"not strict CBOR: {error}") from None
    if end != guard:
        raise MalformedMessage("bytes behind the message")
    return item


def _guard(size: int) -> tuple[bytes, bytes]:
    zeros = bytes(size)
    return zeros, cbor2.dumps(zeros)


def refuse_odd_floats(item: object) -> None:
    """Refuse NaN and infinities anywhere inside; they would come out again in somebody's JSON.

    Raises:
        MalformedMessage: there is one.
    """
    if type(item) is float:
        if not isfinite(item):
            raise MalformedMessage("a float that is not finite")
    elif type(item) is list:
        for inner in item:
            refuse_odd_floats(inner)
