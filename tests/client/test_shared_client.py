"""One blocking client in many threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

import chord
from chord.client import pool
from chord.client.blocking import Client
from chord.client.pool import POOLS_MAX
from chord.config import Limits
from chord.errors import ChordError, InvalidRequest, Overloaded
from chord.wire.messages import GetReply
from tests.support.clients import OWNER, Store
from tests.support.fake_node import SILENCE, Answer, Heard, fake_node
from tests.support.real_rings import HANG_S

THREADS = 8
ROUNDS = 40


def in_threads(work: Callable[[int], None], threads: int = THREADS) -> None:
    """Run a function in several threads that begin together. Raise the first exception of any thread."""
    barrier = threading.Barrier(threads)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait(HANG_S)
            work(number)
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(HANG_S)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def put(client: chord.Client, key: str) -> None:
    """Write a key."""
    client.put(key, "v")


def work_on(client: chord.Client) -> Callable[[int], None]:
    """Return the work of a thread: it writes its own keys, and reads them back."""

    def work(number: int) -> None:
        for i in range(ROUNDS):
            key = f"{number}:{i}"
            client.put(key, f"value of {key}")
            assert client.get(key).text == f"value of {key}"
            assert key in client
            assert f"no {key}" not in client
        keys = [f"{number}:{i}" for i in range(ROUNDS)]
        assert not client.put_many((key, f"newer {key}") for key in keys).errors
        found = client.get_many(keys)
        values = [one.text for one in found.ok.values()]
        assert values == [f"newer {key}" for key in keys]
        assert client.status().ring == b"R" * 16

    return work


def test_threads_that_share_a_client_get_their_own_answers() -> None:
    with fake_node(Store()) as node, chord.connect(node.address, timeout_s=HANG_S) as client:
        in_threads(work_on(client))
        assert node.connections <= 2 * POOLS_MAX, "a control stream and a bulk stream for each thread"


def test_one_thread_after_another_uses_the_same_connection() -> None:
    with fake_node(Store()) as node, chord.connect(node.address, timeout_s=HANG_S) as client:
        for number in range(5):
            thread = threading.Thread(target=client.put, args=(f"k{number}", "v"))
            thread.start()
            thread.join(HANG_S)
        assert node.connections == 1


def test_more_threads_than_pools_take_turns() -> None:
    with fake_node(Store()) as node, chord.connect(node.address, timeout_s=HANG_S) as client:
        in_threads(lambda number: put(client, f"k{number}"), 4 * POOLS_MAX)
        assert node.connections <= POOLS_MAX
        assert all(f"k{number}" in client for number in range(4 * POOLS_MAX))


def test_thread_without_a_free_pool_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Semaphore(0)
    release = threading.Event()

    def answer(heard: Heard) -> Answer:
        if getattr(heard.request, "key", None) == b"slow":
            asked.release()
            release.wait(HANG_S)
        return Store()(heard)

    with fake_node(answer) as node, chord.connect(node.address, timeout_s=HANG_S) as client:
        slow = [threading.Thread(target=client.put, args=("slow", "v")) for _ in range(POOLS_MAX)]
        for thread in slow:
            thread.start()
        for _ in slow:
            asked.acquire(timeout=HANG_S)
        client.timeout_s = 0.1
        try:
            with pytest.raises(Overloaded, match="8 threads use all connections of this client"):
                client.put("k", "v")
        finally:
            release.set()
            for thread in slow:
                thread.join(HANG_S)
        client.timeout_s = HANG_S
        client.put("k", "v")


def test_resolver_that_uses_the_client_does_not_deadlock() -> None:
    store = Store()

    def answer(heard: Heard) -> Answer:
        if getattr(heard.request, "key", None) == b"cart":
            return GetReply((b"a", b"b"), b"context", OWNER)
        return store(heard)

    with fake_node(answer) as node, chord.connect(node.address, timeout_s=HANG_S) as client:
        client.put("rule", "first")

        def resolve(found: chord.Found) -> bytes:
            in_threads(lambda number: None if client.get("rule").text == "first" else pytest.fail("lost"), 2)
            return found.values[0]

        assert client.get("cart", resolve=resolve).value == b"a"


def test_client_closed_by_one_thread_refuses_the_others() -> None:
    asked = threading.Event()

    def answer(heard: Heard) -> Answer:
        if getattr(heard.request, "key", None) == b"never":
            asked.set()
            return SILENCE
        return Store()(heard)

    errors: list[ChordError] = []

    def put_in_vain() -> None:
        try:
            client.put("never", "v")
        except ChordError as error:
            errors.append(error)

    with fake_node(answer) as node:
        client = chord.connect(node.address, timeout_s=0.5)
        thread = threading.Thread(target=put_in_vain)
        thread.start()
        asked.wait(HANG_S)
        client.close()
        with pytest.raises(InvalidRequest, match="this client is closed"):
            client.get("k")
        thread.join(HANG_S)
        assert len(errors) == 1
        assert not isinstance(errors[0], InvalidRequest), "the put may have happened"
        assert client._pools._idle == []


def test_interrupted_call_closes_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_node(Store()) as node, chord.connect(node.address, timeout_s=HANG_S) as client:
        with monkeypatch.context() as patched:

            def interrupt(*_: object) -> None:
                raise KeyboardInterrupt

            patched.setattr(pool.Link, "wait", interrupt)
            with pytest.raises(KeyboardInterrupt):
                client.put("k", "v")
        client.put("k", "v")
        assert node.connections == 2


def test_short_calls_of_eight_threads_overlap() -> None:
    """Eight threads that wait for a node wait at the same time."""
    together = threading.Barrier(THREADS)

    def answer(heard: Heard) -> Answer:
        if getattr(heard.request, "key", None) == b"k":
            together.wait(HANG_S)
        return Store()(heard)

    with fake_node(answer) as node, chord.connect(node.address, timeout_s=HANG_S) as client:
        began = time.monotonic()
        in_threads(lambda number: put(client, "k"))
        assert time.monotonic() - began < HANG_S


def test_signal_handler_may_learn_of_a_cut_at_any_moment() -> None:
    client = Client(("127.0.0.1:9",), timeout_s=1.0, limits=Limits())
    cuts = client._core.session.cuts
    with cuts._lock:  # as if the thread was interrupted here
        thread_may_take_it = cast(Any, cuts._lock).acquire(blocking=False)
        assert thread_may_take_it
        cuts.see(7)
    assert cuts.number == 7
