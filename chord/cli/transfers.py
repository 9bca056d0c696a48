"""`transfers`: transfers of records between nodes, their progress and time left."""

from __future__ import annotations

import time
from typing import NamedTuple

import click

from chord.cli.failures import OK
from chord.cli.output import Out, bar, byte_size, duration, percent
from chord.cli.target import Target, ring_options, statuses
from chord.client.blocking import Client
from chord.ids import Circle
from chord.views.common import name_of, names_of
from chord.views.transfers import TransferRow, transfers_json
from chord.wire.messages import Status, TransferInfo

WATCH_EVERY_S = 1.0
COLUMNS = ("node", "what", "with", "arc", ">keys", ">done", "progress", ">rate", ">left")


class Sight(NamedTuple):
    """A report of a transfer.

    Attributes:
        at: the time of the report, in seconds on the monotonic clock.
        info: the transfer.
    """

    at: float
    info: TransferInfo


Key = tuple[str, str, int, int, str, int]


class Watcher:
    """Remembers the last reports of all transfers, to calculate rates.

    A rate covers the time since the last report. If that did not have the transfer, the rate covers the time since the
    transfer began.
    """

    def __init__(self) -> None:
        self._seen: dict[Key, Sight] = {}

    def look(self, nodes: list[Status], now: float) -> list[TransferRow]:
        """Return every transfer that the nodes report, with its rate, and remember them.

        Args:
            nodes: the status of each node.
            now: the time of these reports, in seconds on the monotonic clock.
        """
        moves: list[TransferRow] = []
        seen: dict[Key, Sight] = {}
        for node in nodes:
            for info in node.transfers:
                key = (node.address, info.kind, info.arc_start, info.arc_end, info.peer.address, info.peer.id)
                moves.append(_measured(node, info, self._seen.get(key), now))
                seen[key] = Sight(now, info)
        self._seen = seen
        return moves


def _measured(node: Status, info: TransferInfo, before: Sight | None, now: float) -> TransferRow:
    since_s, done, sent = info.since_ms / 1000, info.done, info.bytes_sent
    if before is not None and before.info.since_ms <= info.since_ms and before.info.done <= done:
        since_s, done, sent = now - before.at, done - before.info.done, sent - before.info.bytes_sent
    if since_s <= 0:
        return TransferRow(node, info, 0.0, 0.0)
    return TransferRow(node, info, done / since_s, max(0, sent) / since_s)


@click.command("transfers")
@click.option("--watch", is_flag=True, help="Repeat every second until Ctrl-C.")
@ring_options()
def transfers_command(target: Target, watch: bool) -> int:
    """Show transfers of records: joins, leaves, repairs and misplaced records.

    A rate is the average since the transfer began or, with --watch, since the last refresh. The time left is computed
    from it.
    """
    watcher = Watcher()
    with target.connect() as client:
        while True:
            _show(target.out, client, watcher, watch)
            if not watch:
                return OK
            time.sleep(WATCH_EVERY_S)


def _show(out: Out, client: Client, watcher: Watcher, is_watching: bool) -> None:
    nodes = statuses(client.members())
    moves = watcher.look(nodes, time.monotonic())
    circle, names = client.circle, names_of(nodes)
    if out.as_json:
        out.json(transfers_json(circle, moves, names))
        return
    if is_watching and out.as_table:
        out.redraw()
    out.table(COLUMNS, [_row(out, circle, move, names) for move in moves], plain=["progress"])
    if not moves and out.as_table:
        out.line("there are no transfers")
    out.flush()


def _row(out: Out, circle: Circle, move: TransferRow, names: dict[str, str]) -> list[str]:
    info, share, left_s = move.info, move.share, move.left_s
    return [
        move.node.name, info.kind, name_of(info.peer, names),
        f"{out.id(circle, info.arc_start)} to {out.id(circle, info.arc_end)}",
        f"{info.done} of {'?' if info.total is None else info.total}",
        "-" if share is None else percent(share), "" if share is None else bar(share),
        f"{move.keys_per_s:.0f}/s, {byte_size(move.bytes_per_s)}/s", "-" if left_s is None else duration(left_s),
    ]
