"""The tables of composites by the ops that they replace, and the rewrite that replaces them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import F64, I1, SI64, DType
from ptir_tools.core.ir import Op
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.builder.site import Site, cast, wide
from ptir_tools.dialects.ptir.composites import bits, functions, orders, quantized, rounding, special, trees
from ptir_tools.rewrite.expression import function, maximum, minimum
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.rewrite.vocabulary import tensor_type

Map = Callable[[Tensor], Tensor]
Rule = Callable[..., "Tensor | None"]  # from the site and the operands; None: the op stays


def in_floats(formula: Map) -> Rule:
    """The rule of a function of floats: those narrower than f32 are computed in f32."""
    return lambda site, x: cast(formula(cast(x, wide(x.dtype))), x.dtype)


def in_f32(formula: Map) -> Rule:
    """The rule of a function of floats up to 32 bits."""
    return lambda site, x: None if wide(x.dtype) is F64 else in_floats(formula)(site, x)


def _plain(formula: Map) -> Rule:
    """The rule of a function of any numbers."""
    return lambda site, x: formula(x)


def _joined(integers: Rule, flags: Rule) -> Rule:
    """The rule of a reduction of bits, of integers and of i1."""
    return lambda site, x: (flags if x.dtype is I1 else integers)(site, x)


def _power(site: Site, x: Tensor, y: Tensor) -> Tensor:
    return functions.power(site, x, y) if x.dtype.is_float else bits.power(site, x, y)


EXACT: dict[str, Rule] = {
    "floor": in_floats(rounding.floor), "ceil": in_floats(rounding.ceil), "round_even": in_floats(rounding.nearest),
    "round_away": in_floats(rounding.round_away), "sign": _plain(rounding.sign), "is_finite": _plain(rounding.is_finite),
    "argmin": orders.argmin, "sort": orders.sort,
    "cumsum": orders.running("sum", function("add")), "cumprod": orders.running("prod", function("mul")),
    "cummax": orders.running("max", maximum), "cummin": orders.running("min", minimum),
    "reduce_prod": orders.product(function("mul")),
    "reduce_and": _joined(bits.reduce_and, orders.halved(function("bitwise_and"), lambda d: True)),
    "reduce_or": _joined(bits.reduce_or, orders.halved(function("bitwise_or"), lambda d: False)),
    "reduce_xor": _joined(bits.reduce_xor, orders.halved(function("bitwise_xor"), lambda d: False)),
    "bitwise_and": bits.bitwise_and, "bitwise_or": bits.bitwise_or, "bitwise_xor": bits.bitwise_xor,
    "bitwise_not": bits.bitwise_not, "popcount": bits.popcount, "count_leading_zeros": bits.count_leading_zeros,
    **dict.fromkeys(("shift_left", "shift_right_logical", "shift_right_arithmetic"), bits.shift),
    "custom_call": trees.call,
}  # fmt: skip

FUNCTIONS: dict[str, Rule] = {
    f.__name__: in_floats(f)
    for f in (
        *(functions.expm1, functions.log1p, functions.sinh, functions.cosh, functions.asinh, functions.acosh, functions.atanh),
        *(functions.atan, functions.asin, functions.acos, functions.cbrt),
    )
}

# These take off π/2 in three parts, and so give NaN from |x| = 2**13 (in f64 2**20) on.
PERIODIC: dict[str, Rule] = {f.__name__: in_floats(f) for f in (functions.sin, functions.cos, functions.tan)}

# These lose more than rounding: powers, and what of a quotient is 0 / 0.
PAIRS: dict[str, Rule] = {"atan2": functions.atan2, "pow": _power}

QUANTIZED: dict[str, Rule] = {f.__name__: f for f in (quantized.quantize, quantized.requantize, quantized.dequantize)}

SPECIAL: dict[str, Rule] = {f.__name__: in_f32(f) for f in (special.erf_inv, special.lgamma, special.digamma)}


def express(program: Program, rules: Mapping[str, Rule], widest: DType = SI64) -> None:
    """Replace each op in `rules` by its composite, in place, where extents are static and numbers real. Bits are computed in
    si32, those of more than 32 in `widest`."""
    for block in program.blocks():
        if not any(op.defn.short in rules for op in block.body):
            continue
        rw = Rewriter(block, program.dialect)
        found = True
        while found:  # a reduction of bits is made of ops on bits
            found = False
            for op in rw.body():
                if (rule := rules.get(op.defn.short)) is None or not _fits(op):
                    continue
                site = Site(op, rw, widest)
                if (made := rule(site, *site.operands)) is not None:
                    site.replace(made)
                    found = True
        rw.finish()


# What counts the elements along an axis, or has an axis of bits.
_COUNTED = EXACT.keys() - {
    *("floor", "ceil", "round_even", "round_away", "sign", "is_finite", "argmin", "bitwise_not", "custom_call"),
}


def _fits(op: Op) -> bool:
    types = [tensor_type(x) for x in op.operands]
    if not isinstance(op.result.type, TensorType) or any(t.dtype.is_complex for t in types):
        return False
    short = op.defn.short
    return short in QUANTIZED or all(t.is_static or (short not in _COUNTED and t.dtype.is_float) for t in types)
