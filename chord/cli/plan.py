"""`plan join` and `plan leave`: the effects of a join or a leave, in advance.

Nothing is changed. Keys and bytes are estimates: each part of an arc is taken to hold keys of average size, in
proportion to its length.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import click

from chord.cli.failures import OK, USAGE
from chord.cli.output import Failure, byte_size, counted, percent
from chord.cli.target import Target, check_address, choose, ring_options, statuses, to_number
from chord.ids import Circle, Point, vnode_id
from chord.views.common import names_of
from chord.views.plan import Load, PlannedChange, plan_json
from chord.wire.messages import Status

COLUMNS = ("node", ">owns", ">will own", ">keys", ">will keep", ">bytes", ">will be", ">gets", ">drops")


class PlanPoints:
    """The vnodes of a ring, with the nodes that hold them and the replica sets that follow.

    Args:
        circle: the circle of the ring.
        nodes: the address of the node at each point of a vnode; at least one.
        replicas: the N of the ring.

    Attributes:
        nodes: as above.
        order: the points of the vnodes, ascending.
    """

    def __init__(self, circle: Circle, nodes: Mapping[int, str], replicas: int) -> None:
        self.nodes = nodes
        self.order = sorted(nodes)
        self._circle = circle
        self._wanted = min(replicas, len(set(nodes.values())))

    def owner(self, point: int) -> int:
        """Return the vnode that owns a point, as a point: the first vnode at or behind it, clockwise."""
        return self.order[bisect_left(self.order, point) % len(self.order)]

    def keepers(self, point: int) -> tuple[str, ...]:
        """Return the addresses of a point's replica set: the first N distinct nodes clockwise, the owner first.

        A ring of fewer than N nodes gives all of them.
        """
        found: dict[str, None] = {}
        i = bisect_left(self.order, point)
        while len(found) < self._wanted:
            found[self.nodes[self.order[i % len(self.order)]]] = None
            i += 1
        return tuple(found)

    def arc_share(self, owner: int) -> float:
        """Return the length of the arc of the vnode at the point `owner`, as a share of the circle, 0 to 1."""
        before = self.order[bisect_left(self.order, owner) - 1]
        return self._circle.fraction(self._circle.length(before, owner))


def changes(
    circle: Circle, nodes: Sequence[Status], after: Mapping[int, str], replicas: int
) -> list[PlannedChange]:
    """Return how the load of each node changes if the ring gets other vnodes.

    The nodes of the present ring come first, then the new ones. The keys of an arc are taken to be spread evenly over
    it.

    Args:
        circle: the circle of the ring.
        nodes: the status of each node of the present ring.
        after: the address of the node at each point of a vnode in the new ring.
        replicas: the N of the ring.
    """
    old = PlanPoints(circle, {vnode.contact.id: node.address for node in nodes for vnode in node.vnodes}, replicas)
    new = PlanPoints(circle, after, replicas)
    keys_at: dict[int, int] = {vnode.contact.id: vnode.keys for node in nodes for vnode in node.vnodes}
    sizes = {node.address: node.value_bytes / node.keys if node.keys else 0.0 for node in nodes}
    found = {address: PlannedChange(address) for address in dict.fromkeys([*old.nodes.values(), *new.nodes.values()])}
    cuts = sorted({*old.order, *new.order})
    for start, end in zip([cuts[-1], *cuts[:-1]], cuts, strict=True):
        share = circle.fraction(circle.length(start, end))
        owner = old.owner(end)
        keys = keys_at[owner] * share / old.arc_share(owner)
        stretch = Load(0.0, keys, keys * sizes[old.nodes[owner]])
        had, has = old.keepers(end), new.keepers(end)
        for address in dict.fromkeys([*had, *has]):
            change = found[address]
            found[address] = PlannedChange(
                address,
                change.before.plus(stretch, share if had[0] == address else 0.0) if address in had else change.before,
                change.after.plus(stretch, share if has[0] == address else 0.0) if address in has else change.after,
                change.gets + (keys if address not in had else 0.0),
                change.drops + (keys if address not in has else 0.0),
            )
    return list(found.values())


@click.group("plan", no_args_is_help=False)
def plan_command() -> None:
    """Estimate the effects of a join or a leave. Nothing is changed."""


@plan_command.command("join")
@click.argument("address", metavar="HOST:PORT")
@click.option("--id", "id_", metavar="N|0xHEX", help="Point of the new node; default: the hash of its address.")
@click.option(
    "--vnodes",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="V",
    help="Number of vnodes of the new node.",
)
@ring_options()
def plan_join_command(target: Target, address: str, id_: str | None, vnodes: int) -> int:
    """Estimate the effects of a join of HOST:PORT on all nodes."""
    check_address(address)
    point = None if id_ is None else to_number(id_)
    if id_ is not None and (point is None or vnodes != 1):
        raise click.UsageError("--id is one point, decimal or 0xHEX, of a node with one vnode")
    with target.connect() as client:
        nodes, circle = statuses(client.members()), client.circle
    points = _points(nodes)
    if any(node.address == address for node in nodes):
        raise Failure(f"{address} is in the ring already", "See: chord plan leave NODE", USAGE, "usage")
    if point is not None and not 0 <= point < circle.size:
        what = f"{point} is not on the circle of {circle.bits} bits (0 to {circle.size - 1})"
        raise Failure(what, "Name a point of the ring: --id", USAGE, "usage")
    new = [Point(point)] if point is not None else [vnode_id(circle, address, i) for i in range(vnodes)]
    return _show(target, circle, nodes, {**points, **dict.fromkeys(new, address)}, f"{address} joins")


@plan_command.command("leave")
@click.argument("node")
@ring_options()
def plan_leave_command(target: Target, node: str) -> int:
    """Estimate the effects of a leave of NODE on all nodes."""
    with target.connect() as client:
        nodes, circle = statuses(client.members()), client.circle
    leaver = choose(node, nodes).node
    rest = {point: address for point, address in _points(nodes).items() if address != leaver.address}
    if not rest:
        raise Failure(f"{leaver.name} is the last node", "Its data would be lost", USAGE, "usage")
    return _show(target, circle, nodes, rest, f"{leaver.name} leaves")


def _points(nodes: Sequence[Status]) -> dict[int, str]:
    return {vnode.contact.id: node.address for node in nodes for vnode in node.vnodes}


def _show(target: Target, circle: Circle, nodes: list[Status], after: Mapping[int, str], what: str) -> int:
    out = target.out
    names = names_of(nodes)
    found = changes(circle, nodes, after, nodes[0].replicas)
    if out.as_json:
        out.json(plan_json(what, nodes[0].replicas, found, names))
        return OK
    rows = []
    for change in found:
        old, new = change.before, change.after
        rows.append(
            [
                names.get(change.address, change.address),
                percent(old.owned),
                percent(new.owned),
                f"{old.keys:.0f}",
                f"{new.keys:.0f}",
                byte_size(old.bytes),
                byte_size(new.bytes),
                f"{change.gets:.0f}",
                f"{change.drops:.0f}",
            ]
        )
    out.table(COLUMNS, rows)
    if out.as_table:
        moved = sum(change.gets for change in found)
        out.line()
        are = "is" if round(moved) == 1 else "are"
        out.sentence(
            f"{what}: about {counted(round(moved), 'key')} {are} copied. Keys and bytes are estimates, all copies "
            f"counted (N={nodes[0].replicas})"
        )
    return OK
