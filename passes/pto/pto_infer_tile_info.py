"""Write the location, layout and valid region of every tile into its type."""

from __future__ import annotations

from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import Function, Operand, Value, operand_type
from ptir_tools.core.types import Shape
from ptir_tools.dialects.pto.memory.info import infer
from ptir_tools.dialects.pto.ops.memory import static_valid
from ptir_tools.dialects.pto.structure import is_call, is_for, is_while
from ptir_tools.dialects.pto.targets import target_of
from ptir_tools.dialects.pto.types import TileType, tile
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.rewriter import Rewriter

_RESULTS = ("to", "order")  # attributes that hold result types


def run(program: Program, context: PassContext) -> None:
    """Write the location, layout and valid region of every tile into its type."""
    target = target_of(program, Options())
    for rw in context.rewriters(program):
        if isinstance(rw.block, Function):
            known: dict[Operand, Shape] = {}
            for v, t in infer(rw.block, target).items():
                if v.op is not None or v not in rw.block.params:
                    context.count("types", _state(rw, v, _with_valid(v, t, known)))
            block_types(rw)


def _with_valid(v: Value, t: TileType, known: dict[Operand, Shape]) -> TileType:
    """`t` with its valid region, if it is known and smaller than the shape. A type cannot state an empty region."""
    valid = static_valid(v, known)
    partial = valid != t.shape and all(isinstance(d, int) and d > 0 for d in valid)
    return tile(t.dtype, t.shape, t.loc, t.layout, valid) if partial else t


def _state(rw: Rewriter, v: Value, t: TileType) -> int:
    """Give `v` the type `t`, also as the attribute of its op; 1 if the type changed."""
    if v.type is t:
        return 0
    if v.op is not None:
        named = [n for n in _RESULTS if n in v.op.defn.attr_index]
        if named and not is_call(v.op):
            rw.set_attrs(v.op, **{named[v.op.results.index(v)]: t})
        elif is_call(v.op):
            return 0
    rw.retype(v, t)
    return 1


def block_types(rw: Rewriter) -> None:
    """Update the types that blocks declare: of the parameters of loops and the results of branches."""
    for block, op in rw.owner.items():
        if is_for(op):
            block.result_types = [p.type for p in block.params[1:]]
            for v, p in zip(op.results, block.params[1:], strict=True):
                rw.retype(v, p.type) if v.type is not p.type else None
        elif is_while(op):
            body = op.regions[1]
            block.result_types = [operand_type(x) for x in block.results]
            for v, p in zip(op.results, body.params, strict=True):
                rw.retype(v, p.type) if v.type is not p.type else None
        else:
            block.result_types = [v.type for v in op.results]
