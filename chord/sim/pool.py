"""Processes to compute in, one for each core. They end with whoever waits for them, however that ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process


@contextmanager
def processes(workers: int | None = None) -> Iterator[Executor]:
    """Have processes for the length of the block. If it is left early, they drop what they are at and end at once.

    Args:
        workers: so many; default: one for each core.
    """
    others = active_children()
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_serve)
    try:
        yield pool
    except BaseException:
        manager = getattr(pool, "_executor_manager_thread", None)  # which a shutdown without waiting lets go of
        pool.shutdown(wait=False, cancel_futures=True)
        for child in active_children():
            if child not in others:
                child.kill()
        if manager is not None:
            manager.join()  # else it closes its pipes while the interpreter, that ends, still writes to them
        raise
    finally:
        pool.shutdown()


def _serve() -> None:
    """Leave Ctrl-C and SIGTERM, which may reach all processes of a group, to the parent, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
