"""Merges equal shared regions and drops unused ones."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Literal, Op, Region
from ptir_tools.passes import PassContext, dce
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.rewrite.step_log import fingerprint


def run(program: Program, context: PassContext) -> None:
    """Merge equal regions and drop unused ones. Regions with random ops or missing payloads are never merged."""
    while _merge(program, context):
        pass  # regions that refer to merged ones may now be equal
    dce.drop_regions(program, context)


def _merge(program: Program, context: PassContext) -> int:
    first: dict[object, Region] = {}
    stands_for: dict[Region, Region] = {}
    for region in program.regions:
        if all(map(_comparable, region.ops())):
            types = tuple(p.type for p in region.params)
            result = first.setdefault((types, fingerprint(Rewriter(region, program.dialect))), region)
            if result is not region:
                stands_for[region] = result
    changed = 0
    for rw in context.rewriters(program):
        for op in rw.body() if stands_for else ():
            regions = tuple(stands_for.get(r, r) for r in op.regions)
            if regions != op.regions:
                rw.set_regions(op, regions)
                changed += 1
    context.count("merged", changed)
    return changed


def _comparable(op: Op) -> bool:
    missing = any(isinstance(x, Literal) and x.data is None for x in (*op.operands, *op.attrs))
    return not (op.defn.is_random or missing)
