"""The ring that a command talks to, and the node that a word names."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from chord.cli.failures import UNREACHABLE, USAGE, explain
from chord.cli.numbers import Seconds
from chord.cli.output import DEFAULT_NODE, Failure, Out
from chord.client.results import BatchResult
from chord.config import split_address
from chord.errors import NO_REPLY, ChordError, ConfigError, PeerUnreachable
from chord.ids import Circle
from chord.wire.messages import Status, VnodeInfo

if TYPE_CHECKING:
    from chord.client.blocking import Client

PREFIX_MIN = 3  # hexadecimal digits; a shorter word may mean something else

F = TypeVar("F", bound=Callable[..., Any])


class Target(NamedTuple):
    """The ring that a command talks to, and the output of the command.

    Attributes:
        nodes: the addresses of the entry nodes; at least one.
        timeout_s: the time limit of each operation, in seconds.
        out: the output.
    """

    nodes: tuple[str, ...]
    timeout_s: float
    out: Out

    @contextmanager
    def connect(self) -> Iterator[Client]:
        """Connect to the ring, and yield the client to the `with` block.

        Raises:
            Failure: no entry node answers, or the block raised a `ChordError`. The hint names the first entry node.
        """
        from chord.client.blocking import connect  # a node needs no blocking client

        try:
            with connect(*self.nodes, timeout_s=self.timeout_s) as client:
                yield client
        except ChordError as error:
            raise explain(error, self.nodes[0]) from error


def ring_options(default_timeout_s: float = 5.0) -> Callable[[F], F]:
    """Return a decorator that gives a command the options --node, --timeout and --json.

    The command gets them as its first argument, a `Target`. `default_timeout_s` is the default of --timeout, in
    seconds.
    """

    def decorate(function: F) -> F:
        @click.option("--node", "nodes", multiple=True, envvar="CHORD_NODE", metavar="HOST:PORT",
                      help="Entry node of the ring; repeat it to name alternatives.  [default: CHORD_NODE, or "
                      f"{DEFAULT_NODE}]")
        @click.option("--timeout", type=Seconds(0.001, 86400), default=default_timeout_s, show_default=True,
                      metavar="S", envvar="CHORD_TIMEOUT", help="Give up after this many seconds; also CHORD_TIMEOUT.")
        @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
        @functools.wraps(function)
        def wrapper(*args: Any, nodes: tuple[str, ...], timeout: float, as_json: bool, **kwargs: Any) -> Any:
            for node in nodes:
                check_address(node)
            return function(Target(nodes or (DEFAULT_NODE,), timeout, Out(as_json)), *args, **kwargs)

        return wrapper  # type: ignore[return-value]

    return decorate


def with_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that gives a command several options, shown in this order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def json_option(function: F) -> F:
    """Give a command that needs no ring the option --json.

    The command gets an `Out` as its first argument.
    """

    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @functools.wraps(function)
    def wrapper(*args: Any, as_json: bool, **kwargs: Any) -> Any:
        return function(Out(as_json), *args, **kwargs)

    return wrapper  # type: ignore[return-value]


def check_address(text: str, *, may_choose_port: bool = False) -> str:
    """Return an address unchanged if it is HOST:PORT.

    Args:
        text: the address.
        may_choose_port: whether port 0, which stands for any free port, is valid.

    Raises:
        Failure: exit 2: the address is not valid.
    """
    try:
        port = split_address(text)[1]
    except ConfigError as error:
        scheme, slashes, rest = text.partition("://")
        hint, place = "Write it like 127.0.0.1:9000", rest.partition("/")[0]
        if slashes and is_address(place):
            hint = f"Leave {scheme}:// out: {place}"
        elif slashes:
            hint = f"Leave {scheme}:// out, and write host and port, like 127.0.0.1:9000"
        elif "," in text and all(is_address(part) for part in text.split(",")):
            hint = "Repeat the option for each address; CHORD_NODE has spaces between them"
        raise Failure(error.message, hint, USAGE, "usage") from None
    if port == 0 and not may_choose_port:
        hint = "Name the port that the node printed when it was ready, as in 127.0.0.1:9000"
        raise Failure(f"{text} is not the address of a node: no node listens on port 0", hint, USAGE, "usage")
    return text


def is_address(text: str) -> bool:
    """Return whether a word has the form HOST:PORT, with a port other than 0."""
    try:
        return split_address(text)[1] > 0
    except ConfigError:
        return False


class Chosen(NamedTuple):
    """The node that a word of the user names.

    Attributes:
        node: the status of the node.
        vnode: the vnode, if the word is an id; otherwise None.
    """

    node: Status
    vnode: VnodeInfo | None


def statuses(crawl: BatchResult[str, Status]) -> list[Status]:
    """Return the nodes that answered `Client.members`, sorted by name (n2 before n10)."""
    return sorted(crawl.ok.values(), key=lambda node: natural(node.name))


def unreachable_nodes(crawl: BatchResult[str, Status]) -> dict[str, ChordError]:
    """Return the known nodes that did not answer `Client.members`: the error of each, by address.

    A node that has left the ring is not among them.
    """
    waited_for = {contact.address for node in crawl.ok.values() for contact in node.known} - who_left(crawl.ok.values())
    return {at: outcome for at in waited_for if isinstance(outcome := crawl.get(at), NO_REPLY)}


def who_left(nodes: Iterable[Status]) -> set[str]:
    """Return the addresses of the nodes that have left the ring, as far as the given nodes know."""
    return {peer.address for node in nodes for peer in node.peers if peer.state == "left"}


def parse_id(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """Return the point that the text of an option gives, in decimal or as 0xHEX; None if the option is not given.

    Args:
        ctx, param: the command and the option, for the error.
        text: the text; None if the option is not given.

    Raises:
        click.BadParameter: the text is not such a number.
    """
    point = None if text is None else to_number(text)
    if text is not None and point is None:
        raise click.BadParameter(f"{text!r} is neither a decimal number nor 0xHEX", ctx, param)
    return point


def natural(text: str) -> list[tuple[str, int]]:
    """Return a key to sort names by, which puts n2 before n10."""
    words = re.split("([0-9]+)", text)  # words and numbers alternate; a word is first
    return [(word, int(number)) for word, number in zip(words[::2], [*words[1::2], "-1"], strict=True)]


def choose(word: str, nodes: Iterable[Status]) -> Chosen:
    """Return the node that a word names: by its name, its address, or an id of its vnodes.

    These are tried in this order. An id is decimal or 0xHEX. It may also be shortened as tables show it, 8f3a…c21d or
    only its beginning, if exactly one id fits.

    Args:
        word: the word.
        nodes: the status of each node to choose from.

    Raises:
        Failure: exit 2: the word names no node, or more than one.
    """
    known = list(nodes)
    point = to_number(word)
    meant = [
        *(Chosen(n, None) for n in known if n.name == word),
        *(Chosen(n, None) for n in known if n.address == word),
        *(Chosen(n, v) for n in known for v in n.vnodes if point is not None and v.contact.id == point),
    ]
    alike = sorted({node.address for node in known if node.name == word})
    if len(alike) > 1:
        hint = f"Name one by its address: {', '.join(alike)}"
        raise Failure(f"{len(alike)} nodes of the ring are called {word!r}", hint, USAGE, "ambiguous_node")
    if meant:
        return meant[0]
    meant = [Chosen(n, v) for n in known for v in n.vnodes if is_meant(word, n.bits, v.contact.id)]
    if len(meant) > 1:
        names = ", ".join(chosen.node.name for chosen in meant)
        hint = f"Write more digits; it fits {names}"
        raise Failure(f"{word!r} begins more than one id", hint, USAGE, "ambiguous_node")
    if meant:
        return meant[0]
    names = ", ".join(sorted((n.name for n in known), key=natural)[:12]) + (", …" if len(known) > 12 else "")
    hint = f"The nodes are: {names}. Name an unreachable node by its HOST:PORT: chord members"
    raise Failure(f"no node of the ring is called {word!r}", hint, USAGE, "no_such_node")


def is_meant(word: str, bits: int, point: int) -> bool:
    """Return whether a word denotes a point: as a number, or shortened as tables show it.

    Args:
        word: the word. A shortened id has at least `PREFIX_MIN` digits at its beginning.
        bits: the width of the circle, `--bits`.
        point: the point.
    """
    if to_number(word) == point:
        return True
    begin, _, end = word.lower().removeprefix("0x").replace("...", "…").replace("~", "…").partition("…")
    text = Circle(bits).hex(point)
    return len(begin) >= PREFIX_MIN and len(begin) + len(end) <= len(text) and (
        text.startswith(begin) and text.endswith(end)
    )


def find_node(client: Client, word: str) -> Chosen:
    """Return the node of the ring that a word names, as `choose` does.

    If the word is an address, only that node is asked, and the result has no vnode.

    Raises:
        Failure: exit 4: the word is an address, and no node answers there. Exit 2: the word names no node, or more than
            one.
        ChordError: the entry node does not answer, or the named node answers with an error.
    """
    if is_address(word):
        try:
            return Chosen(client.status(word), None)
        except NO_REPLY as error:
            if word == client.entry or (isinstance(error, PeerUnreachable) and error.is_answer):
                raise
            hint = f"See the members: chord members; if it will never return: chord forget {word}"
            raise Failure(error.message, hint, UNREACHABLE, error.word) from None
    return choose(word, statuses(client.members()))


def to_number(word: str) -> int | None:
    """Return the number that a word gives in decimal or as 0xHEX; None if it gives none."""
    try:
        return int(word, 16) if word.lower().startswith("0x") else int(word)
    except ValueError:
        return None
