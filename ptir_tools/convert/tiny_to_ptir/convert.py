"""Tiny to PTIR: node by node and exact except for EXP2 (docs/tiny.md, "Translation").

Symbols stay symbols, and an expression becomes the symbol of its text; "dims" and what follows from them are put in first.
Where PTIR needs a number (the bounds of a slice, a pad, an index map) the node is refused with UnboundSymbol.
"""

from __future__ import annotations

import math

from ptir_tools.convert.emitter import Emit, Match, Pattern, Rule
from ptir_tools.convert.naming import in_ptir
from ptir_tools.convert.options import CONSTANTS
from ptir_tools.convert.tiny_to_ptir.formulas import FORMULAS
from ptir_tools.convert.tiny_to_ptir.views import numbers, rounded, view
from ptir_tools.convert.tiny_to_ptir.windows import WINDOWS
from ptir_tools.convert.to_ptir import PtirEmit, same
from ptir_tools.core.definers import undefined
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.dtypes import F32, F64
from ptir_tools.core.expressions import names
from ptir_tools.core.extents import put
from ptir_tools.core.ir import Argument, Attribute, Literal, Op, Operand, Region, Value
from ptir_tools.core.symbols import rewrite_types
from ptir_tools.core.types import Dim, Shape, Sym
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.rewrites.raising import RAISING
from ptir_tools.dialects.tiny.immediates import as_array, immediate
from ptir_tools.dialects.tiny.ops.view import pool_map
from ptir_tools.dialects.tiny.symbols import paired, put_dims, symbols
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.patterns import Effect
from ptir_tools.rewrite.vocabulary import made_by, tensor_type

CONST_POOL = "const_pool"  # the storage of INPUTs that hold constants


