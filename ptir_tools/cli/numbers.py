"""Option values that are numbers."""

from __future__ import annotations

import math
from typing import Any

import click


class Finite(click.FloatRange):
    """A float in a range; NaN and the infinities are none."""

    name = "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Raises click.BadParameter."""
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return found


timeout_option = click.option(
    "--timeout", type=Finite(0, min_open=True), metavar="S", help="Give up on CMD after S seconds: it fails."
)
