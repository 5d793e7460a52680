"""Reverse-mode differentiation of a MIND module: the gradient of every operation of Core v1 is written in Core v1.

- Relu: the gradient times the step function `1 - Relu(1 - Relu(x) * b * b)`, where b is so large (2**127, in f64 2**1023) that
  the product is at least 1 for every positive x, a subnormal too. It is 0 at 0 and for a NaN.
- Log: the gradient times `Exp(-Log x)`, which is 1 / x within the rounding of Log.
- Slice, Index: the gradient with zeros between and around its elements. Gather: the sums of the rows that were read, by a table
  where the indices are constant, and else by a product with one-hot rows.
- Conv2d: the gradient with zeros between its elements (for the strides), convolved with the reversed filter or by the input.

A gradient is not broadcast early: along axes where it is constant it has extent 1, until an operation needs the full shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from ptir_tools.core.arrays import Array, from_literal, numpy_dtype, to_literal
from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import F32, SI64, DType
from ptir_tools.core.ir import Attribute, Function, Op, Operand, Value, create
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.dialects.mind.building import (
    NAMES,
    constant,
    gather,
    matmul,
    one_hot,
    relu,
    reshaped,
    spread,
    stretched,
    transposed,
    widened,
    window,
)
from ptir_tools.dialects.mind.building import total as sum_of
from ptir_tools.dialects.mind.ops.indexing import clamped
from ptir_tools.dialects.mind.ops.linear import pads
from ptir_tools.dialects.mind.ops.reduce import normalized_axes
from ptir_tools.dialects.mind.rewrites import SIMPLIFICATION
from ptir_tools.passes import PassContext, cse, dce
from ptir_tools.rewrite.constants import literal_of, scalar_of
from ptir_tools.rewrite.expression import Number, Sink, Term, exp
from ptir_tools.rewrite.patterns import Effect
from ptir_tools.rewrite.rewriter import Rewriter

OPTIONS = {"wrt": "", "loss": 0, "rate": 0.0}

Shape = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

_MANY = 64  # if a row of a table is read at most so often, its gradient is a sum of looked-up rows


def run(program: Program, context: PassContext) -> None:
    """Reverse mode: the outputs become the loss and its gradients by `wrt`, in the order of the inputs.

    The loss is output number `loss`, a float scalar (E5004). `wrt` names inputs, separated by commas; without it every float
    input. With `rate` the outputs are the loss and those inputs after one step of gradient descent, `x - rate * gradient`.
    Dead and equal instructions are removed afterwards.

    E5001: an instruction that is not in Core v1 and depends on an input. E5005: an input of integers.
    """
    function = program.main
    loss = _loss(function, context)
    chosen = _choose_inputs(function, context)
    if loss is None or not chosen:
        return
    active = _active_ops(function, loss, chosen)
    if _refused(active, context.diagnostics):
        return
    for rewriter in context.rewriters(program):
        gradients = Gradients(rewriter, active, chosen)
        result = gradients.of(loss)
        if rate := context.options["rate"]:
            result = [gradients.stepped(v, g, rate) for v, g in zip(chosen, result, strict=True)]
        rewriter.set_results(function, [loss, *(g.operand for g in result)])
    context.apply(program, SIMPLIFICATION, effect=Effect.EXACT)
    cse.run(program, context)
    dce.run(program, context)


def _loss(function: Function, context: PassContext) -> Value | None:
    number = context.options["loss"]
    if not 0 <= number < len(function.results):
        raise UsageError(f"option `loss` is {number}, the module has {len(function.results)} outputs")
    loss = function.results[number]
    if isinstance(loss, Value) and isinstance(t := loss.type, TensorType) and t.dtype.is_float and not t.shape:
        return loss
    context.diagnostics.error("E5004", f"output {number} is not a float scalar and cannot be differentiated", function.loc)
    return None


def _choose_inputs(function: Function, context: PassContext) -> list[Value]:
    """The inputs by which to differentiate, in the order of the module."""
    names = dict(zip(function.attrs.get("input_names") or [p.name for p in function.params], function.params, strict=True))
    wanted = [n.strip() for n in context.options["wrt"].split(",") if n.strip()] or [n for n, p in names.items() if _float(p)]
    if unknown := [n for n in wanted if n not in names]:
        raise UsageError(f"option `wrt`: no input is called `{unknown[0]}` (there are: {', '.join(names)})")
    for n in wanted:
        if not _float(names[n]):
            context.diagnostics.error("E5005", f"input `{n}` holds integers and has no gradient", function.loc)
    if not wanted:
        context.diagnostics.error("E5005", "the module has no float input to differentiate by", function.loc)
    return [p for n, p in names.items() if n in wanted and _float(p)]


def _float(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.dtype.is_float


def _active_ops(function: Function, loss: Value, chosen: list[Value]) -> list[Op]:
    """The ops between a chosen input and the loss, in order."""
    reached = set(chosen)
    for op in function.body:
        if any(v in reached for v in op.values()):
            reached.add(op.result)
    needed = {loss}
    active = []
    for op in reversed(function.body):
        if op.result in needed and op.result in reached:
            needed.update(op.values())
            active.append(op)
    return active[::-1]


def _refused(active: list[Op], diagnostics: Diagnostics) -> bool:
    bad = [op for op in active if op.defn.short not in RULES]
    for op in bad:
        diagnostics.error("E5001", f"{op.defn.short} has no gradient: it is not an operation of Core v1", op.loc)
    return bool(bad)


class Gradients(Sink):
    """Appends instructions to a module. `gradients` has the gradient of the loss by each value so far; it broadcasts to the
    shape of the value."""

    names = NAMES

    def __init__(self, rewriter: Rewriter, active: list[Op], chosen: list[Value]) -> None:
        self.rewriter = rewriter
        self.active = active
        self.chosen = chosen
        self.wanted = {*chosen, *(op.result for op in active)}
        self.gradients: dict[Value, Term] = {}

    def of(self, loss: Value) -> list[Term]:
        """The gradients by the chosen inputs; zeros if the loss does not depend on one."""
        self.gradients[loss] = Term(self, loss).number(1.0)
        for op in reversed(self.active):
            result, g = Term(self, op.result), self.gradients.get(op.result)
            if g is None or 0 in result.shape:  # the loss depends on no input
                continue
            operands, rule = list(op.values()), RULES[op.defn.short]
            terms = [Term(self, v) for v in operands]
            parts = rule(op, g if rule in NARROW else full(g, result.extents), result, *terms)
            for v, x, part in zip(operands, terms, parts, strict=True):
                if v in self.wanted:
                    self.add(v, reduced(part(), result.extents if rule in BROADCASTING else x.extents, x.extents))
        inputs = [Term(self, v) for v in self.chosen]
        return [full(self.gradients.get(v, x.number(0.0)), x.extents) for v, x in zip(self.chosen, inputs, strict=True)]

    def add(self, v: Value, part: Term) -> None:
        """Add a part to the gradient by `v`."""
        self.gradients[v] = self.gradients[v] + part if v in self.gradients else part

    def stepped(self, v: Value, g: Term, rate: float) -> Term:
        """`v` after a step against its gradient `g`."""
        return Term(self, v) - g * rate

    def built(self, name: str, operands: Sequence[Operand], attrs: Mapping[str, Attribute]) -> Value:
        """A new instruction at the end."""
        return self.rewriter.append(self.rewriter.block, create(OPS[f"mind.{name}"], operands, attrs))

    def number(self, x: Number, dtype: DType) -> Value:
        """A scalar constant."""
        return self.built("ConstTensor", (), {"value": to_literal(np.asarray(x, numpy_dtype(dtype)), tensor(dtype))})


def full(g: Term, extents: Shape) -> Term:
    """`g` broadcast to `extents`."""
    return g if g.extents == extents else stretched(g, extents)


def reduced(g: Term, whole: Shape, extents: Shape) -> Term:
    """The sum of `g`, broadcast to `whole`, over the axes along which a value of shape `extents` was broadcast. Along axes where
    `g` is constant the sum is a product."""
    g = reshaped(g, (1,) * (len(whole) - len(g.extents)) + g.extents)
    aligned = (1,) * (len(whole) - len(extents)) + extents
    axes = [i for i, (a, b) in enumerate(zip(whole, aligned, strict=True)) if a != b]
    summed = tuple(i for i in axes if g.extents[i] != 1)
    times = prod(whole[i] for i in axes if i not in summed)
    gone = len(whole) - len(extents)  # axes that the value does not have
    narrow = tuple(1 if i in summed else d for i, d in enumerate(g.extents))[gone:]
    if summed:
        g = sum_of(g, axes=summed, keepdims=set(summed) != set(range(gone)))
    g = reshaped(g, narrow)
    return product(g, g.number(float(times))) if times != 1 else g


def product(g: Term, y: Term) -> Term:
    """`g` times `y`; just `y` if `g` is 1, the gradient of the loss by itself."""
    return y if not g.shape and scalar_of(g.operand) == 1 else g * y


def swapped(x: Term) -> Term:
    """The last two axes swapped."""
    rank = len(x.shape)
    return transposed(x, (*range(rank - 2), rank - 1, rank - 2))


def convolved(x: Term, f: Term, pairs: Pairs) -> Term:
    """Conv2d with these pads of height and width; a negative pad crops."""
    cut = [(max(-low, 0), max(-high, 0)) for low, high in ((0, 0), *pairs, (0, 0))]
    sizes = tuple(d - low - high for d, (low, high) in zip(x.extents, cut, strict=True))
    x = window(x, tuple(low for low, _ in cut), sizes)
    padding = tuple((max(low, 0), max(high, 0)) for low, high in pairs)
    return x.op("Conv2d", x, f, strides=(1, 1), padding=padding)


# A rule gets the op, the gradient by its result, the result and the operands. It has, for each operand, a function that builds
# its part of the gradient; it is called only if that is needed.
Part = Callable[[], Term]


def _add(op: Op, g: Term, y: Term, *xs: Term) -> list[Part]:
    return [lambda: g, lambda: g]


def _sub(op: Op, g: Term, y: Term, *xs: Term) -> list[Part]:
    return [lambda: g, lambda: -g]


def _mul(op: Op, g: Term, y: Term, a: Term, b: Term) -> list[Part]:
    return [lambda: product(g, b), lambda: product(g, a)]


def _neg(op: Op, g: Term, y: Term, x: Term) -> list[Part]:
    return [lambda: -g]


def _exp(op: Op, g: Term, y: Term, x: Term) -> list[Part]:
    return [lambda: product(g, y)]


def _log(op: Op, g: Term, y: Term, x: Term) -> list[Part]:
    return [lambda: product(g, exp(-y))]


def _relu(op: Op, g: Term, y: Term, x: Term) -> list[Part]:
    big = 2.0 ** (127 if x.dtype is F32 else 1023)
    return [lambda: product(g, 1 - relu(1 - y * big * big))]


def _reduction(op: Op, g: Term, y: Term, x: Term) -> list[Part]:
    """Every element gets the gradient of its sum; for Mean, divided by the number of elements."""
    extents = x.extents
    axes = normalized_axes(op.attr("axes"), len(extents))
    kept = tuple(1 if i in axes else d for i, d in enumerate(extents))

    def part() -> Term:
        n = prod(extents[a] for a in axes) if op.defn.short == "Mean" else 1
        each = reshaped(full(g, y.extents), kept) if g.shape else g
        return product(each, x.number(1 / n)) if n > 1 else each

    return [part]


def _reshape(op: Op, g: Term, y: Term, x: Term) -> list[Part]:
    return [lambda: reshaped(g, x.extents)]


def _transpose(op: Op, g: Term, y: Term, x: Term) -> list[Part]:
    forward = op.attr("permutation")
    return [lambda: g.op("Transpose", g, permutation=tuple(forward.index(i) for i in range(len(forward))))]


def _slice(op: Op, g: Term, y: Term, x: Term) -> list[Part]:
    """Zeros between and around the elements of the slice."""
    bounds = clamped(x.extents, op.attr("starts"), op.attr("ends"))
    return [lambda: _spread(g, [a for a, _ in bounds], op.attr("steps"), x.extents)]


def _index(op: Op, g: Term, y: Term, x: Term) -> list[Part]:
    """Zeros around the one element."""
    ones = (1,) * len(x.extents)
    return [lambda: _spread(reshaped(g, ones), op.attr("indices"), ones, x.extents)]


def _spread(g: Term, starts: Sequence[int], steps: Shape, extents: Shape) -> Term:
    """`g` from `starts` on by `steps` among zeros of shape `extents`."""
    wide = spread(g, [s - 1 for s in steps])
    sizes = [(n - 1) * s + 1 for n, s in zip(g.extents, steps, strict=True)]
    pairs = [(a, d - a - n) for a, d, n in zip(starts, extents, sizes, strict=True)]
    return reshaped(widened(wide, pairs), extents)


def _gather(op: Op, g: Term, y: Term, x: Term, indices: Term) -> list[Part]:
    """For each row, the sum over the positions that read it."""
    rows, count = x.extents[0], prod(indices.extents)

    def part() -> Term:
        flat = reshaped(g, (count, prod(x.extents[1:])))
        literal = literal_of(indices.operand)
        places = None if literal is None or literal.data is None else _places(from_literal(literal).reshape(-1), rows)
        if places is not None:  # by a table of the positions; the position after the last is a row of zeros
            wide = reshaped(widened(flat, ((0, 1), (0, 0))), (count + 1, flat.extents[1]))
            read = gather(wide, constant(wide, places, SI64))
            return reshaped(sum_of(read, axes=(1,), keepdims=False), x.extents)
        hot = one_hot(reshaped(indices, (count,)), rows, x.dtype)
        return reshaped(matmul(swapped(hot), flat), x.extents)

    return [part, lambda: g]


def _places(indices: Array, rows: int) -> Array | None:
    """For each row the positions where `indices` read it, filled with the position after the last; None if the table is too
    long."""
    counts = np.bincount(indices, minlength=rows)
    if len(counts) > rows or (longest := int(counts.max())) > max(_MANY, 4 * len(indices) // rows):
        return None
    order = np.argsort(indices, kind="stable")
    table = np.full((rows, longest), len(indices), np.int64)
    before = np.concatenate(([0], np.cumsum(counts)[:-1]))
    table[indices[order], np.arange(len(indices)) - before[indices[order]]] = order
    return table


def _matmul(op: Op, g: Term, y: Term, a: Term, b: Term) -> list[Part]:
    """The gradient by each operand is the product of the gradient and the other operand; broadcast batches are summed."""

    def part(found: Term, v: Term) -> Term:
        return reduced(found, (*found.extents[:-2], *v.extents[-2:]), v.extents)

    return [lambda: part(matmul(g, swapped(b)), a), lambda: part(matmul(swapped(a), g), b)]


def _dot(op: Op, g: Term, y: Term, a: Term, b: Term) -> list[Part]:
    """As a MatMul of a row and a column, where an operand is a vector."""
    row = a if len(a.extents) == 2 else reshaped(a, (1, *a.extents))
    column = b if len(b.extents) == 2 else reshaped(b, (*b.extents, 1))
    wide = reshaped(g, (row.extents[0], column.extents[1]))
    by_row, by_column = _matmul(op, wide, y, row, column)
    return [lambda: reshaped(by_row(), a.extents), lambda: reshaped(by_column(), b.extents)]


def _conv2d(op: Op, g: Term, y: Term, x: Term, f: Term) -> list[Part]:
    """First g gets zeros between its elements, for the strides. The gradient by the input is its convolution with the reversed
    filter. The gradient by the filter is the input convolved with g, with batch and channels exchanged."""
    strides, taps, extents = op.attr("strides"), f.extents[:2], x.extents[1:3]
    padding = pads(x.extents, f.extents, strides, op.attr("padding"))
    spans = [(n - 1) * s + 1 for n, s in zip(y.extents[1:3], strides, strict=True)]

    def spaced() -> Term:
        return spread(g, (0, *(s - 1 for s in strides), 0))

    def by_input() -> Term:
        lows = [k - 1 - low for k, (low, _) in zip(taps, padding, strict=True)]
        pairs = tuple((a, d - n - a + k - 1) for a, d, n, k in zip(lows, extents, spans, taps, strict=True))
        return convolved(spaced(), _reversed(f), pairs)

    def by_filter() -> Term:
        pairs = tuple((low, k - 1 + n - d - low) for d, n, k, (low, _) in zip(extents, spans, taps, padding, strict=True))
        images = transposed(x, (3, 1, 2, 0))
        return transposed(convolved(images, transposed(spaced(), (1, 2, 0, 3)), pairs), (1, 2, 0, 3))

    return [by_input, by_filter]


def _reversed(f: Term) -> Term:
    """A filter with a reversed window, and its input and output channels exchanged."""
    for order in ((1, 0, 2, 3), (1, 0, 3, 2)):
        if (n := f.extents[0]) > 1:
            f = gather(f, constant(f, np.arange(n)[::-1], SI64))
        f = transposed(f, order)
    return f


RULES: dict[str, Callable[..., list[Part]]] = {
    "Add": _add,
    "Sub": _sub,
    "Mul": _mul,
    "Neg": _neg,
    "Exp": _exp,
    "Log": _log,
    "Relu": _relu,
    "Sum": _reduction,
    "Mean": _reduction,
    "Reshape": _reshape,
    "ExpandDims": _reshape,
    "Squeeze": _reshape,
    "Transpose": _transpose,
    "Slice": _slice,
    "Index": _index,
    "Gather": _gather,
    "Dot": _dot,
    "MatMul": _matmul,
    "Conv2d": _conv2d,
}
BROADCASTING = (_add, _sub, _mul)  # their parts have the shape of the result
NARROW = (*BROADCASTING, _neg, _exp, _log, _relu, _reduction)  # they accept a gradient that still broadcasts to the result
