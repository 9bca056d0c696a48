"""`up`: a whole ring on this machine, one process per peer.

The parent stays in the foreground. It imports everything once and then forks, so all peers share the cost of one
import. The parent never runs Trio itself. All children hold the read end of one pipe and stop when the parent's end
closes. So no child outlives a killed parent.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from msgspec import structs

from chord.cli import failures
from chord.cli.check import examine
from chord.cli.dashboard import LISTEN
from chord.cli.failures import INTERNAL, INTERRUPTED, OK, TERMINATED, TIMEOUT, USAGE, Terminated, announcing, explain
from chord.cli.output import HOST, Failure, Out, counted
from chord.cli.settings import command_for, from_flags
from chord.cli.target import check_address, json_option, parse_id, statuses
from chord.client.blocking import connect
from chord.config import NodeConfig
from chord.errors import ChordError, ConfigError, OtherRing
from chord.views.nodes import up_json
from chord.wire.messages import Status

if TYPE_CHECKING:
    from chord.cli.up_split import Sides
    from chord.cli.up_web import DashboardChild

BASE_PORT = 9000
RANGES_TRIED = 50
POLL_S, STOP_S, PATIENCE_S = 0.05, 5.0, 30.0


class Child(NamedTuple):
    """The process of one peer: its process id, and the name and address of its node."""

    pid: int
    name: str
    address: str


def _parse_ids(context: click.Context, option: click.Parameter, text: str | None) -> list[int]:
    """Return the points of --ids; none if it is not given."""
    points = [parse_id(context, option, word) for word in text.split(",")] if text else []
    for number, point in enumerate(points):
        if point in points[:number]:
            raise click.BadParameter(f"{point} appears twice; each peer needs a point of its own")
    return [point for point in points if point is not None]


def _require_name(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Return the directory of --data, but refuse an empty name.

    An unset shell variable produces such a name. `Path` turns it into the current directory, so `--data .` is refused,
    too.
    """
    if path == Path() and context.get_parameter_source(option.name or "") == click.core.ParameterSource.COMMANDLINE:
        raise click.BadParameter("expected a directory other than the current one, such as: --data ring")
    return path


@click.command("up")
@click.option("-n", "count", type=click.IntRange(1, 512), help="Number of peers.  [default: 8, or that of --ids]")
@click.option("--vnodes", type=click.IntRange(1, 64), help="Number of vnodes of each peer.  [default: 1]")
@click.option("--bits", type=click.IntRange(3, 160), help="Width of an id: the circle has 2^BITS points.  "
              "[default: 160, or that of the ring to join]")
@click.option("--ids", metavar="N,N,…", callback=_parse_ids, help="Points of the peers, for examples: "
              "--bits 8 --ids 10,42,80")
@click.option("--successors", type=click.IntRange(1, 64), help="Number of other nodes that a successor list "
              "names.  [default: 8, or that of the ring to join]")
@click.option("--replicas", type=click.IntRange(1, 16), metavar="N", help="Number of copies of each record.  "
              "[default: 3, or that of the ring to join]")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), callback=_require_name,
              help="Keep the records and the identity of each peer in this directory, in a folder with its name.")
@click.option("--base-port", type=click.IntRange(1, 65535), help=f"Port of the first peer.  [default: {BASE_PORT}, or "
              "the next free range if a program other than a ring uses it]")
@click.option("--http-base-port", type=click.IntRange(1, 65535), metavar="PORT", help="Also serve /livez, /readyz and "
              "/metrics over HTTP: the first peer on this port, the others on the next ones. Needs chord[web].")
@click.option("--preset", type=click.Choice(["local", "lan", "wan"]), default="local", show_default=True,
              help="Periods and timeouts.")
@click.option("--members", type=click.Choice(["off", "on"]), default="off", show_default=True,
              help="Whether the peers keep a list of all members of the ring, and gossip about it.")
@click.option("--join", metavar="HOST:PORT", help="Add the peers to the ring of this node.")
@click.option("--web", is_flag=False, flag_value=LISTEN, metavar="[HOST:PORT]", help="Also start a dashboard.  "
              f"[default address: {LISTEN}]")
