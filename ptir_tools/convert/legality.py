"""Legality of a whole program for a conversion target (contract: "Conversion infrastructure"), and decomposition."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.dtypes import SI64, DType
from ptir_tools.core.ir import Op, Region, operand_type
from ptir_tools.core.lazy import lazy
from ptir_tools.core.records import dataclass
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import TensorType, Type, leaves
from ptir_tools.passes import PassContext, run_pipeline

if TYPE_CHECKING:
    from ptir_tools.dialects.ptir.composites import express as expressing
    from ptir_tools.dialects.ptir.composites.express import Rule
else:
    expressing = lazy("ptir_tools.dialects.ptir.composites.express")

NOT_TRANSLATABLE = "NotTranslatable"


@dataclass(slots=True, frozen=True)
class Legality:
    """The legal ops (short names) and dtypes of a target (None: all), and whether extents may be symbols."""

    allowed_ops: frozenset[str] | None = None
    allowed_dtypes: frozenset[DType] | None = None
    allow_dynamic_dims: bool = True


ANYTHING = Legality()


@dataclass(slots=True, frozen=True)
class ConversionDiagnostic:
    """An illegal op or type: the reporting stage, the block, and the op's position (None: the block's signature)."""

    stage: str
    block: str
    index: int | None
    message: str
    loc: int = 0


def walk_program(program: Program) -> Iterator[tuple[Region, int, Op]]:
    """Every op with its block and its position there: functions in order, then shared regions, outer before inner."""
    for block in program.blocks():
        for i, op in enumerate(block.body):
            yield block, i, op


def check_program_legality(program: Program, legality: Legality, stage: str = "legalize") -> list[ConversionDiagnostic]:
    """Everything in `program` that `legality` does not allow: per block its signature, then op by op."""
    illegal: list[ConversionDiagnostic] = []
    for block in program.blocks():
        for t in (*(p.type for p in block.params), *(operand_type(x) for x in block.results)):
            illegal += [ConversionDiagnostic(stage, block.name, None, m, block.loc) for m in _of_type(t, legality)]
        for i, op in enumerate(block.body):
            illegal += [ConversionDiagnostic(stage, block.name, i, m, op.loc) for m in _of_op(op, legality)]
    return illegal


def _of_op(op: Op, legality: Legality) -> Iterator[str]:
    if legality.allowed_ops is not None and op.defn.short not in legality.allowed_ops:
        yield f"operation {op.defn.short} is not allowed"
    types = dict.fromkeys((*map(operand_type, op.operands), *(v.type for v in op.results)))
    yield from dict.fromkeys(m for t in types for m in _of_type(t, legality))


def _of_type(t: Type, legality: Legality) -> Iterator[str]:
    for leaf in leaves(t):
        if not isinstance(leaf, TensorType):
            continue
        if not legality.allow_dynamic_dims and not leaf.is_static:
            yield f"dynamic dimensions are not allowed: {leaf}"
        if legality.allowed_dtypes is not None and leaf.dtype not in legality.allowed_dtypes:
            yield f"dtype {leaf.dtype} is not allowed"


def entry_point_name(entry: str, digest: str) -> str:
    """The symbol of a program's entry: its name in letters, digits and `_`, then `__` and the first 16 digits of a hash."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", entry) or "entry"
    return f"{'_' if plain[0].isdigit() else ''}{plain}__{digest[:16]}"


def decomposed(program: Program, rules: Mapping[str, Rule], widest: DType = SI64) -> Program:
    """`program`, or a copy with its layer norms, and what `rules` have a formula for, decomposed; see `express`."""
    there = {op.defn.short for block in program.blocks() for op in block.body}
    if there.isdisjoint((*rules, "layer_norm")):
        return program
    program = clone(program)
    if "layer_norm" in there:
        run_pipeline(program, "decompose", PassContext())
    expressing.express(program, rules, widest)
    return program
