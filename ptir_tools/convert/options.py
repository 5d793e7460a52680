"""Options of translation."""

from __future__ import annotations

from ptir_tools.core.dialect import Option, declare_options
from ptir_tools.core.ir import Literal

LOSSY = Option("lossy", False)  # also translations that change NaNs, ranges or more than rounding
# Constants by name, for an IR that stores them outside: known ones of the source; those of the target are added.
CONSTANTS: Option[dict[str, Literal] | None] = Option("constants", None)

declare_options(LOSSY, CONSTANTS)
