"""Transfers of records between nodes, with their rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from chord.ids import Circle
from chord.views.common import Json, arc_json, vnode_json
from chord.wire.messages import Status, TransferInfo


class TransferRow(NamedTuple):
    """A transfer of the records of one arc, with its rate.

    Attributes:
        node: the status of the node that reports the transfer.
        info: the transfer.
        keys_per_s: its rate, in keys per second.
        bytes_per_s: its rate, in bytes per second.
    """

    node: Status
    info: TransferInfo
    keys_per_s: float
    bytes_per_s: float

    @property
    def share(self) -> float | None:
        """The share of the records that is dealt with, 0 to 1; None if their number is not known yet."""
        if self.info.total is None:
            return None
        return min(1.0, self.info.done / self.info.total) if self.info.total else 1.0

    @property
    def left_s(self) -> float | None:
        """The time left at this rate, in seconds; None if the rate is 0 or the number of records is not known yet."""
        if self.info.total is None:
            return None
        left = max(0, self.info.total - self.info.done)
        if left == 0:
            return 0.0
        return left / self.keys_per_s if self.keys_per_s > 0 else None


def transfers_json(circle: Circle, moves: Iterable[TransferRow], names: Mapping[str, str]) -> Json:
    """Return transfers as JSON, with their progress, rates and time left.

    Args:
        circle: the circle of the ring.
        moves: the transfers.
        names: the names of nodes by address. A node that it lacks appears with its address.
    """
    return {"transfers": [_transfer(circle, move, names) for move in moves]}


def _transfer(circle: Circle, move: TransferRow, names: Mapping[str, str]) -> Json:
    info, share, left_s = move.info, move.share, move.left_s
    return {
        "node": move.node.name,
        "address": move.node.address,
        "kind": info.kind,
        "arc": arc_json(circle, info.arc_start, info.arc_end),
        "peer": vnode_json(circle, info.peer, names),
        "done": info.done,
        "total": info.total,
        "share": None if share is None else round(share, 4),
        "bytes_sent": info.bytes_sent,
        "keys_per_s": round(move.keys_per_s, 3),
        "bytes_per_s": round(move.bytes_per_s, 3),
        "eta_s": None if left_s is None else round(left_s, 3),
        "seconds": round(info.since_ms / 1000, 3),
    }
