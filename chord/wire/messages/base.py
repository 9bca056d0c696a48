"""Parts that messages share: bounded types, base classes, and the first frame.

Python's garbage collector does not track messages (`gc=False`). They cannot refer to one another in a cycle, and a node
that keeps many messages would pay for repeated searches of them.
"""

from __future__ import annotations

import sys
from typing import Annotated, ClassVar, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

from chord.ids import ADDRESS_CHARS_MAX, Contact, StreamName

KEY_BYTES_MAX = 1024
VALUE_BYTES_MAX = 1 << 20
CONTEXT_BYTES_MAX = 8192
LIST_ENTRIES_MAX = 256
TEXT_CHARS_MAX = 1024
PAGE_RECORDS_MAX = 128
SIBLINGS_MAX = 64
ACTORS_MAX = 160  # actors in the clock of a record; a put of a value may not add more
ACTORS_HELD_MAX = 2 * ACTORS_MAX  # the same after a delete, or a merge of records; a context has room for them
REPLACED_BYTES_MAX = 528
HOPS_MAX = 4096  # a successor-only walk records every hop
DIGEST_BYTES = 16
SUMS_MAX = 64
HEADS_MAX = 512
REPLICAS_MAX = 16
TTL_MS_MAX = 10 * 365 * 86_400_000
BATCH_ITEMS_MAX = PAGE_RECORDS_MAX  # so that the records of a batch fit one page of copies
BATCH_BYTES_MAX = 1 << 18  # of a batch, and of the reply to one, because other frames wait for it

Key: TypeAlias = Annotated[bytes, Meta(min_length=1, max_length=KEY_BYTES_MAX)]
Value: TypeAlias = Annotated[bytes, Meta(max_length=VALUE_BYTES_MAX)]
Context: TypeAlias = Annotated[bytes, Meta(max_length=CONTEXT_BYTES_MAX)]
Digest: TypeAlias = Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
Identity: TypeAlias = Annotated[bytes, Meta(min_length=16, max_length=16)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 62))]
Text: TypeAlias = Annotated[str, Meta(max_length=TEXT_CHARS_MAX)]
Finite: TypeAlias = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""A number that is neither NaN nor infinite, because JSON output cannot show those."""

VnodeState: TypeAlias = Literal["joining", "resuming", "member", "leaving", "left"]

Mode: TypeAlias = Literal["iterative", "recursive", "successor"]
"""The way that a lookup takes: one node asks every hop, each node asks the next, or one node asks along successors."""

Route: TypeAlias = Literal["classic", "fast", "full"]
"""The pointers that a lookup uses.

classic: fingers and successor lists. fast: remembered owners, too. full: first the membership list.
"""


NodeName: TypeAlias = Annotated[str, Meta(max_length=64)]

Contacts: TypeAlias = Annotated[tuple[Contact, ...], Meta(max_length=LIST_ENTRIES_MAX)]


Purpose: TypeAlias = Literal["client", "lookup", "upkeep", "repair", "transfer", "watch"]
"""The classes of requests, by which traffic is counted."""

PURPOSES: tuple[Purpose, ...] = get_args(Purpose)


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base class of requests and replies: the messages that nodes and clients send."""


class Reply(Message, frozen=True):
    """Base class of replies to requests."""


class Done(Reply, frozen=True, tag=128):
    """Reply without content: the request was carried out."""


class Request(Message, frozen=True):
    """Base class of requests.

    Attributes:
        reply: the type of the reply; default: `Done`.
        patient: whether the called peer may wait for other nodes before it replies. If so, its silence is no sign of a
            failure. Default: False.
        for_clients: whether clients send the request, or nodes on behalf of clients. Default: False.
        bulk: whether the request always travels on the bulk stream. Default: False.
        purpose: the class in which the traffic of the request is counted. Default: "client".
    """

    reply: ClassVar[type[Reply]] = Done
    patient: ClassVar[bool] = False
    for_clients: ClassVar[bool] = False
    bulk: ClassVar[bool] = False
    purpose: ClassVar[Purpose] = "client"


class Hello(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The first frame in each direction: it introduces the sender, and has the constants of its ring.

    Attributes:
        version_min, version_max: the lowest and the highest protocol version that the sender supports.
        role: whether the sender is a node or a client.
        stream: whether this is a control or a bulk stream.
        cluster: the name of the cluster; "" for a client.
        bits: the width of the circle. A client sends 0, and learns it from the hello of the node.
        successors, replicas: the r and the N of the ring; 0 for a client.
        ring: the ring id, sixteen random bytes; None for a client, and for a node that has not joined.
        address: the advertised address; "" for a client.
        incarnation: the incarnation of the node's store; empty for a client.
        vnodes: the ids of the node's vnodes as raw bytes, because both sides have not agreed on their width yet.
        name: the configured name of the node; "" if it has none.
        cuts: whether the sender sends and understands the number of the newest cut; see `chord/wire/cuts.py`. If not,
            its peer leaves the number out.
        features: one bit for each optional part of the protocol that the sender takes part in, such as
            `FEATURE_MEMBERS`.
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
    name: NodeName = ""
    cuts: bool = False
    features: Annotated[int, Meta(ge=0, lt=1 << 32)] = 0


class ErrorReply(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An error in place of a reply.

    Attributes:
        code: the number of the error's class in `chord.errors`.
        message: what failed, as a sentence for people.
        peer: a vnode that the error names, such as the actual owner; None: none.
        after_ms: the time after which a retry makes sense, in ms; None: not known.
    """

    code: Annotated[int, Meta(ge=0, le=1 << 16)]
    message: Text
    peer: Contact | None = None
    after_ms: Count | None = None
