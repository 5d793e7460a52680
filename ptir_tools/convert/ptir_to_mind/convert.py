"""PTIR to MIND: what Core v1 can express, the rest refused at every op at once (`NotTranslatable`).

A broadcast is free where MIND broadcasts by itself (Add, Sub, Mul) and is a product with ones elsewhere. Several PTIR ops that
are one MIND operation are recognized by `patterns`.
"""

from __future__ import annotations

from math import prod

from ptir_tools.convert.emitter import NOT_TRANSLATABLE, Rule
from ptir_tools.convert.options import LOSSY
from ptir_tools.convert.patterns import splat_of
from ptir_tools.convert.ptir_to_mind.emit import Broadcast, MindEmit, Read, filled
from ptir_tools.convert.ptir_to_mind.formulas import (
    FORMULAS,
    INTEGERS,
    LOSSY_FORMULAS,
    converted,
    mask_in,
    negative,
    not_zero,
    of_floats,
    truth,
    whole,
)
from ptir_tools.convert.ptir_to_mind.patterns import PATTERNS
from ptir_tools.convert.ptir_to_mind.windows import WINDOWS
from ptir_tools.convert.unrolling import unroll
from ptir_tools.core.arrays import to_literal
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import PROFILE, Options, Program, clone
from ptir_tools.core.dtypes import I1
from ptir_tools.core.evaluate import Context, evaluate
from ptir_tools.core.ir import Op
from ptir_tools.core.types import tensor
from ptir_tools.core.violations import require
from ptir_tools.dialects.mind.building import arranged, matmul
from ptir_tools.dialects.mind.ops.common import CURRENT, broadcast
from ptir_tools.dialects.ptir.composites.express import EXACT, FUNCTIONS, PAIRS, PERIODIC, express
from ptir_tools.passes import run_pipeline
from ptir_tools.rewrite.expression import Term
from ptir_tools.rewrite.vocabulary import tensor_type


