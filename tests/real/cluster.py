"""A ring of real processes with data directories, whose peers end and start again at their places."""

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
from chord.wire.messages import Description
from tests.real.machines import SmallDisk, WrongClock, forget_clock
from tests.real.processes import HANG_S, HEALED_S, PROGRAM, Peer, Peers, ideal

REPLICAS = 3
CIRCLE = Circle(160)


class Row(NamedTuple):
    """One copy of a record, as it is in the database of a peer."""

    number: int
    key: bytes
    digest: bytes
    value_bytes: int


class Cluster:
    """Peers that each have a directory and an address for life.

    Args:
        count: how many peers.
        program: what each of them runs, if it is not told otherwise.
        disks: each peer's own file system; default: directories side by side.
        timing: what differs from the preset, for all of them.

    Attributes:
        base: a directory for whatever belongs to them.
        directories: where their databases are, as this process sees it.
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
        self._own_programs: list[tuple[str, ...]] = []  # by the clock of the machine
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
        """Add a peer whose directory is a file system of its own."""
        self._add(PROGRAM, disk)
        peer = self._start(len(self.all), None, "--join", self.addresses[0]).ready()
        self.all.append(peer)
        self.addresses.append(peer.address)

    def clock(self, number: int, offset: str) -> WrongClock:
        """Have a peer live by a clock of its own, from its next start on."""
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
        """kill -9 of all who run at the same moment, and wait for the end."""
        for peer in self.all:
            peer.kill()
        for peer in self.all:
            peer.ended()

    def restart(self, number: int, *arguments: str, program: Sequence[str] = ()) -> None:
        """Start it at its place again, without waiting for it."""
        self.no_handler_failed(self.all[number])
        forget_clock(self.all[number].process.pid)
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

    def ended(self) -> dict[str, str]:
        """Return the exit code of each peer that has ended, and the end of what it said, by its address."""
        gone = [peer for peer in self.all if peer.process.poll() is not None]
        return {peer.address: f"{peer.process.returncode}: {peer.errors()[-200:]}" for peer in gone}

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
        try:
            ideal(self.addresses[0], within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\npeers that ended: {self.ended() or 'none'}") from None
        while work := self.restless():
            assert time.monotonic() - began < within_s, f"the ring does not come to rest: {work}"
            time.sleep(0.1)
        return time.monotonic() - began

    def rows(self, numbers: Collection[int] | None = None) -> Iterator[Row]:
        """Read all copies of every record from the databases themselves; of these peers, or of all."""
        for number, directory in enumerate(self._data):
            if numbers is None or number in numbers:
                disk = self._disks[number]
                rows = read_rows(directory) if disk is None else disk.run(read_rows, directory)
                yield from (Row(number, *row) for row in rows)

    def copies(self) -> dict[bytes, list[bytes]]:
        """The digests of all copies of every record; of a ring at rest."""
        found: dict[bytes, list[bytes]] = {}
        for row in self.rows():
            found.setdefault(row.key, []).append(row.digest)
        return found

    def troubles(self, address: str | None = None) -> str:
        """What keeps nodes from serving all requests, in their own words; of one of them, or of all."""
        nodes = self.describe()
        return "; ".join(why for name, node in nodes.items() if address in (None, name) for why in node.troubles)

    def reaped(self) -> int:
        """How many tombstones the nodes that run now have reaped."""
        return sum(dict(node.counters).get("keys_reaped", 0) for node in self.describe().values())


def read_rows(directory: Path) -> list[tuple[bytes, bytes, int]]:
    """Return key, digest and bytes of the values of each record in a database."""
    with closing(sqlite3.connect(directory / FILE_NAME)) as store:
        return store.execute("SELECT key, digest, value_bytes FROM records").fetchall()


def uneven(copies: dict[bytes, list[bytes]]) -> list[str]:
    """Say which records are not on exactly N nodes, or not the same on all."""
    return [
        f"{key!r}: {len(digests)} copies, {len(set(digests))} different"
        for key, digests in copies.items()
        if len(digests) != REPLICAS or len(set(digests)) != 1
    ]
