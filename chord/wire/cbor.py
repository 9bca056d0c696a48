"""CBOR as this protocol uses it: a strict reader and a plain writer.

cbor2 does the reading, with everything unusual forbidden. The writer is in this module. Messages use only nine types,
and writing them directly is faster than building lists first. Integers and lengths have the shortest form (RFC 8949,
section 4.1).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final, NoReturn

import cbor2
import msgspec
from msgspec.structs import astuple

from chord.errors import InvalidRequest, MalformedMessage
from chord.ids import Point
from chord.wire.messages import Contact

DEPTH_MAX: Final = 16
CONTACTS_MAX: Final = 1024  # contacts that an encoder keeps encoded
IS_COMPILED: Final = not __file__.endswith(".py")
"""Whether this build of the package has compiled modules. Each such build compiles this module."""

# -- writing ----------------------------------------------------------------------------------

_UNSIGNED: Final = 0x00
_NEGATIVE: Final = 0x20
_BYTES: Final = 0x40
_TEXT: Final = 0x60
_ARRAY: Final = 0x80

_pack_double: Final = struct.Struct(">Bd").pack


def _head(major: int, number: int) -> bytes:
    """Return an item's head: its major type, and its value or length in shortest form."""
    if number < 24:
        return bytes((major + number,))
    if number < 1 << 8:
        return bytes((major + 24, number))
    if number < 1 << 16:
        return bytes((major + 25, number >> 8, number & 0xFF))
    if number < 1 << 32:
        return bytes((major + 26,)) + number.to_bytes(4, "big")
    return bytes((major + 27,)) + number.to_bytes(8, "big")


_SHORT_UNSIGNED, _SHORT_BYTES, _SHORT_TEXT, _SHORT_ARRAY = (
    [_head(major, n) for n in range(256)] for major in (_UNSIGNED, _BYTES, _TEXT, _ARRAY)
)


