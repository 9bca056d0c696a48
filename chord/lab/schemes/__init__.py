"""The sharding schemes, one family per file, and the table of all of them.

`SCHEMES` maps a name to a function that builds the scheme from nodes and options, as in `SCHEMES["ring-100"](nodes,
weights=…)`. To add a custom scheme, add an entry (`examples/custom_scheme.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from chord.lab.placement import Placement
from chord.lab.schemes.anchor import AnchorHash
from chord.lab.schemes.chord_ring import ChordRing
from chord.lab.schemes.dx import DxHash
from chord.lab.schemes.extendible import Extendible
from chord.lab.schemes.jump import Jump, NaiveJump
from chord.lab.schemes.maglev import Maglev
from chord.lab.schemes.multi_probe import MultiProbe
from chord.lab.schemes.numbered import Fibonacci, Mod, ModFactor
from chord.lab.schemes.rendezvous import Rendezvous, WeightedRendezvous
from chord.lab.schemes.rendezvous_tree import RendezvousTree
from chord.lab.schemes.ring import RingScheme
from chord.lab.schemes.ring_bounded import BoundedRing
from chord.lab.schemes.ring_tree import TreeRing
from chord.lab.schemes.sections import Directory, Sections, TwoLevelSections
from chord.lab.schemes.static import StaticMap
from chord.lab.schemes.trie import BitTrie

SCHEMES: dict[str, Callable[..., Placement]] = {
    "static": StaticMap,
    "mod": Mod,
    "mod-factor": ModFactor,
    "extendible": Extendible,
    "trie": BitTrie,
    "sections": Sections,
    "sections-2": TwoLevelSections,
    "rendezvous": Rendezvous,
    "rendezvous-weighted": WeightedRendezvous,
    "rendezvous-tree": RendezvousTree,
    "ring": RingScheme,
    "ring-tree": TreeRing,
    "ring-100": partial(RingScheme, vnodes=100),
    "ring-1000": partial(RingScheme, vnodes=1000),
    "ring-bounded": BoundedRing,
    "multi-probe": MultiProbe,
    "jump-naive": NaiveJump,
    "jump": Jump,
    "fibonacci": Fibonacci,
    "fibonacci-range": partial(Fibonacci, reduce="range"),
    "maglev": Maglev,
    "anchor": AnchorHash,
    "dx": DxHash,
    "directory": Directory,
    "chord": partial(ChordRing, vnodes=100),
}
"""Every scheme, in the order of the tables.

Callers also build each entry with a single node, to read the facts at its class.
"""
