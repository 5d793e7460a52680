"""Tiny IR: a DAG of nodes that only move, compute per element, and reduce; written as JSON (seed tiny-ir, docs/tiny.md)."""

from ptir_tools.core.dialect import Codes, Dialect, Extents
from ptir_tools.dialects.tiny import ops
from ptir_tools.dialects.tiny.check import check
from ptir_tools.dialects.tiny.codes import EXPLAIN
from ptir_tools.dialects.tiny.expressions import put
from ptir_tools.dialects.tiny.legalize import legalize
from ptir_tools.dialects.tiny.ops.rules import type_text
from ptir_tools.dialects.tiny.sizes import choose
from ptir_tools.dialects.tiny.symbols import bind, complete, specialize, symbols

__all__ = ["DIALECT", "ops"]

DIALECT = Dialect(
    name="tiny",
    codes=Codes(
        undefined="UndefinedNode",
        redefined="DuplicateId",
        unknown_op="UnknownUop",
        operand_count="InvalidSource",
        unknown_attribute="InvalidArg",
        missing_attribute="InvalidArg",
        undefined_result="UndefinedNode",
        extent="AxisAlignmentMismatch",
    ),
    pipeline="canonicalize",
    type_text=type_text,
    legalize=legalize,
    check=check,
    explain=EXPLAIN,
    extents=Extents(symbols, put, bind, complete, specialize, choose),
    renames_results=True,
)
