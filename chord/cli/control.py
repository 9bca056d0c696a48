"""`leave`, `kill`, `forget` and `version`: commands on one node."""

from __future__ import annotations

import ipaddress
import os
import platform
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click

import chord
from chord.cli.failures import OK, TIMEOUT, USAGE, explain
from chord.cli.output import Failure, Out, counted
from chord.cli.processes import listener_at, lists_listeners
from chord.cli.target import (
    Target,
    choose,
    find_node,
    is_address,
    is_meant,
    json_option,
    ring_options,
    statuses,
    who_left,
)
from chord.client.blocking import Client
from chord.client.operations import addresses_in, contacts_in
from chord.config import PROTOCOL_VERSION, split_address
from chord.errors import NO_REPLY, ChordError
from chord.views.common import named_address, names_of, names_of_peers
from chord.views.nodes import leave_json, removal_json, signal_json, version_json
from chord.wire.messages import Status

POLL_S = 0.1
MEMBERS = ("ready", "degraded")


@click.command("leave")
@click.argument("node")
@click.option("--force", is_flag=True, help="Leave even if NODE is the last node; its keys are then lost.")
@ring_options(30.0)
def leave_command(target: Target, node: str, force: bool) -> int:
    """Make NODE hand over its keys and leave the ring; wait until it has left.

    The last node of a ring is refused without --force, because no other node can take its keys. If too few other nodes
    are up to hold its keys, NODE ends without leaving, and the exit code is 5. With a data directory it keeps them, and
    returns when it is started again.
    """
    out = target.out
    began = time.monotonic()
    with target.connect() as client:
        leaver = find_node(client, node).node
        nodes = statuses(client.members())
        others = [n.address for n in nodes if n.address != leaver.address and n.state in MEMBERS]
        if not others and not force:
            keys = counted(leaver.keys, "key")
            hint = f"Its data ({keys}) would be lost; to end the ring nevertheless: --force"
            raise Failure(f"{leaver.name} is the last node that answers", hint, USAGE, "last_node")
        client.decommission(leaver.address)
        with out.progress(f"{leaver.name} leaves, keys left") as show:
            final = _wait_until_gone(client, leaver, began + target.timeout_s, show)
        if not _has_left(client, leaver, final, others):
            hint = "If it has a data directory, it keeps its keys: start it again, or see: chord members"
            what = f"{leaver.name} has ended, but could not leave: no node took its keys"
            raise Failure(what, hint, TIMEOUT, "not_left")
    seconds = time.monotonic() - began
    if out.as_json:
        out.json(leave_json(leaver, seconds))
    else:
        out.line(f"{leaver.name} {leaver.address} has left in {seconds:.1f} s")
    return OK


def _wait_until_gone(
    client: Client, leaver: Status, deadline: float, show_keys: Callable[[int], None]
) -> Status:
    """Poll a leaving node until it no longer answers, or another process answers.

    Args:
        leaver: the status of the node before the leave.
        deadline: limit on the monotonic clock, in seconds.
        show_keys: callback for the number of keys that the node still has.

    Returns:
        The last status from the address, which may be that of another process; `leaver` if there was no answer.

    Raises:
        Failure: exit 5: the node still answers at the deadline.
    """
    last = leaver
    while time.monotonic() < deadline:
        try:
            last = client.status(leaver.address)
        except ChordError:
            return last
        if last.incarnation != leaver.incarnation or last.pid != leaver.pid:
            return last
        show_keys(last.keys)
        time.sleep(POLL_S)
    hint = "It goes on by itself; watch it: chord status"
    raise Failure(f"{leaver.name} has not left yet", hint, TIMEOUT, "timeout")


def _has_left(client: Client, leaver: Status, final: Status, others: list[str]) -> bool:
    """Return whether a node that has ended has left the ring, not only stopped.

    It has left if it said so, or if other nodes received its goodbye. A node that was alone in its ring has no peer to
    say goodbye to, and has left. A node that lost contact with its peers has not left.

    Args:
        leaver: the status of the node before the leave.
        final: the last status from its address.
        others: the addresses of the other members that answered before the leave.
    """
    if final.incarnation != leaver.incarnation or any(vnode.state == "left" for vnode in final.vnodes):
        return True  # a node that returns after a leave has a new incarnation
    if not others:
        near = [c for v in leaver.vnodes for c in (*v.successors, *v.predecessors)]
        is_isolated = any(vnode.is_isolated for vnode in leaver.vnodes)
        return not is_isolated and all(contact.address == leaver.address for contact in near)
    seen = statuses(client.members(only=others))
    return any(peer.address == leaver.address and peer.state == "left" for node in seen for peer in node.peers)