def convert(program: Program, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The PTIR program equal to the verified `program`; None after reporting what PTIR cannot express."""
    before = diagnostics.errors
    program = _with_dims(program, diagnostics)
    if diagnostics.errors > before:
        return None
    result = GraphEmit(RULES, program.main, diagnostics, options, patterns=PATTERNS).run()
    if result is None:
        return None
    PassContext().apply(result, RAISING, effect=Effect.ORDER, enable_constant_fold=False)
    open_ = {name for _, name in undefined(program)}
    if lost := sorted(name for _, name in undefined(result) if open_.isdisjoint(names(name))):
        message = f"no PTIR op determines ?{lost[0]}"
        diagnostics.error("UnboundSymbol", message, program.main.loc, help="give the symbols of the graph with --bind")
        return None
    return result


class GraphEmit(PtirEmit):
    """Builds a PTIR function from a graph: INPUTs with given values are constants, and symbols stay."""

    origin = "tiny"

    def needed(self, block: Region) -> list[Op]:
        """The live ops, except those that only a pattern absorbs."""
        return Emit.needed(self, block)

    def parameter(self, p: Value, label: str) -> Value:
        """A parameter, or the constant that is given for one in storage "const_pool"."""
        if label in self.constants():
            constants = self.options[CONSTANTS]
            assert constants is not None
            return self.builder.op("constant", value=constants[label], name=in_ptir(p.name))
        return super().parameter(p, label)

    def labels(self) -> list[str]:
        """The external names of the remaining parameters."""
        constants = self.constants()
        return [label for label in super().labels() if label not in constants]

    def constants(self) -> set[str]:
        """The labels of the INPUTs that become constants."""
        storage, given = self.source.attrs.get("storage", {}), self.options[CONSTANTS] or {}
        labels = zip(self.source.params, super().labels(), strict=True)
        return {label for p, label in labels if storage.get(p.name) == CONST_POOL and label in given}

    def last(self, short: str, *operands: Argument, **attrs: Attribute) -> Value:
        """The op of the node's value, in the node's symbols."""
        return self.builder.op(short, *operands, name=self.name, types=[self.type], **attrs)


def _with_dims(program: Program, diagnostics: Diagnostics) -> Program:
    """A copy with symbols replaced by what "dims" or the graph say, numbers or expressions; the program itself when it has no
    symbols."""
    if not symbols(program):
        return program
    program = clone(program)
    try:
        put_dims(program, {})
    except Violation as violation:
        diagnostics.violation(violation, None)
        return program
    extents, chosen = paired(program.main)
    if chosen:
        message = f"the opposite extent determines {', '.join(sorted(chosen))}: none may be 1"
        diagnostics.note("ConditionalTranslation", message, program.main.loc)
    rewrite_types(program.main, lambda s: put(s, extents))
    return program


def relu(emit: PtirEmit, op: Op, x: Operand) -> Value:
    """Compare and select, which give 0 for a NaN; `maximum` would keep it."""
    x, zero = emit.full(x), emit.filled(0)
    return emit.last("select", emit("compare_gt", x, zero), x, zero)


def cast(emit: PtirEmit, op: Op, x: Operand) -> Value:
    """PTIR has the same cast table."""
    return emit.last("cast", x, dtype=op.attr("to"))


def exp2(emit: PtirEmit, op: Op, x: Operand) -> Value:
    """exp(x * ln 2), computed in a wider float so that no range is lost."""
    wide = F64 if emit.type.dtype is F32 else F32
    emit.note(f"EXP2 becomes exp(x * ln 2) in {wide}")
    scaled = emit("mul", emit("cast", x, dtype=wide), emit.filled(math.log(2), wide))
    return emit.last("cast", emit("exp", scaled), dtype=emit.type.dtype)


def clamp(op: Op, options: Options) -> Match | None:
    """MIN(MAX(x, low), high) is a clamp."""
    x, high = op.operands
    inner = made_by(x, "MAX")
    if inner is None or not isinstance(inner.operands[0], Value):
        return None
    operands = (*inner.operands, high)
    return Match(operands, lambda emit, op, *operands: emit.last("clamp", *map(emit.full, operands)))


def exp(op: Op, options: Options) -> Match | None:
    """EXP2 of fp32 `v * log2(e)`, with the constant rounded to fp32, is exp(v), as in a softmax."""
    x = op.operands[0]
    if not isinstance(x, Value) or x.op is None or x.op.defn.short != "MUL":
        return None
    values = [v for v in x.op.operands if isinstance(v, Value)]
    constants = [v for v in x.op.operands if isinstance(v, Literal)]
    if len(values) != 1 or len(constants) != 1 or not constants[0].same(immediate(math.log2(math.e), F32)):
        return None
    note = f"EXP2 of {values[0].name} times log2(e) becomes exp: the rounding of the product is saved"
    return Match((values[0],), same("exp"), note)


def reduce(emit: PtirEmit, op: Op, x: Operand) -> Value:
    """The source is cast first, unless a wider accumulator does it; `init` is one more op. A sum of narrow floats is kept in f32
    until then, so that it is rounded once. A sum of f32 is not wider: the addition is one of those that the bound allows for."""
    kind, axes, dtype, init = (op.attr(n) for n in ("op", "axes", "dtype", "init"))
    source = tensor_type(x)
    if source.dtype is not dtype and not (axes and dtype is F32 and source.dtype.is_float):
        x = emit("cast", x, dtype=dtype)
    reduction, combine = REDUCTIONS[kind]
    if init is None:
        return emit.last(reduction, x, axes=axes, accum_dtype=dtype, out_dtype=dtype)
    wide = F32 if kind == "SUM" and dtype.is_float else dtype
    total = emit(reduction, x, axes=axes, accum_dtype=wide, out_dtype=wide)
    if wide is dtype:
        return emit.last(combine, total, emit.filled(init))
    start = float(as_array(init, dtype).astype(float))
    return emit.last("cast", emit(combine, total, emit.filled(start, wide)), dtype=dtype)


REDUCTIONS = {"SUM": ("reduce_sum", "add"), "MAX": ("reduce_max", "maximum"), "MIN": ("reduce_min", "minimum")}


def reshape(emit: PtirEmit, op: Op, x: Operand) -> Value:
    """The same reshape; symbols stay."""
    return emit.last("reshape", x, new_shape=op.attr("result_shape"))


def permute(emit: PtirEmit, op: Op, x: Operand) -> Value:
    """A transpose."""
    return emit.last("transpose", x, perm=op.attr("perm"))


def expand(emit: PtirEmit, op: Op, x: Operand) -> Value:
    """A broadcast; new axes of extent 1 are inserted."""
    source, result_shape = tensor_type(x), op.attr("result_shape")
    inner: list[Dim] = [1] * len(result_shape)
    for d, axis in zip(source.shape, op.attr("broadcast_dimensions"), strict=True):
        if axis is not None:
            inner[axis] = d
    if tuple(inner) != (1,) * (len(inner) - source.rank) + source.shape:
        x = emit("reshape", x, new_shape=tuple(inner))
    return emit.last("broadcast_to", x, result_shape=result_shape)


def pad(emit: PtirEmit, op: Op, x: Operand) -> Value:
    """A pad without interior; where a width is a symbol a VIEW with the fill outside of the source."""
    widths, source = op.attr("pad"), tensor_type(x).shape
    if not all(isinstance(n, int) for pair in widths for n in pair):
        at = [f"@{i}-({_text(low)})" for i, (low, _) in enumerate(widths)]
        guards = [p for p, (low, _) in zip(at, widths, strict=True) if low != 0]
        guards += [f"{_text(d)}-1-({p})" for p, d, (_, high) in zip(at, source, widths, strict=True) if high != 0]
        return view(emit, x, at, guards, op.attr("value"))
    counts = numbers("PAD", [d for pair in op.attr("pad") for d in pair])
    low, high = counts[::2], counts[1::2]
    return emit.last("pad", x, low=low, high=high, pad_value=rounded(op.attr("value"), emit.type.dtype))


def shrink(emit: PtirEmit, op: Op, x: Operand) -> Value:
    """The window; with a step, the elements at these steps."""
    lo, hi, step = (op.attr(n) for n in ("lo", "hi", "step"))
    source, step = tensor_type(x), step or (1,) * len(lo)
    if not source.is_static:
        return _shrink_axes(emit, x, lo, hi, step)
    starts, ends, given = (numbers("SHRINK", d) for d in (lo, hi, step))
    counts = tuple(len(range(a, b, s)) for a, b, s in zip(starts, ends, given, strict=True))
    return emit.stepped(x, starts, counts, given)


def _shrink_axes(emit: PtirEmit, x: Operand, lo: Shape, hi: Shape, step: Shape) -> Value:
    """Symbolic axes with a step: windows of one element, whose extent PTIR can express. Else a VIEW along the axes that shrink;
    other axes, whose extents may be symbols, are kept whole."""
    shape, wanted = tensor_type(x).shape, zip(tensor_type(x).shape, lo, hi, step, strict=True)
    strides = tuple(s if isinstance(d, Sym) and a == 0 and b == d and isinstance(s, int) else 1 for d, a, b, s in wanted)
    if any(s != 1 for s in strides):
        left = tuple(d if s == 1 else n for d, s, n in zip(shape, strides, emit.shape, strict=True))
        framed = emit("reshape", x, new_shape=(1, *shape, 1))
        t = emit.type.with_shape((1, *left, 1))
        result = emit("extract_patches", framed, window=(1,) * len(lo), strides=strides, types=[t])
        if left == emit.shape:
            return emit.last("reshape", result, new_shape=left)
        x = emit("reshape", result, new_shape=left)
        step = tuple(1 if n != 1 else s for s, n in zip(step, strides, strict=True))
    return view(emit, x, [f"{_text(a)}+({_text(s)})*@{i}" for i, (a, s) in enumerate(zip(lo, step, strict=True))])


def flip(emit: PtirEmit, op: Op, x: Operand) -> Value:
    """A VIEW that counts down along `axes`."""
    axes = op.attr("axes")
    return view(emit, x, [f"{_text(d)}-1-@{i}" if i in axes else f"@{i}" for i, d in enumerate(emit.shape)])


def general_view(emit: PtirEmit, op: Op, x: Operand) -> Value:
    """See `views`."""
    return view(emit, x, [_text(d) for d in op.attr("map")], [_text(d) for d in op.attr("guard")], op.attr("fill"))


def _text(d: Dim) -> str:
    return str(d) if isinstance(d, int) else d.name


def pool(emit: PtirEmit, op: Op, x: Operand) -> Value:
    """The equivalent VIEW."""
    ones = (1,) * len(op.attr("kernel"))
    entries = pool_map(len(emit.shape) - len(ones), op.attr("stride") or ones, op.attr("dilation") or ones)
    return view(emit, x, list(map(_text, entries)))


RULES: dict[str, Rule] = {
    "NEG": same("neg"), "RSQRT": same("rsqrt"), "ADD": same("add"), "SUB": same("sub"), "MUL": same("mul"),
    "FDIV": same("div"), "MAX": same("maximum"), "MIN": same("minimum"), "RELU": relu, "EXP2": exp2, "CAST": cast,
    "WHERE": same("select"), "REDUCE": reduce, "RESHAPE": reshape, "PERMUTE": permute, "EXPAND": expand, "PAD": pad,
    "SHRINK": shrink, "FLIP": flip, "VIEW": general_view, "POOL": pool,
}  # fmt: skip


PATTERNS: dict[str, tuple[Pattern, ...]] = {
    "EXP2": (exp,),
    "MIN": (clamp,),
    **{uop: (*FORMULAS.get(uop, ()), *WINDOWS.get(uop, ())) for uop in FORMULAS | WINDOWS},
}
