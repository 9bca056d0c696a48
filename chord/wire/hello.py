"""What a node says of itself in the first frame, and whom it refuses to talk to.

Only halves of one ring ever merge: peers of another ring id, cluster or with other constants are
refused before any state is exchanged.
"""

from __future__ import annotations

from collections.abc import Iterable

from chord.config import PROTOCOL_VERSION, RingConstants
from chord.errors import DuplicateId, OtherRing
from chord.ids import Point
from chord.wire.messages import Hello, StreamName

TO_CHANGE = "a node that is to change rings leaves its own, or starts with another data directory"


class Greeter:
    """One node's side of every handshake.

    Attributes:
        ring_id: sixteen bytes minted when the ring was founded; None until it is founded, joined or remembered.
    """

    def __init__(self, constants: RingConstants) -> None:
        self._constants = constants
        self._address = ""
        self._incarnation = b""
        self._vnodes: tuple[bytes, ...] = ()
        self.ring_id: bytes | None = None

    def introduce(self, address: str, incarnation: bytes, vnodes: Iterable[Point]) -> None:
        """From now on, go by this address and these ids."""
        self._address, self._incarnation = address, incarnation
        width = self._constants.circle.width
        self._vnodes = tuple(int(point).to_bytes(width, "big") for point in vnodes)

    def learn(self, ring_id: bytes | None) -> None:
        """Take over the ring id of a member we asked to join by.

        Raises:
            OtherRing: definite; we belong to another ring.
        """
        if self.ring_id is not None and ring_id is not None and ring_id != self.ring_id:
            raise OtherRing(
                f"asked into ring {ring_id.hex()}, but {self._address} belongs to {self.ring_id.hex()}; {TO_CHANGE}"
            )
        self.ring_id = self.ring_id or ring_id

    def hello(self, stream: StreamName) -> Hello:
        """Return the first frame for a stream."""
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
        )

    def on_hello(self, hello: Hello) -> None:
        """Look at a peer's first frame. Nothing is learnt from it: whoever dials us may be of any ring.

        Raises:
            OtherRing: definite; its ring id or constants differ. The sentence says which.
            DuplicateId: definite; it claims one of our ids.
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
