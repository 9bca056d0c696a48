"""The dashboard of `chord up`: a further child, which may control its siblings in a demonstration."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import structs

from chord.cli.dashboard import LISTEN, is_loopback, listen_on, require_extra, url_of
from chord.cli.failures import INTERNAL, OK, USAGE
from chord.cli.output import HOST, Failure, Out
from chord.cli.up_split import Sides
from chord.config import NodeConfig, split_address
from chord.views.common import Json

ORDER_BYTES_MAX = 4096

SHOWN_MAX = 40
"""The largest number of characters of a wrong name that a message repeats."""

PORT_MAX = 65535

Obey = Callable[[str, list[str], list[str]], list[list[str]]]
"""Does something to peers, by name or address, and returns their names in groups.

It also gets the addresses of the ring's nodes. A `ValueError` says why it is not possible.
"""

SIGNALS = {
    "kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "thaw": signal.SIGCONT, "leave": signal.SIGTERM
}  # fmt: skip


class DashboardChild:
    """The child process of `chord up` that serves the dashboard, as the parent sees it.

    The parent listens before it forks, so that no request of a browser is refused.

    Args:
        out: the output of the command.
        listen: HOST:PORT of the page. If this is the default and in use, the page gets a free port.
        is_demo: whether the page may write keys and control the peers.

    Raises:
        Failure: exit 2: the address cannot be used, or other machines would reach the page of a demonstration.

    Attributes:
        url: the URL of the page.
        pid: the process id; None while the process does not run.
        sides: the sides of the peers if the page may split the network; otherwise None.
    """

    def __init__(self, out: Out, listen: str, *, is_demo: bool) -> None:
        require_extra()
        self._host = split_address(listen)[0]
        self._listener = _listener(out, listen)
        if not is_loopback(self._listener):
            if is_demo:
                self._listener.close()
                hint = f"Listen on this machine only (--web {LISTEN}), and reach the page by a tunnel: ssh -L"
                what = f"--demo would let every host that reaches {listen} kill peers and write keys"
                raise Failure(what, hint, USAGE, "open_demo")
            out.note(f"every host that reaches {listen} can read all keys and values")
        self._is_demo = is_demo
        self._mine, self._its = socket.socketpair()
        self._mine.setblocking(False)
        self._orders = b""
        self.url = url_of(self._host, self._listener)
        self.pid: int | None = None
        self.sides = Sides() if is_demo else None

    @property
    def orders(self) -> int:
        """The file descriptor that becomes readable when the page has sent an order."""
        return self._mine.fileno()

    def close(self) -> None:
        """Close the sockets of the dashboard.

        A peer calls it after the fork, in its own process.
        """
        for file in (self._listener, self._mine, self._its):
            file.close()

    def start(self, nodes: Sequence[str], life_fds: tuple[int, int]) -> None:
        """Fork the process, which then serves the dashboard.

        Args:
            nodes: the addresses of entry nodes.
            life_fds: the read end and the write end of a pipe. The process ends when its parent closes the write end.
        """
        self.pid = os.fork()
        if self.pid:
            self._listener.close()
            self._its.close()
            return
        code = INTERNAL
        try:
            os.close(life_fds[1])
            self._mine.close()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._serve(nodes, life_fds[0])
            code = OK
        finally:
            os._exit(code)  # without the parent's clean-up

    def obey(self, do: Obey) -> None:
        """Carry out all orders that have arrived, and answer each.

        Args:
            do: carries out one order, and returns groups of names. Its `ValueError` becomes the answer.
        """
        with suppress(BlockingIOError, ConnectionError):
            self._orders += self._mine.recv(ORDER_BYTES_MAX)
        *lines, self._orders = self._orders.split(b"\n")
        for line in lines:
            order = json.loads(line)
            answer: Json = {}
            try:
                answer["groups"] = do(order["do"], order["nodes"], order["ring"])
            except ValueError as error:
                answer["error"] = str(error)
            with suppress(BlockingIOError, ConnectionError):
                self._mine.send(json.dumps(answer).encode() + b"\n")

    def ended(self) -> str:
        """Note that the process has ended, and say so.

        No page can heal the network any more, so this ends a split.
        """
        self.pid = None
        if self.sides is None or not self.sides.is_split:
            return "the dashboard has ended"
        self.sides.heal()
        return "the dashboard has ended, and the network is whole again"

    def _serve(self, nodes: Sequence[str], life_fd: int) -> None:
        import trio

        from chord.web.server import Control, DashboardOptions, serve_live

        async def run() -> None:
            control = Control(self._its) if self._is_demo else None
            options = DashboardOptions(self._host, may_write=self._is_demo, command="chord up --web", chaos=control)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve_live, self._listener, nodes, options, lambda: None)
                await trio.lowlevel.wait_readable(life_fd)
                nursery.cancel_scope.cancel()

        trio.run(run)


def next_peer(configs: Sequence[NodeConfig], is_free: Callable[[int], bool]) -> NodeConfig:
    """Return the configuration of a further peer.

    It has the next name and the next free port.

    Args:
        configs: the configurations of all peers so far.
        is_free: returns whether no process listens on a port.

    Raises:
        ValueError: no higher port is free.
    """
    port = 1 + max(int(config.listen.rpartition(":")[2]) for config in configs)
    while port <= PORT_MAX and not is_free(port):
        port += 1
    if port > PORT_MAX:
        raise ValueError("no port above those of the peers is free")
    name = next(n for i in range(10**6) if (n := f"n{i}") not in {config.name for config in configs})
    last = configs[-1]
    data_dir = None if last.data_dir is None else str(Path(last.data_dir).with_name(name))
    return structs.replace(last, name=name, listen=f"{HOST}:{port}", id=None, data_dir=data_dir, http=None)


def peer_called(configs: Iterable[NodeConfig], word: str) -> NodeConfig:
    """Return the configuration of the peer with a name or an address.

    Raises:
        ValueError: there is no such peer.
    """
    found = next((config for config in configs if word in (config.name, config.listen)), None)
    if found is None:
        raise ValueError(f"no peer is called {word[:SHOWN_MAX]!r}")
    return found


def change_network(
    sides: Sides,
    first: Collection[str],
    configs: Sequence[NodeConfig],
    *,
    running: Collection[str],
    ring: Collection[str],
) -> list[list[str]]:
    """Split the network or end the split, and return the names on each side.

    A node of another command would be on no side and reach both, so a ring with such a node is not split.

    Args:
        sides: the sides of the peers.
        first: the peers on the first side, by name or address. All others are on the second. Empty: end the split.
        configs: the configurations of all peers.
        running: the addresses of the peers with a process.
        ring: the addresses of the ring's nodes.

    Raises:
        ValueError: it is not possible; the message says why.
    """
    if not first:
        if not sides.is_split:
            raise ValueError("the network is not split")
        sides.heal()
        return []
    foreign = sorted(set(ring) - {config.listen for config in configs})
    if foreign:
        raise ValueError(f"{foreign[0]} is a node of another command, which this one cannot cut off")
    chosen = {peer_called(configs, word).listen for word in first}
    groups = [[config for config in configs if (config.listen in chosen) == is_first] for is_first in (True, False)]
    if not all(any(config.listen in running for config in group) for group in groups):
        raise ValueError("one side has no running peer; a split needs one on each")
    sides.split(*([config.listen for config in group] for group in groups))
    return [[config.name or "" for config in group] for group in groups]


def _listener(out: Out, listen: str) -> socket.socket:
    """Return the listening socket of the page."""
    try:
        return listen_on(listen)
    except Failure as failure:
        if listen != LISTEN or not isinstance(failure.__context__, OSError):
            raise
        if failure.__context__.errno != errno.EADDRINUSE:
            raise
        listener = listen_on(f"{split_address(listen)[0]}:0")
        out.note(f"port {split_address(listen)[1]} is in use; the dashboard takes {listener.getsockname()[1]}")
        return listener
