"""The screen of `top`: the verdict, the circle as a strip, the nodes and the latest events."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from chord.cli.output import byte_size, clock, percent, printable
from chord.cli.plain import can_write
from chord.cli.target import natural
from chord.views.common import Json
from chord.views.top import GONE, ROUTINE_KINDS

EVENTS_KEPT: Final = 100
EVENTS_MIN: Final = 5
NODES_MIN: Final = 3
FRAME_LINES: Final = 8
"""The lines of a screen that are neither nodes nor events: verdict, strip, headings, blank lines."""

COLOURS: Final = ("dodger_blue2", "dark_orange", "medium_purple", "turquoise4", "deep_pink3", "olive_drab",
                  "steel_blue", "gold3", "plum4", "light_sea_green", "salmon1", "grey62")  # fmt: skip
"""The colours of owners."""

VERDICT_STYLES: Final = {
    "healthy": "bold green", "healing": "bold yellow", "unknown": "bold yellow", "broken": "bold red",
    "lost": "bold red",
}  # fmt: skip

MARKS: Final = {"member": "●", "joining": "○", "resuming": "○", "leaving": "○"}
"""The mark of a vnode of a living node, by its state. A vnode of a node that does not answer has a cross."""


@contextmanager
def open_screen() -> Iterator[Callable[[Json], None]]:
    """Take over the terminal for the `with` block, and yield the function that shows a summary on it.

    The former content of the terminal returns at the end of the block.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    screen = Screen()
    with Live(screen, console=console, screen=True, auto_refresh=False) as live:

        def show(state: Json) -> None:
            screen.take(state)
            live.update(screen, refresh=True)

        yield show


class Screen:
    """The screen of `chord top`, as wide and as high as the terminal."""

    def __init__(self) -> None:
        self._state: Json | None = None
        self._events: deque[Json] = deque(maxlen=EVENTS_KEPT)

    def take(self, state: Json) -> None:
        """Show this summary from now on, and add its events to the list."""
        self._state = state
        self._events.extendleft(event for event in state["events"] if event["kind"] not in ROUTINE_KINDS)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._state is None:
            yield Text("waiting for the first answers")
        else:
            yield drawn(self._state, list(self._events), options.max_width, options.height or console.height)


def drawn(state: Json, events: list[Json], width: int, height: int) -> RenderableType:
    """Return the content of the screen.

    Args:
        state: the summary of the ring, as `top_json` returns it.
        events: the events to list, the latest first.
        width, height: the size of the screen, in columns and lines. If it has no room for all nodes, those with
            problems come first.
    """
    room = max(NODES_MIN + EVENTS_MIN, height - FRAME_LINES)
    nodes = sorted(state["nodes"], key=lambda node: natural(node["node"]))
    colours = {node["address"]: COLOURS[number % len(COLOURS)] for number, node in enumerate(nodes)}
    rows = min(len(nodes), room - EVENTS_MIN)
    if rows < len(nodes):
        nodes.sort(key=lambda node: not _has_problem(node))
    heading = Text.assemble(
        (f" {state['verdict']} ", f"{VERDICT_STYLES[state['verdict']]} reverse"), f"  {printable(state['text'])}",
        no_wrap=True, overflow="ellipsis",
    )  # fmt: skip
    age = "no answer yet" if state["age_ms"] is None else f"seen {state['age_ms'] / 1000:.1f} s ago"
    more = f", {len(nodes) - rows} nodes not shown" if rows < len(nodes) else ""
    lines = [_event_line(event) for event in events[: max(EVENTS_MIN, room - rows)]]
    return Group(
        heading,
        Text(f" {clock(state['at_ms'])}, {age}{more}", style="dim", no_wrap=True, overflow="ellipsis"),
        "",
        *strip(state, colours, width),
        "",
        _table(nodes[:rows], colours),
        "",
        *lines,
    )


def _has_problem(node: Json) -> bool:
    return bool(node["state"] != "ready" or node["suspected_by"] or node["under_replicated"] or node["misplaced"])


def _event_line(event: Json) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    return text.append(f" {clock(event['at_ms'])} ", style="dim").append(printable(event["text"]))


def _table(nodes: list[Json], colours: dict[str, str]) -> Table:
    table = Table(box=None, padding=(0, 1), expand=False, header_style="bold")
    table.add_column("node", no_wrap=True, overflow="ellipsis", max_width=18)
    table.add_column("state", no_wrap=True)
    for heading in ("owns", "keys", "bytes", "hints", "lacking", "seen"):
        table.add_column(heading, justify="right", no_wrap=True)
    for node in nodes:
        is_gone = node["state"] in GONE
        state = "suspected" if node["state"] == "ready" and node["suspected_by"] else node["state"]
        style = "red" if is_gone else "" if state == "ready" else "yellow"
        table.add_row(
            Text(printable(node["node"]), style=colours[node["address"]]),
            Text(state, style=style),
            "-" if is_gone else percent(node["owned"]),
            str(node["keys"]),
            byte_size(node["bytes"]),
            str(node["hints"]),
            str(node["under_replicated"]),
            "-" if node["age_ms"] is None else f"{node['age_ms'] / 1000:.1f} s",
            style="dim" if is_gone else "",
        )
    return table


def strip(state: Json, colours: dict[str, str], width: int) -> tuple[Text, Text]:
    """Return two lines: the circle from point 0 to the highest one, and the names of nodes below it.

    Each place of the first line has the colour of its owner: the first vnode at or behind it, of a node that answers.

    Args:
        state: the summary of the ring, as `top_json` returns it.
        colours: the colour of each node, by address.
        width: the width of the lines, in columns.
    """
    gone = {node["address"] for node in state["nodes"] if node["state"] in GONE}
    suspected = {node["address"] for node in state["nodes"] if node["suspected_by"]}
    vnodes = [(min(width - 1, int(vnode["position"] * width)), vnode) for vnode in state["ring"]]
    owners = [(at, vnode["address"]) for at, vnode in vnodes if vnode["address"] not in gone]
    line, names = Text(no_wrap=True), [" "] * width
    marks: dict[int, tuple[str, str]] = {}
    for at, vnode in vnodes:
        address = vnode["address"]
        is_gone = address in gone
        mark = "✗" if is_gone else "?" if address in suspected else MARKS.get(vnode["state"], "○")
        marks[at] = mark, "bold red" if is_gone else f"bold {colours.get(address, 'default')}"
        name = printable(vnode["node"])
        start = min(at, width - len(name))
        if start >= 0 and all(c == " " for c in names[max(0, start - 1) : start + len(name) + 1]):
            names[start : start + len(name)] = name
    bar, position = "━" if can_write("━", sys.stdout) else "-", 0
    for at in range(width):
        while position < len(owners) and owners[position][0] < at:
            position += 1
        owner = owners[position % len(owners)][1] if owners else ""
        text, style = marks.get(at, (bar, colours.get(owner, "dim")))
        line.append(text if can_write(text, sys.stdout) else {"●": "*", "○": "o", "✗": "x"}.get(text, text), style)
    return line, Text("".join(names), style="dim", no_wrap=True)
