"""A ring of real processes with data directories, whose peers end and start again at their places."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from processes import HANG_S, HEALED_S, PROGRAM, Peer, Peers, ideal

import chord as library
from chord.data.sqlite_file import FILE_NAME
from chord.ids import Circle
from chord.messages import Description

REPLICAS = 3
CIRCLE = Circle(160)


class Cluster:
    """Peers that each have a directory and an address for life."""

    def __init__(self, peers: Peers, base: Path, count: int, *, program: Sequence[str] = PROGRAM) -> None:
        self._peers = peers
        self._base = base
        self.directories = [base / f"peer-{number}" for number in range(count)]
        first = self._start(0, None, program=program).ready()
        others = range(1, count)
        join = ("--join", first.address)
        self.all = [first, *(self._start(i, None, *join, program=program) for i in others)]
        for peer in self.all[1:]:
            peer.ready()
        self.addresses = [peer.address for peer in self.all]
        ideal(self.addresses[0], HEALED_S)

    def _start(self, number: int, listen: str | None, *arguments: str, program: Sequence[str] = PROGRAM) -> Peer:
        data = str(self.directories[number])
        return self._peers.start("--data", data, *arguments, listen=listen, program=program)

    def join_on_a_small_disk(self, size: int) -> Path | None:
        """Add a peer whose directory is a file system of its own; return it, None where that is not allowed."""
        directory = self._base / "small"
        directory.mkdir()
        number = len(self.all)
        self.directories.append(directory)
        mount = f'mount -t tmpfs -o size={size} chord "$0" && exec "$@"'
        apart = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(directory))
        try:
            peer = self._start(number, None, "--join", self.addresses[0], program=(*apart, *PROGRAM)).ready()
        except (AssertionError, OSError):
            self.directories.pop()
            return None
        self.all.append(peer)
        self.addresses.append(peer.address)
        self.directories[number] = Path(f"/proc/{peer.process.pid}/root{directory}")  # as that process sees it
        return self.directories[number]

    def is_owner(self, number: int, key: str) -> bool:
        """Whether a peer coordinates a key, in a ring at rest."""
        point = CIRCLE.hash(key.encode())
        distances = {address: CIRCLE.distance(point, CIRCLE.hash(address.encode())) for address in self.addresses}
        return min(self.addresses, key=distances.__getitem__) == self.addresses[number]

    def kill(self, number: int) -> None:
        """kill -9, and wait for the end."""
        peer = self.all[number]
        peer.kill()
        peer.ended()

    def restart(self, number: int, *arguments: str, program: Sequence[str] = PROGRAM) -> None:
        """Start it at its place again, without waiting for it."""
        self.no_handler_failed(self.all[number])
        self.all[number] = self._start(number, self.addresses[number], *arguments, program=program)

    @staticmethod
    def no_handler_failed(peer: Peer) -> None:
        """Look through what a peer said in its life; only after its end."""
        said = peer.errors() if peer.process.stderr and not peer.process.stderr.closed else ""
        assert "ERROR" not in said, said

    def ready(self) -> None:
        """Wait until all are members."""
        for number, peer in enumerate(self.all):
            if not peer.address:
                assert peer.ready().address == self.addresses[number]

    def describe(self) -> dict[str, Description]:
        """What each node says of itself."""
        with library.connect(*self.addresses, timeout_s=HANG_S) as ring:
            found = ring.members(also=self.addresses)
        return {address: node for address, node in found.items() if isinstance(node, Description)}

    def restless(self) -> dict[str, int]:
        """What is still to be done, by all nodes together."""
        nodes = list(self.describe().values())
        work = {
            "nodes away": len(self.addresses) - len(nodes),
            "hints": sum(node.hints for node in nodes),
            "misplaced": sum(node.misplaced for node in nodes),
            "under-replicated": sum(node.under_replicated for node in nodes),
            "transfers": sum(len(node.transfers) for node in nodes),
        }
        return {name: count for name, count in work.items() if count}

    def calm(self, within_s: float = HEALED_S) -> float:
        """Wait until the ring is Ideal and nothing is left to be done; return how long that took."""
        began = time.monotonic()
        ideal(self.addresses[0], within_s)
        while work := self.restless():
            assert time.monotonic() - began < within_s, f"the ring does not come to rest: {work}"
            time.sleep(0.1)
        return time.monotonic() - began

    def copies(self) -> dict[bytes, list[bytes]]:
        """The digests of all copies of every record, read from the databases themselves; of a ring at rest."""
        found: dict[bytes, list[bytes]] = {}
        for directory in self.directories:
            with tempfile.TemporaryDirectory() as aside:
                for part in directory.glob(f"{FILE_NAME}*"):
                    shutil.copy(part, aside)
                with closing(sqlite3.connect(Path(aside) / FILE_NAME)) as store:
                    for key, digest in store.execute("SELECT key, digest FROM records"):
                        found.setdefault(key, []).append(digest)
        return found


def uneven(copies: dict[bytes, list[bytes]]) -> list[str]:
    """Say which records are not on exactly N nodes, or not the same on all."""
    return [
        f"{key!r}: {len(digests)} copies, {len(set(digests))} different"
        for key, digests in copies.items()
        if len(digests) != REPLICAS or len(set(digests)) != 1
    ]
