"""What all messages are made of: bounded types, the bases of requests and replies, and the first frame.

No message is shown to the garbage collector (`gc=False`): they cannot hold one another in a circle, and a node that
keeps many, or works on many, would pay for their being searched again and again.
"""

from __future__ import annotations

import sys
from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Meta

from chord.ids import ADDRESS_CHARS_MAX, Contact, StreamName

KEY_BYTES_MAX = 1024
VALUE_BYTES_MAX = 1 << 20
CONTEXT_BYTES_MAX = 8192
LIST_ENTRIES_MAX = 256
PAGE_RECORDS_MAX = 128
SIBLINGS_MAX = 64
ACTORS_MAX = 160  # nodes that ever coordinated a write of one key: nobody lets them become more by a write
ACTORS_HELD_MAX = 2 * ACTORS_MAX  # and by merging what several let grow at the same time; a context has room
SUPERSEDED_BYTES_MAX = 528
HOPS_MAX = 4096  # a successor-only walk records every hop
DIGEST_BYTES = 16
SUMS_MAX = 64
HEADS_MAX = 512
REPLICAS_MAX = 16
TTL_MS_MAX = 10 * 365 * 86_400_000
BATCH_ITEMS_MAX = PAGE_RECORDS_MAX  # so that what a batch writes fits one page of copies
BATCH_BYTES_MAX = 1 << 18  # who makes a batch keeps it to this, and who answers one the answers: others wait behind it

Key: TypeAlias = Annotated[bytes, Meta(min_length=1, max_length=KEY_BYTES_MAX)]
Value: TypeAlias = Annotated[bytes, Meta(max_length=VALUE_BYTES_MAX)]
Context: TypeAlias = Annotated[bytes, Meta(max_length=CONTEXT_BYTES_MAX)]
Digest: TypeAlias = Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
Identity: TypeAlias = Annotated[bytes, Meta(min_length=16, max_length=16)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 62))]
Text: TypeAlias = Annotated[str, Meta(max_length=1024)]
Finite: TypeAlias = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""Neither NaN, which no bound holds for, nor an infinity: they would come out again in somebody's JSON."""

VnodeState: TypeAlias = Literal["joining", "resuming", "member", "leaving", "left"]

Mode: TypeAlias = Literal["iterative", "recursive", "successor"]
"""The way that a lookup takes: one node asks every hop, each node asks the next, or one node asks along successors."""

Route: TypeAlias = Literal["classic", "fast"]
"""The pointers that a lookup uses: fingers and successor lists only, or remembered owners, too."""


Contacts: TypeAlias = Annotated[tuple[Contact, ...], Meta(max_length=LIST_ENTRIES_MAX)]


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of requests and replies."""


class Reply(Message, frozen=True):
    """Base of replies."""


class Done(Reply, frozen=True, tag=128):
    """The request was carried out; there is nothing else to say."""


class Request(Message, frozen=True):
    """Base of requests."""

    reply: ClassVar[type[Reply]] = Done
    patient: ClassVar[bool] = False
    for_clients: ClassVar[bool] = False
    bulk: ClassVar[bool] = False


class Hello(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """First frame both ways: who I am and what all nodes of my ring agree on.

    `ring` is None for a node that has not joined and for a client; `bits` is 0 for a client, who
    learns it from the answer. Vnode ids are raw bytes, because their width is not agreed yet.
    """

    version_min: Annotated[int, Meta(ge=1, le=1 << 16)]
    version_max: Annotated[int, Meta(ge=1, le=1 << 16)]
    role: Literal["node", "client"]
    stream: StreamName
    cluster: Annotated[str, Meta(max_length=64)] = ""
    bits: Annotated[int, Meta(ge=0, le=160)] = 0
    successors: Annotated[int, Meta(ge=0, le=64)] = 0
    replicas: Annotated[int, Meta(ge=0, le=16)] = 0
    ring: Identity | None = None
    address: Annotated[str, Meta(max_length=ADDRESS_CHARS_MAX)] = ""
    incarnation: Annotated[bytes, Meta(max_length=8)] = b""
    vnodes: Annotated[tuple[Annotated[bytes, Meta(max_length=20)], ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()
    features: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()


class ErrorReply(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An error as it travels: its code of `chord.errors`, a sentence, and what it speaks of."""

    code: Annotated[int, Meta(ge=0, le=1 << 16)]
    message: Text
    peer: Contact | None = None
    after_ms: Count | None = None
