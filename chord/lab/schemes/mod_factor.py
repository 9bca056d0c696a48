"""The remainder, grown by whole factors: n -> f * n, and back.

If h % n == k, then h % (f * n) is k or k + i * n: a key stays, or goes to one of the f - 1 newcomers that its node is
paired with. Nothing moves between old nodes, and the price is that one buys n nodes at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from chord.lab.placement import UnsupportedChange
from chord.lab.schemes.mod import Mod


class ModFactor(Mod):
    """Node number hash % n, where n is only ever multiplied or divided.

    Source: the first source text; linear hashing (Litwin 1980) does the same one bucket at a time.
    """

    scheme = "mod-factor"
    title = "mod-n, by a factor"
    source = "folklore"
    growth = "factor"
    is_consistent = True

    def grow(self, nodes: Sequence[str]) -> None:
        """Let (f - 1) * n newcomers in: the number k gives part of its keys to k + n, k + 2n, ….

        Raises: UnsupportedChange: it is not a whole factor.
        """
        count = len(self._nodes)
        if len(nodes) % count:
            raise UnsupportedChange(
                f"{self.scheme}: {count} nodes grow by a whole factor, to {2 * count} or {3 * count}, "
                f"not to {count + len(nodes)}"
            )
        self._check_newcomers(nodes)
        self._nodes += nodes
        self._weights += [1.0] * len(nodes)

    def shrink(self, nodes: Sequence[str]) -> None:
        """Let the last (f - 1) / f of the nodes go, their keys back to the number k they came from.

        Raises: UnsupportedChange: those are not the last ones, or what stays is not a whole part.
        """
        stay = len(self._nodes) - len(nodes)
        if stay < 1 or len(self._nodes) % stay or set(nodes) != set(self._nodes[stay:]):
            raise UnsupportedChange(
                f"{self.scheme}: {len(self._nodes)} nodes shrink by a whole factor, and the last ones go, for example "
                f"those from number {max(1, len(self._nodes) // 2)}"
            )
        del self._nodes[stay:], self._weights[stay:]

    def _add(self, node: str, weight: float) -> None:
        if len(self._nodes) > 1:
            raise UnsupportedChange(f"{self.scheme} grows by a whole factor: {len(self._nodes)} nodes at a time")

    def _remove(self, number: int) -> None:
        super()._remove(number)
        if len(self._nodes) > 2:
            raise UnsupportedChange(f"{self.scheme} shrinks by a whole factor: half of the nodes at a time")