@click.command("kill")
@click.argument("node")
@click.option("--signal", "signal_", default="TERM", show_default=True, metavar="SIG",
              help="Number or name of the signal: 9, KILL, STOP, …")
@ring_options()
def kill_command(target: Target, node: str, signal_: str) -> int:
    """Send a signal to NODE's process, to see how the ring reacts.

    NODE's address must be loopback (127.0.0.1 and the like) or localhost. TERM lets the node leave; with a data
    directory it only stops. 9 is a crash. STOP stops it until CONT.
    """
    number = _signal(signal_)
    with target.connect() as client:
        victim = _find_process(client, node)
    _refuse_other_machine(victim.name, victim.address)
    _refuse_other_program(victim)
    try:
        os.kill(victim.pid, number)
    except ProcessLookupError:
        hint = "It may be in another container, or have ended already"
        raise Failure(f"{victim.name} has process {victim.pid}, which is not here", hint, USAGE, "no_process") from None
    except PermissionError:
        hint = "Run the command as the user that started it"
        raise Failure(f"process {victim.pid} of {victim.name} is not yours", hint, USAGE, "no_permission") from None
    if target.out.as_json:
        target.out.json(signal_json(*victim, int(number)))
    else:
        target.out.line(f"sent {number.name} to {victim.name} {victim.address} (process {victim.pid})")
        if number in (signal.SIGSTOP, signal.SIGTSTP):  # it no longer tells its process id
            target.out.note(f"It is stopped until: kill -CONT {victim.pid}")
    return OK


@click.command("forget")
@click.argument("node", metavar="NODE")
@ring_options()
def forget_command(target: Target, node: str) -> int:
    """Give up NODE, which is unreachable and will never return: a name, HOST:PORT or an id.

    The ring stops waiting for the node. Other nodes make new copies of its records at once, and records that only it
    held are given up. If another node runs at HOST:PORT now, the command gives up the former node there. The command
    informs every node that answers.
    """
    out = target.out
    with target.connect() as client:
        address = node if is_address(node) else _find(client, node).address
        nodes = statuses(client.members())
        if not any(address in addresses_in(n) or address in {p.address for p in n.peers} for n in nodes):
            hint = "See the known nodes: chord members"
            raise Failure(f"no node of the ring knows {address}", hint, USAGE, "no_such_node")
        result = client.remove_node(address)
    reported, failures = list(result.ok), result.errors
    if out.as_json:
        out.json(removal_json(address, reported, failures))
    else:
        shown = named_address(address, names_of_peers(nodes))
        out.line(f"{shown} is forgotten by {len(reported)} of {counted(len(result), 'node')}")
    for at, error in failures.items():
        out.note(f"{at}: {error.message}")
    if failures:
        worst = explain(next(iter(failures.values())), target.nodes[0])
        what = f"{len(failures)} of {counted(len(result), 'node')} still wait for {address}"
        raise Failure(what, "Repeat the command", worst.exit_code, worst.code)
    return OK


class _Found(NamedTuple):
    """A node of the ring, unreachable or not.

    Attributes:
        name: its name; its address if no node knows its name.
        address: its address.
        status: its answer; None: it is unreachable.
        namesakes: the addresses of unreachable nodes with the name of this node, which answers.
    """

    name: str
    address: str
    status: Status | None
    namesakes: frozenset[str] = frozenset()


class _Process(NamedTuple):
    """The process of a node: the name and the address of the node, and the process id."""

    name: str
    address: str
    pid: int


