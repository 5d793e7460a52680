"""Decompositions of ops that gpt.rs does not have: clamp, layer norm."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core import arrays
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import F32, F64
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Shape, TensorType, tensor
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.rewrite.driver import GreedyConfig, apply_patterns_and_fold_greedily
from ptir_tools.rewrite.pattern_set import PatternSet
from ptir_tools.rewrite.patterns import Effect, OpView, Pattern, rewrites
from ptir_tools.rewrite.rewriter import Rewriter


@rewrites("ptir.clamp", depth=1)
def decompose_clamp(op: OpView) -> bool:
    """`minimum(maximum(x, lo), hi)`, as the contract defines it."""
    return op.replace(op.rw.build(op.root, "minimum", op.rw.build(op.root, "maximum", op.x, op.lo), op.hi))


class Emitter:
    """Builds ops before the root in the dtype of the decomposition; the root's operand has the type `full`."""

    def __init__(self, root: Op, rw: Rewriter, full: TensorType) -> None:
        self.root, self.rw, self.full = root, rw, full
        self.dtype = F64 if full.dtype is F64 else F32

    def __call__(self, name: str, *operands: Operand) -> Value:
        """An op without attributes."""
        return self.rw.build(self.root, name, *operands)

    def cast(self, x: Operand, t: TensorType) -> Operand:
        """`x` in the dtype of `t`."""
        return x if helpers.dtype(x) is t.dtype else self.rw.build(self.root, "cast", x, dtype=t.dtype)

    def spread(self, x: Operand, shape: Shape) -> Value:
        """`x` repeated to `shape`."""
        return self.rw.build(self.root, "broadcast_to", x, result_shape=shape)

    def scalar(self, number: float, shape: Shape) -> Value:
        """A constant, all of whose elements are `number`."""
        literal = arrays.to_literal(np.asarray(number, arrays.numpy_dtype(self.dtype)), tensor(self.dtype))
        return self.spread(self.rw.materialize_constant(self.root, literal), shape)

    def mean(self, x: Operand, axis: int, shape: Shape) -> Value:
        """The mean of `x` over `axis`, which stays with extent 1; `shape` is that of the result."""
        total = self.rw.build(self.root, "reduce_sum", x, axes=(axis,), keepdims=True)
        extent = self.full.shape[axis]
        if isinstance(extent, int):
            return self("mul", total, self.scalar(1 / max(extent, 1), shape))
        ones = self.scalar(1.0, (extent,))
        count = self.rw.build(self.root, "reduce_sum", ones, axes=(0,))
        return self("div", total, self.spread(count, shape))


@rewrites("ptir.layer_norm", depth=1, effect=Effect.ROUNDING)
def decompose_layer_norm(op: OpView) -> bool:
    """The form that gpt.rs captures: mean, centered, mean of squares, rsqrt, scale, shift. Dtypes narrower than f32 are computed
    in f32."""
    emit = Emitter(op.root, op.rw, helpers.tensor_type(op.x))
    full = emit.full.with_dtype(emit.dtype)
    axis = op.feature_axis % full.rank
    kept = (*full.shape[:axis], 1, *full.shape[axis + 1 :])
    x, gamma, beta = (emit.cast(v, full) for v in op.root.operands)
    centered = emit("sub", x, emit.spread(emit.mean(x, axis, kept), full.shape))
    variance = emit.mean(emit("mul", centered, centered), axis, kept)
    scale = emit("rsqrt", emit("add", variance, emit.scalar(op.epsilon, kept)))
    normal = emit("mul", centered, emit.spread(scale, full.shape))
    scaled = emit("mul", normal, emit.spread(_along(op, gamma, full, axis), full.shape))
    shifted = emit("add", scaled, emit.spread(_along(op, beta, full, axis), full.shape))
    return op.replace(emit.cast(shifted, emit.full))


def _along(op: OpView, vector: Operand, full: TensorType, axis: int) -> Operand:
    """`vector` reshaped and broadcast along `axis`."""
    if axis == full.rank - 1:
        return vector
    return op.rw.build(op.root, "reshape", vector, new_shape=(full.shape[axis], *[1] * (full.rank - 1 - axis)))


DECOMPOSITION: Sequence[Pattern] = (decompose_clamp, decompose_layer_norm)
DECOMPOSED = PatternSet(list(DECOMPOSITION)).freeze()


def decompose(program: Program) -> list[str]:
    """Decompose, in place, every op that gpt.rs does not have. The result is the short names of those found. New values have no
    name."""
    found = dict.fromkeys(op.defn.short for block in program.blocks() for op in block.body if op.defn in DECOMPOSED.by_root)
    config = GreedyConfig(enable_constant_fold=False, enable_dce=False, effect=Effect.RANGE)
    for block in (*program.functions, *program.regions) if found else ():
        rw = Rewriter(block, program.dialect)
        apply_patterns_and_fold_greedily(rw, DECOMPOSED, config)
        rw.finish(naming=False)
    return list(found)
