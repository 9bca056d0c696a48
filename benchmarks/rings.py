"""Rings of real `chord node` processes for benchmarks."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import chord as library
from chord.ids import Circle
from chord.wire.messages import Status
from tests.support.processes import PROGRAM, Peer, Peers, ideal

CIRCLE = Circle(160)
VALUE = b"v" * 100
REST_WITHIN_S = 120.0


def statuses(addresses: list[str]) -> list[Status]:
    """Return the status of every node that answers."""
    with library.connect(*addresses, timeout_s=20) as client:
        return list(client.members(also=addresses).ok.values())


def settled(addresses: list[str]) -> None:
    """Wait until no node has records to transfer, to repair or to hand off.

    Raises:
        SystemExit: the ring is not in sync after two minutes.
    """
    deadline = time.monotonic() + REST_WITHIN_S
    while any(n.hints or n.misplaced or n.under_replicated or n.transfers for n in statuses(addresses)):
        if time.monotonic() > deadline:
            raise SystemExit("the ring is not in sync in time")
        time.sleep(0.2)


@contextmanager
def scratch(where: str) -> Iterator[Path]:
    """Create a temporary directory for databases, removed at the end of the block.

    The directory is inside the directory `where`, and so on the same disk.
    """
    with tempfile.TemporaryDirectory(prefix="chord-benchmark-", dir=Path(where).resolve()) as directory:
        yield Path(directory)


@contextmanager
def ring_of(count: int, base: Path | None, *arguments: str, program: tuple[str, ...] = PROGRAM) -> Iterator[list[Peer]]:
    """Run a ring of `count` node processes until the end of the block.

    Args:
        base: the directory of the databases; None: records are in memory.
        arguments: further arguments of each node.
        program: the command that starts the `chord` program.
    """
    with Peers() as peers:

        def start(number: int, *more: str) -> Peer:
            data = () if base is None else ("--data", str(base / str(number)))
            return peers.start(*data, *arguments, *more, program=program)

        first = start(0).ready()
        ring = [first, *(start(number, "--join", first.address) for number in range(1, count))]
        for peer in ring[1:]:
            peer.ready()
        ideal(first.address)
        settled([peer.address for peer in ring])
        yield ring


def fill(addresses: list[str], keys: int) -> float:
    """Put the keys `key-0`, `key-1`, … and wait until the ring is in sync.

    Returns:
        the time of the puts in seconds.
    """
    began = time.perf_counter()
    with library.connect(*addresses, timeout_s=60) as client:
        errors = client.put_many(((f"key-{i}", VALUE) for i in range(keys)), in_flight=128).errors
    assert not errors, list(errors.items())[:3]
    took = time.perf_counter() - began
    settled(addresses)
    return took


def owner_of(key: str, addresses: list[str]) -> str:
    """Return the address of the node that owns a key."""
    point = CIRCLE.hash(key.encode())
    return min(addresses, key=lambda address: CIRCLE.distance(point, CIRCLE.hash(address.encode())))
