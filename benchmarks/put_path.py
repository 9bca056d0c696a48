"""Count the modules that one put or get crosses, and its Python calls on all nodes.

    python -m benchmarks.put_path [--puts N] [--path OPERATION] [--json]

Four nodes with SQLite run in this process, with N = 3 and W = 2, and a blocking client makes the operations:

- put: a put without a context
- put-with-context: a put with the context of the put before
- get: a get, which the client performs itself at two replicas (R = 2)
- get-coordinated: a get of two replicas that the owner coordinates
- get-one: a get of one replica (R = 1)

The count begins when the client calls `put` or `get` and ends when the call returns. It covers functions of `chord` in
every thread: the client, the event loop and the writers of the databases. A generator or coroutine counts each time it
is resumed. The nodes are warm: connections are open, the client knows the owner of the key, and the key has been
written before.

With `--path`, the modules are printed in the order in which the operation enters them, with their calls. The operation
with the fewest calls counts, because background work adds calls to the others. Bars (required figures): 25 modules and
400 calls.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import trio

import chord
from benchmarks.bars import Rows, bar, missed, positive, report
from chord.config import RingConstants

NODES = 4
MODULES_MAX, CALLS_MAX = 25, 400
KEY, KEY_OF_ONE_WRITER = b"warm-1", b"warm-2"
OPERATIONS = ("put", "put-with-context", "get", "get-coordinated", "get-one")
SETTLE_S = 5.0  # for anti-entropy after the joins, so that all nodes are in sync
HOME = str(Path(chord.__file__).parent)


class OperationPath(NamedTuple):
    """The Python calls of one operation, in the order of the first call.

    Attributes:
        modules: number of calls by module.
        functions: number of calls by function.
    """

    modules: Counter[str]
    functions: Counter[str]

    @property
    def calls(self) -> int:
        """Number of all Python calls of the operation."""
        return self.modules.total()


class Profile:
    """A profiler that counts calls of this project's functions.

    It counts in every thread that it was installed in.

    Attributes:
        is_on: whether calls are counted now.
        modules: number of calls by module.
        functions: number of calls by function.
    """

    def __init__(self) -> None:
        self.is_on = False
        self.modules: Counter[str] = Counter()
        self.functions: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call if it is one of this project; see `sys.setprofile`."""
        code = frame.f_code
        if event == "call" and self.is_on and code.co_filename.startswith(HOME):
            module = code.co_filename[len(HOME) + 1 : -3].replace("/", ".")
            self.modules[module] += 1
            self.functions[f"{module}:{code.co_qualname}"] += 1

    def install(self) -> None:
        """Begin to watch this thread, and all threads that start from now on."""
        threading.setprofile(self)
        sys.setprofile(self)

    def take(self) -> OperationPath:
        """Return the counts since the last `take`, and reset them."""
        taken = OperationPath(self.modules, self.functions)
        self.modules, self.functions = Counter(), Counter()
        return taken


def operations_of(client: chord.Client) -> dict[str, Callable[[], object]]:
    """Return the operations to count, by name."""
    latest = client.put(KEY_OF_ONE_WRITER, b"value")

    def put_with_context() -> None:
        nonlocal latest
        latest = client.put(KEY_OF_ONE_WRITER, b"value", context=latest.context)

    return {
        "put": lambda: client.put(KEY, b"value"),
        "put-with-context": put_with_context,
        "get": lambda: client.get(KEY),
        "get-coordinated": lambda: client.get(KEY, r=2),
        "get-one": lambda: client.get(KEY, r=1),
    }


async def measure(directory: str, puts: int) -> dict[str, OperationPath]:
    """Return for each operation the calls of the one with the fewest, on a ring of four nodes.

    Args:
        directory: the directory of the databases.
        puts: how often to make each operation.
    """
    profile, fewest = Profile(), dict[str, OperationPath]()
    profile.install()

    def operate(address: str) -> None:
        profile.install()
        with chord.connect(address) as client:
            for _ in range(2 * puts):
                client.put(KEY, b"value")
                client.put(KEY_OF_ONE_WRITER, b"value")
                client.get(KEY)
            for name, operation in operations_of(client).items():
                operation()
                for _ in range(puts):
                    profile.is_on = True
                    operation()
                    profile.is_on = False
                    path = profile.take()
                    if name not in fewest or path.calls < fewest[name].calls:
                        fewest[name] = path

    async with AsyncExitStack() as stack:
        nodes: list[chord.Node] = []
        constants = RingConstants(successors=4, replicas=3)
        for number in range(NODES):
            join = [nodes[0].contact.address] if nodes else []
            nodes.append(
                await stack.enter_async_context(
                    chord.open_node(join=join, data_dir=f"{directory}/{number}", preset="lan", ring=constants)
                )
            )
        await trio.sleep(SETTLE_S)
        await trio.to_thread.run_sync(operate, nodes[0].contact.address)
        sys.setprofile(None)
    threading.setprofile(None)
    return fewest


def rows_of(path: OperationPath, name: str) -> Rows:
    """Return the bars on the modules and the calls of an operation.

    Args:
        name: the name of the operation.
    """
    return [
        bar(f"modules that a {name} crosses", len(path.modules), at_most=MODULES_MAX),
        bar(f"Python calls of a {name}", path.calls, at_most=CALLS_MAX),
    ]


def show(path: OperationPath) -> None:
    """Print the modules and functions that an operation enters, with their calls."""
    for module, calls in path.modules.items():
        print(f"{calls:5}  {module}")
        for function, count in path.functions.items():
            if function.startswith(f"{module}:"):
                print(f"{count:12}  {function.partition(':')[2]}")


def main() -> int:
    """Measure, and print the path and the bars. Return 1 if a bar was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--puts", type=positive, default=40, help="how many of each to count (default: 40)")
    parser.add_argument("--path", choices=OPERATIONS, help="print the modules and functions that an operation passes")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of tables")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        fewest = trio.run(measure, directory, options.puts)
    if options.path:
        show(fewest[options.path])
    rows = [row for name, path in fewest.items() for row in rows_of(path, name)]
    report(rows, as_json=options.json)
    return missed(rows)


if __name__ == "__main__":
    sys.exit(main())
