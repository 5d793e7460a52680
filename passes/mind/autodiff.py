"""Reverse-mode differentiation of a MIND module: the gradient of every operation of Core v1 is written in Core v1.

- Relu: the gradient times the step function `1 - Relu(1 - Relu(x) * b * b)`, where b is so large (2**127, in f64 2**1023) that
  the product is at least 1 for every positive x, a subnormal too. It is 0 at 0 and for a NaN.
- Log: the gradient times `Exp(-Log x)`, which is 1 / x within the rounding of Log.
- Slice, Index: the gradient with zeros between and around its elements. Gather: the sums of the rows that were read, by a table
  where the indices are constant, and else by a product with one-hot rows.
- Conv2d: the gradient with zeros between its elements (for the strides), convolved with the reversed filter or by the input.

A gradient is kept as narrow as it is: it has extent 1 where it does not change, until an operation needs it in full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ptir_tools.core.arrays import Array, from_literal
from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import F32, SI64
from ptir_tools.core.ir import Function, Op, Value, create
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.mind import building
from ptir_tools.dialects.mind.ops.indexing import clamped
from ptir_tools.dialects.mind.ops.linear import pads
from ptir_tools.dialects.mind.ops.reduce import normalized_axes
from ptir_tools.dialects.mind.rewrites import SIMPLIFICATION
from ptir_tools.passes import PassContext, cse, dce
from ptir_tools.rewrite.constants import literal_of, scalar_of
from ptir_tools.rewrite.patterns import Effect
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.rewrite.vocabulary import extents as shape
from ptir_tools.rewrite.vocabulary import tensor_type

OPTIONS = {"wrt": "", "loss": 0, "rate": 0.0}

Shape = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

_MANY = 64  # a row of a table is read at most so often for its gradient to be a sum of rows that are looked up


def run(program: Program, context: PassContext) -> None:
    """Reverse mode: the outputs become the loss and its gradients by `wrt`, in the order of the inputs.

    The loss is output number `loss`, a float scalar (E5003). `wrt` names inputs, separated by commas; without it every float
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
        rewriter.set_results(function, [loss, *result])
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
    context.diagnostics.error("E5003", f"output {number} is not a float scalar and cannot be differentiated", function.loc)
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


class Gradients:
    """Appends instructions to a module. `gradients` has the gradient of the loss by each value so far; it broadcasts to the
    shape of the value."""

    def __init__(self, rewriter: Rewriter, active: list[Op], chosen: list[Value]) -> None:
        self.rewriter = rewriter
        self.active = active
        self.chosen = chosen
        self.wanted = {*chosen, *(op.result for op in active)}
        self.gradients: dict[Value, Value] = {}

    def of(self, loss: Value) -> list[Value]:
        """The gradients by the chosen inputs; zeros if the loss does not depend on one."""
        self.gradients[loss] = self.constant(1.0, loss)
        for op in reversed(self.active):
            g = self.gradients.get(op.result)
            if g is None or 0 in shape(op.result):  # the loss depends on no input
                continue
            operands, rule = list(op.values()), RULES[op.defn.short]
            parts = rule(self, op, g if rule in NARROW else self.full(g, shape(op.result)), *operands)
            for v, part in zip(operands, parts, strict=True):
                if v in self.wanted:
                    self.add(v, part(), shape(op.result) if rule in BROADCASTING else shape(v))
        return [self.full(self.gradients.get(v) or self.constant(0.0, v), shape(v)) for v in self.chosen]

    def add(self, v: Value, part: Value, whole: Shape) -> None:
        """Add a part to the gradient by `v`; the part is a gradient by `whole`, to which `v` was broadcast."""
        part = self.reduced(part, whole, shape(v))
        self.gradients[v] = self("Add", self.gradients[v], part) if v in self.gradients else part

    def stepped(self, v: Value, g: Value, rate: float) -> Value:
        """`v` after a step against its gradient `g`."""
        return self("Sub", v, self("Mul", g, self.constant(rate, v)))

    def __call__(self, opcode: str, *operands: Value, **attrs: object) -> Value:
        """A new instruction at the end."""
        return self.rewriter.append(self.rewriter.block, create(OPS[f"mind.{opcode}"], operands, attrs))

    def constant(self, value: object, like: Value) -> Value:
        """A constant of the dtype of `like`."""
        return building.constant(self, value, tensor_type(like).dtype)

    def full(self, g: Value, extents: Shape) -> Value:
        """`g` broadcast to `extents`."""
        return g if shape(g) == extents else building.stretched(self, g, extents)

    def reduced(self, g: Value, whole: Shape, extents: Shape) -> Value:
        """The sum of `g`, broadcast to `whole`, over the axes along which a value of shape `extents` was broadcast. Along axes
        where `g` is constant the sum is a product."""
        g = building.reshaped(self, g, (1,) * (len(whole) - len(shape(g))) + shape(g))
        aligned = (1,) * (len(whole) - len(extents)) + extents
        axes = [i for i, (a, b) in enumerate(zip(whole, aligned, strict=True)) if a != b]
        summed = tuple(i for i in axes if shape(g)[i] != 1)
        times = prod(whole[i] for i in axes if i not in summed)
        if summed:
            gone = len(whole) - len(extents)  # the axes that the value does not have
            narrow = tuple(1 if i in summed else d for i, d in enumerate(shape(g)))[gone:]
            g = self("Sum", g, axes=summed, keepdims=set(summed) != set(range(gone)))
            g = building.reshaped(self, g, narrow)
        else:
            g = building.reshaped(self, g, shape(g)[len(whole) - len(extents) :])
        return self.product(g, self.constant(float(times), g)) if times != 1 else g

    def product(self, g: Value, y: Value) -> Value:
        """`g` times `y`; just `y` if `g` is 1, the gradient of the loss by itself."""
        return y if not shape(g) and scalar_of(g) == 1 else self("Mul", g, y)

    def transposed(self, x: Value) -> Value:
        """The last two axes swapped."""
        rank = len(shape(x))
        return self("Transpose", x, permutation=(*range(rank - 2), rank - 1, rank - 2))

    def convolved(self, x: Value, f: Value, pairs: Pairs) -> Value:
        """Conv2d with these pads of height and width; a negative pad crops."""
        cut = [(max(-low, 0), max(-high, 0)) for low, high in ((0, 0), *pairs, (0, 0))]
        sizes = tuple(d - low - high for d, (low, high) in zip(shape(x), cut, strict=True))
        x = building.window(self, x, tuple(low for low, _ in cut), sizes)
        padding = tuple((max(low, 0), max(high, 0)) for low, high in pairs)
        return self("Conv2d", x, f, strides=(1, 1), padding=padding)


