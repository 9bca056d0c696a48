"""Numbers on the command line."""

from __future__ import annotations

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """The type of an option that takes a number within a range, but neither infinity nor NaN.

    NaN is neither below nor above any bound, so `click.FloatRange` accepts it.
    """

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of an option as a number.

        Args:
            value: the text of the option.
            param, ctx: the option and the command, for the error.

        Raises:
            click.BadParameter: it is no number, out of range or not finite.
        """
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class Seconds(FiniteRange):
    """The type of an option that takes a finite number of seconds within a range."""

    name = "number of seconds"