def _find_process(client: Client, word: str) -> _Process:
    """Return the process of the node that a word names.

    A stopped node does not tell its process id. So its process is found by the address at which it listens.

    Raises:
        Failure: exit 2: the word names no node, or more than one, or the node is unreachable and has no process here.
        ChordError: the entry node does not answer.
    """
    found = _find_at(client, word) if is_address(word) else _find(client, word)
    if found.namesakes:
        alike = sorted({found.address, *found.namesakes})
        hint = f"Name one by its address: {', '.join(alike)}"
        raise Failure(f"{len(alike)} nodes of the ring are called {word!r}", hint, USAGE, "ambiguous_node")
    if found.status is not None:
        return _Process(found.name, found.address, found.status.pid)
    _refuse_other_machine(found.name, found.address)
    pid = listener_at(found.address)
    if pid is None:
        where = f"{found.name} at {found.address}" if found.name != found.address else found.address
        if lists_listeners():
            why, else_ = "no process of yours listens there", "runs as another user"
        else:
            why, else_ = "this system does not list the listeners of its processes", "runs"
        hint = f"It may have ended; if it {else_}, look up its process id, and send the signal with kill"
        raise Failure(f"{where} does not answer, and {why}", hint, USAGE, "no_process")
    return _Process(found.name, found.address, pid)


def _find_at(client: Client, address: str) -> _Found:
    """Return the node at an address. A node that does not answer soon counts as unreachable."""
    asked = client.members(only=[address])
    for status in asked.ok.values():
        return _Found(status.name, address, status)
    for error in asked.errors.values():
        if not isinstance(error, NO_REPLY):
            raise error
    return _Found(address, address, None)


def _find(client: Client, word: str) -> _Found:
    """Return the node that a word names, unreachable or not. The word is no address.

    If the word is an id or the name of exactly one unreachable node, that node is meant. Only other nodes know the ids
    and names of unreachable nodes. A node that answers keeps its name for itself. If the word means no unreachable
    node, it names a node that answers, as for `choose`.

    Raises:
        Failure: exit 2: the word names no node, or more than one.
    """
    crawl = client.members()
    nodes = statuses(crawl)
    contacts = dict.fromkeys(contact for node in nodes for contact in contacts_in(node))
    unreachable = [contact for contact in contacts if contact.address not in crawl.ok]
    meant = {c.address for c in unreachable if is_meant(word, nodes[0].bits, c.id)}
    names, left = names_of_peers(nodes), who_left(nodes)
    called = frozenset(at for at, name in names.items() if name == word and at not in crawl.ok and at not in left)
    if not meant and word not in names_of(nodes).values():
        meant = set(called)
    if len(meant) == 1:
        address = meant.pop()
        return _Found(names.get(address, address), address, None)
    node = choose(word, nodes).node
    return _Found(node.name, node.address, node, called if node.name == word else frozenset())


@click.command("version")
@json_option
def version_command(out: Out) -> int:
    """Print the version of the package, of its protocol and of Python, and whether the package is compiled."""
    from chord.wire.cbor import IS_COMPILED

    python = platform.python_version()
    if out.as_json:
        out.json(version_json(chord.__version__, PROTOCOL_VERSION, python, is_compiled=IS_COMPILED))
    else:
        words = ", compiled" if IS_COMPILED else ""
        out.line(f"chord {chord.__version__} (protocol {PROTOCOL_VERSION}, Python {python}{words})")
    return OK


def _signal(text: str) -> signal.Signals:
    try:
        return signal.Signals(int(text)) if text.isdigit() else signal.Signals[f"SIG{text.upper().removeprefix('SIG')}"]
    except (ValueError, KeyError):
        raise Failure(f"there is no signal {text!r}", "Try 9, 15 or STOP", USAGE, "usage") from None


def _refuse_other_machine(name: str, address: str) -> None:
    """Refuse a node with an address that is not loopback.

    Raises:
        Failure: exit 2: the node may be on another machine.
    """
    host, _ = split_address(address)
    try:
        is_here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = False
    if not is_here:
        hint = "Send the signal on that machine"
        raise Failure(f"{name} runs at {address}, not on this machine's loopback", hint, USAGE, "elsewhere")


def _refuse_other_program(node: _Process) -> None:
    """Refuse a process that is not a chord node.

    A node reports its process id itself, so the id may be wrong or belong to another machine. An id without a process
    passes, because the signal then fails with a message of its own.

    Raises:
        Failure: exit 2: the process is not a chord node.
    """
    try:
        is_chord = b"chord" in Path(f"/proc/{node.pid}/cmdline").read_bytes()
    except OSError:
        is_chord = True  # no such process, which os.kill reports, or no /proc on this system
    if node.pid <= 1 or not is_chord:
        hint = "Look at the process before you send it a signal"
        raise Failure(f"process {node.pid}, named by {node.name}, is not a chord node", hint, USAGE, "not_chord")
