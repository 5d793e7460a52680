"""Raise the formulas of translations to the ops that they compute: comparisons, quantization, narrow integers, indexing,
contractions, concat.

Tiny has no comparison: it computes d > 0 as `cast(select(compare_gt(d, 0), d, 0))` to i1. A difference of floats with subnormals
and infinities has the right sign, and is NaN for unordered operands. A clamp to -1 … 1 separates numbers from NaNs.
"""

from __future__ import annotations

from ptir_tools.core.arrays import from_literal, numpy_dtype, to_literal
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.dialects.ptir.rewrites.contractions import narrowed_product, raise_wide_contraction, sum_of_parts
from ptir_tools.dialects.ptir.rewrites.helpers import HELPERS, splat
from ptir_tools.dialects.ptir.rewrites.lookups import raise_argmax, raise_choice, raise_iota, raise_update
from ptir_tools.dialects.ptir.rewrites.steps import STEPS
from ptir_tools.dialects.ptir.rewrites.windows import WINDOWS
from ptir_tools.rewrite.constants import literal_of, scalar_of
from ptir_tools.rewrite.pattern_set import PatternSet
from ptir_tools.rewrite.patterns import OpView, rewrites
from ptir_tools.rewrite.rules import rules

RULES = """
    mask-positive:      cast(select(compare_gt(d, (z := 0)), d, 0), dtype=_)
                        => compare_gt(d, z)   if boolean(root) and real(d)
    mask-greater:       compare_gt(sub(x, y), 0)                 => compare_gt(x, y)   if gradual(x)
    mask-greater-integer: cast(sub(maximum(x, y), y), dtype=_)   => compare_gt(x, y)   if boolean(root) and integer(x)
    mask-differs:       cast(sub(x, y), dtype=_)                 => compare_ne(x, y)   if boolean(root) and integer(x)
    mask-not-differs:   compare_eq(compare_ne(x, y), False)      => compare_eq(x, y)
    mask-not-greater:   compare_eq(compare_gt(x, y), False)      => compare_le(x, y)   if number(x, y)
    mask-number:        compare_gt(add(clamp(x, -1, 1), 2), 0)   => compare_eq(x, x)   if gradual(x)
    mask-at-most:       select(p := compare_eq(compare_gt(x, y), False), compare_eq(z := maximum(x, y), z), p)
                        => compare_le(x, y)
    mask-equal:         select(n := select(a := compare_eq(compare_gt(x, y), False), compare_eq(compare_gt(y, x), False), a),
                               compare_eq(z := maximum(x, y), z), n)
                        => compare_eq(x, y)

    narrow-maximum:     maximum(cast(var x, dtype=d), const c)   => cast(maximum(x, cast(c, dtype=dtype(x))), dtype=d)
                        if integer(x) and lossless(dtype(x), d) and fits(c, dtype(x))
    narrow-minimum:     minimum(cast(var x, dtype=d), const c)   => cast(minimum(x, cast(c, dtype=dtype(x))), dtype=d)
                        if integer(x) and lossless(dtype(x), d) and fits(c, dtype(x))
    narrow-clamp:       clamp(cast(var x, dtype=d), const a, const b)
                        => cast(clamp(x, cast(a, dtype=dtype(x)), cast(b, dtype=dtype(x))), dtype=d)
                        if integer(x) and lossless(dtype(x), d) and fits(a, dtype(x)) and fits(b, dtype(x))
    """


@rewrites("ptir.compare_ne", operands=["ptir.cast"])
def mask_not(op: OpView) -> bool:
    """`compare_ne(cast(p), 1)` of an i1 `p`, which graphs without negation use, is `compare_eq(p, False)`."""
    for one, other in (op.root.operands, op.root.operands[::-1]):
        cast = op.defined_by(other, "cast")
        if cast is not None and helpers.boolean(cast.x) and scalar_of(one) == 1:
            false = helpers.insert(op.rw, op.root, splat(helpers.tensor_type(cast.x), False))
            return op.replace(op.rw.build(op.root, "compare_eq", cast.x, false))
    return False


@rewrites("ptir.dot_general", operands=["ptir.cast"])
def narrow_factors(op: OpView) -> bool:
    """Factors that were widened only for their product are read in the narrow dtype; the accumulator is as wide as before."""
    lhs, rhs = op.root.operands
    for x in (lhs, rhs):
        cast = op.defined_by(x, "cast")
        if cast is None or not helpers.integer(cast.x) or not helpers.lossless(d := helpers.dtype(cast.x), helpers.dtype(x)):
            continue
        factors = [_narrow(op, factor, d) for factor in (lhs, rhs)]
        if None in factors:
            continue
        attrs = op.root.defn.named(op.root.attrs)
        attrs |= {"accum_dtype": op.accum_dtype or helpers.dtype(x), "out_dtype": helpers.dtype(op.root)}
        return op.replace(op.rw.build(op.root, "dot_general", *factors, **attrs))
    return False


def _narrow(op: OpView, x: Operand, d: DType) -> Operand | None:
    """`x` in the narrower dtype `d`, when it is a cast from that or a constant that fits; else None."""
    cast = op.defined_by(x, "cast")
    if cast is not None:
        return cast.x if helpers.dtype(cast.x) is d else None
    literal = literal_of(x)
    if literal is None or literal.data is None or not literal.type.is_static or not literal.type.count:
        return None
    found = from_literal(literal).astype(np.int64)
    if not d.min <= found.min() <= found.max() <= d.max:
        return None
    narrowed = to_literal(found.astype(numpy_dtype(d)), literal.type.with_dtype(d))
    made: Value = op.rw.build(op.root, "constant", value=narrowed)
    return made


RAISING = PatternSet([
    *rules(RULES, DIALECT, HELPERS, splat), mask_not, *STEPS, raise_choice, raise_argmax, raise_iota, raise_update,
    raise_wide_contraction, narrow_factors, narrowed_product, sum_of_parts,
]).freeze()  # fmt: skip
JOINING = PatternSet([sum_of_parts, *WINDOWS]).freeze()  # for dialects with contractions
