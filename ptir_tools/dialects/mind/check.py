"""Checks that the type rules of MIND cannot do."""

from __future__ import annotations

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import Op, operand_type
from ptir_tools.core.types import POISON, TensorType
from ptir_tools.dialects.mind.ops.indexing import check_bounds
from ptir_tools.dialects.mind.types import NAMES

NO_OUTPUTS = "the module has no outputs"


def check(program: Program, diagnostics: Diagnostics, options: Options) -> None:
    """Report errors of outputs and of input types, and warn of an Index that fails at run time."""
    function = program.main
    if not function.results:
        diagnostics.error("E4003", NO_OUTPUTS, function.loc)
    for p in function.params:
        if p.type is not POISON and not (isinstance(p.type, TensorType) and p.type.dtype in NAMES and p.type.is_static):
            diagnostics.error("E4004", f"input %{p.name} is {p.type}, which MIND does not have")
    for op in function.body:
        if op.defn.short == "Index":
            _warn_index(op, diagnostics)


def _warn_index(op: Op, diagnostics: Diagnostics) -> None:
    t = operand_type(op.operands[0])
    if isinstance(t, TensorType) and (violation := check_bounds(t.static_shape, op.attr("indices"))) is not None:
        diagnostics.warning(violation.code, violation.message, op.loc, help="it stops the program when it runs")
