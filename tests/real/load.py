"""Clients that load a ring of real processes, and an oracle that judges their reads.

Every value is written once, so a read value names its write. A write covers the values that it replaces. With a
context, these are the values of that read; a blind put covers nothing. Without either, the coordinator decides: the
write may cover every earlier write.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import trio

import chord as library
from chord.client.blocking import Client
from chord.errors import ChordError, DefiniteError, NotFound, WritesRefused

Kind = Literal["blind", "context", "delete", "default"]

KINDS: tuple[tuple[Kind | Literal["get"], int], ...] = (
    ("blind", 30), ("context", 25), ("delete", 25), ("default", 12), ("get", 8),
)  # fmt: skip
HOT_KEYS = 10
HOT_SHARE = 0.05
SIBLINGS_MANY = 6
TIMEOUT_S = 15.0
READERS = 16
AUDIT_S = 120.0
"""On a busy machine a node may take a living one for unreachable, but not for this long."""


class Write:
    """One put or delete. `covers` is None if the coordinator decides. Times are of the oracle's clock."""

    __slots__ = ("began", "covers", "ended", "is_seen", "kind", "outcome", "value")

    def __init__(self, kind: Kind, value: bytes | None, covers: frozenset[bytes] | None, began: int) -> None:
        self.kind = kind
        self.value = value
        self.covers = covers
        self.began = began
        self.ended: int | None = None
        self.outcome: Literal["open", "ok", "failed", "unknown"] = "open"
        self.is_seen = False

    def may_cover(self, other: Write) -> bool:
        """Whether this write, if it happened, may have replaced another."""
        if self is other or self.outcome == "failed":
            return False
        if self.covers is None:
            return self.ended is None or self.ended > other.began
        return other.value in self.covers

    def has_replaced(self, other: Write) -> bool:
        """Whether the other write may not be seen again, if this write happened.

        While the other write is still being retried, it may take effect once more.
        """
        is_known = self.covers is not None and other.value in self.covers
        return is_known and other.ended is not None and other.ended < self.began

    @property
    def has_happened(self) -> bool:
        """Whether the write certainly took effect."""
        return self.outcome == "ok" or self.is_seen


def may_be_gone(write: Write, writes: list[Write], present: Iterable[bytes | None], at: int | None = None) -> bool:
    """Whether a value may rightly be absent while only these values are present.

    Its write must be covered by a present value, a delete, or a write that may itself be gone. With `at`, only writes
    that had begun by then count.
    """
    shown = frozenset(present)
    open_, seen = [write], {write.began}
    while open_:
        one = open_.pop()
        for other in writes:
            if other.began in seen or (at is not None and other.began > at) or not other.may_cover(one):
                continue
            if other.value is None or other.value in shown:
                return True
            seen.add(other.began)
            open_.append(other)
    return False


