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
    """Return the names of nodes by address, from the status of each."""
    return {node.address: node.name for node in nodes}


def names_of_peers(nodes: Iterable[Status]) -> dict[str, str]:
    """Return the names of the peers of these nodes, living or dead, by address. A peer of unknown name is left out."""
    return {peer.address: peer.name for node in nodes for peer in node.peers if peer.name}


def names_known(nodes: Iterable[Status]) -> dict[str, str]:
    """Return the names of these nodes, and the names that they remember of their peers, by address."""
    known = list(nodes)
    return {**names_of_peers(known), **names_of(known)}


def name_of(contact: Contact, names: Mapping[str, str]) -> str:
    """Return the name of the node that holds a vnode, or the node's address if `names` has no name for it."""
    return names.get(contact.address, contact.address)


def named_address(address: str, names: Mapping[str, str]) -> str:
    """Return the address of a node, after the node's name if `names` has it."""
    return f"{names[address]} {address}" if address in names else address


def vnode_json(circle: Circle, contact: Contact, names: Mapping[str, str]) -> Json:
    """Return a vnode as JSON: its id in decimal and hexadecimal, and the name and address of its node.

    `names` has the names of nodes by address. A node that it lacks appears with its address.
    """
    return {
        "id": str(int(contact.id)),
        "id_hex": circle.hex(contact.id),
        "node": name_of(contact, names),
        "address": contact.address,
    }


def arc_json(circle: Circle, start: int, end: int) -> Json:
    """Return an arc as JSON: its start and its end, each in decimal and hexadecimal.

    If both are equal, the arc is the whole circle.
    """
    return {
        "start": str(int(start)), "start_hex": circle.hex(start), "end": str(int(end)), "end_hex": circle.hex(end)
    }  # fmt: skip


def key_json(key: bytes) -> Json:
    """Return `{"key": text}` for a key in UTF-8, or `{"key_b64": base64}` for any other key."""
    return text_or_b64("key", key)


def value_json(value: bytes) -> Json:
    """Return a value as JSON: in base64 under `b64`, and as text under `text`; None if it is not UTF-8."""
    return {"b64": _base64(value), "text": _text(value)}


def context_json(context: bytes) -> str:
    """Return a context as base64 text, as the option `--context` takes it."""
    return _base64(context)


def error_json(error: ChordError) -> Json:
    """Return an error that concerns a part of an answer, as JSON: its word under `code`, and its message."""
    return {"code": error.word, "message": error.message}


def failure_json(code: str, message: str, hint: str, keys: Sequence[Json] = (), also: Sequence[Json] = ()) -> Json:
    """Return the error that ends a whole request, as JSON.

    Args:
        code: the short name of the error for programs.
        message: what failed and why, in words.
        hint: the next step for the user, in words.
        keys: the keys that a scan could show only in part, as `key_json` returns them. If empty, the field is left out.
        also: further errors of the same request, in the same form. If empty, the field is left out.
    """
    shape: Json = {"code": code, "message": message, "hint": hint}
    if keys:
        shape["keys"] = list(keys)
    if also:
        shape["also"] = list(also)
    return shape


def text_or_b64(name: str, data: bytes) -> Json:
    """Return `{name: text}` for bytes in UTF-8, or `{name + "_b64": base64}` for any others."""
    text = _text(data)
    return {f"{name}_b64": _base64(data)} if text is None else {name: text}


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
