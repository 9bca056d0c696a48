"""Consistent backups during a run: clients, backups, and the check of each backup.

The clients are real: they call nodes over the network, from hosts of their own. Each has keys of its own, and reads the
keys of the others. So one client's writes depend on what another client wrote.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping

import trio

from chord.client.async_client import AsyncClient
from chord.client.operations import Operations
from chord.client.routing import CLIENT_ARCS_MAX
from chord.client.session import ClientSession
from chord.config import Limits
from chord.errors import ChordError, CutMissing, NotFound
from chord.sim.consistent import CutOperation, violations
from chord.sim.messages import MessageCalls, MessageNetwork
from chord.store import versions
from chord.store.dedup import OTHERS_MAX
from chord.testing.rings import TestRing
from chord.wire.messages import Record

CLIENTS = 4
KEEPER = "keeper"
"""The host that makes the backups."""
WORKER = "worker"
"""The beginning of the names of the clients, and of their keys."""
KEYS = 6
"""Number of keys of each client."""
PAUSE_S = 0.05
BETWEEN_S = (0.5, 3.0)
PATIENCE_S = 2.5
"""Longest time of an operation in seconds, below every `grace_s` that a plan draws.

A request may arrive a second time until then. It must find the tombstone that replaced it.
"""
GETS, DELETES = 0.4, 0.1
READY = ("ready",)


class Backups:
    """Makes consistent backups of a ring under load, and checks each of them.

    Args:
        ring: the ring.
        network: its network.
        rng: draws the operations and the pauses.
        complain: callback for each error found, in words.
        counts: receives how many backups were complete ("backup complete"), and how many were not ("backup
            incomplete"). It also counts the errors of backups and of clients.
        clients: number of clients.
        pause_s: mean seconds of a client between two operations.
        between_s: shortest and longest pause between two backups, in seconds.
        entries: the states of the nodes through which a backup may enter the ring.
    """

    def __init__(
        self,
        ring: TestRing,
        network: MessageNetwork,
        rng: random.Random,
        complain: Callable[[str], None],
        counts: Counter[str],
        clients: int = CLIENTS,
        pause_s: float = PAUSE_S,
        between_s: tuple[float, float] = BETWEEN_S,
        entries: Collection[str] = READY,
    ) -> None:
        self._ring = ring
        self._network = network
        self._rng = rng
        self._complain = complain
        self._counts = counts
        self._names = [f"{WORKER}{number}" for number in range(clients)]
        self._pause_s = pause_s
        self._between_s = between_s
        self._entries = entries
        self._operations: list[CutOperation] = []
        self._written: dict[bytes, list[float]] = {}
        self._deletes: dict[bytes, list[tuple[CutOperation, Mapping[bytes, int]]]] = {}

    async def run(self, *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        """Let clients work and make backups, until the scope that `task_status` gets is cancelled."""
        async with trio.open_nursery() as nursery:
            for name in self._names:
                calls: MessageCalls = await nursery.start(self._calls, name)
                nursery.start_soon(self._client, calls, name)
            calls = await nursery.start(self._calls, KEEPER)
            nursery.start_soon(self._keeper, calls)
            task_status.started(nursery.cancel_scope)

    async def _calls(self, host: str, *, task_status: trio.TaskStatus[MessageCalls]) -> None:
        calls = self._network.calls(host)
        async with trio.open_nursery() as nursery:
            await nursery.start(calls.run, None)
            task_status.started(calls)

    def _open(self, calls: MessageCalls, entries: Collection[str] = READY) -> AsyncClient | None:
        """Return a client that enters the ring through a node in a given state; None if no node is in such a state.

        The calls of one client keep the number of the newest cut.
        """
        found = [node for node in self._ring.nodes if node.state in entries]
        if not found:
            return None
        node = self._rng.choice(found)
        session = ClientSession(
            (node.address,), rng=self._rng, circle=node._host.circle, arcs_max=CLIENT_ARCS_MAX, cuts=calls.cuts
        )
        return AsyncClient(Operations(session), calls, Limits(), PATIENCE_S)

    async def _client(self, calls: MessageCalls, name: str) -> None:
        rng = self._rng
        for number in range(1 << 30):
            await trio.sleep(rng.uniform(0, 2 * self._pause_s))
            client, dice = self._open(calls), rng.random()
            if client is None:
                continue
            owner = rng.choice(self._names) if dice < GETS else name
            key = f"{owner}-{rng.randrange(KEYS)}".encode()
            if dice >= GETS and self._is_too_busy(key):
                continue
            operation = CutOperation(name, key, None, trio.current_time())
            if dice < GETS:
                operation.found = ()
            elif dice < 1 - DELETES:
                operation.value = f"{name}/{number}".encode()
            self._operations.append(operation)
            with trio.move_on_after(PATIENCE_S):  # `timeout_s` does not count inside the run's own time limit
                if await self._carry_out(client, operation):
                    operation.ended = trio.current_time()

    async def _carry_out(self, client: AsyncClient, operation: CutOperation) -> bool:
        """Carry out an operation; return whether it was acknowledged."""
        key = operation.key
        try:
            if operation.found is not None:
                operation.found = (await client.get(key)).values
            elif operation.value is not None:
                await client.put(key, operation.value)
            else:
                context = (await client.delete(key)).context
                self._deletes.setdefault(key, []).append((operation, versions.decode_context(context)))
        except NotFound:
            pass
        except ChordError as error:
            self._counts[f"backed-up client {error.word}"] += 1
            return False
        return True

    def _is_too_busy(self, key: bytes) -> bool:
        """Note a write of a key, unless it may undo another one; return whether it may.

        A record remembers only the latest `OTHERS_MAX` replaced operations. So a second arrival of an older request
        counts as a new write. It can arrive only while the client of the first one would still wait.
        """
        if not self._network.lateness.twice:
            return False
        now = trio.current_time()
        latest = [at for at in self._written.get(key, ()) if at > now - PATIENCE_S]
        if len(latest) >= OTHERS_MAX:
            return True
        self._written[key] = [*latest, now]
        return False

    async def _keeper(self, calls: MessageCalls) -> None:
        while True:
            await trio.sleep(self._rng.uniform(*self._between_s))
            client = self._open(calls, self._entries)
            if client is None:
                continue
            began, backup = trio.current_time(), dict[bytes, set[bytes | None]]()
            try:
                async for record in client.export(consistent=True):
                    backup[record.key] = values_in(record)
                    for delete, context in self._deletes.get(record.key, ()):
                        delete.spared = spared_in(record, context)
            except CutMissing:
                self._counts["backup incomplete"] += 1
                continue
            except ChordError as error:
                self._counts[f"backup {error.word}"] += 1
                continue
            self._counts["backup complete"] += 1
            for violation in violations(self._operations, backup, began)[:1]:
                self._complain(f"{client._core.session.entry} made a backup from {began:.3f} s on; {violation}")


def values_in(record: Record) -> set[bytes | None]:
    """Return the values of a record in a backup, and None if readers see none of them.

    A value in quarantine is in the backup, and readers see the key as if it were deleted.
    """
    shown = {version.value for entry in record.clock for version in entry.versions}
    hidden = {version.value for entry in record.quarantine for version in entry.versions}
    return shown | hidden | (set() if shown else {None})


def spared_in(record: Record, context: Mapping[bytes, int]) -> set[bytes]:
    """Return the values of a record that a delete did not replace, if its acknowledgement has this context.

    Such a value was on a node that the delete did not reach. It stays when the tombstone is reaped.
    """
    return set(versions.values(versions.discard(record, context)))
