"""PTIR to MIND: what Core v1 can express, the rest refused at every op at once (`NotTranslatable`).

A broadcast costs nothing where MIND broadcasts by itself (Add, Sub, Mul) and is a product with ones elsewhere. What several
PTIR ops say and one operation of MIND says too is found by the patterns of `ptir_mind_patterns`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from ptir_tools.convert.naming import Names, spelled
from ptir_tools.convert.ptir_mind_patterns import PATTERNS, Match
from ptir_tools.core.arrays import numpy_dtype, pack, to_literal
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics, Violation, require
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import DType
from ptir_tools.core.evaluate import Context, evaluate
from ptir_tools.core.ir import Element, Literal, Op, Operand, Program, Value
from ptir_tools.core.limits import Limits
from ptir_tools.core.types import TensorType, Type, tensor
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.mind.attributes import SCALARS
from ptir_tools.dialects.mind.ops.common import broadcast
from ptir_tools.dialects.mind.types import NAMES

NOT_TRANSLATABLE = "NotTranslatable"

_SCALAR_OPCODES = {dtype: opcode for opcode, dtype in SCALARS.items()}
_NO_CONTROL_FLOW = "Core v1 has no control flow"
_LOSSY = "--lossy translates it, within rounding and but for NaN and range"

# Why an op cannot be translated, where more can be said than that MIND has nothing like it.
HELP = {
    "layer_norm": "`ptir opt -p decompose` makes it smaller ops, and --lossy translates their rsqrt",
    "tanh": "of the functions of floats, Core v1 has Exp, Log and Relu",
    "erf": "of the functions of floats, Core v1 has Exp, Log and Relu",
    "concat": "Core v1 makes no tensor larger but by broadcasting",
    "pad": "Core v1 makes no tensor larger but by broadcasting",
    "gather": "Gather of Core v1 indexes the first axis alone, as take does",
    "cond": _NO_CONTROL_FLOW,
    "while": _NO_CONTROL_FLOW,
    "scan": _NO_CONTROL_FLOW,
    "maximum": "--lossy translates `maximum(x, 0)` to Relu, which gives 0 for a NaN",
    "abs": _LOSSY,
    "reciprocal": _LOSSY,
    "rsqrt": _LOSSY,
    "div": "by a constant power of two it is a product; --lossy takes the reciprocal of any constant; by a count, a Mean",
    "extract_patches": "with a dot_general by a constant or reshaped filter it is a Conv2d",
}


def convert(program: Program, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The MIND module that computes what the entry of `program` does; None after reporting what cannot be said."""
    before = diagnostics.errors
    for other in program.functions:
        if other is not program.main:
            diagnostics.error(NOT_TRANSLATABLE, f"a MIND module has one function; @{other.name} is not the entry", other.loc)
    translation = Translation(program, diagnostics, options)
    translation.parameters()
    translation.body()
    new = translation.results()
    return new if diagnostics.errors == before else None


class Translation:
    """A MIND module in the making. `values` holds what PTIR values became (None: in error), `narrow` broadcasts not yet made."""

    def __init__(self, program: Program, diagnostics: Diagnostics, options: Options) -> None:
        self.function = program.main
        self.diagnostics = diagnostics
        self.options = options
        self.program, self.builder = single_function(load_dialect("mind"))
        self.program.main.loc = self.function.loc
        self.values: dict[Value, Value | None] = {}
        self.narrow: dict[Value, Value] = {}
        self.fresh = Names(
            spelled(v.name) for v in (*self.function.params, *(v for op in self.function.body for v in op.results))
        )

    def refuse(self, message: str, loc: int, help: str | None = None) -> None:
        """Report what cannot be translated."""
        self.diagnostics.error(NOT_TRANSLATABLE, message, loc, help=help)

    def parameters(self) -> None:
        """An Input for each parameter, under its name."""
        names = self.function.attrs.get("input_names") or [p.name for p in self.function.params]
        places = self.function.attrs.get("input_locs", {})
        for p, name in zip(self.function.params, names, strict=True):
            reason = unfit(p.type) or ("an extent is 0" if 0 in p.type.shape else "")  # type: ignore[attr-defined]
            made = self.builder.param(p.type, spelled(p.name))
            self.values[p] = None if reason else made
            if reason:
                self.refuse(f"parameter %{p.name}: {reason}", places.get(name, self.function.loc))
        self.program.main.attrs["input_names"] = list(names)

    def body(self) -> None:
        """Plan from the last op to the first, so that what a pattern absorbs is not asked for; then build in order."""
        used = {v for op in self.function.body for v in op.values()} | _named(self.function.results)
        wanted = _named(self.function.results)
        planned: dict[Op, Match | None] = {}
        for op in reversed(self.function.body):
            if any(v in used for v in op.results) and not any(v in wanted for v in op.results):
                continue
            planned[op] = match = next((m for p in PATTERNS.get(op.defn.short, ()) if (m := p(op, self.options))), None)
            wanted |= _named(match.needs if match else op.operands)
        for op in self.function.body:
            if op in planned:
                self.op(op, planned[op])

    def op(self, op: Op, match: Match | None) -> None:
        """Translate one op, unless an operand is in error or the op has no counterpart."""
        self.builder.loc = op.loc
        emit = Emit(self, op)
        needs = match.needs if match else op.operands
        for v in op.results:
            self.values[v] = None
        short = op.defn.short
        if match is None and short not in RULES:
            self.refuse(f"MIND has no `{short}`", op.loc, HELP.get(short))
        elif any(v not in self.narrow and self.values.get(v) is None for v in _named(needs)):
            return  # in error already
        elif reason := unfit(op.result.type):
            self.refuse(f"`{short}`: {reason}", op.loc)
        else:
            self.build(emit, op, match)

    def build(self, emit: Emit, op: Op, match: Match | None) -> None:
        """Run the rule of an op, or the pattern that matched; a constraint of MIND that it breaks is a refusal."""
        try:
            if match is None:
                self.values[op.result] = RULES[op.defn.short](emit, *op.operands, **op.defn.named(op.attrs))
                return
            if match.note:
                self.diagnostics.note("ConditionalTranslation", match.note, op.loc)
            self.values[op.result] = match.build(emit)
        except Violation as violation:
            self.refuse(f"`{op.defn.short}`: {violation.message}", op.loc, violation.help)

    def results(self) -> Program:
        """The module, its outputs set when all of them are there."""
        results = self.function.results
        if not results:
            self.refuse("a MIND module has an output", self.function.loc)
        if all(map(self.known, results)):
            try:
                self.builder.results(*map(self.named, results))
            except Violation as violation:
                self.refuse(f"a result: {violation.message}", self.function.loc, violation.help)
        return self.program

    def named(self, x: Operand) -> Value:
        """A result under its name: where an op left none, it is a Reshape to the same shape."""
        v = Emit(self, None).value(x)
        shape = v.type.static_shape  # type: ignore[attr-defined]
        if not isinstance(x, Value) or v.name == spelled(x.name) or 0 in shape:
            return v
        self.values[x] = made = self.builder.op("Reshape", v, new_shape=shape, name=spelled(x.name))
        return made

    def known(self, x: Operand) -> bool:
        """Whether an operand was translated."""
        return isinstance(x, Literal) or (isinstance(x, Value) and (x in self.narrow or self.values.get(x) is not None))