class Oracle:
    """All writes of each key, and the wrong results of reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clock = 0
        self.writes: dict[str, list[Write]] = {}
        self.false_denials: list[str] = []
        self.counts: Counter[str] = Counter()
        self.slowest: list[tuple[float, str]] = []

    def now(self) -> int:
        """Return the next moment of the oracle's clock."""
        with self._lock:
            self._clock += 1
            return self._clock

    def begin(self, key: str, kind: Kind, value: bytes | None, covers: frozenset[bytes] | None) -> Write:
        """Record a write before it is sent."""
        write = Write(kind, value, covers, self.now())
        with self._lock:
            self.writes.setdefault(key, []).append(write)
        return write

    def end(self, write: Write, error: ChordError | None) -> None:
        """Record the acknowledgement or the error of a write."""
        write.ended = self.now()
        write.outcome = "ok" if error is None else "failed" if isinstance(error, DefiniteError) else "unknown"
        with self._lock:
            self.counts[write.outcome] += 1
            self.counts[f"{write.outcome} {write.kind}"] += 1
            if error is not None:
                self.counts[f"{write.kind}: {error.word}"] += 1
                self.counts["writes refused"] += isinstance(error, WritesRefused)

    def read(self, key: str, values: Iterable[bytes], began: int) -> None:
        """Record the values of a read. Without values, the key was denied."""
        ended, shown = self.now(), frozenset(values)
        with self._lock:
            writes = list(self.writes.get(key, ()))
            self.counts["reads"] += 1
        for write in writes:
            write.is_seen |= write.value in shown
        known = [w for w in writes if w.outcome == "ok" and w.ended is not None and w.ended < began]
        gone = [w for w in known if w.value is not None and w.value not in shown]
        missing = [w for w in gone if not may_be_gone(w, writes, shown, ended)]
        with self._lock:
            self.counts["stale reads"] += bool(missing and shown)
            if missing and not shown:
                self.counts["false denials"] += 1
                self.false_denials.append(key)

    def unanswered(self, key: str, error: ChordError, began: int) -> None:
        """Record the error of a read. Errors count separately if the key had an acknowledged value throughout."""
        ended = self.now()
        with self._lock:
            writes = list(self.writes.get(key, ()))
        known = [w for w in writes if w.outcome == "ok" and w.ended is not None and w.ended < began]
        is_owed = any(w.value is not None and not may_be_gone(w, writes, (), ended) for w in known)
        with self._lock:
            self.counts[f"get: {error.word}" + (" of a live key" if is_owed else "")] += 1

    @property
    def acknowledged(self) -> int:
        """Return the number of acknowledged writes."""
        return self.counts["ok"]

    def judge(self, key: str, present: frozenset[bytes]) -> Iterator[str]:
        """Yield the faults of the values of a key at the end."""
        writes = self.writes[key]
        by_value = {write.value: write for write in writes if write.value is not None}
        for value in present:
            if value not in by_value:
                yield f"{key}: {value!r} was never written"
            elif by_value[value].outcome == "failed":
                yield f"{key}: {value!r} is there, and its write was said to have failed"
            elif any(w.has_happened and w.has_replaced(by_value[value]) for w in writes):
                yield f"{key}: {value!r} was covered and is back"
        for value, write in by_value.items():
            if write.outcome == "ok" and value not in present and not may_be_gone(write, writes, present):
                yield f"{key}: {value!r} ({write.kind}) was acknowledged and is lost"


class Load:
    """Clients in threads."""

    def __init__(self, addresses: list[str], *, clients: int, keys: int, seed: int, pause_s: float = 0.0) -> None:
        self.oracle = Oracle()
        self._addresses = addresses
        self._keys = keys
        self._pause_s = pause_s
        self._stop = threading.Event()
        self.failures: list[BaseException] = []
        self._clients = clients
        self._runs = 0
        self._seed = seed

    @contextmanager
    def running(self) -> Iterator[Oracle]:
        """Load the ring during the block. A second block continues with the same oracle."""
        self._stop.clear()
        self._runs += 1
        numbers = range(self._clients)
        threads = [threading.Thread(target=self._client, args=(i, self._runs), daemon=True) for i in numbers]
        for thread in threads:
            thread.start()
        try:
            yield self.oracle
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
        if self.failures:
            raise self.failures[0]

    def _client(self, number: int, run: int) -> None:
        rng = random.Random(f"{self._seed} {run} {number}")
        turn = number * len(self._addresses) // self._clients
        entries = self._addresses[turn:] + self._addresses[:turn]
        try:
            with library.connect(*entries, timeout_s=TIMEOUT_S) as ring:
                count = 0
                while not self._stop.wait(self._pause_s):
                    count += 1
                    began = time.monotonic()
                    what = self._one(ring, rng, b"%d.%d.%d" % (run, number, count))
                    took = time.monotonic() - began
                    if took > 1.0:
                        self.oracle.slowest.append((took, what))
        except BaseException as error:
            self.failures.append(error)

    def _one(self, ring: Client, rng: random.Random, value: bytes) -> str:
        hot = rng.random() < HOT_SHARE
        key = f"key-{rng.randrange(HOT_KEYS if hot else self._keys)}"
        kind = rng.choices([kind for kind, _ in KINDS], [share for _, share in KINDS])[0]
        if kind in ("blind", "default"):
            self._write(ring, key, kind, value, None)
            return kind
        began = self.oracle.now()
        try:
            found = ring.get(key)
        except NotFound:
            self.oracle.read(key, (), began)
            if kind != "get":
                self._write(ring, key, "blind", value, None)
            return kind
        except ChordError as error:
            self.oracle.unanswered(key, error, began)
            return "get"
        self.oracle.read(key, found.values, began)
        if len(found.values) > SIBLINGS_MANY or kind in ("context", "delete"):
            self._write(ring, key, "delete" if kind == "delete" else "context", value, found)
        return kind

    def _write(self, ring: Client, key: str, kind: Kind, value: bytes, found: library.Found | None) -> None:
        covers = frozenset(found.values) if found else frozenset() if kind == "blind" else None
        write = self.oracle.begin(key, kind, None if kind == "delete" else value, covers)
        try:
            if kind == "delete" and found is not None:
                ring.delete(key, context=found.context)
            else:
                ring.put(key, value, context=found.context if found else None, no_context=kind == "blind")
        except ChordError as error:
            self.oracle.end(write, error)
        else:
            self.oracle.end(write, None)


