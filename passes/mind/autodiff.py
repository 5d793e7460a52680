"""Reverse-mode differentiation of a MIND module, as far as Core v1 can say its gradients."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

from ptir_tools.core.arrays import numpy_dtype, to_literal
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.ir import Function, Op, Program, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.opdef import OPS, create
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.dialects.mind.ops.reduce import normalized
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.rewriter import Rewriter

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

OPTIONS = {"wrt": "", "loss": 0}

Shape = tuple[int, ...]


def run(program: Program, context: PassContext) -> None:
    """Reverse mode: the outputs become the loss and its gradients by `wrt`, in the order of the inputs.

    The loss is output number `loss`, a float scalar (E5003). `wrt` names inputs, separated by commas; without it every float
    input. E5001: an instruction on the way whose gradient Core v1 cannot express. E5005: an input of integers.
    """
    function = program.main
    loss = _loss(function, context)
    chosen = _chosen(function, context)
    if loss is None or not chosen:
        return
    active = _active(function, loss, chosen)
    if _refused(active, context.diagnostics):
        return
    for rewriter in context.rewriters(program):
        gradients = Gradients(rewriter, active, chosen)
        rewriter.set_results(function, [loss, *gradients.of(loss)])


def _loss(function: Function, context: PassContext) -> Value | None:
    number = context.options["loss"]
    if not 0 <= number < len(function.results):
        raise UsageError(f"option `loss` is {number}, the module has {len(function.results)} outputs")
    loss = function.results[number]
    if isinstance(loss, Value) and isinstance(t := loss.type, TensorType) and t.dtype.is_float and not t.shape:
        return loss
    context.diagnostics.error("E5003", f"output {number} is no float scalar and cannot be differentiated", function.loc)
    return None


def _chosen(function: Function, context: PassContext) -> list[Value]:
    """The inputs to differentiate by, in the order of the module."""
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


def _active(function: Function, loss: Value, chosen: list[Value]) -> list[Op]:
    """The ops on a way from a chosen input to the loss, in order."""
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
        diagnostics.error("E5001", f"the gradient of {op.defn.short} cannot be expressed in Core v1", op.loc)
    return bool(bad)


class Gradients:
    """Appends instructions to a module. `found` holds the gradient of the loss by each value so far."""

    def __init__(self, rewriter: Rewriter, active: list[Op], chosen: list[Value]) -> None:
        self.rewriter = rewriter
        self.active = active
        self.chosen = chosen
        self.wanted = {*chosen, *(op.result for op in active)}
        self.found: dict[Value, Value] = {}

    def of(self, loss: Value) -> list[Value]:
        """The gradients by the chosen inputs; zeros by one that the loss does not depend on."""
        self.found[loss] = self.filled((), 1.0, loss)
        for op in reversed(self.active):
            operands = list(op.values())
            parts = RULES[op.defn.short](self, op, self.found[op.result], *operands)
            for v, part in zip(operands, parts, strict=True):
                if v in self.wanted:
                    self.add(v, part())
        return [self.found[v] if v in self.found else self.filled(shape(v), 0.0, v) for v in self.chosen]

    def add(self, v: Value, part: Value) -> None:
        """Add a part to the gradient by `v`, summed to its shape."""
        part = self.reduced_to(part, shape(v))
        self.found[v] = self("Add", self.found[v], part) if v in self.found else part

    def __call__(self, opcode: str, *operands: Value, **attrs: Any) -> Value:
        """A new instruction at the end."""
        return self.rewriter.append(self.rewriter.block, create(OPS[f"mind.{opcode}"], operands, attrs))

    def filled(self, extents: Shape, value: float, like: Value) -> Value:
        """A constant of the dtype of `like` whose elements are all `value`."""
        t = tensor(like.type.dtype, extents)  # type: ignore[attr-defined]
        return self("ConstTensor", value=to_literal(np.full(extents, value, numpy_dtype(t.dtype)), t))

    def reshaped(self, x: Value, extents: Shape) -> Value:
        """`x` under another shape; itself when it has it."""
        return x if shape(x) == extents else self("Reshape", x, new_shape=extents)

    def reduced_to(self, g: Value, extents: Shape) -> Value:
        """`g` summed over the axes along which a value of shape `extents` was broadcast to it."""
        have = shape(g)
        aligned = (1,) * (len(have) - len(extents)) + extents
        axes = tuple(i for i, (a, b) in enumerate(zip(have, aligned, strict=True)) if a != b)
        return self.reshaped(self("Sum", g, axes=axes, keepdims=False) if axes else g, extents)

    def transposed(self, x: Value) -> Value:
        """The last two axes swapped."""
        rank = len(shape(x))
        return self("Transpose", x, permutation=(*range(rank - 2), rank - 1, rank - 2))


def shape(v: Value) -> Shape:
    """The shape of a value."""
    t: Any = v.type
    found: Shape = t.static_shape
    return found


# A rule gives, for each operand, a function that builds its part of the gradient; it is called only where that is wanted.
Part = Callable[[], Value]


def _add(to: Gradients, op: Op, g: Value, x: Value, y: Value) -> list[Part]:
    return [lambda: g, lambda: g]


def _sub(to: Gradients, op: Op, g: Value, x: Value, y: Value) -> list[Part]:
    return [lambda: g, lambda: to("Neg", g)]


def _mul(to: Gradients, op: Op, g: Value, x: Value, y: Value) -> list[Part]:
    return [lambda: to("Mul", g, y), lambda: to("Mul", g, x)]


def _neg(to: Gradients, op: Op, g: Value, x: Value) -> list[Part]:
    return [lambda: to("Neg", g)]


def _exp(to: Gradients, op: Op, g: Value, x: Value) -> list[Part]:
    return [lambda: to("Mul", g, op.result)]


def _reduction(to: Gradients, op: Op, g: Value, x: Value) -> list[Part]:
    """Every element gets the gradient of its sum; for Mean, divided by the number of elements."""
    extents = shape(x)
    axes = normalized(op.attr("axes"), len(extents))
    kept = tuple(1 if i in axes else d for i, d in enumerate(extents))
    n = prod(extents[a] for a in axes) if op.defn.short == "Mean" else 1
    return [lambda: to("Mul", to.reshaped(g, kept), to.filled(extents, 1 / n, x))]


def _reshape(to: Gradients, op: Op, g: Value, x: Value) -> list[Part]:
    return [lambda: to.reshaped(g, shape(x))]


def _transpose(to: Gradients, op: Op, g: Value, x: Value) -> list[Part]:
    forward = op.attr("permutation")
    return [lambda: to("Transpose", g, permutation=tuple(forward.index(i) for i in range(len(forward))))]


def _matmul(to: Gradients, op: Op, g: Value, x: Value, y: Value) -> list[Part]:
    return [lambda: to("MatMul", g, to.transposed(y)), lambda: to("MatMul", to.transposed(x), g)]


def _dot(to: Gradients, op: Op, g: Value, x: Value, y: Value) -> list[Part]:
    """As a MatMul of a row and a column, where an operand is a vector."""
    row = x if len(shape(x)) == 2 else to.reshaped(x, (1, *shape(x)))
    column = y if len(shape(y)) == 2 else to.reshaped(y, (*shape(y), 1))
    wide = to.reshaped(g, (shape(row)[0], shape(column)[1]))
    by_row, by_column = _matmul(to, op, wide, row, column)
    return [lambda: to.reshaped(by_row(), shape(x)), lambda: to.reshaped(by_column(), shape(y))]


RULES: dict[str, Callable[..., list[Part]]] = {
    "Add": _add,
    "Sub": _sub,
    "Mul": _mul,
    "Neg": _neg,
    "Exp": _exp,
    "Sum": _reduction,
    "Mean": _reduction,
    "Reshape": _reshape,
    "ExpandDims": _reshape,
    "Squeeze": _reshape,
    "Transpose": _transpose,
    "Dot": _dot,
    "MatMul": _matmul,
}
