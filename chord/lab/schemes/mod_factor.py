"""The remainder, grown by whole factors: from n nodes to f * n, and back.

If h % n == k, then h % (f * n) is k or k + i * n. A key therefore stays, or goes to one of the f - 1 new nodes that are
paired with its node. Nothing moves between old nodes, but growth takes at least n new nodes at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from chord.lab.placement import UnsupportedChange
from chord.lab.schemes.mod import Mod


class ModFactor(Mod):
    """Node number hash % n, with an n that is only multiplied or divided.

    Source: Kokorin, "Шардирование". Linear hashing (Litwin 1980) does the same one bucket at a time.
    """

    scheme = "mod-factor"
    title = "mod-n, by a factor"
    source = "folklore"
    growth = "factor"
    is_consistent = True

    def grow(self, nodes: Sequence[str]) -> None:
        """Add (f - 1) * n nodes; number k gives keys to k + n, k + 2n and so on.

        Raises:
            ValueError: a name occurs twice or is taken.
            UnsupportedChange: the new number of nodes is not a multiple of n.
        """
        count = len(self._nodes)
        if len(nodes) % count:
            raise UnsupportedChange(
                f"{self.scheme}: {count} nodes can only grow by a whole factor, to {2 * count} or {3 * count}, "
                f"not to {count + len(nodes)}"
            )
        self._check_newcomers(nodes)
        self._nodes += nodes
        self._weights += [1.0] * len(nodes)

    def shrink(self, nodes: Sequence[str]) -> None:
        """Remove the last nodes, so that 1 / f of the nodes stay.

        Their keys return to the nodes k from which they came.

        Raises:
            UnsupportedChange: `nodes` are not the last ones, or the number that stays does not divide n.
        """
        stay = len(self._nodes) - len(nodes)
        if stay < 1 or len(self._nodes) % stay or set(nodes) != set(self._nodes[stay:]):
            raise UnsupportedChange(
                f"{self.scheme}: {len(self._nodes)} nodes can only shrink by a whole factor; remove the last ones, for "
                f"example all from number {max(1, len(self._nodes) // 2)}"
            )
        del self._nodes[stay:], self._weights[stay:]

    def _add(self, node: str, weight: float) -> None:
        if len(self._nodes) > 1:
            raise UnsupportedChange(f"{self.scheme} grows by a whole factor: {len(self._nodes)} nodes at a time")

    def _remove(self, number: int) -> None:
        super()._remove(number)
        if len(self._nodes) > 2:
            raise UnsupportedChange(f"{self.scheme} shrinks by a whole factor: half of the nodes at a time")
