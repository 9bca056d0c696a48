"""Drawings: no label covers another one, and every state of a node has its mark."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ElementTree
from itertools import combinations, pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chord.cli.svg import LABELS_MAX, draw_lookup, draw_ring
from chord.cli.svg_labels import CHARACTER, HEIGHT, LINE, TOP, WIDTH, SvgBox, spread
from chord.ids import Circle, Point
from chord.wire.messages import Contact, HopTrace, OwnedArc, PeerInfo, Status, Trace, Via
from tests.support.statuses import statuses, worked_trace

NODES_MAX = 40
SVG = "{http://www.w3.org/2000/svg}"


def ring_of(points: list[int], bits: int, name: str) -> list[Status]:
    """Return the statuses of a ring; its nodes have names of a form."""
    nodes = statuses(tuple(points), bits=bits, successors=1)
    return [msgspec.structs.replace(node, name=name.format(i)) for i, node in enumerate(nodes)]


def lookup_on(nodes: list[Status], circle: Circle, draw: random.Random) -> Trace:
    """Return a lookup over up to eight random nodes, some of them dead."""
    contacts = [node.vnodes[0].contact for node in nodes]
    hops = draw.sample(contacts, min(len(contacts), draw.randint(1, 8)))
    key = Point(draw.randrange(circle.size))
    return msgspec.structs.replace(
        worked_trace(), key=key, owner=draw.choice(contacts), replicas=tuple(contacts[:3]),
        hops=tuple(
            HopTrace(contact, Via("finger", i), circle.fraction(circle.distance(contact.id, key)), 1.0, 1.0, "",
                     i > 0 and draw.random() < 0.2)
            for i, contact in enumerate(hops)
        ),
    )  # fmt: skip


def boxes_of(drawing: str) -> list[SvgBox]:
    """Return the rectangles of all labels in a drawing: beside the ring, on chords, and in the title."""
    root = ElementTree.fromstring(drawing)
    found = []
    for element in root.iter(f"{SVG}text"):
        text, x, y = "".join(element.itertext()), float(element.attrib["x"]), float(element.attrib["y"])
        width = CHARACTER * len(text)
        left = {"end": x - width, "middle": x - width / 2}.get(element.get("text-anchor", ""), x)
        found.append(SvgBox(left, y - 4.5 - LINE / 2 + 0.2, left + width, y - 4.5 + LINE / 2 - 0.2))
    return found


@pytest.mark.parametrize("rings", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_labels_of_random_rings_do_not_overlap(rings: int) -> None:
    draw = random.Random(7)
    for _ in range(rings):
        name = draw.choice(["n{}", "storage-{}.rack-04.west.example.internal:9000"])
        bits = draw.choice([6, 8, 160])
        circle = Circle(bits)
        spread_over = min(circle.size, draw.choice([64, circle.size // 8, circle.size]))
        count = draw.randint(1, min(NODES_MAX, spread_over))
        points = list({draw.randrange(spread_over) for _ in range(count)})
        offset = draw.randrange(circle.size)
        nodes = ring_of([(point + offset) % circle.size for point in points], bits, name)
        drawings = (draw_ring(circle, nodes, []), draw_lookup(circle, lookup_on(nodes, circle, draw), nodes, "user:42"))
        for drawing in drawings:
            boxes = boxes_of(drawing)
            assert len(boxes) >= len(nodes)
            assert [pair for pair in combinations(boxes, 2) if pair[0].meets(pair[1])] == []
            assert all(box.left >= 0 and box.right <= WIDTH and box.top >= 0 and box.bottom <= HEIGHT for box in boxes)


def test_covered_label_is_found() -> None:
    text = '<text x="9" y="50">one</text>'
    one, two = boxes_of(f'<svg xmlns="http://www.w3.org/2000/svg">{text}{text.replace("50", "60")}</svg>')
    assert one.meets(two)


@given(st.lists(st.floats(0, 1000), max_size=40).map(sorted), st.sampled_from([1.0, 18.0, 100.0]))
def test_spread_keeps_order_gap_and_bounds(wanted: list[float], gap: float) -> None:
    found = spread(wanted, gap, TOP, HEIGHT)
    least = min(gap, (HEIGHT - TOP) / max(1, len(wanted) - 1))
    assert all(low + least <= high + 1e-6 for low, high in pairwise(found))
    assert all(TOP - 1e-6 <= place <= HEIGHT + 1e-6 for place in found)
    if len(wanted) == 1:
        assert found == [min(max(wanted[0], TOP), HEIGHT)]


def test_crowded_ring_has_no_labels() -> None:
    nodes = statuses(tuple(range(LABELS_MAX + 1)))
    drawing = draw_ring(Circle(8), nodes, [])
    assert drawing.count('class="vnode ') == LABELS_MAX + 1
    assert drawing.count('class="label"') == 0


def test_every_state_has_its_mark() -> None:
    nodes = statuses()
    peers = {1: "suspect", 2: "paused"}
    seen = tuple(PeerInfo(nodes[i].address, state, None, 0) for i, state in peers.items())  # type: ignore[arg-type]
    taken = OwnedArc(Point(230), Point(5), 2, "taken_over", None)
    own = nodes[0].vnodes[0]
    vnode = msgspec.structs.replace(own, arcs=(*own.arcs, taken))
    nodes[0] = msgspec.structs.replace(nodes[0], peers=seen, vnodes=(vnode,), under_replicated=3)
    joining = msgspec.structs.replace(nodes[3].vnodes[0], state="joining", arcs=())
    nodes[3] = msgspec.structs.replace(nodes[3], vnodes=(joining,))
    drawing = draw_ring(Circle(8), nodes, [Contact(Point(5), "127.0.0.1:9009")])
    for mark in ("suspect", "half", "paused", "bars", "joining", "dead", "cross", "standin", "hatched"):
        assert drawing.count(f'class="{mark}"') == 1, mark
    assert drawing.count('class="vnode ') == 4
    assert "127.0.0.1:9009</tspan>" in drawing


def test_lookup_marks_hops_owner_copies_and_the_remaining_distance() -> None:
    drawing = draw_lookup(Circle(8), worked_trace(dead=True), statuses(), "id 190")
    count = {name: drawing.count(f'class="{name}"') for name in ("hop", "hop lost", "hop last", "togo", "copy", "pill")}
    assert count == {"hop": 1, "hop lost": 1, "hop last": 1, "togo": 2, "copy": 1, "pill": 3}
    assert ">n2</tspan> <tspan class=\"more\">80 · 43.0 % to go<" in drawing
    assert "200 · owns it" in drawing


def test_drawing_is_dark_if_its_reader_prefers_that() -> None:
    drawing = draw_ring(Circle(8), statuses(), [])
    assert "--bg:#ffffff" in drawing
    assert "@media (prefers-color-scheme: dark) { svg { --bg:#0c0f14" in drawing


def test_arc_tint_grows_towards_its_owner() -> None:
    drawing = draw_ring(Circle(8), statuses((10,)), [])
    tints = [float(part.partition('"')[0]) for part in drawing.split('stop-opacity="')[1:]]
    assert tints == sorted(tints)
    assert (tints[0], tints[-1], len(tints)) == (0.18, 0.92, 16)


def test_name_that_could_break_the_document_is_escaped() -> None:
    nodes = [msgspec.structs.replace(node, name='<a"\x1b&') for node in statuses()]
    ElementTree.fromstring(draw_ring(Circle(8), nodes, []))
    ElementTree.fromstring(draw_lookup(Circle(8), worked_trace(), nodes, "<\x00&>"))
