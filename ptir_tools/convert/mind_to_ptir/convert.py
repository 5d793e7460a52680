"""MIND to PTIR: every operation of Core v1, broadcasting made explicit, accumulation in the result's dtype.

Two things that MIND leaves to run time are known here, because shapes are static, and are refused with MIND's own codes:
an Index out of bounds (E6001) and a Mean of integers over no elements (E6006).
"""

from __future__ import annotations

from math import prod

from ptir_tools.convert.emitter import Rule
from ptir_tools.convert.mind_to_ptir.formulas import FORMULAS
from ptir_tools.convert.mind_to_ptir.integers import INTEGERS
from ptir_tools.convert.to_ptir import PtirEmit, same
from ptir_tools.core.arrays import from_literal
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import Attribute, Op, Region, Value
from ptir_tools.core.violations import require
from ptir_tools.dialects.mind.ops.indexing import check_bounds, clamped
from ptir_tools.dialects.mind.ops.linear import pads
from ptir_tools.dialects.mind.ops.reduce import normalized_axes
from ptir_tools.dialects.ptir.rewrites.raising import JOINING
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.constants import literal_of, scalar_of
from ptir_tools.rewrite.patterns import Effect
from ptir_tools.rewrite.vocabulary import tensor_type


def convert(program: Program, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The PTIR program equal to `program`; None after reporting ops that cannot run."""
    known = {op.defn.short for op in program.main.body}
    patterns = FORMULAS if known & {"Relu", "Log"} else {}
    if known & {"Mean", "Div"}:
        patterns = {k: (*patterns.get(k, ()), *INTEGERS.get(k, ())) for k in patterns | INTEGERS}
    result = ModuleEmit(RULES, program.main, diagnostics, options, patterns=patterns).run()
    if result is not None:
        PassContext().apply(result, JOINING, effect=Effect.ORDER, enable_constant_fold=False)
    return result


class ModuleEmit(PtirEmit):
    """A PTIR function made of a module."""

    def needed(self, block: Region) -> list[Op]:
        """All operations, since errors of dead ones count, too; not those that only a formula absorbs."""
        used = {v for op in block.body for v in op.values()}
        wanted, ops = {x for x in block.results if isinstance(x, Value)}, list[Op]()
        for op in reversed(block.body):
            if op.results[0] in wanted or op.results[0] not in used:
                patterns = self.patterns.get(op.defn.short, ())
                self.matches[op] = match = next((m for p in patterns if (m := p(op, self.options))), None)
                wanted.update(x for x in (match.needs if match else op.operands) if isinstance(x, Value))
                ops.append(op)
        return ops[::-1]


def constant(emit: PtirEmit, op: Op) -> Value:
    """The same literal."""
    return emit.last("constant", value=op.attr("value"))


def reshaped(emit: PtirEmit, op: Op, x: Value) -> Value:
    """Reshape, ExpandDims and Squeeze to the shape that they give."""
    return emit.last("reshape", x, new_shape=emit.shape)


def transpose(emit: PtirEmit, op: Op, x: Value) -> Value:
    """The same permutation."""
    return emit.last("transpose", x, perm=op.attr("permutation"))


def relu(emit: PtirEmit, op: Op, x: Value) -> Value:
    """Compare and select, which give 0 for a NaN as MIND does; `maximum` would keep it."""
    zero = emit.filled(0)
    return emit.last("select", emit("compare_gt", x, zero), x, zero)


def sum_attrs(op: Op, x: Value) -> dict[str, Attribute]:
    """The attributes of the sum that `op` is or takes the mean of."""
    axes, dtype = op.attr("axes"), tensor_type(x).dtype
    along = normalized_axes(axes, tensor_type(x).rank)
    return {"axes": along, "keepdims": op.attr("keepdims") and bool(axes), "accum_dtype": dtype, "out_dtype": dtype}


def sum_(emit: PtirEmit, op: Op, x: Value) -> Value:
    """A sum in the dtype of its operand; the empty list of axes means all of them."""
    return emit.last("reduce_sum", x, **sum_attrs(op, x))


def mean(emit: PtirEmit, op: Op, x: Value) -> Value:
    """The sum divided by the count; PTIR's integer division truncates, as MIND's mean does."""
    attrs, shape = sum_attrs(op, x), tensor_type(x).static_shape
    n = prod(shape[a] for a in attrs["axes"])
    require(bool(n) or emit.type.dtype.is_float, "E6006", f"Mean of integers over no elements: the shape is {list(shape)}")
    return emit.last("div", emit("reduce_sum", x, **attrs), emit.filled(n))


def index(emit: PtirEmit, op: Op, x: Value) -> Value:
    """A window of one element, as a scalar. E6001 when it is out of bounds."""
    indices = op.attr("indices")
    if (violation := check_bounds(tensor_type(x).static_shape, indices)) is not None:
        raise violation
    element = emit("slice", x, starts=indices, sizes=(1,) * len(indices))
    return emit.last("reshape", element, new_shape=())


def slice_(emit: PtirEmit, op: Op, x: Value) -> Value:
    """The window; with a stride, the elements at these strides."""
    low = tuple(lo for lo, _ in clamped(tensor_type(x).static_shape, op.attr("starts"), op.attr("ends")))
    return emit.stepped(x, low, emit.type.static_shape, op.attr("steps"))


def gather(emit: PtirEmit, op: Op, x: Value, indices: Value) -> Value:
    """Take; constant indices are checked here, as PTIR would on reading the translation."""
    if (literal := literal_of(indices)) is not None and literal.data is not None:
        shape, result = tensor_type(x).static_shape, from_literal(literal)
        bad = result[(result < 0) | (result >= shape[0])]
        require(not bad.size, "E6001", f"Gather index {bad[:1].tolist()} is out of bounds for shape {list(shape)}")
    return emit.last("take", x, indices)


def dot(emit: PtirEmit, op: Op, lhs: Value, rhs: Value) -> Value:
    """The last axis of the left side with the first of the right."""
    return contraction(emit, lhs, rhs, (tensor_type(lhs).rank - 1,), (0,))


def matmul(emit: PtirEmit, op: Op, lhs: Value, rhs: Value) -> Value:
    """A right side of rank 2 needs no batch axes; else both sides are broadcast to the batch of the result."""
    a, b = tensor_type(lhs).shape, tensor_type(rhs).shape
    if len(b) == 2:
        return contraction(emit, lhs, rhs, (len(a) - 1,), (0,))
    batch = emit.shape[:-2]
    k = len(batch)
    lhs, rhs = emit.full(lhs, batch + a[-2:]), emit.full(rhs, batch + b[-2:])
    return contraction(emit, lhs, rhs, (k + 1,), (k,), tuple(range(k)))


def contraction(
    emit: PtirEmit, lhs: Value, rhs: Value, left: tuple[int, ...], right: tuple[int, ...], batch: tuple[int, ...] = ()
) -> Value:
    """A dot_general accumulated in the result's dtype."""
    axes = {"batch_lhs": batch, "batch_rhs": batch, "contract_lhs": left, "contract_rhs": right}
    return emit.last("dot_general", lhs, rhs, **axes, accum_dtype=emit.type.dtype, out_dtype=emit.type.dtype)


def conv2d(emit: PtirEmit, op: Op, x: Value, f: Value) -> Value:
    """The patches times the filter as a matrix; patches run over (kh, kw, c), as the filter's leading axes do. By one tap of 1
    it is a pad."""
    window, strides = tensor_type(f).static_shape, op.attr("strides")
    padding = pads(tensor_type(x).static_shape, window, strides, op.attr("padding"))
    if window == (1, 1, 1, 1) and tuple(strides) == (1, 1) and scalar_of(f) == 1:  # in Core v1 this is a pad
        low, high = zip((0, 0), *padding, (0, 0), strict=True)
        return emit.last("pad", x, low=low, high=high)
    patches = emit("extract_patches", x, window=window[:2], strides=strides, padding=padding)
    matrix = emit("reshape", f, new_shape=(prod(window[:3]), window[3]))
    return contraction(emit, patches, matrix, (3,), (0,))


RULES: dict[str, Rule] = {
    "ConstI64": constant,
    "ConstF32": constant,
    "ConstF64": constant,
    "ConstTensor": constant,
    "Add": same("add"),
    "Sub": same("sub"),
    "Mul": same("mul"),
    "Div": same("div"),
    "Neg": same("neg"),
    "Exp": same("exp"),
    "Log": same("log"),
    "Relu": relu,
    "Sum": sum_,
    "Mean": mean,
    "Reshape": reshaped,
    "ExpandDims": reshaped,
    "Squeeze": reshaped,
    "Transpose": transpose,
    "Index": index,
    "Slice": slice_,
    "Gather": gather,
    "Dot": dot,
    "MatMul": matmul,
    "Conv2d": conv2d,
}
