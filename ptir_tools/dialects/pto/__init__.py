"""PTO IR: tiles, memrefs, events. Specification: PTO IR (Tile-Level IR)."""

from ptir_tools.core.dialect import Codes, Dialect
from ptir_tools.dialects.pto import ops as ops
from ptir_tools.dialects.pto.check import check
from ptir_tools.dialects.pto.codes import CODES
from ptir_tools.dialects.pto.types import type_text

DIALECT = Dialect(
    "pto",
    codes=Codes(
        syntax="ParseError",
        operand_count="TypeMismatch",
        unknown_attribute="UnknownAttribute",
        result_type="TypeMismatch",
    ),
    constant="constant",
    pipeline="pto-canonicalize,pto-canonicalize-views,pto-infer-tile-info,pto-insert-events",
    type_text=type_text,
    check=check,
    explain=CODES,
)
