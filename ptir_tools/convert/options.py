"""What a caller may choose about translating."""

from __future__ import annotations

from ptir_tools.core.dialect import Option, declare_options
from ptir_tools.core.ir import Literal

LOSSY = Option("lossy", False)  # also what changes a NaN, a range or more than rounding
# What an IR with constants outside keeps there, by name: what is known of the source; what is made of the target goes there.
CONSTANTS: Option[dict[str, Literal] | None] = Option("constants", None)

declare_options(LOSSY, CONSTANTS)
