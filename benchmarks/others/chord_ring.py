"""chord itself: real `chord node` processes and the ring-aware client.

    python -m benchmarks.others.chord_ring client HOST:PORT…

There are N = 3 copies of a record. A put waits for W = 2 of them, and a get asks R = 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.others import program

if TYPE_CHECKING:
    from benchmarks.others.processes import Group
    from benchmarks.others.system import Home
    from chord import AsyncClient

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
    """A benchmark client that is no member of the ring; it uses `chord.open_client`.

    Args:
        own: chord's own client.
        w: replicas that must have a write.
        r: replicas that a read asks.
    """

    def __init__(self, own: AsyncClient, w: int = WRITE_QUORUM, r: int = READ_QUORUM) -> None:
        self._own = own
        self._w = w
        self._r = r

    async def put(self, key: str, value: bytes) -> None:
        """Put a value; return when W replicas have acknowledged it."""
        await self._own.put(key, value, w=self._w)

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key from R replicas; None if the key has no value."""
        return (await self._own.get(key, r=self._r)).value


async def client(entries: list[str]) -> None:
    """Run a client that makes the operations requested on standard input.

    Args:
        entries: addresses of nodes of the ring. Entries that are numbers, W and R, replace the defaults.
    """
    import chord

    quorums = [int(entry) for entry in entries if entry.isdigit()]
    async with chord.open_client(*(entry for entry in entries if not entry.isdigit())) as client:
        await program.serve_on_trio(Outside(client, *quorums))


def start_in_memory(group: Group, home: Home, nodes: int, *, copies: int = COPIES) -> list[str]:
    """Start a ring with its records in memory, and return some of its addresses."""
    return _start(group, home, nodes, copies=copies, is_on_disk=False)


def start_on_disk(group: Group, home: Home, nodes: int) -> list[str]:
    """Start a ring with its records in SQLite, and return some of its addresses."""
    return _start(group, home, nodes, copies=COPIES, is_on_disk=True)


def hops(entries: Sequence[str]) -> int:
    """Return the number of calls by which nodes passed requests on to the owner.

    All calls since the start of the ring count.

    Args:
        entries: addresses of nodes of the ring.
    """
    import chord

    with chord.connect(*entries, timeout_s=READY_S) as client:
        nodes = list(client.members().ok.values())
    return sum(dict(node.counters).get("forward_calls", 0) for node in nodes)


def _start(group: Group, home: Home, nodes: int, *, copies: int, is_on_disk: bool) -> list[str]:
    """Start a ring, wait until it is Ideal, and return some of its addresses.

    The first node starts alone, and the others join at the same time. Ideal means that all pointers are exact.
    """
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
    """Run a role of this program on Trio.

    Args:
        role: the asynchronous function of the role.
        arguments: its arguments from the command line.
    """
    import trio

    trio.run(role, arguments)


if __name__ == "__main__":
    program.main({"client": client}, run)
