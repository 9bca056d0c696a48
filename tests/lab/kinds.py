"""The names of the schemes that say something of themselves. Building a few of them takes long: it is done once."""

from __future__ import annotations

from collections.abc import Callable

from chord.lab.placement import Placement
from chord.lab.schemes import SCHEMES

_SPECIMENS = {name: build(["a"]) for name, build in SCHEMES.items()}


def those_that(are: Callable[[Placement], object]) -> list[str]:
    """Return the names of the schemes of which this holds."""
    return [name for name, scheme in _SPECIMENS.items() if are(scheme)]
