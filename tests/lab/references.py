"""A naive reference of every scheme: linear searches, strings of bits, sets, one hash at a time.

The references follow the publications and import nothing from `chord.lab`. An agreement of both is therefore evidence.
Nodes are names, and a change names them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import xxhash

ALL = 2**64


def name_hash(text: str) -> int:
    return xxhash.xxh3_64(text.encode()).intdigest()


def remix(number: int, salt: int) -> int:
    """SplitMix64's output function, on a counter that is `salt` steps further."""
    z = (number + salt * 0x9E3779B97F4A7C15) % ALL
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % ALL
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % ALL
    return z ^ (z >> 31)


class Reference:
    """Nodes in the order in which they came, and the owner of a hash."""

    def __init__(self, nodes: list[str], weights: dict[str, float]) -> None:
        self.nodes = list(nodes)
        self.weights = {node: weights.get(node, 1.0) for node in nodes}
        self.start()

    def start(self) -> None:
        pass

    def owner(self, h: int) -> str:
        raise NotImplementedError

    def add(self, node: str, weight: float = 1.0) -> None:
        self.nodes.append(node)
        self.weights[node] = weight

    def remove(self, node: str) -> None:
        self.nodes.remove(node)
        del self.weights[node]


def by(function: Callable[[list[str], dict[str, float], int], str]) -> type[Reference]:
    """Make a reference of a function of the present nodes. Past changes do not matter."""

    class Stateless(Reference):
        def owner(self, h: int) -> str:
            return function(self.nodes, self.weights, h)

    return Stateless


# -- numbered nodes -----------------------------------------------------------------------------------


@by
def remainder(nodes: list[str], weights: dict[str, float], h: int) -> str:
    return nodes[h % len(nodes)]


