"""A ring of real processes with data directories, in which peers end and restart in their places."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import chord as library
from chord.ids import Circle
from chord.store.sqlite_file import FILE_NAME
from chord.wire.messages import Status
from tests.support.machines import SmallDisk, WrongClock, forget_clock
from tests.support.processes import HANG_S, HEALED_S, PROGRAM, Peer, Peers, ideal

REPLICAS = 3
CIRCLE = Circle(160)


class Row(NamedTuple):
    """One copy of a record in the database of a peer."""

    number: int
    key: bytes
    digest: bytes
    value_bytes: int


class Cluster:
    """Peers with a fixed directory and address each.

    Args:
        count: the number of peers.
        program: the command of each peer without one of its own.
        disks: the file system of each peer; default: directories side by side.
        timing: the differences from the preset, for all peers.

    Attributes:
        base: the parent directory of all files.
        directories: the directories of the databases, as this process sees them.
    """

    def __init__(
        self,
        peers: Peers,
        base: Path,
        count: int = 0,
        *,
        program: Sequence[str] = PROGRAM,
        disks: Sequence[SmallDisk] = (),
        timing: Mapping[str, float] | None = None,
    ) -> None:
        self._peers = peers
        self.base = base
        self._timing = dict(timing or {})
        self._config = self.config("chord.toml")
        self._own_programs: list[tuple[str, ...]] = []  # of peers on the clock of the machine
        self._programs: list[tuple[str, ...]] = []
        self._data: list[Path] = []
        self._disks: list[SmallDisk | None] = []
        self.directories: list[Path] = []
        for number in range(count or len(disks)):
            self._add(program, disks[number] if disks else None)
        first = self._start(0, None).ready()
        join = ("--join", first.address)
        self.all = [first, *(self._start(number, None, *join) for number in range(1, len(self.directories)))]
        for peer in self.all[1:]:
            peer.ready()
        self.addresses = [peer.address for peer in self.all]
        ideal(self.addresses[0], HEALED_S)

    def _add(self, program: Sequence[str], disk: SmallDisk | None) -> None:
        directory = self.base / f"peer-{len(self._data)}"
        self._data.append(directory if disk is None else disk.directory)
        self._disks.append(disk)
        self.directories.append(directory if disk is None else disk.seen)
        self._own_programs.append((*(() if disk is None else disk.program), *program))
        self._programs.append(self._own_programs[-1])

    def _start(self, number: int, listen: str | None, *arguments: str, program: Sequence[str] = ()) -> Peer:
        options = ("--data", str(self._data[number]), *self._config, *arguments)
        return self._peers.start(*options, listen=listen, program=program or self._programs[number])

    def config(self, name: str, **changes: float) -> tuple[str, str]:
        """Return the option for a configuration that differs from that of the others."""
        file = self.base / name
        file.write_text("".join(("[timing]\n", *(f"{k} = {v}\n" for k, v in {**self._timing, **changes}.items()))))
        return "--config", str(file)

    def join_on(self, disk: SmallDisk) -> None:
        """Add a peer on its own file system."""
        self._add(PROGRAM, disk)
        peer = self._start(len(self.all), None, "--join", self.addresses[0]).ready()
        self.all.append(peer)
        self.addresses.append(peer.address)

    def clock(self, number: int, offset: str) -> WrongClock:
        """Give a peer its own clock, from its next start on."""
        clock = WrongClock(self.base / f"clock-{number}", offset)
        self._programs[number] = clock.program(self._own_programs[number])
        return clock

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

    def kill_all(self) -> None:
        """kill -9 of all running peers at the same moment, and wait for their end."""
        for peer in self.all:
            peer.kill()
        for peer in self.all:
            peer.ended()

    def restart(self, number: int, *arguments: str, program: Sequence[str] = ()) -> None:
        """Start a peer in its place again, and do not wait for it."""
        self.no_handler_failed(self.all[number])
        forget_clock(self.all[number].process.pid)
        self.all[number] = self._start(number, self.addresses[number], *arguments, program=program)

    @staticmethod
    def no_handler_failed(peer: Peer) -> None:
        """Search the output of a peer for failed handlers, after its end."""
        said = peer.errors() if peer.process.stderr and not peer.process.stderr.closed else ""
        assert "ERROR" not in said, said

    def ready(self) -> None:
        """Wait until all are members."""
        for number, peer in enumerate(self.all):
            if not peer.address:
                assert peer.ready().address == self.addresses[number]

    def ended(self) -> dict[str, str]:
        """Return the exit code and the last output of each ended peer, by its address."""
        gone = [peer for peer in self.all if peer.process.poll() is not None]
        return {peer.address: f"{peer.process.returncode}: {peer.errors()[-200:]}" for peer in gone}

    def statuses(self) -> dict[str, Status]:
        """Return the status of each node."""
        with library.connect(*self.addresses, timeout_s=HANG_S) as client:
            return client.members(also=self.addresses).ok

    def restless(self) -> dict[str, int]:
        """Return the pending work of all nodes together."""
        nodes = list(self.statuses().values())
        work = {
            "nodes away": len(self.addresses) - len(nodes),
            "hints": sum(node.hints for node in nodes),
            "misplaced": sum(node.misplaced for node in nodes),
            "under-replicated": sum(node.under_replicated for node in nodes),
            "transfers": sum(len(node.transfers) for node in nodes),
        }
        return {name: count for name, count in work.items() if count}

    def calm(self, within_s: float = HEALED_S) -> float:
        """Wait until the ring is Ideal without pending work. Return the duration in seconds."""
        began = time.monotonic()
        try:
            ideal(self.addresses[0], within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\npeers that ended: {self.ended() or 'none'}") from None
        while work := self.restless():
            assert time.monotonic() - began < within_s, f"the ring does not come to rest: {work}"
            time.sleep(0.1)
        return time.monotonic() - began

    def rows(self, numbers: Collection[int] | None = None) -> Iterator[Row]:
        """Read all copies of every record from the databases of these peers, or of all."""
        for number, directory in enumerate(self._data):
            if numbers is None or number in numbers:
                disk = self._disks[number]
                rows = read_rows(directory) if disk is None else disk.run(read_rows, directory)
                yield from (Row(number, *row) for row in rows)

    def copies(self) -> dict[bytes, list[bytes]]:
        """Return the digests of all copies of every record. The ring must be at rest."""
        found: dict[bytes, list[bytes]] = {}
        for row in self.rows():
            found.setdefault(row.key, []).append(row.digest)
        return found

    def troubles(self, address: str | None = None) -> str:
        """Return the troubles that one node, or all nodes, report."""
        nodes = self.statuses()
        return "; ".join(why for name, node in nodes.items() if address in (None, name) for why in node.troubles)

    def reaped(self) -> int:
        """Return the number of tombstones that the running nodes have reaped."""
        return sum(dict(node.counters).get("keys_reaped", 0) for node in self.statuses().values())


def read_rows(directory: Path) -> list[tuple[bytes, bytes, int]]:
    """Return key, digest and bytes of the values of each record in a database."""
    with closing(sqlite3.connect(directory / FILE_NAME)) as store:
        return store.execute("SELECT key, digest, value_bytes FROM records").fetchall()


def uneven(copies: dict[bytes, list[bytes]]) -> list[str]:
    """Name the records that are not on exactly N nodes, or differ between nodes."""
    return [
        f"{key!r}: {len(digests)} copies, {len(set(digests))} different"
        for key, digests in copies.items()
        if len(digests) != REPLICAS or len(set(digests)) != 1
    ]
