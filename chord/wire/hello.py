"""The hello of a node, and the peers that the node refuses.

Only parts of one ring may merge. So a peer with another ring id or other ring constants is refused before any state
is exchanged.
"""

from __future__ import annotations

from collections.abc import Iterable

from chord.config import PROTOCOL_VERSION, RingConstants
from chord.errors import DuplicateId, OtherRing
from chord.ids import Point
from chord.wire.messages import FEATURE_MEMBERS, Hello, StreamName

TO_CHANGE = "to change rings, let the node leave its ring, or start it with another data directory"
NAMES_MAX = 1024


class HelloPolicy:
    """One node's side of every handshake: its own hello, and the checks of a peer's hello.

    Args:
        constants: the constants of the ring.
        features: bits for the optional features of this node, such as `FEATURE_MEMBERS`.

    Attributes:
        ring_id: sixteen bytes, made when the ring was founded. None until this node has founded or joined a ring, or
            read the id from its persisted state.
        names: the name for people of each peer, by address, from the latest hellos.
        without_members: the addresses of the peers that keep no membership list, as keys, from the latest hellos.
    """

    __slots__ = (
        "_address", "_constants", "_features", "_incarnation", "_name", "_vnodes", "names", "ring_id",
        "without_members",
    )  # fmt: skip

    def __init__(self, constants: RingConstants, features: int = 0) -> None:
        self._constants = constants
        self._features = features
        self._address = ""
        self._incarnation = b""
        self._vnodes: tuple[bytes, ...] = ()
        self._name = ""
        self.names: dict[str, str] = {}
        self.without_members: dict[str, None] = {}
        self.ring_id: bytes | None = None

    def introduce(self, address: str, incarnation: bytes, vnodes: Iterable[Point], name: str) -> None:
        """Set what every hello of this node says from now on.

        Args:
            address: the advertised address of the node.
            incarnation: the incarnation of its store.
            vnodes: the ids of its vnodes.
            name: its name for people.
        """
        self._address, self._incarnation, self._name = address, incarnation, name
        width = self._constants.circle.width
        self._vnodes = tuple(int(point).to_bytes(width, "big") for point in vnodes)

    def learn(self, ring_id: bytes | None) -> None:
        """Adopt the ring id of the member through which this node joins.

        A node that has a ring id keeps it. If `ring_id` is None, the member has not joined a ring, and nothing changes.

        Raises:
            OtherRing: definite; this node belongs to another ring.
        """
        if self.ring_id is not None and ring_id is not None and ring_id != self.ring_id:
            raise OtherRing(
                f"cannot join ring {ring_id.hex()}: {self._address} belongs to {self.ring_id.hex()}; {TO_CHANGE}"
            )
        self.ring_id = self.ring_id or ring_id

    def hello(self, stream: StreamName) -> Hello:
        """Return this node's hello for a control stream or a bulk stream."""
        return Hello(
            version_min=PROTOCOL_VERSION,
            version_max=PROTOCOL_VERSION,
            role="node",
            stream=stream,
            cluster=self._constants.cluster,
            bits=self._constants.bits,
            successors=self._constants.successors,
            replicas=self._constants.replicas,
            ring=self.ring_id,
            address=self._address,
            incarnation=self._incarnation,
            vnodes=self._vnodes,
            name=self._name,
            cuts=True,
            features=self._features,
        )

    def on_hello(self, hello: Hello) -> None:
        """Check a peer's hello.

        A client's hello is accepted unchecked. If either side has no ring id yet, the ring ids are not compared. This
        node remembers the name of the peer, and learns nothing more, because the peer may belong to any ring.

        Raises:
            OtherRing: definite; the peer's ring id or constants differ. The message says which.
            DuplicateId: definite; the peer, at another address, claims one of this node's ids.
        """
        if hello.role == "client":
            return
        mine = self._constants
        who = hello.address or "the caller"
        for what, ours, theirs in (
            ("cluster", mine.cluster, hello.cluster),
            ("bits", mine.bits, hello.bits),
            ("successors", mine.successors, hello.successors),
            ("replicas", mine.replicas, hello.replicas),
        ):
            if ours != theirs:
                raise OtherRing(f"{self._address} has {what} {ours}, {who} has {theirs}")
        if self.ring_id is not None and hello.ring is not None and hello.ring != self.ring_id:
            raise OtherRing(
                f"{who} belongs to ring {hello.ring.hex()}, {self._address} to {self.ring_id.hex()}; {TO_CHANGE}"
            )
        if hello.address != self._address:
            for raw in self._vnodes:
                if raw in hello.vnodes:
                    raise DuplicateId(f"{self._address} already stands at id {int.from_bytes(raw, 'big')}")
            if hello.name:
                self.names.pop(hello.address, None)
                self.names[hello.address] = hello.name
                if len(self.names) > NAMES_MAX:
                    del self.names[next(iter(self.names))]
            self.without_members.pop(hello.address, None)
            if not hello.features & FEATURE_MEMBERS:
                self.without_members[hello.address] = None
                if len(self.without_members) > NAMES_MAX:
                    del self.without_members[next(iter(self.without_members))]