def _named(operands: Sequence[Operand]) -> set[Value]:
    return {x.value if isinstance(x, Element) else x for x in operands if not isinstance(x, Literal)}


def unfit(t: Type) -> str | None:
    """Why MIND has no such type; None when it has."""
    if not isinstance(t, TensorType):
        return "MIND has no tuples"
    if t.dtype not in NAMES:
        return f"MIND has no {t.dtype}; it has f32, f64, si32, si64"
    return None if t.is_static else f"{t} has symbolic extents; give them with --bind"


class Emit:
    """Builds what one op becomes. `last` makes its final instruction, which takes its name."""

    def __init__(self, translation: Translation, op: Op | None) -> None:
        self.to = translation
        self.result = op.result if op else None
        self.name = spelled(op.result.name) if op else "output"

    @property
    def type(self) -> TensorType:
        """The type of the result."""
        t: Any = self.result.type if self.result else None
        return tensor(t.dtype, t.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return self.type.static_shape

    @property
    def limits(self) -> Limits:
        """What may be asked of the tool."""
        return self.to.options.limits

    def __call__(self, opcode: str, *operands: Value, **attrs: Any) -> Value:
        """An instruction before the last."""
        return self.to.builder.op(opcode, *operands, name=self.to.fresh.between(self.name), **attrs)

    def last(self, opcode: str, *operands: Value, **attrs: Any) -> Value:
        """The instruction that gives the result."""
        return self.to.builder.op(opcode, *operands, name=self.name, **attrs)

    def note(self, x: Value | None, message: str) -> None:
        """Say at the op that defines `x` under which condition it was translated."""
        loc = x.op.loc if x is not None and x.op is not None else self.to.function.loc
        self.to.diagnostics.note("ConditionalTranslation", message, loc)

    def value(self, x: Operand) -> Value:
        """What an operand became, in its own shape: a broadcast is made now."""
        if isinstance(x, Literal):
            return self.constant(x)
        assert isinstance(x, Value)
        if (found := self.to.values.get(x)) is not None:
            return found
        ones = self.constant(filled(x.type, 1))  # type: ignore[arg-type]
        self.note(x, "the broadcast becomes a product with ones")
        made = self.to.builder.op("Mul", self.to.narrow[x], ones, name=spelled(x.name))
        self.to.values[x] = made
        return made

    def slim(self, x: Operand) -> Value:
        """What an operand became, not broadcast: for operations that broadcast by themselves."""
        if isinstance(x, Literal):
            return self.constant(Literal(tensor(x.type.dtype), x.data) if x.splat else x)
        assert isinstance(x, Value)
        return self.to.narrow[x] if x in self.to.narrow else self.value(x)

    def constant(self, literal: Literal, *, last: bool = False) -> Value:
        """A constant: of its own opcode where it is a scalar of i64, f32 or f64."""
        require(literal.data is not None, NOT_TRANSLATABLE, "the payload of the constant is not in the file")
        opcode = "ConstTensor" if literal.type.shape else _SCALAR_OPCODES.get(literal.type.dtype, "ConstTensor")
        return (self.last if last else self)(opcode, value=literal)


def filled(t: TensorType, value: int) -> Literal:
    """A literal of type `t` whose elements are all `value`."""
    return Literal(t, pack(numpy_dtype(t.dtype).type(value), t.dtype), splat=True)


def plain(dtype: DType, accum: DType | None, out: DType | None) -> None:
    """Raise Violation unless a reduction stays in its operand's dtype."""
    fits = accum in (None, dtype) and out in (None, dtype)
    require(fits, NOT_TRANSLATABLE, f"MIND reduces {dtype} in {dtype}, not with accum_dtype {accum} and out_dtype {out}")


def _dtype(x: Operand) -> DType:
    t: Any = x.type  # type: ignore[union-attr]
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


RULES: dict[str, Callable[..., Value | None]] = {
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