def convert(program: Program, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The MIND module equal to the entry of `program`; None after reporting what MIND cannot express."""
    before = diagnostics.errors
    for other in program.functions:
        if other is not program.main:
            diagnostics.error(NOT_TRANSLATABLE, f"a MIND module has one function; @{other.name} is not the entry", other.loc)
    if any(op.regions for op in program.main.body):
        program = clone(program)
        unroll(program, diagnostics)
    rules = EXACT | (FUNCTIONS | PERIODIC | PAIRS if options[LOSSY] else {})
    if options[LOSSY] or any(op.defn.short in rules for block in program.blocks() for op in block.body):
        program = clone(program)
        express(program, rules)
        run_pipeline(program, "decompose,fold" if options[LOSSY] else "fold")  # computed constants need not be expressed
    rules = RULES | LOSSY_FORMULAS if options[LOSSY] else RULES
    if options[PROFILE] == CURRENT:
        rules = rules | QUOTIENTS
    new = MindEmit(rules, program.main, diagnostics, options, patterns=PATTERNS).run()
    return new if diagnostics.errors == before else None


def require_one_dtype(op: Op) -> None:
    """Raise Violation unless a reduction stays in its operand's dtype."""
    dtype, accum, out = tensor_type(op.operands[0]).dtype, op.attr("accum_dtype"), op.attr("out_dtype")
    fits = accum in (None, dtype) and out in (None, dtype)
    require(fits, NOT_TRANSLATABLE, f"MIND reduces {dtype} in {dtype}, not with accum_dtype {accum} and out_dtype {out}")


def binary(opcode: str) -> Rule:
    """An operation that broadcasts: broadcasts of its operands are folded into it where its result has the right shape."""

    return lambda emit, op, x, y: broadcasting(emit, opcode, x, y)


def broadcasting(emit: MindEmit, opcode: str, x: Read, y: Read) -> Term:
    """See `binary`."""
    a, b = emit.narrow(x), emit.narrow(y)
    if broadcast(a.extents, b.extents) != emit.shape:
        a = emit.value(x)
    return emit.last(opcode, a, b)


def unary(opcode: str) -> Rule:
    """One operation on the same operand."""
    return lambda emit, op, x: emit.last(opcode, emit.value(x))


def constant(emit: MindEmit, op: Op) -> Term:
    """The same literal."""
    return emit.constant(op.attr("value"), emit.name)


def iota(emit: MindEmit, op: Op) -> Term:
    """The elements written out."""
    emit.affords(emit.type)
    return emit.constant(to_literal(evaluate(op, (), Context())[0], emit.type), emit.name)


def stop_gradient(emit: MindEmit, op: Op, x: Read) -> Term:
    """The operand: there are no gradients in a module."""
    emit.note("stop_gradient is dropped")
    return emit.value(x)


def cast(emit: MindEmit, op: Op, x: Read) -> Term:
    """A cast. To the dtype in which the operand is represented: the operand; to i1: a mask; between integers: by digits."""
    source, to = tensor_type(op.operands[0]).dtype, op.attr("dtype")
    if to is I1 and source is not I1:
        return truth(emit, op, x)
    if source is I1 and to is not I1:
        v = emit.value(x)
        return v if v.dtype is to else whole(emit, mask_in(emit, x, to))
    if source in INTEGERS and source is not to:
        return whole(emit, converted(emit.narrow(x), to))
    help = "give the inputs the dtype that is needed"
    require(source is to, NOT_TRANSLATABLE, f"MIND does not convert floats, and so not {source} to {to}", help=help)
    return emit.value(x)


def broadcast_to(emit: MindEmit, op: Op, x: Read) -> Broadcast:
    """A broadcast, delayed until an operation needs its full value."""
    return Broadcast(op.result, emit.narrow(x))


def reshape(emit: MindEmit, op: Op, x: Read) -> Term:
    """The same list."""
    return emit.last("Reshape", emit.value(x), new_shape=op.attr("new_shape"))


def transpose(emit: MindEmit, op: Op, x: Read) -> Term:
    """The permutation, not negative."""
    perm = op.attr("perm")
    return emit.last("Transpose", emit.value(x), permutation=tuple(p % len(perm) for p in perm))


def slice_(emit: MindEmit, op: Op, x: Read) -> Term:
    """The window from its starts to its ends, step 1."""
    starts, sizes = op.attr("starts"), op.attr("sizes")
    ends = tuple(a + n for a, n in zip(starts, sizes, strict=True))
    return emit.last("Slice", emit.value(x), starts=starts, ends=ends, steps=(1,) * len(starts))


def tile(emit: MindEmit, op: Op, x: Read) -> Term:
    """An axis of its own for each repetition, stretched by ones."""
    source, repeats = emit.value(x), op.attr("repeats")
    emit.note("the tile becomes a product with ones")
    rank = len(repeats)
    apart = source.op("ExpandDims", source, axes=tuple(range(0, 2 * rank, 2)))
    ones = emit.constant(filled(tensor(source.dtype, tuple(d for r in repeats for d in (r, 1))), 1))
    return emit.last("Reshape", apart * ones, new_shape=emit.shape)


def take(emit: MindEmit, op: Op, x: Read, indices: Read) -> Term:
    """Gather, which indexes the first axis too."""
    return emit.last("Gather", emit.value(x), emit.value(indices))


def reduce_sum(emit: MindEmit, op: Op, x: Read) -> Term:
    """Sum; over no axes the operand itself, since MIND's empty list means all."""
    require_one_dtype(op)
    source, axes = emit.value(x), op.attr("axes")
    return emit.last("Sum", source, axes=axes, keepdims=op.attr("keepdims")) if axes else source


def dot_general(emit: MindEmit, op: Op, lhs: Read, rhs: Read) -> Term:
    """Dot or MatMul where the axes are already in that order; else transposed and reshaped to matrices and back."""
    require_one_dtype(op)
    x, y = emit.value(lhs), emit.value(rhs)
    a, b = x.extents, y.extents
    batch, other_batch = ([i % len(s) for i in op.attr(f"batch_{side}")] for s, side in ((a, "lhs"), (b, "rhs")))
    left, right = ([i % len(s) for i in op.attr(f"contract_{side}")] for s, side in ((a, "lhs"), (b, "rhs")))
    if not batch and left == [len(a) - 1] and right == [0] and 1 in (len(a), len(b)) and max(len(a), len(b)) <= 2:
        return emit.last("Dot", x, y)
    if not batch and (left, right, len(a), len(b)) == ([0], [0], 2, 1):
        return emit.last("Dot", y, x)
    if not batch and left == [len(a) - 1] and right == [0] and len(b) == 2 and len(a) >= 2:
        return emit.last("MatMul", x, y)
    sides = (a, batch + left), (b, other_batch + right)
    free, other_free = ([i for i in range(len(shape)) if i not in used] for shape, used in sides)
    lead = tuple(a[i] for i in batch)
    rows, inner, columns = (prod(s[i] for i in part) for s, part in ((a, free), (a, left), (b, other_free)))
    x = arranged(x, [*batch, *free, *left], (*lead, rows, inner))
    y = arranged(y, [*other_batch, *right, *other_free], (*lead, inner, columns))
    if (*lead, rows, columns) == emit.shape:
        return emit.last("MatMul", x, y)
    return emit.last("Reshape", matmul(x, y), new_shape=emit.shape)


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
    **WINDOWS,
    **FORMULAS,
}


def reciprocal(emit: MindEmit, op: Op, x: Read) -> Term:
    """1 / x."""
    v = emit.narrow(x)
    return whole(emit, v.number(1) / v)


def left_over(emit: MindEmit, op: Op, x: Read, y: Read) -> Term:
    """The remainder of a quotient of integers; for `mod` the divisor once more where that has the other sign."""
    dtype = emit.type.dtype
    require(dtype in INTEGERS, NOT_TRANSLATABLE, f"MIND has no `{op.defn.short}` of {dtype}")
    if splat_of(op.operands[1]):
        result: Term = FORMULAS[op.defn.short](emit, op, x, y)
        return result
    v, n = emit.narrow(x), emit.narrow(y)
    left = v - v / n * n
    if op.defn.short == "mod":
        apart = negative(left) - negative(n)
        left = left + not_zero(left) * (apart * apart) * n
    return whole(emit, left)


# In profile `current`.
QUOTIENTS: dict[str, Rule] = {
    "div": binary("Div"),
    "reciprocal": of_floats(reciprocal),
    "rem": left_over,
    "mod": left_over,
}
