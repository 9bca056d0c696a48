"""Names of schemes by their properties. Building some schemes takes long, so each is built once."""

from __future__ import annotations

from collections.abc import Callable

from chord.lab.placement import Placement
from chord.lab.schemes import SCHEMES

_SPECIMENS = {name: build(["a"]) for name, build in SCHEMES.items()}


def schemes_with(are: Callable[[Placement], object]) -> list[str]:
    """Return the names of the schemes with a property."""
    return [name for name, scheme in _SPECIMENS.items() if are(scheme)]