# A rule has, for each operand, a function that builds its part of the gradient; it is called only if that is needed.
Part = Callable[[], Value]


def _add(to: Gradients, op: Op, g: Value, x: Value, y: Value) -> list[Part]:
    return [lambda: g, lambda: g]


def _sub(to: Gradients, op: Op, g: Value, x: Value, y: Value) -> list[Part]:
    return [lambda: g, lambda: to("Neg", g)]


def _mul(to: Gradients, op: Op, g: Value, x: Value, y: Value) -> list[Part]:
    return [lambda: to.product(g, y), lambda: to.product(g, x)]


def _neg(to: Gradients, op: Op, g: Value, x: Value) -> list[Part]:
    return [lambda: to("Neg", g)]


def _exp(to: Gradients, op: Op, g: Value, x: Value) -> list[Part]:
    return [lambda: to.product(g, op.result)]


def _log(to: Gradients, op: Op, g: Value, x: Value) -> list[Part]:
    return [lambda: to.product(g, to("Exp", to("Neg", op.result)))]


def _relu(to: Gradients, op: Op, g: Value, x: Value) -> list[Part]:
    def part() -> Value:
        big = to.constant(2.0 ** (127 if tensor_type(x).dtype is F32 else 1023), x)
        one = to.constant(1.0, x)
        above = to("Mul", to("Mul", op.result, big), big)
        return to.product(g, to("Sub", one, to("Relu", to("Sub", one, above))))

    return [part]


def _reduction(to: Gradients, op: Op, g: Value, x: Value) -> list[Part]:
    """Every element gets the gradient of its sum; for Mean, divided by the number of elements."""
    extents = shape(x)
    axes = normalized_axes(op.attr("axes"), len(extents))
    kept = tuple(1 if i in axes else d for i, d in enumerate(extents))

    def part() -> Value:
        n = prod(extents[a] for a in axes) if op.defn.short == "Mean" else 1
        each = building.reshaped(to, to.full(g, shape(op.result)), kept) if shape(g) else g
        return to.product(each, to.constant(1 / n, x)) if n > 1 else each

    return [part]


def _reshape(to: Gradients, op: Op, g: Value, x: Value) -> list[Part]:
    return [lambda: building.reshaped(to, g, shape(x))]


def _transpose(to: Gradients, op: Op, g: Value, x: Value) -> list[Part]:
    forward = op.attr("permutation")
    return [lambda: to("Transpose", g, permutation=tuple(forward.index(i) for i in range(len(forward))))]


def _slice(to: Gradients, op: Op, g: Value, x: Value) -> list[Part]:
    """Zeros between and around the elements of the slice."""
    bounds = clamped(shape(x), op.attr("starts"), op.attr("ends"))
    return [lambda: _spread(to, g, [a for a, _ in bounds], op.attr("steps"), shape(x))]