@click.option("--demo", is_flag=True, help="Let its page stop and start peers, split the network, and write keys.")
@json_option
def up_command(
    out: Out, count: int | None, vnodes: int | None, bits: int | None, ids: list[int], successors: int | None,
    replicas: int | None, data: Path | None, base_port: int | None, http_base_port: int | None, preset: str,
    members: str, join: str | None, web: str | None, demo: bool,
) -> int:
    """Run N local peers, one process each, until Ctrl-C.

    Prints one line when the ring is proven: every pointer is exact, and every point has one owner.

    Ctrl-C stops all peers. Peers that joined another ring with --join leave it: they hand over their keys, and a second
    Ctrl-C stops them at once. With --data they only stop and keep their places.
    """
    if demo and web is None:
        raise click.UsageError("--demo is about the page of a dashboard: add --web")
    if web is not None:
        check_address(web, may_choose_port=True)
    count = count or len(ids) or 8
    if ids and len(ids) != count:
        what = f"{counted(len(ids), 'id')} for {counted(count, 'peer')}"
        raise Failure(what, "Give one id for each peer", USAGE, "usage")
    began = time.monotonic()
    existing = _existing(join) if join is not None else []
    taken = {node.name for node in existing}
    names = [name for i in range(count + len(taken)) if (name := f"n{i}") not in taken][:count]
    flags = {"vnodes": vnodes, "bits": bits, "successors": successors, "replicas": replicas, "preset": preset,
             "members": members}
    if join is not None:
        flags |= _constants_of(existing[0], join, flags)
    from_flags(flags)  # a wrong option is an error before any port is tried
    port = _choose_ports(out, count, base_port, is_joining=join is not None)
    configs = []
    for i, name in enumerate(names):
        address = f"{HOST}:{port + i}"
        entry = join or (f"{HOST}:{port}" if i else None)
        own = {"name": name, "listen": address, "join": (entry,) if entry else (),
               "http": f"{HOST}:{http_base_port + i}" if http_base_port else None,
               "id": ids[i] if ids else None, "data_dir": str(data / name) if data is not None else None}
        configs.append(from_flags({**flags, **own}))  # flags only: a chord.toml configures one node
    _require_same(configs)
    # Peers that have data directories resume together. The first peer creates a new ring, and the others join it.
    is_new = data is None or not any(data.glob("n*/*"))
    dashboard = None
    if web is not None:
        from chord.cli.up_web import DashboardChild

        dashboard = DashboardChild(out, web, is_demo=demo)
    family = _Family(
        out, configs, began, has_founder=join is None and is_new, leaves=join is not None, dashboard=dashboard
    )
    return family.run()


