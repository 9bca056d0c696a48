"""The parts of other shapes: a vnode, a key, a value, a context, an error."""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chord.errors import ChordError
from chord.ids import Circle, Contact
from chord.wire.messages import Status

Json = dict[str, Any]


def names_of(nodes: Iterable[Status]) -> dict[str, str]:
    """Return the name of each node, by its address."""
    return {node.address: node.name for node in nodes}


def names_of_peers(nodes: Iterable[Status]) -> dict[str, str]:
    """Return the names that these nodes remember of their peers, living or dead, by address."""
    return {peer.address: peer.name for node in nodes for peer in node.peers if peer.name}


def name_of(contact: Contact, names: Mapping[str, str]) -> str:
    """Return the name of a vnode's node, or its address if the name is unknown."""
    return names.get(contact.address, contact.address)


def vnode_json(circle: Circle, contact: Contact, names: Mapping[str, str]) -> Json:
    """Return a vnode as JSON; `names` has the names of nodes by address."""
    return {
        "id": str(int(contact.id)),
        "id_hex": circle.hex(contact.id),
        "node": name_of(contact, names),
        "address": contact.address,
    }


def arc_json(circle: Circle, start: int, end: int) -> Json:
    """Return the ends of an arc; if both are equal, it is the whole circle."""
    return {
        "start": str(int(start)), "start_hex": circle.hex(start), "end": str(int(end)), "end_hex": circle.hex(end)
    }  # fmt: skip


def key_json(key: bytes) -> Json:
    """Return a key as text, or as base64 if it is not UTF-8."""
    return text_or_b64("key", key)


def value_json(value: bytes) -> Json:
    """Return a value as base64, and as text, which is None if it is not UTF-8."""
    return {"b64": _base64(value), "text": _text(value)}


def context_json(context: bytes) -> str:
    """Return a context as base64 text, which `--context` takes."""
    return _base64(context)


def error_json(error: ChordError) -> Json:
    """Return an error that is part of a larger answer."""
    return {"code": error.word, "message": error.message}


def failure_json(code: str, message: str, hint: str, keys: Sequence[Json] = (), also: Sequence[Json] = ()) -> Json:
    """Return the error with which a request ends.

    Args:
        code: the word that names the error.
        message: what failed and why.
        hint: the next step for the user.
        keys: the keys that a scan could show only in part. The object has `keys` only if this is not empty.
        also: further errors of the same request, in this shape. The object has `also` only if this is not empty.
    """
    shape: Json = {"code": code, "message": message, "hint": hint}
    if keys:
        shape["keys"] = list(keys)
    if also:
        shape["also"] = list(also)
    return shape


def text_or_b64(name: str, data: bytes) -> Json:
    """Return bytes under a name if they are UTF-8, or as base64 under `NAME_b64`."""
    text = _text(data)
    return {f"{name}_b64": _base64(data)} if text is None else {name: text}


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
