"""PTIR to MIND: what Core v1 can express, the rest refused at every op at once (`NotTranslatable`).

A broadcast costs nothing where MIND broadcasts by itself (Add, Sub, Mul) and is a product with ones elsewhere. What several
PTIR ops say and one operation of MIND says too is found by the patterns of `ptir_mind_patterns`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from ptir_tools.convert.ptir_to_mind.emit import NOT_TRANSLATABLE, Emit, Rule, Translation, filled
from ptir_tools.core.arrays import to_literal
from ptir_tools.core.diagnostics import Diagnostics, require
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import DType
from ptir_tools.core.evaluate import Context, evaluate
from ptir_tools.core.ir import Literal, Operand, Program, Value
from ptir_tools.core.opdef import operand_type
from ptir_tools.core.types import tensor
from ptir_tools.dialects.mind.ops.common import broadcast


def convert(program: Program, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The MIND module that computes what the entry of `program` does; None after reporting what cannot be said."""
    before = diagnostics.errors
    for other in program.functions:
        if other is not program.main:
            diagnostics.error(NOT_TRANSLATABLE, f"a MIND module has one function; @{other.name} is not the entry", other.loc)
    translation = Translation(program, RULES, diagnostics, options)
    translation.parameters()
    translation.body()
    new = translation.results()
    return new if diagnostics.errors == before else None


def plain(dtype: DType, accum: DType | None, out: DType | None) -> None:
    """Raise Violation unless a reduction stays in its operand's dtype."""
    fits = accum in (None, dtype) and out in (None, dtype)
    require(fits, NOT_TRANSLATABLE, f"MIND reduces {dtype} in {dtype}, not with accum_dtype {accum} and out_dtype {out}")


def _dtype(x: Operand) -> DType:
    t: Any = operand_type(x)
    found: DType = t.dtype
    return found


def binary(opcode: str) -> Callable[..., Value]:
    """An operation that broadcasts: broadcasts of its operands are left to it where its result has the right shape."""

    def rule(emit: Emit, x: Operand, y: Operand) -> Value:
        a, b = emit.slim(x), emit.slim(y)
        if broadcast(a.type.static_shape, b.type.static_shape) != emit.shape:  # type: ignore[attr-defined]
            a = emit.value(x)
        return emit.last(opcode, a, b)

    return rule


def unary(opcode: str) -> Callable[..., Value]:
    """One operation on the same operand."""
    return lambda emit, x: emit.last(opcode, emit.value(x))


def constant(emit: Emit, value: Literal) -> Value:
    """The same literal."""
    return emit.constant(value, last=True)


def iota(emit: Emit, **_: Any) -> Value:
    """The elements written out."""
    require(emit.type.nbytes <= emit.limits.literal_bytes, NOT_TRANSLATABLE, "the constant would be too big")
    assert emit.result is not None and emit.result.op is not None
    return emit.constant(to_literal(evaluate(emit.result.op, (), Context())[0], emit.type), last=True)


def stop_gradient(emit: Emit, x: Operand) -> Value:
    """The operand: there are no gradients in a module."""
    emit.note(emit.result, "stop_gradient is dropped")
    return emit.value(x)


def cast(emit: Emit, x: Operand, dtype: DType) -> Value:
    """To the dtype that the operand has: the operand."""
    message = f"MIND converts nothing, {_dtype(x)} to {dtype} neither"
    require(_dtype(x) is dtype, NOT_TRANSLATABLE, message, help="give the inputs the dtype that is needed")
    return emit.value(x)


def broadcast_to(emit: Emit, x: Operand, result_shape: Any) -> Value | None:
    """Kept back until an operation needs it in full."""
    assert emit.result is not None
    emit.to.narrow[emit.result] = emit.slim(x)
    return None


def reshape(emit: Emit, x: Operand, new_shape: tuple[int, ...]) -> Value:
    """The same list; an extent of 0, which MIND cannot write, is left to be inferred where it is the only one."""
    if emit.shape.count(0) == 1:
        new_shape = tuple(d or -1 for d in emit.shape)
    return emit.last("Reshape", emit.value(x), new_shape=new_shape)


def transpose(emit: Emit, x: Operand, perm: tuple[int, ...]) -> Value:
    """The permutation, not negative."""
    return emit.last("Transpose", emit.value(x), permutation=tuple(p % len(perm) for p in perm))