class _Family:
    """The parent process: starts peers, waits until the ring is proven, stops them.

    A ring is proven when all peers are ready, and a snapshot of all nodes shows it Ideal and without a broken
    invariant; see `chord.cli.check.examine`. The parent then prints its ready line.

    Args:
        out: the output of the command.
        configs: the configuration of each peer.
        began: when the command began, on the monotonic clock.
        has_founder: whether the first peer founds the ring. If so, the others start when it is ready, otherwise all
            start at once.
        leaves: whether the peers get SIGTERM in the end and time to leave. Peers with data directories then stop
            without a leave. False: all peers stop without a leave.
        dashboard: the dashboard to start when the ring is proven; default: none.
    """

    def __init__(
        self, out: Out, configs: list[NodeConfig], began: float, *, has_founder: bool, leaves: bool,
        dashboard: DashboardChild | None = None,
    ) -> None:
        self._out = out
        self._configs = configs
        self._began = began
        self._has_founder = has_founder
        self._leaves = leaves
        self._dashboard = dashboard
        self._sides = None if dashboard is None else dashboard.sides
        self._life_read, self._life_write = os.pipe()
        self._news_read, self._news_write = os.pipe()
        self._news = b""
        self._children: dict[int, Child] = {}
        self._ready: set[str] = set()
        self._stopping = False
        self._is_announced = False
        self._signals: list[int] = []  # received, but not handled yet
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)

    def run(self) -> int:
        """Run the peers until Ctrl-C, SIGTERM, or until no child is left.

        The handler of SIGINT is always installed. A shell script starts `chord up &` with SIGINT ignored, and kill -INT
        would otherwise have no effect.

        Returns:
            The exit code: 130 after SIGINT, 143 after SIGTERM before the ready line, otherwise 0.

        Raises:
            Failure: exit 2: a peer did not start. Exit 5: the ring was not proven in time.
        """
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGINT, self._note)
        try:
            from chord.cli import serve  # imported before the forks, so that the children share it

            assert serve
            gc.collect()
            gc.freeze()
            first = 1 if self._has_founder else len(self._configs)
            for config in self._configs[:first]:
                self._fork(config)
            self._await_ready(first)  # the other peers need a member to join
            for config in self._configs[first:]:
                self._fork(config)
            self._await_ready(len(self._configs))
            self._await_proof()
            self._pause()
            if self._dashboard is not None:
                entries = [config.listen for config in self._configs[:3]]
                self._dashboard.start(entries, (self._life_read, self._life_write))
            self._announce()
            self._pause()
            while self._children or (self._dashboard is not None and self._dashboard.pid):
                self._reap()
                if self._dashboard is None or self._dashboard.pid is None:
                    self._pause(4 * POLL_S)
                elif self._pause(4 * POLL_S, self._dashboard.orders):
                    self._dashboard.obey(self._do)
            self._out.note("no peer is left")
            return OK
        except (KeyboardInterrupt, Terminated) as end:
            return self._end(is_interrupt=isinstance(end, KeyboardInterrupt))
        finally:
            self._stop()

    def _note(self, number: int, frame: object) -> None:
        """Record a signal, and end the wait of `_pause`.

        The handler does not raise. It may run between any two instructions, also in a lock, an import or a destructor.
        """
        self._signals.append(number)
        with suppress(BlockingIOError):
            os.write(self._wake_write, b".")

    def _pause(self, seconds: float = 0.0, *more: int) -> bool:
        """Wait for a signal or for a readable file; return whether a file is readable.

        Args:
            seconds: the longest wait; 0: only look.
            more: the descriptors of the files.

        Raises:
            KeyboardInterrupt: SIGINT has arrived.
            Terminated: SIGTERM has arrived.
        """
        readable = select.select([self._wake_read, *more], [], [], seconds)[0]
        if self._wake_read in readable:
            os.read(self._wake_read, 1 << 16)
        if self._signals:
            raise KeyboardInterrupt if self._signals.pop(0) == signal.SIGINT else Terminated
        return any(file in readable for file in more)

    def _end(self, *, is_interrupt: bool) -> int:
        """Stop all peers, report how they ended, and return the exit code.

        SIGTERM is the normal way to stop a ring that is ready, so the exit code is then 0. `is_interrupt` says that the
        signal was SIGINT.
        """
        members = len(self._ready)
        if self._leaves:
            self._leave()
        self._stop()
        what = "interrupted" if is_interrupt else "terminated"
        if not self._is_announced:
            end = f"before the ring was ready: {members} of {len(self._configs)} peers were in it; all are stopped"
        elif self._leaves:
            end = "the peers have ended"
        elif any(config.data_dir for config in self._configs):
            end = "the peers are stopped; the same command with the same --data starts them again with their records"
        else:
            end = "the peers are stopped; their records were in memory and are gone"
        self._out.note(f"{what}{'; ' if self._is_announced else ' '}{end}")
        if is_interrupt:
            return INTERRUPTED
        return OK if self._is_announced else TERMINATED

    def _leave(self) -> None:
        """Send SIGTERM to each peer, and wait until all have ended.

        A peer with a data directory stops, and any other peer leaves. A further signal or a deadline ends the wait.
        """
        timing = self._configs[0].timing
        deadline = time.monotonic() + timing.leave_s + timing.drain_s + STOP_S
        with suppress(KeyboardInterrupt, Terminated):
            for pid in self._children:
                os.kill(pid, signal.SIGTERM)
            while self._children and time.monotonic() < deadline:
                self._reap()
                self._pause(POLL_S)

    def _fork(self, config: NodeConfig) -> None:
        self._pause()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        pid = os.fork()
        if pid:
            self._children[pid] = Child(pid, config.name or "", config.listen)
            return
        code = INTERNAL
        try:
            os.close(self._life_write)
            os.close(self._news_read)
            if self._dashboard is not None:
                self._dashboard.close()
            code = _child(config, self._life_read, self._news_write, self._out, self._sides)
        finally:
            if sys.exc_info()[0] is not None:
                traceback.print_exc()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)  # without the parent's clean-up

    def _do(self, what: str, words: list[str], ring: list[str]) -> list[list[str]]:
        """Carry out an order of the dashboard on peers; see `Obey`.

        Raises:
            ValueError: it is not possible; the message says why.
        """
        from chord.cli.up_web import SIGNALS, change_network, next_peer, peer_called

        self._reap()
        assert self._sides is not None
        running = {child.address: pid for pid, child in self._children.items()}
        if what in ("partition", "heal"):
            others = [*ring, *self._configs[0].join]  # with --join, that of a node of another command
            return change_network(self._sides, words, self._configs, running=running, ring=others)
        if what == "join":
            peer = next_peer(self._configs, lambda port: _refusal(port) is None)
            self._configs.append(peer)
            self._sides.place(peer.listen)
        else:
            peer = peer_called(self._configs, words[0])
        pid = running.get(peer.listen)
        if (pid is None) != (what in ("start", "join")):
            raise ValueError(f"{peer.name} {'does not run' if pid is None else 'runs already'}")
        if pid is not None:
            os.kill(pid, SIGNALS[what])
        else:  # the founder must join its ring, too
            self._fork(structs.replace(peer, join=self._sides.near(peer.listen, [*running])[:3]))
        return [[peer.name or ""]]

    # -- until the ring is proven -------------------------------------------------------------------

    def _deadline(self) -> float:
        return self._began + PATIENCE_S + len(self._configs)

    def _await_ready(self, count: int) -> None:
        with self._out.progress("peers in the ring", len(self._configs)) as show:
            while len(self._ready) < count:
                self._read_news()
                self._reap(is_starting=True)
                show(len(self._ready))
                if time.monotonic() > self._deadline():
                    waiting = [c.name for c in self._children.values() if c.name not in self._ready]
                    raise Failure(f"not in the ring yet: {', '.join(waiting)}", "Try fewer peers", TIMEOUT, "timeout")

    def _read_news(self) -> None:
        if not self._pause(POLL_S, self._news_read):
            return
        self._news += os.read(self._news_read, 1 << 16)
        *lines, self._news = self._news.split(b"\n")
        self._ready.update(json.loads(line) for line in lines)

    def _await_proof(self) -> None:
        entry = self._configs[0].listen
        with self._out.progress("proving the ring") as show:
            step = 0
            while True:
                self._reap(is_starting=True)
                why = self._why_not_proven(entry)
                if why is None:
                    return
                step += 1
                show(step)
                if time.monotonic() > self._deadline():
                    raise Failure(f"the ring is not proven: {why}", "See: chord check", TIMEOUT, "timeout")
                self._pause(POLL_S)

    def _why_not_proven(self, entry: str) -> str | None:
        """Return why the ring is not proven Ideal, or None if it is.

        A thread examines the ring, so that a signal can end the wait.
        """
        found: list[str | None] = []

        def look() -> None:
            try:
                with connect(entry, timeout_s=PATIENCE_S) as client:
                    verdict = examine(client)
                missing = [*verdict.violations, *verdict.waiting]
                found.append(missing[0].text if missing else None)
            except (ChordError, Failure) as error:
                found.append(error.message)

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        while thread.is_alive():
            self._pause(POLL_S / 5)
        return found[0]

    def _announce(self) -> None:
        self._is_announced = True
        seconds = time.monotonic() - self._began
        children = sorted(self._children.values(), key=lambda c: [f.name for f in self._configs].index(c.name))
        if self._out.as_json:
            with announcing():
                url = None if self._dashboard is None else self._dashboard.url
                self._out.json(up_json(seconds, [(c.name, c.address, c.pid) for c in children], url))
            return
        ports = f"{children[0].address}" + (f"-{children[-1].address.rpartition(':')[2]}" if len(children) > 1 else "")
        peers = counted(len(children), "peer")
        leave = self._leaves and not any(config.data_dir for config in self._configs)
        end = "Ctrl-C: they hand over and leave the ring." if leave else "Ctrl-C stops them all."
        with announcing():
            self._out.line(f"ready: {peers} on {ports}, ring proven in {seconds:.1f} s. {end}")
            if self._dashboard is not None:
                self._out.line(f"dashboard: {self._dashboard.url}")
            self._out.flush()

    # -- afterwards -----------------------------------------------------------------------------------

    def _reap(self, *, is_starting: bool = False) -> None:
        while self._children or (self._dashboard is not None and self._dashboard.pid):
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if self._dashboard is not None and pid == self._dashboard.pid:
                self._out.note(self._dashboard.ended())
            child = self._children.pop(pid, None)
            if child is None or self._stopping:
                continue
            code = os.waitstatus_to_exitcode(status)
            if is_starting and code != OK:
                hint = "See its message above" if code > 0 else "Start again"
                raise Failure(f"{child.name} {child.address} did not start (exit {code})", hint, USAGE, "no_start")
            config = next(config for config in self._configs if config.name == child.name)
            self._out.note(f"{child.name} {child.address} {failures.end_of_peer(code, command_for(config))}")

    def _stop(self) -> None:
        """Close the pipe that keeps the children alive, and wait for them.

        After `STOP_S` seconds the remaining children are killed. Later calls do nothing.
        """
        if self._stopping:
            return
        self._stopping = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.close(self._life_write)
        if self._dashboard is not None:
            if self._dashboard.pid:
                self._children[self._dashboard.pid] = Child(self._dashboard.pid, "dashboard", self._dashboard.url)
                self._dashboard.pid = None
            for pid in self._children:
                os.kill(pid, signal.SIGCONT)  # the page may have frozen it
        deadline = time.monotonic() + STOP_S
        while self._children and time.monotonic() < deadline:
            self._reap()
            time.sleep(POLL_S)
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        for pid in self._children:
            os.waitpid(pid, 0)


