"""PTO IR: tiles, memrefs, events. Specification: PTO IR (Tile-Level IR)."""

from collections.abc import Mapping
from typing import Any

from ptir_tools.core.dialect import Codes, Dialect, Pipeline
from ptir_tools.core.ir import Program
from ptir_tools.dialects.pto import ops as ops
from ptir_tools.dialects.pto.check import check
from ptir_tools.dialects.pto.codes import CODES
from ptir_tools.dialects.pto.targets import retarget
from ptir_tools.dialects.pto.types import type_text

TILES = "pto-canonicalize,pto-canonicalize-views,pto-infer-tile-info"


def _for_target(program: Program, options: Mapping[str, Any]) -> None:
    """Name the target that `options` give, or the program's own."""
    if options["target"]:
        retarget(program, options["target"])


DIALECT = Dialect(
    "pto",
    codes=Codes(
        syntax="ParseError",
        operand_count="TypeMismatch",
        unknown_attribute="UnknownAttribute",
        result_type="TypeMismatch",
    ),
    constant="constant",
    pipeline=f"{TILES},pto-insert-events",
    pipelines={
        "pto": Pipeline(
            f"{TILES},pto-bufferize,pto-canonicalize,pto-insert-events",
            "The whole way to a target: clean up, infer, bind tiles to addresses, then add the events that these ask for.",
            {"target": ""},
            _for_target,
        )
    },
    type_text=type_text,
    check=check,
    explain=CODES,
)