class Encoder:
    """Encodes messages as CBOR.

    A struct becomes an array of its tag, if its class has one, and its fields.

    Args:
        point_bytes: the width of a point in bytes. Points are the only type with a form that depends on the ring.
        bytes_max: the largest encoding that is allowed, in bytes.
    """

    def __init__(self, point_bytes: int, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._point_bytes = point_bytes
        self._point_head = _head(_BYTES, point_bytes)
        self._heads: dict[type, bytes] = {}  # the first bytes of each type of struct
        self._contacts: dict[Contact, bytes] = {}  # encoded: every other message names one of the same few

    def encode(self, item: Any) -> bytes:
        """Return the item as CBOR.

        Raises:
            InvalidRequest: the encoding is larger than `bytes_max`.
            TypeError: a part of the item has a type that no message has.
        """
        pieces: list[bytes] = []
        if (head := self._heads.get(type(item))) is not None:  # a message, the usual case
            pieces.append(head)
            self._put(astuple(item), pieces.append)
        else:
            self._put((item,), pieces.append)
        encoded = b"".join(pieces)
        if len(encoded) > self._bytes_max:
            raise InvalidRequest(f"message of {len(encoded)} bytes; no frame holds more than {self._bytes_max}")
        return encoded

    def _put(self, items: Iterable[Any], add: Callable[[bytes], None]) -> None:
        """Encode items one after the other: one call for each array, not for each item."""
        for item in items:
            type_ = type(item)  # frequent types come first
            if type_ is bytes:
                size = len(item)
                add(_SHORT_BYTES[size] if size < 256 else _head(_BYTES, size))
                add(item)
            elif type_ is Contact:
                add(self._contacts.get(item) or self._contact(item))
            elif (head := self._heads.get(type_)) is not None:
                add(head)
                self._put(astuple(item), add)
            elif type_ is int:
                if 0 <= item < 256:
                    add(_SHORT_UNSIGNED[item])
                else:
                    add(_head(_UNSIGNED, item) if item >= 0 else _head(_NEGATIVE, -1 - item))
            elif type_ is tuple or type_ is list:
                size = len(item)
                add(_SHORT_ARRAY[size] if size < 256 else _head(_ARRAY, size))
                if size:
                    self._put(item, add)
            elif item is None:
                add(b"\xf6")
            elif type_ is bool:
                add(b"\xf5" if item else b"\xf4")
            elif type_ is str:
                text = item.encode()
                size = len(text)
                add(_SHORT_TEXT[size] if size < 256 else _head(_TEXT, size))
                add(text)
            elif type_ is Point:
                add(self._point_head)
                add(item.to_bytes(self._point_bytes, "big"))
            elif type_ is float:
                add(_pack_double(0xFB, item))
            else:
                self._heads[type_] = self._head_of(type_)
                self._put((item,), add)

    def _contact(self, contact: Contact) -> bytes:
        if len(self._contacts) >= CONTACTS_MAX:
            self._contacts.clear()
        pieces = [_SHORT_ARRAY[2], self._point_head, contact.id.to_bytes(self._point_bytes, "big")]
        self._put((contact.address,), pieces.append)
        self._contacts[contact] = encoded = b"".join(pieces)
        return encoded

    @staticmethod
    def _head_of(type_: type) -> bytes:
        if not issubclass(type_, msgspec.Struct):
            raise TypeError(f"{type_.__name__} has no form on the wire")
        fields, tag = len(type_.__struct_fields__), type_.__struct_config__.tag
        if tag is None:
            return _head(_ARRAY, fields)
        assert isinstance(tag, int)
        return _head(_ARRAY, 1 + fields) + _head(_UNSIGNED, tag)


# -- reading ----------------------------------------------------------------------------------


def _refuse_tag(*_: object) -> NoReturn:
    raise ValueError("tags are not part of this protocol")


class _NoTags(dict[int, Callable[..., Any]]):
    """Refuses every tag. cbor2 alone would decode many (big numbers, dates, sets, …)."""

    def __missing__(self, tag: int) -> Callable[..., NoReturn]:
        return _refuse_tag


def _item_of_fixed_size() -> bytes:
    """Return a regular expression for a CBOR item with a size given by its first byte.

    Such an item is a number, the head of an array or a map, or a string of up to 23 bytes.
    """
    patterns = [rb"[\x00-\x17\x20-\x37\x40\x60\x80-\x97\xa0-\xb7\xc0-\xd7\xe0-\xf7]"]
    for size in range(1, 24):
        heads = [_BYTES + size, _TEXT + size]
        if size in (1, 2, 4, 8):
            heads += [major + 24 + size.bit_length() - 1 for major in range(0, 256, 32) if major not in (_BYTES, _TEXT)]
        patterns.append(b"[%s].{%d}" % (b"".join(rb"\x%02x" % head for head in heads), size))
    return b"(?:%s)" % b"|".join(patterns)


@cache  # compiled on first use: few commands get large bodies
def _items(times: bytes) -> re.Pattern[bytes]:
    """Return the pattern of `times` items of fixed size, such as {64}."""
    return re.compile(_item_of_fixed_size() + times + b"+", re.DOTALL)


_ROWS: Final = {count: b"{%d}" % count for count in (4096, 64, 1)}
_LENGTH_BYTES: Final = {major + 24 + power: 1 << power for major in (_BYTES, _TEXT) for power in range(4)}
"""Number of length bytes of a string, by its first byte."""


def require_items(body: bytes, items_max: int) -> None:
    """Refuse the body of a frame with more than `items_max` CBOR items, without decoding it.

    Every string, number and array is an item, also inside an array. Decoding would make an object of each item, which
    takes time. A body has no more items than bytes, so a small body passes at once. In a large body only the heads of
    the items are read.

    Raises:
        MalformedMessage: the body has more items, or it is not CBOR.
    """
    if len(body) > items_max and _bytes_between_strings(body, items_max) > items_max:
        _count_items(body, items_max)


def _bytes_between_strings(body: bytes, enough: int) -> int:
    """Return the size of a body without its long strings: an upper bound on its items.

    If there are more than `enough` such bytes, the rest is not read. So a hostile frame is refused soon.
    """
    run_of_items = _items(b"{0,16384}")
    found = at = 0
    while at < len(body) and found <= enough:
        run = run_of_items.match(body, at)
        assert run is not None  # it may be empty
        if run.end() == at:
            found, at = found + 1, _behind_string(body, at)
        else:
            found, at = found + run.end() - at, run.end()
    return found


def _count_items(body: bytes, items_max: int) -> None:
    found = at = 0
    while at < len(body):
        for count, times in _ROWS.items():
            if row := _items(times).match(body, at):
                found, at = found + count, row.end()
                break
        else:
            found, at = found + 1, _behind_string(body, at)
        if found > items_max:
            raise MalformedMessage(f"a frame of more than {items_max} items; that is the limit")


def _behind_string(body: bytes, at: int) -> int:
    """Return the position after a string of 24 bytes or more."""
    size_bytes = _LENGTH_BYTES.get(body[at])
    if size_bytes is None:
        raise MalformedMessage(f"not strict CBOR: no item begins with {body[at]:#04x}")
    start = at + 1 + size_bytes
    end = start + int.from_bytes(body[at + 1 : start], "big")
    if end > len(body) or start > len(body):
        raise MalformedMessage("not strict CBOR: it ends in the middle of a string")
    return end


_NO_TAGS: Final = _NoTags()
_PAIR: Final = _head(_ARRAY, 2)
_GUARD: Final = bytes(256)
_ENDING: Final = _head(_BYTES, len(_GUARD)) + _GUARD


def decode(body: bytes) -> Any:
    """Decode exactly one item of strict CBOR.

    Strict CBOR has no tags, no indefinite lengths, no duplicate map keys, no arrays or maps as map keys, and no depth
    over 16. The result is plain: int, float, bytes, str, bool, None, list or dict.

    cbor2 does not say how many bytes it consumed, and a slower decoder that does would double the cost. So the body is
    decoded as the first of two items. The second item is a guard: a string of zeros at least as long as the body.
    Trailing bytes in the body would be decoded as the second item. They cannot equal the guard: an item of that length
    would reach into the guard's head, which is not zero.

    Raises:
        MalformedMessage: the body is anything else.
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
        raise MalformedMessage("trailing bytes after the message")
    return item


def _guard(size: int) -> tuple[bytes, bytes]:
    zeros = bytes(size)
    return zeros, _head(_BYTES, size) + zeros