def _index(to: Gradients, op: Op, g: Value, x: Value) -> list[Part]:
    """Zeros around the one element."""
    ones = (1,) * len(shape(x))
    return [lambda: _spread(to, building.reshaped(to, g, ones), op.attr("indices"), ones, shape(x))]


def _spread(to: Gradients, g: Value, starts: Sequence[int], steps: Shape, extents: Shape) -> Value:
    """`g` from `starts` on by `steps` among zeros of shape `extents`."""
    wide = building.spread(to, g, [s - 1 for s in steps])
    sizes = [(n - 1) * s + 1 for n, s in zip(shape(g), steps, strict=True)]
    pairs = [(a, d - a - n) for a, d, n in zip(starts, extents, sizes, strict=True)]
    return building.reshaped(to, building.widened(to, wide, pairs), extents)


def _gather(to: Gradients, op: Op, g: Value, x: Value, indices: Value) -> list[Part]:
    """For each row, the sum over the positions that read it."""
    rows, count = shape(x)[0], prod(shape(indices))

    def part() -> Value:
        flat = building.reshaped(to, g, (count, prod(shape(x)[1:])))
        literal = literal_of(indices)
        places = None if literal is None or literal.data is None else _places(from_literal(literal).reshape(-1), rows)
        if places is not None:  # by a table of the positions; the position after the last is a row of zeros
            wide = building.reshaped(to, building.widened(to, flat, ((0, 1), (0, 0))), (count + 1, shape(flat)[1]))
            read = to("Gather", wide, building.constant(to, places, SI64))
            return building.reshaped(to, to("Sum", read, axes=(1,), keepdims=False), shape(x))
        hot = building.one_hot(to, building.reshaped(to, indices, (count,)), rows, tensor_type(x).dtype)
        return building.reshaped(to, to("MatMul", to.transposed(hot), flat), shape(x))

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


def _matmul(to: Gradients, op: Op, g: Value, x: Value, y: Value) -> list[Part]:
    """Each side gets the product of the gradient and the other side; batches that were broadcast are summed."""

    def part(product: Value, v: Value) -> Value:
        return to.reduced(product, (*shape(product)[:-2], *shape(v)[-2:]), shape(v))

    return [lambda: part(to("MatMul", g, to.transposed(y)), x), lambda: part(to("MatMul", to.transposed(x), g), y)]


def _dot(to: Gradients, op: Op, g: Value, x: Value, y: Value) -> list[Part]:
    """As a MatMul of a row and a column, where an operand is a vector."""
    row = x if len(shape(x)) == 2 else building.reshaped(to, x, (1, *shape(x)))
    column = y if len(shape(y)) == 2 else building.reshaped(to, y, (*shape(y), 1))
    wide = building.reshaped(to, g, (shape(row)[0], shape(column)[1]))
    by_row, by_column = _matmul(to, op, wide, row, column)
    return [lambda: building.reshaped(to, by_row(), shape(x)), lambda: building.reshaped(to, by_column(), shape(y))]


def _conv2d(to: Gradients, op: Op, g: Value, x: Value, f: Value) -> list[Part]:
    """With g spread by the strides: by the input, a convolution with the reversed filter. By the filter, the input convolved
    by g, with batch and channels exchanged."""
    strides, window, extents = op.attr("strides"), shape(f)[:2], shape(x)[1:3]
    padding = pads(shape(x), shape(f), strides, op.attr("padding"))
    spans = [(n - 1) * s + 1 for n, s in zip(shape(op.result)[1:3], strides, strict=True)]

    def spaced() -> Value:
        return building.spread(to, g, (0, *(s - 1 for s in strides), 0))

    def by_input() -> Value:
        lows = [k - 1 - low for k, (low, _) in zip(window, padding, strict=True)]
        pairs = tuple((a, d - n - a + k - 1) for a, d, n, k in zip(lows, extents, spans, window, strict=True))
        return to.convolved(spaced(), _reversed(to, f), pairs)

    def by_filter() -> Value:
        pairs = tuple((low, k - 1 + n - d - low) for d, n, k, (low, _) in zip(extents, spans, window, padding, strict=True))
        images = to("Transpose", x, permutation=(3, 1, 2, 0))
        result = to.convolved(images, to("Transpose", spaced(), permutation=(1, 2, 0, 3)), pairs)
        return to("Transpose", result, permutation=(1, 2, 0, 3))

    return [by_input, by_filter]


def _reversed(to: Gradients, f: Value) -> Value:
    """A filter with a reversed window, and its input and output channels exchanged."""
    for order in ((1, 0, 2, 3), (1, 0, 3, 2)):
        if (n := shape(f)[0]) > 1:
            f = to("Gather", f, building.constant(to, np.arange(n)[::-1], SI64))
        f = to("Transpose", f, permutation=order)
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