def _child(config: NodeConfig, life_fd: int, news_fd: int, out: Out, sides: Sides | None) -> int:
    from chord.cli.serve import serve
    from chord.node import Node
    from chord.node.world import connect_by_tcp

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with suppress(OSError):  # so that ps, top and pgrep tell the peers apart
        Path("/proc/self/comm").write_text(f"chord {config.name}", encoding="utf-8")

    def on_ready(node: Node, how: str) -> None:
        os.write(news_fd, json.dumps(node.name).encode() + b"\n")

    try:
        return serve(config, on_ready, life_fd=life_fd, connect=sides.connect if sides else connect_by_tcp)
    except Failure as failure:
        out.failure(failure)
        return failure.exit_code


def _require_same(configs: list[NodeConfig]) -> None:
    """Refuse to start if a data directory belongs to another ring.

    All directories are checked before any is created.

    Raises:
        Failure: exit 2: a directory contradicts the options, or its identity file cannot be read.
    """
    from chord.node.restart import require_same_on_disk

    for config in configs:
        if config.data_dir is not None:
            try:
                require_same_on_disk(config)
            except ConfigError as error:
                raise explain(error, config.listen) from error


def _existing(join: str) -> list[Status]:
    check_address(join)
    try:
        with connect(join) as client:
            return statuses(client.members())
    except ChordError as error:
        raise explain(error, join, option="--join") from error