@by
def fibonacci(nodes: list[str], weights: dict[str, float], h: int) -> str:
    return nodes[h * 11400714819323198485 % ALL // 2**32 % len(nodes)]


@by
def fibonacci_range(nodes: list[str], weights: dict[str, float], h: int) -> str:
    top = h * 11400714819323198485 % ALL // 2**32
    return next(node for at, node in enumerate(nodes) if top * len(nodes) < (at + 1) * 2**32)


@by
def jump(nodes: list[str], weights: dict[str, float], h: int) -> str:
    b, j = -1, 0
    while j < len(nodes):
        b = j
        h = (h * 2862933555777941757 + 1) % ALL
        j = math.floor((b + 1) * (float(2**31) / float(h // 2**33 + 1)))
    return nodes[b]


@by
def jump_naive(nodes: list[str], weights: dict[str, float], h: int) -> str:
    result = 0
    for i in range(1, len(nodes)):
        coin = (remix(h, i) // 2**12 + 0.5) / 2**52
        if coin * (i + 1) < 1:
            result = i
    return nodes[result]


class Doubling(Reference):
    """Prefixes as strings of bits."""

    def start(self) -> None:
        self.of, everybody = {"": self.nodes[0]}, self.nodes
        self.nodes = everybody[:1]
        while len(self.nodes) < len(everybody):
            self.double(everybody[len(self.nodes) : 2 * len(self.nodes)])

    def owner(self, h: int) -> str:
        bits = format(h, "064b")
        return next(node for prefix, node in self.of.items() if bits.startswith(prefix))

    def double(self, newcomers: list[str]) -> None:
        partner = dict(zip(self.nodes, newcomers, strict=True))
        self.of = {p + bit: (n if bit == "0" else partner[n]) for p, n in self.of.items() for bit in "01"}
        self.nodes += newcomers

    def halve(self) -> None:
        self.of = {prefix[:-1]: node for prefix, node in self.of.items() if prefix.endswith("0")}
        self.nodes = self.nodes[: len(self.nodes) // 2]


class Trie(Reference):
    """A tree: a leaf is a name, a fork a list of two."""

    def start(self) -> None:
        self.root: Any = self.nodes[0]
        for node in self.nodes[1:]:
            self._split(node)

    def owner(self, h: int) -> str:
        at = self.root
        for bit in format(h, "064b"):
            if isinstance(at, str):
                break
            at = at[int(bit)]
        assert isinstance(at, str)
        return at

    def add(self, node: str, weight: float = 1.0) -> None:
        super().add(node, weight)
        self._split(node)

    def remove(self, node: str) -> None:
        paths = {name: path for path, name in self._leaves(self.root, "")}
        path = paths[node]
        beside = path[:-1] + ("1" if path[-1] == "0" else "0")
        there = sorted((p, name) for name, p in paths.items() if p.startswith(beside))
        for name in (node, *(name for _, name in there[1:])):
            super().remove(name)
        self.root = self._with(self.root, path[:-1], there[0][1])

    def _split(self, node: str) -> None:
        leaves = sorted(self._leaves(self.root, ""))
        shallowest = min(len(path) for path, _ in leaves)
        path, name = next((p, n) for p, n in leaves if len(p) == shallowest)
        self.root = self._with(self.root, path, [name, node])

    def _leaves(self, at: Any, path: str) -> list[tuple[str, str]]:
        if isinstance(at, str):
            return [(path, at)]
        return self._leaves(at[0], path + "0") + self._leaves(at[1], path + "1")

    def _with(self, at: Any, path: str, new: Any) -> Any:
        if not path:
            return new
        below = list(at)
        below[int(path[0])] = self._with(at[int(path[0])], path[1:], new)
        return below


class Cards(Reference):
    """Sections in a dictionary. The node furthest below its share gets the next section."""

    count = 64

    def start(self) -> None:
        self.of: dict[int, str] = {}
        for section in range(self.count):
            due = self._due()
            lack = {node: (due[node] - self._have(node)) / due[node] for node in self.nodes}
            self.of[section] = max(self.nodes, key=lambda node: lack[node])

    def owner(self, h: int) -> str:
        return self.of[h % self.count]

    def add(self, node: str, weight: float = 1.0) -> None:
        old = list(self.nodes)
        super().add(node, weight)
        due = self._due()
        for _ in range(round(due[node])):
            giver = max(old, key=lambda name: self._have(name) - due[name])
            self.of[max(section for section, name in self.of.items() if name == giver)] = node

    def remove(self, node: str) -> None:
        old = self._due()
        super().remove(node)
        due = {name: share * (self.count / (self.count - old[node])) for name, share in old.items()}
        for section in sorted(section for section, name in self.of.items() if name == node):
            self.of[section] = max(self.nodes, key=lambda name: due[name] - self._have(name))

    def _due(self) -> dict[str, float]:
        total = sum(self.weights.values())
        return {node: self.count * self.weights[node] / total for node in self.nodes}

    def _have(self, node: str) -> int:
        return sum(name == node for name in self.of.values())


# -- rendezvous ---------------------------------------------------------------------------------------


def bid(h: int, node: str) -> int:
    return remix(h, name_hash(node))


@by
def rendezvous(nodes: list[str], weights: dict[str, float], h: int) -> str:
    return max(nodes, key=lambda node: bid(h, node))


@by
def rendezvous_weighted(nodes: list[str], weights: dict[str, float], h: int) -> str:
    return min(nodes, key=lambda node: -math.log((bid(h, node) // 2**12 + 0.5) / 2**52) / weights[node])


class Skeleton(Reference):
    """A tree of lists; forks of `fanout`, `levels` deep, lists of names at the end."""

    fanout, levels = 2, 2

    def start(self) -> None:
        count = self.fanout**self.levels
        self.clusters = [[node for at, node in enumerate(self.nodes) if at % count == c] for c in range(count)]

    def owner(self, h: int) -> str:
        low, high = 0, len(self.clusters)
        for level in range(self.levels):
            width = (high - low) // self.fanout
            choices = [c for c in range(low, high, width) if any(self.clusters[c : c + width])]
            low = max(choices, key=lambda c: remix(h + remix(c // width, level + 1), 0))
            high = low + width
        return max(self.clusters[low], key=lambda node: bid(h, node))

    def add(self, node: str, weight: float = 1.0) -> None:
        super().add(node, weight)
        sizes = [len(cluster) for cluster in self.clusters]
        self.clusters[sizes.index(min(sizes))].append(node)

    def remove(self, node: str) -> None:
        super().remove(node)
        self.clusters = [[name for name in cluster if name != node] for cluster in self.clusters]


# -- rings --------------------------------------------------------------------------------------------


def labels(node: str, count: int) -> list[str]:
    return [node, *(f"{node}#{index}" for index in range(1, count))]


def points(nodes: list[str], weights: dict[str, float], vnodes: int) -> list[tuple[int, str]]:
    return [
        (name_hash(label), node)
        for node in nodes
        for label in labels(node, max(1, round(vnodes * weights[node])))
    ]


def clockwise(h: int, of: list[tuple[int, str]], span: int = ALL) -> list[tuple[int, str]]:
    """All points by their distance from a hash, with that distance."""
    return sorted(((point - h) % span, node) for point, node in of)


def ring(vnodes: int) -> type[Reference]:
    return by(lambda nodes, weights, h: clockwise(h, points(nodes, weights, vnodes))[0][1])


def ring_replicas(nodes: list[str], weights: dict[str, float], vnodes: int, h: int, count: int) -> list[str]:
    return list(dict.fromkeys(node for _, node in clockwise(h, points(nodes, weights, vnodes))))[:count]


def bounded(nodes: list[str], weights: dict[str, float], vnodes: int, c: float, hashes: list[int]) -> list[str]:
    """Place keys in their order, each on the first node clockwise that has room."""
    total = sum(weights[node] for node in nodes)
    room = {node: math.ceil(c * len(hashes) * weights[node] / total) for node in nodes}
    found = []
    for h in hashes:
        way = clockwise(h, points(nodes, weights, vnodes))
        node = next(node for _, node in way if room[node])
        room[node] -= 1
        found.append(node)
    return found


def multi_probe(probes: int) -> type[Reference]:
    def owner(nodes: list[str], weights: dict[str, float], h: int) -> str:
        of = points(nodes, weights, 1)
        return min(clockwise(h if probe == 0 else remix(h, probe), of)[0] for probe in range(probes))[1]

    return by(owner)


def chord(vnodes: int) -> type[Reference]:
    """Build the ring of 160 bits. It takes keys, because 64 bits of a hash do not give a point on that ring."""

    class Ring160(Reference):
        def owner_of_key(self, key: bytes) -> str:
            return self.replicas_of_key(key, 1)[0]

        def replicas_of_key(self, key: bytes, count: int) -> list[str]:
            def sha1(data: bytes) -> int:
                return int(hashlib.sha1(data).hexdigest(), 16)

            of = [
                (sha1(label.encode()), node)
                for node in self.nodes
                for label in labels(node, max(1, round(vnodes * self.weights[node])))
            ]
            return list(dict.fromkeys(node for _, node in clockwise(sha1(key), of, 2**160)))[:count]

    return Ring160


# -- maglev, anchor, dx -------------------------------------------------------------------------------


def maglev(slots: int) -> type[Reference]:
    def owner(nodes: list[str], weights: dict[str, float], h: int) -> str:
        return maglev_table(slots, nodes, weights)[h % slots]

    return by(owner)


def maglev_table(slots: int, nodes: list[str], weights: dict[str, float]) -> list[str]:
    """Fill the table by pseudocode 1 of the paper. A node takes part in a round if its credit has reached one."""
    order, heaviest = sorted(nodes), max(weights[node] for node in nodes)
    wishes = {}
    for node in nodes:
        offset = remix(name_hash(node), 1) % slots
        skip = remix(name_hash(node), 2) % (slots - 1) + 1
        wishes[node] = [(offset + j * skip) % slots for j in range(slots)]
    entry: dict[int, str] = {}
    credit = dict.fromkeys(nodes, 0.0)
    while len(entry) < slots:
        for node in order:
            credit[node] += weights[node] / heaviest
            if credit[node] >= 1 and len(entry) < slots:
                credit[node] -= 1
                entry[next(slot for slot in wishes[node] if slot not in entry)] = node
    return [entry[slot] for slot in range(slots)]


class Anchor(Reference):
    """AnchorHash in the paper's first form: each removed bucket keeps the list of the buckets that stayed."""

    def start(self) -> None:
        self.capacity = 2 * len(self.nodes)
        self.works = list(range(self.capacity))
        self.stayed: dict[int, list[int]] = {}
        self.removed: list[int] = []
        for bucket in range(self.capacity - 1, len(self.nodes) - 1, -1):
            self._retire(bucket)
        self.name = dict(enumerate(self.nodes))

    def owner(self, h: int) -> str:
        bucket = h % self.capacity
        while bucket in self.stayed:
            stayed = self.stayed[bucket]
            bucket = stayed[remix(h, bucket + 1) % len(stayed)]
        return self.name[bucket]

    def add(self, node: str, weight: float = 1.0) -> None:
        super().add(node, weight)
        bucket = self.removed.pop()
        before = list(self.stayed.pop(bucket))
        at = self.place.pop(bucket)
        if at < len(before):  # its replacement returns to the end of the list
            before.append(before[at])
            before[at] = bucket
        else:
            before.append(bucket)
        self.works = before
        self.name[bucket] = node

    def remove(self, node: str) -> None:
        super().remove(node)
        bucket = next(bucket for bucket, name in self.name.items() if name == node)
        del self.name[bucket]
        self._retire(bucket)

    def _retire(self, bucket: int) -> None:
        at = self.works.index(bucket)
        self.works[at] = self.works[-1]
        self.works.pop()
        self.stayed[bucket] = list(self.works)
        self.place = getattr(self, "place", {})
        self.place[bucket] = at
        self.removed.append(bucket)


class Dx(Reference):
    """Slots in a dictionary."""

    def start(self) -> None:
        self.count = 1
        while self.count < 2 * len(self.nodes):
            self.count *= 2
        self.of = dict(enumerate(self.nodes))

    def owner(self, h: int) -> str:
        slot, tried = h % self.count, 0
        while slot not in self.of:
            tried += 1
            slot = remix(h, tried) % self.count
        return self.of[slot]

    def add(self, node: str, weight: float = 1.0) -> None:
        super().add(node, weight)
        self.of[min(set(range(self.count)) - set(self.of))] = node

    def remove(self, node: str) -> None:
        super().remove(node)
        self.of = {slot: name for slot, name in self.of.items() if name != node}
