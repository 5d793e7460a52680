"""Loops of a known number of steps, and branches, as straight code: for targets without regions whose rules see single ops."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.convert.inlining import UNROLLED, require_few
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Op, Operand, Region, operand_type, result_names
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.builder.site import Site
from ptir_tools.dialects.ptir.ops.control import result_count, result_types
from ptir_tools.dialects.ptir.rewrites.control import inline
from ptir_tools.dialects.ptir.rewrites.pruning import used_packed
from ptir_tools.rewrite.expression import select
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.rewrite.vocabulary import tensor_type


def unroll(program: Program, diagnostics: Diagnostics) -> None:
    """Replace each `scan` of known length and each `cond` of the entry by the ops that it runs, in place. A branch computes both
    regions, and `select` chooses. Ops that cannot be replaced so stay, see `_unrolls`."""
    main = program.main
    main.attrs["output_names"] = result_names(main)
    rw = Rewriter(main, program.dialect)
    while found := [op for op in rw.body() if _unrolls(rw, op)]:
        for op in found:
            branch = op.defn.short == "cond"
            note = "both regions of the cond are computed, and a choice follows" if branch else "the scan is unrolled"
            diagnostics.note("ConditionalTranslation", note, op.loc)
            results = (_branch if branch else _loop)(Site(op, rw))
            if len(results) == 1:
                rw.replace_all_uses(op.result, results[0])
            else:
                rw.replace_elements(op.result, results)
            rw.erase(op)
    rw.finish()


def _unrolls(rw: Rewriter, op: Op) -> bool:
    """Whether an op becomes straight code: it has few steps and ops, and its operands and results are tensors of known extents,
    each used by itself. No branch may fail, because that matters only where it is taken."""
    if op.defn.short not in ("scan", "cond") or not result_count(op) or (result_count(op) > 1 and used_packed(rw, op)):
        return False
    types = (*result_types(op), *map(operand_type, op.operands))
    if not all(isinstance(t, TensorType) and t.is_static for t in types):
        return False
    if op.defn.short == "scan":
        if not 0 < tensor_type(op.operands[-1]).static_shape[0] <= UNROLLED:
            return False
    elif any(map(_may_fail, op.regions)):
        return False
    try:
        require_few(op)
    except Violation:
        return False
    return True


def _may_fail(region: Region) -> bool:
    return any((op.defn.fails is not None and op.defn.fails(op)) or any(map(_may_fail, op.regions)) for op in region.body)


def _branch(site: Site) -> list[Operand]:
    """Both regions, and a choice for each result."""
    pred, *arguments = site.operands
    pairs = zip(*(_run(site, region, arguments) for region in site.root.regions), strict=True)
    return [x.operand if x.operand is y.operand else select(pred.broadcast_like(x), x, y).operand for x, y in pairs]


def _loop(site: Site) -> list[Operand]:
    """A copy of the body for each step; its outputs are put together."""
    count = site.root.attr("carry_count")
    carry, inputs = site.operands[:count], site.operands[count:]
    rows: list[Sequence[Tensor]] = []
    for step in range(inputs[0].tensor_type.static_shape[0]):
        returned = _run(site, site.root.regions[0], [*carry, *(_row(x, step) for x in inputs)])
        carry = returned[:count]
        rows.append([x.reshape((1, *x.shape)) for x in returned[count:]])
    stacks = [site.concat(list(parts), axis=0) for parts in zip(*rows, strict=True)]
    return [x.operand for x in (*carry, *stacks)]


def _run(site: Site, region: Region, arguments: Sequence[Tensor]) -> list[Tensor]:
    """The results of a copy of a region."""
    return [site(x) for x in inline(site.rw, site.root, region, [x.operand for x in arguments])]


def _row(x: Tensor, step: int) -> Tensor:
    """Row `step` of an input."""
    rest = x.tensor_type.static_shape[1:]
    return x.slice((step, *(0 for _ in rest)), (1, *rest)).reshape(rest)
