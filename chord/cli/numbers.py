"""Numbers on the command line."""

from __future__ import annotations

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A `click.FloatRange` that refuses infinity and NaN.

    NaN is neither below nor above any bound, so a plain range accepts it.
    """

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or fail if it is out of range or not finite."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class Seconds(FiniteRange):
    """The type of an option that is a finite number of seconds, within a range."""

    name = "number of seconds"