def _constants_of(ring: Status, join: str, flags: dict[str, int | str | None]) -> dict[str, int | str]:
    """Return the constants of the ring that the peers join.

    Raises:
        Failure: exit 2: a flag asks for another value of a constant.
    """
    for name in ("bits", "successors", "replicas"):
        wish, has = flags[name], getattr(ring, name)
        if wish not in (None, has):
            hint = f"All nodes of a ring have the same {name}; leave --{name} out"
            raise Failure(f"{join} has {name} {has}, --{name} asks for {wish}", hint, USAGE, OtherRing.word)
    return {"bits": ring.bits, "successors": ring.successors, "replicas": ring.replicas, "cluster": ring.cluster}


def _choose_ports(out: Out, count: int, base_port: int | None, *, is_joining: bool) -> int:
    """Return the first port of a free range with `count` ports.

    Args:
        out: the output of the command, for a note if the default range is busy.
        count: the number of ports.
        base_port: the first port. If one of the ports is busy, this is an error. None: the default range, or the next
            free one if that is busy.
        is_joining: whether the peers join a ring. Otherwise a default range that a ring uses is an error.

    Raises:
        Failure: exit 2: there is no such range.
    """
    first = base_port or BASE_PORT
    if first + count > 65536:
        what = f"{counted(count, 'peer')} do not fit in the ports from {first} to 65535"
        raise Failure(what, "Choose a lower --base-port", USAGE, "listen")
    busy, why = next(((port, why) for port in range(first, first + count) if (why := _refusal(port))), (0, None))
    if why is None:
        return first
    if why.errno == errno.EACCES:
        hint = "Ports below 1024 are reserved. Choose a higher one: --base-port PORT"
        raise Failure(f"cannot listen on {HOST}:{busy} (permission denied)", hint, USAGE, "listen")
    if base_port is not None:
        hint = "Choose another --base-port"
        raise Failure(f"port {busy} is in use", hint, USAGE, "listen")
    if not is_joining and _is_ring(busy):
        hint = f"Enlarge it: chord up --join {HOST}:{busy}; or start another: --base-port PORT"
        raise Failure(f"a ring is running at {HOST}:{busy} already", hint, USAGE, "running")
    for i in range(1, RANGES_TRIED):
        moved = first + i * max(count, 100)
        if moved + count < 65536 and not any(map(_refusal, range(moved, moved + count))):
            out.note(f"port {busy} is in use; using {moved} and up: export CHORD_NODE={HOST}:{moved}")
            return moved
    raise Failure("no free range of ports was found", "Name one: --base-port PORT", USAGE, "listen")


def _refusal(port: int) -> OSError | None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return error
    return None


def _is_ring(port: int) -> bool:
    try:
        with connect(f"{HOST}:{port}", timeout_s=1.0):
            return True
    except ChordError:
        return False