def slice_(emit: Emit, x: Operand, starts: tuple[int, ...], sizes: tuple[int, ...]) -> Value:
    """The window from its starts to its ends, step 1."""
    ends = tuple(a + n for a, n in zip(starts, sizes, strict=True))
    return emit.last("Slice", emit.value(x), starts=starts, ends=ends, steps=(1,) * len(starts))


def tile(emit: Emit, x: Operand, repeats: tuple[int, ...]) -> Value:
    """An axis of its own for each repetition, stretched by ones."""
    source = emit.value(x)
    emit.note(emit.result, "the tile becomes a product with ones")
    rank = len(repeats)
    apart = emit("ExpandDims", source, axes=tuple(range(0, 2 * rank, 2)))
    ones = emit.constant(filled(tensor(emit.type.dtype, tuple(d for r in repeats for d in (r, 1))), 1))
    return emit.last("Reshape", emit("Mul", apart, ones), new_shape=emit.shape)


def take(emit: Emit, x: Operand, indices: Operand) -> Value:
    """Gather, which indexes the first axis too."""
    return emit.last("Gather", emit.value(x), emit.value(indices))


def reduce_sum(emit: Emit, x: Operand, *, axes: Any, keepdims: bool, accum_dtype: DType | None, out_dtype: DType | None) -> Value:
    """Sum; over no axes the operand itself, since MIND's empty list means all."""
    plain(_dtype(x), accum_dtype, out_dtype)
    source = emit.value(x)
    return emit.last("Sum", source, axes=axes, keepdims=keepdims) if axes else source


def dot_general(emit: Emit, lhs: Operand, rhs: Operand, *, accum_dtype: Any, out_dtype: Any, **axes: tuple[int, ...]) -> Value:
    """Dot or MatMul where the axes stand so; else transposed and reshaped to matrices and back."""
    plain(_dtype(lhs), accum_dtype, out_dtype)
    x, y = emit.value(lhs), emit.value(rhs)
    a, b = x.type.static_shape, y.type.static_shape  # type: ignore[attr-defined]
    batch, other_batch = ([i % len(s) for i in axes[f"batch_{side}"]] for s, side in ((a, "lhs"), (b, "rhs")))
    left, right = ([i % len(s) for i in axes[f"contract_{side}"]] for s, side in ((a, "lhs"), (b, "rhs")))
    if not batch and left == [len(a) - 1] and right == [0] and 1 in (len(a), len(b)) and max(len(a), len(b)) <= 2:
        return emit.last("Dot", x, y)
    if not batch and left == [len(a) - 1] and right == [0] and len(b) == 2 and len(a) >= 2:
        return emit.last("MatMul", x, y)
    sides = (a, batch + left), (b, other_batch + right)
    free, other_free = ([i for i in range(len(shape)) if i not in used] for shape, used in sides)
    lead = tuple(a[i] for i in batch)
    rows, inner, columns = (prod(s[i] for i in part) for s, part in ((a, free), (a, left), (b, other_free)))
    x = arranged(emit, x, [*batch, *free, *left], (*lead, rows, inner))
    y = arranged(emit, y, [*other_batch, *right, *other_free], (*lead, inner, columns))
    if (*lead, rows, columns) == emit.shape:
        return emit.last("MatMul", x, y)
    return emit.last("Reshape", emit("MatMul", x, y), new_shape=emit.shape)


def arranged(emit: Emit, x: Value, order: list[int], shape: tuple[int, ...]) -> Value:
    """`x` with its axes in another order, then in another shape; nothing where nothing changes."""
    if order != sorted(order):
        x = emit("Transpose", x, permutation=tuple(order))
    return x if x.type.shape == shape else emit("Reshape", x, new_shape=shape)  # type: ignore[attr-defined]


RULES: dict[str, Rule] = {
    "constant": constant,
    "iota": iota,
    "add": binary("Add"),
    "sub": binary("Sub"),
    "mul": binary("Mul"),
    "neg": unary("Neg"),
    "exp": unary("Exp"),
    "log": unary("Log"),
    "stop_gradient": stop_gradient,
    "cast": cast,
    "broadcast_to": broadcast_to,
    "reshape": reshape,
    "transpose": transpose,
    "slice": slice_,
    "tile": tile,
    "take": take,
    "reduce_sum": reduce_sum,
    "dot_general": dot_general,
}
