"""Worker processes, one for each core, that end with their parent."""

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
    """Provide worker processes for the length of the block.

    At the end of the block, the processes finish their work. If an exception ends the block, they drop their work and
    end at once.

    Args:
        workers: number of processes; None: one for each core.

    Yields:
        The executor that runs functions in these processes.
    """
    others = active_children()
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_serve)
    try:
        yield pool
    except BaseException:
        manager = getattr(pool, "_executor_manager_thread", None)  # a shutdown without waiting drops it
        pool.shutdown(wait=False, cancel_futures=True)
        for child in active_children():
            if child not in others:
                child.kill()
        if manager is not None:
            manager.join()  # otherwise it closes pipes that the ending interpreter still writes to
        raise
    finally:
        pool.shutdown()


def _serve() -> None:
    """Let this worker ignore Ctrl-C and SIGTERM, and end when its parent ends.

    Both signals may reach all processes of a group, and the parent handles them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