def delete_all(oracle: Oracle, nodes: list[str], keys: Iterable[str]) -> list[str]:
    """Delete keys, each with the context of a read. Return the keys without an acknowledged delete."""
    refused = []
    with library.connect(*nodes, timeout_s=TIMEOUT_S) as ring:
        for key in keys:
            began = oracle.now()
            try:
                found = ring.get(key)
            except NotFound:
                oracle.read(key, (), began)
                continue
            except ChordError as error:
                oracle.unanswered(key, error, began)
                refused.append(key)
                continue
            write = oracle.begin(key, "delete", None, frozenset(found.values))
            try:
                ring.delete(key, context=found.context)
            except ChordError as error:
                oracle.end(write, error)
                refused.append(key)
            else:
                oracle.end(write, None)
    return refused


def put_all(oracle: Oracle, nodes: list[str], keys: Iterable[str]) -> list[str]:
    """Put a value under each of these keys. Return the keys without an acknowledged put."""
    refused = []
    with library.connect(*nodes, timeout_s=TIMEOUT_S) as ring:
        for key in keys:
            write = oracle.begin(key, "blind", value := f"{key}.{oracle.now()}".encode(), frozenset())
            try:
                ring.put(key, value, no_context=True)
            except ChordError as error:
                oracle.end(write, error)
                refused.append(key)
            else:
                oracle.end(write, None)
    return refused


Answer: TypeAlias = frozenset[bytes] | ChordError
"""The values of a key, or the error of the read."""


def read_all(nodes: list[str], keys: Iterable[str], patience_s: float) -> dict[str, Answer]:
    """Read keys through all nodes. Return the values or the error of each key.

    Args:
        patience_s: how long a failed read is retried.
    """
    found: dict[str, Answer] = {}
    waiting = iter(list(keys))

    async def reader(ring: library.AsyncClient) -> None:
        for key in waiting:
            until = trio.current_time() + patience_s
            while True:
                asked_at = trio.current_time()
                try:
                    found[key] = frozenset((await ring.get(key)).values)
                except NotFound:
                    found[key] = frozenset()
                except ChordError as error:
                    found[key] = error
                    if asked_at < until:
                        await trio.sleep(0.1)
                        continue
                break

    async def run() -> None:
        async with library.open_client(*nodes) as ring, trio.open_nursery() as nursery:
            for _ in range(READERS):
                nursery.start_soon(reader, ring)

    trio.run(run)
    return found


def audit(oracle: Oracle, nodes: list[str]) -> list[str]:
    """Read every key of the oracle, and return the faults."""
    wrong = [f"{key}: said to be not there" for key in oracle.false_denials]
    for key, present in read_all(nodes, oracle.writes, AUDIT_S).items():
        if isinstance(present, ChordError):
            wrong.append(f"{key}: {present.word}: {present.message}")
        else:
            wrong += oracle.judge(key, present)
    return wrong
