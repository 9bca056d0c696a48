"""chord itself: real `chord node` processes and the ring-aware client, N = 3, W = 2, R = 2.

    python -m benchmarks.others.chord_ring client HOST:PORT…
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.others import program

if TYPE_CHECKING:
    from benchmarks.others.processes import Group
    from benchmarks.others.system import Home
    from chord import AsyncClient as Ring

READY_S = 60.0
IDEAL_S = 60
ENTRIES = 3
PRESET = "lan"
COPIES, WRITE_QUORUM, READ_QUORUM = 3, 2, 2

SETTINGS = (
    f"N = {COPIES}, W = {WRITE_QUORUM}, R = {READ_QUORUM} (the defaults), preset {PRESET} (`chord node`'s default); "
    "the client is `chord.open_client`, which is no member of the ring"
)


class Outside:
    """Operations of a client."""

    def __init__(self, ring: Ring, w: int = WRITE_QUORUM, r: int = READ_QUORUM) -> None:
        self._ring = ring
        self._w = w
        self._r = r

    async def put(self, key: str, value: bytes) -> None:
        """Put a value."""
        await self._ring.put(key, value, w=self._w)

    async def get(self, key: str) -> bytes | None:
        """Get a value."""
        return (await self._ring.get(key, r=self._r)).value


async def client(entries: list[str]) -> None:
    """Run a client. Entries that are numbers, W and R, stand for the defaults."""
    import chord

    quorums = [int(entry) for entry in entries if entry.isdigit()]
    async with chord.open_client(*(entry for entry in entries if not entry.isdigit())) as ring:
        await program.serve_on_trio(Outside(ring, *quorums))


def start_in_memory(group: Group, home: Home, nodes: int, *, copies: int = COPIES) -> list[str]:
    """Start the nodes, with their records in memory."""
    return _start(group, home, nodes, copies=copies, is_on_disk=False)


def start_on_disk(group: Group, home: Home, nodes: int) -> list[str]:
    """Start the nodes, with their records in SQLite."""
    return _start(group, home, nodes, copies=COPIES, is_on_disk=True)


def hops(entries: Sequence[str]) -> int:
    """Return the calls so far of nodes that passed a request for another owner's key on."""
    import chord

    with chord.connect(*entries, timeout_s=READY_S) as ring:
        nodes = list(ring.members().ok.values())
    return sum(dict(node.counters).get("forward_calls", 0) for node in nodes)


def _start(group: Group, home: Home, nodes: int, *, copies: int, is_on_disk: bool) -> list[str]:
    """Start the first node, and let the others join at once. Return entry nodes when the ring is Ideal."""
    addresses: list[str] = []

    def begin(number: int) -> Any:
        where = ["--data", str(group.directory / str(number))] if is_on_disk else []
        entry = ["--join", addresses[0]] if addresses else []
        command = [home.python, "-m", "chord", "node", "--json", "--preset", PRESET, "--replicas", str(copies)]
        return group.node([*command, "--listen", "127.0.0.1:0", *where, *entry])

    addresses.append(begin(0).read(READY_S)["address"])
    joining = [begin(number) for number in range(1, nodes)]
    addresses += [process.read(READY_S)["address"] for process in joining]
    group.once([home.python, "-m", "chord", "check", "--wait", str(IDEAL_S), "--node", addresses[0]])
    return addresses[:ENTRIES]


def run(role: Any, arguments: list[str]) -> None:
    """Run on Trio."""
    import trio

    trio.run(role, arguments)


if __name__ == "__main__":
    program.main({"client": client}, run)
