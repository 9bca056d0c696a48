"""Compare the codec with a codec of one pass, for the request to put a value of 100 bytes.

    python -m benchmarks.codec [--rounds N] [--json]

The codec writes a message with one loop over its fields. It reads a message in two passes, both in C: cbor2 makes
objects, and msgspec checks them and makes the message. The one-pass writer and reader below know the fields of `Put`.
They are the code that a generator would write from the type of the message, with the same bounds. Typed MessagePack in
C shows the limit of one pass.

A figure is the processor time of one message in µs, as the lowest of the rounds. The rounds take turns. There are no
bars.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from benchmarks.bars import Rows, positive, run_parts
from chord.wire.cbor import Encoder, decode
from chord.wire.messages import Put

MESSAGES = 20_000
BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX, QUORUM_MAX, TTL_MS_MAX = 1 << 24, 4096, 1 << 20, 16, 1 << 53
ARRAY, UNSIGNED, BYTES, NIL, FALSE, TRUE = 4, 0, 2, 0xF6, 0xF4, 0xF5
PUT = Put(b"key-123", bytes(100), bytes(range(16)))
HEADS = [
    [bytes((major + n,)) if n < 24 else bytes((major + 24, n)) for n in range(256)]
    for major in (UNSIGNED << 5, BYTES << 5)
]


class Refused(Exception):
    """The bytes are no `Put`."""


def number_at(body: bytes, at: int, major: int) -> tuple[int, int]:
    """Return the number in the head of an item, and the position behind the head."""
    first = body[at]
    if first >> 5 != major:
        raise Refused
    size = first & 31
    if size < 24:
        return size, at + 1
    if size > 27:
        raise Refused
    end = at + 1 + (1 << size - 24)
    return int.from_bytes(body[at + 1 : end], "big"), end


def bytes_at(body: bytes, at: int, least: int, most: int) -> tuple[bytes, int]:
    """Return a string of bytes with a size in bounds, and the position behind it."""
    size, at = number_at(body, at, BYTES)
    if not least <= size <= most or at + size > len(body):
        raise Refused
    return body[at : at + size], at + size


def flag_at(body: bytes, at: int) -> tuple[bool, int]:
    """Return a boolean, and the position behind it."""
    if body[at] not in (FALSE, TRUE):
        raise Refused
    return body[at] == TRUE, at + 1


def read_once(body: bytes) -> Put:
    """Read a `Put` without a context in one pass."""
    fields, at = number_at(body, 0, ARRAY)
    tag, at = number_at(body, at, UNSIGNED)
    if (fields, tag) != (11, 33):
        raise Refused
    key, at = bytes_at(body, at, 0, KEY_BYTES_MAX)
    value: bytes | None = None
    if body[at] == NIL:
        at += 1
    else:
        value, at = bytes_at(body, at, 0, VALUE_BYTES_MAX)
    op_id, at = bytes_at(body, at, 16, 16)
    if body[at] != NIL:
        raise Refused
    w, at = number_at(body, at + 1, UNSIGNED)
    strict, at = flag_at(body, at)
    ttl_ms, at = number_at(body, at, UNSIGNED)
    is_retry, at = flag_at(body, at)
    with_owner, at = flag_at(body, at)
    with_replicas, at = flag_at(body, at)
    if w > QUORUM_MAX or ttl_ms > TTL_MS_MAX or at != len(body):
        raise Refused
    return Put(key, value, op_id, None, w, strict, ttl_ms, is_retry, with_owner, with_replicas)


def write_once(message: Put) -> bytes:
    """Write a `Put` with short fields and without a context in one pass."""
    numbers, strings = HEADS
    key, value = message.key, message.value
    assert value is not None
    encoded = b"".join((
        b"\x8b\x18\x21", strings[len(key)], key, strings[len(value)], value, b"\x50", message.op_id, b"\xf6",
        numbers[message.w], b"\xf5" if message.strict else b"\xf4", numbers[message.ttl_ms],
        b"\xf5" if message.is_retry else b"\xf4", b"\xf5" if message.with_owner else b"\xf4",
        b"\xf5" if message.with_replicas else b"\xf4",
    ))  # fmt: skip
    if len(encoded) > BYTES_MAX:
        raise Refused
    return encoded


def codecs(args: argparse.Namespace) -> Rows:
    """Measure the writers and readers in turns."""
    encoder = Encoder(20, BYTES_MAX)
    body, plain = encoder.encode(PUT), msgspec.msgpack.encode(PUT)
    unpack = msgspec.msgpack.Decoder(Put).decode
    assert (write_once(PUT), read_once(body)) == (body, PUT)

    def read() -> Put:
        return msgspec.convert(decode(body), Put, builtin_types=(bytes,))

    calls: dict[str, Callable[[], Any]] = {
        "write, the codec": lambda: encoder.encode(PUT),
        "write, one pass in Python": lambda: write_once(PUT),
        "write, MessagePack": lambda: msgspec.msgpack.encode(PUT),
        "read, the codec": read,
        "read, one pass in Python": lambda: read_once(body),
        "read, MessagePack": lambda: unpack(plain),
    }
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(args.rounds):
        for name, call in calls.items():
            began = time.process_time()
            for _ in range(MESSAGES):
                call()
            found[name].append((time.process_time() - began) / MESSAGES * 1e6)
    return [{"op": name, "cpu_us": round(min(times), 2)} for name, times in found.items()]


if __name__ == "__main__":
    rounds = {"flag": "--rounds", "type": positive, "default": 9, "help": "rounds of each (default 9)"}
    sys.exit(run_parts(__doc__, {"codecs": codecs}, rounds))
